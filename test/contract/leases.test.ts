/** Work under a lease: once its job or its token is over, no commit stores anything of it. */

import { SQL } from "bun";
import { expect, test } from "bun:test";
import type { Writer } from "../../src/domain/change.ts";
import type { Refusal } from "../../src/domain/errors.ts";
import type { Job } from "../../src/domain/job.ts";
import type { Store } from "../../src/domain/store.ts";
import type { PlantWrite } from "../../src/domain/write.ts";
import { mintToken, toRecord } from "../../src/auth/token.ts";
import { engine, openTestDatabase, openTestStore } from "../support/database.ts";
import { makeJob } from "../support/job.ts";
import { rejectionOf } from "../support/expect.ts";
import { until } from "../support/until.ts";

const plant = (id: bigint, name: string) => ({ id, name, tag: undefined });

/** One write of every kind. Each would change something. */
const writes: readonly PlantWrite[] = [
  { kind: "create", id: 1n, plant: plant(1n, "job") },
  { kind: "upsert", id: 2n, plant: plant(2n, "job"), condition: {} },
  { kind: "upsert", id: 3n, plant: plant(3n, "job"), condition: {} },
  { kind: "replace", id: 4n, plant: plant(4n, "job"), condition: {} },
  { kind: "patch", id: 5n, patch: { name: "job" }, condition: {} },
  { kind: "remove", id: 6n, condition: {} },
  // As a change by filter writes, which has seen the plant.
  { kind: "remove", id: 7n, condition: { seen: { name: "newer" } }, isLenient: true },
];
const newer = [3n, 4n, 5n, 6n, 7n].map((id) => plant(id, "newer"));

const token = toRecord(mintToken(), { name: "n", scopes: ["plants:write"], createdAtMs: 0 });
const job = makeJob("mine/1");
const writer: Writer = { token: "n", batch: job.name, lease: { run: "mine", token: token.hash } };

const replaced: Job = { ...job, version: "theirs/0" };
const ends: Readonly<
  Record<string, readonly [string, (other: Store, last: Job) => Promise<boolean>]>
> = {
  "was stopped": [
    "job_stopped",
    (other, last) => other.putJob({ ...job, state: "stopping", version: "mine/3" }, last),
  ],
  "was ended": [
    "job_stopped",
    (other, last) => other.putJob({ ...job, state: "ended", version: "mine/3" }, last),
  ],
  "was replaced": ["job_stopped", (other, last) => other.putJob(replaced, last)],
  "was removed": ["job_stopped", (other, last) => other.putJob(undefined, last)],
  "lost its token": ["token_invalid", (other) => other.revokeToken(token.hash, 1)],
};

test.each(Object.keys(ends))("a job that %s stores nothing more", async (name) => {
  const [reason, end] = ends[name] as (typeof ends)[string];
  await using database = await openTestDatabase();
  await using own = await openTestStore({}, database);
  await using other = await openTestStore({}, database);
  await own.createToken(token);
  await own.putJob(job, undefined);
  // Its beat changes the version, and not the run.
  const beat = { ...job, version: "mine/2" };
  await own.putJob(beat, job);
  expect(
    await own.writePlants([{ kind: "create", id: 9n, plant: plant(9n, "job") }], writer),
  ).toEqual(["created"]);
  expect(await end(other, beat)).toBe(true);
  await other.createPlants(newer);
  const before = await database.readPlants();

  // One commit: a write of someone else is not held up by it.
  const [refused, single, together, plain] = await Promise.all([
    own.writePlants(writes, writer),
    rejectionOf(own.createPlant(plant(1n, "job"), writer)),
    rejectionOf(own.writeAtomic(writes, writer)),
    own.createPlant(plant(8n, "plain"), { token: "n" }),
  ]);
  const reasons = [...refused, single, together].map((each) => (each as Refusal).reason);
  expect(reasons).toEqual(reasons.map(() => reason as Refusal["reason"]));
  expect(plain).toBe("created");
  const after = await database.readPlants();
  expect(after.filter(({ id }) => id !== 8n)).toEqual(before);
  const { changes } = await own.readChanges({ after: 0, limit: 99, batch: job.name });
  expect(changes).toHaveLength(1);
});

// The embedded engine's is in test/store/sqlite.test.ts.
test.skipIf(engine === "sqlite")(
  "a job that is taken over while its statement waits stores nothing",
  async () => {
    await using store = await openTestStore();
    await store.putJob(job, undefined);
    await using db = new SQL(store.database.url, { max: 1 });
    await db.unsafe("BEGIN; UPDATE plantstore_jobs SET version = 'theirs/0'");
    const refused = rejectionOf(
      store.createPlant(plant(1n, "job"), { batch: job.name, lease: { run: "mine" } }),
    );
    const waits = "SELECT FROM pg_locks WHERE NOT granted";
    await until("it waits", async () => (await db.unsafe(waits)).length > 0);
    await db.unsafe("COMMIT");
    expect(await refused).toMatchObject({ reason: "job_stopped" });
    expect(await store.database.readPlants()).toEqual([]);
  },
);

test("work outside of a job ends with its token, and none with a token that is not in the store", async () => {
  await using store = await openTestStore();
  await store.createToken(token);
  const outside = (hash: string): Writer => ({ lease: { token: hash } });
  expect(await store.createPlant(plant(1n, "a"), outside(token.hash))).toBe("created");
  await store.revokeToken(token.hash, 1);
  const refused = rejectionOf(store.createPlant(plant(2n, "a"), outside(token.hash)));
  expect(await refused).toMatchObject({ reason: "token_invalid" });
  expect(await store.createPlant(plant(3n, "a"), outside("of the environment"))).toBe("created");
  expect((await store.database.readPlants()).map(({ id }) => id)).toEqual([1n, 3n]);
});
