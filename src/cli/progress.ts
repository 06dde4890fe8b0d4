/** How far a long command has come, on one line of a terminal; nothing at all where there is no terminal. */

import { formatCount, formatDuration } from "./quantity.ts";

const DRAW_MS = 200;
/** What the rate is the mean over: recent enough to be true, long enough to be calm. */
const RATE_WINDOW_MS = 5_000;
/** Leaves room for the longest of facts, so that the bar keeps its length from one drawing to the next. */
const BAR_COLUMNS_MAX = 26;
const BAR_COLUMNS_MIN = 8;
const COLUMNS_DEFAULT = 80;
const CLEAR_LINE = "\r\u001b[K";

interface Reading {
  readonly plants: number;
  readonly refused?: number;
  readonly different?: number;
  /** Of `total`, in whatever unit. */
  readonly done?: number;
}

interface ProgressOptions {
  readonly isQuiet: boolean;
  readonly total?: number | undefined;
  /** What is being done, where a command does one thing after another. */
  readonly stage?: string;
}

/** Whether anyone would see it. */
export const isProgressShown = (isQuiet: boolean): boolean =>
  !isQuiet && process.stderr.isTTY && process.env["TERM"] !== "dumb";

interface Sample extends Reading {
  readonly atMs: number;
}

export class Progress {
  private readonly read: () => Reading;
  private readonly options: ProgressOptions;
  private readonly startedAtMs = performance.now();
  private samples: Sample[] = [];
  private timer: Timer | undefined;

  constructor(read: () => Reading, options: ProgressOptions) {
    this.read = read;
    this.options = options;
    if (isProgressShown(options.isQuiet)) this.timer = setInterval(() => this.draw(), DRAW_MS);
  }

  /** A line that stays, above the one that moves. */
  print(line: string): void {
    const isShown = this.timer !== undefined;
    process.stderr.write(isShown ? `${CLEAR_LINE}${line}\n` : `${line}\n`);
    if (isShown) this.draw();
  }

  /** The terminal is as if nothing had been there. */
  close(): void {
    if (this.timer === undefined) return;
    clearInterval(this.timer);
    this.timer = undefined;
    process.stderr.write(CLEAR_LINE);
  }

  private draw(): void {
    const now: Sample = { ...this.read(), atMs: performance.now() };
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

/** Never wider than the terminal, where it would wrap and stay. */
export function formatProgress(shown: Shown): string {
  const { done = 0, total, columns } = shown;
  const stage = shown.stage === undefined ? "" : `${shown.stage}  `;
  const facts = [
    `${formatCount(shown.plants)} plants`,
    `${formatCount(shown.plantsPerSecond)}/s`,
    ...(shown.refused ? [`${formatCount(shown.refused)} refused`] : []),
    ...(shown.different ? [`${formatCount(shown.different)} different`] : []),
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
