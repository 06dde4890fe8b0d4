/** Every scenario for a few seconds, and proof that something happened in it: `npm run torture` runs longer. */

import { expect, test } from "bun:test";
import { isLong } from "../support/long.ts";
import { createRandom, tellingSeed } from "../support/random.ts";
import { scenarios } from "./main.ts";
import type { Scenario } from "./scenario.ts";

interface Short {
  readonly seconds: number;
  /** Figures that have to be larger. */
  readonly atLeast?: Readonly<Record<string, number>>;
  /** Only in `npm run test:long`. */
  readonly inLongOnly?: boolean;
}

const shorts: Readonly<Record<string, Short>> = {
  contest: {
    seconds: 3,
    atLeast: {
      "sqlite: operations": 500,
      "sqlite: twins": 0,
      "sqlite: swept": 0,
      "sqlite: falsified histories noticed": 5,
      "sqlite: changes seen by each reader": 20,
      "sqlite: connections of readers": 8,
      "sqlite: receivers ended": 0,
    },
  },
  "power-loss": {
    seconds: 2,
    atLeast: { losses: 3, "images of the disk examined": 0, "writes acknowledged": 0 },
  },
  "disk-faults": {
    seconds: 2,
    atLeast: {
      "ends by a kill or a loss of power": 0,
      "writes acknowledged": 0,
      "plants compared": 0,
    },
  },
  "disk-hang": {
    seconds: 0,
    atLeast: {
      "hangs of sync": 1,
      "hangs of reads": 1,
      "writes acknowledged": 0,
      "writes refused": 0,
    },
  },
  "disk-lost": { seconds: 0, atLeast: { "writes acknowledged": 0, "moments compared": 0 } },
  // Ends when it noticed something: a copy that follows the dropped lines makes up for them.
  "disk-lost-cheat": { seconds: 120, inLongOnly: true },
  "worst-day": { seconds: 2, atLeast: { sequences: 3, restores: 10, healed: 1 } },
  "worst-day-cheat": { seconds: 0 },
  postgres: {
    seconds: 5,
    // Otherwise nothing was shown: no client was cut off, or none met another.
    atLeast: {
      "writes acknowledged": 0,
      "writes refused for now, or cut off": 0,
      "contest: created": 0,
      "contest: replayed": 0,
      "contest: taken": 0,
      "contest: replaced": 0,
      "contest: removed": 0,
      "contest: tooLate": 0,
    },
  },
  "fail-over": {
    seconds: 0,
    atLeast: {
      "writes acknowledged": 0,
      "operations of the contest": 0,
      "changes in the feed": 0,
    },
  },
  freeze: { seconds: 0, atLeast: { "sqlite: freezes": 0, "sqlite: plants compared": 0 } },
  "freeze-cheat": { seconds: 120, inLongOnly: true },
  cluster: { seconds: 5, atLeast: { "writes acknowledged": 0, "calls of @plantstore/client": 0 } },
  overload: { seconds: 0, atLeast: { "crowd: acknowledged plants": 10_000 }, inLongOnly: true },
  soak: { seconds: 1, atLeast: { requests: 500 } },
  fuzz: {
    seconds: 0,
    atLeast: { "requests, mutated as bytes": 300, "requests, mutated in their values": 2_000 },
  },
};

/** Each time twice as long: a slow machine gets the time that it needs. */
const TRIES = 5;

/** Fails where the scenario found a fault, or did not do as much as it should. */
async function expectNoFault(
  scenario: Scenario,
  { seconds, atLeast = {} }: Short,
  tries = TRIES,
): Promise<void> {
  const budget = { seconds, random: createRandom(), tell: () => undefined, isShort: true };
  const { figures, faults } = await scenario.run(budget);
  expect(faults.slice(0, 10)).toEqual([]);
  const lacking = Object.entries(atLeast).filter(([name, due]) => !(Number(figures[name]) > due));
  if (lacking.length > 0 && tries > 1)
    return expectNoFault(scenario, { seconds: 2 * seconds + 1, atLeast }, tries - 1);
  expect(lacking).toEqual([]);
}

for (const [name, scenario] of Object.entries(scenarios)) {
  const { inLongOnly = false, ...short } = shorts[name] ?? { seconds: 0, inLongOnly: true };
  const lacking = scenario.missing?.();
  if (lacking !== undefined) process.stderr.write(`${name} is skipped: ${lacking}\n`);
  test.skipIf((inLongOnly && !isLong) || lacking !== undefined)(`${name}: ${scenario.title}`, () =>
    tellingSeed(() => expectNoFault(scenario, short)),
  );
}
