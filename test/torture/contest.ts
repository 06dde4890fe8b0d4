/** Many clients change the same few plants, through services that are killed: one order explains every answer. */

import { type Engine, openTestDatabase } from "../support/database.ts";
import { Fleet } from "../support/fleet.ts";
import { Contest, type Event, isLinearizable } from "../support/history.ts";
import { perform } from "../support/model.ts";
import type { StoredPlant } from "../support/plants.ts";
import { fork, type Random } from "../support/random.ts";
import { environment, runOnEngines } from "./postgres-scene.ts";
import { type Budget, endsAfter, type Finding, type Scenario } from "./scenario.ts";

const CLIENTS = 24;
const KILL_MS_MAX = 1_000;
/** Histories with one wrong answer. Each has to be noticed. */
const FALSIFIED_MAX = 300;

export const contest: Scenario = {
  title: "many clients change the same few plants, and one order explains every answer",
  run: (budget) => runOnEngines(budget, runOn),
};

async function runOn(engine: Engine, { seconds, random, tell }: Budget): Promise<Finding> {
  await using database = await openTestDatabase(engine);
  await using fleet = new Fleet(undefined, database.url, environment);
  await fleet.startOneByOne(2);
  const choosing = fork(random);
  const findUrl = (): string => fleet.findUrl(choosing);
  await using clients = new Contest(CLIENTS, { findUrl }, fork(random));
  const isOver = endsAfter(seconds);
  do {
    await Bun.sleep(random.below(KILL_MS_MAX));
    await fleet.replaceAny(random);
  } while (!isOver());
  await clients.stop();
  const faults = clients.compare(await database.readPlants());
  const { falsified, missed } = falsify(clients.history.list(), random);
  tell(`${engine}: ${clients.history.size} operations, ${fleet.ended.length} kills`);
  if (missed > 0) faults.push(`${missed} of ${falsified} falsified histories were not noticed`);
  return {
    faults,
    figures: {
      operations: clients.history.size,
      "services killed": fleet.ended.length,
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
