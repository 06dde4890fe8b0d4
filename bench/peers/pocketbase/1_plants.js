/** The schema of the plants, and the user whose token the load sends. PocketBase runs it before the first start. */

migrate((app) => {
  const id = { name: "id", type: "text", primaryKey: true, required: true };
  const plants = {
    type: "base",
    name: "plants",
    fields: [
      // Ids are texts, of 15 characters unless the schema says otherwise. With any other pattern, each create scans the
      // table for an id that differs in case.
      { ...id, min: 1, max: 19, pattern: "^[a-z0-9]+$", autogeneratePattern: "" },
      { name: "name", type: "text", required: true },
      { name: "tag", type: "text" },
    ],
  };
  app.save(new Collection(plants));
  // Off by default. Each batch is one transaction.
  const settings = app.settings();
  settings.batch.enabled = true;
  settings.batch.maxRequests = Number($os.getenv("BENCH_BATCH_LENGTH"));
  app.save(settings);
  const user = new Record(app.findCollectionByNameOrId("_superusers"));
  user.set("email", $os.getenv("BENCH_EMAIL"));
  user.set("password", $os.getenv("BENCH_TOKEN"));
  app.save(user);
});
