/** The journal of changes, as every engine keeps it. */

import { describe, expect, test } from "bun:test";
import type { Change } from "../../client/changes.ts";
import type { ChangeQuery } from "../../src/domain/change.ts";
import { engine, openTestDatabase, openTestStore } from "../support/database.ts";
import { rejectionOf } from "../support/expect.ts";
import { changesIn } from "../support/plants.ts";
import { until } from "../support/until.ts";

export const groups = ["sqlite", "postgres", "serializable"];

const all: ChangeQuery = { after: 0, limit: 1000, id: undefined, types: undefined };

const reasonOf = async (promise: Promise<unknown>): Promise<unknown> =>
  ((await rejectionOf(promise)) as { reason?: unknown }).reason;

const plant = (id: bigint, name: string, tag?: string) => ({ id, name, tag });

describe("the journal", () => {
  test("has every change, in order, with what was before and who made it", async () => {
    await using store = await openTestStore();
    const startedAtMs = Date.now();
    const [fern, tree] = [plant(1n, "fern", "x"), plant(1n, "tree")];
    const [moss, odd] = [plant(2n ** 63n - 1n, "m"), plant(-3n, '"],\\ ü\u0001', "")];
    await store.createPlant(fern, { token: "till" });
    await store.createPlant(fern, { token: "till" });
    await rejectionOf(store.createPlant(tree, { token: "till" }));
    await rejectionOf(store.removePlant(7n, {}, { token: "till" }));
    await store.replacePlant(tree, {}, { token: "office" });
    await store.createPlants([moss, fern, moss, odd], { token: "import" });
    await store.removePlant(1n, {});
    const page = await store.readChanges(all);
    const changes = changesIn(page);
    // One engine orders the plants of a batch by id, the other as they were sent.
    const shown = changes.map(({ seq: _seq, time: _time, ...rest }) => rest);
    const fernShown = { name: "fern", tag: "x" };
    expect(shown.filter(({ id }) => id === 1n)).toEqual([
      { type: "created", id: 1n, by: "till", plant: fernShown },
      { type: "replaced", id: 1n, by: "office", plant: { name: "tree" }, before: fernShown },
      { type: "removed", id: 1n, before: { name: "tree" } },
    ]);
    for (const { id, name, tag } of [moss, odd])
      expect(shown.filter((change) => change.id === id)).toEqual([
        { type: "created", id, by: "import", plant: tag === undefined ? { name } : { name, tag } },
      ]);
    expect(changes).toHaveLength(5);
    const seqs = changes.map(({ seq }) => seq);
    expect(seqs).toEqual([...new Set(seqs)].toSorted((one, other) => one - other));
    expect(seqs[0]).toBeGreaterThanOrEqual(startedAtMs * 1000);
    for (const { atMs } of page.changes) expect(Math.abs(atMs - startedAtMs)).toBeLessThan(60_000);
    expect(page).toMatchObject({ last: page.newest, hasMore: false });
  });

  test("continues after a transaction that is larger than a page", async () => {
    await using store = await openTestStore();
    const large = [1n, 2n, 3n].map((id) => plant(id, "x".repeat(300_000)));
    await store.createPlants(large);
    await store.createPlant(plant(4n, "behind them"));
    const seen: bigint[] = [];
    for (let { after } = all, hasMore = true; hasMore;) {
      const page = await store.readChanges({ ...all, after });
      seen.push(...changesIn(page).map(({ id }) => id));
      ({ last: after, hasMore } = page);
    }
    expect(seen).toEqual([1n, 2n, 3n, 4n]);
  });

  test("refuses to go on from a number that it does not have", async () => {
    await using store = await openTestStore();
    const { newest } = await store.readChanges(all);
    // In another millisecond, so there are numbers between the two.
    await Bun.sleep(2);
    await store.createPlant(plant(1n, "a"));
    const read = (after: number) => store.readChanges({ ...all, after });
    const [first] = changesIn(await read(newest)) as [Change];
    // Nothing can be between the two.
    expect(changesIn(await read(first.seq - 1))).toEqual([first]);
    const { connects } = await store.readFigures();
    // The first is a number that another store may have given.
    for (const after of [1_767_225_600_000_000, newest + 1])
      expect(await reasonOf(read(after))).toBe("changes_gone");
    // A number that a store had which was restored to an earlier state. Its clock may have been ahead.
    const { newest: last } = await read(newest);
    for (const lost of [last + 1, (Date.now() + 60_000) * 1000, Number.MAX_SAFE_INTEGER])
      expect(String(await rejectionOf(read(lost)))).toContain(`then the changes after ${last}`);
    await read(newest);
    // A refusal does not cost others their connection to the server.
    expect((await store.readFigures()).connects).toBe(connects);
  });

  test("begins with its oldest change for every number that no store can have given, until changes are dropped", async () => {
    await using store = await openTestStore({ trimSeconds: 0.05 });
    const starts = [-1, 1, 1_767_225_599_999_999];
    const findBefore = (seq: number) => store.findChangeBefore(seq);
    const { last: beginning } = await store.readChanges(all);
    for (const id of [1n, 2n, 3n]) await store.createPlant(plant(id, "a"));
    for (const after of starts) {
      const page = await store.readChanges({ ...all, after });
      expect(changesIn(page).map(({ id }) => id)).toEqual([1n, 2n, 3n]);
      // A filtered page may end early.
      let filtered = await store.readChanges({ ...all, after, id: 2n });
      while (changesIn(filtered).length === 0 && filtered.hasMore)
        filtered = await store.readChanges({ ...all, after: filtered.last, id: 2n });
      expect(changesIn(filtered).map(({ id }) => id)).toEqual([2n]);
      expect(await store.readChanges({ ...all, after, limit: 0 })).toMatchObject({
        last: beginning,
      });
      expect(await findBefore(after)).toBe(beginning);
    }
    const of = `the journal of this store begins with ${beginning + 1}`;
    const refused = store.readChanges({ ...all, after: 1_767_225_600_000_000 });
    expect(String(await rejectionOf(refused)).toLowerCase()).toContain(of);
    await store.database.ageChanges();
    await until(
      "two changes are removed",
      async () => changesIn(await store.readChanges(all)).length === 1,
    );
    for (const after of starts) {
      expect(await reasonOf(store.readChanges({ ...all, after }))).toBe("changes_gone");
      expect(await findBefore(after)).toBeUndefined();
    }
  });

  test("does not begin with a break, if the changes before that are dropped", async () => {
    await using database = await openTestDatabase();
    for (const [at, changesDays] of [7, 0, 7].entries()) {
      await using store = await openTestStore({ changesDays }, database);
      await store.createPlant(plant(BigInt(at), "a"));
    }
    await using store = await openTestStore({}, database);
    const isGone = async (): Promise<void> => {
      for (const after of [-1, 1])
        expect(await reasonOf(store.readChanges({ ...all, after }))).toBe("changes_gone");
    };
    await isGone();
    // As a trim leaves it that ends there.
    const [table, isBreak] =
      engine === "sqlite" ? ["changes", "first > last"] : ["plantstore_changes", "length = 0"];
    const lastBreak = `SELECT max(last) FROM ${table} WHERE ${isBreak}`;
    await database.run(`DELETE FROM ${table} WHERE last < (${lastBreak})`);
    await isGone();
    expect(await store.findChangeBefore(1)).toBeUndefined();
    expect(changesIn(await store.readChanges(all)).map(({ id }) => id)).toEqual([2n]);
  });

  test("shows a break if changes were made without it", async () => {
    await using database = await openTestDatabase();
    let last = 0;
    {
      await using store = await openTestStore({}, database);
      await store.createPlant(plant(1n, "a"));
      ({ last } = await store.readChanges(all));
      await store.createPlant(plant(5n, "on another page than the break"));
    }
    {
      await using store = await openTestStore({ changesDays: 0 }, database);
      expect(await reasonOf(store.readChanges(all))).toBe("changes_gone");
      await store.createPlants([plant(2n, "b"), plant(3n, "c")]);
      await store.removePlant(3n, {});
    }
    await using store = await openTestStore({}, database);
    await store.createPlant(plant(4n, "d"));
    expect(await reasonOf(store.readChanges({ ...all, after: last }))).toBe("changes_gone");
    const page = await store.readChanges({ ...all, limit: 1 });
    expect(changesIn(page).map(({ id }) => id)).toEqual([4n]);
    expect(page.hasMore).toBe(false);
    expect(page.last).toBeGreaterThan(last);
  });

  test("loses what is too old in steps, but never the newest number", async () => {
    await using database = await openTestDatabase();
    await using untrimmed = await openTestStore({}, database);
    const { newest: start } = await untrimmed.readChanges(all);
    const [table, columns, values] =
      engine === "sqlite"
        ? ["changes", "last, first, at_ms, entries", "n, n, 1"]
        : ["plantstore_changes", "last, length, lsn, at_us, entries", "n, 1, 1, 1"];
    await database.run(`INSERT INTO ${table} (${columns})
      WITH RECURSIVE numbers (n) AS (
        SELECT ${start + 1} UNION ALL SELECT n + 1 FROM numbers WHERE n < ${start + 1_500}
      )
      SELECT ${values}, '["c",null,7,"old",null]' FROM numbers`);
    if (engine !== "sqlite")
      await database.run(
        `UPDATE plantstore_marks SET at_ms = ${start + 1_500} WHERE name = 'changes'`,
      );
    await untrimmed.createPlant(plant(1n, "newest"));
    const { changes: old, newest } = await untrimmed.readChanges(all);
    expect(old.length).toBeGreaterThan(100);
    await using store = await openTestStore(keeping(2), database);
    const readSeqs = async () => (await store.readChanges(all)).changes.map(({ seq }) => seq);
    await until("old changes are removed", async () => (await readSeqs()).length === 1);
    expect(await readSeqs()).toEqual([newest]);
    await store.createPlant(plant(2_000n, "new"));
    // The one before it may be gone by now.
    const created = changesIn(await store.readChanges(all)).at(-1);
    expect(created?.id).toBe(2_000n);
    expect(created?.seq).toBeGreaterThan(newest);
  });

  test("is trimmed from its start without a hole", async () => {
    await using database = await openTestDatabase();
    await using untrimmed = await openTestStore({}, database);
    const large = "x".repeat(5_000_000);
    for (const id of [1n, 2n, 3n]) await untrimmed.createPlant(plant(id, large));
    const read = async (after: number) =>
      changesIn(await untrimmed.readChanges({ ...all, after }))[0] as Change;
    const first = await read(0);
    await using store = await openTestStore(keeping(2), database);
    await until("the second change is removed", async () => (await read(0)).id === 3n);
    expect(await reasonOf(read(first.seq))).toBe("changes_gone");
    await store.createPlant(plant(4n, "d"));
  });

  test("is trimmed by time that was seen to pass, whatever the clock says", async () => {
    await using store = await openTestStore(keeping(1_440));
    const { database } = store;
    await store.createPlants([plant(1n, "a"), plant(2n, "b")]);
    const [table, time] =
      engine === "sqlite" ? ["changes", "at_ms"] : ["plantstore_changes", "at_us"];
    await store.readChanges(all);
    // The clock has jumped ahead since.
    await database.run(`UPDATE ${table} SET ${time} = 1`);
    await store.createPlant(plant(3n, "c"));
    const start = await database.readMark();
    await until("the journal was trimmed", async () => (await database.readMark()) > start + 1);
    expect((await store.readChanges(all)).changes).toHaveLength(3);
  });

  test("counts time once for several stores, with few marks", async () => {
    await using database = await openTestDatabase();
    const interval = { ...keeping(1_440), markSeconds: 0.05 };
    const startedAtMs = performance.now();
    await using stores = new AsyncDisposableStack();
    for (let count = 0; count < 3; count++) stores.use(await openTestStore(interval, database));
    await until("a few marks are made", async () => (await database.readMark()) >= 5);
    const marks = await database.readMark();
    expect((performance.now() - startedAtMs) / 50).toBeGreaterThanOrEqual(marks);
    const table = engine === "sqlite" ? "journal_marks" : "plantstore_journal_marks";
    await database.run(`INSERT INTO ${table} (number, change)
      WITH RECURSIVE numbers (n) AS (
        SELECT 1000 UNION ALL SELECT n + 1 FROM numbers WHERE n < 3000
      )
      SELECT n, 1 FROM numbers`);
    await until("old marks are removed", async () => (await database.readMark()) > 3_001);
    const left = await database.countMarks();
    // Those of the last hour, one for each of the 24 before it, and what was made before the count.
    expect(left).toBeLessThan(61 + 24 + 10);
  });
});

/** Trims every 10 ms, and keeps changes for this number of intervals. */
const keeping = (marks: number) => ({
  trimSeconds: 0.005,
  markSeconds: 0.01,
  changesDays: marks / 1_440,
});
