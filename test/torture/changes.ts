/**
 * Readers follow the changes through services that are killed and replaced: each sees every change once, in order, and
 * what they have seen explains every plant that is stored.
 */

import { type Engine, openTestDatabase } from "../support/database.ts";
import { EventReader } from "../support/events.ts";
import { Fleet } from "../support/fleet.ts";
import { Contest } from "../support/history.ts";
import type { StoredPlant } from "../support/plants.ts";
import { fork } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { PATIENCE_MS } from "../support/until.ts";
import { environment, runOnEngines } from "./postgres-scene.ts";
import { asCheat, type Budget, endsAfter, type Finding, type Scenario } from "./scenario.ts";

const CLIENTS = 16;
const READERS = 6;
const KILL_MS_MAX = 1_000;
const RECONNECT_MS = 20;
const RECONNECTIONS_MIN = 3;
/** One that is told to stop ends its streams, and one that is killed does not. */
export const SIGNALS = ["SIGKILL", "SIGKILL", "SIGTERM"] as const;

const authorization = `Bearer ${TEST_TOKEN}`;

export interface Seen {
  readonly seq: number;
  readonly type: string;
  readonly id: string;
  readonly plant: string | undefined;
  readonly before: string | undefined;
}

/** Where a reader goes on after it was cut off: behind what it has seen, or, as a cheat, behind the newest change. */
type Resume = "seen" | "newest";

/** Follows the changes until it is stopped, through any service that answers. */
export class Follower {
  readonly seen: Seen[] = [];
  connections = 0;
  private readonly findUrl: () => string;
  private readonly resume: Resume;
  private readonly working: Promise<void>;
  private reader: EventReader | undefined;
  private after = "0";
  private isOver = false;

  constructor(findUrl: () => string, resume: Resume = "seen") {
    this.findUrl = findUrl;
    this.resume = resume;
    this.working = this.work();
  }

  get last(): number {
    return this.seen.at(-1)?.seq ?? 0;
  }

  async stop(): Promise<void> {
    this.isOver = true;
    await this.reader?.[Symbol.asyncDispose]();
    await this.working;
  }

  private async work(): Promise<void> {
    while (!this.isOver) {
      try {
        await this.follow(this.findUrl());
      } catch {
        // The service was killed, or is starting.
      }
      if (!this.isOver) await Bun.sleep(RECONNECT_MS);
    }
  }

  private async follow(url: string): Promise<void> {
    if (this.resume === "newest" && this.connections > 0) this.after = await findNewest(url);
    const headers = { authorization, "last-event-id": this.after };
    await using reader = await EventReader.open(url, headers);
    this.reader = reader;
    this.connections++;
    // Stopped while it connected: no further event may come.
    if (this.isOver) return;
    for (let event = await reader.next(); event !== undefined; event = await reader.next()) {
      this.seen.push(parse(event.data));
      this.after = event.id;
      if (this.isOver) return;
    }
  }
}

export function parse(data: string): Seen {
  const { seq, type, plant, before } = JSON.parse(data) as Omit<Seen, "plant" | "before"> &
    Record<"plant" | "before", object | undefined>;
  const id = /"id":(-?\d+)/.exec(data)?.[1] ?? "";
  return { seq, type, id, plant: JSON.stringify(plant), before: JSON.stringify(before) };
}

export async function findNewest(url: string): Promise<string> {
  const head = await fetch(`${url}/changes`, { method: "HEAD", headers: { authorization } });
  return head.headers.get("last-change") ?? "0";
}

/** Resolves when the reader has the newest change, or has received none for PATIENCE_MS. */
export async function untilCaughtUp(
  reader: { readonly last: number },
  newest: number,
): Promise<string[]> {
  let [last, isSilent] = [reader.last, endsAfter(PATIENCE_MS / 1_000)];
  for (; reader.last < newest && !isSilent(); await Bun.sleep(RECONNECT_MS)) {
    if (reader.last === last) continue;
    [last, isSilent] = [reader.last, endsAfter(PATIENCE_MS / 1_000)];
  }
  return reader.last < newest ? [`a reader has ${reader.last}, and the newest is ${newest}`] : [];
}

/** What is wrong with what a reader has seen, if these rows are stored in the end. */
export function findFaults(seen: readonly Seen[], rows: readonly StoredPlant[]): string[] {
  const faults: string[] = [];
  const plants = new Map<string, string>();
  let last = 0;
  for (const { seq, type, id, plant, before } of seen) {
    if (seq <= last) faults.push(`the change ${seq} came after ${last}`);
    last = seq;
    const now = plants.get(id);
    if (now !== before)
      faults.push(`${id}: ${seq} ${type} it, and it was ${now ?? "nothing"}, not ${before}`);
    if (plant === undefined) plants.delete(id);
    else plants.set(id, plant);
  }
  for (const { id, name, tag } of rows) {
    const stored = JSON.stringify({ name, tag: tag ?? undefined });
    if (plants.get(String(id)) !== stored)
      faults.push(`${id}: ${stored} is stored, and the changes say ${plants.get(String(id))}`);
    plants.delete(String(id));
  }
  for (const id of plants.keys()) faults.push(`${id}: the changes have it, and the store does not`);
  return faults;
}

async function runOn(
  engine: Engine,
  resume: Resume,
  { seconds, random, tell }: Budget,
): Promise<Finding> {
  await using database = await openTestDatabase(engine);
  await using fleet = new Fleet(undefined, database.url, environment);
  await fleet.startOneByOne(2);
  const choosing = fork(random);
  const findUrl = (): string => fleet.findUrl(choosing);
  const followers = Array.from({ length: READERS }, () => new Follower(findUrl, resume));
  await using clients = new Contest(CLIENTS, { findUrl }, fork(random));
  const isOver = endsAfter(seconds);
  const countConnections = (): number =>
    followers.reduce((sum, follower) => sum + follower.connections, 0);
  do {
    await Bun.sleep(random.below(KILL_MS_MAX));
    await fleet.replaceAny(random, random.pick(SIGNALS));
    // Otherwise nothing was shown.
  } while (!isOver() || countConnections() < READERS + RECONNECTIONS_MIN);
  await clients.stop();
  const newest = Number(await findNewest(findUrl()));
  const waited = resume === "seen" ? followers : [];
  const late = await Promise.all(waited.map((follower) => untilCaughtUp(follower, newest)));
  await Promise.all(followers.map((follower) => follower.stop()));
  const rows = await database.readPlants();
  const [first, ...others] = followers as [Follower, ...Follower[]];
  const faults = [...late.flat(), ...followers.flatMap(({ seen }) => findFaults(seen, rows))];
  const numbersOf = ({ seen }: Follower): string => seen.map(({ seq }) => seq).join();
  for (const other of others)
    if (numbersOf(other) !== numbersOf(first)) faults.push("two readers saw different changes");
  tell(`${engine}: ${first.seen.length} changes, ${fleet.ended.length} services ended`);
  return {
    faults,
    figures: {
      "changes seen by each reader": first.seen.length,
      "services ended": fleet.ended.length,
      "connections of readers": countConnections(),
    },
  };
}

export const changes: Scenario = {
  title: "readers follow the changes through services that are killed, and miss nothing",
  run: (budget) => runOnEngines(budget, (engine, its) => runOn(engine, "seen", its)),
};

/** A reader that resumes at the newest change misses some. */
export const changesCheat = asCheat(
  "readers that do not resume where they were do miss changes, and this is noticed",
  (budget) => runOn("sqlite", "newest", budget),
);
