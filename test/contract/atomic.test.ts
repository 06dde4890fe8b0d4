/** POST /plants/batch?atomic=true: every line, or nothing. */

import { beforeEach, describe, expect, test } from "bun:test";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import type { PlantWrite } from "../../src/domain/write.ts";
import { openTestStore } from "../support/database.ts";
import { expectError, rejectionOf } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { removeAll, send, startService, startShared } from "../support/service.ts";

const service = await startShared(limits({ bodyBytesMax: 100_000 }));

beforeEach(async () => {
  await removeAll(service);
  await service.create('{"id":1,"name":"Rose"}');
});

const post = (body: string, query = "", type = "application/json", to = service) =>
  send(to, "POST", `/plants/batch?atomic=true${query}`, {
    body,
    headers: { "content-type": type },
  });
const NDJSON = "application/x-ndjson";

const readChanges = async (after: number) =>
  (await service.store.readChanges({ after, limit: 99 })).changes.map(
    ({ json }) => JSON.parse(json) as { seq: number; type: string; id: number },
  );
const newest = async () => (await service.store.readChanges({ after: 0, limit: 0 })).newest;

describe("an atomic batch", () => {
  test("answers as usual if every line succeeds", async () => {
    const before = await newest();
    const lines = ['{"id":2,"name":"a"}', "", '{"id":1,"removed":true}', '{"id":3,"name":"b"}'];
    const response = await post(lines.join("\n"), "&batch=all", NDJSON);
    expect([response.status, response.headers.get("content-type")]).toEqual([200, NDJSON]);
    expect(await response.text()).toBe(
      '{"line":1,"status":200}\n{"line":3,"status":200,"removed":true}\n{"line":4,"status":200}\n',
    );
    const changes = await readChanges(before);
    const [first] = changes;
    expect(changes.map(({ seq }) => seq - (first?.seq ?? 0))).toEqual([0, 1, 2]);
    expect(changes).toMatchObject([
      { type: "created", id: 2, batch: "all" },
      { type: "removed", id: 1, batch: "all" },
      { type: "created", id: 3, batch: "all" },
    ]);
    const again = await post('[{"id":2,"name":"a"},{"id":3,"name":"b"}]');
    expect(await again.json()).toEqual([
      { line: 1, status: 200, replayed: true },
      { line: 2, status: 200, replayed: true },
    ]);
    expect(await readChanges(changes.at(-1)?.seq ?? 0)).toEqual([]);
  });

  test("upserts, with counts in the minimal form", async () => {
    const lines = '{"id":1,"name":"Tulip"}\n{"id":2,"name":"a"}\n{"id":9,"removed":true}\n';
    const response = await send(service, "POST", "/plants/batch?atomic=true&upsert=true", {
      body: lines,
      headers: { "content-type": NDJSON, prefer: "return=minimal" },
    });
    expect(response.headers.get("preference-applied")).toBe("return=minimal");
    expect(await response.json()).toEqual({
      created: 1,
      replaced: 1,
      removed: 0,
      replayed: 1,
      refused: 0,
      complete: true,
    });
  });

  test("that is done already is replayed, whatever ifMatch says", async () => {
    const body =
      '[{"id":1,"name":"Rose","ifMatch":"\\"x\\""},{"id":7,"removed":true,"ifMatch":"\\"x\\""}]';
    expect(await (await post(body, "&upsert=true")).json()).toMatchObject([
      { replayed: true },
      { replayed: true },
    ]);
  });

  test("may have a conditional line twice", async () => {
    const ifMatch = (await send(service, "GET", "/plants/1")).headers.get("etag");
    const line = { id: 1, name: "Tulip", ifMatch };
    const response = await post(JSON.stringify([line, line]), "&upsert=true");
    expect(await response.json()).toMatchObject([{ status: 200 }, { replayed: true }]);
  });

  test("may be empty", async () => {
    expect(await (await post("[]")).text()).toBe("[]");
    expect(await (await post("", "", NDJSON)).text()).toBe("");
  });

  test("judges lines about one id in their order", async () => {
    const before = await newest();
    const body =
      '[{"id":1,"removed":true},{"id":1,"name":"Tulip"},{"id":5,"name":"a"},{"id":5,"removed":true}]';
    expect(await (await post(body)).json()).toMatchObject([
      { removed: true },
      { status: 200 },
      { status: 200 },
      { removed: true },
    ]);
    expect(await service.readPlants()).toEqual([{ id: 1n, name: "Tulip", tag: null }]);
    expect(await readChanges(before)).toMatchObject([
      { type: "replaced", id: 1, before: { name: "Rose" }, plant: { name: "Tulip" } },
    ]);
  });

  test.each<[name: string, query: string, body: string, reason: ErrorName, says: string]>([
    [
      "a conflict",
      "",
      '[{"id":2,"name":"a"},{"id":1,"name":"b"},{"id":3,"name":"c"}]',
      "id_taken",
      "line 2: A different plant has the id 1",
    ],
    [
      "a conflict with an earlier line",
      "",
      '[{"id":2,"name":"a"},{"id":2,"name":"b"}]',
      "id_taken",
      "line 2: ",
    ],
    [
      "no such plant",
      "",
      '[{"id":2,"name":"a"},{"id":7,"removed":true}]',
      "plant_not_found",
      "line 2: ",
    ],
    [
      "a precondition",
      "&upsert=true",
      '[{"id":2,"name":"a"},{"id":1,"name":"b","ifMatch":"\\"x\\""}]',
      "precondition_failed",
      "line 2: ",
    ],
    [
      "a replacement that others have made since",
      "&upsert=true",
      '[{"id":2,"name":"a"},{"id":1,"name":"Rose","ifMatch":"\\"x\\""}]',
      "precondition_failed",
      "line 2: ",
    ],
    [
      "a removal that others have made since",
      "&upsert=true",
      '[{"id":7,"removed":true,"ifMatch":"\\"x\\""},{"id":2,"name":"a"}]',
      "precondition_failed",
      "line 1: ",
    ],
    [
      "a line that is no plant",
      "&upsert=true",
      '[{"id":1,"name":"a"},{"id":3}]',
      "invalid_plant",
      "line 2: name: ",
    ],
    [
      "the first of two lines that fail",
      "",
      '[{"id":1,"name":"b"},{"id":3}]',
      "id_taken",
      "line 1: ",
    ],
    [
      "an element that is no object",
      "",
      '[{"id":2,"name":"a"},7]',
      "invalid_plant",
      "line 2: body: expected an object",
    ],
    ["no array", "", '{"id":2,"name":"a"}', "invalid_plant", "body: expected an array"],
    ["no JSON", "", '[{"id":2,"name":"a"}', "invalid_json", ""],
    [
      "a body beyond the limit",
      "",
      `[{"id":2,"name":"${"x".repeat(100_000)}"}]`,
      "body_too_large",
      "",
    ],
  ])("that has %s stores nothing", async (_, query, body, reason, says) => {
    const before = await newest();
    await expectError(await post(body, query), reason, says);
    expect(await service.readPlants()).toEqual([{ id: 1n, name: "Rose", tag: null }]);
    expect(await newest()).toBe(before);
  });

  test("of lines names the number of the line, empty ones included", async () => {
    const body = '\n{"id":2,"name":"a"}\n\nnot json\n';
    await expectError(await post(body, "", NDJSON), "invalid_json", "line 4: ");
    const large = `{"id":2,"name":"a"}\n${" ".repeat(100_000)}`;
    await expectError(await post(large, "", NDJSON), "body_too_large");
    expect(await service.readPlants()).toHaveLength(1);
  });

  test("may have as many lines as fit, each a plant", async () => {
    const plants = Array.from({ length: 3_000 }, (_, id) => ({ id: id + 10, name: "n" }));
    const results = await (await post(JSON.stringify(plants))).json();
    expect(results).toHaveLength(3_000);
    const changed = plants.map(({ id }) => ({ id, name: "m" }));
    const body = JSON.stringify([...changed, { id: 4 }]);
    await expectError(await post(body, "&upsert=true"), "invalid_plant", "line 3001: ");
    const countChanged = async (): Promise<number> =>
      (await service.readPlants()).filter(({ name }) => name === "m").length;
    expect(await countChanged()).toBe(0);
    await post(JSON.stringify(changed), "&upsert=true");
    expect(await countChanged()).toBe(3_000);
  });
});

