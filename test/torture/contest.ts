/**
 * Many clients change the same few plants, through services that are killed and replaced. One order explains every
 * answer. Readers of the changes see each once, a webhook each at least once, and these explain every stored plant.
 */

import { type Engine, openTestDatabase } from "../support/database.ts";
import { Fleet } from "../support/fleet.ts";
import { Contest, type Event, isLinearizable, isTwin, twinOf } from "../support/history.ts";
import { limits } from "../support/limits.ts";
import { idOf, type Operation, perform } from "../support/model.ts";
import { fork } from "../support/random.ts";
import { findFaults, findNewest, Follower, Receiver, type Seen, untilCaughtUp } from "./changes.ts";
import { environment, findMissingPostgres } from "./postgres-scene.ts";
import { type Budget, endsAfter, noticing, runEach, type Scenario } from "./scenario.ts";

const CLIENTS = 24;
const READERS = 6;
const RECONNECTIONS_MIN = 3;
const MISHAP_MS_MAX = 1_000;
/** A service that is stopped ends its streams; one that is killed does not. */
const SIGNALS = ["SIGKILL", "SIGKILL", "SIGTERM"] as const;
/** Histories with one wrong answer. Each has to be noticed. */
const FALSIFIED_MAX = 300;

/** Other limits of a write than in `environment`: nothing happens to the database, and a busy machine is slow. */
const settings = {
  ...environment,
  // The receiver is on this machine.
  PLANTSTORE_WEBHOOKS_PRIVATE: "true",
  ...limits({
    webhookPollMs: 10,
    webhookLeaseSeconds: 1,
    webhookSecondsMax: 0.5,
    webhookRetrySeconds: Array.from({ length: 200 }, () => 0.05),
  }),
};

async function runOn(engine: Engine, { seconds, random, tell }: Budget, doReadersForget = false) {
  await using database = await openTestDatabase(engine);
  await using fleet = new Fleet(undefined, { ...settings, DATABASE_URL: database.url });
  // One after the other: only one can make an SQLite store.
  for (let nth = 0; nth < 2; nth++) await fleet.start(1);
  const choosing = fork(random);
  const findUrl = (): string => fleet.findUrl(choosing);
  await using receiver = new Receiver(fork(random), true);
  await receiver.subscribe(findUrl());
  const followers = Array.from({ length: READERS }, () => new Follower(findUrl, doReadersForget));
  await using clients = new Contest(CLIENTS, { findUrl }, fork(random));
  const isOver = endsAfter(seconds);
  const countConnections = (): number =>
    followers.reduce((sum, follower) => sum + follower.connections, 0);
  do {
    await Bun.sleep(random.below(MISHAP_MS_MAX));
    await receiver.restart();
    await fleet.replaceAny(random, random.pick(SIGNALS));
    // Otherwise nothing was shown.
  } while (!isOver() || countConnections() < READERS + RECONNECTIONS_MIN);
  await clients.stop();
  const newest = Number(await findNewest(findUrl()));
  const readers = [receiver, ...followers];
  const waited = doReadersForget ? [receiver] : readers;
  const late = await Promise.all(waited.map((reader) => untilCaughtUp(reader, newest)));
  await Promise.all(followers.map((follower) => follower.stop()));
  const rows = await database.readPlants();
  const faults = [
    ...clients.compare(rows),
    ...late.flat(),
    ...receiver.faults,
    ...readers.flatMap(({ seen }) => findFaults(seen, rows)),
    ...findSplit(receiver.seen),
  ];
  if (new Set(readers.map(({ seen }) => seen.map(({ seq }) => seq).join())).size > 1)
    faults.push("two readers saw different changes");
  const { falsified, missed } = falsify([...clients.history.values()]);
  if (missed > 0) faults.push(`${missed} of ${falsified} falsified histories were not noticed`);
  tell(`${engine}: ${clients.operations} operations, ${fleet.ended.length} services ended`);
  return {
    faults,
    figures: {
      operations: clients.operations,
      ...clients.counts,
      "services ended": fleet.ended.length,
      "falsified histories noticed": falsified - missed,
      "changes seen by each reader": receiver.seen.length,
      "connections of readers": countConnections(),
      "received again by the webhook": receiver.repeated,
      "receivers ended": receiver.stops,
    },
  };
}

/** Atomic batches whose changes are not next to each other. */
function findSplit(seen: readonly Seen[]): string[] {
  return seen.flatMap(({ seq, id }, index) => {
    if (!isTwin(BigInt(id))) return [];
    const isFirst = BigInt(id) % 2n === 0n;
    const other = seen[isFirst ? index + 1 : index - 1];
    const isWhole =
      other?.seq === (isFirst ? seq + 1 : seq - 1) && BigInt(other.id) === twinOf(BigInt(id));
    return isWhole ? [] : [`${seq}: a change of an atomic batch is alone`];
  });
}

/** Has each acknowledged replacement read again after a later one. No two write the same name. */
function falsify(histories: readonly (readonly Event[])[]) {
  let [falsified, missed] = [0, 0];
  for (const events of histories) {
    const writes = events.filter(
      ({ operation, answer }) => operation.kind === "replace" && answer?.status === 200,
    );
    for (const { operation: stale, answeredAt = Infinity } of writes) {
      const next = writes.find(({ sentAt }) => sentAt > answeredAt);
      if (next?.answeredAt === undefined || !("plant" in stale)) continue;
      if (falsified === FALSIFIED_MAX) return { falsified, missed };
      const operation: Operation = { kind: "read", id: idOf(stale) };
      const { answer } = perform(stale.plant, operation);
      const [sentAt, readAt] = [next.answeredAt + 0.1, next.answeredAt + 0.2];
      // What follows the read says nothing about it.
      const upTo = events.filter((event) => event.sentAt < sentAt);
      falsified++;
      if (isLinearizable([...upTo, { operation, answer, sentAt, answeredAt: readAt }])) missed++;
    }
  }
  return { falsified, missed };
}

export const contest: Scenario = {
  title: "clients change the same few plants: one order explains every answer and every feed",
  // On PostgreSQL too, where it is here.
  run: (budget) =>
    runEach<Engine>(
      findMissingPostgres() === undefined ? ["sqlite", "postgres"] : ["sqlite"],
      budget,
      runOn,
    ),
};

/** A reader that resumes at the newest change misses some. */
export const contestCheat: Scenario = {
  title: "readers that do not resume where they were do miss changes, and this is noticed",
  run: noticing((budget) => runOn("sqlite", budget, true)),
};
