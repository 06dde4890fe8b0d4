/** POST /plants/batch with lines that replace and remove: upsert, removed and ifMatch. */

import { beforeEach, describe, expect, test } from "bun:test";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { entityTagOf } from "../../src/domain/entity-tag.ts";
import { parseLines } from "../support/folder.ts";
import {
  bearer,
  grantToken,
  removeAll,
  send,
  startService,
  startShared,
} from "../support/service.ts";

const service = await startShared();

const ROSE = '{"id":1,"name":"Rose","tag":"shrub"}';
const etag = entityTagOf(ROSE);

beforeEach(async () => {
  await removeAll(service);
  await service.create(ROSE);
});

async function write(lines: readonly string[], query = "?upsert=true", headers = {}) {
  const response = await send(service, "POST", `/plants/batch${query}`, {
    body: lines.join("\n"),
    headers: { "content-type": "application/x-ndjson", ...headers },
  });
  expect(response.status).toBe(200);
  return parseLines(await response.text());
}

const failed = (line: number, name: ErrorName, message: unknown = expect.any(String)) => ({
  line,
  status: catalogue[name].status,
  error: catalogue[name].code,
  message,
});

const readChanges = async (after: number) =>
  (await service.store.readChanges({ after, limit: 99 })).changes.map(
    ({ json }) => JSON.parse(json) as Record<string, unknown>,
  );
const newest = async () => (await service.store.readChanges({ after: 0, limit: 0 })).newest;

describe("a batch with upsert", () => {
  test("creates, replaces and removes by line", async () => {
    const before = await newest();
    const lines = [
      '{"id":1,"name":"Rose"}',
      '{"id":2,"name":"Tulip"}',
      ROSE,
      ROSE,
      '{"id":2,"removed":true}',
      '{"id":9223372036854775807,"name":"max"}',
      '{"id":2,"name":"Tulip","tag":"bulb"}',
    ];
    expect(await write(lines, "?upsert=true&batch=spring")).toEqual([
      { line: 1, status: 200, replaced: true },
      { line: 2, status: 200 },
      { line: 3, status: 200, replaced: true },
      { line: 4, status: 200, replayed: true },
      { line: 5, status: 200, removed: true },
      { line: 6, status: 200 },
      { line: 7, status: 200 },
    ]);
    expect(await service.readPlants()).toEqual([
      { id: 1n, name: "Rose", tag: "shrub" },
      { id: 2n, name: "Tulip", tag: "bulb" },
      { id: 9223372036854775807n, name: "max", tag: null },
    ]);
    const changes = await readChanges(before);
    const rose = { name: "Rose", tag: "shrub" };
    // Several commits may share the batch; of each plant the order is that of its lines.
    expect(changes.filter(({ id }) => id === 1)).toMatchObject([
      { type: "replaced", batch: "spring", before: rose, plant: { name: "Rose" } },
      { type: "replaced", batch: "spring", before: { name: "Rose" }, plant: rose },
    ]);
    expect(changes.filter(({ id }) => id === 2).map(({ type }) => type)).toEqual([
      "created",
      "removed",
      "created",
    ]);
  });

  test("sent again changes nothing, also with ifMatch and removals", async () => {
    const tag = JSON.stringify(etag);
    const lines = [`{"id":1,"name":"Tulip","ifMatch":${tag}}`, '{"id":3,"removed":true}'];
    expect(await write(lines)).toEqual([
      { line: 1, status: 200, replaced: true },
      { line: 2, status: 200, replayed: true },
    ]);
    const before = await newest();
    expect(await write(lines)).toMatchObject([{ replayed: true }, { replayed: true }]);
    expect(await readChanges(before)).toEqual([]);
  });

  test("counts what it did, in the minimal form", async () => {
    const lines = [
      '{"id":1,"name":"Tulip"}',
      '{"id":2,"name":"a"}',
      '{"id":2,"removed":true}',
      '{"id":2,"removed":true}',
      "x",
    ];
    const minimal = await write(lines, "?upsert=true", { prefer: "return=minimal" });
    expect(minimal.at(-1)).toEqual({
      created: 1,
      replaced: 1,
      removed: 1,
      replayed: 1,
      refused: 1,
      complete: true,
    });
  });

  test("obeys ifMatch: a list, any plant, another state, and no plant", async () => {
    expect(
      await write([
        '{"id":1,"name":"a","ifMatch":"\\"old\\""}',
        `{"id":1,"name":"b","ifMatch":"\\"x\\", ${etag.replaceAll('"', '\\"')}"}`,
        `{"id":1,"removed":true,"ifMatch":${JSON.stringify(etag)}}`,
        '{"id":7,"name":"c","ifMatch":"*"}',
        '{"id":1,"removed":true,"ifMatch":"*"}',
        '{"id":1,"removed":true,"ifMatch":"\\"old\\""}',
      ]),
    ).toEqual([
      failed(1, "precondition_failed"),
      { line: 2, status: 200, replaced: true },
      failed(3, "precondition_failed"),
      failed(4, "precondition_failed"),
      { line: 5, status: 200, removed: true },
      { line: 6, status: 200, replayed: true },
    ]);
    expect(await service.readPlants()).toEqual([]);
  });

  test("accepts an array", async () => {
    const response = await send(service, "POST", "/plants/batch?upsert=true", {
      body: `[{"id":1,"name":"Tulip"},{"id":2,"removed":true},{"id":2,"removed":false}]`,
    });
    expect(await response.json()).toMatchObject([
      { line: 1, replaced: true },
      { line: 2, replayed: true },
      { line: 3, status: 400 },
    ]);
  });

  test("accepts many more lines than one commit", async () => {
    const make = (name: string): string[] =>
      Array.from({ length: 3_000 }, (_, id) => `{"id":${id + 10},"name":"${name}"}`);
    const count = async (name: string): Promise<unknown> =>
      (await write(make(name), "?upsert=true", { prefer: "return=minimal" })).at(-1);
    expect(await count("a")).toMatchObject({ created: 3_000, replaced: 0 });
    expect(await count("b")).toMatchObject({ replaced: 3_000, replayed: 0 });
    expect(await count("b")).toMatchObject({ replaced: 0, replayed: 3_000 });
  });
});

