/** One JSON line per event, to standard error. Never a token, never a body. */

import type { LogLevel } from "../config.ts";
import { STANDARD_ERROR, writeDescriptor } from "../descriptor.ts";
import { describeError } from "../domain/errors.ts";

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

const OWN_TOKEN = /pst_[0-9A-Za-z]{8,}(_[0-9A-Za-z]*)?/g;
/** The header of a JWT is a JSON object, so its base64 begins with eyJ. */
const JWT = /eyJ[\w-]{8,}\.[\w-]*(\.[\w-]*)?/g;

function formatLine(level: LogLevel, event: string, fields: Fields = {}): string {
  const entry = { time: new Date().toISOString(), level, event, ...fields };
  const line = JSON.stringify(entry, (_, value: unknown) =>
    value instanceof Error ? describeError(value) : value,
  );
  return `${redact(line)}\n`;
}

/** The last line of defence against a token in the log, or in a trace. */
export const redact = (text: string): string =>
  text.replaceAll(OWN_TOKEN, "pst_[redacted]").replaceAll(JWT, "eyJ[redacted]");

const PENDING_LENGTH_MAX = 1_048_576;
const FLUSH_MS_MAX = 1_000;

/** Writes to standard error without waiting: its reader may be slow or gone, its disk may be full. */
export class Stderr {
  private pending = "";
  private writing: Promise<void> | undefined;
  droppedTotal = 0;
  private reportedTotal = 0;

  readonly write = (line: string): void => {
    if (this.pending.length + line.length > PENDING_LENGTH_MAX) return void this.droppedTotal++;
    this.pending += line;
    this.writing ??= this.drain();
  };

  async flush(): Promise<void> {
    await Promise.race([this.writing, Bun.sleep(FLUSH_MS_MAX)]);
  }

  private async drain(): Promise<void> {
    while (this.pending !== "") {
      const lines = this.pending;
      this.pending = "";
      try {
        await writeDescriptor(STANDARD_ERROR, lines);
        const count = this.droppedTotal - this.reportedTotal;
        if (count === 0 || this.pending !== "") continue;
        this.reportedTotal = this.droppedTotal;
        this.write(formatLine("warn", "log_lines_dropped", { count }));
      } catch {
        // A log that cannot be written fails nothing. The next line tries again.
        this.droppedTotal += lines.split("\n").length - 1;
      }
    }
    this.writing = undefined;
  }
}
