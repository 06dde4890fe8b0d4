/** Every scenario for a few seconds, and proof that something happened in it: `npm run torture` goes on for longer. */

import { expect, test } from "bun:test";
import { isLong } from "../support/long.ts";
import { createRandom, tellingSeed } from "../support/random.ts";
import { changes, changesCheat } from "./changes.ts";
import { contest } from "./contest.ts";
import { diskFaults } from "./disk-faults.ts";
import { diskHang, diskHangCheat } from "./disk-hang.ts";
import { diskLost, diskLostCheat } from "./disk-lost.ts";
import { failOver, failOverCheat } from "./fail-over.ts";
import { fuzz } from "./fuzz.ts";
import { kill } from "./kill.ts";
import { memory } from "./memory.ts";
import { overload } from "./overload.ts";
import { postgres, postgresCheat } from "./postgres.ts";
import { powerLoss, powerLossCheat } from "./power-loss.ts";
import type { Finding, Scenario } from "./scenario.ts";
import { slowClients } from "./slow-clients.ts";
import { soak } from "./soak.ts";
import { webhooks, webhooksCheat } from "./webhooks.ts";

/** Each time twice as long: a slow machine gets the time that it needs. */
const TRIES = 5;

/** Fails where the scenario found a fault, or did not do as much as it should. */
async function expectNoFault(
  scenario: Scenario,
  seconds: number,
  atLeast: Readonly<Record<string, number>> = {},
  tries = TRIES,
): Promise<Finding["figures"]> {
  const { figures, faults } = await scenario.run({
    seconds,
    random: createRandom(),
    tell: () => undefined,
    isShort: true,
  });
  expect(faults.slice(0, 10)).toEqual([]);
  const lacking = Object.entries(atLeast).filter(([name, due]) => !(Number(figures[name]) > due));
  if (lacking.length > 0 && tries > 1)
    return expectNoFault(scenario, 2 * seconds + 1, atLeast, tries - 1);
  expect(lacking).toEqual([]);
  return figures;
}

const torture = (
  name: string,
  scenario: Scenario,
  seconds: number,
  atLeast: Readonly<Record<string, number>> = {},
): void =>
  test.skipIf(scenario.missing?.() !== undefined)(name, () =>
    tellingSeed(async () => void (await expectNoFault(scenario, seconds, atLeast))),
  );

/** Only in `npm run test:long`. */
const tortureLong: typeof torture = (...args) => (isLong ? torture(...args) : undefined);

torture("a service that is killed at any moment loses nothing and stores nothing half", kill, 2, {
  kills: 3,
  "writes acknowledged": 0,
  "plants compared": 0,
});

torture("many clients change the same few plants: one order explains every answer", contest, 4, {
  "sqlite: operations": 500,
  "sqlite: falsified histories noticed": 20,
});

torture("readers of changes miss nothing, whatever service is killed", changes, 2, {
  "sqlite: changes seen by each reader": 20,
  "sqlite: connections of readers": 8,
});

tortureLong("readers that do not resume where they were are found out", changesCheat, 0);

torture("a receiver of webhooks gets every change in order, whatever is killed", webhooks, 1, {
  "sqlite: changes received": 20,
  "sqlite: receivers ended": 0,
});

tortureLong("a receiver that drops what it has taken is found out", webhooksCheat, 0);

torture("when the power goes, nothing that was acknowledged is lost", powerLoss, 2, {
  losses: 3,
  "images of the disk examined": 0,
  "writes acknowledged": 0,
});

tortureLong(
  "a log that is not synced, and a disk that lies about syncs, are caught",
  powerLossCheat,
  2,
  {
    "a log that is not synced: found out": 0,
    "a disk that lies about syncs: found out": 0,
  },
);

torture(
  "a disk that fails has writes refused, and loses none that was acknowledged",
  diskFaults,
  2,
  {
    "ends by a kill or a loss of power": 0,
    "writes acknowledged": 0,
    "plants compared": 0,
  },
);

torture("when the disk is lost, its backups have everything up to the last append", diskLost, 0, {
  "moments compared": 0,
  "writes acknowledged": 0,
});

tortureLong("a change log that lacks lines is found out", diskLostCheat, 0);

torture("while a sync hangs only writes wait, and none is stored after its refusal", diskHang, 0, {
  hangs: 1,
  "writes acknowledged": 0,
  "writes refused": 0,
});

tortureLong("a service that a hanging disk holds up is found out", diskHangCheat, 0);

torture(
  "no mutated request ends the process, is answered improperly, or is stored unacknowledged",
  fuzz,
  0,
  {
    "requests, mutated as bytes": 300,
    "requests, mutated in their values": 2_000,
  },
);

tortureLong(
  "under ten times its load the service goes on, refuses properly, and recovers",
  overload,
  6,
  {
    "crowd: acknowledged plants": 100,
    "slow store: refused a second meanwhile": 100,
    "large pages: pages read": 8,
  },
);

torture(
  "under everything at once the answers are right, nothing is logged as an error, and memory stays",
  soak,
  2,
  {
    requests: 500,
  },
);

tortureLong("clients that read or finish nothing cannot take all memory", memory, 0);

tortureLong(
  "slow and idle clients are cut off in time, and others are served meanwhile",
  slowClients,
  4,
  {
    "acknowledged plants": 100,
  },
);

test.skipIf(postgres.missing?.() !== undefined)(
  "three services and their PostgreSQL server suffer every kind of mishap under load, and nothing is lost",
  () =>
    tellingSeed(async () => {
      const figures = await expectNoFault(postgres, 5);
      // Otherwise nothing was shown: no client was cut off, or none met another.
      for (const [name, figure] of Object.entries(figures))
        if (/^(contest|writes)/.test(name)) expect(figure).toBeGreaterThan(0);
    }),
);

torture(
  "the service goes over to a promoted standby, whatever became of the primary, and nothing is lost",
  failOver,
  0,
  {
    "writes acknowledged": 0,
  },
);

tortureLong("an asynchronous standby does lose plants, and the torture notices", failOverCheat, 0);

tortureLong(
  "a server that commits too late does lose plants, and the torture notices",
  postgresCheat,
  0,
);
