/** The change log of a backup: what a restore reaches with it, and what becomes of a log that is not whole. */

import { Database } from "bun:sqlite";
import { afterEach, describe, expect, test } from "bun:test";
import {
  appendFileSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { dirname } from "node:path";
import { mintToken, toRecord } from "../src/auth/token.ts";
import type { Store } from "../src/domain/store.ts";
import { scopes } from "../src/domain/token.ts";
import { backUpStore, restoreStore } from "../src/store/sqlite/backup.ts";
import { logOf, NEWEST, openChangeLog, type Point } from "../src/store/sqlite/change-log.ts";
import { runCommand, runForJson } from "./support/command.ts";
import { openStoreAt } from "./support/database.ts";
import { failure, rejectionOf } from "./support/expect.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { changesIn, type StoredPlant } from "./support/plants.ts";
import { createRandom } from "./support/random.ts";
import { alter, readPlants } from "./support/stores.ts";
import { until } from "./support/until.ts";

const { signal } = new AbortController();
const atChange = (change = Number.NaN): Point => ({ ...NEWEST, change });
const atTime = (atMs: number): Point => ({ ...NEWEST, atMs });
/** The clock moves on before it resolves. */
const passMoment = async (): Promise<number> => {
  const nowMs = Date.now();
  await until("the clock has moved on", () => Date.now() > nowMs);
  return nowMs;
};
const all = { id: undefined, types: undefined, after: 0, limit: 1_000 };
const cleanUps: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).toReversed()) await cleanUp();
});

/** A store, a copy of it when it had one plant, and the log of the copy. */
async function makeScene() {
  const folder = makeTemporaryFolder();
  cleanUps.push(() => folder[Symbol.dispose]());
  const [from, copy] = [`${folder.path}/plants.db`, `${folder.path}/plants-20260101T000000Z.db`];
  const store = await openStoreAt(`sqlite:${from}`);
  cleanUps.push(() => store.close());
  await store.createPlant({ id: 1n, name: "one", tag: undefined });
  await backUpStore({ from, to: copy, signal });
  const follow = () => {
    const log = openChangeLog(from, copy);
    cleanUps.push(() => log.close());
    return log;
  };
  let restores = 0;
  return {
    from,
    copy,
    store,
    follow,
    file: logOf(copy),
    create: (id: bigint, name = `plant ${id}`) => store.createPlant({ id, name, tag: undefined }),
    restore: async (moment = NEWEST) => {
      const to = `${folder.path}/restored-${++restores}.db`;
      const { replayed } = await restoreStore({ from: copy, to, signal, until: moment });
      return { to, url: `sqlite:${to}`, replayed, ids: readPlants(to).map(({ id }) => id) };
    },
    readChanges: async () => changesIn(await store.readChanges(all)),
  };
}

