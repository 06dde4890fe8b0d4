/** Both engines, asked the same, give the same pages. */

import { describe, expect, test } from "bun:test";
import { resolveConfig } from "../../src/config.ts";
import type { PlantPage, PlantQuery } from "../../src/domain/page.ts";
import type { Plant } from "../../src/domain/plant.ts";
import type { Store } from "../../src/domain/store.ts";
import { openStore } from "../../src/store/open.ts";
import type { Connection } from "../../src/store/postgres/connection.ts";
import { onServer } from "../../src/store/postgres/pool.ts";
import { listPlants } from "../../src/store/postgres/read.ts";
import { parsePostgresUrl } from "../../src/domain/store-url.ts";
import { type EnginePair, openEnginePair, openTestDatabase } from "../support/database.ts";
import { rejectionOf } from "../support/expect.ts";
import { createRandom, tellingSeed } from "../support/random.ts";
import { limits } from "../support/limits.ts";
import { toExact } from "../support/plants.ts";

const SCAN_ROWS_MAX = { ...limits({ scanRowsMax: 3000 }) };
const openPair = (plants: readonly Plant[]): Promise<EnginePair> =>
  openEnginePair(plants, SCAN_ROWS_MAX);

const everything: PlantQuery = {
  after: undefined,
  limit: 1_000,
  tag: undefined,
  name: undefined,
  order: "asc",
};

async function* walk(store: Store, query: PlantQuery): AsyncGenerator<PlantPage> {
  for (let page: PlantPage | undefined; page?.next !== undefined || page === undefined;) {
    page = await store.listPlants({
      ...query,
      after: page === undefined ? query.after : page.next,
    });
    yield { ...page, plants: toExact(page.plants) };
  }
}

/** The work for a page of a search is bounded in time as well: on a busy machine such a page may end early. */
const ATTEMPTS_MAX = 5;

async function expectSamePages({ sqlite, postgres }: EnginePair, query: PlantQuery): Promise<void> {
  for (let attempts = 1; ; attempts++) {
    const [expected, found] = await Promise.all(
      [sqlite, postgres].map((store) => Array.fromAsync(walk(store, query))),
    );
    const isLast = query.name === undefined || attempts === ATTEMPTS_MAX;
    if (isLast) expect(found).toEqual(expected as PlantPage[]);
    if (isLast || Bun.deepEquals(found, expected)) return;
  }
}

async function expectSamePlants(
  { sqlite, postgres }: EnginePair,
  query: PlantQuery,
): Promise<void> {
  const [expected = [], found = []] = await Promise.all(
    [sqlite, postgres].map((store) => Array.fromAsync(walk(store, query))),
  );
  expect(found.flatMap(({ plants }) => plants)).toEqual(expected.flatMap(({ plants }) => plants));
  expect(Math.max(...found.map(({ plants }) => plants.length))).toBeLessThanOrEqual(query.limit);
}

