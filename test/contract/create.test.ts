/** POST /plants over HTTP: every rule of the operation, as a table of requests and their answers. */

import { afterAll, describe, expect, test } from "bun:test";
import { catalogue, type ErrorName } from "../../src/domain/errors.ts";
import { limits } from "../support/limits.ts";
import type { StoredPlant } from "../support/plants.ts";
import { startService, TEST_TOKEN } from "../support/service.ts";

const service = await startService(limits({ bodyBytesMax: 4096 }));

afterAll(() => service[Symbol.asyncDispose]());

type Accepted = [what: string, body: string, stores: StoredPlant, headers?: Record<string, string>];

const stored = (id: bigint, name = "a", tag: string | null = null): StoredPlant => ({
  id,
  name,
  tag,
});

const accepted: Accepted[] = [
  [
    "a plant with a tag",
    '{"id":1,"name":"Monstera","tag":"tropical"}',
    stored(1n, "Monstera", "tropical"),
  ],
  ["a plant without a tag", '{"id":2,"name":"Ficus"}', stored(2n, "Ficus")],
  ["empty strings", '{"id":3,"name":"","tag":""}', stored(3n, "", "")],
  ["the id 0", '{"id":0,"name":"a"}', stored(0n)],
  ["the id -0", '{"id":-0,"name":"a"}', stored(0n)],
  ["a negative id", '{"id":-5,"name":"a"}', stored(-5n)],
  ["an id beyond 2^53", '{"id":9007199254740993,"name":"a"}', stored(9007199254740993n)],
  [
    "its neighbour, a different plant",
    '{"id":9007199254740992,"name":"b"}',
    stored(9007199254740992n, "b"),
  ],
  [
    "an id beyond 2^53 with a fraction of zero",
    '{"id":9007199254740995.0,"name":"a"}',
    stored(9007199254740995n),
  ],
  ["the greatest id", '{"id":9223372036854775807,"name":"a"}', stored(9223372036854775807n)],
  ["the least id", '{"id":-9223372036854775808,"name":"a"}', stored(-9223372036854775808n)],
  ["1.0, an integer by JSON Schema", '{"id":11.0,"name":"a"}', stored(11n)],
  ["1e2, an integer by JSON Schema", '{"id":1e2,"name":"a"}', stored(100n)],
  ["0e999999999, which is zero", '{"id":0e999999999,"name":"a"}', stored(0n)],
  [
    "the last of several members of one name",
    '{"id":5,"id":9007199254740997,"name":"x","name":"y"}',
    stored(9007199254740997n, "y"),
  ],
  [
    "unknown members, which are ignored and never echoed",
    '{"id":12,"name":"a","colour":"green","nested":{"id":99,"tag":"no"}}',
    stored(12n),
  ],
  [
    "members of unknown name that JavaScript knows",
    '{"id":13,"name":"a","__proto__":{"tag":"no"},"constructor":1}',
    stored(13n),
  ],
  [
    "text of every kind",
    JSON.stringify({ id: 14, name: '🌵 "quoted" \\ \u0001 \u2028 é', tag: "\uFEFFé" }),
    stored(14n, '🌵 "quoted" \\ \u0001 \u2028 é', "\uFEFFé"),
  ],
  ["an escaped pair of surrogates", '{"id":15,"name":"\\ud83c\\udf35"}', stored(15n, "🌵")],
  [
    "a number in the name that looks like a fraction",
    '{"id":16,"name":"1.5e3"}',
    stored(16n, "1.5e3"),
  ],
  ["white space around", ' \r\n\t{ "id" : 17 , "name" : "a" } \n', stored(17n)],
  [
    "a media type in any case, with parameters",
    '{"id":18,"name":"a"}',
    stored(18n),
    { "content-type": 'Application/JSON; Charset="UTF-8"; profile=x;' },
  ],
  [
    "the content encoding identity",
    '{"id":19,"name":"a"}',
    stored(19n),
    { "content-encoding": "Identity" },
  ],
  [
    "a scheme in any case",
    '{"id":20,"name":"a"}',
    stored(20n),
    { authorization: `bEARER ${TEST_TOKEN}` },
  ],
];

