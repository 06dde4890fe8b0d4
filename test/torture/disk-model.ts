/**
 * A disk that has kept what was synced, and may have kept anything of the rest.
 *
 * Strict: a name is there, or gone, for certain only after its folder was synced, whatever was synced of the file;
 * and a sync that failed is the last word about what was written before it, because a kernel may then forget it.
 */

import { readFileSync, statSync } from "node:fs";
import type { Random } from "../support/random.ts";

interface Operation {
  readonly number: number;
  /** Undefined for a truncation. */
  readonly data: Buffer | undefined;
  readonly offset: number;
}

interface KeptFile {
  /** For certain. */
  readonly bytes: Bytes;
  /** As it is read until the power goes, whatever became of its syncs. */
  readonly cached: Bytes;
  pending: Operation[];
}

/** A name that was given to a file, or taken from it where there is none. */
interface Naming {
  readonly number: number;
  readonly name: string;
  readonly file: KeptFile | undefined;
}

/** Of one loss of power: what it leaves is a matter of chance. */
const IMAGES = 4;

export type Files = ReadonlyMap<string, Buffer>;

export class Disk {
  private readonly random: Random;
  /** For certain. */
  private readonly kept = new Map<string, KeptFile>();
  /** As the service sees it. */
  private readonly seen = new Map<string, KeptFile>();
  private namings: Naming[] = [];
  private numbersBefore = 0;
  private numberLast = 0;

  constructor(files: Files, random: Random) {
    this.random = random;
    for (const [name, content] of files) {
      const file = makeFile(content);
      this.kept.set(name, file);
      this.seen.set(name, file);
    }
  }

  /** Of a further process on this disk, whose records are numbered from 1 again. */
  startAgain(): void {
    this.numbersBefore = this.numberLast;
  }

  apply(record: DiskRecord): void {
    const { kind, name, data } = record;
    const number = record.number + this.numbersBefore;
    this.numberLast = number;
    const isEnd = kind === Kind.synced || kind === Kind.syncFailed;
    const offset = isEnd ? record.offset + this.numbersBefore : record.offset;
    if (kind === Kind.opened) this.open(name, number);
    else if (kind === Kind.written) this.change(name, { number, data, offset });
    else if (kind === Kind.truncated) this.change(name, { number, data: undefined, offset });
    else if (kind === Kind.unlinked) {
      this.seen.delete(name);
      this.namings.push({ number, name, file: undefined });
    } else if (isEnd) this.sync(name, offset, kind === Kind.synced);
  }

  /** How many operations on this file are not synced. */
  countPending(name: string): number {
    return this.seen.get(name)?.pending.length ?? 0;
  }

  /**
   * What is there after a crash of the process alone, and then what may be there when the power is back: some of the
   * possibilities, which leave this disk as it is.
   */
  *lose(): Generator<Files> {
    yield this.show();
    for (let nth = 0; nth < IMAGES; nth++) {
      const fates = chooseFates(this.random);
      const names = new Map(this.kept);
      for (const naming of this.namings) if (fates.keeps()) rename(names, naming);
      const files = new Map<string, Buffer>();
      for (const [name, { bytes, pending }] of names) {
        const copy = bytes.clone();
        for (const operation of pending) keepPartly(copy, operation, fates, bytes.length);
        files.set(name, copy.toBuffer());
      }
      yield files;
    }
  }

  /** What is there as long as the power is. */
  show(): Files {
    return new Map(this.seen.entries().map(([name, { cached }]) => [name, cached.toBuffer()]));
  }

  private change(name: string, operation: Operation): void {
    const { cached, pending } = this.open(name, operation.number);
    keep(cached, operation);
    pending.push(operation);
  }

  private open(name: string, number: number): KeptFile {
    const known = this.seen.get(name);
    if (known !== undefined) return known;
    const file = makeFile(Buffer.alloc(0));
    this.seen.set(name, file);
    this.namings.push({ number, name, file });
    return file;
  }

  private sync(name: string, begun: number, succeeded: boolean): void {
    if (name === FOLDER) {
      if (!succeeded) return;
      for (const naming of this.namings) if (naming.number < begun) rename(this.kept, naming);
      this.namings = this.namings.filter(({ number }) => number >= begun);
      return;
    }
    const file = this.seen.get(name);
    if (file === undefined) return;
    const { bytes } = file;
    const lengthBefore = bytes.length;
    const fates = succeeded ? undefined : chooseFates(this.random);
    for (const operation of file.pending) {
      if (operation.number >= begun) continue;
      if (fates === undefined) keep(bytes, operation);
      else keepPartly(bytes, operation, fates, lengthBefore);
    }
    file.pending = file.pending.filter(({ number }) => number >= begun);
  }
}

const makeFile = (content: Buffer): KeptFile => ({
  bytes: new Bytes(content),
  cached: new Bytes(content),
  pending: [],
});

