/**
 * The service is killed between the commits of a request that writes many plants. What was acknowledged is stored, an
 * atomic batch is whole or absent, and the request, sent again to the next service, does the rest and nothing twice.
 */

import { describe, expect, test } from "bun:test";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import { toLine } from "../support/clients.ts";
import { openStoreAt, openTestDatabase, type TestDatabase } from "../support/database.ts";
import { limits } from "../support/limits.ts";
import { runsFactor } from "../support/long.ts";
import { idOf, isSameState, Ledger, type Operation, perform } from "../support/model.ts";
import type { StoredPlant } from "../support/plants.ts";
import { createRandom, type Random, tellingSeed } from "../support/random.ts";
import { bearer, grantToken, send, type Sent, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";
import { findFaults, parseChange } from "../torture/changes.ts";

export const groups = ["sqlite", "postgres", "serializable"];

const PLANTS = 60;
const ids = Array.from({ length: PLANTS }, (_, index) => BigInt(index + 1));
/** The slow token can write this many plants, one a commit. Then it would wait for hours. */
const PAID = 20;
const TAG = "bed";
const NDJSON = { "content-type": "application/x-ndjson" };
const ATOMIC_KILL_MS_MAX = 12;

class Scene implements AsyncDisposable {
  readonly ledger = new Ledger();
  readonly random: Random;
  readonly database: TestDatabase;
  readonly slow: string;
  private service: ServiceProcess | undefined;
  private serial = 0;

  constructor(database: TestDatabase, slow: string, random: Random) {
    this.database = database;
    this.slow = slow;
    this.random = random;
  }

  static async open(random: Random): Promise<Scene> {
    const database = await openTestDatabase();
    await using store = await openStoreAt(database.url);
    const rate = `${PAID}/h`;
    const slow = await grantToken({ store }, ["plants:read", "plants:write"], { rate });
    return new Scene(database, slow, random);
  }

  async start(): Promise<void> {
    this.service = await spawnService({
      DATABASE_URL: this.database.url,
      PLANTSTORE_TOKEN: TEST_TOKEN,
      PLANTSTORE_LOG_LEVEL: "error",
      ...limits({ jobLostSeconds: 0 }),
    });
  }

  /** Resolves when no statement of the service is left: the server of a database finishes those that it has begun. */
  async kill(): Promise<void> {
    this.service?.kill("SIGKILL");
    await this.service?.exited;
    await (await this.database.holdWrites()).release();
  }

  send(method: string, path: string, sent: Sent = {}): Promise<Response> {
    return send({ url: this.service?.started.url ?? "" }, method, path, sent);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.service?.[Symbol.asyncDispose]();
    await this.database[Symbol.asyncDispose]();
  }

  makePlant(id: bigint): StoredPlant {
    const tag = id % 5n < 3n ? TAG : this.random.pick(["other", null]);
    return { id, name: `version ${this.serial++}`, tag };
  }

  /** Every plant in a new state: three of five have the tag. */
  async fill(): Promise<void> {
    const operations = ids.map((id): Operation => ({ kind: "upsert", plant: this.makePlant(id) }));
    await sendLines(this, operations, "?upsert=true");
    await this.compare();
  }

  async compare(): Promise<readonly StoredPlant[]> {
    const rows = await this.database.readPlants();
    expect(this.ledger.compare(rows)).toEqual([]);
    return rows;
  }
}

/** Sends lines and settles those that were answered. With `killAfter`, the service is killed after that many. */
async function sendLines(
  scene: Scene,
  operations: readonly Operation[],
  query: string,
  killAfter = Infinity,
): Promise<number> {
  const settles = operations.map((operation) => scene.ledger.begin(operation));
  const headers = killAfter < Infinity ? { ...NDJSON, ...bearer(scene.slow) } : NDJSON;
  const body = operations.map((operation) => `${toLine(operation)}\n`).join("");
  const response = await scene.send("POST", `/plants/batch${query}`, { body, headers });
  expect(response.status).toBe(200);
  const decoder = new TextDecoder();
  let [text, answered] = ["", 0];
  let killing: Promise<void> | undefined;
  try {
    for await (const bytes of response.body ?? []) {
      text += decoder.decode(bytes, { stream: true });
      const end = text.lastIndexOf("\n") + 1;
      for (const result of Bun.JSONL.parse(text.slice(0, end))) {
        const { line, status, replayed } = result as Record<"line" | "status", number> & {
          replayed?: boolean;
        };
        const isRemoved = operations[line - 1]?.kind === "remove" && status === 200;
        settles[line - 1]?.(
          isRemoved ? { status: 204 } : { status, isReplay: status === 200 && replayed === true },
        );
        answered++;
      }
      text = text.slice(end);
      if (answered >= killAfter) killing ??= scene.kill();
    }
  } catch (error) {
    if (killing === undefined) throw error;
  }
  await killing;
  if (killing === undefined) expect(answered).toBe(operations.length);
  return answered;
}

/** Mixed lines, some refused. Each plant is in one line. */
function makeLines(scene: Scene, isUpsert: boolean, mayFail: boolean): Operation[] {
  const { random, ledger } = scene;
  return ids.map((id): Operation => {
    const now = ledger.find(id);
    const isStale = mayFail && random.chance(15);
    const seen = isStale ? scene.makePlant(id) : now;
    const condition = seen !== undefined && random.chance(50) ? { ifMatch: seen } : {};
    const plant = scene.makePlant(id);
    if (isUpsert)
      return random.chance(30)
        ? { kind: "discard", id, ...condition }
        : { kind: "upsert", plant, ...condition };
    const isTaken = mayFail && random.chance(15);
    return now === undefined || isTaken
      ? { kind: "create", plant }
      : { kind: "remove", id, ...condition };
  });
}

async function crashLines(scene: Scene, isUpsert: boolean): Promise<void> {
  const query = `?upsert=${isUpsert}&batch=lines`;
  const operations = makeLines(scene, isUpsert, true);
  const answered = await sendLines(scene, operations, query, 1 + scene.random.below(PAID - 1));
  expect(answered).toBeLessThan(PLANTS);
  await scene.compare();
  await scene.start();
  await sendLines(scene, operations, query);
}

async function crashAtomic(scene: Scene, isUpsert: boolean): Promise<void> {
  const { ledger, random } = scene;
  const operations = makeLines(scene, isUpsert, false);
  const before = new Map(ids.map((id) => [id, ledger.find(id)]));
  const query = `/plants/batch?atomic=true&upsert=${isUpsert}&batch=atomic`;
  const body = `[${operations.map(toLine).join()}]`;
  let settles = operations.map((operation) => ledger.begin(operation));
  const answering = scene.send("POST", query, { body }).then(
    (response) => response.status,
    () => undefined,
  );
  // Before, during or after its commit: each moment has to do.
  await Bun.sleep(random.below(ATOMIC_KILL_MS_MAX));
  await scene.kill();
  const status = await answering;
  const rows = new Map((await scene.compare()).map((row) => [row.id, row]));
  const changed = operations.flatMap((operation) => {
    const id = idOf(operation);
    const { state } = perform(before.get(id), operation);
    return isSameState(before.get(id), state) ? [] : [isSameState(rows.get(id), state)];
  });
  const isDone = changed[0] === true;
  expect(new Set(changed)).toEqual(new Set([isDone]));
  if (status === 200) expect(isDone).toBe(true);
  await scene.start();
  settles = operations.map((operation) => ledger.begin(operation));
  const again = await scene.send("POST", query, { body });
  // A removal is not found the second time, unless by an upsert: then nothing of the batch is done again.
  const isMissing = isDone && operations.some(({ kind }) => kind === "remove");
  expect(again.status).toBe(isMissing ? 404 : 200);
  for (const [index, operation] of operations.entries())
    if (operation.kind !== "remove") settles[index]?.({ status: 200 });
    else settles[index]?.({ status: isMissing ? 404 : 204 });
}

interface Report {
  readonly [count: string]: unknown;
}

/** By a filter, in the request or as a job. */
async function crashBulk(scene: Scene, isJob: boolean): Promise<void> {
  const { ledger, random, database } = scene;
  await scene.fill();
  const before = await scene.compare();
  const matching = before.filter(({ tag }) => tag === TAG);
  const batch = `bulk ${scene.makePlant(0n).name}`;
  const patch = random.pick([{ name: batch }, { tag: null }, undefined]);
  const operations = matching.map(({ id }): Operation =>
    patch === undefined ? { kind: "discard", id } : { kind: "patch", id, patch },
  );
  const path = `/plants?tag=${TAG}&batch=${encodeURIComponent(batch)}`;
  const method = patch === undefined ? "DELETE" : "PATCH";
  const body = patch === undefined ? {} : { body: JSON.stringify(patch) };
  const prefer = isJob ? { prefer: "respond-async" } : {};
  for (const operation of operations) ledger.begin(operation);
  const headers = { ...prefer, ...bearer(scene.slow) };
  const asking = scene.send(method, path, { ...body, headers }).then(
    async (response) => {
      await response.text().catch(() => undefined);
      return response.status;
    },
    () => undefined,
  );
  const countDone = async (): Promise<number> => {
    const rows = new Map((await database.readPlants()).map((row) => [row.id, row]));
    return matching.filter((plant) => !isSameState(rows.get(plant.id), plant)).length;
  };
  const due = 1 + random.below(PAID / 2);
  await until(`${due} plants are changed`, async () => (await countDone()) >= due);
  await scene.kill();
  // A stream may break before its head was sent. A job is accepted before it begins.
  expect([isJob ? 202 : undefined, isJob ? 202 : 200]).toContain(await asking);
  await scene.compare();
  await scene.start();
  const findJob = async (): Promise<{ state: string; report: Report } | undefined> => {
    const response = await scene.send("GET", `/jobs?batch=${encodeURIComponent(batch)}`);
    return ((await response.json()) as { state: string; report: Report }[])[0];
  };
  if (isJob) await until("the job is lost", async () => (await findJob())?.state === "lost");
  // Not before: a server may still commit what a killed service had sent.
  const done = await countDone();
  expect(done).toBeLessThan(matching.length);
  const settles = operations.map((operation) => ledger.begin(operation));
  const again = await scene.send(method, path, { ...body, headers: prefer });
  expect(again.status).toBe(isJob ? 202 : 200);
  const lines = Bun.JSONL.parse(await again.text()) as Report[];
  if (isJob) await until("the job has ended", async () => (await findJob())?.state === "ended");
  const report = isJob ? (await findJob())?.report : lines.at(-1);
  const changes = matching.length - done;
  expect(report).toMatchObject({
    [patch === undefined ? "removed" : "replaced"]: changes,
    changedSince: 0,
    refused: 0,
    complete: true,
  });
  for (const settle of settles) settle({ status: 200 });
  await scene.compare();
  await revert(scene, batch, matching);
}

/** Both attempts have one name, so one revert takes all of it back. */
async function revert(scene: Scene, batch: string, before: readonly StoredPlant[]): Promise<void> {
  const settles = before.map((plant) => scene.ledger.begin({ kind: "upsert", plant }));
  const body = JSON.stringify({ batch });
  const response = await scene.send("POST", "/changes/revert", { body });
  const lines = Bun.JSONL.parse(await response.text()) as Report[];
  expect(lines.at(-1)).toMatchObject({ reverted: before.length, changedSince: 0, complete: true });
  for (const settle of settles) settle({ status: 200 });
}

/** The journal explains every plant, has no entry that changes nothing, and atomic batches in one piece. */
async function examineJournal(scene: Scene): Promise<void> {
  const rows = await scene.compare();
  await using store = await openStoreAt(scene.database.url);
  const changes = [];
  for (let after = 0; ;) {
    const page = await store.readChanges({ after, limit: 500 });
    changes.push(...page.changes.map(({ json }) => parseChange(json)));
    if (page.changes.length === 0) break;
    after = page.last;
  }
  expect(findFaults(changes, rows)).toEqual([]);
  expect(changes.filter(({ plant, before }) => plant === before)).toEqual([]);
  const atomic = changes.filter(({ batch }) => batch === "atomic");
  const blocks = atomic.filter(({ seq }, index) => atomic[index - 1]?.seq !== seq - 1);
  expect(blocks.length).toBeLessThanOrEqual(1);
}

const kinds: Readonly<Record<string, (scene: Scene) => Promise<void>>> = {
  "a batch of creates and removals": (scene) => crashLines(scene, false),
  "a batch of upserts and removals": (scene) => crashLines(scene, true),
  "an atomic batch of creates and removals": (scene) => crashAtomic(scene, false),
  "an atomic batch of upserts and removals": (scene) => crashAtomic(scene, true),
  "a change by filter": (scene) => crashBulk(scene, false),
  "a job": (scene) => crashBulk(scene, true),
};

describe("a service that is killed in the middle of", () => {
  test.each(Object.keys(kinds))("%s leaves whole writes, which the next one completes", (kind) =>
    tellingSeed(async () => {
      const random = createRandom();
      for (let run = 0; run < runsFactor; run++) {
        await using scene = await Scene.open(random);
        await scene.start();
        const some = ids.filter(() => random.chance(60));
        const first = some.map((id): Operation => ({
          kind: "create",
          plant: scene.makePlant(id),
        }));
        await sendLines(scene, first, "");
        await kinds[kind]?.(scene);
        await examineJournal(scene);
      }
    }),
  );
});