describe("POST /plants accepts", () => {
  test.each(accepted)("%s", async (_what, body, stores, headers = {}) => {
    const response = await service.create(body, { headers });
    const { name, tag } = stores;
    expect(await response.text()).toBe(JSON.stringify({ name, tag: tag ?? undefined }));
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(await service.findPlant(stores.id)).toEqual(stores);
  });
});

interface Refused {
  readonly body: string | Uint8Array;
  readonly reason: ErrorName;
  /** Parts of the message. */
  readonly says: readonly string[];
  readonly headers?: Record<string, string>;
}

const invalid = (body: string, ...says: string[]): Refused => ({
  body,
  reason: "invalid_plant",
  says,
});

const refused: Record<string, Refused> = {
  "an id one past int64": invalid(
    '{"id":9223372036854775808,"name":"a"}',
    "id: expected an integer from -9223372036854775808 to 9223372036854775807, got 9223372036854775808",
  ),
  "an id one before int64": invalid(
    '{"id":-9223372036854775809,"name":"a"}',
    "got -9223372036854775809",
  ),
  "a fraction": invalid('{"id":1.5,"name":"a"}', "id:", "got 1.5"),
  "a fraction that a double rounds to an integer": invalid(
    '{"id":1.00000000000000000001,"name":"a"}',
    "got 1.00000000000000000001",
  ),
  "a fraction that a double rounds to zero": invalid('{"id":1e-400,"name":"a"}', "got 1e-400"),
  "an id beyond every double": invalid('{"id":1e400,"name":"a"}', "got 1e400"),
  "an exponent that would take for ever to write out": invalid(
    '{"id":1e999999999,"name":"a"}',
    "id:",
  ),
  "an exponent of many digits": invalid(`{"id":1e${"9".repeat(3000)},"name":"a"}`, "id:", "…"),
  "a string for an id": invalid('{"id":"5","name":"a"}', 'got the string "5"'),
  "true for an id": invalid('{"id":true,"name":"a"}', "id:", "got true"),
  "null for an id": invalid('{"id":null,"name":"a"}', "id:", "got null"),
  "no id": invalid('{"name":"a"}', "id:", "got nothing"),
  "no name": invalid('{"id":1}', "name: expected a string, got nothing"),
  "null for a tag": invalid('{"id":1,"name":"a","tag":null}', "tag: expected a string, got null"),
  "every fault at once": invalid(
    '{"id":1.5,"name":[1],"tag":{}}',
    "id: expected an integer",
    "name: expected a string, got an array",
    "tag: expected a string, got an object",
  ),
  "U+0000 in a name": invalid('{"id":1,"name":"a\\u0000b"}', "name:", "a string with U+0000"),
  "U+0000 in a tag": invalid('{"id":1,"name":"a","tag":"\\u0000"}', "tag:", "a string with U+0000"),
  "an unpaired surrogate in a name": invalid(
    '{"id":1,"name":"\\ud800"}',
    "name:",
    "unpaired surrogate",
  ),
  "an unpaired surrogate in a tag": invalid(
    '{"id":1,"name":"a","tag":"\\udfff x"}',
    "tag:",
    "unpaired surrogate",
  ),
  "an array": invalid('[{"id":1,"name":"a"}]', "body: expected an object, got an array"),
  "a string": invalid('"a"', 'got the string "a"'),
  "a number": invalid("5", "got 5"),
  null: invalid("null", "got null"),
  "an empty body": { body: "", reason: "invalid_json", says: ["empty"] },
  "half a body": { body: '{"id":1,"name":"a"', reason: "invalid_json", says: ["not valid JSON"] },
  "two bodies": { body: '{"id":1,"name":"a"}{}', reason: "invalid_json", says: ["not valid JSON"] },
  "a trailing comma": { body: '{"id":1,"name":"a",}', reason: "invalid_json", says: [] },
  "a number with a leading zero": {
    body: '{"id":01,"name":"a"}',
    reason: "invalid_json",
    says: [],
  },
  NaN: { body: '{"id":NaN,"name":"a"}', reason: "invalid_json", says: [] },
  "a byte order mark": {
    body: '\uFEFF{"id":1,"name":"a"}',
    reason: "invalid_json",
    says: ["byte order mark"],
  },
  "brackets without end": { body: "[".repeat(4000), reason: "invalid_json", says: [] },
  "invalid UTF-8": {
    body: Buffer.from('{"id":1,"name":"\xff"}', "latin1"),
    reason: "invalid_utf8",
    says: [],
  },
  "a surrogate encoded in UTF-8": {
    body: Buffer.from('{"id":1,"name":"\xed\xa0\x80"}', "latin1"),
    reason: "invalid_utf8",
    says: [],
  },
  "a body over the limit": {
    body: JSON.stringify({ id: 1, name: "a".repeat(5000) }),
    reason: "body_too_large",
    says: ["4096 bytes"],
  },
  ...Object.fromEntries(
    [
      "text/plain",
      "application/jsonp",
      "application/json; charset=latin1",
      "application/json; charset",
      "application/json, text/plain",
      "application/problem+json",
    ].map((type): [string, Refused] => [
      `the media type ${type}`,
      {
        body: '{"id":1,"name":"a"}',
        reason: "unsupported_media_type",
        says: [],
        headers: { "content-type": type },
      },
    ]),
  ),
  "the content encoding gzip": {
    body: '{"id":1,"name":"a"}',
    reason: "unsupported_encoding",
    says: [],
    headers: { "content-encoding": "gzip" },
  },
};

