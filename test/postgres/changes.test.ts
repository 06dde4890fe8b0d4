/** Numbers in the order of the commits, whatever the transactions do. */

import { SQL } from "bun";
import { expect, test } from "bun:test";
import type { ChangePage, ChangeQuery } from "../../src/domain/change.ts";
import type { Store } from "../../src/domain/store.ts";
import type { Connection } from "../../src/store/postgres/connection.ts";
import { numberBlocks } from "../../src/store/postgres/changes.ts";
import { createSource } from "../../src/store/postgres/read.ts";
import { readChanges, readLater } from "../../src/store/reads.ts";
import { onWatched, openStoreAt } from "../support/database.ts";
import { rejectionOf } from "../support/expect.ts";
import { changesIn } from "../support/plants.ts";
import { createTestDatabase } from "../support/postgres-server.ts";
import { until } from "../support/until.ts";

const all: ChangeQuery = { after: 0, limit: 1000, id: undefined, types: undefined };

async function makeScene() {
  const stack = new AsyncDisposableStack();
  const { url } = stack.use(await createTestDatabase());
  return {
    url,
    open: async (): Promise<Store> => stack.use(await openStoreAt(url)),
    /** A session of its own, which may hold a transaction open. */
    connect: (): SQL => stack.use(new SQL(url, { max: 1 })),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

const create = (store: Store, id: bigint): Promise<unknown> =>
  store.createPlant({ id, name: `plant ${id}`, tag: undefined });

const readIds = async (store: Store, after = 0): Promise<bigint[]> =>
  changesIn(await store.readChanges({ ...all, after })).map(({ id }) => id);

const LSN = "(pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";

/** What the service's own statement does, in a transaction that stays open. */
const insert = (id: number): string => `INSERT INTO plants (id, name) VALUES (${id}, 'late')`;
const entry = (id: number): string => `INSERT INTO plantstore_changes (length, lsn, at_us, entries)
  VALUES (1, ${LSN}, 0, '["c",null,${id},"late",null]')`;

test("a change that commits late is numbered late, and holds up no other", async () => {
  await using scene = await makeScene();
  const [store, other] = [await scene.open(), await scene.open()];
  const late = scene.connect();
  await late.unsafe(`BEGIN; ${insert(1)}; ${entry(1)}`);
  await create(store, 2n);
  await create(other, 3n);
  const before = await store.readChanges(all);
  expect(changesIn(before).map(({ id }) => id)).toEqual([2n, 3n]);
  await late.unsafe("COMMIT");
  await create(other, 4n);
  expect(await readIds(other, before.last)).toEqual([1n, 4n]);
  expect(await readIds(store)).toEqual([2n, 3n, 1n, 4n]);
});

test("a change comes after what it depends on, even if its transaction began before that", async () => {
  await using scene = await makeScene();
  const store = await scene.open();
  await create(store, 5n);
  const early = scene.connect();
  // A batch of several plants that has begun, while another instance removes one of them.
  await early.unsafe(`BEGIN; ${insert(1)}`);
  await store.removePlant(5n, {});
  await early.unsafe(`${insert(5)}; ${entry(5)}; COMMIT`);
  // Without a filter: a page with one may end early.
  const changes = changesIn(await store.readChanges(all)).filter(({ id }) => id === 5n);
  expect(changes.map(({ type }) => type)).toEqual(["created", "removed", "created"]);
});

test("a reader whose turn another one took looks again, so no block that was committed before is missed", async () => {
  const results = [
    { ready: 2n, given: 0n, newest: 5n },
    { ready: 0n, given: 0n, newest: 7n },
  ];
  const connection = { query: async () => [results.shift()] } as unknown as Connection;
  expect(await numberBlocks(connection)).toBe(7);
  expect(results).toEqual([]);
});

test("a replay waits for the lock of another transaction on its plant", async () => {
  await using scene = await makeScene();
  const store = await scene.open();
  await create(store, 1n);
  const [other, watcher] = [scene.connect(), scene.connect()];
  await other.unsafe("BEGIN; SELECT id FROM plants WHERE id = 1 FOR UPDATE");
  let isAnswered = false;
  const replay = create(store, 1n).finally(() => (isAnswered = true));
  await until("the replay waits", async () => {
    expect(isAnswered).toBe(false);
    const waiting = await watcher.unsafe(
      "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
    return waiting.length > 0;
  });
  await other.unsafe("COMMIT");
  expect(await replay).toBe("replayed");
});

test("instances that read at once give the same numbers, while others write", async () => {
  await using scene = await makeScene();
  const stores = await Promise.all([1, 2, 3].map(() => scene.open()));
  const count = 60;
  let open = stores.length;
  const writing = stores.map(async (store, index) => {
    for (let n = 0; n < count; n++) await create(store, BigInt(index * count + n));
    open--;
  });
  const reading = stores.map(async (store) => {
    const seen: string[] = [];
    let after = 0;
    for (let isOver = false; !isOver;) {
      isOver = open === 0;
      const page = await store.readChanges({ ...all, after });
      seen.push(...changesIn(page).map(({ seq, id }) => `${seq} ${id}`));
      after = page.last;
    }
    return seen;
  });
  await Promise.all(writing);
  const [one, ...others] = await Promise.all(reading);
  expect(one).toHaveLength(stores.length * count);
  for (const other of others) expect(other).toEqual(one as string[]);
});

test("a database from another server continues: its newest blocks are shown, and no number is reused", async () => {
  await using scene = await makeScene();
  const dumped = await scene.open();
  await create(dumped, 1n);
  const [first] = (await dumped.readChanges(all)).changes;
  // Not numbered before the dump, and with a place in the other server's log.
  const foreign = entry(5).replace(LSN, String(2n ** 60n));
  await scene.connect().unsafe(foreign);
  const store = await scene.open();
  await create(store, 2n);
  const changes = changesIn(await store.readChanges({ ...all, after: first?.seq ?? 0 }));
  expect(changes.map(({ id }) => id)).toEqual([5n, 2n]);
  for (const { seq } of changes) expect(seq).toBeGreaterThan(first?.seq ?? 0);
});

/** Every row that is read, and what is done before it is handed on. */
const readWatched = (
  query: ChangeQuery,
  url: string,
  onRows: (rows: readonly object[]) => unknown,
): Promise<ChangePage> =>
  onWatched(url, onRows, async (watched, connection) =>
    readLater(readChanges(createSource(watched, 1, await numberBlocks(connection)), query)),
  );

test("whether the journal continues is asked without reading changes", async () => {
  await using scene = await makeScene();
  const store = await scene.open();
  const { newest: start } = await store.readChanges(all);
  for (const id of [1n, 2n, 3n]) await create(store, id);
  const { newest } = await store.readChanges(all);
  for (const after of [0, start, newest]) {
    const texts: unknown[] = [];
    const page = await readWatched({ ...all, after, limit: 0 }, scene.url, (rows) =>
      texts.push(...rows.map((row) => (row as { entries?: unknown }).entries ?? null)),
    );
    expect(page).toMatchObject({ changes: [], newest, hasMore: after < newest });
    expect(new Set(texts)).toEqual(new Set([null]));
    expect(texts.length).toBeLessThan(5);
  }
});

test("changes that are removed while a page is read end the page", async () => {
  await using scene = await makeScene();
  const store = await scene.open();
  const { newest: start } = await store.readChanges(all);
  const db = scene.connect();
  await db.unsafe(`INSERT INTO plantstore_changes (length, lsn, at_us, entries)
    SELECT 1, n, 1, '["c",null,' || n || ',"a",null]' FROM generate_series(1, 300) AS n`);
  const page = await readWatched({ ...all, after: start }, scene.url, async (rows) => {
    if (rows.length === 256)
      await db.unsafe(`DELETE FROM plantstore_changes
        WHERE last < (SELECT max(last) FROM plantstore_changes)`);
  });
  expect(page).toMatchObject({ hasMore: true });
  expect(page.changes).toHaveLength(255);
  const next = store.readChanges({ ...all, after: page.last });
  expect(await rejectionOf(next)).toMatchObject({ reason: "changes_gone" });
});
