/** Requests that are sound as HTTP, with anything in their values. */

import * as fc from "fast-check";
import { anyAttempt, anyBody } from "../support/arbitrary.ts";
import type { Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";

/** So many ids belong to each connection; the first is created soundly before all else. */
const IDS_EACH = 100n;
/** Beyond 2^53, where a double would mix up neighbours. */
const FIRST_ID = 2n ** 60n;
/** A prime: the ids of two connections differ in many digits, so changing a few does not lead from one to the other. */
const IDS_APART = 10_000_000_019n;

export const firstIdOf = (index: number): bigint => FIRST_ID + BigInt(index) * IDS_APART;

export const isOwnId = (id: bigint, index: number): boolean =>
  id >= firstIdOf(index) && id < firstIdOf(index) + IDS_EACH;

const TOKEN = `Authorization: Bearer ${TEST_TOKEN}`;
const JSON_TYPE = "Content-Type: application/json";

/** Each as it is sent; without a body it has no length either. */
function formatSound(line: string, fields: readonly string[], body?: Uint8Array): Buffer {
  const length = body === undefined ? [] : [`Content-Length: ${body.length}`];
  const head = [`${line} HTTP/1.1`, "Host: plants.example", ...fields, ...length].join("\r\n");
  return Buffer.concat([Buffer.from(`${head}\r\n\r\n`, "latin1"), body ?? Buffer.alloc(0)]);
}

export const formatCreate = (id: bigint): Buffer =>
  formatSound("POST /plants", [TOKEN, JSON_TYPE], Buffer.from(`{"id":${id},"name":"sound"}`));

export interface SoundRequest {
  readonly method: string;
  readonly target: string;
  /** Names in lower case; each byte of a value a character. */
  readonly fields: readonly (readonly [name: string, value: string])[];
  readonly body: Uint8Array;
}

export function parseSound(bytes: Buffer): SoundRequest {
  const headEnd = bytes.indexOf("\r\n\r\n");
  const [line = "", ...lines] = bytes.toString("latin1", 0, headEnd).split("\r\n");
  const [method = "", target = ""] = line.split(" ");
  const fields = lines.map((field): [string, string] => {
    const colon = field.indexOf(":");
    return [field.slice(0, colon).toLowerCase(), field.slice(colon + 1).trim()];
  });
  return { method, target, fields, body: bytes.subarray(headEnd + 4) };
}

export const valuesOf = ({ fields }: SoundRequest, name: string): string[] =>
  fields.flatMap(([other, value]) => (other === name ? [value] : []));

/** A body about this id, in any notation or nearly so, or about anything. */
function makePlantBody(id: bigint, random: Random): Buffer {
  const plant = { id, name: random.pick(["Fern", "", "naïve \u{1f331}"]), tag: null };
  const body = fc.oneof(
    anyBody(plant).map((text) => Buffer.from(text)),
    anyAttempt(plant),
  );
  return fc.sample(body, { seed: random.below(2 ** 31), numRuns: 1 })[0] as Buffer;
}

type Make = (own: bigint, id: bigint, random: Random) => Buffer;

/** `own` exists already, `id` does not. */
const makes: readonly (readonly [weight: number, make: Make])[] = [
  [
    55,
    (_own, id, random) =>
      formatSound("POST /plants", [TOKEN, JSON_TYPE], makePlantBody(id, random)),
  ],
  [
    15,
    (own, _id, random) =>
      formatSound(
        `PUT /plants/${own}`,
        [TOKEN, JSON_TYPE, ...makeConditions(random)],
        makePlantBody(own, random),
      ),
  ],
  [
    5,
    (_own, id, random) => {
      const lines = Array.from({ length: 1 + random.below(6) }, (_, index) =>
        makePlantBody(id + BigInt(index), random),
      );
      const body = Buffer.concat(lines.flatMap((line) => [line, Buffer.from("\n")]));
      return formatSound("POST /plants/batch", [TOKEN, "Content-Type: application/x-ndjson"], body);
    },
  ],
  [
    8,
    (_own, id, random) =>
      formatSound("POST /plants", makeOddFields(random), makePlantBody(id, random)),
  ],
  [4, (own, _id, random) => formatSound(`GET /plants/${own}`, [TOKEN, ...makeConditions(random)])],
  [4, (_own, id, random) => formatSound(`GET /plants/${id}${random.pick(odd)}`, [TOKEN])],
  [
    4,
    (own, _id, random) =>
      formatSound(`GET /plants?${makeQuery(own, random)}`, [TOKEN, makeAccept(random)]),
  ],
  [2, (_own, _id, random) => formatSound(`GET /tags?${makeQuery(1n, random)}`, [TOKEN])],
  [
    2,
    (own, id, random) =>
      formatSound(`DELETE /plants/${random.pick([own, id])}`, [TOKEN, 'If-Match: "none"']),
  ],
  [
    1,
    (_own, _id, random) =>
      formatSound(`${random.pick(["HEAD", "OPTIONS", "PATCH", "TRACE"])} ${random.pick(paths)}`, [
        TOKEN,
      ]),
  ],
];

const paths = ["/plants", "/livez", "/token", "/nowhere", "/plants/1", "/openapi.json"];
const odd = ["", ..."%31 .0 e0 / ? %00 0000000000000000 % + #1".split(" ")];
const weightOfAll = makes.reduce((sum, [weight]) => sum + weight, 0);

export function makeSound(own: bigint, id: bigint, random: Random): Buffer {
  let left = random.below(weightOfAll);
  for (const [weight, make] of makes) {
    if (left < weight) return make(own, id, random);
    left -= weight;
  }
  throw new Error("the weights do not add up");
}

function makeConditions(random: Random): string[] {
  if (random.chance(70)) return [];
  const values = `*|"a"|W/"a"|a|"|,,,||*, "a"|"\xff"`.split("|");
  const value = random.pick([...values, '"a",'.repeat(99)]);
  return [`${random.pick(["If-Match", "If-None-Match"])}: ${value}`];
}

function makeOddFields(random: Random): string[] {
  const token = random.pick([
    TOKEN,
    TOKEN.toLowerCase(),
    `${TOKEN} `,
    `${TOKEN}x`,
    TOKEN.slice(0, -1),
    TOKEN.replace("Bearer ", ""),
    TOKEN.replace("Bearer", "Basic"),
    `${TOKEN}, ${TEST_TOKEN}`,
    "Authorization:",
    "Authorization: Bearer pst_0123456789abcdef",
    `Authorization: Bearer ${"a".repeat(3_000)}`,
    "X-Nothing: 1",
  ]);
  const type = random.pick([
    JSON_TYPE,
    `${JSON_TYPE}; charset=utf-8`,
    `${JSON_TYPE};charset="UTF-8"`,
    `${JSON_TYPE}; charset=latin1`,
    `${JSON_TYPE};;;`,
    "Content-Type: text/plain",
    "Content-Type: application/x-ndjson",
    "Content-Type:",
    `${JSON_TYPE}\r\n${JSON_TYPE}`,
    `${JSON_TYPE}\r\nContent-Encoding: gzip`,
    `${JSON_TYPE}\r\nContent-Encoding: identity`,
    `${JSON_TYPE}\r\nExpect: 100-continue`,
    `${JSON_TYPE}\r\nX-Request-Id: ${"x".repeat(random.below(300))}`,
  ]);
  return [token, type];
}

function makeAccept(random: Random): string {
  const range = ["*/*", "text/csv", "application/x-ndjson", "application/json", "*", "text/*", ""];
  const ranges = Array.from({ length: 1 + random.below(3) }, () => random.pick(range));
  return `Accept: ${ranges.map((text) => text + random.pick(["", ";q=0", ";q=1.0", ";q=x", ";"])).join(",")}`;
}

/** About few plants, whatever form they are asked for in. */
function makeQuery(own: bigint, random: Random): string {
  const known =
    "limit=3 order=desc tag=none prefix=T name=zzz limit=0 limit=1001 limit=1&limit=2 after= order=up " +
    "after=9223372036854775808 tag=%00 tag=%ff tag=%ED%A0%80 tag=% x=1 &&=& tag=a+b%20c \xe9=\xe9";
  const asked = Array.from({ length: random.below(4) }, () =>
    random.pick([`after=${own}`, ...known.split(" ")]),
  );
  return ["tag=nobody has it".replaceAll(" ", "%20"), ...asked]
    .slice(random.below(2))
    .concat("limit=3")
    .join("&");
}
