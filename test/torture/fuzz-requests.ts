/** Requests that are sound as HTTP, with anything in their values; and bytes that are nearly requests. */

import * as fc from "fast-check";
import { anyAttempt, anyBody } from "../support/arbitrary.ts";
import { mutate } from "../support/mutate.ts";
import type { Random } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { chunk, chunked } from "../support/wire.ts";

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

export interface SoundRequest {
  /** Its method and target. */
  readonly line: string;
  /** Each has one field, or several lines. */
  readonly fields: readonly string[];
  readonly body?: Uint8Array;
}

/** Without a body it has no length either. */
export function format({ line, fields, body }: SoundRequest): Buffer {
  const length = body === undefined ? [] : [`Content-Length: ${body.length}`];
  const head = [`${line} HTTP/1.1`, "Host: plants.example", ...fields, ...length].join("\r\n");
  return Buffer.concat([Buffer.from(`${head}\r\n\r\n`, "latin1"), body ?? Buffer.alloc(0)]);
}

export const makeCreate = (id: bigint, name = "sound"): SoundRequest => ({
  line: "POST /plants",
  fields: [TOKEN, JSON_TYPE],
  body: Buffer.from(`{"id":${id},"name":"${name}"}`),
});

/** The values of all fields of this name, which is in lower case. */
export const valuesOf = ({ fields }: SoundRequest, name: string): string[] =>
  fields
    .flatMap((lines) => lines.split("\r\n"))
    .filter((field) => field.toLowerCase().startsWith(`${name}:`))
    .map((field) => field.slice(name.length + 1).trim());

/** A body about this id, in any notation or nearly so, or about anything. */
function makePlantBody(id: bigint, random: Random): Buffer {
  const plant = { id, name: random.pick(["Fern", "", "naïve \u{1f331}"]), tag: null };
  const body = fc.oneof(
    anyBody(plant).map((text) => Buffer.from(text)),
    anyAttempt(plant),
  );
  return fc.sample(body, { seed: random.below(2 ** 31), numRuns: 1 })[0] as Buffer;
}

type Make = (ids: { readonly own: bigint; readonly id: bigint }, random: Random) => SoundRequest;

/** So that one is chosen as often as its weight says. */
const weigh = (length: number, make: Make): Make[] => Array.from({ length }, () => make);

/** `own` exists already, `id` does not. */
const makes: readonly Make[] = [
  ...weigh(55, ({ id }, random) => ({ ...makeCreate(id), body: makePlantBody(id, random) })),
  ...weigh(15, ({ own }, random) => ({
    line: `PUT /plants/${own}`,
    fields: [TOKEN, JSON_TYPE, ...makeConditions(random)],
    body: makePlantBody(own, random),
  })),
  ...weigh(5, ({ id }, random) => {
    const lines = Array.from({ length: 1 + random.below(6) }, (_, index) =>
      makePlantBody(id + BigInt(index), random),
    );
    return {
      line: "POST /plants/batch",
      fields: [TOKEN, "Content-Type: application/x-ndjson"],
      body: Buffer.concat(lines.flatMap((line) => [line, Buffer.from("\n")])),
    };
  }),
  ...weigh(8, ({ id }, random) => ({
    line: "POST /plants",
    fields: makeOddFields(random),
    body: makePlantBody(id, random),
  })),
  ...weigh(4, ({ own }, random) => makeBare(`GET /plants/${own}`, ...makeConditions(random))),
  ...weigh(4, ({ id }, random) => makeBare(`GET /plants/${id}${random.pick(odd)}`)),
  ...weigh(4, ({ own }, random) =>
    makeBare(`GET /plants?${makeQuery(own, random)}`, makeAccept(random)),
  ),
  ...weigh(2, (_ids, random) => makeBare(`GET /tags?${makeQuery(1n, random)}`)),
  ...weigh(2, ({ own, id }, random) =>
    makeBare(`DELETE /plants/${random.pick([own, id])}`, 'If-Match: "none"'),
  ),
  ...weigh(1, (_ids, random) => makeBare(`${random.pick(methods)} ${random.pick(paths)}`)),
];

const makeBare = (line: string, ...fields: readonly string[]): SoundRequest => ({
  line,
  fields: [TOKEN, ...fields],
});

