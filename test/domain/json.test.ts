/** JSON without rounding: which numbers are ids, how deep a body may be, and how what came instead is described. */

import { describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import { Refusal } from "../../src/domain/errors.ts";
import {
  clip,
  describe as describeValue,
  findInt64,
  findPlainInt64,
  parseJson,
} from "../../src/domain/json.ts";
import { joinFaults, parseMembers } from "../../src/domain/members.ts";
import { anyInteger, anyNotation, anyNumberText } from "../support/arbitrary.ts";
import { reasonOf } from "../support/expect.ts";
import { runsFactor } from "../support/long.ts";
import { findInt64ByOracle } from "../support/oracle.ts";
import { seed } from "../support/random.ts";

describe("the int64 of", () => {
  /** What the properties below do not write. */
  test.each<[string, bigint | undefined]>([
    ["0.000e99999999999999999999", 0n],
    ["007", 7n],
    ["1e999999999999", undefined],
    ...["", "x1", "1x", "+1", "1.", ".5"].map((text): [string, undefined] => [text, undefined]),
  ])("%j is %p", (text, expected) => expect(findInt64(text)).toBe(expected));

  test("a path is written in one way only", () => {
    const texts = ["7", "-7", "0", "07", "7.0", "-0", "", "undefined", "9223372036854775808"];
    expect(texts.map(findPlainInt64)).toEqual([7n, -7n, 0n, ...Array(6).fill(undefined)]);
  });
});

describe("a body", () => {
  const wrap = (depth: number, inner: string): string =>
    `${"[".repeat(depth)}${inner}${"]".repeat(depth)}`;
  const long = " ".repeat(2_001);

  test.each([
    ["1,000 levels", wrap(1_000, long)],
    ["many levels one after the other", `[${"[[]],{},".repeat(1_900)}1]`],
    ["10,001 plants", `[${'{"id":1,"name":""},'.repeat(10_000)}{}]`],
    ["10,000 values of two characters", `[${"1,".repeat(9_999)}1]`],
    ["commas in a text", JSON.stringify(",".repeat(20_000))],
    ["brackets in a text", JSON.stringify("[{".repeat(2_000))],
    ["brackets behind an escaped quote", JSON.stringify(`"${"[".repeat(2_000)}`)],
    ["brackets behind an escaped backslash", `["\\\\",${wrap(999, long)}]`],
  ])("of %s is read", (_name, text) => expect(parseJson(text)).toEqual(JSON.parse(text)));

  test.each<[string, string, string]>([
    ["nothing", "", "The body is empty; expected a JSON object."],
    ["1,001 levels", wrap(1_001, long), "The body is nested deeper than 1000 levels."],
    ["1,001 objects", '{"a":'.repeat(1_001), "The body is nested deeper than 1000 levels."],
    ["1,001 levels behind texts", `["[\\"","\\\\",${wrap(1_000, long)}]`, "The body is nested"],
    ["10,001 values of two characters", `[${"1,".repeat(10_000)}1]`, "has 10001 values in 20003"],
    ["many empty arrays", `[${"[],".repeat(300_000)}1]`, "The body has 600001 values in"],
    ["a byte order mark", "\uFEFF{}", "The body begins with a byte order mark (U+FEFF)"],
    ["half an object", "{", "The body is not valid JSON: Expected '}'."],
  ])("of %s is refused", (_name, text, says) => {
    expect(reasonOf(() => parseJson(text))).toBe("invalid_json");
    expect(() => parseJson(text)).toThrow(says);
  });
});

test.each<[unknown, string]>([
  [undefined, "nothing"],
  [null, "null"],
  [[], "an array"],
  [{}, "an object"],
  [1.5, "1.5"],
  [true, "true"],
  [1n, "bigint"],
  ["a\0", "a string with U+0000"],
  ["\ud800", "a string with an unpaired surrogate"],
  ['a"b', 'the string "a\\"b"'],
  ["x".repeat(40), `the string "${"x".repeat(40)}"`],
  ["x".repeat(41), `the string "${"x".repeat(40)}…"`],
])("%p is described as %s", (value, expected) => expect(describeValue(value)).toBe(expected));

test("a text is not cut inside a character", () => {
  expect(clip(`${"x".repeat(39)}🌱`)).toBe(`${"x".repeat(39)}\ufffd…`);
});

test("of many faults 32 are named", () => {
  const faults = Array.from({ length: 33 }, (_, index) => `f${index}`);
  const named = faults.slice(0, 32);
  expect(joinFaults(named)).toBe(named.join("; "));
  expect(joinFaults(faults)).toBe(`${named.join("; ")}; and 1 more`);
});

describe("members", () => {
  const positive = {
    expected: "+",
    find: (value: unknown) => (typeof value === "number" && value > 0 ? value * 2 : undefined),
  };
  const parse = (given: unknown, defaults?: Record<string, unknown>): object =>
    parseMembers(given, { a: positive, b: { ...positive, optional: true } }, defaults);

  test("are found, null counts as left out, and a default takes its place", () => {
    expect(parse({ a: 1 })).toEqual({ a: 2 });
    expect(parse({ a: 1, b: 2 })).toEqual({ a: 2, b: 4 });
    expect(parse({ a: 1, b: null })).toEqual({ a: 2 });
    expect(parse({ a: null }, { a: 3 })).toEqual({ a: 6 });
  });

  test.each<[unknown, string]>([
    [1, "body: expected an object, got 1"],
    [[], "body: expected an object, got an array"],
    [{ a: null }, "a: expected +, got nothing"],
    [{ a: 1, b: -1 }, "b: expected +, got -1"],
    [{ a: 0, c: 1 }, 'the string "c": unknown; allowed: a, b; a: expected +, got 0'],
  ])("%j are refused", (given, says) => {
    expect(() => parse(given)).toThrow(new Refusal("invalid_body", says));
    expect(reasonOf(() => parse(given))).toBe("invalid_body");
  });
});

test("any int64 is found in any notation, and none in an integer out of range, as by exact arithmetic", () => {
  const agrees = fc.property(anyNumberText, (text) => {
    expect(findInt64(text)).toBe(findInt64ByOracle(text));
  });
  fc.assert(agrees, { seed, numRuns: 5_000 * runsFactor });
  const written = anyInteger.chain((value) => fc.tuple(fc.constant(value), anyNotation(value)));
  const finds = fc.property(written, ([value, text]) => {
    const isInt64 = BigInt.asIntN(64, value) === value;
    expect(findInt64(text)).toBe(isInt64 ? value : undefined);
  });
  fc.assert(finds, { seed, numRuns: 2_000 * runsFactor });
});
