/**
 * Many clients change the same few plants, through services that are killed, on databases that fail over: one order
 * explains every answer.
 */

import { type ServiceProcess, spawnService } from "../support/command.ts";
import { type Engine, openTestDatabase } from "../support/database.ts";
import { Contest, type Event, isLinearizable } from "../support/history.ts";
import { perform } from "../support/model.ts";
import type { StoredPlant } from "../support/plants.ts";
import { createRandom, type Random } from "../support/random.ts";
import { startPair } from "../support/postgres-server.ts";
import { readPair, urlOf } from "./fail-over.ts";
import { environment, findMissingPostgres } from "./postgres-scene.ts";
import { type Budget, type Finding, runEach, type Scenario } from "./scenario.ts";

const CLIENTS = 24;
const SERVICES = 2;
const KILL_MS_MAX = 1_000;
/** Some clients are refused before the standby takes over, and some wait for it. */
const PROMOTE_MS_MAX = 3_000;
/** Histories with one wrong answer. Each has to be noticed. */
const FALSIFIED_MAX = 300;

interface Place extends AsyncDisposable {
  readonly url: string;
  readonly readPlants: () => Promise<readonly StoredPlant[]>;
  /** Happens once, after half of the time. */
  readonly failOver?: () => Promise<void>;
}

type Kind = Engine | "fail-over";

export const contest: Scenario = {
  title: "many clients change the same few plants: one order explains every answer",
  run: (budget) =>
    runEach<Kind>(
      findMissingPostgres() === undefined ? ["sqlite", "postgres", "fail-over"] : ["sqlite"],
      budget,
      runOn,
    ),
};

async function openPlace(kind: Kind, random: Random): Promise<Place> {
  if (kind !== "fail-over") return openTestDatabase(kind);
  const pair = await startPair({ synchronous: true });
  return {
    url: urlOf(pair),
    readPlants: () => readPair(pair),
    // The old primary stays dead: one that could still be read would show old plants.
    failOver: async () => {
      await pair.primary.kill();
      await Bun.sleep(random.below(PROMOTE_MS_MAX));
      await pair.promote();
    },
    [Symbol.asyncDispose]: () => pair[Symbol.asyncDispose](),
  };
}

async function runOn(kind: Kind, { seconds, random, tell }: Budget): Promise<Finding> {
  await using place = await openPlace(kind, random);
  await using services = new AsyncDisposableStack();
  const spawn = async (): Promise<ServiceProcess> =>
    services.use(
      await spawnService({
        ...environment,
        DATABASE_URL: place.url,
        PLANTSTORE_WORKERS: random.pick(["1", "2"]),
      }),
    );
  const running: ServiceProcess[] = [];
  for (let nth = 0; nth < SERVICES; nth++) running.push(await spawn());
  const fork = (): Random => createRandom(random.below(2 ** 31));
  const choosing = fork();
  const findUrl = (): string => choosing.pick(running).started.url;
  await using clients = new Contest(CLIENTS, { findUrl }, fork());
  const startedAtMs = performance.now();
  const hasPassed = (share: number): boolean =>
    performance.now() - startedAtMs > seconds * 1_000 * share;
  let kills = 0;
  let isFailedOver = place.failOver === undefined;
  do {
    await Bun.sleep(random.below(KILL_MS_MAX));
    const index = random.below(SERVICES);
    (running[index] as ServiceProcess).kill("SIGKILL");
    running[index] = await spawn();
    kills++;
    if (isFailedOver || !hasPassed(0.5)) continue;
    await place.failOver?.();
    isFailedOver = true;
  } while (!isFailedOver || !hasPassed(1));
  await clients.stop();
  const faults = clients.compare(await place.readPlants());
  const { falsified, missed } = falsify(clients.history.list(), random);
  tell(`${kind}: ${clients.history.size} operations, ${kills} kills`);
  if (missed > 0) faults.push(`${missed} of ${falsified} falsified histories were not noticed`);
  return {
    faults,
    figures: {
      operations: clients.history.size,
      "services killed": kills,
      "falsified histories noticed": falsified - missed,
      ...clients.counts,
    },
  };
}

/** Answers a read with what was replaced or removed before it was sent, and expects that to be noticed. */
function falsify(
  histories: readonly (readonly Event[])[],
  random: Random,
): { readonly falsified: number; readonly missed: number } {
  let [falsified, missed] = [0, 0];
  const reads = histories.flatMap((events) =>
    events.flatMap((event) => (event.operation.kind === "read" ? [{ events, read: event }] : [])),
  );
  for (let tries = 0; tries < FALSIFIED_MAX * 10 && falsified < FALSIFIED_MAX; tries++) {
    if (reads.length === 0) break;
    const { events, read } = random.pick(reads);
    const stale = findStale(events, read, random);
    if (stale === undefined) continue;
    const { answer } = perform(stale, read.operation);
    // What follows the read says nothing about it.
    const upTo = events.filter(({ sentAt }) => sentAt <= read.sentAt);
    const history = upTo.with(upTo.indexOf(read), { ...read, answer });
    falsified++;
    if (isLinearizable(history)) missed++;
  }
  return { falsified, missed };
}

/** What an acknowledged write wrote that was over before another one, which itself was over before the read. */
function findStale(events: readonly Event[], read: Event, random: Random): StoredPlant | undefined {
  if (read.answeredAt === undefined) return undefined;
  const changes = events.filter(
    ({ answer, answeredAt = Infinity, operation }) =>
      operation.kind !== "read" &&
      answer !== undefined &&
      answer.status < 300 &&
      answer.isReplay !== true &&
      answeredAt < read.sentAt,
  );
  if (changes.length < 2) return undefined;
  const first = random.pick(changes);
  const { answeredAt = Infinity, operation } = first;
  const isOver = changes.some(({ sentAt }) => sentAt > answeredAt);
  if (!isOver || !("plant" in operation)) return undefined;
  const writers = events.filter(
    (event) => "plant" in event.operation && event.operation.plant.name === operation.plant.name,
  );
  return writers.length === 1 ? operation.plant : undefined;
}