test("atomic batches about the same plants, at one time and with single writes, are each whole", async () => {
  await using small = await startService();
  const ids = Array.from({ length: 40 }, (_, id) => id);
  const write = (name: string): Promise<Response> =>
    post(
      JSON.stringify(ids.toReversed().map((id) => ({ id, name }))),
      "&upsert=true",
      undefined,
      small,
    );
  const names = Array.from({ length: 12 }, (_, index) => `n${index}`);
  const answers = await Promise.all([
    ...names.map(write),
    ...ids.map((id) => send(small, "PATCH", `/plants/${id}`, { body: '{"tag":"t"}' })),
  ]);
  for (const { status } of answers) expect([200, 404]).toContain(status);
  const found = new Set((await small.readPlants()).map(({ name }) => name));
  expect(found.size).toBe(1);
});

test("a full store refuses the line that would exceed it, unless others make room before it", async () => {
  await using store = await openTestStore({ plantsMax: 2 });
  const create = (id: bigint): PlantWrite => ({
    kind: "create",
    id,
    plant: { id, name: "n", tag: undefined },
    line: Number(id),
  });
  const remove = (id: bigint): PlantWrite => ({ kind: "remove", id, condition: {} });
  await store.writeAtomic([create(1n), create(2n)]);
  const full = await rejectionOf(store.writeAtomic([remove(1n), create(3n), create(4n)]));
  expect(full).toMatchObject({ reason: "store_full" });
  expect(await store.findPlant(1n)).toBeDefined();
  await store.writeAtomic([remove(1n), create(3n)]);
  await store.removePlant(2n, {});
  expect(await rejectionOf(store.writeAtomic([create(4n), create(5n)]))).toMatchObject({
    reason: "store_full",
  });
  await store.writeAtomic([create(4n)]);
});

