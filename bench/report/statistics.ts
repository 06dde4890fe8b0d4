/** Medians and spreads of rounds, and targets that are ratios of them. */

import type { Round, Row, Table, Target } from "./results.ts";

/** The middle one; of an even number the mean of the two in the middle. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  const upper = sorted[Math.floor(middle)] ?? Number.NaN;
  const lower = sorted[Math.ceil(middle) - 1] ?? Number.NaN;
  return (lower + upper) / 2;
}

interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

export function spreadOf(rounds: readonly Round[]): Spread {
  const values = rounds.map(({ value }) => value);
  return { median: median(values), min: Math.min(...values), max: Math.max(...values) };
}

type Figure = "p50Ms" | "p99Ms" | "p999Ms" | "rssMb" | "cpuUs" | "loadCores";

/** The median of what the rounds have of it; undefined where they have nothing. */
export function medianOf(rounds: readonly Round[], figure: Figure): number | undefined {
  const known = rounds.flatMap((round) => round[figure] ?? []);
  return known.length === 0 ? undefined : median(known);
}

/** Not a number where it was not measured, which meets no target. */
export const valueOf = (row: Row | undefined): number =>
  row === undefined ? Number.NaN : spreadOf(row.rounds).median;

export function rowOf(table: Table | undefined, name: string): Row | undefined {
  return table?.rows.find((row) => row.name === name);
}

/** Of the peers that were measured. */
export function bestPeer(table: Table | undefined): Row | undefined {
  return table?.rows
    .filter(({ role, rounds }) => role === "peer" && rounds.length > 0)
    .toSorted((a, b) => valueOf(b) - valueOf(a))[0];
}

export const atLeast = (what: string, value: number, bound: number): Target => ({
  what,
  value,
  comparison: "≥",
  bound,
  isMet: value >= bound,
});

export const atMost = (what: string, value: number, bound: number): Target => ({
  what,
  value,
  comparison: "≤",
  bound,
  isMet: value <= bound,
});
