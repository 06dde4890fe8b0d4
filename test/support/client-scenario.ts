/** Every operation of the client, in an order that shows each of its outcomes. Runs on any platform. */

import type * as Package from "../../client/client.ts";

const FIRST = 9_007_199_254_740_993n;

/** Everything that came back, as JSON with the digits of every id. */
export async function useClient(
  { Client, ServiceError }: Pick<typeof Package, "Client" | "ServiceError">,
  url: string,
  token: string,
): Promise<string> {
  const client = new Client(url, token);
  const reasonOf = (promise: Promise<unknown>): Promise<unknown> =>
    promise.then(
      () => "no failure",
      (error: unknown) => (error instanceof ServiceError ? [error.status, error.reason] : error),
    );
  const report: Record<string, unknown> = {};
  const rose = { id: FIRST, name: 'Rose "{"id":1"', tag: "shrub" };
  report["create"] = [await client.create(rose), await client.create(rose)];
  report["taken"] = await reasonOf(client.create({ id: FIRST, name: "Tulip" }));

  const { plant, etag } = await client.get(FIRST);
  report["get"] = plant;
  report["unchanged"] = (await client.get(FIRST, { ifNoneMatch: etag })) === undefined;
  report["missing"] = await reasonOf(client.get(-1n));
  const replaced = await client.replace({ id: FIRST, name: "Rosa" }, { ifMatch: etag });
  report["replace"] = [replaced.plant.tag === undefined, replaced.etag !== etag];
  report["late"] = await reasonOf(client.remove(FIRST, { ifMatch: etag }));
  await client.remove(FIRST, { ifMatch: replaced.etag });
  report["removed"] = await reasonOf(client.get(FIRST));

  async function* grow(): AsyncGenerator<Package.NewPlant> {
    for (let index = 0n; index < 2_500n; index++) {
      if (index % 1_000n === 0n) await new Promise((resolve) => setTimeout(resolve, 1));
      yield {
        id: FIRST + index,
        name: `plant ${index}`,
        tag: index < 5n ? `tag ${index}` : undefined,
      };
    }
    yield { id: FIRST, name: "other" };
  }
  const outcomes: Record<string, number> = {};
  for await (const { outcome } of client.createAll(grow())) {
    const kind = typeof outcome === "string" ? outcome : String(outcome.reason);
    outcomes[kind] = (outcomes[kind] ?? 0) + 1;
  }
  report["createAll"] = outcomes;
  const settled: unknown[] = [];
  await client.createBatch([{ id: FIRST, name: "plant 0", tag: "tag 0" }], (index, outcome) => {
    settled.push([index, outcome]);
  });
  report["createBatch"] = settled;

  report["listPage"] = await client.listPage({ limit: 2, after: FIRST });
  const listed: bigint[] = [];
  for await (const { id } of client.list({ name: "PLANT 249" })) listed.push(id);
  report["list"] = listed;
  const rest: bigint[] = [];
  for await (const { id } of client.list({ after: FIRST + 2_497n })) rest.push(id);
  for await (const { id } of client.export({ after: FIRST + 2_498n })) rest.push(id);
  report["resumed"] = rest;
  let count = 0;
  let last = 0n;
  for await (const { id } of client.export()) {
    count++;
    last = id;
  }
  report["export"] = [count, last];
  report["listTagPage"] = await client.listTagPage({ prefix: "tag", limit: 2 });
  const tags: string[] = [];
  for await (const tag of client.listTags()) tags.push(tag);
  report["listTags"] = tags;
  report["countTagPage"] = await client.countTagPage({ prefix: "tag", limit: 1 });
  report["countPlants"] = await client.countPlants({ q: "24 PLANT", order: "desc" });
  const changes: unknown[] = [];
  let seen = 0;
  for await (const { seq, type, id, before } of client.changes({ id: FIRST })) {
    changes.push([type, id, before?.name]);
    seen = seq;
  }
  report["changes"] = changes;
  const types = ["removed"] as const;
  // A page may end early, and say so.
  let page = await client.listChangePage({ types });
  const removals = [...page.changes];
  while (page.hasMore) {
    page = await client.listChangePage({ types, after: page.last });
    removals.push(...page.changes);
  }
  report["listChangePage"] = removals.length;
  const newest = await client.findNewestChange();
  report["newest"] = [newest === page.newest, newest >= (removals.at(-1)?.seq ?? 0)];
  const following = client.changes({ after: seen, follow: true, id: 5n });
  const next = following.next();
  await client.create({ id: 5n, name: "Fern" });
  report["follow"] = (await next).value?.plant;
  await following.return();
  report["gone"] = await reasonOf(client.listChangePage({ after: 1 }));
  report["describeToken"] = (await client.describeToken()).scopes;
  const sent: string[] = [];
  const wrapped = new Client(url, token, {
    headers: { "x-request-id": "from-the-options" },
    fetch: (input, init) => {
      sent.push(new Headers(init?.headers).get("x-request-id") ?? "");
      return fetch(input, init);
    },
  });
  report["options"] = [(await wrapped.describeToken()).name, sent];

  const made = await client.createToken({ name: "till", scopes: ["plants:read"], expires: "1d" });
  report["createToken"] = [made.token.startsWith(made.prefix), made.name, made.scopes];
  report["nameTaken"] = await reasonOf(
    client.createToken({ name: "till", scopes: ["plants:read"] }),
  );
  await client.revokeToken(made.id);
  const tokens: unknown[] = [];
  for await (const { name, revoked } of client.listTokens()) tokens.push([name, revoked !== null]);
  report["listTokens"] = tokens;
  report["listTokenPage"] = await client.listTokenPage({ after: made.id, limit: 1 });
  const hook = await client.addWebhook({ url: "https://shop.invalid/plants", types: ["removed"] });
  report["addWebhook"] = [hook.secret.startsWith("whsec_"), hook.name, hook.types];
  report["pauseWebhook"] = (await client.pauseWebhook(hook.name)).state;
  report["rotateWebhook"] = (await client.rotateWebhook(hook.name)).secret !== hook.secret;
  report["replayWebhook"] = (await client.replayWebhook(hook.name, 0)).state;
  report["skipWebhook"] = (await client.skipWebhook(hook.name)).skipped;
  report["resumeWebhook"] = (await client.resumeWebhook(hook.name)).state;
  report["getWebhook"] = (await client.getWebhook(hook.name)).url;
  report["listWebhooks"] = (await client.listWebhooks()).map(({ name }) => name);
  await client.removeWebhook(hook.name);
  report["noWebhook"] = await reasonOf(client.getWebhook(hook.name));
  report["refused"] = await reasonOf(new Client(url, "an-unknown-token-1234").listPage());
  return JSON.stringify(report, (_, value: unknown) =>
    typeof value === "bigint" ? `${value}n` : value,
  );
}

