/** A wall clock that is wrong by as much as a test says: the library between a server and the clock. */

import { chmodSync, closeSync, openSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { makeTemporaryFolder } from "./folder.ts";
import { runSync } from "./processes.ts";

const FIELDS = 2;

export class ClockShim implements Disposable {
  readonly #folder = makeTemporaryFolder();
  readonly #control = join(this.#folder.path, "control");
  /** For servers whose clock this is. */
  readonly environment: Readonly<Record<string, string>>;

  constructor() {
    const library = join(this.#folder.path, "clock-shim.so");
    const source = join(import.meta.dir, "clock-shim.c");
    const command = ["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"];
    const { exitCode, stderr } = runSync(command, { stderr: "pipe" });
    if (exitCode !== 0) throw new Error(`${command.join(" ")}: ${stderr.toString()}`);
    writeFileSync(this.#control, new Uint8Array(FIELDS * BigInt64Array.BYTES_PER_ELEMENT));
    // A database server runs as another user.
    chmodSync(this.#folder.path, 0o755);
    this.environment = { LD_PRELOAD: library, CLOCK_CONTROL: this.#control };
  }

  /** Seconds ahead of the right time; `otherThreads` are further ahead than the first. In place: servers map the file. */
  set(seconds: number, otherThreads = 0): void {
    const fields = BigInt64Array.of(BigInt(seconds), BigInt(otherThreads));
    const descriptor = openSync(this.#control, "r+");
    writeSync(descriptor, new Uint8Array(fields.buffer), 0, fields.byteLength, 0);
    closeSync(descriptor);
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}
