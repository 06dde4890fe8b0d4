/** Numbers in the order of the commits, whatever the transactions do. */

import { SQL } from "bun";
import { expect, test } from "bun:test";
import { resolveConfig } from "../../src/config.ts";
import type { ChangeQuery } from "../../src/domain/change.ts";
import type { Store } from "../../src/domain/store.ts";
import { openStore } from "../../src/store/open.ts";
import { createTestDatabase, sharedPostgres } from "../support/postgres-server.ts";

const all: ChangeQuery = { after: 0, limit: 1000, id: undefined, types: undefined };

interface Scene extends AsyncDisposable {
  readonly open: () => Promise<Store>;
  /** A session of its own, which may hold a transaction open. */
  readonly connect: () => SQL;
}

async function makeScene(): Promise<Scene> {
  await using made = new AsyncDisposableStack();
  const database = made.use(await createTestDatabase(await sharedPostgres()));
  const { config } = resolveConfig({}, { DATABASE_URL: database.url });
  const stack = made.move();
  return {
    open: async () => {
      const store = await openStore(database.url, config);
      stack.defer(() => store.close());
      return store;
    },
    connect: () => {
      const db = new SQL(database.url, { max: 1 });
      stack.defer(() => db.close());
      return db;
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

const create = (store: Store, id: bigint): Promise<unknown> =>
  store.createPlant({ id, name: `plant ${id}`, tag: undefined });

const readIds = async (store: Store, after = 0): Promise<bigint[]> =>
  (await store.readChanges({ ...all, after })).changes.map(({ id }) => id);

/** What the service's own statement does, in a transaction that goes on. */
const CHANGE = `BEGIN; INSERT INTO plants (id, name) VALUES (1, 'plant 1');
  INSERT INTO plantstore_changes (length, xid, at_us, entries) VALUES
    (1, pg_current_xact_id()::text::bigint, 0, '["c",null,1,"plant 1",null]')`;

test("a change that commits late comes before those that began after it, and none is shown until then", async () => {
  await using scene = await makeScene();
  const [store, other] = [await scene.open(), await scene.open()];
  const late = scene.connect();
  await late.unsafe(CHANGE);
  await create(store, 2n);
  await create(other, 3n);
  const before = await store.readChanges(all);
  expect(before.changes).toEqual([]);
  await late.unsafe("COMMIT");
  expect(await readIds(other, before.last)).toEqual([1n, 2n, 3n]);
  expect(await readIds(store, before.last)).toEqual([1n, 2n, 3n]);
});

test("a transaction that rolls back leaves nothing behind", async () => {
  await using scene = await makeScene();
  const store = await scene.open();
  const late = scene.connect();
  await late.unsafe(CHANGE);
  await create(store, 2n);
  expect(await readIds(store)).toEqual([]);
  await late.unsafe("ROLLBACK");
  expect(await readIds(store)).toEqual([2n]);
});

test("a transaction that only reads holds nobody up", async () => {
  await using scene = await makeScene();
  const store = await scene.open();
  const reader = scene.connect();
  await reader.unsafe("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM plants");
  await create(store, 2n);
  expect(await readIds(store)).toEqual([2n]);
});

test("instances that read at once give the same numbers, while others write", async () => {
  await using scene = await makeScene();
  const stores = await Promise.all([1, 2, 3].map(() => scene.open()));
  const count = 100;
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
      seen.push(...page.changes.map(({ seq, id }) => `${seq} ${id}`));
      after = page.last;
    }
    return seen;
  });
  await Promise.all(writing);
  const [one, ...others] = await Promise.all(reading);
  expect(one).toHaveLength(stores.length * count);
  for (const other of others) expect(other).toEqual(one as string[]);
}, 60_000);

test("a database from another server goes on: its newest blocks are shown, and no number comes again", async () => {
  await using scene = await makeScene();
  const store = await scene.open();
  await create(store, 1n);
  const [first] = (await store.readChanges(all)).changes;
  const db = scene.connect();
  // Not numbered before the dump, and by a transaction that this server does not have.
  await db.unsafe(`INSERT INTO plantstore_changes (length, xid, at_us, entries)
    VALUES (1, ${2 ** 50}, 1, '["c",null,5,"dumped",null]')`);
  await create(store, 2n);
  const { changes } = await store.readChanges({ ...all, after: first?.seq ?? 0 });
  expect(new Set(changes.map(({ id }) => id))).toEqual(new Set([2n, 5n]));
  for (const { seq } of changes) expect(seq).toBeGreaterThan(first?.seq ?? 0);
});
