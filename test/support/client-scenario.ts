/** Every operation of the client, in an order that shows each of its outcomes. Runs on any platform. */

import type * as Package from "../../client/client.ts";

const FIRST = 9_007_199_254_740_993n;

/** With the digits of every id. */
const write = (value: unknown): string =>
  JSON.stringify(value, (_, part: unknown) => (typeof part === "bigint" ? `${part}n` : part));

async function collect<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const found: Item[] = [];
  for await (const item of items) found.push(item);
  return found;
}

/** Everything that came back and was not what was expected. */
export async function useClient(
  { Client, ServiceError }: Pick<typeof Package, "Client" | "ServiceError">,
  url: string,
  token: string,
): Promise<string[]> {
  const differences: string[] = [];
  const check = (what: string, found: unknown, expected: unknown): void => {
    if (write(found) !== write(expected)) differences.push(`${what}: ${write(found)}`);
  };
  const refuses = async (promise: Promise<unknown>, ...expected: unknown[]): Promise<void> => {
    const found = await promise.then(
      () => "no failure",
      (error: unknown) => (error instanceof ServiceError ? [error.status, error.reason] : error),
    );
    check(`instead of ${write(expected)}`, found, expected);
  };
  const client = new Client(url, token);
  const rose = { id: FIRST, name: 'Rose "{"id":1"', tag: "shrub" };
  check("create", [await client.create(rose), await client.create(rose)], ["created", "replayed"]);
  await refuses(client.create({ id: FIRST, name: "Tulip" }), 409, "id_taken");

  const { plant, etag } = await client.get(FIRST);
  check("get", plant, rose);
  check("unchanged", (await client.get(FIRST, { ifNoneMatch: etag })) === undefined, true);
  await refuses(client.get(-1n), 404, "plant_not_found");
  const replaced = await client.replace({ id: FIRST, name: "Rosa" }, { ifMatch: etag });
  check("replace", [replaced.plant.tag === undefined, replaced.etag !== etag], [true, true]);
  await refuses(client.remove(FIRST, { ifMatch: etag }), 412, "precondition_failed");
  await client.remove(FIRST, { ifMatch: replaced.etag });

  const own = { batch: "own" };
  await client.create({ id: 8n, name: "Fern" }, own);
  const patched = await client.patch(8n, { tag: "shade" }, own);
  check("patch", patched.plant, { id: 8n, name: "Fern", tag: "shade" });
  await refuses(client.patch(8n, { name: "x" }, { ifMatch: '"x"' }), 412, "precondition_failed");
  check("patch back", (await client.patch(8n, { tag: null }, own)).plant, { id: 8n, name: "Fern" });
  const writes: Package.Upsert[] = [
    { id: 8n, name: "Fern", tag: "shade", ifMatch: patched.etag },
    { id: 8n, name: "Fern", tag: "shade" },
    { id: 9n, name: "Moss", tag: "shade" },
    { id: 9n, name: "Moss", tag: "shade" },
    { id: 10n, removed: true },
  ];
  const upserted: unknown[] = [];
  for await (const { outcome } of client.upsertAll(writes, own))
    upserted.push(typeof outcome === "string" ? outcome : outcome.reason);
  const did = ["precondition_failed", "replaced", "created", "replayed", "replayed"];
  check("upsertAll", upserted, did);
  const shown: unknown[] = [];
  const again = [
    { id: 9n, name: "Moss", tag: "shade" },
    { id: 9n, name: "M" },
  ];
  for await (const { now } of client.upsertAll(again, { dryRun: true })) shown.push(now);
  check("a dry run", shown, [undefined, { name: "Moss", tag: "shade" }]);
  const removing: unknown[] = [];
  const gone = { id: 9n, removed: true, ifMatch: "*" } as const;
  await client.upsertBatch([gone, gone], (...settled) => removing.push(settled), own);
  const removals = [
    [0, "removed"],
    [1, "replayed"],
  ];
  check("upsertBatch", removing, removals);
  const pair = [{ id: 9n, name: "Moss", tag: "shade" }, gone, { id: 8n, name: "Ivy" }];
  await refuses(client.writeAtomic(pair), 409, "id_taken");
  const atomic = await client.writeAtomic(pair, { ...own, upsert: true });
  check("writeAtomic", atomic, ["created", "removed", "replaced"]);
  const preview = await client.previewPatch({ name: "ivy" }, { tag: "wall" });
  const sample = [{ id: 8n, now: { name: "Ivy" }, after: { name: "Ivy", tag: "wall" } }];
  check("previewPatch", preview, { plants: 1, exact: true, sample });
  const counts = { plants: 1, replaced: 1, removed: 0, unchanged: 0, changedSince: 0, refused: 0 };
  const walled = await client.patchMatching({ name: "ivy" }, { tag: "wall" }, own);
  check("patchMatching", walled, { ...counts, ...own });
  check("previewRemoval", (await client.previewRemoval({ tag: "wall" })).plants, 1);
  const { batch, ...removedAll } = await client.removeMatching({ tag: "wall" });
  check("removeMatching", removedAll, { ...counts, replaced: 0, removed: 1 });
  check("its batch", batch.startsWith("remove 2"), true);
  const alone = { batch: "alone", respondAsync: true };
  const none = await client.removeMatching({ tag: "none" }, alone);
  check("respondAsync", none, { ...counts, plants: 0, replaced: 0, batch: "alone" });
  const jobs = (await client.listJobs()).map(({ batch: of, kind, state }) => [of, kind, state]);
  check("listJobs", jobs, [["alone", "remove", "ended"]]);
  check("findJob", (await client.findJob("alone"))?.report.complete, true);
  check("findJob of none", await client.findJob("none"), undefined);
  check("followJob", (await client.followJob("alone")).plants, 0);
  await client.stopJob("alone");
  await refuses(client.stopJob("none"), 404, "job_not_found");
  await refuses(client.removeMatching({ tag: undefined }), 400, "invalid_query");
  const seeds = [7n, 6n].map((id) => ({ id, name: "Moss", tag: "sown" }));
  const sown = await client.upsertByJob(seeds, { batch: "sown" });
  check("upsertByJob", sown, { ...counts, plants: 2, replaced: 0, created: 2, batch: "sown" });
  const but = await client.removeMatching({ tag: "sown", except: [7n] }, own);
  check("except", but, { ...counts, replaced: 0, removed: 1, ...own });
  check("all", (await client.previewRemoval({ all: true })).plants >= 1, true);
  await client.remove(7n);
  await refuses(client.get(FIRST), 404, "plant_not_found");

  const plantAt = (index: bigint): Package.Plant => ({
    id: FIRST + index,
    name: `plant ${index}`,
    ...(index < 5n && { tag: `tag ${index}` }),
  });
  async function* grow(): AsyncGenerator<Package.NewPlant> {
    for (let index = 0n; index < 2_500n; index++) {
      if (index % 1_000n === 0n) await new Promise((resolve) => setTimeout(resolve, 1));
      yield plantAt(index);
    }
    yield { id: FIRST, name: "other" };
  }
  const outcomes: Record<string, number> = {};
  for await (const { outcome } of client.createAll(grow())) {
    const kind = typeof outcome === "string" ? outcome : String(outcome.reason);
    outcomes[kind] = (outcomes[kind] ?? 0) + 1;
  }
  check("createAll", outcomes, { created: 2_500, id_taken: 1 });
  const settled: unknown[] = [];
  await client.createBatch([plantAt(0n)], (...given) => settled.push(given));
  check("createBatch", settled, [[0, "replayed"]]);

  const idsOf = async (plants: AsyncIterable<Package.Plant>): Promise<bigint[]> =>
    (await collect(plants)).map(({ id }) => id);
  const page = await client.listPage({ limit: 2, after: FIRST });
  check("listPage", page, { plants: [plantAt(1n), plantAt(2n)], next: FIRST + 2n });
  const sorted = await client.listSortedPage({ sort: "-name", tag: "tag 0", include: "changed" });
  check("listSortedPage", [sorted.plants.length, typeof sorted.plants[0]?.changed], [1, "string"]);
  const byName = await client.listSortedPage({ sort: "name", limit: 1 });
  const after = await client.listSortedPage({ sort: "name", limit: 1, cursor: byName.cursor });
  check("its cursor", [byName.cursor !== undefined, after.plants.length], [true, 1]);
  const named = [249n, ...Array.from({ length: 10 }, (_, index) => 2_490n + BigInt(index))];
  const found = await idsOf(client.list({ name: "PLANT 249" }));
  const indexes = found.map((id) => id - FIRST);
  check("list", indexes, named);
  const last = FIRST + 2_499n;
  check("resumed list", await idsOf(client.list({ after: last - 2n })), [last - 1n, last]);
  check("resumed export", await idsOf(client.export({ after: last - 1n })), [last]);
  const all = await idsOf(client.export());
  check("export", [all.length, all.at(-1)], [2_500, last]);
  check("exportBlocks", (await collect(client.exportBlocks())).flat().length, 2_500);
  const tags = ["tag 0", "tag 1", "tag 2", "tag 3", "tag 4"];
  const tagPage = await client.listTagPage({ prefix: "tag", limit: 2 });
  check("listTagPage", tagPage, { tags: tags.slice(0, 2), next: "tag 1" });
  check("listTags", await collect(client.listTags()), tags);
  check("countTagPage", await client.countTagPage({ prefix: "tag", limit: 1 }), {
    tags: [{ tag: "tag 0", count: 1, exact: true }],
    next: "tag 0",
  });
  const count = await client.countPlants({ q: "24 PLANT", order: "desc" });
  check("countPlants", count, { count: 154, exact: true });

  const changes = await collect(client.changes({ id: FIRST }));
  const history = changes.map(({ type, id, before }) => [type, id, before?.name ?? ""]);
  check("changes", history, [
    ["created", FIRST, ""],
    ["replaced", FIRST, rose.name],
    ["removed", FIRST, "Rosa"],
    ["created", FIRST, ""],
  ]);
  const types = ["removed"] as const;
  // A page may end early, and say so.
  let removedPage = await client.listChangePage({ types, id: FIRST });
  let removed = removedPage.changes.length;
  while (removedPage.hasMore) {
    removedPage = await client.listChangePage({ types, id: FIRST, after: removedPage.last });
    removed += removedPage.changes.length;
  }
  check("listChangePage", removed, 1);
  const seen = changes.at(-1)?.seq ?? 0;
  const newest = await client.findNewestChange();
  check("newest", [newest === removedPage.newest, newest >= seen], [true, true]);
  const following = client.changes({ after: seen, follow: true, id: 5n });
  const next = following.next();
  await client.create({ id: 5n, name: "Fern" });
  check("follow", (await next).value?.plant, { name: "Fern" });
  await following.return();
  const range = { from: newest + 1 };
  check("countChangePage", (await client.countChangePage(range)).counts[0]?.created, 1);
  check("previewRevert", (await client.previewRevert(range)).revertible, 1);
  check("revert", (await client.revert(range)).reverted, 1);
  await refuses(client.listChangePage({ after: 1_767_225_600_000_001 }), 410, "changes_gone");

  const managing = ["plants:read", "plants:write", "tokens:manage", "webhooks:manage"];
  check("describeToken", (await client.describeToken()).scopes, managing);
  const sent: unknown[] = [];
  const wrapped = new Client(url, token, {
    headers: { "x-request-id": "from-the-options" },
    fetch: (input, init) => {
      sent.push(new Headers(init?.headers).get("x-request-id"));
      return fetch(input, init);
    },
  });
  check("options", (await wrapped.describeToken()).name, "PLANTSTORE_TOKEN");
  check("headers", sent, ["from-the-options"]);
  const scopes = ["plants:read"] as const;
  const made = await client.createToken({ name: "till", scopes, expires: "1d" });
  check("createToken", [made.token.startsWith(made.prefix), made.name], [true, "till"]);
  check("scopes", made.scopes, scopes);
  await refuses(client.createToken({ name: "till", scopes }), 409, "token_name_taken");
  await client.revokeToken(made.id);
  const tokens = await collect(client.listTokens());
  const revoked = tokens.map((one) => [one.name, one.revoked !== null]);
  check("listTokens", revoked, [["till", true]]);
  check("listTokenPage", await client.listTokenPage({ after: made.id, limit: 1 }), { tokens: [] });

  const hook = await client.addWebhook({ url: "https://shop.invalid/plants", types });
  const { name } = hook;
  check("addWebhook", [hook.secret.startsWith("whsec_"), name], [true, "shop.invalid"]);
  check("types", hook.types, types);
  check("pauseWebhook", (await client.pauseWebhook(name)).state, "paused");
  check("rotateWebhook", (await client.rotateWebhook(name)).secret !== hook.secret, true);
  check("replayWebhook", (await client.replayWebhook(name, 0)).state, "active");
  check("skipWebhook", (await client.skipWebhook(name)).skipped, null);
  check("resumeWebhook", (await client.resumeWebhook(name)).state, "active");
  check("getWebhook", (await client.getWebhook(name)).url, "https://shop.invalid/plants");
  check("listWebhooks", (await client.listWebhooks()).length, 1);
  check("testWebhook", (await client.testWebhook(name)).status, null);
  await client.removeWebhook(name);
  await refuses(client.getWebhook(name), 404, "webhook_not_found");
  await refuses(new Client(url, "an-unknown-token-1234").listPage(), 401, "token_invalid");
  return differences;
}