describe("POST /plants refuses, and stores nothing for", () => {
  for (const [what, { body, reason, says, headers }] of Object.entries(refused)) {
    test(what, async () => {
      const before = await service.readPlants();
      const response = await service.create(body, headers === undefined ? {} : { headers });
      const answer = (await response.json()) as { error: number; message: string };
      expect(answer).toEqual({ error: catalogue[reason].code, message: expect.any(String) });
      expect(response.status).toBe(catalogue[reason].status);
      expect(response.headers.get("content-type")).toBe("application/json");
      for (const part of says) expect(answer.message).toContain(part);
      expect(answer.message.length).toBeLessThan(500);
      expect(await service.readPlants()).toEqual(before);
    });
  }
});

test("POST /plants: an unknown member may be nested 1,000 levels deep with the object, whatever the id", async () => {
  await using roomy = await startService();
  const nest = (levels: number): string => "[".repeat(levels) + "]".repeat(levels);
  for (const id of ["1", "9007199254740993", "2.0"]) {
    const deep = await roomy.create(`{"id":${id},"name":"a","deep":${nest(999)},"text":"[[{{"}`);
    expect([deep.status, await deep.text()]).toEqual([200, '{"name":"a"}']);
    for (const levels of [1_000, 400_000]) {
      const tooDeep = await roomy.create(`{"id":${id},"name":"b","deep":${nest(levels)}}`);
      expect(tooDeep.status).toBe(400);
      expect(await tooDeep.json()).toEqual({
        error: catalogue.invalid_json.code,
        message: "The body is nested deeper than 1000 levels.",
      });
    }
  }
});

describe("POST /plants under a taken id", () => {
  const create = (plant: object): Promise<Response> => service.create(JSON.stringify(plant));

  test("the same plant answers 200 with the same body, and says that it is a replay", async () => {
    const first = await create({ id: 700, name: "a", tag: "b" });
    const second = await create({ tag: "b", name: "a", id: 700.0, extra: 1 });
    expect(first.headers.has("idempotent-replayed")).toBe(false);
    expect(second.headers.get("idempotent-replayed")).toBe("true");
    expect([second.status, await second.text()]).toEqual([first.status, await first.text()]);
  });

  test.each([
    ["another name", { id: 701, name: "c", tag: "b" }],
    ["another tag", { id: 701, name: "a", tag: "c" }],
    ["no tag", { id: 701, name: "a" }],
    ["an empty tag for none", { id: 702, name: "a", tag: "" }],
    ["another case", { id: 701, name: "A", tag: "b" }],
    ["another normalisation of the same letter", { id: 703, name: "e\u0301" }],
  ])("%s answers 409 and changes nothing", async (_what, plant) => {
    await create({ id: 701, name: "a", tag: "b" });
    await create({ id: 702, name: "a" });
    await create({ id: 703, name: "\u00e9" });
    const before = await service.readPlants();
    const response = await create(plant);
    expect(response.status).toBe(409);
    expect(await response.json()).toEqual({
      error: catalogue.id_taken.code,
      message: `A different plant has the id ${plant.id}; nothing was changed.`,
    });
    expect(await service.readPlants()).toEqual(before);
  });
});
