/** plantstore serve --backup-to with its change log, restore from its folder, and plantstore backup verify. */

import { describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { findReach, logOf } from "../src/store/sqlite/change-log.ts";
import { runCommand, runForJson, type ServiceProcess, spawnService } from "./support/command.ts";
import { failure } from "./support/expect.ts";
import { makeWorkplace } from "./support/folder.ts";
import { limits } from "./support/limits.ts";
import { send, sendPlant, TEST_TOKEN } from "./support/service.ts";
import { alter, checkIntegrity, damage, makeStore, readPlants } from "./support/stores.ts";
import { until } from "./support/until.ts";

const NAME = /^plants-\d{8}T\d{6}Z\.db$/;

function makeScene(every = "1s") {
  const at = makeWorkplace();
  const backups = at.file("backups");
  mkdirSync(backups);
  const env = {
    ...at.env,
    PLANTSTORE_TOKEN: TEST_TOKEN,
    PLANTSTORE_BACKUP_TO: backups,
    PLANTSTORE_BACKUP_EVERY: every,
  };
  /** Without change logs, oldest first. */
  const list = (): string[] =>
    readdirSync(backups)
      .filter((name) => !name.endsWith(".changes"))
      .toSorted();
  const copies = (): string[] => list().filter((name) => NAME.test(name));
  return { ...at, backups, env, list, copies, newest: () => `${backups}/${copies().at(-1)}` };
}

/** NaN if the metrics do not have it. */
async function readMetric({ started }: ServiceProcess, name: string): Promise<number> {
  const lines = (await (await send(started, "GET", "/metrics")).text()).split("\n");
  return Number(lines.find((line) => line.startsWith(`${name} `))?.split(" ")[1]);
}

const count = (service: ServiceProcess, result = "made"): Promise<number> =>
  readMetric(service, `plantstore_backups_total{result="${result}"}`);

const create = async ({ started }: ServiceProcess, ...ids: bigint[]): Promise<void> => {
  for (const id of ids)
    expect((await sendPlant(started.url, { id, name: `plant ${id}`, tag: null })).status).toBe(200);
};

/** Resolves to its log. */
async function stop(service: ServiceProcess): Promise<string> {
  service.kill("SIGTERM");
  expect(await service.exited).toBe(0);
  return service.stderr;
}

/** Blocks of changes in the log of a copy; undefined if there is none. */
function countBlocks(copy: string): number | undefined {
  try {
    return readFileSync(logOf(copy), "utf8").match(/"entries":/g)?.length ?? 0;
  } catch {
    return undefined;
  }
}

describe("serve --backup-to", () => {
  test("makes whole backups, keeps the newest, whatever a wrong clock has named, and removes no files but its own", async () => {
    using scene = makeScene();
    const others = ["notes.txt", "plants-old-20200101T000000Z.db", "plants-20269999T999999Z.db"];
    const own = ["plants-20200101T000000Z.db", "plants-20200101T000000Z.db.0123456789ab.tmp"];
    const wrong = ["plants-20990101T000000Z.db", "plants-20990102T000000Z.db"];
    for (const name of [...others, ...own, ...wrong])
      writeFileSync(`${scene.backups}/${name}`, "no backup");
    others.push("plants-20200102T000000Z.db");
    mkdirSync(`${scene.backups}/plants-20200102T000000Z.db`);
    const startedAt = Math.floor(Date.now() / 1000);
    await using service = await spawnService({ ...scene.env, ...limits({ backupKeep: 2 }) });
    await create(service, 1n, 2n, 3n);
    // The one under way may lack the plants.
    const before = await count(service);
    await until("2 more backups are made", async () => (await count(service)) >= before + 2);

    expect(await count(service, "failed")).toBe(0);
    expect(await readMetric(service, "plantstore_backup_bytes")).toBeGreaterThan(0);
    expect(await readMetric(service, "plantstore_backup_interval_seconds")).toBe(1);
    const madeAt = await readMetric(service, "plantstore_backup_timestamp_seconds");
    expect(madeAt).toBeWithin(startedAt, Math.ceil(Date.now() / 1000) + 1);
    expect(await stop(service)).toContain('"event":"backed_up"');
    const made = scene.copies().filter((name) => !others.includes(name));
    expect(made).toHaveLength(2);
    expect([...own, ...wrong]).not.toContain(made[0]);
    expect(scene.list()).toEqual([...made, ...others].toSorted());
    const newest = `${scene.backups}/${made[1]}`;
    const verified = await runForJson(["backup", "verify", scene.backups]);
    expect(verified).toMatchObject({ from: newest, plants: 3 });
    expect(checkIntegrity(newest)).toBe("ok");
    expect(readPlants(newest)).toHaveLength(3);
    expect(statSync(newest).mode & 0o777).toBe(0o600);
  });

  test("a failing backup is logged and counted, deletes nothing, and the next one succeeds", async () => {
    using scene = makeScene();
    makeStore(scene.store, 10);
    writeFileSync(`${scene.backups}/plants-20200101T000000Z.db`, "old");
    renameSync(scene.backups, `${scene.backups}.away`);
    await using service = await spawnService({ ...scene.env, ...limits({ backupKeep: 1 }) });
    await until("a backup has failed", async () => (await count(service, "failed")) >= 1);
    await create(service, 11n);
    expect(await readMetric(service, "plantstore_backup_bytes")).toBeNaN();
    expect(readdirSync(`${scene.backups}.away`)).toEqual(["plants-20200101T000000Z.db"]);

    renameSync(`${scene.backups}.away`, scene.backups);
    await until("a backup is made", async () => (await count(service)) >= 1);
    expect(await stop(service)).toContain(
      `"event":"backup_failed","to":"${scene.backups}","reason":"${scene.backups}: no such file or directory."`,
    );
    expect(readPlants(scene.newest())).toHaveLength(11);
  });

  test("a stop leaves nothing out; the next start continues the log, makes no backup before it is due, and shows the age of the newest", async () => {
    using scene = makeScene("1h");
    for (const round of [1, 2]) {
      await using service = await spawnService(scene.env);
      await until("a backup is there", () => scene.copies().length === 1);
      await until("it is counted", async () => (await count(service)) === 2 - round);
      await create(service, BigInt(round));
      await until("its log has the plant", () => countBlocks(scene.newest()) === round);
      expect(await readMetric(service, "plantstore_backup_timestamp_seconds")).toBeGreaterThan(0);
      const activity: unknown = await (await send(service.started, "GET", "/activity")).json();
      const backups = { everyMs: 3_600_000, last: { bytes: expect.any(Number) } };
      expect(activity).toMatchObject({ backups });
      await stop(service);
    }
    expect(scene.list()).toHaveLength(1);
    expect(await runForJson(["backup", "verify", scene.backups])).toMatchObject({ plants: 2 });
    expect((await runCommand(["check"], scene.env)).stdout).toContain(
      `up to change ${findReach(scene.newest()).change} of `,
    );
  });

  test("while the folder is gone creates go on, the lag is shown, and the log catches up", async () => {
    using scene = makeScene("1h");
    await using service = await spawnService(scene.env);
    const readLag = () => readMetric(service, "plantstore_backup_lag_seconds");
    await until("the copy has a log", () => countBlocks(scene.newest()) !== undefined);
    renameSync(scene.backups, `${scene.backups}.away`);
    await create(service, 1n);
    await until("the lag grows", async () => (await readLag()) > 2);
    renameSync(`${scene.backups}.away`, scene.backups);
    await until("the log has the plant", () => (countBlocks(scene.newest()) ?? 0) >= 1);
    await until("the lag is gone", async () => (await readLag()) < 2);
    const log = await stop(service);
    expect(log).toContain(`"event":"change_log_failed","to":"${scene.backups}"`);
    expect(log).toContain('"event":"change_log_resumed"');
  });

  test("PostgreSQL is refused at the start", async () => {
    using scene = makeScene();
    const postgres = { ...scene.env, DATABASE_URL: "postgres://shop@127.0.0.1:1/plants" };
    const says = "--backup-to: for backups of PostgreSQL, see docs/operations.md";
    expect(await runCommand(["serve"], postgres)).toEqual(failure(2, says));
  });
});

describe("backup verify", () => {
  test("restores the newest backup in a temporary place, and leaves nothing behind", async () => {
    using scene = makeScene();
    makeStore(`${scene.backups}/plants-20260101T000000Z.db`, 5);
    makeStore(`${scene.backups}/plants-20260101T001500Z.db`, 7);
    writeFileSync(`${scene.backups}/plants-20260101T003000Z.db.0123456789ab.tmp`, "half");
    const temporary = scene.file("tmp");
    mkdirSync(temporary);
    const before = scene.list();
    // It uses no settings, so a wrong one does not matter.
    const env = { TMPDIR: temporary, PORT: "none" };
    expect(await runForJson(["backup", "verify", scene.backups], env)).toMatchObject({
      event: "verified",
      from: expect.stringMatching(/plants-20260101T001500Z\.db$/),
      plants: 7,
    });
    expect(scene.list()).toEqual(before);
    expect(readdirSync(temporary)).toEqual([]);

    damage(`${scene.backups}/plants-20260101T001500Z.db`);
    for (const [folder, says] of [
      [scene.backups, ""],
      [temporary, "holds no backup of plantstore serve --backup-to"],
      [`${temporary}/nowhere`, "no such file or directory"],
    ] as const)
      expect(await runCommand(["backup", "verify", folder])).toEqual(failure(1, says));
  });

  test("finds a log that does not lead to the next copy", async () => {
    using scene = makeScene();
    await using service = await spawnService(scene.env);
    await until("a copy is there", () => scene.copies().length >= 1);
    await create(service, 1n, 2n);
    await until("two more copies are there", () => scene.copies().length >= 3);
    await stop(service);
    expect(await runCommand(["backup", "verify", scene.backups])).toMatchObject({ exitCode: 0 });
    alter(scene.newest(), "UPDATE plants SET name = 'changed' WHERE id = 2");
    const finished = await runCommand(["backup", "verify", scene.backups]);
    expect(finished).toEqual(failure(1, "has other plants than"));
  });
});
