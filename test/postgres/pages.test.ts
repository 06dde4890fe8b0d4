/** Pages of plants on PostgreSQL: their ends, and what they leave to others. */

import { expect, spyOn, test } from "bun:test";
import type { PlantPage, PlantQuery } from "../../src/domain/page.ts";
import type { Plant } from "../../src/domain/plant.ts";
import type { Store } from "../../src/domain/store.ts";
import type { Connection } from "../../src/store/postgres/connection.ts";
import { createSource } from "../../src/store/postgres/read.ts";
import { readLater, scan } from "../../src/store/reads.ts";
import { onWatched, openTestDatabase, openTestStore } from "../support/database.ts";
import { rejectionOf } from "../support/expect.ts";
import { everything } from "../support/plants.ts";
import { until } from "../support/until.ts";

const makePlants = (length: number, name: string): Plant[] =>
  Array.from({ length }, (_, id) => ({ id: BigInt(id), name, tag: id < 100 ? "few" : undefined }));

/** However slow the machine is: a hundred searches queue up. */
const patient = { queueSecondsMax: 120, statementSecondsMax: 60, scanRowsMax: 3_000 };

const scanOn = (connection: Connection, query: PlantQuery): Promise<PlantPage> =>
  readLater(scan(createSource(connection, 1), query));

/** How many plants each page has, to the last one. */
async function measurePages(store: Store, query: PlantQuery): Promise<number[]> {
  const lengths: number[] = [];
  for (let page: PlantPage | undefined; page === undefined || page.next !== undefined;) {
    page = await store.listPlants({ ...query, after: page?.next });
    lengths.push(page.plants.length);
  }
  return lengths;
}

test("pages of exactly the limit, and of exactly as many as a search looks at, have no page behind them", async () => {
  const plants = [...makePlants(2_999, "Fern"), { id: 2_999n, name: "Rose", tag: undefined }];
  await using database = await openTestDatabase("postgres");
  await using store = await openTestStore(patient, database);
  await store.createPlants(plants);
  for (const [asked, lengths] of [
    [{}, [1_000, 1_000, 1_000]],
    [{ tag: "few", limit: 100 }, [100]],
    [{ name: "rose" }, [1]],
    [{ name: "rose", order: "desc" }, [1]],
    [{ name: "moss" }, [0]],
    [{ name: "fern" }, [1_000, 1_000, 999]],
  ] as [Partial<PlantQuery>, number[]][])
    // A search is bounded in time as well: on a busy machine its pages may end early.
    await until(`pages of ${JSON.stringify(asked)} have ${lengths.join()} plants`, async () =>
      Bun.deepEquals(await measurePages(store, { ...everything, ...asked }), lengths),
    );
  // Many searches leave connections and time for the rest.
  let found = 0;
  const searches = Array.from({ length: 100 }, () =>
    store.listPlants({ ...everything, name: "fern" }).finally(() => found++),
  );
  expect(await store.findPlant(1n)).toEqual(plants[1]);
  expect(found).toBeLessThan(50);
  await Promise.all(searches);
  // So do large pages, while there are writes.
  const creating = store.createPlant({ id: 5_000n, name: "Fern", tag: undefined });
  const pages = { left: 20 };
  const reading = Array.from({ length: pages.left }, () =>
    store.listPlants(everything).finally(() => pages.left--),
  );
  let connectionsMax = 0;
  for (; pages.left > 0; await new Promise(setImmediate)) {
    const { connectionsInUse = 0 } = await store.readFigures();
    connectionsMax = Math.max(connectionsMax, connectionsInUse);
  }
  // One writes, and two read.
  expect(connectionsMax).toBeLessThanOrEqual(3);
  await Promise.all([creating, ...reading]);
});

