/** The primary fails under load, and its standby takes over: nothing that was acknowledged is lost. */

import { spawnService } from "../support/command.ts";
import type { StoredPlant } from "../support/plants.ts";
import { startPair } from "../support/postgres-server.ts";
import type { Random } from "../support/random.ts";
import { until } from "../support/until.ts";
import { findFaults, findNewest, Follower, untilCaughtUp } from "./changes.ts";
import { Load } from "./mixed-load.ts";
import {
  BATCH_LENGTH_MAX,
  environment,
  findDelays,
  findMissingPostgres,
  findUnsound,
} from "./postgres-scene.ts";
import { deal, endsAfter, Findings, type Scenario } from "./scenario.ts";

const LONG = { writesBeforeMax: 2_000, writesAfter: 500 };
const SHORT = { writesBeforeMax: 300, writesAfter: 100 };
const KILLED = "primary killed";

/** What becomes of the primary before its standby is promoted, and after the load flows again. */
interface Round {
  readonly before?: (scene: PairScene, random: Random) => Promise<void>;
  readonly after?: (scene: PairScene) => void;
}

const rounds: Readonly<Record<string, Round>> = {
  [KILLED]: {
    before: async ({ pair, load: { clients } }, random) => {
      await pair.primary.kill();
      const { unsettled } = clients;
      // Half of the time too late for those who wait.
      if (random.chance(50)) await until("a write is cut off", () => clients.unsettled > unsettled);
    },
  },
  "primary silent, and back later": {
    before: ({ pair }) => pair.primary.pause(),
    after: ({ pair }) => pair.primary.resume(),
  },
  // It waits for a standby that it no longer has, and so acknowledges nothing.
  "primary alive": {},
};

export const failOver: Scenario = {
  title: "a standby is promoted, whatever became of the primary, and nothing is lost",
  missing: findMissingPostgres,
  run: async (budget) => {
    const { random, tell, isShort = false } = budget;
    const { writesBeforeMax, writesAfter } = isShort ? SHORT : LONG;
    const findings = new Findings();
    const kinds = Object.keys(rounds);
    // Only the first has a contest and a feed.
    const few = [KILLED, random.pick(kinds.filter((kind) => kind !== KILLED))];
    for (const kind of isShort ? few : deal(kinds, budget, endsAfter(budget.seconds))) {
      await using scene = await openPair(true, random, kind === KILLED);
      const { pair, load } = scene;
      const { clients } = load;
      await clients.untilAcknowledged(1 + random.below(writesBeforeMax));
      await rounds[kind]?.before?.(scene, random);
      const orderedAtMs = performance.now();
      const resumed = load.flow(1);
      await pair.promote();
      const found = await resumed;
      findings.note(kind, performance.now() - orderedAtMs);
      found.push(...(await load.flow(writesAfter)));
      rounds[kind]?.after?.(scene);
      found.push(...(await load.flow(writesAfter)), ...(await compare(scene)));
      found.push(...findDelays(clients), ...(await findUnsound(scene.service)));
      findings.faults.push(...found.map((fault) => `${kind}: ${fault}`));
      findings.count("changes in the feed", scene.follower?.seen.length ?? 0);
      findings.count("operations of the contest", load.contest.operations);
      findings.count("changes by filter in the contest", load.contest.counts.swept);
      findings.count("writes acknowledged", clients.acknowledged);
      findings.count("writes refused for now, or cut off", clients.unsettled);
      tell(`${kind}: ${clients.acknowledged} writes acknowledged`);
    }
    return findings;
  },
};

const CLIENTS = 24;
const CONTENDERS = 8;

type PairScene = Awaited<ReturnType<typeof openPair>>;

/** An old primary that could still be read would show old plants, so a contest and a feed need one that is dead. */
async function openPair(synchronous: boolean, random: Random, isContested = false) {
  await using opened = new AsyncDisposableStack();
  const pair = opened.use(await startPair({ synchronous }));
  const { primary, standby } = pair;
  const DATABASE_URL = `postgres://postgres@127.0.0.1:${primary.port},127.0.0.1:${standby.port}/postgres`;
  const service = opened.use(await spawnService({ ...environment, DATABASE_URL }));
  const surroundings = {
    findUrl: () => service.started.url,
    batchLengthMax: BATCH_LENGTH_MAX,
    mayReadOld: !isContested,
  };
  const contenders = isContested ? CONTENDERS : 0;
  const load = opened.use(new Load(CLIENTS, contenders, surroundings, random));
  const follower = isContested ? new Follower(surroundings.findUrl) : undefined;
  opened.defer(async () => follower?.stop());
  const scene = opened.move();
  const close = (): Promise<void> => scene.disposeAsync();
  return { pair, service, load, follower, [Symbol.asyncDispose]: close };
}

/** After the standby has taken over: all in which it, or its feed, differs from what the clients were told. */
async function compare({ pair, load, service, follower }: PairScene): Promise<string[]> {
  await load[Symbol.asyncDispose]();
  const rows = await pair.standby.run<StoredPlant>("SELECT id, name, tag FROM plants");
  const faults = load.compare(rows);
  if (follower === undefined) return faults;
  faults.push(
    ...(await untilCaughtUp(follower, Number(await findNewest(service.started.url)))),
    ...findFaults(follower.seen, rows),
  );
  return faults;
}

const WRITES = 500;
/** At least this many losses of each kind; there are dozens. */
const LOSSES_MIN = 5;
const losses = ["lost after", "stored although", "not as it was acknowledged"];

export const failOverCheat: Scenario = {
  title: "an asynchronous standby is promoted: the losses have to be found",
  missing: findMissingPostgres,
  run: async ({ random }) => {
    await using scene = await openPair(false, random);
    const { pair, load } = scene;
    await load.clients.untilAcknowledged(WRITES);
    await pair.cutOff();
    await load.clients.untilAcknowledged(WRITES);
    await pair.primary.kill();
    await load.clients.stop();
    await pair.promote();
    const found = await compare(scene);
    const counts = losses.map((loss) => found.filter((text) => text.includes(loss)).length);
    return {
      figures: Object.fromEntries(losses.map((loss, nth) => [loss, counts[nth] ?? 0])),
      faults: counts.every((count) => count > LOSSES_MIN) ? [] : ["too few losses were found"],
    };
  },
};
