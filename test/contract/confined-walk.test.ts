/**
 * Every operation of the table, called with a token for a part of the store, beside plants that it must not see. All
 * that they consist of is marked, so that no byte of an answer may have a mark. The calls are made from the table alone:
 * an operation that is added later is walked too.
 */

import { expect, test } from "bun:test";
import type { Job } from "../../src/domain/job.ts";
import type { Endpoint } from "../../src/http/endpoint.ts";
import { listOperations, splitPlace } from "../../src/http/operations.ts";
import type { Schema, Shape } from "../../src/http/shape.ts";
import { schemas } from "../../src/http/shape.ts";
import { createLog } from "../../src/observe/log.ts";
import { createWebhookSender } from "../../src/webhooks/sender.ts";
import { makeWebhook, startReceiver } from "../support/receiver.ts";
import { ask, listTools } from "../support/mcp.ts";
import { bearer, grantToken, send, startService } from "../support/service.ts";
import { limits } from "../support/limits.ts";
import { EventReader } from "../support/events.ts";
import { until } from "../support/until.ts";

/** In every text about a hidden plant, and nowhere else. */
const MARK = "mArKeD";
/** The digits of every hidden id. A request that names such an id may get it back. */
const HIDDEN_DIGITS = "73177";
const hiddenIds = [0n, 1n, 2n].map((digit) => BigInt(HIDDEN_DIGITS) * 10n + digit);
const visible = [
  { id: 5n, name: "fern", tag: "indoor" },
  { id: 8n, name: "tulip", tag: "bulbs" },
];

const PASSING_HASH = "ab".repeat(32);

/** Of another caller. */
const job: Job = {
  name: "",
  kind: "change",
  by: `${MARK} other`,
  digest: "",
  startedAtMs: 0,
  state: "ended",
  report: { plants: 1, batch: "", complete: true },
  left: [`{"id":1,"message":"${MARK}"}`],
  version: "1",
};

/** A store with hidden and visible plants, and with others' tokens, webhooks, jobs and batches. */
async function prepare() {
  const service = await startService({
    ...limits({ webhookPollMs: 5, commentSeconds: 0.2 }),
    PLANTSTORE_WEBHOOKS_PRIVATE: "true",
  });
  const { store } = service;
  const other = { token: `${MARK} other`, batch: `${MARK} batch` };
  await store.createPlants(
    hiddenIds.map((id) => ({ id, name: `${MARK} name`, tag: `${MARK} tag` })),
    other,
  );
  await store.replacePlant(
    { id: hiddenIds[0] as bigint, name: `${MARK} again`, tag: undefined },
    {},
    other,
  );
  await store.removePlant(hiddenIds[2] as bigint, {}, other);
  // Moved in and out by others: the confined caller sees half of each.
  await store.createPlant({ id: 6n, name: `${MARK} before`, tag: `${MARK} tag` }, {});
  await store.replacePlant({ id: 6n, name: "moved in", tag: "indoor" }, {}, {});
  await store.createPlant({ id: 7n, name: "moves out", tag: "indoor" }, {});
  await store.replacePlant({ id: 7n, name: `${MARK} after`, tag: `${MARK} tag` }, {}, {});
  await store.createPlants(visible);
  await grantToken(service, ["plants:read"], { name: `${MARK} token`, tags: [`${MARK} tag`] });
  await grantToken(service, ["plants:read"], { name: `${MARK} wide` });
  await store.addWebhook(
    makeWebhook(`${MARK}-webhook`, { url: `http://127.0.0.1:9/${MARK}`, paused: MARK }),
  );
  await store.putJob({ ...job, name: `${MARK} job` }, undefined);
  return service;
}

/** What the confined caller has, which an operation may have removed. */
async function restore({ store }: Service, tags: readonly string[]): Promise<void> {
  await store.writePlants(
    visible.map((plant) => ({ kind: "upsert", id: plant.id, plant, condition: {} })),
  );
  await store.putWebhook(
    makeWebhook("passing", { tags: ["bulbs"], paused: "Here.", version: crypto.randomUUID() }),
    undefined,
  );
  await store.createToken({
    hash: PASSING_HASH,
    prefix: "pst_passing",
    name: "passing",
    scopes: ["plants:read"],
    tags,
    createdAtMs: 0,
    expiresAtMs: undefined,
    lastUsedAtMs: undefined,
    revokedAtMs: undefined,
    rate: undefined,
  });
  await store.putJob(
    { ...job, name: "passing", by: "till", tags, left: [], version: "1" },
    undefined,
  );
}

type Service = Awaited<ReturnType<typeof prepare>>;

/** Values that a field may have: those of its schema, and some of the store. */
function valuesOf({ schema, example }: Pick<Shape, "schema" | "example">): string[] {
  const named = (schema["enum"] ??
    (schema["items"] as Schema | undefined)?.["enum"] ??
    []) as unknown[];
  const known = [example, schema["default"], ...named].filter((value) => value !== undefined);
  const common = [
    "1",
    "true",
    "false",
    "indoor",
    "passing",
    "m",
    "75",
    "2020-01-01T00:00:00Z",
    '"x"',
    "*",
  ];
  return [...new Set([...known.map(String), ...common])];
}

