/** Tables of medians, and targets that are met or missed. */

import { type Candidate, CONNECTIONS, type Round, ROUND_SECONDS, ROUNDS } from "./harness.ts";

export interface Measured {
  readonly name: string;
  readonly rounds: readonly Round[];
  readonly perSecond: number;
  readonly rssMb: number;
}

/** A target is a ratio of two medians of one run, or a bound on memory. */
export interface Target {
  readonly what: string;
  readonly value: number;
  readonly limit: string;
  readonly met: boolean;
}

/** Rounds of the candidates in turn, so that a busy neighbour meets all of them. The first one warms up. */
export async function measure(
  candidates: readonly Candidate[],
  rounds = ROUNDS,
): Promise<Measured[]> {
  const taken = candidates.map((): Round[] => []);
  for (let round = 0; round <= rounds; round++)
    for (const [index, candidate] of candidates.entries()) {
      const result = await candidate.measure(round);
      if (round > 0) taken[index]?.push(result);
    }
  return candidates.map(({ name }, index) => {
    const its = taken[index] ?? [];
    return {
      name,
      rounds: its,
      perSecond: median(its.map((round) => round.perSecond)),
      rssMb: Math.max(0, ...its.map((round) => round.rssMb ?? 0)),
    };
  });
}

export function printHead(): void {
  print(
    `${CONNECTIONS} connections, medians of ${ROUNDS} interleaved rounds of ${ROUND_SECONDS} s, Bun ${Bun.version}, ${process.platform} ${process.arch}`,
  );
}

/** Prints a scenario's table and its targets, and tells whether all was as it should be. */
export function report(
  title: string,
  measured: readonly Measured[],
  targets: readonly Target[],
): boolean {
  print(`\n${title}\n`);
  print(row(["", "per second", "spread", "ratio", "p50 ms", "p99 ms", "RSS MB", "not 200"]));
  const first = measured[0]?.perSecond ?? Number.NaN;
  for (const { name, rounds, perSecond, rssMb } of measured) {
    const rates = rounds.map((round) => round.perSecond);
    const spread = (Math.max(...rates) - Math.min(...rates)) / 2 / perSecond;
    print(
      row([
        name,
        perSecond.toFixed(0),
        `±${(spread * 100).toFixed(0)} %`,
        (perSecond / first).toFixed(2),
        show(rounds.map((round) => round.p50Ms)),
        show(rounds.map((round) => round.p99Ms)),
        rssMb === 0 ? "" : rssMb.toFixed(0),
        String(countNotOk(rounds)),
      ]),
    );
  }
  print("");
  const allOk = measured.every(({ rounds }) => countNotOk(rounds) === 0);
  for (const { what, value, limit, met } of targets)
    print(`  ${met ? "met   " : "MISSED"}  ${what}: ${value.toFixed(2)} (target ${limit})`);
  if (!allOk) print("  FAILED  some answers were not 200");
  return allOk && targets.every(({ met }) => met);
}

/** How many times the second candidate's median the first one's is. */
export function ratio(
  what: string,
  a: Measured | undefined,
  b: Measured | undefined,
  min?: number,
): Target {
  const value = (a?.perSecond ?? Number.NaN) / (b?.perSecond ?? Number.NaN);
  return min === undefined
    ? { what, value, limit: "none, for information", met: true }
    : { what, value, limit: `≥ ${min}`, met: value >= min };
}

const countNotOk = (rounds: readonly Round[]): number =>
  rounds.reduce((sum, { notOk }) => sum + notOk, 0);

function show(values: readonly (number | undefined)[]): string {
  const known = values.filter((value) => value !== undefined);
  return known.length === 0 ? "" : median(known).toFixed(2);
}

function row([first = "", ...rest]: readonly string[]): string {
  return `  ${first.padEnd(34)}${rest.map((cell) => cell.padStart(11)).join("")}`;
}

export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
