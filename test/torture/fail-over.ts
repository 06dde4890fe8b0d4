/** The primary fails under load, and its standby takes over: nothing that was acknowledged is lost. */

import { Clients } from "../support/clients.ts";
import { spawnService } from "../support/command.ts";
import type { StoredPlant } from "../support/plants.ts";
import { startPair } from "../support/postgres-server.ts";
import { Contest } from "../support/history.ts";
import { fork, type Random } from "../support/random.ts";
import { compareBoth } from "./mixed-load.ts";
import {
  BATCH_LENGTH_MAX,
  environment,
  findDelays,
  findMissingPostgres,
  findUnsound,
} from "./postgres-scene.ts";
import { deal, endsAfter, type Scenario, within } from "./scenario.ts";

const LONG = { writesBeforeMax: 2_000, writesAfter: 500 };
const SHORT = { writesBeforeMax: 300, writesAfter: 100 };
/** For the first write after the order to promote, and for the load to flow as before. */
const FLOW_MS_MAX = 120_000;
const KILLED = "primary killed";

interface Round {
  readonly scene: PairScene;
  readonly random: Random;
  /** Resolves when the standby has taken over, and the load flows again. */
  readonly promote: () => Promise<void>;
  readonly writesAfter: number;
}

const rounds: Readonly<Record<string, (round: Round) => Promise<void>>> = {
  [KILLED]: async ({ scene, random, promote }) => {
    await scene.pair.primary.kill();
    // Half of the time too late for those who wait.
    if (random.chance(50)) await scene.clients.untilUnsettled();
    await promote();
  },

  "primary silent, and back later": async ({ scene, promote, writesAfter }) => {
    await scene.pair.primary.pause();
    await promote();
    scene.pair.primary.resume();
    await within(FLOW_MS_MAX, scene.clients.untilAcknowledged(writesAfter));
  },

  // It waits for a standby that it no longer has, and so acknowledges nothing.
  "primary alive": ({ promote }) => promote(),
};

export const failOver: Scenario = {
  title: "a standby is promoted, whatever became of the primary, and nothing is lost",
  missing: findMissingPostgres,
  run: async ({ seconds, random, tell, isShort = false }) => {
    const isOver = endsAfter(seconds);
    const timesMs: Record<string, number> = {};
    const faults: string[] = [];
    const sums = { "writes acknowledged": 0, "writes refused for now, or cut off": 0 };
    for (const { kind, haveAllCome } of deal(Object.keys(rounds), random)) {
      await using scene = await openPair({ synchronous: true }, random, kind === KILLED);
      const found = await fail(kind, scene, random, timesMs, isShort ? SHORT : LONG);
      faults.push(...found.map((fault) => `${kind}: ${fault}`));
      sums["writes acknowledged"] += scene.clients.acknowledged;
      sums["writes refused for now, or cut off"] += scene.clients.unsettled;
      tell(`${kind}: ${scene.clients.acknowledged} writes acknowledged`);
      if ((haveAllCome || isShort) && isOver()) break;
    }
    return { figures: { ...timesMs, ...sums }, faults };
  },
};

/** What is wrong after it. */
async function fail(
  kind: string,
  scene: PairScene,
  random: Random,
  /** Until the first write after each kind, at most. */
  timesMs: Record<string, number>,
  { writesBeforeMax, writesAfter }: typeof LONG,
): Promise<string[]> {
  const { pair, clients, service } = scene;
  const faults: string[] = [];
  const promote = async (): Promise<void> => {
    const orderedAtMs = performance.now();
    const resumed = within(FLOW_MS_MAX, clients.untilAcknowledged(1));
    await pair.promote();
    if ((await resumed) === undefined) faults.push("no write came after it");
    timesMs[kind] = Math.max(timesMs[kind] ?? 0, performance.now() - orderedAtMs);
    if ((await within(FLOW_MS_MAX, clients.untilAcknowledged(writesAfter))) === undefined)
      faults.push("the load does not flow as before");
  };
  await clients.untilAcknowledged(1 + random.below(writesBeforeMax));
  await rounds[kind]?.({ scene, random, promote, writesAfter });
  return [
    ...faults,
    ...(await compare(scene)),
    ...findDelays(clients),
    ...(await findUnsound(service)),
  ];
}

const CLIENTS = 24;
const CONTENDERS = 8;

type PairScene = Awaited<ReturnType<typeof openPair>>;

/** An old primary that could still be read would show old plants, so a contest needs one that is dead. */
async function openPair(
  options: Parameters<typeof startPair>[0],
  random: Random,
  isContested = false,
) {
  await using opened = new AsyncDisposableStack();
  const pair = opened.use(await startPair(options));
  const { primary, standby } = pair;
  const DATABASE_URL = `postgres://postgres@127.0.0.1:${primary.port},127.0.0.1:${standby.port}/postgres`;
  const service = opened.use(await spawnService({ ...environment, DATABASE_URL }));
  const surroundings = { findUrl: () => service.started.url, batchLengthMax: BATCH_LENGTH_MAX };
  const clients = opened.use(new Clients(CLIENTS, surroundings, fork(random)));
  const contenders = isContested ? CONTENDERS : 0;
  const contest = opened.use(new Contest(contenders, surroundings, fork(random)));
  const scene = opened.move();
  return {
    pair,
    service,
    clients,
    contest,
    [Symbol.asyncDispose]: (): Promise<void> => scene.disposeAsync(),
  };
}

/** After the standby has taken over: all in which it differs from what the clients were told. */
async function compare({ pair, clients, contest }: PairScene): Promise<string[]> {
  await Promise.all([clients.stop(), contest.stop()]);
  const rows = await pair.standby.run<StoredPlant>("SELECT id, name, tag FROM plants");
  return compareBoth(clients, contest, rows);
}

const WRITES = 500;
/** Of each kind, and there are dozens. */
const LOSSES_MIN = 5;
const losses = ["lost after", "stored although", "not as it was acknowledged"];

export const failOverCheat: Scenario = {
  title: "an asynchronous standby is promoted: the losses have to be found",
  missing: findMissingPostgres,
  run: async ({ random }) => {
    const found = await loseWrites(random);
    const counts = losses.map(
      (loss) => [loss, found.filter((text) => text.includes(loss)).length] as const,
    );
    return {
      figures: Object.fromEntries(counts),
      faults: counts
        .filter(([, count]) => count <= LOSSES_MIN)
        .map(([loss, count]) => `found ${count} plants “${loss}”; expected more`),
    };
  },
};

async function loseWrites(random: Random): Promise<string[]> {
  await using scene = await openPair({ synchronous: false }, random);
  const { pair, clients } = scene;
  await clients.untilAcknowledged(WRITES);
  await pair.cutOff();
  await clients.untilAcknowledged(WRITES);
  await pair.primary.kill();
  await clients.stop();
  await pair.promote();
  // Not without waiting: the scene would be over.
  return await compare(scene);
}
