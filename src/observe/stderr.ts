/** Standard error without waiting for it: whoever reads it may be slow, gone, or a disk that is full. */

import { write } from "node:fs";

/** Lines past this are dropped, and counted. */
const PENDING_BYTES_MAX = 1_048_576;
const FLUSH_MS_MAX = 1_000;

export class Stderr {
  private pending: Buffer[] = [];
  private pendingBytes = 0;
  private dropped = 0;
  private writing: Promise<void> | undefined;

  readonly write = (line: string): void => {
    const bytes = Buffer.from(line);
    if (this.pendingBytes + bytes.length > PENDING_BYTES_MAX) {
      this.dropped++;
      return;
    }
    this.pending.push(bytes);
    this.pendingBytes += bytes.length;
    this.writing ??= this.drain();
  };

  /** Resolves when everything is out, or when nobody seems to take it. */
  async flush(): Promise<void> {
    await Promise.race([this.writing, Bun.sleep(FLUSH_MS_MAX)]);
  }

  private async drain(): Promise<void> {
    while (this.pending.length > 0) {
      const bytes = Buffer.concat(this.pending);
      this.pending = [];
      await writeAll(bytes);
      this.pendingBytes -= bytes.length;
      if (this.dropped > 0 && this.pending.length === 0) this.tellDropped();
    }
    this.writing = undefined;
  }

  private tellDropped(): void {
    const entry = { level: "warn", event: "log_lines_dropped", count: this.dropped };
    this.dropped = 0;
    this.write(`${JSON.stringify({ time: new Date().toISOString(), ...entry })}\n`);
  }
}

/** On a thread of the runtime's, so that a pipe which nobody empties holds up the log and nothing else. */
async function writeAll(bytes: Buffer): Promise<void> {
  for (let rest = bytes; rest.length > 0;) rest = rest.subarray(await writeSome(rest));
}

function writeSome(bytes: Buffer): Promise<number> {
  return new Promise((resolve) => {
    // A log that cannot be written is no reason to fail; what was to be said is lost.
    write(2, bytes, 0, bytes.length, null, (error, written) =>
      resolve(error === null ? written : bytes.length),
    );
  });
}