test("a batch without upsert removes too: 404 if there is no such plant, 412 if it is another", async () => {
  const lines = [
    '{"id":1,"removed":true,"ifMatch":"\\"x\\""}',
    '{"id":1,"removed":true}',
    '{"id":1,"removed":true}',
    '{"id":1,"name":"again"}',
  ];
  expect(await write(lines, "")).toEqual([
    failed(1, "precondition_failed"),
    { line: 2, status: 200, removed: true },
    failed(3, "plant_not_found"),
    { line: 4, status: 200 },
  ]);
  const minimal = await write(lines.slice(1, 2), "", { prefer: "return=minimal" });
  expect(minimal).toEqual([
    { created: 0, replaced: 0, removed: 1, replayed: 0, refused: 0, complete: true },
  ]);
});

describe("a line", () => {
  test.each<[line: string, says: string]>([
    ['{"id":1,"name":"a","removed":false}', "removed: expected true, or nothing, got false"],
    ['{"id":1,"removed":null}', "removed: expected true, or nothing, got null"],
    ['{"id":1,"removed":"true"}', 'removed: expected true, or nothing, got the string "true"'],
    ['{"id":1,"removed":true,"name":"a"}', "name: expected nothing, with removed, got the string"],
    ['{"id":1,"removed":true,"tag":null}', "tag: expected nothing, with removed, got null"],
    ['{"removed":true}', "id: expected an integer from -9223372036854775808"],
    ['{"id":1.5,"removed":true}', "got 1.5"],
    ['{"id":9223372036854775808,"removed":true}', "got 9223372036854775808"],
    ['{"id":1,"removed":true,"ifMatch":"abc"}', "ifMatch: expected * or a list of entity tags"],
    ['{"id":1,"removed":true,"ifMatch":""}', "ifMatch: expected * or a list of entity tags"],
    ['{"id":1,"removed":true,"ifMatch":null}', "got null"],
    ['{"id":1,"removed":true,"ifMatch":7}', "got 7"],
    ['{"id":1,"name":"a","ifMatch":"x","removed":0}', "got 0; ifMatch: expected"],
    ['{"id":1,"name":5,"ifMatch":"*"}', ""],
  ])("that is %s is refused in every batch", async (line, says) => {
    for (const query of ["", "?upsert=true"])
      expect(await write([line], query)).toEqual([
        failed(1, "invalid_plant", expect.stringContaining(says)),
      ]);
    for (const query of ["?atomic=true", "?atomic=true&upsert=true"]) {
      const response = await send(service, "POST", `/plants/batch${query}`, { body: `[${line}]` });
      expect(response.status).toBe(400);
      expect(await response.json()).toEqual({
        error: catalogue.invalid_plant.code,
        message: expect.stringMatching(/^line 1: /),
      });
    }
    expect(await service.readPlants()).toEqual([{ id: 1n, name: "Rose", tag: "shrub" }]);
  });

  test("that creates cannot have ifMatch: an older service would ignore it", async () => {
    expect(await write(['{"id":2,"name":"a","ifMatch":"*"}'], "")).toEqual([
      failed(1, "invalid_plant", expect.stringContaining("except with removed or in a batch")),
    ]);
  });

  test("that removes is exact about its id, whatever else is in the text", async () => {
    await service.create('{"id":9007199254740993,"name":"odd"}');
    expect(await write(['{"x":1.5,"id":9007199254740992,"removed":true}'], "")).toEqual([
      failed(1, "plant_not_found"),
    ]);
    expect(await write(['{"\\u0072emoved":true,"id":9007199254740993}'], "")).toEqual([
      { line: 1, status: 200, removed: true },
    ]);
  });
});

