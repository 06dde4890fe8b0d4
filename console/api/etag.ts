/** The entity tag of a plant as it was read, for conditional writes of many: a list has no ETag for each. */

import { formatStoredPlant, type Plant } from "../../src/domain/plant.ts";

/** As `entityTagOf` of the service. Web Crypto is not an option: browsers have it only behind TLS or on localhost. */
export const etagOf = ({ id, name, tag }: Plant): string =>
  `"${btoa(String.fromCharCode(...hash(formatStoredPlant({ id, name, tag })))).slice(0, 24)}"`;

const WORDS = 64;
const BLOCK_BYTES = 64;

/** The first bits of the fractional part: FIPS 180-4, sections 4.2.2 and 5.3.3. */
const fractionOf = (root: number): number => ((root % 1) * 2 ** 32) | 0;

const primes: number[] = [];
for (let next = 2; primes.length < WORDS; next++)
  if (primes.every((prime) => next % prime !== 0)) primes.push(next);
const rounds = primes.map((prime) => fractionOf(Math.cbrt(prime)));
const start = primes.slice(0, 8).map((prime) => fractionOf(Math.sqrt(prime)));

const rotate = (word: number, by: number): number => (word >>> by) | (word << (32 - by));

/** SHA-256 of the text in UTF-8. */
function hash(text: string): Uint8Array {
  const bytes = new TextEncoder().encode(text);
  const padded = new DataView(
    new ArrayBuffer(Math.ceil((bytes.length + 9) / BLOCK_BYTES) * BLOCK_BYTES),
  );
  new Uint8Array(padded.buffer).set(bytes);
  padded.setUint8(bytes.length, 0x80);
  padded.setUint32(padded.byteLength - 4, bytes.length * 8);
  const state = Int32Array.from(start);
  const words = new Int32Array(WORDS);
  for (let at = 0; at < padded.byteLength; at += BLOCK_BYTES) {
    let [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = state;
    for (let round = 0; round < WORDS; round++) {
      const early = words[round - 15] ?? 0;
      const late = words[round - 2] ?? 0;
      words[round] =
        round < 16
          ? padded.getInt32(at + round * 4)
          : (words[round - 16] as number) +
            (rotate(early, 7) ^ rotate(early, 18) ^ (early >>> 3)) +
            (words[round - 7] as number) +
            (rotate(late, 17) ^ rotate(late, 19) ^ (late >>> 10));
      const one =
        h +
        (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
        ((e & f) ^ (~e & g)) +
        (rounds[round] as number) +
        (words[round] as number);
      const two = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      [a, b, c, d, e, f, g, h] = [(one + two) | 0, a, b, c, (d + one) | 0, e, f, g];
    }
    for (const [index, word] of [a, b, c, d, e, f, g, h].entries())
      state[index] = (state[index] as number) + word;
  }
  const digest = new DataView(new ArrayBuffer(state.byteLength));
  for (const [index, word] of state.entries()) digest.setInt32(index * 4, word);
  return new Uint8Array(digest.buffer);
}
