/** The checks in plant.ts and the JSON Schema in the description accept the same bodies. */

import { describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import { Compile } from "typebox/schema";
import { entityTagOf } from "../../src/domain/entity-tag.ts";
import { isStorable, type plantRules } from "../../src/domain/faults.ts";
import { INT64_MAX, INT64_MIN, readIdText } from "../../src/domain/json.ts";
import {
  formatNdjson,
  formatStoredPlant,
  formatStoredPlants,
  lengthOf,
  parseNewPlant,
  parseReplacement,
  parseTexts,
  type Plant,
  refusePlant,
} from "../../src/domain/plant.ts";
import { resolveConfig } from "../../src/config.ts";
import { describeApi } from "../../src/http/description.ts";
import { measureCpuMs, reasonOf } from "../support/expect.ts";
import { runsFactor } from "../support/long.ts";

const RUNS = 1_000 * runsFactor;

/** Neither the schema nor the checks may have a bound of length or size that the other lacks. */
const longText = fc.constantFrom(256, 65_536, 500_000).map((length) => "x".repeat(length));
const anyText = fc.oneof({ weight: 20, arbitrary: fc.string() }, longText);
const anyId = fc.oneof(fc.integer(), fc.maxSafeInteger(), fc.constantFrom(2 ** 53, -(2 ** 62)));

/** Mostly members that a plant has, mostly with values that it may have. */
const value = fc.oneof(
  fc.jsonValue(),
  fc.integer(),
  fc.string(),
  fc.constantFrom(null, true, "", 0, -0, 1.5, [], {}),
);
const mostly = (arbitrary: fc.Arbitrary<unknown>, weight = 3) =>
  fc.oneof({ weight, arbitrary }, value);
const content = { name: mostly(anyText), tag: mostly(anyText), other: value };

/** What the schema cannot say: no U+0000, no unpaired surrogate, an id within int64. */
function isExpressible(came: unknown): boolean {
  const { id, name, tag } = (came ?? {}) as Record<string, unknown>;
  return (
    [name, tag].every((text) => typeof text !== "string" || isStorable(text)) &&
    (typeof id !== "number" || Math.abs(id) < 2 ** 63)
  );
}

const { components } = describeApi(resolveConfig({}, {}).config) as {
  readonly components: { readonly schemas: Readonly<Record<string, object>> };
};

test.each([
  ["a new plant", "NewPlant", { id: mostly(anyId), ...content }, parseNewPlant],
  // A replacement may repeat the id of its path, which no schema can say.
  ["a replacement", "Plant", content, (text: string) => parseReplacement(text, 1n)],
] as const)(
  "%s is accepted if and only if its schema accepts it",
  (_name, schema, members, parse) => {
    const compiled = Compile(components.schemas[schema] ?? {});
    const candidate = mostly(fc.record(members, { requiredKeys: [] }), 9);
    const seen = new Set<boolean>();
    fc.assert(
      fc.property(candidate.filter(isExpressible), (came) => {
        const accepted = reasonOf(() => parse(JSON.stringify(came))) === undefined;
        seen.add(accepted);
        expect(accepted).toBe(compiled.Check(came));
      }),
      { numRuns: RUNS },
    );
    expect(seen.size).toBe(2);
  },
);

test("the text of an id is found in any object", () => {
  const name = fc.oneof(fc.constantFrom("i\\d", 'i"d', "name"), fc.string());
  const members = fc.dictionary(
    name.filter((one) => one !== "id"),
    fc.oneof(fc.jsonValue(), fc.constant({ id: 9 })),
  );
  const number = fc.double({ noNaN: true, noDefaultInfinity: true });
  fc.assert(
    fc.property(members, number, members, (before, id, after) => {
      const text = readIdText(JSON.stringify({ ...before, id, ...after }));
      expect(text).toBe(JSON.stringify(id));
    }),
    { numRuns: RUNS },
  );
});

/** The worst bodies of 1 MB, against parsing them once: a reviver took hundreds of times as long. */
test.each([
  ["small numbers", `{"id":1.5,"z":[${"1,".repeat(500_000)}1]}`],
  ["short names", `{"id":1.5${',"":1'.repeat(200_000)}}`],
  ["escaped names", `{"id":1.5${',"\\u0069":1'.repeat(100_000)}}`],
  ["brackets", `{"id":1.5,"z":${"[".repeat(500_000)}${"]".repeat(500_000)}}`],
  ["quotes", `{"id":1.5,"z":"${'\\"'.repeat(500_000)}"}`],
])("a refused body of %s costs little more than parsing it", async (_name, body) => {
  const refused = await measureCpuMs(() => reasonOf(() => parseNewPlant(body)));
  expect(refused).toBeLessThan(30 * (await measureCpuMs(() => JSON.parse(body))));
});

test("plants are written with every digit of their ids, together as alone, be they BigInts, numbers or both", () => {
  const text = fc.oneof(
    fc.string({ unit: "binary" }).filter(isStorable),
    // What stands between two plants, or almost.
    fc.string({ unit: fc.constantFrom("}", ",", "{", '"', "id", ":", "\\", "\n") }),
  );
  const id = fc.oneof(
    fc.bigInt(INT64_MIN, INT64_MAX),
    fc.bigInt(-5n, 5n).map((by) => 2n ** 53n + by),
    fc.maxSafeInteger(),
  );
  const plant = fc.record({ id, name: text, tag: fc.option(text, { nil: undefined }) });
  fc.assert(
    fc.property(fc.array(plant, { maxLength: 4 }), (all) => {
      expect(formatStoredPlants(all)).toBe(`[${all.map(formatStoredPlant).join(",")}]`);
      expect(formatNdjson(all)).toBe(all.map((one) => `${formatStoredPlant(one)}\n`).join(""));
      for (const { id: own, ...rest } of all)
        expect(formatStoredPlant({ id: own, ...rest })).toBe(
          `{"id":${own},${JSON.stringify(rest).slice(1)}`,
        );
    }),
  );
});

test.each<[body: string, id: bigint, name?: string]>([
  ['{"id":-0,"name":"a"}', 0n],
  ['{"id":9007199254740995.0,"name":"a"}', 9007199254740995n],
  ['{"id":0e999999999,"name":"a"}', 0n],
  ['{"id":5,"id":9007199254740997,"name":"x","name":"y"}', 9007199254740997n, "y"],
  ['{"id":12,"name":"a","nested":{"id":99,"tag":"no"}}', 12n],
  ['{"id":13,"name":"a","__proto__":{"tag":"no"},"constructor":1}', 13n],
  ['{"id":15,"name":"\\ud83c\\udf35"}', 15n, "🌵"],
  ['{"id":16,"name":"1.5e3"}', 16n, "1.5e3"],
  ['{"\\u0069d":-7e2,"name":"a","x":[5,{"id":6}]}', -700n],
  ['{"x":"\\"id\\":9","x\\\\":11,"id":10.0,"name":"a"}', 10n],
  [' \r\n\t{ "id" : 17 , "name" : "a" } \n', 17n],
])("%s is a plant", (body, id, name = "a") => {
  expect(parseNewPlant(body)).toEqual({ id, name, tag: undefined });
});

describe("a plant that is refused", () => {
  const { config } = resolveConfig({}, {});

  /** For each rule a plant that breaks it, and its limit. Until a new one is here, it does not compile. */
  const broken: {
    readonly [Name in keyof typeof plantRules]: readonly [plant: object, limits?: object];
  } = {
    int64: [{ id: 1 }],
    string: [{ tag: 5 }],
    storable: [{ name: "a\0" }],
  };

  test.each(Object.entries(broken))("breaks the rule %s", (rule, [plant, limits]) => {
    const refusal = refusePlant({ id: 1n, name: "a", ...plant }, { ...config, ...limits });
    expect(refusal?.faults.map(({ name }) => name)).toEqual([rule]);
  });

  test.each<[says: string, body: string]>([
    ["got 9223372036854775808", '{"id":9223372036854775808,"name":"a"}'],
    ["got -9223372036854775809", '{"id":-9223372036854775809,"name":"a"}'],
    ["got 1.00000000000000000001", '{"id":1.00000000000000000001,"name":"a"}'],
    ["got 1e-400", '{"id":1e-400,"name":"a"}'],
    ["got 1e400", '{"id":1e400,"name":"a"}'],
    ["got 1e999999999", '{"id":1e999999999,"name":"a"}'],
    ["…", `{"id":1e${"9".repeat(3_000)},"name":"a"}`],
    ["id: expected an integer from -9223372036854775808 to 9", '{"id":"5","name":"a"}'],
    ["got nothing", '{"name":"a"}'],
    ["name: expected a string, got nothing", '{"id":1}'],
    ["tag: expected a string, got null", '{"id":1,"name":"a","tag":null}'],
    ["a string with U+0000", '{"id":1,"name":"a\\u0000b"}'],
    ["unpaired surrogate", '{"id":1,"name":"a","tag":"\\udfff x"}'],
    ["body: expected an object, got an array", '[{"id":1,"name":"a"}]'],
    ["body: expected an object, got null", "null"],
  ])("names what came: %s", (says, body) => {
    expect(reasonOf(() => parseNewPlant(body))).toBe("invalid_plant");
    expect(() => parseNewPlant(body)).toThrow(says);
    const parsed: unknown = JSON.parse(body);
    const isExact = JSON.stringify(parsed) === body;
    if (isExact && isExpressible(parsed))
      expect(Compile(components.schemas["NewPlant"] ?? {}).Check(parsed), "by its schema").toBe(
        false,
      );
  });

  test("in a sheet may have spaces around its id", () => {
    expect(parseTexts(" 7 ", "a", "b")).toEqual({ id: 7n, name: "a", tag: "b" });
  });

  test.each([
    ["", undefined, undefined, "The id is missing. The name is missing."],
    [" ", "a", undefined, "The id is missing."],
    ["7", undefined, "b", "The name is missing."],
    ["A-7", "a", undefined, 'The id is not a whole number: "A-7".'],
    ["7.5", "a", undefined, 'The id is not a whole number: "7.5".'],
    ["9223372036854775808", "a", undefined, "The id is too large: 9223372036854775808."],
    ["1E3", "a", undefined, "The spreadsheet has rounded the id to 1E3. Format the column as text"],
    ["7", "\0", "\ud800", "The name is not text without U+0000 and unpaired surrogates. The tag"],
  ])("in a sheet is refused in words: %j, %j, %j", (id, name, tag, says) => {
    expect(() => parseTexts(id, name, tag)).toThrow(says);
  });
});

const fern: Plant = { id: 1n, name: "fern", tag: "green" };

test("an entity tag is that of the content, in every version", () => {
  const tagOf = (more: Partial<Plant>): string =>
    entityTagOf(formatStoredPlant({ ...fern, ...more }));
  expect(tagOf({})).toBe('"6/Qr2FHfBP+JGy9/BH2+1lSG"');
  const others = [{ id: 2n }, { name: "Fern" }, { tag: undefined }, { tag: "" }];
  expect(new Set([tagOf({}), ...others.map(tagOf)]).size).toBe(5);
});

test("the length of a plant is that of its name and its tag", () => {
  expect([undefined, fern, { ...fern, tag: undefined }].map(lengthOf)).toEqual([0, 9, 4]);
});
