/**
 * Connections that break in the middle of a write, and statements that reach the server after they were given up: the
 * write is answered 503, may be stored, is never sent twice, and undoes nothing that was done since.
 */

import { SQL } from "bun";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import type { Config } from "../../src/config.ts";
import { entityTagOf } from "../../src/domain/entity-tag.ts";
import { formatStoredPlant } from "../../src/domain/plant.ts";
import { expectRefusal, rejectionOf } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { isReplay, makePlants, type StoredPlant } from "../support/plants.ts";
import { sharedPostgres } from "../support/postgres-server.ts";
import { type DisturbedService, startDisturbed } from "../support/proxy.ts";
import { sendPlant } from "../support/service.ts";
import { until } from "../support/until.ts";

const INSERT = "INSERT INTO plants ";
const CHANGE = "locked AS (";

/** Until then a lost statement may still be executed, so its write is not answered before. */
const STATEMENT_MS = 600;

/** With `prepare`, the service may be behind a pooler and sets no lock_timeout: a statement can wait for long. */
const startWith = (given: Partial<Config>): Promise<DisturbedService> =>
  startDisturbed({
    settings: { PLANTSTORE_WRITE_CONNECTIONS: "1", ...limits(given) },
    parameters: "&prepare=true",
  });

let disturbed: DisturbedService;
beforeAll(async () => {
  disturbed = await startWith({ statementSecondsMax: STATEMENT_MS / 1_000 });
});
afterAll(() => disturbed[Symbol.asyncDispose]());
beforeEach(async () => void (await disturbed.run("DELETE FROM plants")));

const fern = (id: bigint, name = "fern"): StoredPlant => ({ id, name, tag: null });

const put = (id: bigint, name: string, ifMatch?: string): Promise<Response> =>
  disturbed.send("PUT", `/plants/${id}`, {
    body: JSON.stringify({ name }),
    headers: ifMatch === undefined ? {} : { "if-match": ifMatch },
  });

const remove = (id: bigint): Promise<Response> => disturbed.send("DELETE", `/plants/${id}`);

const ETAG = entityTagOf(formatStoredPlant({ id: 1n, name: "fern" }));

const create = (plant: StoredPlant): Promise<Response> => sendPlant(disturbed.service.url, plant);

type Caught = Awaited<ReturnType<DisturbedService["proxy"]["holdStatement"]>>;

/** Sends a request, and holds back its statement or the answer to it. */
async function intercept(
  hold: "holdStatement" | "holdAnswer",
  statement: string,
  send: () => Promise<Response>,
  { proxy } = disturbed,
): Promise<{ readonly response: Promise<Response>; readonly caught: Caught }> {
  const catching = proxy[hold](statement);
  const response = send();
  return { response, caught: await catching };
}

/** Sends a write whose statement is executed, and whose answer is lost after `meanwhile`. */
async function loseAnswer(
  statement: string,
  send: () => Promise<Response>,
  meanwhile: () => Promise<unknown> = () => Promise.resolve(),
): Promise<Response> {
  const { response, caught } = await intercept("holdAnswer", statement, send);
  await meanwhile();
  caught.cut();
  return response;
}

describe("POST /plants", () => {
  const plants = makePlants(60, (index) => fern(BigInt(index), `fern ${index}`));

  test("cut off on its way there, it is refused for now, and left to the client's retry", async () => {
    const startedAtMs = performance.now();
    const { response, caught } = await intercept("holdStatement", INSERT, () => create(fern(1n)));
    caught.cut();
    await expectRefusal(await response, "store_unavailable");
    // Until then the server might still run the statement.
    expect(performance.now() - startedAtMs).toBeGreaterThan(STATEMENT_MS - 10);
    expect(await disturbed.readPlants()).toEqual([]);
    const again = await create(fern(1n));
    expect(again.status).toBe(200);
    expect(again.headers.has("idempotent-replayed")).toBe(false);
  });

  test("still queued when a connection is lost, creates go on to the next one, and do not wait for the lost one", async () => {
    // Long enough for all the others, on a busy machine too.
    const patient = { statementSecondsMax: 4, queueSecondsMax: 200, idleSecondsMax: 255 };
    await using slow = await startWith(patient);
    const createSlow = (plant: StoredPlant): Promise<Response> =>
      sendPlant(slow.service.url, plant);
    const sendLost = (): Promise<Response> => createSlow(fern(1_000n));
    const { response: lost, caught } = await intercept("holdAnswer", INSERT, sendLost, slow);
    const queued = plants.map(createSlow);
    // A write about the same plant as the lost one waits for its end.
    const same = createSlow(fern(1_000n));
    const { store } = slow.service;
    await until("all writes are queued", () => store.writesWaiting === plants.length + 2);
    const order: string[] = [];
    void lost.then(() => order.push("lost"));
    void same.then(() => order.push("same"));
    caught.cut();
    const responses = await Promise.all(queued);
    order.push("queued");
    expect(responses.map(({ status }) => status)).toEqual(plants.map(() => 200));
    await expectRefusal(await lost, "store_unavailable");
    expect((await same).status).toBe(200);
    expect(order).toEqual(["queued", "lost", "same"]);
    expect(await slow.readPlants()).toEqual([...plants, fern(1_000n)]);
  });
});

