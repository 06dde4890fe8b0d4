/** Requests that are sound as HTTP, about ids of a connection's own, with anything in their values. */

import * as fc from "fast-check";
import { anyAttempt, anyBody } from "../support/arbitrary.ts";
import { mutate, randomBytes } from "../support/mutate.ts";
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
const odd = [
  "",
  "%31",
  ".0",
  "e0",
  "/",
  "?",
  "%00",
  " ".trim(),
  "0000000000000000",
  "%",
  "+",
  "#1",
];
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
  const value = random.pick([
    "*",
    '"a"',
    'W/"a"',
    "a",
    '"',
    ",,,",
    "",
    '*, "a"',
    '"a",'.repeat(99),
    '"\xff"',
  ]);
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
  const known = [
    "limit=3",
    `after=${own}`,
    "order=desc",
    "tag=none",
    "prefix=T",
    "name=zzz",
    "limit=0",
    "limit=1001",
    "limit=1&limit=2",
    "after=9223372036854775808",
    "after=",
    "order=up",
    "tag=%00",
    "tag=%ff",
    "tag=%ED%A0%80",
    "tag=%",
    "x=1",
    "&&=&",
    "tag=a+b%20c",
    "\xe9=\xe9",
  ];
  const asked = Array.from({ length: random.below(4) }, () => random.pick(known));
  return ["tag=nobody has it".replaceAll(" ", "%20"), ...asked]
    .slice(random.below(2))
    .concat("limit=3")
    .join("&");
}

const pieces = [
  "\r\n",
  "\r\n\r\n",
  "\n",
  "\r",
  "\0",
  " ",
  "\t",
  ":",
  ": ",
  ",",
  ";",
  "\r\n ",
  "\r\n\t",
  "0\r\n\r\n",
  "5\r\n",
  "5;a=b\r\n",
  "\x0b",
  "\x7f",
  "\xa0",
  "Content-Length: 0\r\n",
  "Content-Length: 5\r\n",
  "Content-Length: +5\r\n",
  "Content-Length: 5, 5\r\n",
  "Content-Length: 0x5\r\n",
  "Content-Length: -1\r\n",
  "Content-Length: 99999999999999999999\r\n",
  "Content-Length : 5\r\n",
  "Content_Length: 5\r\n",
  "Transfer-Encoding: chunked\r\n",
  "Transfer-Encoding: chunked, chunked\r\n",
  "Transfer-Encoding: identity\r\n",
  "Transfer-Encoding: gzip, chunked\r\n",
  "Transfer-Encoding:\tchunked\r\n",
  "Transfer-Encoding: \x0bchunked\r\n",
  "Transfer-Encoding: xchunked\r\n",
  "Transfer-Encoding : chunked\r\n",
  "Transfer-Encoding\t: chunked\r\n",
  "\nTransfer-Encoding: chunked\r\n",
  "Transfer-Encoding:\r\n chunked\r\n",
  "Connection: close\r\n",
  "Connection: keep-alive, Upgrade\r\nUpgrade: h2c\r\n",
  "Connection: content-length\r\n",
  "Upgrade: websocket\r\n",
  "Expect: 100-continue\r\n",
  "Host: other.example\r\n",
  "Trailer: a\r\n",
  " HTTP/1.0",
  " HTTP/1.1\r\n",
  "HTTP/2.0",
  "GET / HTTP/1.1\r\n\r\n",
  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
  "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
].map((text) => Buffer.from(text, "latin1"));

export interface WireCase {
  /** Sent one after the other, each in a segment of its own. */
  readonly segments: readonly Buffer[];
  readonly bytes: Buffer;
}

export function makeWireCase(index: number, random: Random): WireCase {
  const own = firstIdOf(index);
  const parts: Buffer[] = [];
  for (let count = 1 + random.below(2), nth = 1; nth <= count; nth++)
    parts.push(makeBase(own + BigInt(nth), random));
  // A parser that misjudges where the others end executes this one.
  if (random.chance(60)) parts.push(formatCreate(own + 90n));
  let bytes: Buffer = Buffer.concat(parts);
  if (random.chance(2)) bytes = Buffer.concat([randomBytes(random, random.below(400)), bytes]);
  for (let left = random.below(4); left > 0; left--) bytes = mutate(bytes, random, pieces);
  return { bytes, segments: cut(bytes, random) };
}