test("pages of a search through names that are expensive to fold give way to other requests, and end in time", async () => {
  // Each letter has to be composed with its marks.
  await using database = await openTestDatabase("postgres");
  await using store = await openTestStore(patient, database);
  await store.createPlants(makePlants(2_000, "a\u0323\u0302".repeat(300)));
  // A millisecond passes whenever the time is read: the search does so between its rows.
  let nowMs = 0;
  using clock = spyOn(performance, "now").mockImplementation(() => ++nowMs);
  const search = { isOver: false };
  const searching = store
    .listPlants({ ...everything, name: "rose" })
    .finally(() => (search.isOver = true));
  let longestMs = 0;
  for (let lastMs = nowMs; !search.isOver; lastMs = nowMs) {
    await new Promise(setImmediate);
    longestMs = Math.max(longestMs, nowMs - lastMs);
  }
  expect(clock).toHaveBeenCalled();
  expect(longestMs).toBeLessThan(20);
  const { plants: found, next } = await searching;
  expect(found).toEqual([]);
  expect(next).toBeDefined();
});

test("a page whose first plant is removed while it is read does not begin again", async () => {
  await using database = await openTestDatabase("postgres");
  await using store = await openTestStore({}, database);
  // Long ones are read by a second statement, a few at a time.
  const long = (id: bigint): Plant => ({ id, name: "a".repeat(900_000), tag: undefined });
  await store.createPlants([1n, 2n, 3n, 4n, 5n, 6n].map(long));
  const query = { ...everything, after: 1n, limit: 2 };
  const removeFirst = (): Promise<void> => database.run("DELETE FROM plants WHERE id = 2");
  const { plants } = await onWatched(database.url, removeFirst, (watched) =>
    scanOn(watched, query),
  );
  expect(plants.map(({ id }) => id)).toEqual([3n, 4n]);
});

test("a page that gets no connection in time is refused while it would still have time to be read", async () => {
  await using database = await openTestDatabase("postgres");
  await using store = await openTestStore({ readConnections: 1, queueSecondsMax: 1 }, database);
  await database.run("BEGIN; LOCK TABLE plants IN ACCESS EXCLUSIVE MODE");
  const refused: number[] = [];
  const read = async (_: unknown, index: number): Promise<void> => {
    await rejectionOf(store.listPlants({ ...everything, limit: 10 }));
    refused.push(index);
  };
  // As many as share a connection, and one that waits for them.
  await Promise.all(Array.from({ length: 9 }).map(read));
  expect(refused[0]).toBe(8);
  await database.run("ROLLBACK");
});

test("a page of a tag reads no more plants than it lists, with and without statistics", async () => {
  await using database = await openTestDatabase("postgres");
  await using store = await openTestStore({}, database);
  await database.run(`INSERT INTO plants SELECT id, 'Fern', 'tag ' || id % 4
    FROM generate_series(0, 39999) AS id`);
  for (const prepare of ["SELECT 1", "ANALYZE plants"]) {
    await database.run(prepare);
    for (const order of ["asc", "desc"] as const) {
      const query = { ...everything, tag: "tag 2", order, limit: 100, after: 20_000n };
      const { plants } = await store.listPlants(query);
      expect(plants.map(({ id }) => Number(id))).toEqual(
        Array.from({ length: 100 }, (_, at) =>
          order === "asc" ? 20_002 + 4 * at : 19_998 - 4 * at,
        ),
      );
      const plan = await onWatched(
        database.url,
        async () => undefined,
        async (connection) => {
          let explained = "";
          const explain = async (text: string, [id, tag]: unknown[]) => {
            const literal = text
              .replaceAll("$1", `'${String(id)}'`)
              .replaceAll("$2", `'${String(tag)}'`);
            const lines = await connection.query<object>(`EXPLAIN (ANALYZE) ${literal}`);
            explained = lines.flatMap(Object.values).join("\n");
            return [];
          };
          await scanOn({ query: explain } as unknown as Connection, query);
          return explained;
        },
      );
      const read = [...plan.matchAll(/actual [^)]* rows=(\d+)/g)].map(([, rows]) => Number(rows));
      expect(read.length).toBeGreaterThan(0);
      expect({ plan, most: Math.max(...read) }).toEqual({ plan, most: 101 });
    }
  }
});
