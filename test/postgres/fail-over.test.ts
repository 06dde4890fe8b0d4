/** The primary dies under load, and its standby takes over: nothing that was acknowledged is lost. */

import { expect, test } from "bun:test";
import { type ServiceProcess, spawnService } from "../support/child.ts";
import { compareGardens, Gardeners } from "../support/gardener.ts";
import type { StoredPlant } from "../support/plants.ts";
import { type PostgresPair, startPair } from "../support/postgres-pair.ts";
import { signal, stopProcesses } from "../support/processes.ts";
import { createRandom, tellingSeed } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";

const rounds = Number(process.env["PLANTSTORE_TEST_FAILOVER_ROUNDS"] ?? 1);
const ROUND_MS_MAX = 60_000;

const GARDENERS = 24;
const WRITES_BEFORE_MAX = 2_000;
const WRITES_AFTER = 500;
const STATEMENT_SECONDS_MAX = 1;
const QUEUE_SECONDS_MAX = 2;
/** From the order to promote to the first write that is acknowledged, on a busy machine. */
const RESUME_MS_MAX = 10_000;
/** Beyond the time that a write may wait. */
const ANSWER_SLACK_MS = 5_000;

const random = createRandom();

interface Scene extends AsyncDisposable {
  readonly pair: PostgresPair;
  readonly service: ServiceProcess;
  readonly gardeners: Gardeners;
}

/** Resolves when it has been under load for a while. */
async function open(options: { readonly synchronous: boolean }): Promise<Scene> {
  await using opened = new AsyncDisposableStack();
  const pair = opened.use(await startPair(options));
  const ports = [pair.primary.port, pair.standby.port];
  const service = opened.use(
    await spawnService({
      PLANTSTORE_TOKEN: TEST_TOKEN,
      DATABASE_URL: `postgres://postgres@${ports.map((port) => `127.0.0.1:${port}`).join()}/postgres`,
      PLANTSTORE_STATEMENT_SECONDS_MAX: String(STATEMENT_SECONDS_MAX),
      PLANTSTORE_QUEUE_SECONDS_MAX: String(QUEUE_SECONDS_MAX),
    }),
  );
  const surroundings = { findUrl: () => service.started.url };
  const gardeners = opened.use(new Gardeners(GARDENERS, surroundings, random));
  await gardeners.untilAcknowledged(1 + random.below(WRITES_BEFORE_MAX));
  const scene = opened.move();
  return { pair, service, gardeners, [Symbol.asyncDispose]: () => scene.disposeAsync() };
}

async function promote({ pair, gardeners }: Scene): Promise<void> {
  const resumed = gardeners.untilAcknowledged(1).then(() => performance.now());
  const orderedAtMs = performance.now();
  await pair.promote();
  const resumeMs = (await resumed) - orderedAtMs;
  expect(resumeMs).toBeLessThan(RESUME_MS_MAX);
  await gardeners.untilAcknowledged(WRITES_AFTER);
}

const findFaults = async ({ pair, gardeners }: Scene): Promise<string[]> =>
  compareGardens(
    gardeners.all,
    await pair.standby.run<StoredPlant>("SELECT id, name, tag FROM plants"),
  );

async function expectNothingLost(scene: Scene): Promise<void> {
  const { service, gardeners } = scene;
  await gardeners.stop();
  expect((await findFaults(scene)).slice(0, 10)).toEqual([]);
  expect(gardeners.answerMsMax).toBeLessThan(QUEUE_SECONDS_MAX * 1_000 + ANSWER_SLACK_MS);
  // It is the very process that was there before, and it is sound.
  service.kill("SIGTERM");
  expect(await service.exited).toBe(0);
  expect(await service.stderr).not.toContain('"level":"error"');
}

async function repeat(run: () => Promise<void>): Promise<void> {
  for (let round = 0; round < rounds; round++) await run();
}

const times = rounds === 1 ? "" : `, ${rounds} times over`;

test(
  `a primary is killed under load, and its standby promoted: the service goes on, and nothing is lost${times}`,
  () =>
    tellingSeed(() =>
      repeat(async () => {
        await using scene = await open({ synchronous: true });
        await scene.pair.primary.kill();
        // Half of the time too late for those who wait.
        if (random.chance(50)) await scene.gardeners.untilUnsettled();
        await promote(scene);
        await expectNothingLost(scene);
      }),
    ),
  rounds * ROUND_MS_MAX,
);

test(
  `a primary falls silent under load, and comes back after its standby was promoted: the service has gone on, and leaves it alone${times}`,
  () =>
    tellingSeed(() =>
      repeat(async () => {
        await using scene = await open({ synchronous: true });
        await scene.pair.primary.pause();
        await promote(scene);
        scene.pair.primary.resume();
        await scene.gardeners.untilAcknowledged(WRITES_AFTER);
        await expectNothingLost(scene);
      }),
    ),
  rounds * ROUND_MS_MAX,
);

test(
  `a standby is promoted while its primary lives on, cut off from it: the service goes over to the new one${times}`,
  () =>
    tellingSeed(() =>
      repeat(async () => {
        await using scene = await open({ synchronous: true });
        await promote(scene);
        await expectNothingLost(scene);
      }),
    ),
  rounds * ROUND_MS_MAX,
);

test(
  "a standby that nobody waits for does lose plants, and these tests would tell",
  () =>
    tellingSeed(async () => {
      await using scene = await open({ synchronous: false });
      const { pair, gardeners } = scene;
      const [receiver] = await pair.standby.run<{ pid: number }>(
        "SELECT pid FROM pg_stat_wal_receiver",
      );
      if (receiver === undefined) throw new Error("the standby receives nothing");
      await stopProcesses(receiver.pid);
      await gardeners.untilAcknowledged(WRITES_AFTER);
      await pair.primary.kill();
      await gardeners.stop();
      // It ends before it reads what the system has kept for it.
      signal(receiver.pid, "SIGTERM");
      signal(receiver.pid, "SIGCONT");
      await pair.promote();
      const faults = await findFaults(scene);
      for (const fault of ["acknowledged, and lost", "removed, and back again", "and otherwise"])
        expect(faults.filter((text) => text.includes(fault)).length).toBeGreaterThan(5);
    }),
  ROUND_MS_MAX,
);
