/** The primary fails under load, and its standby takes over: nothing that was acknowledged is lost. */

import { Clients } from "../support/clients.ts";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import type { StoredPlant } from "../support/plants.ts";
import { type PairOptions, type PostgresPair, startPair } from "../support/postgres-server.ts";
import { createRandom, type Random } from "../support/random.ts";
import {
  BATCH_LENGTH_MAX,
  environment,
  findDelays,
  findMissingPostgres,
  findUnsound,
} from "./postgres-scene.ts";
import { deal, type Scenario, Times, within } from "./scenario.ts";

const LONG = { writesBeforeMax: 2_000, writesAfter: 500 };
const SHORT = { writesBeforeMax: 300, writesAfter: 100 };
/** From the order to promote to the first write that is acknowledged, on a busy machine. */
const RESUME_MS_MAX = 60_000;
/** For the load to flow as before. */
const FLOW_MS_MAX = 60_000;

interface Round {
  readonly scene: PairScene;
  readonly random: Random;
  /** Resolves when the standby has taken over, and the load flows again. */
  readonly promote: () => Promise<void>;
  readonly writesAfter: number;
}

const rounds: Readonly<Record<string, (round: Round) => Promise<void>>> = {
  "primary killed": async ({ scene, random, promote }) => {
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
  title: "a synchronous pair whose standby is promoted, whatever became of the primary",
  missing: findMissingPostgres,
  run: async ({ seconds, random, tell, isShort = false }) => {
    const startedAtMs = performance.now();
    const times = new Times();
    const faults: string[] = [];
    const sums = { acknowledged: 0, unsettled: 0, answerMsMax: 0 };
    for (const { kind, haveAllCome } of deal(Object.keys(rounds), random)) {
      const found = await fail(kind, random, times, isShort ? SHORT : LONG);
      faults.push(...found.faults.map((fault) => `${kind}: ${fault}`));
      sums.acknowledged += found.acknowledged;
      sums.unsettled += found.unsettled;
      sums.answerMsMax = Math.max(sums.answerMsMax, found.answerMsMax);
      tell(`${kind}: ${found.acknowledged} writes acknowledged, ${found.unsettled} not`);
      const isTimeOver = performance.now() - startedAtMs > seconds * 1_000;
      if ((haveAllCome || isShort) && isTimeOver) break;
    }
    return {
      figures: {
        ...times.figures(),
        "writes acknowledged": sums.acknowledged,
        "writes refused for now, or cut off": sums.unsettled,
        "longest answer (ms)": Math.round(sums.answerMsMax),
      },
      faults,
    };
  },
};

interface Found {
  readonly faults: readonly string[];
  readonly acknowledged: number;
  readonly unsettled: number;
  readonly answerMsMax: number;
}

async function fail(
  kind: string,
  random: Random,
  times: Times,
  { writesBeforeMax, writesAfter }: typeof LONG,
): Promise<Found> {
  await using scene = await openPair({ synchronous: true }, random);
  const { pair, clients, service } = scene;
  const faults: string[] = [];
  const promote = async (): Promise<void> => {
    const orderedAtMs = performance.now();
    const resumed = clients.untilAcknowledged(1).then(() => performance.now());
    await pair.promote();
    const resumeMs = ((await within(FLOW_MS_MAX, resumed)) ?? Number.NaN) - orderedAtMs;
    times.add(kind, resumeMs);
    // Not a number where it never did.
    if (!(resumeMs < RESUME_MS_MAX)) faults.push(`the first write came after ${resumeMs} ms`);
    const flow = clients.untilAcknowledged(writesAfter).then(() => true);
    if (!(await within(FLOW_MS_MAX, flow))) faults.push("the load does not flow as before");
  };
  await clients.untilAcknowledged(1 + random.below(writesBeforeMax));
  await rounds[kind]?.({ scene, random, promote, writesAfter });
  await clients.stop();
  faults.push(...(await compare(scene)), ...findDelays(clients));
  faults.push(...(await findUnsound(service)));
  return {
    faults,
    acknowledged: clients.acknowledged,
    unsettled: clients.unsettled,
    answerMsMax: clients.answerMsMax,
  };
}

const CLIENTS = 24;

interface PairScene extends AsyncDisposable {
  readonly pair: PostgresPair;
  readonly service: ServiceProcess;
  readonly clients: Clients;
}

async function openPair(options: PairOptions, random: Random): Promise<PairScene> {
  await using opened = new AsyncDisposableStack();
  const pair = opened.use(await startPair(options));
  const service = opened.use(await spawnService({ ...environment, DATABASE_URL: urlOf(pair) }));
  const surroundings = { findUrl: () => service.started.url, batchLengthMax: BATCH_LENGTH_MAX };
  const choosing = createRandom(random.below(2 ** 31));
  const clients = opened.use(new Clients(CLIENTS, surroundings, choosing));
  const scene = opened.move();
  return { pair, service, clients, [Symbol.asyncDispose]: () => scene.disposeAsync() };
}

/** Names both servers. */
export const urlOf = ({ primary, standby }: PostgresPair): string =>
  `postgres://postgres@127.0.0.1:${primary.port},127.0.0.1:${standby.port}/postgres`;

/** What the standby has. */
export const readPair = ({ standby }: PostgresPair): Promise<StoredPlant[]> =>
  standby.run<StoredPlant>("SELECT id, name, tag FROM plants");

/** After the standby has taken over: all in which it differs from what the clients were told. */
async function compare({ pair, clients }: PairScene): Promise<string[]> {
  return clients.compare(await readPair(pair));
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
