/** The threads of a SQLite store: what crosses between them, and what becomes of a batch that is late. */

import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { statSync, writeFileSync } from "node:fs";
import * as fc from "fast-check";
import { Refusal, StoreOpenError } from "../src/domain/errors.ts";
import type { Plant } from "../src/domain/plant.ts";
import { openServed, openStore } from "../src/store/open.ts";
import { copyOnThread } from "../src/store/sqlite/backup.ts";
import {
  createCaller,
  decodeBatch,
  encodeBatch,
  startStoreThreads,
} from "../src/store/sqlite/thread.ts";
import { resolveConfig } from "../src/config.ts";
import type { Write } from "../src/store/sqlite/writer.ts";
import { openReadOnly } from "../src/store/sqlite/database.ts";
import { sharedNow } from "../src/tick.ts";
import { rejectionOf } from "./support/expect.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { alter, makeStore, readPlants } from "./support/stores.ts";
import { until } from "./support/until.ts";

const { config } = resolveConfig({}, {});
const text = fc.string({ unit: "binary" }).filter((value) => value.isWellFormed());
const id = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
const tag = fc.option(text, { nil: undefined });
const by = fc.option(text, { nil: undefined });
const condition = fc.constantFrom({}, { match: "any" as const }, { noneMatch: ['"a"', '"b"'] });
const plantOf = (of: bigint): fc.Arbitrary<Plant> =>
  fc.record({ id: fc.constant(of), name: text, tag });

const write: fc.Arbitrary<Write> = id.chain((of) =>
  fc.oneof(
    fc.record({
      kind: fc.constant("create" as const),
      id: fc.constant(of),
      by,
      plant: plantOf(of),
    }),
    fc.record({
      kind: fc.constant("replace" as const),
      id: fc.constant(of),
      by,
      plant: plantOf(of),
      condition,
    }),
    fc.record({
      kind: fc.constant("remove" as const),
      id: fc.constant(of),
      by,
      plant: fc.constant(undefined),
      condition,
    }),
    fc.record({
      kind: fc.constant("run" as const),
      concernsPlants: fc.boolean(),
      statements: fc.constant([["SELECT $1", "x", 1, null]] as const),
    }),
  ),
);

test("a batch arrives as it was sent: every kind of write, any id and text", () => {
  fc.assert(
    fc.property(
      fc.array(write),
      fc.double({ min: 0, max: 1e15, noNaN: true }),
      (writes, deadlineMs) => {
        const decoded = decodeBatch(encodeBatch(writes, deadlineMs));
        expect(decoded).toEqual({ deadlineMs: deadlineMs + 0, writes });
      },
    ),
  );
});

const create = (of: bigint): Write => ({
  kind: "create",
  id: of,
  by: undefined,
  plant: { id: of, name: "fern", tag: undefined },
});

describe("the store thread", () => {
  test("commits what is in time, and drops a batch that is late", async () => {
    using folder = makeTemporaryFolder();
    const path = `${folder.path}/plants.db`;
    const threads = await startStoreThreads(path, config, 2);
    const [one, other] = threads.links.map(({ writes }) => createCaller(writes));
    const late = other?.ask(encodeBatch([create(1n)], sharedNow() - 1)) as Promise<unknown>;
    expect(await rejectionOf(late)).toMatchObject({ reason: "store_busy" });
    const inTime = one?.ask(encodeBatch([create(2n), create(2n)], sharedNow() + 60_000));
    expect(await inTime).toEqual(["created", "replayed"]);
    await threads.close();
    expect(readPlants(path).map((plant) => plant.id)).toEqual([2n]);
  });

  test("says why a store cannot be opened", async () => {
    using folder = makeTemporaryFolder();
    const path = `${folder.path}/plants.db`;
    const opened = await openServed(`sqlite:${path}`, config, 1);
    await opened.store.close();
    alter(path, "PRAGMA user_version = 999");
    const refused = await rejectionOf(openServed(`sqlite:${path}`, config, 1));
    expect(refused).toBeInstanceOf(StoreOpenError);
    expect(String(refused)).toContain("has schema 999");
  });
});

test("a thread that is ended while it copies or reads leaves the store free for writers", async () => {
  using folder = makeTemporaryFolder();
  const path = `${folder.path}/plants.db`;
  makeStore(path, 20_000, "n".repeat(1_000));
  const to = `${folder.path}/copy.db`;
  writeFileSync(to, "");
  const ending = new AbortController();
  const copying = copyOnThread({ from: path, to, verifyFirst: false }, ending.signal);
  await until("the copy has begun", () => statSync(to).size > 0);
  ending.abort();
  await copying.catch(() => undefined);
  {
    using db = new Database(path);
    db.run("BEGIN IMMEDIATE");
  }
  {
    // What cannot lock the store for writing cannot be ended while it does.
    using db = openReadOnly(path);
    expect(() => db.run("DELETE FROM plants")).toThrow("readonly");
  }
  const threads = await startStoreThreads(path, config, 1);
  const [reads] = threads.links.map((link) => createCaller(link.reads));
  const query = { limit: 1_000, order: "asc", words: ["zzz"] } as never;
  for (let count = 0; count < 100; count++)
    reads?.ask({ kind: "count", query }).catch(() => undefined);
  await threads.close();
  using db = new Database(path);
  db.run("BEGIN IMMEDIATE");
});

test("a plant that one HTTP thread has stored is read, refused and removed at another", async () => {
  using folder = makeTemporaryFolder();
  const url = `sqlite:${folder.path}/plants.db`;
  const { store, links } = await openServed(url, config, 2);
  const other = await openStore(url, config, undefined, links[0]);
  const plant = { id: 7n, name: "fern", tag: undefined };
  expect(await store.createPlant(plant)).toBe("created");
  expect(await other.findPlant(7n)).toEqual(plant);
  const taken = await rejectionOf(other.createPlant({ ...plant, name: "moss" }));
  expect(taken).toBeInstanceOf(Refusal);
  expect(taken).toMatchObject({ reason: "id_taken" });
  await other.removePlant(7n, {});
  expect(await store.findPlant(7n)).toBeUndefined();
  await other.close();
  await store.close();
});
