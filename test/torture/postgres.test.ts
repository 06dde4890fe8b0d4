/** The torture of PostgreSQL in short: every kind of mishap once, and proof that losses would be found. */

import { expect, test } from "bun:test";
import { failOverCheat } from "./fail-over-cheat.ts";
import { failOver } from "./fail-over.ts";
import { postgresCheat } from "./postgres-cheat.ts";
import { postgres } from "./postgres.ts";
import type { Finding, Scenario } from "./scenario.ts";
import { createRandom, tellingSeed } from "../support/random.ts";

const TEST_MS_MAX = 120_000;

async function expectNoFault(scenario: Scenario): Promise<Finding["figures"]> {
  const { figures, faults } = await scenario.run({
    seconds: 0,
    random: createRandom(),
    tell: () => undefined,
  });
  expect(faults.slice(0, 10)).toEqual([]);
  return figures;
}

test(
  "three services and their server suffer every kind of mishap under load: nothing is lost, and they do not contradict each other",
  () =>
    tellingSeed(async () => {
      const figures = await expectNoFault(postgres);
      // Otherwise nothing was shown: nobody was cut off, or nobody quarrelled.
      for (const [name, figure] of Object.entries(figures))
        if (/^(quarrel|writes)/.test(name)) expect(figure).toBeGreaterThan(5);
    }),
  TEST_MS_MAX,
);

test(
  "a standby is promoted after its primary was killed, fell silent or lives on: the service goes over to it, and nothing is lost",
  () => tellingSeed(async () => void (await expectNoFault(failOver))),
  TEST_MS_MAX,
);

test(
  "a standby that nobody waits for does lose plants, and the torture would tell",
  () => tellingSeed(async () => void (await expectNoFault(failOverCheat))),
  TEST_MS_MAX,
);

test(
  "a server that says it has committed, and has not, does lose plants, and the torture would tell",
  () => tellingSeed(async () => void (await expectNoFault(postgresCheat))),
  TEST_MS_MAX,
);