test("plants that are too large together for one transaction are refused", async () => {
  await using store = await openTestStore();
  const ids = [1n, 2n, 3n, 4n, 5n, 6n];
  for (const id of ids) await store.createPlant({ id, name: "x".repeat(900_000), tag: undefined });
  const remove = ids.map((id): PlantWrite => ({
    kind: "remove",
    id,
    condition: {},
    line: Number(id),
  }));
  const refused = await rejectionOf(store.writeAtomic(remove));
  expect(refused).toMatchObject({
    reason: "transaction_too_large",
    message: expect.stringMatching(/^line 5: /),
  });
  expect(catalogue.transaction_too_large.status).toBe(409);
  expect((await store.countPlants()).count).toBe(6);
  expect(await store.writeAtomic(remove.slice(0, 4))).toEqual(Array(4).fill("removed"));
});

test("what the engine itself refuses in the middle of a transaction leaves no trace of it, beside a write that shares its commit", async () => {
  await using store = await openTestStore();
  const create = (id: bigint, name: string): PlantWrite => ({
    kind: "create",
    id,
    plant: { id, name, tag: undefined },
  });
  await store.createPlant({ id: 1n, name: "first", tag: undefined });
  await store.database.failPlantsNamed("refused");
  const { newest: after } = await store.readChanges({ after: 0, limit: 0 });
  const [failed, stored] = await Promise.allSettled([
    store.writeAtomic([create(2n, "stored before"), create(3n, "refused"), create(4n, "after")]),
    store.createPlant({ id: 5n, name: "beside", tag: undefined }),
  ]);
  expect([failed.status, stored.status]).toEqual(["rejected", "fulfilled"]);
  expect((await store.database.readPlants()).map(({ id }) => id)).toEqual([1n, 5n]);
  const { changes } = await store.readChanges({ after, limit: 9 });
  expect(changes.map(({ json }) => (JSON.parse(json) as { id: number }).id)).toEqual([5]);
});
