/** Bytes changed at random places, in ways that parsers are known to disagree about. */

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