function rename(names: Map<string, KeptFile>, { name, file }: Naming): void {
  if (file === undefined) names.delete(name);
  else names.set(name, file);
}

function keep(bytes: Bytes, { data, offset }: Operation): void {
  if (data === undefined) bytes.truncate(offset);
  else bytes.write(offset, data);
}

function keepPartly(bytes: Bytes, operation: Operation, fates: Fates, keptLength: number): void {
  const { data, offset } = operation;
  if (data === undefined) {
    if (fates.keeps()) bytes.truncate(offset);
    return;
  }
  for (const piece of fates.tear(offset, data, keptLength)) bytes.write(piece.offset, piece.data);
}

/** As in disk-shim.c. */
export const Kind = {
  opened: 1,
  written: 2,
  truncated: 3,
  syncBegun: 4,
  synced: 5,
  syncFailed: 6,
  unlinked: 7,
} as const;

/** The folder itself, as the name of what is synced. */
const FOLDER = ".";

export interface DiskRecord {
  /** From 1, and one more each time. */
  readonly number: number;
  readonly kind: number;
  readonly name: string;
  /** Of a write. Of a truncation, the length; of the end of a sync, the number of its beginning. */
  readonly offset: number;
  readonly data: Buffer;
}

const HEAD_BYTES = 24;

/** A log that ends within a record, because its process was killed, ends before it. */
export function* readDiskLog(path: string): Generator<DiskRecord> {
  if (statSync(path, { throwIfNoEntry: false }) === undefined) return;
  const log = readFileSync(path);
  let at = 0;
  for (let number = 1; at + HEAD_BYTES <= log.length; number++) {
    const kind = log.readUint32LE(at);
    const nameAt = at + HEAD_BYTES;
    const dataAt = nameAt + log.readUint32LE(at + 4);
    const offset = Number(log.readBigUint64LE(at + 8));
    const endsAt = dataAt + Number(log.readBigUint64LE(at + 16));
    if (endsAt > log.length) return;
    const name = log.toString("utf8", nameAt, dataAt);
    yield { number, kind, name, offset, data: log.subarray(dataAt, endsAt) };
    at = endsAt;
  }
}

/** The unit that a disk writes as a whole. */
const SECTOR_BYTES = 512;
/** In some losses nearly all is gone, in others nearly nothing, and mostly it is mixed. */
const KEPT_PERCENTS = [0, 10, 50, 50, 90, 100];
const TORN_PERCENTS = [0, 10, 50];

interface Piece {
  readonly offset: number;
  readonly data: Uint8Array;
}

interface Fates {
  /** Whether a name or a truncation reaches the disk. */
  keeps(): boolean;
  /** What reaches the disk of a write; `keptLength` is how long the file is for certain. */
  tear(offset: number, data: Buffer, keptLength: number): readonly Piece[];
}

/** Each operation has its own fate: a later one may be kept and an earlier one lost. */
function chooseFates(random: Random): Fates {
  const keptPercent = random.pick(KEPT_PERCENTS);
  const tornPercent = random.pick(TORN_PERCENTS);
  const leavesGarbage = random.chance(30);
  return {
    keeps: () => random.chance(keptPercent),
    tear(offset, data, keptLength) {
      const sectors = cut(offset, data);
      if (sectors.length > 1 && random.chance(tornPercent)) {
        const survives = chooseSectors(random, sectors.length);
        return sectors.flatMap((sector, index) => {
          if (survives(index)) return [sector];
          return leavesGarbage ? replaceWithGarbage(random, sector, keptLength) : [];
        });
      }
      if (random.chance(keptPercent)) return [{ offset, data }];
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

class Bytes {
  private buffer: Buffer;
  private used: number;

  constructor(content: Buffer) {
    this.buffer = Buffer.from(content);
    this.used = content.length;
  }

  get length(): number {
    return this.used;
  }

  /** Past the end, what lies between is zero, as in any file. */
  write(offset: number, data: Uint8Array): void {
    this.reserve(offset + data.length);
    this.buffer.set(data, offset);
    this.used = Math.max(this.used, offset + data.length);
  }

  truncate(length: number): void {
    this.reserve(length);
    this.buffer.fill(0, Math.min(length, this.used), this.used);
    this.used = length;
  }

  clone(): Bytes {
    return new Bytes(this.buffer.subarray(0, this.used));
  }

  toBuffer(): Buffer {
    return this.buffer.subarray(0, this.used);
  }

  /** Whatever is behind the end is zero. */
  private reserve(length: number): void {
    if (length <= this.buffer.length) return;
    const larger = Buffer.alloc(Math.max(length, this.buffer.length * 2));
    this.buffer.copy(larger, 0, 0, this.used);
    this.buffer = larger;
  }
}