test.each(["upsert=1", "upsert=TRUE", "upsert=", "atomic=yes", "upsert=true&upsert=true"])(
  "?%s is refused before anything is written",
  async (query) => {
    const response = await send(service, "POST", `/plants/batch?${query}`, {
      body: '[{"id":1,"removed":true}]',
    });
    expect(await response.json()).toMatchObject({ error: catalogue.invalid_query.code });
    expect(await service.readPlants()).toHaveLength(1);
  },
);

test("an upsert into a full store fails only for new plants", async () => {
  await using full = await startService({ PLANTSTORE_PLANTS_MAX: "2" });
  const results = async (...lines: string[]): Promise<unknown> => {
    const response = await send(full, "POST", "/plants/batch?upsert=true", {
      body: `[${lines.join(",")}]`,
    });
    return ((await response.json()) as { status: number }[]).map(({ status }) => status);
  };
  expect(await results('{"id":1,"name":"a"}')).toEqual([200]);
  expect(await results('{"id":2,"name":"a"}')).toEqual([200]);
  expect(await results('{"id":3,"name":"a"}', '{"id":1,"name":"b"}')).toEqual([409, 200]);
  expect(await results('{"id":1,"removed":true}')).toEqual([200]);
  expect(await results('{"id":3,"name":"a"}')).toEqual([200]);
});

test("an upsert needs only the scope to write", async () => {
  const body = '[{"id":1,"name":"Tulip"}]';
  const ask = async (scope: "plants:read" | "plants:write"): Promise<number> => {
    const headers = bearer(await grantToken(service, [scope]));
    return (await send(service, "POST", "/plants/batch?upsert=true", { body, headers })).status;
  };
  expect([await ask("plants:read"), await ask("plants:write")]).toEqual([403, 200]);
});
