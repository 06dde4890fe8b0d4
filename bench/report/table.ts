/** Rows as cells of text, the same on the terminal and on the page. */

import type { Row, Target } from "./results.ts";
import { medianOf, spreadOf } from "./statistics.ts";

export const columns = [
  "",
  "median",
  "min–max",
  "p50 ms",
  "p99 ms",
  "p99.9 ms",
  "CPU µs",
  "RSS MB",
] as const;

/** In the order of the columns, without the first, which is the name. */
export function cellsOf({ rounds }: Row): string[] {
  const { median, min, max } = spreadOf(rounds);
  return [
    formatNumber(median),
    `${formatNumber(min)}–${formatNumber(max)}`,
    formatOptional(medianOf(rounds, "p50Ms")),
    formatOptional(medianOf(rounds, "p99Ms")),
    formatOptional(medianOf(rounds, "p999Ms")),
    formatOptional(medianOf(rounds, "cpuUs")),
    formatOptional(medianOf(rounds, "rssMb"), 0),
  ];
}

/** Three digits that count are enough for what was measured. */
export function formatNumber(value: number): string {
  if (Math.abs(value) < 100) return value.toFixed(value < 10 ? 2 : 1);
  const step = 10 ** Math.max(0, Math.floor(Math.log10(Math.abs(value))) - 2);
  return (Math.round(value / step) * step).toLocaleString("en");
}

const formatOptional = (value: number | undefined, digits?: number): string => {
  if (value === undefined) return "–";
  return digits === undefined ? formatNumber(value) : value.toFixed(digits);
};

export function formatTarget({ what, value, comparison, bound, isMet, reason }: Target): string {
  const shown = Number.isNaN(value) ? "not measured" : value.toFixed(2);
  const why = isMet || reason === undefined ? "" : `. ${reason}`;
  return `${what}: ${shown} (target ${comparison} ${bound})${why}`;
}
