/** The threads of a SQLite store: what crosses between them, and what becomes of a batch that is late. */

import { expect, test } from "bun:test";
import { statSync, writeFileSync } from "node:fs";
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
import { makeWorkplace } from "./support/folder.ts";
import { alter, makeStore, readPlants } from "./support/stores.ts";
import { until } from "./support/until.ts";

const { config } = resolveConfig({}, {});
const create = (of: bigint): Write => ({
  kind: "create",
  id: of,
  by: undefined,
  plant: { id: of, name: "fern", tag: undefined },
});

test("a batch arrives as it was sent: every kind of write, any id and text", () => {
  const [safe, max] = [2n ** 53n, 2n ** 63n];
  const writes = [0n, -7n, safe - 1n, safe + 1n, -safe - 1n, max - 1n, -max].flatMap(
    (id): Write[] => [
      create(id),
      {
        kind: "replace",
        id,
        by: "é",
        plant: { id, name: '"\\\u2028🌱', tag: "" },
        condition: { noneMatch: ['"a"', '"b"'] },
      },
      { kind: "remove", id, by: "till", plant: undefined, condition: { match: "any" } },
      { kind: "run", concernsPlants: false, statements: [["SELECT $1", "x", 1, null]] },
    ],
  );
  const batch = { deadlineMs: 1_767_225_605_000.25, writes };
  expect(decodeBatch(encodeBatch(writes, batch.deadlineMs))).toEqual(batch);
});

test("the store thread commits what is in time, and drops a batch that is late", async () => {
  using at = makeWorkplace();
  const threads = await startStoreThreads(at.store, config, 2);
  const [one, other] = threads.links.map(({ writes }) => createCaller(writes));
  const late = other?.ask(encodeBatch([create(1n)], sharedNow() - 1)) as Promise<unknown>;
  expect(await rejectionOf(late)).toMatchObject({ reason: "store_busy" });
  const inTime = one?.ask(encodeBatch([create(2n), create(2n)], sharedNow() + 60_000));
  expect(await inTime).toEqual(["created", "replayed"]);
  await threads.close();
  expect(readPlants(at.store).map((plant) => plant.id)).toEqual([2n]);
});

test("a thread that is ended while it copies or reads leaves the store free for writers", async () => {
  using at = makeWorkplace();
  makeStore(at.store, 20_000, "n".repeat(1_000));
  const to = at.file("copy.db");
  writeFileSync(to, "");
  const ending = new AbortController();
  const copying = copyOnThread({ from: at.store, to, verifyFirst: false }, ending.signal);
  await until("the copy has begun", () => statSync(to).size > 0);
  ending.abort();
  await copying.catch(() => undefined);
  alter(at.store, "BEGIN IMMEDIATE");
  // What cannot lock the store for writing cannot be ended while it does.
  using reader = openReadOnly(at.store);
  expect(() => reader.run("DELETE FROM plants")).toThrow("readonly");
  const threads = await startStoreThreads(at.store, config, 1);
  const [reads] = threads.links.map((link) => createCaller(link.reads));
  const query = { limit: 1_000, order: "asc", words: ["zzz"] } as never;
  for (let count = 0; count < 100; count++)
    reads?.ask({ kind: "count", query }).catch(() => undefined);
  await threads.close();
  alter(at.store, "BEGIN IMMEDIATE");
});
