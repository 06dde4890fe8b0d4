/** A disk that fails, is slow or hangs when a test or the benchmark says so: the library between a server and its files. */

import { closeSync, openSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { runSync } from "./processes.ts";

export const lackOfShim = (): string | undefined =>
  process.platform === "linux" && Bun.which("cc") !== null
    ? undefined
    : "it takes Linux and a C compiler (cc)";

/** In the order of `struct control` in disk-shim.c, which explains them. */
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
  "hangs",
  "readsHang",
] as const;
const FIELD_BYTES = 4;
/** After the others, written by the shim: how many operations have failed, or were short or slow. */
const FAULTS_OFFSET = FIELDS.length * FIELD_BYTES;

/** Zero where nothing is said: then nothing goes wrong. */
export type Trouble = Readonly<Partial<Record<(typeof FIELDS)[number], number>>>;

export const { ENOSPC, EIO } = constants.errno;

export class DiskShim {
  private readonly library: string;
  private readonly control: string;

  /** Compiles the library. It and its control are in this folder from then on. */
  constructor(folder: string) {
    this.library = join(folder, "disk-shim.so");
    this.control = join(folder, "control");
    writeFileSync(this.control, new Uint8Array(FAULTS_OFFSET + FIELD_BYTES));
    const source = join(import.meta.dir, "disk-shim.c");
    const command = ["cc", "-O2", "-shared", "-fPIC", "-o", this.library, source, "-ldl"];
    const { exitCode, stderr } = runSync(command, { stderr: "pipe" });
    if (exitCode !== 0) throw new Error(`${command.join(" ")}: ${stderr.toString()}`);
  }

  /** For a server whose files are in `place`. Without a log its syncs are real. */
  environmentFor(place: string, log?: string): Record<string, string> {
    return {
      LD_PRELOAD: this.library,
      DISK_FOLDER: place,
      DISK_CONTROL: this.control,
      ...(log === undefined ? {} : { DISK_LOG: log }),
    };
  }

  /** In place: the servers have the file mapped. */
  set(trouble: Trouble): void {
    const fields = Uint32Array.from(FIELDS.map((name) => trouble[name] ?? 0));
    const descriptor = openSync(this.control, "r+");
    writeSync(descriptor, new Uint8Array(fields.buffer), 0, fields.byteLength, 0);
    closeSync(descriptor);
  }

  get faults(): number {
    return readFileSync(this.control).readUint32LE(FAULTS_OFFSET);
  }
}