describe("a copy with its change log", () => {
  test("is restored to any change, with exact ids and texts, and the journal continues", async () => {
    const { store, from, follow, restore, readChanges } = await makeScene();
    const random = createRandom();
    const log = follow();
    const model = new Map<bigint, StoredPlant>([[1n, { id: 1n, name: "one", tag: null }]]);
    const states: StoredPlant[][] = [];
    const ids = [-(2n ** 63n), 2n ** 63n - 1n, 9_007_199_254_740_993n, 4n, 5n];
    for (let step = 0; step < 60; step++) {
      const id = random.pick(ids);
      const tag = random.pick([undefined, "", "a\nb", "水"]);
      const plant = { id, name: random.pick(["Ä\u2028", '"\\', "x".repeat(3_000)]) + step, tag };
      if (!model.has(id)) await store.createPlant(plant, { token: "till 'ü'" });
      else if (random.chance(50)) await store.replacePlant(plant, {}, undefined);
      else await store.removePlant(id, {});
      if (model.has(id) && (await store.findPlant(id)) === undefined) model.delete(id);
      else model.set(id, { ...plant, tag: tag ?? null });
      states.push([...model.values()].toSorted((one, other) => (one.id < other.id ? -1 : 1)));
      if (random.chance(30)) expect(log.append()).toBe(true);
    }
    expect(log.append()).toBe(true);
    const changes = await readChanges();
    expect(changes).toHaveLength(61);
    for (const index of [0, 1, 17, 42, 59]) {
      const { seq } = changes[index + 1] ?? { seq: 0 };
      const { to, replayed } = await restore(atChange(seq));
      expect(readPlants(to)).toEqual(states[index] ?? []);
      expect(replayed).toMatchObject({ changes: index + 1, reached: { change: seq } });
    }
    // The journal too: a reader of the feed continues.
    const { to, replayed } = await restore();
    expect(replayed?.changes).toBe(60);
    expect(readJournal(to)).toEqual(readJournal(from));
  });

  test("stops inside a block, and at a time", async () => {
    const { store, follow, restore, readChanges } = await makeScene();
    const block = [2n, 3n, 4n].map((id) => ({ id, name: "together", tag: undefined }));
    await store.createPlants(block);
    const between = await passMoment();
    await store.createPlants([{ id: 5n, name: "later", tag: undefined }]);
    follow().append();
    const [, , third] = await readChanges();
    expect((await restore(atChange(third?.seq))).ids).toEqual([1n, 2n, 3n]);
    expect((await restore(atTime(between))).ids).toEqual([1n, 2n, 3n, 4n]);
    expect((await restore(atTime(Date.now() + 60_000))).ids).toEqual([1n, 2n, 3n, 4n, 5n]);
  });

  test("has the tokens and webhooks of the moment, also where a name was given again", async () => {
    const { store, follow, restore } = await makeScene();
    const log = follow();
    const token = () => toRecord(mintToken(), { name: "till", scopes, createdAtMs: 1 });
    const old = token();
    const hook = (name: string, version: string) => ({ name, version }) as never;
    const read = async (from: Store) => ({
      tokens: await from.listTokens({ after: "", limit: 9 }),
      webhooks: await from.listWebhooks(),
    });
    await store.createToken(old);
    await store.putWebhook(hook("shop", "1"), undefined);
    await store.putWebhook(hook("office", "1"), undefined);
    log.append();
    const before = await read(store);
    const between = await passMoment();
    await store.revokeToken(old.hash, 7);
    await store.createToken(token());
    await store.putWebhook(hook("shop", "2"), hook("shop", "1"));
    await store.putWebhook(undefined, hook("office", "1"));
    log.append();
    const after = await read(store);
    expect([before.tokens.length, after.tokens.length]).toEqual([1, 2]);
    const readAt = async (moment: Point) => {
      await using restored = await openStoreAt((await restore(moment)).url);
      return await read(restored);
    };
    expect([await readAt(atTime(between)), await readAt(NEWEST)]).toEqual([before, after]);
  });
});

function readJournal(path: string): unknown[] {
  using db = new Database(path, { readonly: true });
  return db.query("SELECT * FROM changes").all();
}

describe("a change log that is not whole:", () => {
  test("a last line that was cut off is left out, and the next append replaces it", async () => {
    const { create, follow, restore, file } = await makeScene();
    const log = follow();
    await create(2n);
    log.append();
    const whole = statSync(file).size;
    await create(3n);
    log.append();
    truncateSync(file, statSync(file).size - 1);
    expect((await restore()).ids).toEqual([1n, 2n]);
    await create(4n);
    expect(follow().append()).toBe(true);
    expect((await restore()).ids).toEqual([1n, 2n, 3n, 4n]);
    truncateSync(file, whole);
    appendFileSync(file, "00000000 {");
    expect((await restore()).ids).toEqual([1n, 2n]);
  });

  test.each<[string, (second: string) => string[]]>([
    ["a byte that has changed", (second) => [second.replace("plant 3", "plant 9")]],
    ["a line that is missing", () => []],
    ["a line that is there twice", (second) => [second, second]],
  ])("%s is an error that names the last change before it", async (_, spoil) => {
    const { create, follow, restore, readChanges, file } = await makeScene();
    const log = follow();
    for (const id of [2n, 3n, 4n]) {
      await create(id);
      log.append();
    }
    const lines = readFileSync(file, "utf8")
      .split("\n")
      .filter((line) => line.includes("entries"));
    writeFileSync(file, `${lines.toSpliced(1, 1, ...spoil(lines[1] ?? "")).join("\n")}\n`);
    const changes = await readChanges();
    const { message: failed } = (await rejectionOf(restore())) as Error;
    const [, number] = /is damaged \d+ bytes from its start.*--at-change (\d+)/.exec(failed) ?? [];
    expect(changes.map(({ seq }) => seq)).toContain(Number(number));
    expect((await restore(atChange(Number(number)))).ids.slice(0, 2)).toEqual([1n, 2n]);
    expect(() => follow()).toThrow("is damaged");
  });

  test("a change that does not fit the copy is an error", async () => {
    const { create, follow, restore, copy } = await makeScene();
    await create(2n);
    follow().append();
    alter(copy, "INSERT INTO plants VALUES (2, 'not from here', NULL)");
    expect(restore()).rejects.toThrow("does not fit the copy");
  });
});

