/** One JSON line an event, to standard error. Never a token, never a body. */

import { write } from "node:fs";
import type { LogLevel } from "../config.ts";

type Fields = Readonly<Record<string, unknown>>;

export type Log = Readonly<Record<LogLevel, (event: string, fields?: Fields) => void>>;

const ranks: Record<LogLevel, number> = { debug: 0, info: 1, warn: 2, error: 3 };

export function createLog(least: LogLevel, writeLine: (line: string) => void): Log {
  const at = (level: LogLevel) => (event: string, fields?: Fields) => {
    if (ranks[level] < ranks[least]) return;
    writeLine(formatLine(level, event, fields));
  };
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}

function formatLine(level: LogLevel, event: string, fields: Fields = {}): string {
  const entry = { time: new Date().toISOString(), level, event, ...fields };
  const line = JSON.stringify(entry, (_, value: unknown) =>
    value instanceof Error ? describeError(value) : value,
  );
  // The last line of defence against a token in the log.
  return `${line.replace(/pst_[0-9A-Za-z]{8,}(_[0-9A-Za-z]*)?/g, "pst_[redacted]")}\n`;
}

/** What JSON and messages between threads would drop. PostgreSQL's own code is in `errno`. */
export function describeError(error: Error): Fields {
  const { name, message, stack, cause } = error;
  const { code, errno } = error as { code?: unknown; errno?: unknown };
  return { name, message, code, errno, stack, cause };
}

/** Lines past this are dropped and counted. */
const PENDING_BYTES_MAX = 1_048_576;
const FLUSH_MS_MAX = 1_000;
const FULL_MS = 20;

/** Writes to standard error without waiting: its reader may be slow or gone, its disk may be full. */
export class Stderr {
  private pending: Buffer[] = [];
  private pendingBytes = 0;
  private dropped = 0;
  /** Since the start. */
  droppedTotal = 0;
  private writing: Promise<void> | undefined;

  readonly write = (line: string): void => {
    const bytes = Buffer.from(line);
    if (this.pendingBytes + bytes.length > PENDING_BYTES_MAX) {
      this.dropped++;
      this.droppedTotal++;
      return;
    }
    this.pending.push(bytes);
    this.pendingBytes += bytes.length;
    this.writing ??= this.drain();
  };

  /** Resolves when everything is written, or after a second. */
  async flush(): Promise<void> {
    await Promise.race([this.writing, Bun.sleep(FLUSH_MS_MAX)]);
  }

  private async drain(): Promise<void> {
    while (this.pending.length > 0) {
      const bytes = Buffer.concat(this.pending);
      this.pending = [];
      const lost = await writeAll(bytes);
      this.pendingBytes -= bytes.length;
      this.dropped += lost;
      this.droppedTotal += lost;
      // After a failure the next line tries again.
      if (lost === 0 && this.dropped > 0 && this.pending.length === 0) {
        const count = this.dropped;
        this.dropped = 0;
        this.write(formatLine("warn", "log_lines_dropped", { count }));
      }
    }
    this.writing = undefined;
  }
}

/** Resolves to the number of lines that are lost: a log that cannot be written is no reason to fail. */
async function writeAll(bytes: Buffer): Promise<number> {
  for (let rest = bytes; rest.length > 0;) {
    const written = await writeSome(rest);
    if (written === undefined) return rest.toString("latin1").split("\n").length - 1;
    rest = rest.subarray(written);
  }
  return 0;
}

/** On a thread of the runtime: a pipe that is full holds up the log and nothing else. */
function writeSome(bytes: Buffer): Promise<number | undefined> {
  return new Promise((resolve) => {
    write(2, bytes, 0, bytes.length, null, (error, written) => {
      if (error === null) resolve(written);
      // Full, and another process has made it one that does not wait.
      else if (error.code === "EAGAIN") setTimeout(resolve, FULL_MS, 0);
      else resolve(undefined);
    });
  });
}
