/** What a disk can do wrong without losing its power, and what a service has to show of it. */

import type { Random } from "../support/random.ts";
import { EIO, ENOSPC, type Trouble } from "./disk-control.ts";

export interface FaultKind {
  readonly name: string;
  readonly choose: (random: Random) => Trouble;
  /**
   * `refuses`: no write can be done, so that it is not ready either. `hides`: nobody notices but by the time it
   * takes. `may refuse`: some can be done and some cannot.
   */
  readonly effect: "refuses" | "may refuse" | "hides";
}

const AT_TIMES_PERCENTS = [2, 10, 40];

export const faultKinds: readonly FaultKind[] = [
  {
    name: "no space",
    choose: () => ({ writeFailsPercent: 100, writeError: ENOSPC }),
    effect: "refuses",
  },
  {
    name: "write errors",
    choose: () => ({ writeFailsPercent: 100, writeError: EIO }),
    effect: "refuses",
  },
  {
    name: "sync errors",
    choose: () => ({ syncFailsPercent: 100 }),
    effect: "refuses",
  },
  {
    name: "write errors at times",
    choose: (random) => ({
      writeFailsPercent: random.pick(AT_TIMES_PERCENTS),
      writeError: random.pick([EIO, ENOSPC]),
    }),
    effect: "may refuse",
  },
  {
    name: "sync errors at times",
    choose: (random) => ({ syncFailsPercent: random.pick(AT_TIMES_PERCENTS) }),
    effect: "may refuse",
  },
  {
    name: "short writes, then no space",
    choose: (random) => ({
      writeShortenedPercent: 50,
      writeFailsPercent: random.pick(AT_TIMES_PERCENTS),
      writeError: ENOSPC,
    }),
    effect: "may refuse",
  },
  {
    name: "read errors",
    choose: (random) => ({ readFailsPercent: random.pick([5, 50, 100]) }),
    effect: "may refuse",
  },
  { name: "short writes", choose: () => ({ writeShortenedPercent: 50 }), effect: "hides" },
  {
    name: "slow syncs",
    choose: (random) => ({ syncMs: 10 + random.below(490) }),
    effect: "hides",
  },
];
