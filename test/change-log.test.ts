/** The change log of a backup: what a restore reaches with it, and what becomes of a log that is not whole. */

import { Database } from "bun:sqlite";
import { afterEach, describe, expect, test } from "bun:test";
import {
  appendFileSync,
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
import { dirname } from "node:path";
import { resolveConfig } from "../src/config.ts";
import { openStore } from "../src/store/open.ts";
import { backUpStore, restoreStore } from "../src/store/sqlite/backup.ts";
import {
  findReach,
  logOf,
  NEWEST,
  openChangeLog,
  type Point,
} from "../src/store/sqlite/change-log.ts";
import { runCommand, type ServiceProcess, spawnService } from "./support/command.ts";
import { rejectionOf } from "./support/expect.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { changesIn, type StoredPlant } from "./support/plants.ts";
import { createRandom } from "./support/random.ts";
import { sendPlant, TEST_TOKEN } from "./support/service.ts";
import { alter, readPlants } from "./support/stores.ts";
import { until } from "./support/until.ts";

const { signal } = new AbortController();
const atChange = (change = Number.NaN): Point => ({ ...NEWEST, change });
const atTime = (atMs: number): Point => ({ ...NEWEST, atMs });
const cleanUps: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).toReversed()) await cleanUp();
});

/** A store, a copy of it when it had one plant, and the log of the copy. */
async function makeScene() {
  const folder = makeTemporaryFolder();
  cleanUps.push(() => folder[Symbol.dispose]());
  const [from, copy] = [`${folder.path}/plants.db`, `${folder.path}/plants-20260101T000000Z.db`];
  const { config } = resolveConfig({}, { DATABASE_URL: `sqlite:${from}` });
  const store = await openStore(config.databaseUrl, config);
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
      return { to, replayed, ids: readPlants(to).map(({ id }) => id) };
    },
    readChanges: async () =>
      changesIn(
        await store.readChanges({ id: undefined, types: undefined, after: 0, limit: 1_000 }),
      ),
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
      if (!model.has(id)) await store.createPlant(plant, "till 'ü'");
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
    const between = Date.now();
    await until("the clock has moved on", () => Date.now() > between);
    await store.createPlants([{ id: 5n, name: "later", tag: undefined }]);
    follow().append();
    const [, , third] = await readChanges();
    const middle = await restore(atChange(third?.seq));
    expect(middle.ids).toEqual([1n, 2n, 3n]);
    expect((await restore(atTime(between))).ids).toEqual([1n, 2n, 3n, 4n]);
    expect((await restore(atTime(Date.now() + 60_000))).ids).toEqual([1n, 2n, 3n, 4n, 5n]);
  });

  test("has the tokens and webhooks of the moment, also where a name was given again", async () => {
    const { store, follow, restore } = await makeScene();
    const log = follow();
    const token = (hash: string, name: string) => ({
      hash,
      prefix: "p",
      name,
      scopes: ["plants:read"] as const,
      createdAtMs: 1,
      expiresAtMs: undefined,
      lastUsedAtMs: undefined,
      revokedAtMs: undefined,
      rate: undefined,
    });
    const hook = (name: string, version: string) => ({ name, version }) as never;
    await store.createToken(token("a", "till"));
    await store.putWebhook(hook("shop", "1"), undefined);
    await store.putWebhook(hook("office", "1"), undefined);
    log.append();
    const between = Date.now();
    await until("the clock has moved on", () => Date.now() > between);
    await store.revokeToken("a", 7);
    await store.createToken(token("b", "till"));
    await store.putWebhook(hook("shop", "2"), hook("shop", "1"));
    await store.putWebhook(undefined, hook("office", "1"));
    log.append();
    const read = async (moment: Point) => {
      const { to } = await restore(moment);
      const { config } = resolveConfig({}, { DATABASE_URL: `sqlite:${to}` });
      const restored = await openStore(config.databaseUrl, config);
      const tokens = await restored.listTokens({ after: "", limit: 9 });
      const webhooks = await restored.listWebhooks();
      await restored.close();
      return [
        tokens.map(({ hash, revokedAtMs }) => [hash, revokedAtMs]),
        webhooks.map(({ name, version }) => [name, version]),
      ];
    };
    expect(await read(atTime(between))).toEqual([
      [["a", undefined]],
      [
        ["office", "1"],
        ["shop", "1"],
      ],
    ]);
    expect(await read(NEWEST)).toEqual([
      [
        ["a", 7],
        ["b", undefined],
      ],
      [["shop", "2"]],
    ]);
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

  test.each([
    [
      "a byte that has changed",
      (lines: string[]) => lines.with(1, lines[1]?.replace("plant 3", "plant 9") ?? ""),
    ],
    ["a line that is missing", (lines: string[]) => lines.toSpliced(1, 1)],
    ["a line that is there twice", (lines: string[]) => lines.toSpliced(1, 0, lines[1] ?? "")],
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
    writeFileSync(file, `${spoil(lines).join("\n")}\n`);
    const changes = await readChanges();
    const { message: failed } = (await rejectionOf(restore())) as Error;
    expect(failed).toMatch(/is damaged \d+ bytes from its start/);
    const [, number] = /--at-change (\d+)/.exec(failed) ?? [];
    expect(changes.map(({ seq }) => String(seq))).toContain(String(number));
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
    const { config } = resolveConfig(
      {},
      { DATABASE_URL: `sqlite:${from}`, PLANTSTORE_CHANGES_DAYS: "0" },
    );
    const silent = await openStore(config.databaseUrl, config);
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

/** A service that keeps a change log in a folder of its own. */
async function startService(every = "1h") {
  const folder = makeTemporaryFolder();
  cleanUps.push(() => folder[Symbol.dispose]());
  const backups = `${folder.path}/backups`;
  mkdirSync(backups);
  const env = {
    DATABASE_URL: `sqlite:${folder.path}/data/plants.db`,
    PLANTSTORE_TOKEN: TEST_TOKEN,
    PLANTSTORE_BACKUP_TO: backups,
    PLANTSTORE_BACKUP_EVERY: every,
  };
  const start = async (): Promise<ServiceProcess> => {
    const service = await spawnService(env);
    cleanUps.push(() => service[Symbol.asyncDispose]());
    return service;
  };
  /** Oldest first. */
  const list = (): string[] =>
    readdirSync(backups)
      .filter((name) => name.endsWith(".db"))
      .toSorted();
  return { folder: folder.path, backups, env, start, list };
}

const create = async ({ started }: ServiceProcess, id: bigint): Promise<number> =>
  (await sendPlant(started.url, { id, name: `plant ${id}`, tag: null })).status;

async function readLag({ started }: ServiceProcess): Promise<number> {
  const headers = { authorization: `Bearer ${TEST_TOKEN}` };
  const text = await (await fetch(`${started.url}/metrics`, { headers })).text();
  return Number(/^plantstore_backup_lag_seconds (\S+)$/m.exec(text)?.[1]);
}

describe("serve --backup-to, and restore from its folder", () => {
  test("after the loss of the disk everything is there, and any moment can be reached", async () => {
    const { folder, backups, env, start, list } = await startService();
    const service = await start();
    await until("a copy is there", () => list().length === 1);
    for (let id = 1n; id <= 5n; id++) expect(await create(service, id)).toBe(200);
    const copy = `${backups}/${list()[0]}`;
    await until("the log has them", () => linesOf(copy) >= 5);
    expect((await runCommand(["check"], env)).stdout).toContain(
      `up to change ${findReach(copy).change} of `,
    );
    service.kill("SIGKILL");
    await service.exited;
    rmSync(`${folder}/data`, { recursive: true });

    const restored = await runCommand(["restore", "--json", backups], env);
    expect(restored).toMatchObject({ exitCode: 0, stderr: "" });
    const facts = JSON.parse(restored.stdout) as Record<string, unknown>;
    expect(facts).toMatchObject({ plants: 5, changes: 5, moment: { at: expect.any(String) } });
    const again = await start();
    expect(await create(again, 6n)).toBe(200);

    const to = { ...env, DATABASE_URL: `sqlite:${folder}/elsewhere.db` };
    const { change } = facts["moment"] as { change: number };
    const before = await runCommand(["restore", "--at-change", String(change - 1), backups], to);
    expect(before).toMatchObject({ exitCode: 0 });
    expect(before.stdout).toMatch(/^ {2}Changes {2}4$/m);
    expect(before.stdout).toMatch(/^ {2}Moment {2}\S+Z, change \d+$/m);
    expect(readPlants(`${folder}/elsewhere.db`)).toHaveLength(4);
  });

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
    const changes = await readChanges();
    for (const [place, ids] of [
      [1, [1n, 2n]],
      [2, [1n, 2n, 3n]],
    ] as const) {
      const to = `${from}-${place}`;
      const flags = ["--at-change", String(changes[place]?.seq), dirname(from)];
      const env = { DATABASE_URL: `sqlite:${to}` };
      const { exitCode, stderr } = await runCommand(["restore", ...flags], env);
      expect([exitCode, stderr]).toEqual([0, ""]);
      expect(readPlants(to).map(({ id }) => id)).toEqual([...ids]);
    }
  });

  test("a stop leaves nothing out, and the next start continues the log", async () => {
    const { backups, start, list } = await startService();
    for (const id of [1n, 2n]) {
      const service = await start();
      await until("a copy is there", () => list().length === 1);
      expect(await create(service, id)).toBe(200);
      service.kill("SIGTERM");
      expect(await service.exited).toBe(0);
    }
    const verified = await runCommand(["backup", "verify", "--json", backups]);
    expect(verified).toMatchObject({ exitCode: 0, stderr: "" });
    expect(JSON.parse(verified.stdout)).toMatchObject({ plants: 2 });
  });

  test("while the folder is gone creates go on, the lag is shown, and the log catches up", async () => {
    const { backups, start, list } = await startService();
    const service = await start();
    await until("the copy has a log", () =>
      list().some((name) => existsSync(logOf(`${backups}/${name}`))),
    );
    renameSync(backups, `${backups}.away`);
    expect(await create(service, 1n)).toBe(200);
    await until("the lag grows", async () => (await readLag(service)) > 2);
    renameSync(`${backups}.away`, backups);
    const copy = `${backups}/${list()[0]}`;
    await until("the log has the plant", () => linesOf(copy) >= 1);
    await until("the lag is gone", async () => (await readLag(service)) < 2);
    service.kill("SIGTERM");
    await service.exited;
    const stderr = await service.stderr;
    expect(stderr).toContain(`"event":"change_log_failed","to":"${backups}"`);
    expect(stderr).toContain('"event":"change_log_resumed"');
  });

  test("verify finds a log that does not lead to the next copy", async () => {
    const { backups, start, list } = await startService("1s");
    const service = await start();
    await until("a copy is there", () => list().length >= 1);
    expect(await create(service, 1n)).toBe(200);
    expect(await create(service, 2n)).toBe(200);
    await until("two more copies are there", () => list().length >= 3);
    service.kill("SIGTERM");
    await service.exited;
    expect(await runCommand(["backup", "verify", backups])).toMatchObject({ exitCode: 0 });
    const newest = `${backups}/${list().at(-1)}`;
    alter(newest, "UPDATE plants SET name = 'changed' WHERE id = 2");
    expect(await runCommand(["backup", "verify", backups])).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining("has other plants than"),
    });
  });

  test.each([
    [["--at", "yesterday"], 2, "--at: "],
    [["--at", "2026-11-15T10:00:00"], 2, "expected a time with its zone"],
    [["--at", "2026-02-31T10:00:00Z"], 2, "--at: "],
    [["--at-change", "-1"], 2, "--at-change: "],
    [["--at-change", "1.5"], 2, "--at-change: "],
    [["--at", "2026-11-15T10:00:00Z", "--at-change", "1"], 2, "give one of them"],
    [["--at", "2020-01-01T00:00:00Z"], 1, "is old enough. The oldest was made at 2026-01-01"],
    [["--at-change", "1"], 1, "is old enough"],
  ])("refuses %j", async (flags, exitCode, message) => {
    const { copy, from } = await makeScene();
    const folder = copy.replace(/\/[^/]+$/, "");
    const to = { DATABASE_URL: `sqlite:${from}.restored` };
    expect(await runCommand(["restore", ...flags, folder], to)).toMatchObject({
      exitCode,
      stdout: "",
      stderr: expect.stringContaining(message),
    });
    if (exitCode === 2)
      expect(await runCommand(["restore", ...flags, copy], to)).toMatchObject({ exitCode: 2 });
  });
});

/** Blocks of changes in the log of a copy. */
function linesOf(copy: string): number {
  try {
    return readFileSync(logOf(copy), "utf8").match(/"entries":/g)?.length ?? 0;
  } catch {
    return 0;
  }
}
