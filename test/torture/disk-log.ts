/** The log of the disk shim: every operation that a disk would have to keep, in their order. */

import { readFileSync, statSync } from "node:fs";

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
export const FOLDER = ".";

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