const idsTried = ["5", ...hiddenIds.map(String), "7", "999"];

interface Call {
  readonly path: string;
  readonly init: Readonly<{ method: string; body?: string | null }>;
  readonly headers: Readonly<Record<string, string>>;
}

/** Requests of an operation: each path, and each of its fields alone, with each form of the answer. */
function* callsOf(endpoint: Endpoint, names: readonly string[]): Generator<Call> {
  const [method, path] = splitPlace(endpoint);
  const parameters = Object.keys(endpoint.path ?? {});
  const places = parameters.reduce<string[]>(
    (paths, name) =>
      paths.flatMap((one) =>
        names.map((value) => one.replace(`{${name}}`, encodeURIComponent(value))),
      ),
    [path],
  );
  const queries = [
    "",
    ...Object.entries({ ...endpoint.query, ...endpoint.streamQuery }).flatMap(([name, field]) =>
      valuesOf(field).map((value) => `?${name}=${encodeURIComponent(value)}`),
    ),
  ];
  const headers = [
    {},
    ...Object.entries(endpoint.headers ?? {}).flatMap(([name, field]) =>
      valuesOf(field).map((value) => ({ [name]: value })),
    ),
    ...["application/x-ndjson", "text/csv"].map((accept) => ({ accept })),
  ];
  const bodies = [...bodiesOf(endpoint)];
  const [place = path] = places;
  // One thing at a time differs from the first, and the bodies beside each path.
  const varied = [
    ...places.flatMap((one) => bodies.map((body) => [one, {}, body] as const)),
    ...queries.map((query) => [place + query, {}, bodies[0] ?? []] as const),
    ...queries.map((query) => [place + query, {}, bodies.at(-1) ?? []] as const),
    ...headers.flatMap((more) => places.map((one) => [one, more, bodies[0] ?? []] as const)),
  ];
  for (const [at, more, [type, body]] of varied) {
    const all: Record<string, string> = {
      ...more,
      ...(type !== undefined && { "content-type": type }),
    };
    yield { path: at, init: { method, body: body ?? null }, headers: all };
    if (method === "GET") yield { path: at, init: { method: "HEAD" }, headers: all };
  }
}

