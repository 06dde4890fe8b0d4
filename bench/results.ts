/** The schema of results.json, and the figures derived from it. */

/** A limit does only part of the work, so it shows the cost of the rest. */
export type Role = "ours" | "peer" | "limit";

/** The result of one round. */
export interface Sample {
  /** In the table's unit. */
  readonly value: number;
  readonly p50Ms?: number;
  readonly p99Ms?: number;
  readonly p999Ms?: number;
  readonly rssMb?: number;
  /** CPU time per request, of the server and its database. */
  readonly cpuUs?: number;
  /** Cores that the load generator used. Near 1, it is the bottleneck. */
  readonly loadCores?: number;
  /** Creates per second of the one client beside the load. */
  readonly writes?: number;
}

/** The medians of the rounds. */
export interface Figures extends Sample {
  readonly min: number;
  readonly max: number;
}

export interface Row {
  readonly name: string;
  readonly role: Role;
  readonly durability?: string;
  /** If absent, `notMeasured` says why. */
  readonly figures?: Figures;
  readonly notMeasured?: string;
  /** A note below the table. */
  readonly remark?: string;
  readonly rounds: number;
  /** Rounds that were discarded because other processes used the cores. */
  readonly repeats: number;
  /** Rounds that count although they were disturbed: all repeats were used up. */
  readonly disturbed: number;
}

export interface Table {
  readonly name: string;
  readonly unit: string;
  readonly rows: readonly Row[];
}

export interface Target {
  readonly what: string;
  /** Absent if it was not measured. */
  readonly value?: number;
  readonly comparison: "≥" | "≤";
  readonly bound: number;
  readonly isMet: boolean;
  /** Shown if the target is missed. */
  readonly reason: string;
}

export interface ScenarioResult {
  readonly name: string;
  readonly title: string;
  readonly about: string;
  /** Who would notice a missed target. Absent without targets. */
  readonly user?: string;
  readonly measuredAt: string;
  readonly commit: string;
  readonly architecture: string;
  readonly roundSeconds: number;
  readonly durationSeconds: number;
  readonly tables: readonly Table[];
  readonly targets: readonly Target[];
  /** A profile of our service, if a target was missed. */
  readonly profile?: string;
  /** A wrong answer or a lost plant. No figure of this scenario can be trusted. */
  readonly failure?: string;
}

export interface Results {
  /** Properties by name. */
  readonly machine: Readonly<Record<string, string>>;
  readonly scenarios: readonly ScenarioResult[];
}

/** For an even count, the mean of the two middle values. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  const upper = sorted[Math.floor(middle)] ?? Number.NaN;
  const lower = sorted[Math.ceil(middle) - 1] ?? Number.NaN;
  return (lower + upper) / 2;
}

const sampleKeys = ["p50Ms", "p99Ms", "p999Ms", "rssMb", "cpuUs", "loadCores", "writes"] as const;

export function summarize(rounds: readonly Sample[]): Figures {
  const values = rounds.map(({ value }) => value);
  const known = sampleKeys.map(
    (key) => [key, rounds.flatMap((round) => round[key] ?? [])] as const,
  );
  return {
    value: median(values),
    min: Math.min(...values),
    max: Math.max(...values),
    ...Object.fromEntries(
      known.flatMap(([key, some]) => (some.length === 0 ? [] : [[key, median(some)]])),
    ),
  };
}

export const rowOf = (table: Table, name: string): Row | undefined =>
  table.rows.find((row) => row.name === name);

export const bestPeer = (table: Table): Row | undefined =>
  table.rows
    .filter(({ role, figures }) => role === "peer" && figures !== undefined)
    .toSorted((a, b) => valueOf(b) - valueOf(a))[0];

/** NaN if it was not measured. */
export const valueOf = (row: Row | undefined): number => row?.figures?.value ?? Number.NaN;

export const atMost = (what: string, value: number, bound: number, reason: string): Target =>
  makeTarget(what, value, "≤", bound, reason);

function makeTarget(
  what: string,
  value: number,
  comparison: Target["comparison"],
  bound: number,
  reason: string,
): Target {
  return {
    what,
    // JSON has no NaN.
    ...(Number.isNaN(value) ? {} : { value }),
    comparison,
    bound,
    isMet: comparison === "≥" ? value >= bound : value <= bound,
    reason,
  };
}

/** Compares two rows. Their CPU times help to explain a missed ratio. */
export function ratioAtLeast(
  what: string,
  ours: Row | undefined,
  other: Row | undefined,
  bound: number,
  reason: string,
): Target {
  const [a, b] = [ours?.figures?.cpuUs, other?.figures?.cpuUs];
  const times =
    a === undefined || b === undefined
      ? ""
      : `CPU time per operation: ${formatNumber(a)} µs, against ${formatNumber(b)} µs. `;
  return makeTarget(what, valueOf(ours) / valueOf(other), "≥", bound, times + reason);
}

export const isGood = ({ failure, targets }: ScenarioResult): boolean =>
  failure === undefined && targets.every(({ isMet }) => isMet);

/** Fresh scenarios replace known ones, in the order of `names`. */
export function mergeResults(
  known: Results | undefined,
  fresh: Results,
  names: readonly string[],
): Results {
  const byName = new Map(
    [...(known?.scenarios ?? []), ...fresh.scenarios].map((scenario) => [scenario.name, scenario]),
  );
  return { machine: fresh.machine, scenarios: names.flatMap((name) => byName.get(name) ?? []) };
}

/** Three significant digits, the precision of the measurement. */
export function formatNumber(value: number): string {
  if (Math.abs(value) < 100) return value.toFixed(value < 10 ? 2 : 1);
  const step = 10 ** Math.max(0, Math.floor(Math.log10(Math.abs(value))) - 2);
  return (Math.round(value / step) * step).toLocaleString("en");
}
