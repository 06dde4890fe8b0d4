/** Bytes that are nearly what they were. */

import type { Random } from "./random.ts";

type Mutation = (bytes: Buffer, random: Random, pieces: readonly Buffer[]) => Buffer;

const splice = (bytes: Buffer, at: number, length: number, inserted: Uint8Array): Buffer =>
  Buffer.concat([bytes.subarray(0, at), inserted, bytes.subarray(at + length)]);

const at = (bytes: Buffer, random: Random): number => random.below(bytes.length + 1);

const mutations: readonly Mutation[] = [
  (bytes, random) => {
    const flipped = Buffer.from(bytes);
    const index = random.below(Math.max(1, bytes.length));
    flipped[index] = (flipped[index] ?? 0) ^ (1 << random.below(8));
    return flipped;
  },
  (bytes, random) => splice(bytes, at(bytes, random), 1 + random.below(12), Buffer.alloc(0)),
  (bytes, random) => {
    const any = Array.from({ length: 1 + random.below(4) }, () => random.below(256));
    return splice(bytes, at(bytes, random), 0, Buffer.from(any));
  },
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

/** Pieces are what may be inserted, beside any bytes. */
export const mutate: Mutation = (bytes, random, pieces) =>
  random.pick(mutations)(bytes, random, pieces);
