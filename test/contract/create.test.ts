/** POST /plants over HTTP: every rule of the operation, as a table of requests and their answers. */

import { describe, expect, test } from "bun:test";
import type { ErrorName } from "../../src/domain/errors.ts";
import { expectError } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import type { StoredPlant } from "../support/plants.ts";
import { send, startService, startShared, TEST_TOKEN } from "../support/service.ts";

export const groups = ["sqlite", "threads", "postgres"];

const service = await startShared(limits({ bodyBytesMax: 4096 }));

const stored = (id: bigint, name = "a", tag: string | null = null) => ({ id, name, tag });
const ANY_CASE = { "content-type": 'Application/JSON; Charset="UTF-8"; profile=x;' };
const ODD = '🌵 "quoted" \\ \u0001 \u2028 é';

/** test/domain/plant.test.ts and test/domain/json.test.ts have more bodies, and contract/property.test.ts makes them up. */
test.each<[what: string, body: string, stores: StoredPlant, headers?: Record<string, string>]>([
  ["a plant with a tag", '{"id":1,"name":"Fern","tag":"shade"}', stored(1n, "Fern", "shade")],
  ["empty strings", '{"id":3,"name":"","tag":""}', stored(3n, "", "")],
  ["an id beyond 2^53", '{"id":9007199254740993,"name":"a"}', stored(9007199254740993n)],
  ["its neighbour", '{"id":9007199254740992,"name":"b"}', stored(9007199254740992n, "b")],
  ["the greatest id", '{"id":9223372036854775807,"name":"a"}', stored(9223372036854775807n)],
  ["the least id", '{"id":-9223372036854775808,"name":"a"}', stored(-9223372036854775808n)],
  ["1e2, an integer by JSON Schema", '{"id":1e2,"name":"a"}', stored(100n)],
  ["unknown members, and echoes none", '{"id":12,"name":"a","x":{"tag":"no"}}', stored(12n)],
  ["any text", JSON.stringify({ id: 14, name: ODD, tag: "\uFEFFé" }), stored(14n, ODD, "\uFEFFé")],
  ["a media type in any case, with parameters", '{"id":18,"name":"a"}', stored(18n), ANY_CASE],
  ["no encoding", '{"id":19,"name":"a"}', stored(19n), { "content-encoding": "Identity" }],
  ["any scheme", '{"id":20,"name":"a"}', stored(20n), { authorization: `bEARER ${TEST_TOKEN}` }],
])("POST /plants accepts %s", async (_what, body, stores, headers = {}) => {
  const response = await service.create(body, { headers });
  const { name, tag } = stores;
  expect(await response.text()).toBe(JSON.stringify({ name, tag: tag ?? undefined }));
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("application/json");
  expect(await service.findPlant(stores.id)).toEqual(stores);
});

const good = '{"id":1,"name":"a"}';
const types = ["text/plain", "jsonp", "json; charset=latin1", "json; charset", "json, text/plain"];
const expected =
  "id: expected an integer from -9223372036854775808 to 9223372036854775807, got 1.5; " +
  "name: expected a string, got an array; tag: expected a string, got an object";

type Refused = [string | Uint8Array, ErrorName, says: string, headers?: Record<string, string>];
test.each<Refused>([
  ['{"id":1.5,"name":[1],"tag":{}}', "invalid_plant", expected],
  ['{"id":1,"name":"a"', "invalid_json", "not valid JSON"],
  ["[".repeat(4_000), "invalid_json", ""],
  [Buffer.from('{"id":1,"name":"\xff"}', "latin1"), "invalid_utf8", ""],
  [Buffer.from('{"id":1,"name":"\xed\xa0\x80"}', "latin1"), "invalid_utf8", ""],
  [JSON.stringify({ id: 1, name: "a".repeat(5_000) }), "body_too_large", "4096 bytes"],
  [good, "unsupported_encoding", "", { "content-encoding": "gzip" }],
  ...types.map((type): Refused => {
    const headers = { "content-type": type.replace(/^json/, "application/json") };
    return [good, "unsupported_media_type", "", headers];
  }),
])(
  "POST /plants refuses, and stores nothing for %.40j: %s",
  async (body, reason, says, headers = {}) => {
    const before = await service.readPlants();
    const response = await service.create(body, { headers });
    expect(response.headers.get("content-type")).toBe("application/json");
    await expectError(response, reason, says);
    expect(await service.readPlants()).toEqual(before);
  },
);

test("POST /plants: an unknown member may be nested 1,000 levels deep with the object, whatever the id", async () => {
  await using roomy = await startService();
  const nest = (levels: number): string => "[".repeat(levels) + "]".repeat(levels);
  for (const id of ["1", "9007199254740993", "2.0"]) {
    const deep = await roomy.create(`{"id":${id},"name":"a","deep":${nest(999)},"text":"[[{{"}`);
    expect([deep.status, await deep.text()]).toEqual([200, '{"name":"a"}']);
    const says = "The body is nested deeper than 1000 levels.";
    for (const levels of [1_000, 400_000]) {
      const body = `{"id":${id},"name":"b","deep":${nest(levels)}}`;
      await expectError(await roomy.create(body), "invalid_json", says);
    }
  }
});

describe("POST /plants under a taken id", () => {
  const create = (plant: object): Promise<Response> => service.create(JSON.stringify(plant));

  test("the same plant is a replay, with the same answer", async () => {
    const first = await create({ id: 700, name: "a", tag: "b" });
    const second = await create({ tag: "b", name: "a", id: 700.0, extra: 1 });
    expect(first.headers.has("idempotent-replayed")).toBe(false);
    expect(second.headers.get("idempotent-replayed")).toBe("true");
    expect([second.status, await second.text()]).toEqual([first.status, await first.text()]);
  });

  test("each of a batch is compared with the stored plant, however long that is", async () => {
    const long = { id: 704, name: "x".repeat(2500) };
    await create(long);
    const names = ["y", "y\u2026", "x", long.name];
    const body = JSON.stringify(names.map((name) => ({ id: 704, name })));
    const response = await send(service, "POST", "/plants/batch", { body });
    const results = (await response.json()) as { readonly status: number }[];
    expect(results.map(({ status }) => status)).toEqual(
      names.map((name) => (name === long.name ? 200 : 409)),
    );
  });

  test("any other answers 409 and changes nothing", async () => {
    await create({ id: 701, name: "a", tag: "b" });
    await create({ id: 702, name: "a" });
    await create({ id: 703, name: "\u00e9" });
    const before = await service.readPlants();
    for (const plant of [
      { id: 701, name: "c", tag: "b" },
      { id: 701, name: "a", tag: "c" },
      { id: 701, name: "a" },
      { id: 701, name: "A", tag: "b" },
      { id: 702, name: "a", tag: "" },
      // Another normalisation of the same letter.
      { id: 703, name: "e\u0301" },
    ]) {
      const says = `A different plant has the id ${plant.id}; nothing was changed.`;
      await expectError(await create(plant), "id_taken", says);
    }
    expect(await service.readPlants()).toEqual(before);
  });
});