export const expectedReport = {
  create: ["created", "replayed"],
  taken: [409, "id_taken"],
  get: { id: "9007199254740993n", name: 'Rose "{"id":1"', tag: "shrub" },
  unchanged: true,
  missing: [404, "plant_not_found"],
  replace: [true, true],
  late: [412, "precondition_failed"],
  removed: [404, "plant_not_found"],
  createAll: { created: 2_500, id_taken: 1 },
  createBatch: [[0, "replayed"]],
  listPage: {
    plants: [
      { id: "9007199254740994n", name: "plant 1", tag: "tag 1" },
      { id: "9007199254740995n", name: "plant 2", tag: "tag 2" },
    ],
    next: "9007199254740995n",
  },
  list: [249, ...Array.from({ length: 10 }, (_, index) => 2_490 + index)].map(
    (index) => `${FIRST + BigInt(index)}n`,
  ),
  export: [2_500, `${FIRST + 2_499n}n`],
  listTagPage: { tags: ["tag 0", "tag 1"], next: "tag 1" },
  listTags: ["tag 0", "tag 1", "tag 2", "tag 3", "tag 4"],
  countTagPage: { tags: [{ tag: "tag 0", count: 1, exact: true }], next: "tag 0" },
  countPlants: { count: 154, exact: true },
  changes: [
    ["created", `${FIRST}n`, null],
    ["replaced", `${FIRST}n`, 'Rose "{"id":1"'],
    ["removed", `${FIRST}n`, "Rosa"],
    ["created", `${FIRST}n`, null],
  ],
  resumed: [`${FIRST + 2_498n}n`, `${FIRST + 2_499n}n`, `${FIRST + 2_499n}n`],
  listChangePage: 1,
  newest: [true, true],
  options: ["PLANTSTORE_TOKEN", ["from-the-options"]],
  createToken: [true, "till", ["plants:read"]],
  nameTaken: [409, "token_name_taken"],
  listTokens: [["till", true]],
  listTokenPage: { tokens: [] },
  addWebhook: [true, "shop.invalid", ["removed"]],
  pauseWebhook: "paused",
  rotateWebhook: true,
  replayWebhook: "active",
  skipWebhook: null,
  resumeWebhook: "active",
  getWebhook: "https://shop.invalid/plants",
  listWebhooks: ["shop.invalid"],
  noWebhook: [404, "webhook_not_found"],
  follow: { name: "Fern" },
  gone: [410, "changes_gone"],
  describeToken: ["plants:read", "plants:write", "tokens:manage", "webhooks:manage"],
  refused: [401, "token_invalid"],
};
