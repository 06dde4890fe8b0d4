/** Any plant, any way to write it down, and any way to get it wrong. */

import * as fc from "fast-check";
import { mutate } from "./mutate.ts";
import type { StoredPlant } from "./plants.ts";
import { createRandom } from "./random.ts";

const INT64_MIN = -(2n ** 63n);
const INT64_MAX = 2n ** 63n - 1n;
const SAFE = 2n ** 53n;

const around = (value: bigint): fc.Arbitrary<bigint> =>
  fc.bigInt({ min: value - 3n, max: value + 3n });

/** Most of them where a double, or the range, comes to its end; some of them past it. */
export const anyInteger: fc.Arbitrary<bigint> = fc.oneof(
  fc.bigInt({ min: INT64_MIN, max: INT64_MAX }),
  fc.bigInt({ min: -1000n, max: 1000n }),
  fc.bigInt({ min: 0n, max: 1000n }).map((value) => value * 10n ** 16n),
  ...[SAFE, -SAFE, INT64_MAX, INT64_MIN].map(around),
);

const anyId: fc.Arbitrary<bigint> = anyInteger.filter(
  (value) => value >= INT64_MIN && value <= INT64_MAX,
);

/** Separated by spaces: quotes, escapes, controls, separators, marks, and what looks like syntax or a formula. */
const AWKWARD =
  `" \\ / ' \u0001 \b \n \r \u001f \u007f \u0085 \u2028 \ufeff \ufffd \uffff é e\u0301 🌱 👩‍🌾 \u{10ffff} \u202e ` +
  `{ } , : null \\u0000 \\ud800 1.5 %00 ';-- ; \t = + - @ '= ''@ ＝ '＋ － ＠`;

/** Well-formed and without U+0000: all that a plant's text may be. */
const anyText: fc.Arbitrary<string> = fc.oneof(
  fc.string({ unit: "binary" }).map((text) => text.replaceAll("\0", "")),
  fc.string({ unit: "grapheme" }),
  fc.string({ unit: fc.constantFrom(" ", ...AWKWARD.split(" ")) }),
  fc.string({ maxLength: 5000, size: "max", unit: "grapheme-ascii" }),
);

export const anyPlant: fc.Arbitrary<StoredPlant> = fc.record({
  id: anyId,
  name: anyText,
  tag: fc.option(anyText),
});

/** One number in many notations: `120` is also `120.00`, `1.2e2`, `0.00120E+05` and `12000e-2`. */
export function anyNotation(id: bigint): fc.Arbitrary<string> {
  const shifted = fc.record({
    shift: fc.integer({ min: -30, max: 30 }),
    zeros: fc.integer({ min: 0, max: 5 }),
    trimmed: fc.boolean(),
    mark: fc.constantFrom("e", "E"),
    plus: fc.constantFrom("", "+"),
    pad: fc.constantFrom("", "0", "00"),
  });
  return fc.oneof(
    fc.constant(`${id}`),
    fc.integer({ min: 1, max: 30 }).map((zeros) => `${id}.${"0".repeat(zeros)}`),
    shifted.map(({ shift, zeros, trimmed, mark, plus, pad }) => {
      const mantissa = shiftPoint(id, shift, zeros, trimmed);
      const sign = shift < 0 ? "-" : plus;
      return `${mantissa}${mark}${sign}${pad}${Math.abs(shift)}`;
    }),
  );
}

/** The id over a power of ten, with more zeros behind, or without those that can go. */
function shiftPoint(id: bigint, shift: number, zeros: number, trimmed: boolean): string {
  const digits = `${id < 0n ? -id : id}`.padStart(shift + 1, "0");
  const padded = id === 0n ? digits : digits + "0".repeat(Math.max(0, -shift));
  const point = padded.length - Math.max(0, shift);
  const written = padded.slice(point) + "0".repeat(zeros);
  const fraction = trimmed ? written.replace(/0+$/, "") : written;
  return `${id < 0n ? "-" : ""}${padded.slice(0, point)}${fraction === "" ? "" : `.${fraction}`}`;
}

/** Any text that RFC 8259 calls a number, and most of them no int64; with many runs of zeros. */
export const anyNumberText: fc.Arbitrary<string> = fc.stringMatching(
  /^-?(0|[1-9](0{1,8}|\d){0,24})(\.(0{1,8}|\d){1,25})?([eE][-+]?(\d|[1-4]\d|\d{1,4}|(0{1,8}|\d){1,25}))?$/,
  { size: "max" },
);

