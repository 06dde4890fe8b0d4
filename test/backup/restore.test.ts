/** A place of backups: what a restore reaches with it, and what becomes of pieces that are not whole. */

import { Database } from "bun:sqlite";
import { afterEach, describe, expect, setSystemTime, spyOn, test } from "bun:test";
import { randomBytes } from "node:crypto";
import {
  appendFileSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { mintToken, toRecord } from "../../src/auth/token.ts";
import { Appender, type Reached } from "../../src/backup/ship.ts";
import { digestState } from "../../src/backup/copy.ts";
import { restoreFile, restoreStore } from "../../src/backup/create.ts";
import { backUp, check, compact, prove, prune } from "../../src/backup/maintain.ts";
import { findPiece, labelOf } from "../../src/backup/names.ts";
import { type GrowingFile, openPlace } from "../../src/backup/place.ts";
import { listPlace, verifyPlace } from "../../src/backup/report.ts";
import { restoreFromPlace, type RestoreTask } from "../../src/backup/restore.ts";
import { nameProcess, readBoot } from "../../src/backup/scratch.ts";
import { Survey } from "../../src/backup/survey.ts";
import type { Store } from "../../src/domain/store.ts";
import { scopes } from "../../src/domain/token.ts";
import { runCommand, runForJson } from "../support/command.ts";
import { openStoreAt } from "../support/database.ts";
import { failure, rejectionOf } from "../support/expect.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { changesIn, type StoredPlant } from "../support/plants.ts";
import { createRandom } from "../support/random.ts";
import { alter, readPlants } from "../support/stores.ts";
import { until } from "../support/until.ts";

const { signal } = new AbortController();
type Moment = Pick<RestoreTask, "change" | "atMs" | "timeline" | "store" | "isIncomplete">;
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

function makePlace() {
  const folder = makeTemporaryFolder();
  cleanUps.push(() => folder[Symbol.dispose]());
  const place = `${folder.path}/backups`;
  mkdirSync(place);
  let restores = 0;
  return {
    folder: folder.path,
    place,
    /** Packed ones too. */
    list: (ending: string): string[] =>
      readdirSync(place)
        .filter((name) => name.replace(/\.zst$/, "").endsWith(ending))
        .toSorted()
        .map((name) => `${place}/${name}`),
    restore: async (moment: Moment = {}, from = place) => {
      const to = `${folder.path}/restored-${++restores}.db`;
      const task = { place: from, label: "plants", ...moment };
      const restored = await restoreStore(task, to, signal);
      return { ...restored, to, ids: readPlants(to).map(({ id }) => id) };
    },
  };
}

/** A store with its backups: an appender, and copies on demand. */
async function openBacked(
  at: ReturnType<typeof makePlace>,
  name = "plants.db",
  limits: Parameters<typeof openStoreAt>[1] = {},
  open = openPlace,
) {
  const from = `${at.folder}/${name}`;
  const store = await openStoreAt(`sqlite:${from}`, limits);
  const instance = randomBytes(6).toString("hex");
  const source = { from, to: at.place, label: labelOf(from), instance };
  const appender = new Appender(source, open);
  const append = async () => {
    const done = await appender.append();
    if (!("forkAbove" in done)) return done;
    await store.backUps?.startTimeline(done.forkAbove, done.after);
    return (await appender.append()) as Extract<typeof done, { change: number }>;
  };
  let isClosed = false;
  const close = async (): Promise<void> => {
    if (isClosed) return;
    isClosed = true;
    appender.disconnect();
    await store.close();
  };
  cleanUps.push(close);
  return {
    from,
    store,
    appender,
    append,
    close,
    source,
    copy: async () => {
      const { serial } = await append();
      const made = await backUp({ ...source, serial, diskFreeBytesMin: 0 });
      appender.cover(made);
      await append();
      return made;
    },
    create: (id: bigint, text = `plant ${id}`) =>
      store.createPlant({ id, name: text, tag: undefined }),
    readChanges: async () => changesIn(await store.readChanges(all)),
  };
}

/** A bucket is a place without files that grow. */
const openBucket: typeof openPlace = async (...of) => {
  const { grow: _, ...place } = await openPlace(...of);
  return place;
};

/** The newest two copies. */
const newest = { momentsMs: 0, days: 0 };

/** A store with one plant and one copy. */
async function makeScene(open = openPlace) {
  const at = makePlace();
  const backed = await openBacked(at, "plants.db", {}, open);
  await backed.create(1n);
  await backed.append();
  await backed.copy();
  return {
    ...at,
    ...backed,
    /** Puts this file in the place of the store, which is closed. */
    replaceBy: async (file: string) => {
      rmSync(backed.from);
      copyFileSync(file, backed.from);
    },
  };
}

/** Puts a snapshot of the store file back, after the plant `lost` was created and backed up. */
async function rollBack(scene: Awaited<ReturnType<typeof makeScene>>, lost: bigint) {
  await scene.close();
  copyFileSync(scene.from, `${scene.folder}/old.db`);
  const later = await openBacked(scene);
  await later.create(lost, "lost with the snapshot");
  await later.append();
  await later.close();
  await scene.replaceBy(`${scene.folder}/old.db`);
}

/** In the middle of a packed file. */
const flip = (file: string, find: string): void => {
  const bytes = readFileSync(file);
  const place = file.endsWith(".zst") ? Math.floor(bytes.length / 2) : bytes.indexOf(find);
  expect(place).toBeGreaterThan(0);
  bytes[place] = (bytes[place] as number) ^ 1;
  writeFileSync(file, bytes);
};

describe("a copy with the segments after it", () => {
  test("is restored to any change, with exact ids and texts, and the journal continues", async () => {
    const { store, from, append, restore, readChanges } = await makeScene();
    const random = createRandom();
    const model = new Map<bigint, StoredPlant>([[1n, { id: 1n, name: "plant 1", tag: null }]]);
    const states: StoredPlant[][] = [];
    const ids = [-(2n ** 63n), 2n ** 63n - 1n, 9_007_199_254_740_993n, 4n, 5n];
    for (let step = 0; step < 60; step++) {
      const id = random.pick(ids);
      const tag = random.pick([undefined, "", "a\nb", "水"]);
      const plant = { id, name: random.pick(["Ä\u2028", '"\\', "x".repeat(3_000)]) + step, tag };
      const writer = { token: "till 'ü'", batch: "spring", trace: "4bf92f35-00f067aa" };
      if (!model.has(id)) await store.createPlant(plant, writer);
      else if (random.chance(50)) await store.replacePlant(plant, {}, undefined);
      else await store.removePlant(id, {});
      if (model.has(id) && (await store.findPlant(id)) === undefined) model.delete(id);
      else model.set(id, { ...plant, tag: tag ?? null });
      states.push([...model.values()].toSorted((one, other) => (one.id < other.id ? -1 : 1)));
      if (random.chance(30)) await append();
    }
    await append();
    const changes = await readChanges();
    expect(changes).toHaveLength(61);
    for (const index of [0, 1, 17, 42, 59]) {
      const { seq } = changes[index + 1] ?? { seq: 0 };
      const restored = await restore({ change: seq });
      expect(readPlants(restored.to)).toEqual(states[index] ?? []);
      expect(restored).toMatchObject({
        changes: index + 1,
        reached: { change: seq },
        missing: [],
        damage: [],
      });
    }
    // The journal too: a reader of the feed continues.
    const { to, changes: replayed } = await restore();
    expect(replayed).toBe(60);
    expect(readJournal(to)).toEqual(readJournal(from));
    // Every column of the plants, with the times of their last changes.
    expect(digestState(to)).toBe(digestState(from));
  });

  test("stops inside a block, between two changes, and at a time", async () => {
    const { store, append, restore, readChanges } = await makeScene();
    await store.createPlants([2n, 3n, 4n].map((id) => ({ id, name: "together", tag: undefined })));
    const between = await passMoment();
    await store.createPlants([{ id: 5n, name: "later", tag: undefined }]);
    await append();
    const [, , third, , fifth] = await readChanges();
    expect((await restore({ change: third?.seq })).ids).toEqual([1n, 2n, 3n]);
    expect(await restore({ change: (fifth?.seq ?? 0) - 1 })).toMatchObject({
      ids: [1n, 2n, 3n, 4n],
      missing: [],
    });
    expect((await restore({ atMs: between })).ids).toEqual([1n, 2n, 3n, 4n]);
    expect((await restore({ atMs: Date.now() + 60_000 })).ids).toEqual([1n, 2n, 3n, 4n, 5n]);
  });

  test("has the tokens and webhooks of the moment, also where a name was given again", async () => {
    const { store, append, copy, restore, readChanges, create } = await makeScene();
    const tags = ["indoor", "ü"];
    const token = () =>
      toRecord(mintToken(), { name: "till", scopes, tags, createdAtMs: Date.now() });
    const old = token();
    const hook = (name: string, version: string) =>
      ({ name, version, url: version, attempts: [], failures: 0, nextAttemptAtMs: 0 }) as never;
    const read = async (from: Store) => ({
      tokens: await from.listTokens({ after: "", limit: 9 }),
      webhooks: await from.listWebhooks(),
    });
    const readAt = async (moment: Moment) => {
      await using restored = await openStoreAt(`sqlite:${(await restore(moment)).to}`);
      return await read(restored);
    };
    const [first] = await readChanges();
    await store.createToken(old);
    await store.putWebhook(hook("shop", "1"), undefined);
    await store.putWebhook(hook("office", "1"), undefined);
    await append();
    const before = await read(store);
    await create(2n);
    const [, second] = await readChanges();
    await append();
    const between = await passMoment();
    await store.revokeToken(old.hash, Date.now());
    await store.createToken(token());
    await store.putWebhook(hook("shop", "2"), hook("shop", "1"));
    await store.putWebhook(undefined, hook("office", "1"));
    await append();
    const after = await read(store);
    expect([before.tokens.length, after.tokens.length]).toEqual([1, 2]);
    expect(await readAt({ atMs: between })).toEqual(before);
    expect(await readAt({ change: second?.seq })).toEqual(before);
    expect(await readAt({})).toEqual(after);
    // What was made after the last change of a copy is not restored with that change.
    expect((await readAt({ change: first?.seq })).tokens).toEqual([]);
    await copy();
    expect(await readAt({})).toEqual(after);
    expect(await readAt({ change: second?.seq })).toEqual(before);
  });

  test("a webhook's progress is noted, and adds nothing to the journal", async () => {
    const { store, append, appender, list, restore } = await makeScene();
    const record = (version: string, cursor: number) =>
      ({
        name: "shop",
        url: "http://x",
        secret: "s",
        version,
        cursor,
        attempts: [],
        createdAtMs: 5,
      }) as never;
    const size = () => statSync(list("open.changes")[0] ?? "").size;
    await store.putWebhook(record("1", 1), undefined);
    await append();
    const before = size();
    for (let round = 1; round < 20; round++) {
      await store.putWebhook(record(String(round + 1), round), record(String(round), round - 1));
      await append();
    }
    expect(size()).toBe(before);
    await appender.finish();
    await using restored = await openStoreAt(`sqlite:${(await restore()).to}`);
    expect(await restored.listWebhooks()).toMatchObject([{ name: "shop", cursor: 19 }]);
  });
});

function readJournal(path: string): unknown[] {
  using db = new Database(path, { readonly: true });
  return db.query("SELECT * FROM changes").all();
}

describe("a wrong clock", () => {
  test("orders nothing: names from the future and the past are restored by timeline and change", async () => {
    const { create, append, copy, list, restore } = await makeScene();
    for (const id of [2n, 3n, 4n]) {
      await create(id);
      await append();
      await copy();
    }
    await create(5n);
    await append();
    const times = ["20990101T000000Z", "19700101T000000Z", "20260101T000000Z", "20010101T000000Z"];
    for (const [index, file] of list(".db").entries())
      renameSync(file, file.replace(/\d{8}T\d{6}Z/, times[index] ?? ""));
    expect(await restore()).toMatchObject({ ids: [1n, 2n, 3n, 4n, 5n], missing: [] });
  });

  test("a time that can mean two states is refused, with a command for each", async () => {
    const { create, append, from, restore, readChanges } = await makeScene();
    await create(2n);
    await create(3n);
    await create(4n);
    const [, second, third] = await readChanges();
    const nowMs = Date.now();
    // The clock was an hour ahead for the second change.
    alter(from, `UPDATE changes SET at_ms = ${nowMs + 3_600_000} WHERE last = ${second?.seq}`);
    alter(from, `UPDATE changes SET at_ms = ${nowMs} WHERE last >= ${third?.seq}`);
    await append();
    const { message } = (await rejectionOf(restore({ atMs: nowMs + 1_000 }))) as Error;
    const choices = [...message.matchAll(/--at-change (\d+)/g)].map(([, number]) => Number(number));
    expect(choices).toHaveLength(2);
    expect((await restore({ change: choices[0] ?? 0 })).ids).toEqual([1n]);
    expect((await restore({ change: choices[1] ?? 0 })).ids).toEqual([1n, 2n, 3n, 4n]);
  });
});

describe("damage costs only what is damaged:", () => {
  /** Four plants; copies after the first and the third. */
  const makeDamageable = async () => {
    const scene = await makeScene();
    await scene.create(2n, "second");
    await scene.append();
    await scene.create(3n, "third");
    await scene.append();
    await scene.copy();
    await scene.create(4n, "fourth");
    await scene.append();
    await scene.create(5n, "fifth");
    await scene.append();
    return { ...scene, changes: (await scene.readChanges()).map(({ seq }) => seq) };
  };

  test("a flipped byte before the newest copy costs nothing but the moments in between", async () => {
    const { list, restore, changes } = await makeDamageable();
    const between = list(".changes").find((file) => readFileSync(file, "utf8").includes("third"));
    flip(between ?? "", "third");
    expect(await restore()).toMatchObject({ ids: [1n, 2n, 3n, 4n, 5n], missing: [] });
    expect((await restore({ change: changes[1] ?? 0 })).ids).toEqual([1n, 2n]);
    // By the copy, which has this change.
    expect(await restore({ change: changes[2] ?? 0 })).toMatchObject({ ids: [1n, 2n, 3n] });
  });

  test("a flipped byte after the newest copy is named, with the changes that are missing", async () => {
    const { list, restore, changes } = await makeDamageable();
    flip(list("open.changes")[0] ?? "", "fourth");
    const restored = await restore();
    expect(restored.ids).toEqual([1n, 2n, 3n]);
    expect(restored.missing[0]).toBe(`Changes ${(changes[2] ?? 0) + 1} to ${changes[4]}.`);
    expect(restored.damage).toEqual([
      {
        name: expect.stringContaining("open.changes"),
        faults: [expect.stringContaining("damaged")],
      },
    ]);
  });

  test("a flipped byte in the last record is never silent", async () => {
    const { list, restore } = await makeDamageable();
    flip(list("open.changes")[0] ?? "", "fifth");
    const { ids, missing } = await restore();
    expect(ids).toEqual([1n, 2n, 3n, 4n]);
    expect(missing).toEqual([expect.stringMatching(/^Changes \d+ to \d+\.$/)]);
  });

  test("a damaged copy is replaced by the one before, with its segments", async () => {
    const { list, restore } = await makeDamageable();
    flip(list(".db")[1] ?? "", "third");
    expect(await restore()).toMatchObject({ ids: [1n, 2n, 3n, 4n, 5n], missing: [] });
    flip(list(".db")[0] ?? "", "plant 1");
    expect(restore()).rejects.toThrow("No copy");
  });

  test("a torn end is left out and named, until the next append writes it again", async () => {
    const { list, restore, appender, append } = await makeDamageable();
    const file = list("open.changes")[0] ?? "";
    truncateSync(file, statSync(file).size - 2);
    expect(await restore()).toMatchObject({
      ids: [1n, 2n, 3n, 4n],
      missing: [expect.stringMatching(/^Changes \d+ to \d+\.$/)],
    });
    appender.disconnect();
    await append();
    expect(await restore()).toMatchObject({ ids: [1n, 2n, 3n, 4n, 5n], missing: [] });
  });

  test("a hole in a segment is healed by the next start", async () => {
    const { list, restore, appender, append, changes } = await makeDamageable();
    const file = list("open.changes")[0] ?? "";
    const bytes = readFileSync(file);
    bytes.fill(0, bytes.indexOf('"fourth"') - 20, bytes.indexOf('"fourth"') + 20);
    writeFileSync(file, bytes);
    appender.disconnect();
    expect(await append()).toEqual(
      expect.objectContaining({ change: changes[4] ?? 0, isCovered: true }),
    );
    expect(await restore()).toMatchObject({ ids: [1n, 2n, 3n, 4n, 5n], missing: [] });
  });

  test("segments that were lost on the way are missed", async () => {
    const { list, restore } = await makeDamageable();
    for (const file of list(".changes")) rmSync(file);
    expect(restore()).rejects.toThrow(/^The list of \S+ ends at change \d+, and its writer noted/);
    const { ids, missing } = await restore({ isIncomplete: true });
    expect(ids).toEqual([1n, 2n, 3n]);
    expect(missing).toEqual([expect.stringMatching(/^Changes \d+ to \d+\.$/)]);
  });

  test("a segment in which a plant does not fit is left out, and named", async () => {
    const { list, restore } = await makeDamageable();
    const file = list("open.changes")[0] ?? "";
    const lines = readFileSync(file, "utf8").split("\n");
    const spoilt = lines.map((line) => {
      if (!line.includes('"fifth"')) return line;
      // A create of a plant that exists.
      const json = line.slice(9).replace(",5,", ",4,");
      return `${Bun.hash.crc32(json).toString(16).padStart(8, "0")} ${json}`;
    });
    writeFileSync(file, spoilt.join("\n"));
    const { ids, missing } = await restore();
    expect(ids).toEqual([1n, 2n, 3n, 4n]);
    expect(missing.length).toBeGreaterThan(0);
  });

  test("a piece under a name that is not its own is damaged, and not one of another place", async () => {
    const { list, restore, place, append, appender, create } = await makeDamageable();
    await appender.finish();
    await create(6n);
    await append();
    const [copy = "", ...rest] = list(".db");
    copyFileSync(copy, copy.replace(/-s\d{8}-/, "-s00009999-"));
    const [one = "", other = ""] = list(".changes");
    const bytes = readFileSync(one);
    copyFileSync(other, one);
    writeFileSync(other, bytes);
    expect(rest.length).toBeGreaterThan(0);
    const { missing, ids } = await restore();
    expect(ids).toEqual([1n, 2n, 3n]);
    expect(missing).not.toEqual([]);
    const listed = await runCommand(["backup", "list", place]);
    expect(listed.stdout).toMatch(/copy .*its bytes or its name have changed/);
  });

  test("the commands exit with 3, list what is damaged, and still restore", async () => {
    const { list, place, folder } = await makeDamageable();
    flip(list("open.changes")[0] ?? "", "fourth");
    const env = { DATABASE_URL: `sqlite:${folder}/by-command.db` };
    const restored = await runCommand(["restore", place], env);
    expect(restored.exitCode).toBe(3);
    expect(restored.stdout).toContain("not complete");
    expect(restored.stderr).toMatch(/missing: Changes \d+ to \d+\./);
    expect(restored.stderr).toMatch(/damaged: \S+open\.changes: damaged \d+ bytes from its start/);
    expect(readPlants(`${folder}/by-command.db`)).toHaveLength(3);
    const verified = await runCommand(["backup", "verify", place]);
    expect(verified.exitCode).toBe(3);
    expect(verified.stdout).toContain("The backups can be restored, but not completely.");
    const listed = await runCommand(["backup", "list", place]);
    expect(listed).toMatchObject({ exitCode: 0, stderr: "" });
    expect(listed.stdout).toMatch(/segment .* damaged \d+ bytes/);
    expect(listed.stdout).toMatch(/^Changes that can be restored: \d+ to \d+$/m);
  });
});

describe("timelines", () => {
  test("a mistake that was left behind does not come back, also before the first write", async () => {
    const scene = await makeScene();
    await scene.create(2n, "good");
    await scene.append();
    await scene.create(3n, "mistake");
    await scene.append();
    const [, good] = await scene.readChanges();
    await scene.close();
    rmSync(scene.from);
    renameSync((await scene.restore({ change: good?.seq })).to, scene.from);

    const again = await openBacked(scene);
    await again.append();
    expect(await scene.restore()).toMatchObject({ ids: [1n, 2n], timeline: 2, missing: [] });
    await again.create(4n, "after");
    await again.append();
    expect((await scene.restore()).ids).toEqual([1n, 2n, 4n]);
    // What was left behind is kept, and not mixed in.
    expect(await scene.restore({ timeline: 1 })).toMatchObject({ ids: [1n, 2n, 3n], timeline: 1 });
    expect(scene.restore({ timeline: 9 })).rejects.toThrow("holds no timeline 9");
  });

  test("of which every piece is damaged is named, by restore, list and verify", async () => {
    const scene = await makeScene();
    await scene.close();
    await scene.replaceBy((await scene.restore()).to);
    const later = await openBacked(scene);
    await later.create(2n);
    await later.append();
    await later.close();
    for (const file of readdirSync(scene.place).filter((name) => /-t0002-|writer$/.test(name)))
      writeFileSync(`${scene.place}/${file}`, "rot");
    const missing = expect.arrayContaining(["Timeline 2: none of its pieces can be read."]);
    const task = { place: scene.place, label: "plants", store: undefined, scratch: scene.folder };
    expect(await scene.restore({ isIncomplete: true })).toMatchObject({ missing });
    expect(await listPlace(task)).toMatchObject({ stores: [{ missing }] });
    expect(await verifyPlace(task)).toMatchObject({ missing });
  });

  test("without a readable piece is left out, if no copy leads to where it began", async () => {
    const scene = await makeScene();
    const [first] = await scene.readChanges();
    await scene.create(2n);
    await scene.append();
    await scene.copy();
    await scene.close();
    await scene.replaceBy((await scene.restore({ change: first?.seq })).to);
    const later = await openBacked(scene);
    await later.create(3n);
    await later.append();
    await later.close();
    flip(scene.list(".db")[0] ?? "", "");
    expect(scene.restore()).rejects.toThrow("No copy in");
    for (const file of scene.list(".changes").filter((name) => name.includes("-t0002-")))
      writeFileSync(file, "rot");
    const missing = ["Timeline 2: none of its pieces can be read."];
    expect(await scene.restore()).toMatchObject({ ids: [1n, 2n], timeline: 1, missing });
    expect(scene.restore({ timeline: 2 })).rejects.toThrow("No copy in");
    const task = { place: scene.place, label: "plants", scratch: scene.folder };
    expect(await verifyPlace(task)).toMatchObject({ plants: 2n, missing });
  });

  test("an old file put in the place of the store starts a timeline by itself", async () => {
    const scene = await makeScene();
    await rollBack(scene, 2n);
    const rolled = await openBacked(scene);
    await rolled.create(3n, "after the snapshot");
    await rolled.append();
    expect(await scene.restore()).toMatchObject({ ids: [1n, 3n], timeline: 2, missing: [] });
    expect((await scene.restore({ timeline: 1 })).ids).toEqual([1n, 2n]);
  });

  test("two restores of one backup file do not mix", async () => {
    const scene = await makeScene();
    const [copy = ""] = scene.list(".db");
    await scene.close();
    for (const id of [2n, 3n]) {
      rmSync(scene.from, { force: true });
      await restoreFile(copy, scene.from, signal);
      const restored = await openBacked(scene);
      await restored.create(id);
      await restored.append();
      await restored.close();
    }
    expect(await scene.restore()).toMatchObject({ ids: [1n, 3n], missing: [] });
  });

  test("a restored store never gives the number of a change again", async () => {
    const { create, restore, store } = await makeScene();
    await create(2n);
    await create(3n);
    const { newest: seen } = await store.readChanges(all);
    await using restored = await openStoreAt(`sqlite:${(await restore()).to}`);
    const readOn = () => rejectionOf(restored.readChanges({ ...all, after: seen }));
    expect(await readOn()).toMatchObject({ reason: "changes_gone" });
    await restored.createPlant({ id: 4n, name: "later", tag: undefined });
    expect(await readOn()).toMatchObject({ reason: "changes_gone" });
    const changes = changesIn(await restored.readChanges(all));
    expect(changes.map(({ id }) => id)).toEqual([1n, 4n]);
    expect(changes[1]?.seq).toBeGreaterThan(seen);
  });
});

describe("what was left behind is never mixed in:", () => {
  test("a store that was restored twice knows both timelines", async () => {
    const scene = await makeScene();
    await scene.create(2n, "good");
    await scene.create(3n, "mistake");
    await scene.append();
    const [, good] = await scene.readChanges();
    await scene.close();
    await scene.replaceBy((await scene.restore({ change: good?.seq })).to);
    const second = await openBacked(scene);
    await second.create(4n);
    await second.append();
    await second.close();
    // By a copy of the first timeline.
    await scene.replaceBy((await scene.restore()).to);
    const third = await openBacked(scene);
    await third.create(5n);
    expect(await third.append()).toMatchObject({ isCovered: true });
    expect(await scene.restore()).toMatchObject({
      ids: [1n, 2n, 4n, 5n],
      timeline: 3,
      missing: [],
    });
  });

  test("a number that is given again after a roll-back is not taken for the same change", async () => {
    const scene = await makeScene();
    setSystemTime(new Date("2090-01-01T00:00:00Z"));
    cleanUps.push(() => setSystemTime());
    await scene.create(2n);
    setSystemTime();
    await rollBack(scene, 3n);
    const rolled = await openBacked(scene);
    await rolled.create(4n, "with the same number");
    await rolled.append();
    expect(await scene.restore()).toMatchObject({ ids: [1n, 2n, 4n], timeline: 2, missing: [] });
  });

  test("a future that no copy leads to is not continued by a new copy", async () => {
    const scene = await makeScene();
    await rollBack(scene, 2n);
    flip(scene.list(".db")[0] ?? "", "plant 1");
    const rolled = await openBacked(scene);
    expect(await rolled.append()).toMatchObject({ isCovered: false });
    await rolled.copy();
    expect(await scene.restore()).toMatchObject({ ids: [1n], timeline: 2, missing: [] });
  });

  test("changes without a journal are not skipped by what follows them", async () => {
    const scene = await makeScene();
    await scene.close();
    const silent = await openBacked(scene, "plants.db", { changesDays: 0 });
    await silent.create(2n);
    await silent.append();
    await silent.copy();
    await silent.create(3n, "after the copy");
    await silent.close();
    const again = await openBacked(scene);
    await again.create(4n);
    expect(await again.append()).toMatchObject({ isCovered: false });
    const { ids, missing } = await scene.restore();
    expect(ids).toEqual([1n, 2n]);
    expect(missing[0]).toMatch(/^Changes \d+ to \d+\.$/);
    await again.copy();
    expect(await scene.restore()).toMatchObject({ ids: [1n, 2n, 3n, 4n], missing: [] });
  });

  test("a piece under the name of another timeline is not taken for one of it", async () => {
    const { list, restore } = await makeScene();
    const [segment = ""] = list(".changes");
    copyFileSync(segment, segment.replace("-t0001-", "-t0007-"));
    expect(await restore()).toMatchObject({
      timeline: 1,
      missing: ["Timeline 7: none of its pieces can be read."],
    });
  });
});

describe("tokens", () => {
  const mint = (createdAtMs = Date.now()) =>
    toRecord(mintToken(), { name: `till ${createdAtMs}`, scopes, createdAtMs });
  const readTokens = async (restored: Promise<{ readonly to: string }>) => {
    await using store = await openStoreAt(`sqlite:${(await restored).to}`);
    return await store.listTokens({ after: "", limit: 9 });
  };

  test("a revocation after a copy is restored, also if the segment had changes before the copy", async () => {
    const scene = await makeScene();
    const token = mint();
    await scene.store.createToken(token);
    await scene.append();
    const { serial } = await scene.append();
    await scene.create(2n);
    await scene.append();
    await backUp({ ...scene.source, serial, diskFreeBytesMin: 0 });
    await scene.store.revokeToken(token.hash, Date.now());
    await scene.append();
    const [found] = await readTokens(scene.restore());
    expect(found?.revokedAtMs).toBeGreaterThan(0);
  });

  test("a revocation is restored if all segments before it are lost", async () => {
    const scene = await makeScene();
    const token = mint();
    await scene.store.createToken(token);
    await scene.append();
    await scene.copy();
    for (const file of scene.list(".changes")) rmSync(file);
    scene.appender.disconnect();
    await scene.append();
    await scene.store.revokeToken(token.hash, Date.now());
    await scene.append();
    const [found] = await readTokens(scene.restore());
    expect(found?.revokedAtMs).toBeGreaterThan(0);
  });

  test("are those of the moment, also where the place was gone for some time", async () => {
    const scene = await makeScene();
    renameSync(scene.place, `${scene.place}-away`);
    await scene.create(2n);
    await passMoment();
    const token = mint();
    await scene.store.createToken(token);
    const at = await passMoment();
    await scene.create(3n);
    await passMoment();
    await scene.store.revokeToken(token.hash, Date.now());
    await passMoment();
    await scene.create(4n);
    expect(scene.append()).rejects.toThrow("was changed by another program");
    renameSync(`${scene.place}-away`, scene.place);
    await scene.append();
    const [, second, third, fourth] = await scene.readChanges();
    expect(await readTokens(scene.restore({ change: second?.seq }))).toEqual([]);
    for (const moment of [{ change: third?.seq }, { atMs: at }])
      expect(await readTokens(scene.restore(moment))).toMatchObject([{ revokedAtMs: undefined }]);
    const [found] = await readTokens(scene.restore({ change: fourth?.seq }));
    expect(found?.revokedAtMs).toBeGreaterThan(0);
  });

  test("are those of the change, whatever the clock said when they were made and revoked", async () => {
    const scene = await makeScene();
    const made = (name: string, createdAtMs: number) =>
      toRecord(mintToken(), { name, scopes, createdAtMs });
    const [early, late] = [made("early", Date.now() + 86_400_000), made("late", 1_000)];
    await scene.store.createToken(early);
    await scene.create(2n);
    await scene.store.createToken(late);
    await scene.create(3n);
    await scene.store.revokeToken(early.hash, 2_000);
    await scene.append();
    // The copy has a token and a revocation that are newer than its last change.
    await scene.copy();
    const [, second, third] = await scene.readChanges();
    const namesAt = async (change: number | undefined) =>
      (await readTokens(scene.restore({ change }))).map(({ name, revokedAtMs }) =>
        revokedAtMs === undefined ? name : `${name}, revoked`,
      );
    expect(await namesAt(second?.seq)).toEqual(["early"]);
    expect((await namesAt(third?.seq)).toSorted()).toEqual(["early", "late"]);
    expect((await namesAt(undefined)).toSorted()).toEqual(["early, revoked", "late"]);
  });

  test("and webhooks are those of the change, also between changes that were appended together", async () => {
    const scene = await makeScene();
    const { store, create, append, copy, restore } = scene;
    const put = async (name: string, next: string | undefined, last?: string) => {
      const of = (text: string) =>
        ({ name, version: text, url: text, attempts: [], cursor: 2 ** 52 }) as never;
      const known = last === undefined ? undefined : of(last);
      expect(await store.putWebhook(next === undefined ? next : of(next), known)).toBe(true);
    };
    const readWebhooks = async (moment: Moment) => {
      await using restored = await openStoreAt(`sqlite:${(await restore(moment)).to}`);
      const found = await restored.listWebhooks();
      return found.map(({ name, url, cursor }) => [name, url, cursor < 2 ** 52].join(" "));
    };
    scene.appender.disconnect();
    await put("shop", "1");
    await create(2n);
    await put("office", "1");
    await put("office", "2", "1");
    await create(3n);
    await put("shop", undefined, "1");
    await put("office", "3", "2");
    await create(4n);
    await append();
    const at = await passMoment();
    await put("shop", "2");
    await append();
    // The copy has a webhook that is newer than its last change.
    await copy();
    const [first, second, third, fourth] = (await scene.readChanges()).map(({ seq }) => seq);
    const expectAll = async () => {
      expect(await readWebhooks({ change: fourth })).toEqual(["office 3 true"]);
      expect(await readWebhooks({ atMs: at })).toEqual(["office 3 true"]);
      expect(await readWebhooks({})).toEqual(["office 3 true", "shop 2 true"]);
    };
    expect(await readWebhooks({ change: first })).toEqual([]);
    expect(await readWebhooks({ change: second })).toEqual(["shop 1 true"]);
    expect(await readWebhooks({ change: third })).toEqual(["office 2 true", "shop 1 true"]);
    await expectAll();
  });

  test("that were made after a moment do not come back with a timeline that began there", async () => {
    const scene = await makeScene();
    const [first] = await scene.readChanges();
    await passMoment();
    await scene.store.createToken(mint());
    await scene.append();
    await scene.close();
    await scene.replaceBy((await scene.restore({ change: first?.seq, atMs: undefined })).to);
    alter(scene.from, "DELETE FROM tokens");
    const again = await openBacked(scene);
    await again.create(2n);
    await again.create(3n);
    await again.append();
    const [, second] = await again.readChanges();
    expect(await readTokens(scene.restore({ change: second?.seq }))).toEqual([]);
  });
});

describe("what is missing is said:", () => {
  test("the segment that was begun before a copy", async () => {
    const { create, append, copy, list, restore } = await makeScene();
    await create(2n);
    await append();
    await copy();
    await create(3n);
    await append();
    rmSync(list("open.changes")[0] ?? "");
    const { ids, missing } = await restore({ isIncomplete: true });
    expect(ids).toEqual([1n, 2n]);
    expect(missing).toEqual([expect.stringMatching(/^Changes \d+ to \d+\.$/)]);
    // Without the note nothing tells what there was.
    rmSync(list(".writer")[0] ?? "");
    expect((await restore()).missing).toEqual([expect.stringContaining("the note of the writer")]);
  });

  test("an empty segment", async () => {
    const { create, append, list, restore } = await makeScene();
    await create(2n);
    await append();
    truncateSync(list("open.changes")[0] ?? "", 0);
    const { ids, missing } = await restore();
    expect(ids).toEqual([1n]);
    expect(missing).toEqual([expect.stringMatching(/^Changes \d+ to \d+\.$/)]);
  });

  test("an end that lost only its newline: the record counts, and more may have followed", async () => {
    const { create, append, list, restore } = await makeScene();
    await create(2n);
    await append();
    const [torn = ""] = list("open.changes");
    truncateSync(torn, statSync(torn).size - 1);
    const missing = [expect.stringContaining("The end of")];
    expect(await restore()).toMatchObject({ ids: [1n, 2n], missing });
  });

  test("the end of a segment, also if the next one was only begun", async () => {
    const { create, append, appender, list, restore } = await makeScene();
    await create(2n);
    await append();
    const [torn = ""] = list("open.changes");
    appender.disconnect();
    truncateSync(torn, statSync(torn).size - 3);
    const left = readFileSync(torn);
    await append();
    // Killed before the first record.
    const begun = list("open.changes").find((file) => file !== torn) ?? "";
    const written = readFileSync(begun);
    truncateSync(begun, written.indexOf("\n") + 1);
    writeFileSync(torn, left);
    const { ids, missing } = await restore();
    expect(ids).toEqual([1n]);
    expect(missing).toEqual([expect.stringMatching(/^Changes \d+ to \d+\.$/)]);
    writeFileSync(begun, written);
    expect(await restore()).toMatchObject({ ids: [1n, 2n], missing: [] });
  });

  test("changes of tokens and webhooks, until they are written again", async () => {
    const { store, create, append, appender, list, restore } = await makeScene();
    await store.createToken(toRecord(mintToken(), { name: "till", scopes, createdAtMs: 1 }));
    await append();
    await create(2n);
    await append();
    flip(list("open.changes")[0] ?? "", '"till"');
    const missing = [expect.stringMatching(/^Changes \d+ to \d+\.$/)];
    expect(await restore()).toMatchObject({ ids: [1n], tokens: 0n, missing });
    appender.disconnect();
    await append();
    expect(await restore()).toMatchObject({ ids: [1n, 2n], tokens: 1n, missing: [] });
  });

  test("webhooks at a torn end, until they were written again", async () => {
    const { store, create, append, appender, list, restore, readChanges } = await makeScene();
    const hook = { name: "shop", version: "1", url: "1", attempts: [] };
    await create(2n);
    await append();
    await store.putWebhook(hook as never, undefined);
    await append();
    appender.disconnect();
    const [torn = ""] = list("open.changes");
    truncateSync(torn, statSync(torn).size - 3);
    await create(3n);
    await append();
    const [, second, third] = await readChanges();
    expect(await restore({ change: second?.seq })).toMatchObject({ ids: [1n, 2n], missing: [] });
    const whole = await restore({ change: third?.seq });
    expect(whole).toMatchObject({ ids: [1n, 2n, 3n], missing: [] });
    await using restored = await openStoreAt(`sqlite:${whole.to}`);
    expect(await restored.listWebhooks()).toHaveLength(1);
  });

  test.each([
    ["damaged", (path: string) => truncateSync(path, 10)],
    ["lost", (path: string) => rmSync(path)],
  ])("an object of a bucket that is %s and held only a token", async (_state, harm) => {
    const at = makePlace();
    const { create, source, store } = await openBacked(at);
    const appender = new Appender(source, openBucket);
    await create(1n);
    await appender.append();
    const { serial } = (await appender.append()) as Reached;
    appender.cover(await backUp({ ...source, serial, diskFreeBytesMin: 0 }));
    await store.createToken(toRecord(mintToken(), { name: "till", scopes, createdAtMs: 1 }));
    await appender.append();
    const ofToken = at.list(".changes").at(-1) ?? "";
    for (const id of [2n, 3n]) {
      await create(id);
      await appender.append();
    }
    expect(await at.restore()).toMatchObject({ ids: [1n, 2n, 3n], tokens: 1n, missing: [] });
    harm(ofToken);
    const missing = [expect.stringMatching(/^Changes \d+ to \d+\.$/)];
    expect(await at.restore()).toMatchObject({ ids: [1n], tokens: 0n, missing });
    const open = await openPlace(at.place, at.folder);
    const pieces = (await open.list()).flatMap((file) => findPiece(file) ?? []);
    await compact(new Survey(open, pieces), "plants-x", 2);
    expect(await at.restore()).toMatchObject({ ids: [1n], tokens: 0n, missing });
    appender.recheck();
    await appender.append();
    expect(await at.restore()).toMatchObject({ ids: [1n, 2n, 3n], tokens: 1n, missing: [] });
  });

  test("nothing, if the copy of a bucket is the newest that happened", async () => {
    const at = makePlace();
    const { create, source } = await openBacked(at);
    const appender = new Appender(source, openBucket);
    await create(1n);
    await appender.append();
    const { serial } = (await appender.append()) as Reached;
    await backUp({ ...source, serial, diskFreeBytesMin: 0 });
    expect(await at.restore()).toMatchObject({ ids: [1n], missing: [] });
  });

  test("nothing, if the service was killed while it renamed a segment", async () => {
    const { create, append, appender, list, restore } = await makeScene();
    // The next segment replaces that of the copy, and names it as the one before.
    appender.disconnect();
    await append();
    await create(2n);
    await append();
    const open = list("open.changes").at(-1) ?? "";
    const bytes = readFileSync(open);
    await appender.finish();
    writeFileSync(open, bytes);
    expect(await restore()).toMatchObject({ ids: [1n, 2n], missing: [], damage: [] });
  });

  test("and a copy that has more than its segments is complete", async () => {
    const scene = await makeScene();
    const { serial } = await scene.append();
    await scene.create(2n);
    await backUp({ ...scene.source, serial, diskFreeBytesMin: 0 });
    expect(await scene.restore()).toMatchObject({ ids: [1n, 2n], missing: [] });
  });
});

describe("prune", () => {
  test("keeps what the newest timeline came from, although another has newer copies", async () => {
    const scene = await makeScene();
    const [first] = await scene.readChanges();
    await scene.close();
    await scene.replaceBy((await scene.restore()).to);
    const second = await openBacked(scene);
    await second.create(2n);
    await second.append();
    await second.copy();
    await second.close();
    await scene.replaceBy((await scene.restore({ timeline: 1, change: first?.seq })).to);
    const third = await openBacked(scene);
    await third.append();
    await prune({ ...scene.source, retention: newest });
    expect(await scene.restore()).toMatchObject({ ids: [1n], timeline: 3, missing: [] });
  });

  test("keeps the segment that grows, although the copy has all its changes", async () => {
    const scene = await makeScene();
    const { serial } = await scene.append();
    await scene.create(2n);
    await scene.append();
    await backUp({ ...scene.source, serial, diskFreeBytesMin: 0 });
    await prune({ ...scene.source, retention: newest });
    await scene.create(3n);
    await scene.append();
    expect(await scene.restore()).toMatchObject({ ids: [1n, 2n, 3n], missing: [] });
  });
});

describe("the appender", () => {
  test("asks for a copy if the journal was trimmed past the place", async () => {
    const { create, append, from, restore, copy } = await makeScene();
    expect(await append()).toMatchObject({ isCovered: true });
    await create(2n);
    await create(3n);
    alter(from, "DELETE FROM changes WHERE last < (SELECT max(last) FROM changes)");
    expect(await append()).toMatchObject({ isCovered: false });
    await create(4n);
    await copy();
    expect(await append()).toMatchObject({ isCovered: true });
    expect(await restore()).toMatchObject({ ids: [1n, 2n, 3n, 4n], missing: [] });
  });

  test("measures the log behind the newest copy, also after a start", async () => {
    const { create, append, appender, copy } = await makeScene(openBucket);
    const { logBytes: none } = await append();
    const sizes: number[] = [];
    for (const id of [2n, 3n]) {
      await create(id, randomBytes(3_000).toString("base64"));
      sizes.push((await append()).logBytes);
    }
    const [one = 0, two = 0] = sizes;
    expect([none, one > 2_000, two - one > 2_000]).toEqual([0, true, true]);
    appender.disconnect();
    expect((await append()).logBytes).toBeGreaterThan(one);
    await copy();
    expect((await append()).logBytes).toBe(0);
  });

  test("asks for a copy if changes were made that the journal does not have", async () => {
    const scene = await makeScene();
    await scene.store.close();
    const silent = await openStoreAt(`sqlite:${scene.from}`, { changesDays: 0 });
    await silent.createPlant({ id: 7n, name: "unseen", tag: undefined });
    await silent.close();
    expect(await scene.appender.append()).toMatchObject({ isCovered: false });
  });

  test("asks for a copy if the newest copy has another schema", async () => {
    const { append, appender, from } = await makeScene();
    appender.disconnect();
    alter(from, "PRAGMA user_version = 1");
    expect(await append()).toMatchObject({ isCovered: false });
  });

  test("asks for a copy if the copies are gone, and writes again what is gone", async () => {
    const { create, append, appender, list, restore } = await makeScene();
    await create(2n);
    await append();
    for (const file of list(".changes")) rmSync(file);
    expect(append()).rejects.toThrow("was changed by another program");
    expect(await append()).toMatchObject({ isCovered: true });
    expect(await restore()).toMatchObject({ ids: [1n, 2n], missing: [] });
    for (const file of list(".db")) rmSync(file);
    appender.disconnect();
    expect(await append()).toMatchObject({ isCovered: false });
  });

  test("a copied store file is distinguished from its original, whatever its name: one of them writes", async () => {
    const scene = await makeScene();
    for (const part of ["", "-wal"]) cpSync(scene.from + part, `${scene.folder}/twin.db${part}`);
    const twin = await openBacked(scene, "twin.db");
    const { message } = (await rejectionOf(twin.append())) as Error;
    expect(message).toContain("Another service writes the backups of this store");
    expect(message).toContain(`${scene.folder}/plants.db`);
    await scene.create(2n);
    await scene.append();
    await scene.appender.finish();
    await twin.create(3n, "of the twin");
    expect(await twin.append()).toMatchObject({ isCovered: true });
    expect(await scene.restore()).toMatchObject({ ids: [1n, 3n], timeline: 2 });
  });

  test("of two services on one store file the one that started last writes, and the other stands back", async () => {
    const scene = await makeScene();
    const other = new Appender({ ...scene.source, instance: "ba9876543210" });
    cleanUps.push(() => other.disconnect());
    let clockMs = performance.now();
    const now = spyOn(performance, "now");
    cleanUps.push(() => now.mockRestore());
    now.mockImplementation(() => clockMs);
    await other.append();
    for (let round = 0; round < 9; round++) {
      clockMs += 21_000;
      await scene.create(BigInt(100 + round));
      const { message } = (await rejectionOf(scene.append())) as Error;
      expect(message).toContain("Another service writes the backups of this store");
      await other.append();
    }
    other.disconnect();
    await scene.create(200n);
    await rejectionOf(scene.append());
    clockMs += 61_000;
    expect(await scene.append()).toMatchObject({ isCovered: true });
  });

  const ended = nameProcess().replace(/-\d+-\d+$/, "-1073741824-1");

  test.each([
    ["of another file", { process: ended, boot: readBoot() }, readBoot() !== undefined],
    ["of another machine", { process: ended, boot: "of another machine" }, false],
    ["of another container", { process: "1-1-1" }, false],
    ["of the same file in another container", { process: "1-1-1", file: "own" }, true],
  ])(
    "the lease of a process %s that has ended is taken at once: %j, %p",
    async (_, left, isTaken) => {
      const scene = await makeScene();
      await scene.appender.finish();
      const [note = ""] = scene.list(".writer");
      const { ino, birthtimeNs } = statSync(scene.from, { bigint: true });
      const file = "file" in left ? `${ino}-${birthtimeNs}` : "other";
      const holder = { holder: "elsewhere:/plants.db", instance: "x", beat: "x", ...left, file };
      const { shipped } = JSON.parse(readFileSync(note, "utf8")) as { shipped: object };
      writeFileSync(note, JSON.stringify({ ...holder, shipped }));
      const again = new Appender({ ...scene.source, instance: "ba9876543210" });
      cleanUps.push(() => again.disconnect());
      if (isTaken) expect(await again.append()).toMatchObject({ isCovered: true });
      else expect(again.append()).rejects.toThrow("Another service writes the backups");
    },
  );

  /** A server that ignores the condition of a write. */
  const openUnconditional: typeof openPlace = async (...of) => {
    const { grow: _, ...place } = await openPlace(...of);
    const writeNote = async (name: string, text: string): Promise<boolean> =>
      (await place.writeNote(name, text, await place.readNote(name))) || writeNote(name, text);
    return { ...place, writeNote };
  };

  test.each([
    ["one has the lease", openPlace, 1],
    ["one has it after a while if the place knows no conditions", openUnconditional, 2],
  ])("of two services that take over at the same moment, %s", async (_, open, atOnce) => {
    const scene = await makeScene();
    await scene.appender.finish();
    const [note = ""] = scene.list(".writer");
    const { shipped } = JSON.parse(readFileSync(note, "utf8")) as { shipped: object };
    writeFileSync(note, JSON.stringify({ holder: "gone:/plants.db", process: "1-1-1", shipped }));
    const others = ["one", "other"].map((name) => {
      for (const part of ["", "-wal"])
        cpSync(scene.from + part, `${scene.folder}/${name}.db${part}`);
      const source = { ...scene.source, from: `${scene.folder}/${name}.db`, instance: name };
      const appender = new Appender(source, open);
      cleanUps.push(() => appender.disconnect());
      return appender;
    });
    let clockMs = performance.now();
    using now = spyOn(performance, "now");
    now.mockImplementation(() => clockMs);
    const appendBoth = () => Promise.allSettled(others.map((appender) => appender.append()));
    expect((await appendBoth()).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    clockMs += 61_000;
    const writing = (await appendBoth()).filter(({ status }) => status === "fulfilled");
    expect(writing).toHaveLength(atOnce);
    // Each writes a note every 10 seconds.
    for (let round = 0; round < 3; round++) {
      clockMs += 10_000;
      for (const name of ["one", "other"])
        alter(`${scene.folder}/${name}.db`, `INSERT INTO webhooks VALUES ('${round}', '1', '{}')`);
      await appendBoth();
    }
    const done = await appendBoth();
    expect(done.map(({ status }) => status).toSorted()).toEqual(["fulfilled", "rejected"]);
    const winner = done.findIndex(({ status }) => status === "fulfilled");
    expect(JSON.parse(readFileSync(note, "utf8"))).toMatchObject({
      instance: ["one", "other"][winner],
    });
  });

  test("a service that another one took over from while it was idle leaves the note alone", async () => {
    const scene = await makeScene();
    const other = new Appender({ ...scene.source, instance: "ba9876543210" });
    cleanUps.push(() => other.disconnect());
    await other.append();
    const [note = ""] = scene.list(".writer");
    const clockMs = performance.now() + 21_000;
    using now = spyOn(performance, "now");
    now.mockImplementation(() => clockMs);
    expect(scene.appender.finish()).rejects.toThrow("Another service writes the backups");
    expect(JSON.parse(readFileSync(note, "utf8"))).toMatchObject({ instance: "ba9876543210" });
  });

  test("a start reads no piece, and one after a crash only what came after the note", async () => {
    const scene = await makeScene(openBucket);
    await scene.create(2n);
    await scene.append();
    using read = spyOn(Survey.prototype, "readSegment");
    using readCopy = spyOn(Survey.prototype, "readCopy");
    scene.appender.disconnect();
    expect(await scene.append()).toMatchObject({ isCovered: true });
    expect([read, readCopy].map(({ mock }) => mock.calls.length)).toEqual([0, 0]);
    const [note = ""] = scene.list(".writer");
    const before = readFileSync(note);
    await scene.create(3n);
    await scene.append();
    writeFileSync(note, before);
    scene.appender.disconnect();
    expect(await scene.append()).toMatchObject({ isCovered: true });
    expect([read, readCopy].map(({ mock }) => mock.calls.length)).toEqual([1, 0]);
    expect(await scene.restore()).toMatchObject({ ids: [1n, 2n, 3n], missing: [] });
  });

  test("without a journal adds no piece", async () => {
    const at = makePlace();
    const scene = await openBacked(at, "plants.db", { changesDays: 0 }, openBucket);
    await scene.create(1n);
    await scene.append();
    await scene.copy();
    const before = at.list(".changes");
    for (let id = 2n; id < 9n; id++) {
      await scene.create(id);
      await scene.append();
    }
    expect(at.list(".changes")).toEqual(before);
    await scene.copy();
    expect(await at.restore()).toMatchObject({ missing: [], plants: 8n });
  });

  test("rot is found by reading every piece in turn, as far as a share goes", async () => {
    const { source, create, append, copy, appender, list } = await makeScene();
    await create(2n);
    await append();
    await copy();
    await appender.finish();
    const pieces = [...list(".db"), ...list(".changes")].toSorted();
    expect(pieces).toHaveLength(3);
    const task = { ...source, change: undefined };
    const none = await check({ ...task, after: "", share: 0.01 });
    expect(none).toMatchObject({ after: "", damage: [] });
    expect(none.share).toBeCloseTo(0.01);
    flip(pieces[1] ?? "", "");
    const found = await check({ ...task, after: "", share: 1 });
    expect(found.damage).toEqual([
      { name: pieces[1]?.replace(/.*\//, "") ?? "", faults: expect.any(Array) },
    ]);
    expect(found.share).toBeCloseTo(0);
    const rest = await check({ ...task, after: found.after, share: 0.99 });
    expect(rest.after).not.toBe(found.after);
  });

  test.each([
    ["a segment", ".changes"],
    ["every copy", ".db"],
  ])("%s that is lost is missed by names, unless nothing leads to the change", async (_, lost) => {
    const { source, create, append, list } = await makeScene(openBucket);
    await create(2n);
    const { change } = await append();
    const task = { ...source, after: "", share: 0 };
    expect(await check({ ...task, change })).toMatchObject({ damage: [] });
    rmSync(list(lost).at(-1) ?? "");
    expect((await check({ ...task, change })).damage).toEqual([
      { name: expect.stringMatching(/^the changes after \d+$/), faults: expect.any(Array) },
    ]);
    expect(await check({ ...task, change: undefined })).toMatchObject({ damage: [] });
  });

  test("how far the search for rot is, is noted with changes and at a stop", async () => {
    const { source, create, append, appender } = await makeScene();
    const [one, other] = [
      { after: "one", share: 0.25 },
      { after: "other", share: 0.5 },
    ];
    await create(2n);
    await appender.append(one);
    appender.disconnect();
    const later = new Appender({ ...source, instance: "ba9876543210" });
    cleanUps.push(() => later.disconnect());
    expect(await later.append()).toMatchObject({ checked: one });
    expect(await later.append(other)).toMatchObject({ checked: other });
    await later.finish();
    appender.disconnect();
    const last = new Appender({ ...source, instance: "cba987654321" });
    cleanUps.push(() => last.disconnect());
    expect(await last.append()).toMatchObject({ checked: other });
    expect(append()).rejects.toThrow("Another service writes");
  });

  test.skipIf(process.platform !== "linux")(
    "a segment that cannot be begun, and a store that cannot be read, leave no file and no descriptor open",
    async () => {
      const scene = await makeScene();
      await scene.appender.finish();
      const count = (): number => readdirSync("/proc/self/fd").length;
      let begun = 0;
      const full: typeof openPlace = async (...of) => {
        const { grow, ...place } = await openPlace(...of);
        const growFull = (...names: Parameters<NonNullable<typeof grow>>) => ({
          ...(grow?.(...names) as GrowingFile),
          append: () => {
            begun++;
            throw new Error("ENOSPC: no space left on device, write");
          },
        });
        return { ...place, grow: growFull };
      };
      const [failing, foreign] = [new Appender(scene.source, full), `${scene.folder}/foreign.db`];
      cleanUps.push(() => failing.disconnect());
      alter(scene.from, "INSERT INTO timelines VALUES (7, '0123456789abcdef', 9e15, 0)");
      using other = new Database(foreign);
      other.run("CREATE TABLE changes (last INTEGER)");
      const unreadable = new Appender({ ...scene.source, from: foreign });
      const [before, segments] = [count(), scene.list(".changes")];
      for (let tries = 0; tries < 20; tries++) {
        expect(failing.append()).rejects.toThrow("ENOSPC");
        await rejectionOf(unreadable.append());
        await scene.create(BigInt(100 + tries));
      }
      expect(begun).toBe(20);
      expect(scene.list(".changes")).toEqual(segments);
      expect(count()).toBeLessThan(before + 10);
    },
  );

  test("a failure has the same reason at every attempt, so it is logged once", async () => {
    const scene = await makeScene();
    await scene.create(2n);
    const appender = new Appender({ ...scene.source, label: "p".repeat(230) });
    const reasons = [await rejectionOf(appender.append()), await rejectionOf(appender.append())];
    expect(reasons.map(String)[0]).toContain("cannot be written: ENAMETOOLONG");
    expect(reasons[1]).toEqual(reasons[0]);
  });

  test("restarts without a change leave no segments behind, except for one in which a token changed", async () => {
    const { append, appender, store, list, restore } = await makeScene();
    const restart = async () => {
      await appender.finish();
      await append();
    };
    await restart();
    const before = list(".changes");
    await restart();
    await restart();
    expect(list(".changes")).toHaveLength(before.length);
    const token = toRecord(mintToken(), { name: "till", scopes, createdAtMs: Date.now() });
    await store.createToken(token);
    await append();
    const between = await passMoment();
    await store.revokeToken(token.hash, Date.now());
    await append();
    await restart();
    await restart();
    expect(list(".changes")).toHaveLength(before.length + 1);
    await using restored = await openStoreAt(`sqlite:${(await restore({ atMs: between })).to}`);
    expect(await restored.listTokens({ after: "", limit: 9 })).toMatchObject([
      { name: "till", revokedAtMs: undefined },
    ]);
  });

  test("a long name of a store is cut, between two characters", () => {
    expect(labelOf("data/plants.db")).toBe("plants");
    expect(labelOf("data/.db")).toBe(".db");
    expect(labelOf("my plants – 2.sqlite")).toBe("my plants – 2.sqlite");
    expect(labelOf(`${"p".repeat(200)}.db`)).toBe("p".repeat(120));
    expect(labelOf(`${"x".repeat(119)}水.db`)).toBe("x".repeat(119));
  });

  test("a proof is not begun without room for it, and the WAL counts", async () => {
    const { from, source, copy } = await makeScene();
    const made = await copy();
    const scratch = `${from}.0123456789ab.proof.tmp`;
    const task = { ...source, ...made, scratch, isCovered: true } as const;
    const bytes = statSync(from).size + statSync(`${from}-wal`).size;
    expect(prove({ ...task, diskFreeBytesMin: Number.MAX_SAFE_INTEGER })).rejects.toThrow(
      `A proof needs ${2 * bytes} free bytes beside the store`,
    );
  });

  test("a proof tells that a segment was lost, unless no segment should lead to the copy", async () => {
    const { from, source, create, append, copy, list } = await makeScene(openBucket);
    await create(2n);
    await append();
    const made = await copy();
    const scratch = `${from}.0123456789ab.proof.tmp`;
    const task = { ...source, ...made, scratch, diskFreeBytesMin: 0 };
    expect((await prove({ ...task, isCovered: true })).damage).toEqual([]);
    for (const file of list(".changes")) rmSync(file);
    expect((await prove({ ...task, isCovered: true })).damage).toEqual([
      {
        name: expect.stringMatching(/^the changes after \d+$/),
        faults: ["no whole piece has them"],
      },
    ]);
    expect((await prove({ ...task, isCovered: false })).damage).toEqual([]);
  });

  test("a copy is not begun without room for it", async () => {
    const { source, list } = await makeScene(openBucket);
    const task = { ...source, serial: 1 } as const;
    const before = list("");
    expect(
      backUp({ ...task, diskFreeBytesMin: Number.MAX_SAFE_INTEGER }, openBucket),
    ).rejects.toThrow(/^A copy needs \d+ free bytes in .*, and \d+ are free\.$/);
    expect(list("")).toEqual(before);
  });

  type Scene = Awaited<ReturnType<typeof makeScene>>;
  const listTask = ({ place, folder: scratch }: Scene) =>
    ({ place, label: "plants", store: undefined, scratch }) as const;

  test.each<[string, (scene: Scene) => Promise<unknown>, result: object]>([
    [
      "a proof",
      async ({ from, source, copy, append, create }) => {
        const scratch = `${from}.0123456789ab.proof.tmp`;
        const made = await copy();
        await create(3n);
        await append();
        return prove({ ...source, ...made, scratch, diskFreeBytesMin: 0, isCovered: true });
      },
      { damage: [], copies: 2 },
    ],
    [
      "a restore",
      ({ place, folder }) =>
        restoreFromPlace({ place, label: "plants", to: `${folder}/restored.db` }),
      { damage: [], missing: [], plants: 2n },
    ],
    [
      "backup verify",
      (scene) => verifyPlace(listTask(scene)),
      { damage: [], missing: [], plants: 2n },
    ],
    ["backup list", (scene) => listPlace(listTask(scene)), { stores: [{ missing: [] }] }],
    [
      "the removal of superfluous pieces",
      ({ source }) => prune({ ...source, retention: newest }),
      {},
    ],
  ])("%s reads a segment that is closed meanwhile under its new name", async (_, read, result) => {
    const scene = await makeScene();
    await scene.create(2n);
    await scene.append();
    using spied = spyOn(Survey.prototype, "readSegment");
    spied.mockImplementationOnce(async function (this: Survey, segment) {
      await scene.appender.finish();
      return this.readSegment(segment);
    });
    expect((await read(scene)) ?? {}).toMatchObject(result);
    expect(scene.list("open.changes")).toEqual([]);
  });

  test("removes what a killed service was preparing", async () => {
    const scene = await makeScene();
    const proof = `${scene.from}.ffffffffffff.proof.tmp`;
    const own = `${scene.from}.0123456789ab.proof.tmp`;
    for (const file of [proof, `${proof}-wal`]) writeFileSync(file, "");
    const made = await scene.copy();
    await prove({ ...scene.source, ...made, scratch: own, diskFreeBytesMin: 0, isCovered: true });
    expect(readdirSync(scene.folder).filter((name) => name.includes("proof"))).toEqual([]);
    const store = scene.list(".writer")[0]?.match(/[0-9a-f]{16}/)?.[0];
    const left = ["", "-journal"].map(
      (suffix) => `${scene.place}/plantstore-${store}.ffffffffffff.eeeeeeeeeeee.tmp${suffix}`,
    );
    for (const file of left) writeFileSync(file, "");
    scene.appender.disconnect();
    await scene.append();
    expect(left.filter((file) => existsSync(file))).toEqual([]);
  });

  test("two stores of one name in one place stay apart", async () => {
    const scene = await makeScene();
    const other = makePlace();
    const stranger = await openBacked({ ...other, place: scene.place });
    await stranger.create(9n, "of another store");
    await stranger.append();
    await stranger.copy();
    const { message } = (await rejectionOf(scene.restore())) as Error;
    const stores = [...message.matchAll(/[0-9a-f]{16}/g)].map(([id]) => id);
    expect(stores).toHaveLength(2);
    const found = await Promise.all(stores.map((store) => scene.restore({ store })));
    expect(found.flatMap(({ ids }) => ids.map(String)).toSorted()).toEqual(["1", "9"]);
    expect(scene.restore({ store: "0123456789abcdef" })).rejects.toThrow(
      "holds no backup of store 0123456789abcdef, but of ",
    );
    const before = scene.list(".db").length;
    await prune({ ...scene.source, retention: newest });
    expect(scene.list(".db")).toHaveLength(before);
  });

  test("prune keeps the newest copies and what follows the oldest of them, and no stranger's file", async () => {
    const scene = await makeScene();
    const { create, append, copy, list, restore, place } = scene;
    writeFileSync(`${place}/notes.txt`, "not ours");
    for (const id of [2n, 3n, 4n]) {
      await create(id);
      await append();
      await copy();
    }
    await create(5n);
    await append();
    const [, , third] = await scene.readChanges();
    await prune({ ...scene.source, retention: newest });
    expect(list(".db")).toHaveLength(2);
    expect(readFileSync(`${place}/notes.txt`, "utf8")).toBe("not ours");
    expect(await restore()).toMatchObject({ ids: [1n, 2n, 3n, 4n, 5n], missing: [], damage: [] });
    expect((await restore({ change: third?.seq })).ids).toEqual([1n, 2n, 3n]);
    expect(restore({ change: (third?.seq ?? 0) - 1 })).rejects.toThrow("is old enough");
    await create(6n);
    expect(await append()).toMatchObject({ isCovered: true });
  });
});

describe("compaction", () => {
  test("joins small segments between two copies, and every state can still be restored", async () => {
    const scene = await makeScene(openBucket);
    const { create, append, copy, list, place, restore, store } = scene;
    for (let id = 2n; id < 150n; id++) {
      await create(id);
      if (id === 40n)
        await store.createToken(toRecord(mintToken(), { name: "till", scopes, createdAtMs: 1 }));
      await append();
      if (id === 75n) await copy();
    }
    const changes = await scene.readChanges();
    const open = await openPlace(place, scene.folder);
    const read = async () =>
      new Survey(
        open,
        (await open.list()).flatMap((file) => findPiece(file) ?? []),
      );
    const before = list(".changes").length;
    await compact(await read(), "plants-x");
    expect(before).toBeGreaterThan(140);
    expect(list(".changes").length).toBeLessThan(20);
    const restored = await restore();
    expect(restored).toMatchObject({ missing: [], damage: [], tokens: 1n });
    expect(restored.ids).toHaveLength(149);
    for (const index of [5, 60, 100]) {
      const at = await restore({ change: changes[index]?.seq });
      expect(at.ids).toHaveLength(index + 1);
      expect(at.missing).toEqual([]);
    }
    // Once more: there is nothing left to join, and nothing is lost.
    await compact(await read(), "plants-x");
    expect((await restore()).ids).toHaveLength(149);
    expect(await append()).toMatchObject({ isCovered: true });
  });

  test("joins segments of hundreds of kilobytes too, so the list of a busy month stays short", async () => {
    const { store, append, folder, list, place, restore } = await makeScene(openBucket);
    const SEGMENTS = 12;
    const PLANTS = 300;
    for (let nth = 0; nth < SEGMENTS; nth++) {
      const plants = Array.from({ length: PLANTS }, (_, index) => ({
        id: BigInt(10 + nth * PLANTS + index),
        name: randomBytes(600).toString("base64"),
        tag: undefined,
      }));
      await store.createPlants(plants);
      await append();
    }
    const before = list(".changes");
    expect(before.filter((path) => statSync(path).size > 131_072)).toHaveLength(SEGMENTS);
    const open = await openPlace(place, folder);
    const pieces = (await open.list()).flatMap((file) => findPiece(file) ?? []);
    await compact(new Survey(open, pieces), "plants-x");
    expect(list(".changes").length).toBeLessThan(before.length / 2);
    expect(await restore()).toMatchObject({
      missing: [],
      damage: [],
      plants: BigInt(1 + SEGMENTS * PLANTS),
    });
  });

  test("that was killed while it removed what it joined costs nothing", async () => {
    const { create, append, copy, folder, list, place, restore } = await makeScene(openBucket);
    for (let id = 2n; id < 8n; id++) {
      await create(id);
      await append();
      if (id === 2n) await copy();
    }
    const parts = new Map(list(".changes").map((path) => [path, readFileSync(path)]));
    const open = await openPlace(place, folder);
    const pieces = (await open.list()).flatMap((file) => findPiece(file) ?? []);
    await compact(new Survey(open, pieces), "plants-x", 3);
    const removed = [...parts].filter(([path]) => !existsSync(path));
    expect(removed.length).toBeGreaterThan(3);
    for (const [path, bytes] of removed.slice(2)) writeFileSync(path, bytes);
    const { ids, missing } = await restore();
    expect({ ids: ids.length, missing }).toEqual({ ids: 7, missing: [] });
  });
});

describe("restore by command", () => {
  test("says what it reached, in words and as JSON", async () => {
    const scene = await makeScene();
    await scene.create(2n);
    await scene.append();
    const seqs = (await scene.readChanges()).map(({ seq }) => seq);
    const to = (place: number) => ({ DATABASE_URL: `sqlite:${scene.from}-${place}` });
    const args = ["restore", "--at-change", `${seqs[1]}`, scene.place];
    const { exitCode, stdout, stderr } = await runCommand(args, to(1));
    expect([exitCode, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(/^ {2}Changes +1$/m);
    expect(stdout).toMatch(new RegExp(`^ {2}Moment +\\S+Z, change ${seqs[1]}$`, "m"));
    expect(await runForJson(["restore", scene.place], to(3))).toMatchObject({
      plants: 2,
      changes: 1,
      moment: { at: expect.any(String), change: seqs[1] },
      missing: [],
      damage: [],
    });
    expect(await runForJson(["backup", "list", "--json", scene.place])).toMatchObject({
      place: scene.place,
      stores: [{ label: "plants", timeline: 1, missing: [], reachable: [{ to: seqs[1] }] }],
    });
  });

  test("a list that lacks what was written last is refused, unless it is accepted", async () => {
    const scene = await makeScene();
    await scene.create(2n);
    await scene.append();
    await scene.appender.finish();
    for (const file of scene.list(".changes")) rmSync(file);
    const to = { DATABASE_URL: `sqlite:${scene.from}.restored` };
    const says = "Try again later; --incomplete restores what is listed.";
    expect(await runCommand(["restore", scene.place], to)).toEqual(failure(1, says));
    const accepted = await runCommand(["restore", "--incomplete", scene.place], to);
    expect(accepted).toMatchObject({
      exitCode: 3,
      stderr: expect.stringMatching(/missing: Changes/),
    });
  });

  test("what a killed one left beside the file is removed", async () => {
    const scene = await makeScene();
    const to = `${scene.folder}/again.db`;
    const [namespace] = nameProcess().split("-");
    const [dead, alive] = [`${namespace}-1073741824-1`, nameProcess(process.ppid)].map(
      (owner) => `${to}.${owner}.0123456789ab.tmp`,
    );
    for (const file of [dead, alive]) writeFileSync(file ?? "", "");
    await restoreStore({ place: scene.place, label: "plants" }, to, signal);
    expect([dead, alive].map((file) => existsSync(file ?? ""))).toEqual([false, true]);
  });

  test("a store that a place does not hold is an error of the list, and no name controls a terminal", async () => {
    const { list, place } = await makeScene();
    expect(await runCommand(["backup", "list", "--store", "0123456789abcdef", place])).toEqual(
      failure(1, "holds no backup of store 0123456789abcdef"),
    );
    const [copy = ""] = list(".db");
    copyFileSync(copy, copy.replace("/plants-", "/pl\u001b[31mants-"));
    const { stdout } = await runCommand(["backup", "list", place]);
    expect(stdout).toContain("pl\\u001b[31mants-");
    expect(stdout).not.toContain("\u001b");
    for (const name of ["0123456789abcdef", "0123456789abcdee"])
      writeFileSync(copy.replace(/plants-[0-9a-f]{16}/, `pl\u001b[31mants-${name}`), "");
    const to = { DATABASE_URL: `sqlite:${place}.restored` };
    for (const args of [["restore"], ["restore", "--store", "0123456789abcdef"]]) {
      const { exitCode, stderr } = await runCommand([...args, place], to);
      expect([exitCode, stderr]).toEqual([1, expect.stringContaining("pl\\u001b[31mants")]);
      expect(stderr).not.toContain("\u001b");
    }
  });

  test("a moment that is none, or older than every copy, is refused", async () => {
    const { place, from, list } = await makeScene();
    const to = { DATABASE_URL: `sqlite:${from}.restored` };
    for (const [flags, exitCode, message] of [
      ["--at yesterday", 2, "--at: "],
      ["--at 2026-11-15T10:00:00", 2, "expected a time with its zone"],
      ["--at 2026-02-31T10:00:00Z", 2, "--at: "],
      ["--at-change -1", 2, "--at-change: "],
      ["--at-change 1.5", 2, "--at-change: "],
      ["--timeline two", 2, "--timeline: "],
      ["--at 2026-11-15T10:00:00Z --at-change 1", 2, "give one of them"],
      ["--at 2020-01-01T00:00:00Z", 1, "is old enough"],
      ["--at-change 1", 1, "is old enough"],
      ["--store 0000000000000000", 1, "holds no backup of store 0"],
    ] as const)
      for (const source of exitCode === 2 ? [place, list(".db")[0] ?? ""] : [place]) {
        const finished = await runCommand(["restore", ...flags.split(" "), source], to);
        expect([flags, finished]).toEqual([flags, failure(exitCode, message)]);
      }
  });
});

describe("backups of version 1.0", () => {
  test("stay as they are beside those of this version", async () => {
    const scene = await makeScene();
    const old = ["plants-20260101T000000Z.db", "plants-20260101T000000Z.changes"];
    for (const name of old) writeFileSync(`${scene.place}/${name}`, "of version 1.0");
    await scene.create(2n);
    scene.appender.disconnect();
    await scene.append();
    await scene.copy();
    await prune({ ...scene.source, retention: newest });
    for (const name of old)
      expect(readFileSync(`${scene.place}/${name}`, "utf8")).toBe("of version 1.0");
    expect(await scene.restore()).toMatchObject({ ids: [1n, 2n], missing: [] });
  });

  const line = (record: unknown): string => {
    const json = JSON.stringify(record);
    return `${Bun.hash.crc32(json).toString(16).padStart(8, "0")} ${json}\n`;
  };

  test("are restored with their change log, by their changes and not by their names", async () => {
    const at = makePlace();
    const frozen = Bun.gunzipSync(
      readFileSync(`${import.meta.dir}/../frozen/sqlite-schema-1.db.gz`),
    );
    const [copy, wrong] = ["plants-20260101T000000Z", "plants-20990101T000000Z"];
    writeFileSync(`${at.place}/${copy}.db`, frozen);
    writeFileSync(`${at.place}/${wrong}.db`, frozen);
    using db = new Database(`${at.place}/${copy}.db`);
    const { last } = db.query("SELECT max(last) AS last FROM changes").get() as { last: number };
    const entries = ["c", null, 7, "in the log", null];
    const block = { after: last, first: last + 5, last: last + 5, at: last / 1000, entries };
    appendFileSync(`${at.place}/${copy}.changes`, line(block));
    const restored = await at.restore();
    expect(restored).toMatchObject({ missing: [], timeline: 0, reached: { change: last + 5 } });
    expect(restored.ids).toContain(7n);
    // It gets its identity at the next start, and its new backups are chosen unless the old ones are named.
    renameSync(restored.to, `${at.folder}/plants.db`);
    const backed = await openBacked(at);
    await backed.create(8n, "after the upgrade");
    await backed.append();
    await backed.copy();
    expect((await at.restore()).ids).toContain(8n);
    const old = await at.restore({ store: "plants" });
    expect(old).toMatchObject({ missing: [], ids: restored.ids });
    expect(await runCommand(["backup", "list", at.place])).toMatchObject({
      exitCode: 0,
      stdout: expect.stringContaining("of version 1.0"),
    });
  });
});