describe.each<
  [method: string, string, () => Promise<Response>, StoredPlant[], retry: number, since: string]
>([
  ["POST", INSERT, () => create(fern(1n)), [fern(1n)], 200, "DELETE FROM plants"],
  ["PUT", CHANGE, () => put(1n, "x", ETAG), [fern(1n, "x")], 412, "UPDATE plants SET name = 'y'"],
  ["DELETE", CHANGE, () => remove(1n), [], 404, "INSERT INTO plants VALUES (1, 'y')"],
])("%s whose answer was cut off", (method, statement, ask, stored, retried, since) => {
  beforeEach(async () => {
    if (method !== "POST") await disturbed.run("INSERT INTO plants VALUES (1, 'fern', NULL)");
  });

  test("is refused for now, and the client's retry tells what became of it", async () => {
    await expectRefusal(await loseAnswer(statement, ask), "store_unavailable");
    expect(await disturbed.readPlants()).toEqual(stored);
    const again = await ask();
    expect([again.status, isReplay(again)]).toEqual([retried, method === "POST"]);
  });

  test("undoes nothing that others have done since", async () => {
    const response = await loseAnswer(statement, ask, () => disturbed.run(since));
    await expectRefusal(response, "store_unavailable");
    expect(await disturbed.readPlants()).toEqual(method === "POST" ? [] : [fern(1n, "y")]);
  });
});

test("a batch about long plants is compared at the server, which does not send them", async () => {
  await disturbed.run(
    "INSERT INTO plants SELECT i, repeat('x', 1000000) FROM generate_series(1, 20) i",
  );
  const lines = Array.from({ length: 20 }, (_, index) => ({ id: index + 1, name: "fern" }));
  const { response, caught } = await intercept("holdAnswer", "FOR KEY SHARE", () =>
    disturbed.send("POST", "/plants/batch", { body: JSON.stringify(lines) }),
  );
  expect(caught.bytes()).toBeLessThan(10_000);
  caught.release();
  const results = (await (await response).json()) as { readonly status: number }[];
  expect(results.map(({ status }) => status)).toEqual(lines.map(() => 409));
});

test("GET /plants: pages that share the read connections are all read again when those are lost", async () => {
  await disturbed.run("INSERT INTO plants VALUES (1, 'fern', NULL)");
  const list = (): Promise<Response> => disturbed.send("GET", "/plants?limit=100");
  const { response: first } = await intercept("holdAnswer", "SELECT id, CASE", list);
  const { writeConnections, readConnections } = disturbed.service.config;
  const pages = [first, ...Array.from({ length: readConnections * 4 }, list)];
  // All but the one that is held back are answered, or share its connection.
  await Promise.all(pages.slice(1, readConnections));
  expect(disturbed.proxy.connections()).toBeLessThan(writeConnections + readConnections + 2);
  disturbed.proxy.cut();
  for (const page of await Promise.all(pages))
    expect(await page.json()).toEqual([{ id: 1, name: "fern" }]);
});

test("PUT in a batch whose statement was lost, what needs no statement has its own outcome, and so has the next statement", async () => {
  await disturbed.run("INSERT INTO plants VALUES (1, 'fern', NULL), (2, 'moss', NULL)");
  // The write connection is busy, so the others are one batch.
  const held = await intercept("holdAnswer", INSERT, () => create(fern(9n)));
  const catching = disturbed.proxy.holdAnswer(CHANGE);
  const writes: Promise<Response>[] = [];
  for (const send of [
    () => put(1n, "bracken", ETAG),
    () => put(2n, "lichen", '"not-its-tag"'),
    () => put(3n, "nothing"),
    () => remove(2n),
  ]) {
    writes.push(send());
    await until(
      "the write is queued, behind those before it",
      () => disturbed.service.store.writesWaiting === 1 + writes.length,
    );
  }
  held.caught.release();
  expect((await held.response).status).toBe(200);
  (await catching).cut();
  const statuses = (await Promise.all(writes)).map(({ status }) => status);
  expect(statuses).toEqual([503, 412, 404, 204]);
  expect(await disturbed.readPlants()).toEqual([fern(1n, "bracken"), fern(9n)]);
});

