/** What a scenario of the torture is given, and what it reports. */

import type { Random } from "../support/random.ts";

export interface Budget {
  /** How long to go on; what has begun is finished after it. */
  readonly seconds: number;
  /** The only source of choices: the seed replays them. */
  readonly random: Random;
  /** Prints what is happening. */
  readonly tell: (line: string) => void;
  /** A few seconds of it, with shares that even a busy machine keeps to. */
  readonly isShort?: boolean;
}

export interface Finding {
  /** What was done and measured, by names that stand for themselves: shown, and never judged. */
  readonly figures: Readonly<Record<string, string | number>>;
  /** Each a promise that was broken, in a sentence. None is what everyone hopes for. */
  readonly faults: readonly string[];
}

/** Collected on the way. */
export class Findings implements Finding {
  readonly figures: Record<string, number> = {};
  readonly faults: string[] = [];

  count(name: string, by = 1): void {
    this.figures[name] = (this.figures[name] ?? 0) + by;
  }

  /** Keeps the largest of this name. */
  note(name: string, figure: number): void {
    this.figures[name] = Math.max(this.figures[name] ?? 0, figure);
  }
}

export interface Scenario {
  readonly title: string;
  /** What the machine lacks, in words for a person; undefined where it can run. */
  readonly missing?: () => string | undefined;
  /** Installs what is missing, where it can. `npm run torture` does that, and `npm test` does not. */
  readonly install?: () => void;
  readonly run: (budget: Budget) => Promise<Finding>;
}

/** Every kind in turn, in any order: until the time is over and, in a long run, every kind has come. */
export function* deal<Kind>(
  kinds: readonly Kind[],
  { random, isShort = false }: Pick<Budget, "random" | "isShort">,
  isOver: () => boolean,
): Generator<Kind> {
  for (let decks = 1; ; decks++) {
    const left = [...kinds];
    while (left.length > 0) {
      yield left.splice(random.below(left.length), 1)[0] as Kind;
      if ((isShort || decks > 1 || left.length === 0) && isOver()) return;
    }
  }
}

/** Whether this many seconds have passed since the call. */
export function endsAfter(seconds: number): () => boolean {
  const endsAtMs = performance.now() + seconds * 1_000;
  return () => performance.now() > endsAtMs;
}

/** Undefined where it takes longer. */
export function within<Result>(ms: number, promise: Promise<Result>): Promise<Result | undefined> {
  const { promise: late, resolve } = Promise.withResolvers<undefined>();
  const timer = setTimeout(resolve, ms, undefined);
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** One kind after the other, each with its share of the time and named in what it found. */
export async function runEach<Kind extends string>(
  kinds: readonly Kind[],
  { seconds, ...budget }: Budget,
  run: (kind: Kind, budget: Budget) => Promise<Finding>,
): Promise<Finding> {
  const figures: Record<string, string | number> = {};
  const faults: string[] = [];
  for (const kind of kinds) {
    const found = await run(kind, { ...budget, seconds: seconds / kinds.length });
    for (const [name, figure] of Object.entries(found.figures))
      figures[`${kind}: ${name}`] = figure;
    faults.push(...found.faults.map((fault) => `${kind}: ${fault}`));
  }
  return { figures, faults };
}

/** For what is run without its protection: a fault of this kind has to be found. */
export const noticing =
  (run: Scenario["run"], due = /^/): Scenario["run"] =>
  async (budget) => {
    const { figures, faults } = await run(budget);
    const noticed = faults.filter((fault) => due.test(fault)).length;
    return {
      figures: { ...figures, "faults that were noticed": noticed },
      faults: noticed > 0 ? [] : ["nothing was noticed"],
    };
  };
