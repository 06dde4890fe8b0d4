/** What people see on a terminal: tables, facts, quantities and progress. */

export function printTable(head: readonly string[], rows: readonly (readonly string[])[]): void {
  const all = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...all.map((row) => (row[column] ?? "").length)));
  for (const row of all) {
    const line = row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ");
    process.stdout.write(`${line.trimEnd()}\n`);
  }
}

/** A sentence, and below it one fact a line. */
export function printFacts(
  sentence: string,
  facts: readonly (readonly [string, string])[],
  output: NodeJS.WriteStream = process.stdout,
): void {
  const width = Math.max(...facts.map(([name]) => name.length));
  const lines = facts.map(([name, value]) => `${`  ${name.padEnd(width)}  ${value}`.trimEnd()}\n`);
  output.write(`${sentence}\n\n${lines.join("")}`);
}

/** Resolves when the line is out. A reader that is gone is no failure. */
export function printLine(line: string): Promise<void> {
  return new Promise((resolve) => {
    process.stdout.write(`${line}\n`, () => resolve());
  });
}

export const printError = (message: string): void =>
  void process.stderr.write(`plantstore: ${message}\n`);

/** 1234567.8 is 1,234,568. */
export const formatCount = (count: number | bigint): string =>
  (typeof count === "number" ? Math.round(count) : count).toLocaleString("en-US");

/** `1 plant`, `2 plants`. */
export const countOf = (count: number, what: string): string =>
  `${formatCount(count)} ${what}${count === 1 ? "" : "s"}`;

const threeDigits = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });

/** 1234567 is 1.23 MB. */
export function formatBytes(bytes: number): string {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  // 999.5 already, because three digits would round it to 1,000.
  for (; value >= 999.5 && unit < units.length - 1; unit++) value /= 1000;
  return `${threeDigits.format(value)} ${units[unit]}`;
}

/** 65 is 1:05, 3661 is 1:01:01. */
function formatDuration(seconds: number): string {
  const whole = Math.round(seconds);
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h > 0 ? `${h}:${twoDigits(m)}:${twoDigits(s)}` : `${m}:${twoDigits(s)}`;
}

const twoDigits = (part: number): string => String(part).padStart(2, "0");

/** With tenths below a minute. */
export function formatSeconds(seconds: number): string {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${formatDuration(seconds)} ${seconds < 3600 ? "min" : "h"}`;
}

export const roundToMs = (seconds: number): number => Math.round(seconds * 1000) / 1000;

export const describeRetry = ({ message }: Error, waitMs: number): string =>
  `${message} Trying again in ${formatSeconds(waitMs / 1000)}.`;

const DRAW_MS = 200;
/** The rate is the mean over this time: recent enough to be true, long enough to be calm. */
const RATE_WINDOW_MS = 5_000;
/** Leaves room for the longest facts, so the bar keeps its length. */
const BAR_COLUMNS_MAX = 26;
const BAR_COLUMNS_MIN = 8;
const COLUMNS_DEFAULT = 80;
const CLEAR_LINE = "\r\u001b[K";

interface Reading {
  readonly plants: number;
  readonly refused?: number;
  /** Out of `total`, in the same unit. */
  readonly done?: number;
}

interface ProgressOptions {
  readonly isQuiet: boolean;
  readonly total?: number | undefined;
  /** For commands that do one thing after another. */
  readonly stage?: string;
}

export const isProgressShown = (isQuiet: boolean): boolean =>
  !isQuiet && process.stderr.isTTY && process.env["TERM"] !== "dumb";

/** One moving line on a terminal; nothing elsewhere. */
export class Progress {
  private readonly read: () => Reading;
  private readonly options: ProgressOptions;
  private readonly startedAtMs = performance.now();
  private samples: (Reading & { readonly atMs: number })[] = [];
  private timer: Timer | undefined;

  constructor(read: () => Reading, options: ProgressOptions) {
    this.read = read;
    this.options = options;
    if (isProgressShown(options.isQuiet)) this.timer = setInterval(() => this.draw(), DRAW_MS);
  }

  /** A line that stays, above the moving one. */
  print(line: string): void {
    const isShown = this.timer !== undefined;
    process.stderr.write(isShown ? `${CLEAR_LINE}${line}\n` : `${line}\n`);
    if (isShown) this.draw();
  }

  /** Clears the moving line. */
  close(): void {
    if (this.timer === undefined) return;
    clearInterval(this.timer);
    this.timer = undefined;
    process.stderr.write(CLEAR_LINE);
  }

  private draw(): void {
    const now = { ...this.read(), atMs: performance.now() };
    this.samples = this.samples.filter((sample) => now.atMs - sample.atMs < RATE_WINDOW_MS);
    const since = this.samples[0] ?? { plants: 0, done: 0, atMs: this.startedAtMs };
    this.samples.push(now);
    const line = formatProgress({
      ...now,
      seconds: (now.atMs - this.startedAtMs) / 1000,
      total: this.options.total,
      stage: this.options.stage,
      plantsPerSecond: perSecond(now.plants - since.plants, now.atMs - since.atMs),
      donePerSecond: perSecond((now.done ?? 0) - (since.done ?? 0), now.atMs - since.atMs),
      columns: process.stderr.columns || COLUMNS_DEFAULT,
      hasColor: !process.env["NO_COLOR"],
    });
    process.stderr.write(CLEAR_LINE + line);
  }
}

const perSecond = (count: number, ms: number): number => (ms <= 0 ? 0 : (count * 1000) / ms);

interface Shown extends Reading {
  readonly seconds: number;
  readonly total: number | undefined;
  readonly stage?: string | undefined;
  readonly plantsPerSecond: number;
  readonly donePerSecond: number;
  readonly columns: number;
  readonly hasColor: boolean;
}

/** Always narrower than the terminal: a line that wraps cannot be cleared. */
export function formatProgress(shown: Shown): string {
  const { done = 0, total, columns } = shown;
  const stage = shown.stage === undefined ? "" : `${shown.stage}  `;
  const facts = [
    `${formatCount(shown.plants)} plants`,
    `${formatCount(shown.plantsPerSecond)}/s`,
    ...(shown.refused ? [`${formatCount(shown.refused)} refused`] : []),
  ];
  if (total === undefined || total === 0)
    return (stage + [...facts, formatDuration(shown.seconds)].join("  ")).slice(0, columns - 1);
  const part = Math.min(1, done / total);
  const secondsLeft = Math.max(0, total - done) / shown.donePerSecond;
  if (Number.isFinite(secondsLeft)) facts.push(`${formatDuration(secondsLeft)} left`);
  const percent = stage + `${Math.floor(part * 100)}%`.padStart(4);
  const text = facts.join("  ");
  const barColumns = Math.min(
    BAR_COLUMNS_MAX - stage.length,
    columns - 1 - `${percent}    ${text}`.length,
  );
  if (barColumns < BAR_COLUMNS_MIN) return `${percent}  ${text}`.slice(0, columns - 1);
  return `${percent}  ${formatBar(part, barColumns, shown.hasColor)}  ${text}`;
}

function formatBar(part: number, columns: number, hasColor: boolean): string {
  const done = Math.round(part * columns);
  const left = columns - done;
  return hasColor
    ? `\u001b[32m${"━".repeat(done)}\u001b[0;2m${"━".repeat(left)}\u001b[0m`
    : "━".repeat(done) + "─".repeat(left);
}
