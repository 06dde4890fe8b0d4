/** What people see on a terminal: tables, facts, quantities and progress. */

import { fstatSync } from "node:fs";
import type { Content } from "../../client/client.ts";
import { formatJson } from "../domain/json.ts";

/** Checks the descriptor first: process.stdout loads all of the runtime's streams. */
export function isTerminal(output: "stdout" | "stderr"): boolean {
  const isDevice = fstatSync(output === "stdout" ? 1 : 2).isCharacterDevice();
  return isDevice && process[output].isTTY;
}

/** A reader may close the pipe early, as `head` does. That is not a failure. */
export function failOutput(error: NodeJS.ErrnoException): void {
  if (error.code === "EPIPE") return;
  printError(`standard output: ${error.message}`);
  process.exit(1);
}

export function printTable(head: readonly string[], rows: readonly (readonly string[])[]): void {
  const all = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...all.map((row) => (row[column] ?? "").length)));
  for (const row of all) {
    const line = row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ");
    process.stdout.write(`${line.trimEnd()}\n`);
  }
}

export const printJson = (value: unknown, indent = 2): void =>
  void process.stdout.write(`${formatJson(value, indent)}\n`);

/** Reports what a command did: one line of JSON, or a sentence with one fact per line. */
export function printReport(
  sentence: string,
  facts: Readonly<Record<string, unknown>>,
  /** `more`: what only programs need. */
  { isJson = false, more = {}, output = process.stdout as NodeJS.WriteStream },
): void {
  const rows = Object.entries(facts).filter(([, value]) => value !== undefined);
  const width = Math.max(...rows.map(([name]) => labelOf(name).length));
  const lines = rows.map(
    ([name, value]) => `  ${labelOf(name).padEnd(width)}  ${formatFact(name, value)}\n`,
  );
  const shown = isJson
    ? `${formatJson({ ...more, ...facts })}\n`
    : `${sentence}\n\n${lines.join("")}`;
  output.write(shown);
}

const labels: Readonly<Record<string, string>> = { bytes: "Size", seconds: "Time" };

const labelOf = (name: string): string =>
  labels[name] ?? name.replace(/^./, (first) => first.toUpperCase());

/** As in 1,234, 1.2 MB, 0.3 s, or 3 copied, 1 present. */
export function formatFact(name: string, value: unknown): string {
  if (name === "seconds") return formatSeconds(value as number);
  if (name === "bytes") return formatBytes(value as number);
  if (typeof value === "number" || typeof value === "bigint") return formatCount(value);
  if (typeof value === "string") return value;
  const parts = Object.entries(value as object);
  return parts.map(([part, count]) => `${formatFact("", count)} ${part}`).join(", ");
}

/** Resolves when the line is written. A closed pipe is not a failure. */
export const printLine = (line: string): Promise<void> =>
  new Promise((resolve) => process.stdout.write(`${line}\n`, () => resolve()));

/** What a question is about: standard output may be a file. */
export const showLine: typeof printLine = async (line) => void process.stderr.write(`${line}\n`);

/** Quoted, because a name may contain terminal escape sequences. */
export const quotePlant = ({ name, tag }: Content): string =>
  JSON.stringify(name) + (tag === undefined ? "" : ` [${JSON.stringify(tag)}]`);

/** A tag may be empty, and may have a comma or what a terminal obeys. */
export const showTags = (tags: readonly string[] | null): string =>
  tags === null ? "-" : escape(tags.map((tag) => JSON.stringify(tag)).join(","));

/** Anybody who can write to a bucket chooses the names in it, and a terminal obeys control characters. */
export const escape = (text: string): string =>
  text.replaceAll(/\p{Cc}/gu, (one) =>
    JSON.stringify(one)
      .slice(1, -1)
      .replace(/^[^\\]$/, "?"),
  );

/** It may have several lines. */
export const printError = (message: string): void =>
  void process.stderr.write(`plantstore: ${message.split("\n").map(escape).join("\n")}\n`);

/** 1234567.8 is 1,234,568. */
export const formatCount = (count: number | bigint): string =>
  (typeof count === "number" ? Math.round(count) : count).toLocaleString("en-US");

/** Refused plants and records that a terminal gets to see. */
export const REFUSED_PRINTED_MAX = 10;

export const countOf = (count: number, what: string): string =>
  `${formatCount(count)} ${what}${count === 1 ? "" : "s"}`;

/** 1234567 is 1.23 MB. */
export function formatBytes(bytes: number): string {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  // 999.5 already, because three digits would round it to 1,000.
  for (; value >= 999.5 && unit < units.length - 1; unit++) value /= 1000;
  return `${value.toLocaleString("en-US", { maximumSignificantDigits: 3 })} ${units[unit]}`;
}

/** 65 is 1:05, 3661 is 1:01:01. */
const formatDuration = (seconds: number): string =>
  new Date(seconds * 1000)
    .toISOString()
    .slice(11, 19)
    .replace(/^(00:)?0?/, "");

export const formatSeconds = (seconds: number): string =>
  seconds < 60 ? `${seconds.toFixed(1)} s` : formatDuration(seconds);

const describeRetry = ({ message }: Error, waitMs: number): string =>
  `${message} Trying again in ${formatSeconds(waitMs / 1000)}.`;

export const printRetry = (error: Error, waitMs: number): void =>
  printError(describeRetry(error, waitMs));

const CLEAR_LINE = "\r\u001b[K";

/** `part` is the share done, from 0 to 1, if known. */
type Reading = Readonly<{
  stage?: string;
  plants: number;
  refused?: number;
  part?: number | undefined;
}>;

/** One progress line on a terminal; nothing elsewhere. */
export function showProgress(read: () => Reading, isShown = true) {
  const isMoving = isShown && process.stderr.isTTY && process.env["TERM"] !== "dumb";
  const startedAtMs = performance.now();
  const draw = (): void => {
    const seconds = (performance.now() - startedAtMs) / 1000;
    const columns = process.stderr.columns || 80;
    process.stderr.write(CLEAR_LINE + formatProgress(read(), seconds, columns));
  };
  const timer = isMoving ? setInterval(draw, 200) : undefined;
  const clear = isMoving ? CLEAR_LINE : "";
  /** Prints a permanent line. The progress line is redrawn below it. */
  const print = (line: string): void => void process.stderr.write(`${clear}${line}\n`);
  return {
    print,
    onRetry: (error: Error, waitMs: number): void => print(describeRetry(error, waitMs)),
    [Symbol.dispose]: () => {
      clearInterval(timer);
      process.stderr.write(clear);
    },
  };
}

/** Always narrower than the terminal: a line that wraps cannot be cleared. */
export function formatProgress(reading: Reading, seconds: number, columns: number): string {
  const { stage, plants, refused, part } = reading;
  const facts = [
    ...(stage === undefined ? [] : [stage]),
    ...(part === undefined ? [] : [`${Math.floor(Math.min(1, part) * 100)}%`]),
    `${formatCount(plants)} plants`,
    `${formatCount(plants / seconds)}/s`,
    ...(refused ? [`${formatCount(refused)} refused`] : []),
    formatDuration(seconds),
  ];
  return facts.join("  ").slice(0, columns - 1);
}
