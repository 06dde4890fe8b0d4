/** What goes wrong on a disk, told to the shim that stands for it; may be changed while the service runs. */

import { closeSync, openSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { constants } from "node:os";

/** In the order of `struct control` in disk-shim.c. */
const FIELDS = [
  "dieAfter",
  "dieIn",
  "syncsAreLies",
  "writeError",
  "writeFailsPercent",
  "writeShortenedPercent",
  "syncFailsPercent",
  "syncMs",
  "readFailsPercent",
] as const;
const FIELD_BYTES = 4;
/** After the others, written by the shim: how many operations have failed, or were short or slow. */
const FAULTS_OFFSET = FIELDS.length * FIELD_BYTES;

/** Zero where nothing is said: then nothing goes wrong. */
export type Trouble = Readonly<Partial<Record<(typeof FIELDS)[number], number>>>;

export const { ENOSPC, EIO } = constants.errno;

export class DiskControl {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
    writeFileSync(path, new Uint8Array(FAULTS_OFFSET + FIELD_BYTES));
  }

  /** In place: the shim has the file mapped. */
  set(trouble: Trouble): void {
    const fields = Uint32Array.from(FIELDS.map((name) => trouble[name] ?? 0));
    const descriptor = openSync(this.path, "r+");
    writeSync(descriptor, new Uint8Array(fields.buffer), 0, fields.byteLength, 0);
    closeSync(descriptor);
  }

  get faults(): number {
    return readFileSync(this.path).readUint32LE(FAULTS_OFFSET);
  }
}