/** The examples of its bodies, with visible and hidden ids, and with dry runs. */
function* bodiesOf({ accepts }: Endpoint): Generator<readonly [type?: string, body?: string]> {
  if (accepts === undefined) return yield [];
  for (const [type, content] of Object.entries(
    accepts as Record<string, Shape & { examples?: object }>,
  )) {
    const { example, examples = {} } = content as {
      example?: unknown;
      examples?: Record<string, { value: unknown }>;
    };
    const found = [example, ...Object.values(examples).map(({ value }) => value)];
    for (const one of found.filter((value) => value !== undefined)) {
      const text = typeof one === "string" ? one : JSON.stringify(one);
      yield [type, text];
      for (const id of hiddenIds) yield [type, text.replaceAll(/"id":\d+/g, `"id":${id}`)];
      yield [type, text.replaceAll(/"tag":"[^"]*"/g, '"tag":"indoor"')];
      yield [
        type,
        text
          .replaceAll(/"tag":"[^"]*"/g, `"tag":"indoor"`)
          .replaceAll(/"id":\d+/g, `"id":${hiddenIds[1]}`),
      ];
    }
  }
  yield ["application/json", '{"tag":"indoor"}'];
  yield ["application/json", '{"name":"mine","scopes":["plants:read"],"tags":["indoor"]}'];
  yield ["application/json", '{"from":0}'];
  yield ["application/json", '{"types":["created","replaced","removed"],"dryRun":true}'];
  yield ["application/json", '{"types":["removed"]}'];
}

/** Fails if the bytes say more than the request did. */
function judge(text: string, call: string): void {
  const found = [MARK, ...(call.includes(HIDDEN_DIGITS) ? [] : [HIDDEN_DIGITS])].find((mark) =>
    text.includes(mark),
  );
  if (found !== undefined) throw new Error(`${call} was answered ${text.slice(0, 2_000)}`);
}

/** Every hidden plant as it is stored. */
const readHidden = async ({ readPlants }: Service) =>
  (await readPlants()).filter(({ tag }) => tag !== "indoor" && tag !== "bulbs");

/** Values for an argument of a tool. */
function argumentsOf(schema: Schema, name: string): unknown[] {
  const { $ref: reference } = schema as { $ref?: string };
  if (reference !== undefined)
    return argumentsOf(schemas[reference.split("/").at(-1) as string] as Schema, name);
  const named = schema["enum"] as unknown[] | undefined;
  if (named !== undefined) return named;
  const type = [schema["type"]].flat()[0];
  if (type === "boolean") return [false, true];
  if (type === "integer") return [1, 0, 75];
  if (type === "array") return argumentsOf(schema["items"] as Schema, name).map((item) => [item]);
  if (type === "object") {
    const members = Object.entries((schema["properties"] ?? {}) as Record<string, Schema>);
    const required = (schema["required"] ?? []) as string[];
    const base = Object.fromEntries(
      members
        .filter(([key]) => required.includes(key))
        .map(([key, member]) => [key, argumentsOf(member, key)[0]]),
    );
    return [
      base,
      ...members.flatMap(([key, member]) =>
        argumentsOf(member, key).map((value) => Object.assign({}, base, { [key]: value })),
      ),
    ];
  }
  if (name === "id" || name === "except") return idsTried;
  return ["indoor", "m", "moved", "2020-01-01T00:00:00Z", '"x"', "1"];
}

test("no answer to a confined token has a trace of what it must not see", async () => {
  await using service = await prepare();
  using receiver = startReceiver();
  const { store, config } = service;
  const sender = createWebhookSender(
    store,
    config,
    createLog("error", () => undefined),
  );
  sender.start();
  await using stopping = new AsyncDisposableStack();
  stopping.defer(() => sender.stop());
  const tags = ["bulbs", "indoor"];
  const token = await grantToken(service, undefined, { name: "till", tags });
  const headers = bearer(token);
  const before = await readHidden(service);
  const added = await send(service, "POST", "/webhooks", {
    headers,
    body: JSON.stringify({ url: receiver.url, name: "own" }),
  });
  expect([added.status, await added.json()]).toMatchObject([201, { tags }]);
  expect(
    (await send(service, "POST", "/webhooks/own/replay", { headers, body: '{"from":0}' })).status,
  ).toBe(200);
  const feed = await EventReader.open(service.url, headers, "?after=0");
  const other = (await store.listTokens({ after: "", limit: 100 })).find(
    ({ name }) => name === `${MARK} token`,
  );
  const names = [
    ...idsTried,
    "passing",
    PASSING_HASH.slice(0, 16),
    `${MARK}-webhook`,
    other?.hash.slice(0, 16) ?? "",
  ];

  const calls = new Map<string, number>();
  const successes = new Set<string>();
  for (const endpoint of Object.values(listOperations(config)).flatMap(Object.values<Endpoint>)) {
    if (endpoint.scopes === undefined) continue;
    await restore(service, tags);
    for (const { path, init, headers: more } of callsOf(endpoint, names)) {
      const response = await fetch(service.url + path, {
        ...init,
        headers: { ...headers, ...more },
      });
      const body = await response.text();
      const told = `${endpoint.at} ${path} ${JSON.stringify([init, more])}`;
      const shown = JSON.stringify([...response.headers]) + body;
      // A request for a webhook of another, by its name, may have the name in its message.
      judge(
        path.includes(MARK) ? shown.replaceAll(encodeURIComponent(`${MARK}-webhook`), "") : shown,
        told,
      );
      calls.set(endpoint.at, (calls.get(endpoint.at) ?? 0) + 1);
      if (response.ok) successes.add(endpoint.at);
      expect(response.status, told).not.toBe(500);
    }
  }

  for (const { name, inputSchema } of await listTools(service, token))
    for (const input of argumentsOf(inputSchema, name)) {
      const response = await ask(service, "tools/call", { name, arguments: input }, token);
      judge(await response.text(), `${name} ${JSON.stringify(input)}`);
    }

  // What others do to hidden plants meanwhile is not delivered either.
  await store.createPlant({ id: 731_779n, name: `${MARK} late`, tag: `${MARK} tag` });
  await store.createPlant({ id: 9n, name: "sentinel", tag: "indoor" });
  for (let event = await feed.next(); event !== undefined; event = await feed.next()) {
    judge(JSON.stringify(event), "the feed");
    if (event.data.includes("sentinel")) break;
  }
  await feed[Symbol.asyncDispose]();
  await until("the webhook has delivered the last change", async () =>
    receiver.received.some(({ body }) => body.includes("sentinel")),
  );
  for (const delivery of receiver.received) judge(JSON.stringify(delivery), "the webhook");

  expect(await readHidden(service)).toEqual([
    ...before,
    { id: 731_779n, name: `${MARK} late`, tag: `${MARK} tag` },
  ]);
  const walked = Object.values(listOperations(config))
    .flatMap(Object.values<Endpoint>)
    .filter(({ scopes }) => scopes !== undefined);
  expect(walked.filter(({ at }) => !calls.has(at))).toEqual([]);
  // It judged the answers of nearly all of them, and not only refusals.
  const refused = walked.filter(({ at }) => !successes.has(at)).map(({ at }) => at);
  expect(refused).toEqual(["GET /activity", "GET /metrics"]);
}, 120_000);