test("a restored store never gives the number of a change again", async () => {
  const { create, restore, store } = await makeScene();
  await create(2n);
  await create(3n);
  const { newest: seen } = await store.readChanges(all);
  await using restored = await openStoreAt((await restore()).url);
  const readOn = () => rejectionOf(restored.readChanges({ ...all, after: seen }));
  expect(await readOn()).toMatchObject({ reason: "changes_gone" });
  await restored.createPlant({ id: 4n, name: "later", tag: undefined });
  expect(await readOn()).toMatchObject({ reason: "changes_gone" });
  const changes = changesIn(await restored.readChanges(all));
  expect(changes.map(({ id }) => id)).toEqual([1n, 4n]);
  expect(changes[1]?.seq).toBeGreaterThan(seen);
});

describe("an append asks for a new copy", () => {
  test("if the journal was trimmed past the log", async () => {
    const { create, follow, from } = await makeScene();
    const log = follow();
    expect(log.append()).toBe(true);
    await create(2n);
    await create(3n);
    alter(from, "DELETE FROM changes WHERE last < (SELECT max(last) FROM changes)");
    expect(log.append()).toBe(false);
  });

  test("if changes were made that the journal does not have", async () => {
    const { store, follow, from } = await makeScene();
    const log = follow();
    await store.close();
    const silent = await openStoreAt(`sqlite:${from}`, { changesDays: 0 });
    await silent.createPlant({ id: 7n, name: "unseen", tag: undefined });
    await silent.close();
    expect(log.append()).toBe(false);
  });

  test("if the copy or its log is gone", async () => {
    const { create, follow, copy, file } = await makeScene();
    const log = follow();
    await create(2n);
    expect(log.append()).toBe(true);
    renameSync(file, `${file}.away`);
    expect(log.append()).toBe(false);
    renameSync(`${file}.away`, file);
    expect(log.append()).toBe(true);
    rmSync(copy);
    expect(log.append()).toBe(false);
  });

  test("if the store was restored to a moment before the log's last change", async () => {
    const { create: add, follow, copy, from, store } = await makeScene();
    await add(2n);
    const log = follow();
    log.append();
    log.close();
    await store.close();
    rmSync(from);
    await restoreStore({ from: copy, to: from, signal });
    expect(follow().append()).toBe(false);
  });
});

describe("restore from a folder of copies", () => {
  test("a moment that only the log of the copy before has is restored from there", async () => {
    const scene = await makeScene();
    const { from, copy, follow, readChanges } = scene;
    const log = follow();
    await scene.create(2n);
    // The newest copy has no log yet: the service was killed just after it was made.
    await backUpStore({ from, to: copy.replace("000000Z", "000001Z"), signal });
    await scene.create(3n);
    await scene.create(4n);
    expect(log.append()).toBe(true);
    const seqs = (await readChanges()).map(({ seq }) => seq);
    const to = (place: number) => ({ DATABASE_URL: `sqlite:${from}-${place}` });
    for (const place of [1, 2]) {
      const args = ["restore", "--at-change", `${seqs[place]}`, dirname(from)];
      const { exitCode, stdout, stderr } = await runCommand(args, to(place));
      expect([exitCode, stderr]).toEqual([0, ""]);
      expect(stdout).toMatch(new RegExp(`^ {2}Changes {2}${place}$`, "m"));
      expect(stdout).toMatch(new RegExp(`^ {2}Moment {2}\\S+Z, change ${seqs[place]}$`, "m"));
      const ids = readPlants(`${from}-${place}`).map(({ id }) => id);
      expect(ids).toEqual([1n, 2n, 3n].slice(0, place + 1));
    }
    expect(await runForJson(["restore", dirname(from)], to(3))).toMatchObject({
      plants: 4,
      changes: 3,
      moment: { at: expect.any(String), change: seqs[3] },
    });
  });

  test("a moment that is none, or older than every copy, is refused", async () => {
    const { copy, from } = await makeScene();
    const to = { DATABASE_URL: `sqlite:${from}.restored` };
    for (const [flags, exitCode, message] of [
      ["--at yesterday", 2, "--at: "],
      ["--at 2026-11-15T10:00:00", 2, "expected a time with its zone"],
      ["--at 2026-02-31T10:00:00Z", 2, "--at: "],
      ["--at-change -1", 2, "--at-change: "],
      ["--at-change 1.5", 2, "--at-change: "],
      ["--at 2026-11-15T10:00:00Z --at-change 1", 2, "give one of them"],
      ["--at 2020-01-01T00:00:00Z", 1, "is old enough. The oldest was made at 2026-01-01"],
      ["--at-change 1", 1, "is old enough"],
    ] as const)
      for (const place of exitCode === 2 ? [dirname(copy), copy] : [dirname(copy)]) {
        const finished = await runCommand(["restore", ...flags.split(" "), place], to);
        expect([flags, finished]).toEqual([flags, failure(exitCode, message)]);
      }
  });
});
