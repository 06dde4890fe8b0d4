/** The shapes of what was measured: results.json holds them, and tables, page and charts are made of them. */

/** A limit is no rival: it leaves out a part of the work, and shows what that part costs. */
export type Role = "ours" | "peer" | "limit";

export interface Round {
  /** In the unit of the table. */
  readonly value: number;
  readonly p50Ms?: number;
  readonly p99Ms?: number;
  readonly p999Ms?: number;
  readonly rssMb?: number;
  /** User and system time of the server, and of a database behind it, per request. */
  readonly cpuUs?: number;
  /** How much of a core the load generator took: near 1 it is itself the limit. */
  readonly loadCores?: number;
  /** What others took meanwhile, in cores. */
  readonly foreignCores: number;
  /** Too much of it, after all repeats. */
  readonly isDisturbed: boolean;
}

export interface Row {
  readonly name: string;
  readonly role: Role;
  readonly durability?: string;
  readonly note?: string;
  readonly rounds: readonly Round[];
  /** Rounds that were thrown away, because others were using the cores. */
  readonly repeats: number;
  /** Why there are no rounds. */
  readonly notMeasured?: string;
}

export interface Table {
  readonly name: string;
  readonly unit: string;
  readonly isLowerBetter: boolean;
  readonly rows: readonly Row[];
}

export interface Target {
  readonly what: string;
  readonly value: number;
  readonly comparison: "≥" | "≤";
  readonly bound: number;
  readonly isMet: boolean;
  /** Where it is missed: what the same rounds tell about the reason. */
  readonly reason?: string;
}

export interface ScenarioResult {
  readonly name: string;
  readonly title: string;
  readonly about: string;
  /** Lines over the tables where they are levels of one thing; else bars. */
  readonly chart: "bars" | "lines";
  readonly measuredAt: string;
  readonly commit: string;
  readonly roundSeconds: number;
  readonly durationSeconds: number;
  readonly tables: readonly Table[];
  readonly targets: readonly Target[];
  /** An answer that was wrong, a plant that was lost: no figure of it is to be trusted. */
  readonly failure?: string;
}

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGb: number;
  readonly kernel: string;
  readonly filesystem: string;
  readonly versions: Readonly<Record<string, string>>;
}

export interface Results {
  readonly machine: Machine;
  readonly scenarios: readonly ScenarioResult[];
}

export const isGood = ({ failure, targets }: ScenarioResult): boolean =>
  failure === undefined && targets.every(({ isMet }) => isMet);

/** Scenarios measured again take the place of what was known of them; the order is that of `names`. */
export function mergeResults(
  known: Results | undefined,
  fresh: Results,
  names: readonly string[],
): Results {
  const byName = new Map(
    [...(known?.scenarios ?? []), ...fresh.scenarios].map((scenario) => [scenario.name, scenario]),
  );
  return {
    machine: fresh.machine,
    scenarios: names.flatMap((name) => byName.get(name) ?? []),
  };
}
