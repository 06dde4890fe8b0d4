/** One JSON line an event, to standard error. Never a token, never a body. */

import type { LogLevel } from "../config.ts";

type Fields = Readonly<Record<string, unknown>>;

export interface Log {
  readonly debug: (event: string, fields?: Fields) => void;
  readonly info: (event: string, fields?: Fields) => void;
  readonly warn: (event: string, fields?: Fields) => void;
  readonly error: (event: string, fields?: Fields) => void;
}

const ranks: Record<LogLevel, number> = { debug: 0, info: 1, warn: 2, error: 3 };

export function createLog(least: LogLevel, write: (line: string) => void): Log {
  const at = (level: LogLevel) => (event: string, fields?: Fields) => {
    if (ranks[level] < ranks[least]) return;
    write(formatLine(level, event, fields));
  };
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}

function formatLine(level: LogLevel, event: string, fields: Fields = {}): string {
  const entry = { time: new Date().toISOString(), level, event, ...fields };
  return `${redact(JSON.stringify(entry, showErrors))}\n`;
}

/** The last line of defence: whatever looks like one of our tokens does not get through. */
function redact(line: string): string {
  return line.replace(/pst_[0-9A-Za-z]{8,}(_[0-9A-Za-z]*)?/g, "pst_[redacted]");
}

function showErrors(_key: string, value: unknown): unknown {
  if (!(value instanceof Error)) return value;
  const { name, message, stack, cause } = value;
  // PostgreSQL's own code stands in the second.
  const { code, errno } = value as { code?: unknown; errno?: unknown };
  return { name, message, code, errno, stack, cause };
}