function makeBase(id: bigint, random: Random): Buffer {
  switch (random.below(10)) {
    case 0:
      return makeSound(id, id, random);
    case 1:
    case 2:
    case 3:
      return formatChunked(id, random);
    case 4:
    case 5:
      return hideInBody(id, random);
    case 6:
      return repeatField(formatCreate(id), random);
    case 7:
      return misstateLength(formatCreate(id), random);
    default:
      return formatCreate(id);
  }
}

const chunkedFields = [
  `Authorization: Bearer ${TEST_TOKEN}`,
  "Content-Type: application/json",
  "Transfer-Encoding: chunked",
];

function formatChunked(id: bigint, random: Random): Buffer {
  const body = `{"id":${id},"name":"in chunks"}`;
  const chunks: string[] = [];
  for (let at = 0; at < body.length;) {
    const chunk = body.slice(at, at + 1 + random.below(body.length));
    const size = random.chance(90) ? chunk.length : Math.max(0, chunk.length + random.below(5) - 2);
    const extension = random.chance(80)
      ? ""
      : random.pick([";", ";a", ';a="b;c"', ";a=\n", " ", ";\r"]);
    const end = random.chance(95) ? "\r\n" : random.pick(["\n", "\r", "", "\r\n\r\n"]);
    chunks.push(`${"0".repeat(random.below(3))}${size.toString(16)}${extension}\r\n${chunk}${end}`);
    at += chunk.length;
  }
  const last = random.chance(90)
    ? "0\r\n\r\n"
    : random.pick([
        "0\r\n",
        "0\r\nX: 1\r\n\r\n",
        "0\r\nContent-Length: 5\r\n\r\n",
        "00\r\n\r\n",
        "-0\r\n\r\n",
        "0 \r\n\r\n",
      ]);
  return Buffer.concat([
    formatSound("POST /plants", chunkedFields),
    Buffer.from(chunks.join("") + last, "latin1"),
  ]);
}

/** A request in the body of another, under lengths that do not agree. */
function hideInBody(id: bigint, random: Random): Buffer {
  const hidden = formatCreate(id + 40n);
  const body = random.pick([
    hidden,
    Buffer.concat([Buffer.from("0\r\n\r\n"), hidden]),
    Buffer.concat([Buffer.from(`{"id":${id},"name":"a"}`), hidden]),
    Buffer.concat([
      Buffer.from(`${hidden.length.toString(16)}\r\n`),
      hidden,
      Buffer.from("\r\n0\r\n\r\n"),
    ]),
  ]);
  const line = random.pick([
    "POST /plants",
    "GET /livez",
    "POST /nowhere",
    "PUT /plants",
    "DELETE /livez",
  ]);
  const doubt = random.chance(50)
    ? []
    : [random.pick(pieces).toString("latin1").replace(/\r\n$/, "")];
  const sound = formatSound(line, [...chunkedFields.slice(0, 2), ...doubt], body);
  return random.chance(80) ? sound : misstateLength(sound, random);
}

function repeatField(request: Buffer, random: Random): Buffer {
  const lines = request.toString("latin1").split("\r\n");
  const index = 1 + random.below(lines.length - 3);
  const line = lines[index] ?? "";
  const repeated = random.pick([
    line,
    line.toLowerCase(),
    line.replace(":", " :"),
    ` ${line}`,
    line.replace(/: .*/, ": 0"),
    line.replace(": ", ":"),
  ]);
  lines.splice(1 + random.below(lines.length - 3), 0, repeated);
  return Buffer.from(lines.join("\r\n"), "latin1");
}

function misstateLength(request: Buffer, random: Random): Buffer {
  const text = request.toString("latin1");
  return Buffer.from(
    text.replace(/(?<=Content-Length: )\d+/, (length) =>
      random.pick([
        String(Math.max(0, Number(length) + random.below(9) - 4)),
        "0",
        `0${length}`,
        `+${length}`,
        `${length}.0`,
        `${length} ${length}`,
        `${length},${length}`,
        `${2n ** 64n + BigInt(length)}`,
        Number(length).toString(16),
        "",
      ]),
    ),
    "latin1",
  );
}

function cut(bytes: Buffer, random: Random): Buffer[] {
  if (random.chance(60)) return [bytes];
  const ends = Array.from({ length: 1 + random.below(4) }, () => random.below(bytes.length + 1));
  const segments: Buffer[] = [];
  let start = 0;
  for (const end of [...ends.toSorted((one, other) => one - other), bytes.length]) {
    if (end > start) segments.push(bytes.subarray(start, end));
    start = end;
  }
  return segments;
}