describe("pages", () => {
  test("of plain plants are the same, whatever is asked for", () =>
    tellingSeed(async () => {
      const random = createRandom();
      const tags = [undefined, "", "a", "A", "ä", "z".repeat(100), `${"z".repeat(100)}y`, "🌵"];
      const plants = Array.from({ length: 7_000 }, (_, index) => ({
        id: random.chance(50) ? random.int64() : BigInt(index),
        name: random.pick(["Straße", "Fern", "ferns", "ΣΊΣΥΦΟΣ", "é", "e\u0301", "", "100%_\\"]),
        tag: random.pick(tags),
      })).filter(({ id }, index, all) => all.findIndex((other) => other.id === id) === index);
      await using pair = await openPair(plants);
      const expectSame = (both: EnginePair, query: PlantQuery): Promise<void> =>
        (query.name === undefined ? expectSamePages : expectSamePlants)(both, query);
      for (let round = 0; round < 40; round++)
        await expectSame(pair, {
          after: random.chance(50) ? undefined : random.pick(plants).id,
          limit: random.pick([1_000, 999, 100 + random.below(900)]),
          tag: random.chance(50) ? undefined : random.pick(tags),
          name: random.chance(50) ? undefined : random.pick(["strasse", "FERN", "σ", "É", "", "%"]),
          order: random.pick(["asc", "desc"]),
        });
    }));

  test("of exactly the limit, and of exactly as many as a search looks at, have no page behind them", async () => {
    const plants = Array.from({ length: 3_000 }, (_, id) => ({
      id: BigInt(id),
      name: "Fern",
      tag: id < 100 ? "few" : undefined,
    }));
    await using pair = await openPair(plants);
    for (const query of [
      { ...everything, limit: 1_000 },
      { ...everything, tag: "few", limit: 100 },
      { ...everything, name: "rose" },
      { ...everything, name: "rose", order: "desc" as const },
      { ...everything, name: "fern", limit: 1_000 },
    ])
      await expectSamePages(pair, query);
    // Many searches leave connections and time for the rest.
    let found = 0;
    const searches = Array.from({ length: 100 }, () =>
      pair.postgres.listPlants({ ...everything, name: "fern" }).finally(() => found++),
    );
    expect(await pair.postgres.findPlant(1n)).toEqual(plants[1]);
    expect(found).toBeLessThan(50);
    await Promise.all(searches);
    // So do large pages, while there are writes.
    const creating = pair.postgres.createPlant({ id: 5_000n, name: "Fern", tag: undefined });
    const pages = { left: 20 };
    const reading = Array.from({ length: pages.left }, () =>
      pair.postgres.listPlants(everything).finally(() => pages.left--),
    );
    let connectionsMax = 0;
    for (; pages.left > 0; await new Promise(setImmediate)) {
      const { connectionsInUse = 0 } = pair.postgres.readFigures();
      connectionsMax = Math.max(connectionsMax, connectionsInUse);
    }
    // One writes, and two read.
    expect(connectionsMax).toBeLessThanOrEqual(3);
    await Promise.all([creating, ...reading]);
  });

  test("of a tag that no index could hold are found by it", async () => {
    const random = createRandom();
    const tag = Array.from({ length: 20_000 }, () => random.int64().toString(36)).join("");
    const plants = [
      { id: 1n, name: "a", tag },
      { id: 2n, name: "b", tag: `${tag}x` },
      { id: 3n, name: "c", tag: tag.slice(0, 100) },
    ];
    await using pair = await openPair(plants);
    for (const { tag: wanted } of plants)
      await expectSamePages(pair, { ...everything, tag: wanted });
  });

  test("of a search through names that are expensive to fold give way to other requests, and end in time", async () => {
    // Each letter has to be composed with its marks.
    const name = "a\u0323\u0302".repeat(300);
    const plants = Array.from({ length: 2_000 }, (_, id) => ({
      id: BigInt(id),
      name,
      tag: undefined,
    }));
    await using pair = await openPair(plants);
    const search = (): Promise<PlantPage> =>
      pair.postgres.listPlants({ ...everything, name: "rose" });
    // The best of some: the compiler and the garbage collector take their time as well. A search that never yields has 1.
    let share = 1;
    for (let searches = 0; share >= 0.5 && searches < 100; searches++)
      share = Math.min(share, await measureBlock(search));
    expect(share).toBeLessThan(0.5);
    const { plants: found, next } = await search();
    expect(found).toEqual([]);
    expect(next).toBeDefined();
  });
});

test("a page whose first plant is removed while it is read does not begin again", async () => {
  await using database = await openTestDatabase("postgres");
  const { config } = resolveConfig({}, {});
  const store = await openStore(database.url, config);
  // Long ones are read by a second statement, a few at a time.
  const long = (id: bigint): Plant => ({ id, name: "a".repeat(900_000), tag: undefined });
  await store.createPlants([1n, 2n, 3n, 4n, 5n, 6n].map(long));
  await store.close();
  const query = { ...everything, after: 1n, limit: 2 };
  const { plants } = await onServer(parsePostgresUrl(database.url), config, (connection) => {
    const watched = Object.create(connection) as Connection;
    watched.query = async <Row>(...asked: Parameters<Connection["query"]>) => {
      const rows = await connection.query<Row>(...asked);
      await database.run("DELETE FROM plants WHERE id = 2");
      return rows;
    };
    return listPlants(watched, query, 1);
  });
  expect(plants.map(({ id }) => id)).toEqual([3n, 4n]);
});

test("a page that gets no connection in time is refused while it would still have time to be read", async () => {
  await using database = await openTestDatabase("postgres");
  const { config } = resolveConfig({}, {}, { readConnections: 1 });
  const store = await openStore(database.url, { ...config, queueSecondsMax: 1 });
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
  await store.close();
});

/** The longest that the event loop stands still meanwhile, as a share of all the processor's time that it takes. */
async function measureBlock(work: () => Promise<unknown>): Promise<number> {
  const state = { isOver: false };
  const begin = process.cpuUsage();
  let longest = 0;
  const working = work().finally(() => (state.isOver = true));
  for (let last = process.cpuUsage(); !state.isOver;) {
    await new Promise(setImmediate);
    const { user, system } = process.cpuUsage(last);
    longest = Math.max(longest, user + system);
    last = process.cpuUsage();
  }
  await working;
  const { user, system } = process.cpuUsage(begin);
  return longest / (user + system);
}
