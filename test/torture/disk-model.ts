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

/** Disks made from one loss of power: what it leaves is a matter of chance. */
const IMAGES = 4;
/** Only address space until it is used. */
const FILE_BYTES_MAX = 2 ** 30;

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

  /** For a further process on this disk, whose records are numbered from 1 again. */
  startAgain(): void {
    this.numbersBefore = this.numberLast;
  }

  apply({ kind, name, offset, data }: DiskRecord): void {
    const number = ++this.numberLast;
    if (kind === Kind.opened) this.open(name, number);
    else if (kind === Kind.written) this.change(name, { number, data, offset });
    else if (kind === Kind.truncated) this.change(name, { number, data: undefined, offset });
    else if (kind === Kind.unlinked) {
      this.seen.delete(name);
      this.namings.push({ number, name, file: undefined });
    } else if (kind === Kind.synced || kind === Kind.syncFailed)
      this.sync(name, offset + this.numbersBefore, kind === Kind.synced);
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
      const fates = new Fates(this.random);
      const names = new Map(this.kept);
      for (const naming of this.namings) if (fates.keeps()) rename(names, naming);
      const files = new Map<string, Buffer>();
      for (const [name, { bytes, pending }] of names) {
        const copy = new Bytes(bytes.toBuffer());
        for (const operation of pending) fates.keepPartly(copy, operation, bytes.length);
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
    const fates = new Fates(this.random);
    for (const operation of file.pending) {
      if (operation.number >= begun) continue;
      if (succeeded) keep(bytes, operation);
      else fates.keepPartly(bytes, operation, lengthBefore);
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

/** The unit that a disk writes as a whole. */
const SECTOR_BYTES = 512;
/** In some losses nearly all is gone, in others nearly nothing, and mostly it is mixed. */
const KEPT_PERCENTS = [0, 10, 50, 50, 90, 100];
const TORN_PERCENTS = [0, 10, 50];

/** What one loss does. Each operation has its own fate: a later one may be kept and an earlier one lost. */
class Fates {
  readonly #random: Random;
  readonly #keptPercent: number;
  readonly #tornPercent: number;
  readonly #leavesGarbage: boolean;

  constructor(random: Random) {
    this.#random = random;
    this.#keptPercent = random.pick(KEPT_PERCENTS);
    this.#tornPercent = random.pick(TORN_PERCENTS);
    this.#leavesGarbage = random.chance(30);
  }

  /** Whether a name, a truncation or a whole write reaches the disk. */
  keeps(): boolean {
    return this.#random.chance(this.#keptPercent);
  }

  /** `keptLength` is how long the file is for certain. */
  keepPartly(bytes: Bytes, { data, offset }: Operation, keptLength: number): void {
    const random = this.#random;
    const isKept = this.keeps();
    if (data === undefined) {
      if (isKept) bytes.truncate(offset);
      return;
    }
    const sectors = Math.ceil(((offset % SECTOR_BYTES) + data.length) / SECTOR_BYTES);
    const isTorn = sectors > 1 && random.chance(this.#tornPercent);
    // A torn write keeps its first few sectors, or any.
    const first = random.chance(50) ? random.below(sectors) : undefined;
    const garbage = random.pick([0, 0xff, random.below(256)]);
    // A file may have grown without what it has grown for.
    const leavesGarbage = this.#leavesGarbage && (isTorn || random.chance(50));
    for (let at = 0, nth = 0; at < data.length; nth++) {
      const sector = data.subarray(at, at + SECTOR_BYTES - ((offset + at) % SECTOR_BYTES));
      const isThere = first === undefined ? random.chance(50) : nth < first;
      if (isTorn ? isThere : isKept) bytes.write(offset + at, sector);
      // Only where nothing was for certain: what a disk has kept, it does not spoil.
      else if (leavesGarbage && offset + at >= keptLength)
        bytes.write(offset + at, new Uint8Array(sector.length).fill(garbage));
      at += sector.length;
    }
  }
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

interface DiskRecord {
  readonly kind: number;
  readonly name: string;
  /** The offset of a write, the length of a truncation, or for the end of a sync the number of its beginning. */
  readonly offset: number;
  readonly data: Buffer;
}

const HEAD_BYTES = 24;

/** A log that ends within a record, because its process was killed, ends before it. */
export function* readDiskLog(path: string): Generator<DiskRecord> {
  if (statSync(path, { throwIfNoEntry: false }) === undefined) return;
  const log = readFileSync(path);
  for (let at = 0; at + HEAD_BYTES <= log.length;) {
    const kind = log.readUint32LE(at);
    const nameAt = at + HEAD_BYTES;
    const dataAt = nameAt + log.readUint32LE(at + 4);
    const offset = Number(log.readBigUint64LE(at + 8));
    const endsAt = dataAt + Number(log.readBigUint64LE(at + 16));
    if (endsAt > log.length) return;
    const name = log.toString("utf8", nameAt, dataAt);
    yield { kind, name, offset, data: log.subarray(dataAt, endsAt) };
    at = endsAt;
  }
}

/** What is behind the end of a file, and what lies between its end and a write past it, is zero. */
class Bytes {
  readonly #buffer: ArrayBuffer;

  constructor(content: Uint8Array) {
    this.#buffer = new ArrayBuffer(content.length, { maxByteLength: FILE_BYTES_MAX });
    this.write(0, content);
  }

  get length(): number {
    return this.#buffer.byteLength;
  }

  write(offset: number, data: Uint8Array): void {
    this.truncate(Math.max(this.length, offset + data.length));
    new Uint8Array(this.#buffer).set(data, offset);
  }

  truncate(length: number): void {
    this.#buffer.resize(length);
  }

  /** A copy. */
  toBuffer(): Buffer {
    return Buffer.from(new Uint8Array(this.#buffer));
  }
}
