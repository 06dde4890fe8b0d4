/**
 * A disk that has kept what was synced, and may have kept anything of the rest.
 *
 * Strict: a name is there, or gone, for certain only after its folder was synced, whatever was synced of the file;
 * and a sync that failed is the last word about what was written before it, because a kernel may then forget it.
 */

import type { Random } from "../support/random.ts";
import { type DiskRecord, FOLDER, Kind } from "./disk-log.ts";
import { Bytes } from "./disk-bytes.ts";
import { choosePieces, type Fates } from "./disk-fates.ts";

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

  /** How many operations on this file nobody has synced. */
  countPending(name: string): number {
    return this.seen.get(name)?.pending.length ?? 0;
  }

  /** What is there when the power is back: one of many possibilities, which leaves this disk as it is. */
  lose(fates: Fates): Files {
    const names = new Map(this.kept);
    for (const naming of this.namings) if (fates.keepsName()) rename(names, naming);
    const files = new Map<string, Buffer>();
    for (const [name, { bytes, pending }] of names) {
      const copy = bytes.clone();
      for (const operation of pending) keepPartly(copy, operation, fates, bytes.length);
      files.set(name, copy.toBuffer());
    }
    return files;
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
    const fates = succeeded ? undefined : choosePieces(this.random);
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
    if (fates.keepsTruncation()) bytes.truncate(offset);
    return;
  }
  for (const piece of fates.tear(offset, data, keptLength)) bytes.write(piece.offset, piece.data);
}