/** The body of a plant: its members in any order, its strings escaped or not, with or without spaces. */
export function anyBody({ id, name, tag }: StoredPlant): fc.Arbitrary<string> {
  const space = fc.constantFrom("", " ", "\n\t", "\r\n");
  const members = [
    anyNotation(id).map((text) => ["id", text] as const),
    anyString(name).map((text) => ["name", text] as const),
    ...(tag === null ? [] : [anyString(tag).map((text) => ["tag", text] as const)]),
  ];
  return fc.tuple(fc.tuple(...members), space).chain(([written, gap]) =>
    fc
      .shuffledSubarray(written, { minLength: written.length })
      .map((shuffled) => shuffled.map(([key, text]) => `"${key}"${gap}:${gap}${text}`))
      .map((texts) => `{${gap}${texts.join(`,${gap}`)}${gap}}${gap}`),
  );
}

function anyString(text: string): fc.Arbitrary<string> {
  const escaped = [...Array(text.length).keys()]
    .map((index) => `\\u${text.charCodeAt(index).toString(16).padStart(4, "0")}`)
    .join("");
  return fc.constantFrom(JSON.stringify(text), `"${escaped}"`);
}

/** Pieces that are about to be a plant, or about not to be one; the last of them are not UTF-8. */
const pieces = [
  `"id": "name": "tag": "id":1 ,"name":"b" ,"tag":null "__proto__": {} null true [ ] { } , : " \\`,
  `- . 0 1e400 1e-400 9223372036854775808 \\u0000 \\ud800 \\udc00 \ufeff \u00a0 \0 // NaN`,
]
  .flatMap((texts) => texts.split(" ").map((text) => Buffer.from(text)))
  .concat(["ff", "c080", "eda080", "f09f"].map((bytes) => Buffer.from(bytes, "hex")));

const anyMutatedBody = (plant: StoredPlant): fc.Arbitrary<Buffer> =>
  fc
    .tuple(anyBody(plant), fc.array(fc.nat(), { minLength: 1, maxLength: 3 }))
    .map(([body, seeds]) =>
      seeds.reduce<Buffer>(
        (mutated, seed) => mutate(mutated, createRandom(seed), pieces),
        Buffer.from(body),
      ),
    );

/** Numbers that are integers, and numbers that a double would take for one. */
const anyIdText: fc.Arbitrary<string> = fc.oneof(
  anyInteger.chain(anyNotation),
  anyInteger.map((value) => `${value}.00000000000000000001`),
  fc.constantFrom("1e-400", "-1e-400", "0.99999999999999999999", "1e400", "-0", "0e99999999999"),
  anyNumberText,
);

const anyValueOf = (keys: readonly string[], value: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc.tuple(fc.constantFrom(...keys), value).map(([key, text]) => `"${key}":${text}`);

const anyMember = fc.oneof(
  anyValueOf(["id"], fc.oneof(anyIdText, fc.json())),
  anyValueOf(
    ["name", "tag"],
    anyText.map((text) => JSON.stringify(text)),
  ),
  anyValueOf(["name", "tag"], fc.json()),
  anyValueOf(["other", "toString"], fc.json()),
  fc.constant('"__proto__":{"id":1,"name":"a"}'),
);

/** An object with the members of a plant, some of them twice, and any JSON in their places. */
const anyObject: fc.Arbitrary<string> = fc
  .tuple(
    fc.option(
      anyIdText.map((text) => [`"id":${text},"name":"a"`]),
      { nil: [] },
    ),
    fc.array(anyMember, { maxLength: 5 }),
  )
  .map((members) => `{${members.flat().join()}}`);

/** Bodies: some are plants, most are nearly plants, some are nothing of the kind. */
export const anyAttempt = (plant: StoredPlant): fc.Arbitrary<Buffer> =>
  fc.oneof(
    { weight: 6, arbitrary: anyMutatedBody(plant) },
    { weight: 3, arbitrary: anyObject.map((text) => Buffer.from(text)) },
    { weight: 1, arbitrary: fc.json().map((text) => Buffer.from(text)) },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 100 }).map((bytes) => Buffer.from(bytes)) },
  );

export async function* inPieces(bytes: Uint8Array, length: number): AsyncGenerator<Uint8Array> {
  const memory = new Uint8Array(length);
  for (let start = 0; start < bytes.length; start += length) {
    const piece = bytes.subarray(start, start + length);
    memory.set(piece);
    yield memory.subarray(0, piece.length);
  }
}
