/** Tokens as texts, and what a new one may be given. */

import { expect, test } from "bun:test";
import {
  findExcess,
  grantRules,
  isWellFormedToken,
  mintToken,
  parseGrant,
  toRecord,
} from "../../src/auth/token.ts";
import { plantScopes, scopes } from "../../src/domain/token.ts";

const DAY_MS = 86_400_000;

test("a typo in a token is noticed without a look-up", () => {
  const token = mintToken();
  expect(token).toMatch(/^pst_[0-9A-Za-z]{36}_[0-9A-Za-z]{6}$/);
  expect(new Set(Array.from({ length: 100 }, mintToken)).size).toBe(100);
  expect(isWellFormedToken(token)).toBe(true);
  for (let at = 0; at < token.length; at++) {
    const typed = token.slice(0, at) + (token[at] === "x" ? "y" : "x") + token.slice(at + 1);
    expect([typed, isWellFormedToken(typed)]).toEqual([typed, false]);
  }
  for (const wrong of ["", token.slice(1), token.slice(0, -1), `x${token}`, `${token}x`])
    expect(isWellFormedToken(wrong)).toBe(false);
  // A released token stays good.
  expect(isWellFormedToken("pst_0MtMxFbxbnengJ9S1tWiLn3LcYRVVtq5wuQZ_1OXVnT")).toBe(true);
});

const NO_NAMES =
  "|PLANTSTORE_TOKEN|PLANTSTORE_TOKEN\u200b|jwt:|jwt:alice|JWT:alice|\u200bjwt:alice|jwt：a|-a| a|a |\u00a0a|a\n|a\nb|a\u2028b|\ud800";
const NO_TIMES =
  "36501d 1970-01-01 1969-12-31 2069-12-08 1971-02-30 1971-02-30T00:00Z 1971-01-01T00:00 x1971-01-01 1971-01-01x 71-01-01";

test.each<[keyof typeof grantRules, unknown[], unknown[]]>([
  [
    "name",
    [
      ...'0|jwt|my jwt:a|a._@-Z9|Anna Müller|é|O\u2019Brien "Bo"'.split("|"),
      "x".repeat(64),
      "🌱".repeat(64),
    ],
    [1, undefined, "x".repeat(65), ...NO_NAMES.split("|")],
  ],
  [
    "scopes",
    [["plants:read"], [...scopes]],
    [[], "plants:read", ["plants:read", "plants:eat"], undefined],
  ],
  ["rate", ["none", "1/s"], ["", "1", 1, "None", undefined]],
  [
    "expires",
    ["1s", "36500d", "1970-01-02", "1970-01-01T00:01Z", "1970-01-01T00:00:00.001Z"],
    [90, null, {}, undefined, ...NO_TIMES.split(" ")],
  ],
])("%s may be some values, and none of the others", (rule, good, bad) => {
  const { find } = grantRules[rule];
  expect([...good, ...bad].filter((value) => find(value, 0) !== undefined)).toEqual(good);
});

test("a time is read as it is written, and a date as its first moment in UTC", () => {
  const find = (text: string): number | undefined => grantRules.expires.find(text, 0);
  expect(find("90d")).toBe(90 * DAY_MS);
  expect(find("1970-02-01")).toBe(31 * DAY_MS);
  expect(find("1970-02-01T02:00:00+02:00")).toBe(31 * DAY_MS);
  expect(find("2069-12-07")).toBe(36_500 * DAY_MS);
  expect(grantRules.expires.find("90d", 5)).toBe(90 * DAY_MS + 5);
});

test("a grant has each scope once, in order, and expires from now on", () => {
  const asked = ["plants:write", "plants:read", "plants:write"];
  const grant = parseGrant({ name: "till", scopes: asked, expires: "1d" });
  const { createdAtMs } = grant;
  expect(Math.abs(createdAtMs - Date.now())).toBeLessThan(DAY_MS);
  const expiresAtMs = createdAtMs + DAY_MS;
  expect(grant).toEqual({ name: "till", scopes: [...plantScopes], expiresAtMs, createdAtMs });
});

type Rates = readonly (string | undefined)[];

test.each<[service: string, own: string | undefined, given: Rates, refused: Rates]>([
  ["", "100/s", ["100/s"], ["none", undefined, "101/s", "6000/min"]],
  ["", "6000/min", ["100/s"], ["101/s"]],
  ["", undefined, ["none", undefined], []],
  ["", "none", [undefined], []],
  ["500/s", undefined, [undefined], ["none", "501/s"]],
  ["500/s", "100/s", [], [undefined]],
  ["500/s", "1000/s", [undefined], []],
  ["500/s", "none", ["none"], []],
])(
  "of a service with %j, a token with the rate %p hands out %p, and not %p",
  (all, own, given, refused) => {
    const maker = toRecord("x", { name: "maker", scopes, createdAtMs: 0, rate: own });
    const excessOf = (rate: string | undefined) =>
      findExcess({ name: "made", scopes, createdAtMs: 0, rate }, maker, all);
    for (const rate of given) expect([rate, excessOf(rate)]).toEqual([rate, undefined]);
    for (const rate of refused) expect(excessOf(rate)).toContain("rate: at most ");
  },
);
