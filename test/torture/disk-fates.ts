/** What a loss of power makes of operations that nobody has synced: kept, dropped, or torn at a sector. */

import type { Random } from "../support/random.ts";

/** The unit that a disk writes whole or not at all. */
const SECTOR_BYTES = 512;
/** In some losses nearly all is gone, in others nearly nothing, and mostly it is mixed. */
const KEPT_PERCENTS = [0, 10, 50, 50, 90, 100];
const TORN_PERCENTS = [0, 10, 50];

interface Piece {
  readonly offset: number;
  readonly data: Uint8Array;
}

export interface Fates {
  readonly kept: number;
  readonly dropped: number;
  readonly torn: number;
  keepsName(): boolean;
  keepsTruncation(): boolean;
  /** What reaches the disk of a write; `keptLength` is how long the file is for certain. */
  tear(offset: number, data: Buffer, keptLength: number): readonly Piece[];
}

/** Each operation has its own fate, so that a later one may be there and an earlier one not. */
export function choosePieces(random: Random): Fates {
  const keptPercent = random.pick(KEPT_PERCENTS);
  const tornPercent = random.pick(TORN_PERCENTS);
  const leavesGarbage = random.chance(30);
  const counts = { kept: 0, dropped: 0, torn: 0 };
  const decide = (): boolean => {
    const isKept = random.chance(keptPercent);
    counts[isKept ? "kept" : "dropped"]++;
    return isKept;
  };
  return {
    get kept() {
      return counts.kept;
    },
    get dropped() {
      return counts.dropped;
    },
    get torn() {
      return counts.torn;
    },
    keepsName: decide,
    keepsTruncation: decide,
    tear(offset, data, keptLength) {
      const sectors = cut(offset, data);
      if (sectors.length > 1 && random.chance(tornPercent)) {
        counts.torn++;
        const survives = chooseSectors(random, sectors.length);
        return sectors.flatMap((sector, index) => {
          if (survives(index)) return [sector];
          return leavesGarbage ? replaceWithGarbage(random, sector, keptLength) : [];
        });
      }
      if (decide()) return [{ offset, data }];
      // A file that has grown, without what it has grown for.
      return leavesGarbage && random.chance(50)
        ? sectors.flatMap((sector) => replaceWithGarbage(random, sector, keptLength))
        : [];
    },
  };
}

/** Along the sectors of the file. */
function cut(offset: number, data: Buffer): Piece[] {
  const pieces: Piece[] = [];
  for (let at = 0; at < data.length;) {
    const length = SECTOR_BYTES - ((offset + at) % SECTOR_BYTES);
    pieces.push({ offset: offset + at, data: data.subarray(at, at + length) });
    at += length;
  }
  return pieces;
}

/** The first few, or any. */
function chooseSectors(random: Random, count: number): (index: number) => boolean {
  const prefix = random.below(count);
  return random.chance(50) ? (index) => index < prefix : () => random.chance(50);
}

/** Only where nothing was for certain: what a disk has kept, it does not spoil. */
function replaceWithGarbage(random: Random, sector: Piece, keptLength: number): Piece[] {
  if (sector.offset < keptLength) return [];
  const byte = random.pick([0, 0xff, random.below(256)]);
  return [{ offset: sector.offset, data: new Uint8Array(sector.data.length).fill(byte) }];
}
