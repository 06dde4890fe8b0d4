/** Bodies that are plants, nearly plants, and nothing of the kind. */

import type { Random } from "../support/random.ts";

const splice = (bytes: Buffer, at: number, length: number, inserted: Uint8Array): Buffer =>
  Buffer.concat([bytes.subarray(0, at), inserted, bytes.subarray(at + length)]);

type Mutation = (bytes: Buffer, random: Random, pieces: readonly Buffer[]) => Buffer;

const at = (bytes: Buffer, random: Random): number => random.below(bytes.length + 1);

const mutations: readonly Mutation[] = [
  (bytes, random) => {
    const flipped = Buffer.from(bytes);
    const index = random.below(Math.max(1, bytes.length));
    flipped[index] = (flipped[index] ?? 0) ^ (1 << random.below(8));
    return flipped;
  },
  (bytes, random) => splice(bytes, at(bytes, random), 1 + random.below(12), Buffer.alloc(0)),
  (bytes, random) => splice(bytes, at(bytes, random), 0, randomBytes(random, 1 + random.below(4))),
  (bytes, random, pieces) => splice(bytes, at(bytes, random), 0, random.pick(pieces)),
  (bytes, random, pieces) =>
    splice(bytes, at(bytes, random), 1 + random.below(8), random.pick(pieces)),
  (bytes, random) => bytes.subarray(0, at(bytes, random)),
  (bytes, random) => {
    const from = at(bytes, random);
    return splice(bytes, at(bytes, random), 0, bytes.subarray(from, from + random.below(40)));
  },
  (bytes, random, pieces) => Buffer.concat([random.pick(pieces), bytes]),
  (bytes, random, pieces) => Buffer.concat([bytes, random.pick(pieces)]),
];

export function mutate(bytes: Buffer, random: Random, pieces: readonly Buffer[]): Buffer {
  return random.pick(mutations)(bytes, random, pieces);
}

export function randomBytes(random: Random, length: number): Buffer {
  return Buffer.from(Array.from({ length }, () => random.below(256)));
}

export const toPieces = (...texts: readonly string[]): Buffer[] =>
  texts.map((text) => Buffer.from(text, "latin1"));

const pieces = toPieces(
  ...`"id": "name": "tag": "id":1 ,"name":"b" ,"tag":null "__proto__": {} null true [ ] { } , : " \\ - . 0 e E`.split(
    " ",
  ),
  ...`1e400 1e-400 9223372036854775808 \\u0000 \\ud800 \\udc00 // NaN \xef\xbb\xbf \xff \xc0\x80 \xed\xa0\x80`.split(
    " ",
  ),
  "\0",
  "\n",
  "\xf0\x9f",
);

const texts = [
  "Fern",
  "",
  " ",
  "naïve é e\u0301 \u{1f331}",
  '"\\/\b\f\n\r\t',
  "\u0001\u001f\u007f\u0085\u2028\ufeff\uffff\u{10ffff}",
  "null",
  "1e5",
  "__proto__",
  "'; DROP TABLE plants;--",
] as const;

/** Where a string should be. */
const notTexts = [`"\\ud800"`, `"\\u0000"`, `"\\udc00\\ud800"`, "null", "1", "true", "[]", "{}"];

/** A body about this id, or about a number that is written much like it. */
export function makePlantBody(id: bigint, random: Random, bytesMax: number): Buffer {
  const members: [string, string][] = [
    ["id", random.chance(75) ? writeId(id, random) : writeOddId(id, random)],
    ["name", random.chance(92) ? writeText(random, bytesMax) : random.pick(notTexts)],
  ];
  if (random.chance(50))
    members.push(["tag", random.chance(92) ? writeText(random, 200) : random.pick(notTexts)]);
  if (random.chance(8)) members.push(makeExtra(id, random, bytesMax));
  if (random.chance(10)) members.reverse();
  if (random.chance(3)) members.splice(random.below(members.length), 1);
  const gap = random.chance(85) ? "" : random.pick([" ", "\t\r\n", "  ", "\u00a0", "\0"]);
  const text = members.map(([key, value]) => `${writeKey(key, random)}${gap}:${gap}${value}`);
  const whole = `${gap}{${gap}${text.join(`,${gap}`)}${gap}}${gap}`;
  let body: Buffer = Buffer.from(random.chance(2) ? `\ufeff${whole}` : whole);
  // The judge has to find its way through what is nested, and would not if it were torn.
  const isDeep = members.some(([key]) => key === "deep");
  if (random.chance(35) && !isDeep)
    for (let left = 1 + random.below(3); left > 0; left--) body = mutate(body, random, pieces);
  return body;
}

function writeKey(key: string, random: Random): string {
  return random.chance(97) ? `"${key}"` : escapeAll(key);
}

/** The same number in any notation. */
function writeId(id: bigint, random: Random): string {
  const shift = random.below(6);
  const zeros = "0".repeat(shift);
  switch (random.below(8)) {
    case 0:
      return `${id}.${zeros}0`;
    case 1:
      return `${id}e${random.pick(["", "+", "-"])}${zeros}0`;
    case 2:
      return `${id}${zeros}E-${shift}`;
    case 3:
      return `0.${String(id).padStart(20, "0")}e+20`.replace("0.-", "-0.");
    case 4:
      return `${id}.${"0".repeat(random.below(400))}e0`.replace(".e", ".0e");
    default:
      return String(id);
  }
}

function writeOddId(id: bigint, random: Random): string {
  return random.pick([
    `${id}.5`,
    `${id}.00000000000000000000001`,
    `${id}e${random.pick(["400", "99999999999999999999", "-1", "-99999999999"])}`,
    `0${id}`,
    `+${id}`,
    `"${id}"`,
    `[${id}]`,
    `-${id}`,
    `0x${id.toString(16)}`,
    `${id}n`,
    `${id}${id}`,
    String(random.int64()),
    `${random.int64()}e0`,
    `${2n ** 63n - 2n + BigInt(random.below(4))}`,
    `${-(2n ** 63n) + 1n - BigInt(random.below(4))}`,
    `${2n ** 53n + id}.0`,
    "1e-400",
    "-1e-400",
    "-0",
    "0e99999999999",
    "NaN",
    "null",
    "true",
    "{}",
    "",
  ]);
}

function writeText(random: Random, bytesMax: number): string {
  if (bytesMax > 1_000 && random.chance(0.3))
    return `"${random.pick(["a", "é", "\u{1f331}"]).repeat(random.below(bytesMax / 2))}"`;
  const text = random.pick(texts);
  return random.chance(80) ? JSON.stringify(text) : escapeAll(text);
}

function escapeAll(text: string): string {
  const units = Array.from({ length: text.length }, (_, index) => text.charCodeAt(index));
  return `"${units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("")}"`;
}

function makeExtra(id: bigint, random: Random, bytesMax: number): [string, string] {
  const depth = 1_000 + random.below(bytesMax === 0 ? 500 : 20_000);
  return random.pick<[string, string]>([
    ["id", writeOddId(id, random)],
    ["name", '"another"'],
    ["tag", "null"],
    ["__proto__", `{"id":1,"name":"a"}`],
    ["constructor", "{}"],
    ["toString", "1"],
    ["", "[1.5e3]"],
    ["deep", `${"[".repeat(depth)}${"]".repeat(depth)}`],
  ]);
}