test("adding, rotating and removing a webhook succeed although the server's answer was cut off", async () => {
  const body = '{"name":"shop","url":"https://shop.example/hook"}';
  const send = (path: string) => () =>
    disturbed.send("POST", `/webhooks${path}`, path === "" ? { body } : {});
  const read = (response: Response) => response.json() as Promise<{ secret: string }>;
  const added = await read(await loseAnswer("INSERT INTO plantstore_webhooks", send("")));
  const next = await read(await loseAnswer("UPDATE plantstore_webhooks", send("/shop/rotate")));
  const [row] = await disturbed.run("SELECT record FROM plantstore_webhooks");
  expect(JSON.parse(row?.["record"] as string)).toMatchObject({
    secret: next.secret,
    oldSecret: { secret: added.secret },
  });
  const removeIt = (): Promise<Response> => disturbed.send("DELETE", "/webhooks/shop");
  expect((await loseAnswer("DELETE FROM plantstore_webhooks", removeIt)).status).toBe(204);
  expect((await removeIt()).status).toBe(404);
});

/** A write that is given up, and what is done since: it is repeated, and undone. */
const undoings = [
  {
    late: "bring a plant back that was created by a retry and removed since",
    before: [],
    statement: INSERT,
    write: (id: bigint) => create(fern(id)),
    undo: remove,
    undone: 204,
    begin: (id: bigint) => disturbed.service.store.createPlant({ id, name: "fern" }),
    blocker: "INSERT INTO plants VALUES (1, 'held', NULL)",
  },
  {
    late: "make a change that others have undone since",
    before: [fern(1n), fern(2n)],
    statement: CHANGE,
    write: (id: bigint) => put(id, "bracken"),
    undo: (id: bigint) => put(id, "fern"),
    undone: 200,
    begin: (id: bigint) => disturbed.service.store.replacePlant({ id, name: "bracken" }, {}),
    blocker: "SELECT FROM plants WHERE id = 1 FOR UPDATE",
  },
];

describe.each(undoings)("does not $late:", ({ before, statement, write, undo, ...more }) => {
  beforeEach(async () => {
    for (const plant of before) expect((await create(plant)).status).toBe(200);
  });

  async function redo(id: bigint): Promise<void> {
    expect((await write(id)).status).toBe(200);
    expect((await undo(id)).status).toBe(more.undone);
  }

  test.each([
    ["was given up", () => undefined],
    ["lost its connection", (caught: Caught) => caught.cutClient()],
  ])("a statement that was held up on its way, and %s", async (_, loseTime) => {
    const { response, caught } = await intercept("holdStatement", statement, () => write(1n));
    loseTime(caught);
    expect((await response).status).toBe(503);
    await redo(1n);
    caught.release();
    await caught.served;
    expect(await disturbed.readPlants()).toEqual(before);
  });

  test("a statement that has begun and waits for another transaction", async () => {
    // After a commit of two writes, the next two share a commit.
    const primers = [8n, 9n].map((id) => ({ id, name: "primer", tag: undefined }));
    await disturbed.service.store.createPlants(primers);
    await using db = new SQL((await sharedPostgres()).urlOf(disturbed.database), { max: 1 });
    await db.unsafe(`BEGIN; ${more.blocker}`);
    // Asked for in one tick, they share a statement.
    const writes = [1n, 2n].map((id) => rejectionOf(more.begin(id)));
    for (const refusal of await Promise.all(writes))
      expect(refusal).toMatchObject({ reason: "store_unavailable" });
    await redo(2n);
    await db.unsafe("ROLLBACK");
    await until("the statement that waited is done", async () => {
      const active = await disturbed.run(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()",
      );
      return active.length === 0;
    });
    const isSecond = ({ id }: StoredPlant): boolean => id === 2n;
    expect((await disturbed.readPlants()).filter(isSecond)).toEqual(before.filter(isSecond));
  });
});
