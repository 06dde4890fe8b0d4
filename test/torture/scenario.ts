/** What a scenario of the torture is given, and what it reports. */

import type { Random } from "../support/random.ts";

export interface Budget {
  /** How long to go on; what has begun is finished after it. */
  readonly seconds: number;
  /** The only source of choices, so that the seed replays them. */
  readonly random: Random;
  /** What happens meanwhile, for whoever watches. */
  readonly tell: (line: string) => void;
}

export interface Finding {
  /** What was done and measured, by names that stand for themselves: shown, and never judged. */
  readonly figures: Readonly<Record<string, string | number>>;
  /** Each a promise that was broken, in a sentence. None is what everyone hopes for. */
  readonly faults: readonly string[];
}

export interface Scenario {
  readonly title: string;
  /** What the machine lacks, in words for a person; undefined where it can run. */
  readonly missing?: () => string | undefined;
  readonly run: (budget: Budget) => Promise<Finding>;
}