const methods = ["GET", "HEAD", "OPTIONS", "PATCH", "TRACE"];
const paths =
  "/plants /livez /readyz /metrics /activity /token /nowhere /plants/1 /openapi.json".split(" ");
const odd = ["", ..."%31 .0 e0 / ? %00 0000000000000000 % + #1".split(" ")];

export const makeSound = (own: bigint, id: bigint, random: Random): SoundRequest =>
  random.pick(makes)({ own, id }, random);

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
  const behindType =
    '|; charset=utf-8|;charset="UTF-8"|; charset=latin1|;;;|\r\nContent-Encoding: gzip|' +
    `\r\nContent-Encoding: identity|\r\nExpect: 100-continue|\r\n${JSON_TYPE}|` +
    `\r\nX-Request-Id: ${"x".repeat(random.below(300))}`;
  const type = random.pick([
    ...behindType.split("|").map((text) => JSON_TYPE + text),
    "Content-Type: text/plain",
    "Content-Type: application/x-ndjson",
    "Content-Type:",
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

const framings =
  "Content-Length: 0|Content-Length: 5|Content-Length: +5|Content-Length: 5, 5|Content-Length: 0x5|" +
  "Content-Length: -1|Content-Length: 99999999999999999999|Content-Length : 5|Content_Length: 5|" +
  "Transfer-Encoding: chunked|Transfer-Encoding: chunked, chunked|Transfer-Encoding: identity|" +
  "Transfer-Encoding: gzip, chunked|Transfer-Encoding:\tchunked|Transfer-Encoding: \x0bchunked|" +
  "Transfer-Encoding: xchunked|Transfer-Encoding : chunked|Transfer-Encoding\t: chunked|" +
  "\nTransfer-Encoding: chunked|Transfer-Encoding:\r\n chunked|Connection: close|" +
  "Connection: keep-alive, Upgrade\r\nUpgrade: h2c|Connection: content-length|Upgrade: websocket|" +
  "Expect: 100-continue|Host: other.example|Trailer: a";

const pieces = [
  ...framings.split("|").map((line) => `${line}\r\n`),
  ..."\r\n|\r\n\r\n|\n|\r|\0|\t|:|,|;|\r\n |\x0b|\x7f|0\r\n\r\n|5\r\n|5;a=b\r\n".split("|"),
  ..." HTTP/1.0|HTTP/2.0|GET / HTTP/1.1\r\n\r\n|PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".split("|"),
].map((text) => Buffer.from(text, "latin1"));

/** The name of plants hidden in the bodies of other requests, which must never be stored. */
export const HIDDEN_NAME = "hidden";

/** A request that hides another, or bytes that were one or two requests before they were mutated. */
export function makeRaw(id: bigint, random: Random): Buffer {
  if (random.chance(40)) return hideInBody(id, random);
  let bytes: Buffer = random.chance(30)
    ? format(makeSound(id, id, random))
    : formatChunked(id, random);
  if (random.chance(40)) bytes = Buffer.concat([bytes, format(makeCreate(id + 1n))]);
  for (let left = 1 + random.below(3); left > 0; left--) bytes = mutate(bytes, random, pieces);
  return bytes;
}

function formatChunked(id: bigint, random: Random): Buffer {
  const body = `{"id":${id},"name":"in chunks"}`;
  const at = random.below(body.length);
  const chunks = [body.slice(0, at), body.slice(at), ""];
  const text = chunks.map(chunk).join("");
  const fields = [TOKEN, JSON_TYPE, "Transfer-Encoding: chunked"];
  return Buffer.concat([format({ line: "POST /plants", fields }), Buffer.from(text)]);
}

/**
 * A request in the body of another, whose length is right: under a second length, or anything else that casts doubt on
 * it, both are to be refused.
 */
function hideInBody(id: bigint, random: Random): Buffer {
  const hidden = format(makeCreate(id, HIDDEN_NAME)).toString();
  const before = ["", "0\r\n\r\n", `{"id":${id},"name":"a"}`];
  const body = random.pick([...before.map((text) => text + hidden), chunked(hidden)]);
  const line = random.pick(["POST /plants", "GET /livez", "POST /nowhere", "DELETE /livez"]);
  const doubt = random.pick(pieces).toString("latin1").replace(/\r\n$/, "");
  return format({ line, fields: [TOKEN, JSON_TYPE, doubt], body: Buffer.from(body) });
}
