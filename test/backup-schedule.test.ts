/** plantstore serve --backup-to, and plantstore backup verify. */

import { expect, test } from "bun:test";
import { mkdirSync, readdirSync, renameSync, statSync, writeFileSync } from "node:fs";
import { runCommand, type ServiceProcess, spawnService } from "./support/command.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { sendPlant, TEST_TOKEN } from "./support/service.ts";
import { checkIntegrity, damage, makeStore, readPlants } from "./support/stores.ts";
import { until } from "./support/until.ts";

const NAME = /^plants-\d{8}T\d{6}Z\.db$/;

interface Scene extends Disposable {
  readonly store: string;
  readonly backups: string;
  readonly env: Readonly<Record<string, string>>;
  readonly list: () => string[];
}

function makeScene(): Scene {
  const folder = makeTemporaryFolder();
  const [store, backups] = [`${folder.path}/plants.db`, `${folder.path}/backups`];
  mkdirSync(backups);
  return {
    store,
    backups,
    env: {
      DATABASE_URL: `sqlite:${store}`,
      PLANTSTORE_TOKEN: TEST_TOKEN,
      PLANTSTORE_BACKUP_TO: backups,
      PLANTSTORE_BACKUP_EVERY: "1s",
    },
    /** Without change logs. */
    list: () =>
      readdirSync(backups)
        .filter((name) => !name.endsWith(".changes"))
        .toSorted(),
    [Symbol.dispose]: () => folder[Symbol.dispose](),
  };
}

const readMetrics = async ({ started }: ServiceProcess): Promise<string> =>
  (
    await fetch(`${started.url}/metrics`, { headers: { authorization: `Bearer ${TEST_TOKEN}` } })
  ).text();

const made = async (service: ServiceProcess, result = "made"): Promise<number> => {
  const pattern = new RegExp(`^plantstore_backups_total\\{result="${result}"\\} (\\d+)$`, "m");
  return Number(pattern.exec(await readMetrics(service))?.[1]);
};

test("serve --backup-to: makes whole backups, keeps the newest, and removes what a killed one left", async () => {
  using scene = makeScene();
  const others = ["notes.txt", "plants-old-20200101T000000Z.db"];
  for (const name of others) writeFileSync(`${scene.backups}/${name}`, "not ours");
  writeFileSync(`${scene.backups}/plants-20200101T000000Z.db.0123456789ab.tmp`, "half");
  writeFileSync(`${scene.backups}/plants-20200101T000000Z.db`, "old");
  await using service = await spawnService({ ...scene.env, PLANTSTORE_BACKUP_KEEP: "2" });
  for (let id = 1; id <= 20; id++)
    await sendPlant(service.started.url, { id: BigInt(id), name: `plant ${id}`, tag: null });
  await until("3 backups are made", async () => (await made(service)) >= 3);

  const metrics = await readMetrics(service);
  service.kill("SIGTERM");
  expect(await service.exited).toBe(0);
  const own = scene.list().filter((name) => NAME.test(name));
  expect(own).toHaveLength(2);
  expect(scene.list()).toEqual([...own, ...others].toSorted());
  const newest = `${scene.backups}/${own.at(-1)}`;
  expect(checkIntegrity(newest)).toBe("ok");
  expect(readPlants(newest)).toHaveLength(20);
  expect(statSync(newest).mode & 0o777).toBe(0o600);
  expect(metrics).toMatch(/^plantstore_backup_bytes \d+$/m);
  expect(metrics).toContain("\nplantstore_backup_interval_seconds 1\n");
  const [, seconds] = /^plantstore_backup_timestamp_seconds (\S+)$/m.exec(metrics) ?? [];
  expect(Math.abs(Date.now() / 1000 - Number(seconds))).toBeLessThan(20);
  expect(await service.stderr).toContain('"event":"backed_up"');
});

test("serve --backup-to: names from a clock that was wrong, and what is no backup, neither delay nor remove new ones", async () => {
  using scene = makeScene();
  makeStore(scene.store, 3);
  const wrong = ["plants-20990101T000000Z.db", "plants-20990102T000000Z.db"];
  for (const name of wrong) writeFileSync(`${scene.backups}/${name}`, "from the future");
  mkdirSync(`${scene.backups}/plants-20200101T000000Z.db`);
  writeFileSync(`${scene.backups}/plants-20269999T999999Z.db`, "no time");
  await using service = await spawnService({ ...scene.env, PLANTSTORE_BACKUP_KEEP: "2" });
  await until("2 backups are made", async () => (await made(service)) >= 2);
  expect(await made(service, "failed")).toBe(0);
  service.kill("SIGTERM");
  await service.exited;
  const verified = await runCommand(["backup", "verify", "--json", scene.backups]);
  expect(verified).toMatchObject({ exitCode: 0, stderr: "" });
  const { from, plants } = JSON.parse(verified.stdout) as { from: string; plants: number };
  expect([plants, wrong.some((name) => from.endsWith(name))]).toEqual([3, false]);
  const now = scene.list();
  expect(now.filter((name) => wrong.includes(name))).toEqual([]);
  expect(now).toContain("plants-20200101T000000Z.db");
});

test("serve --backup-to: a failing backup is logged and counted, deletes nothing, and the next one succeeds", async () => {
  using scene = makeScene();
  makeStore(scene.store, 10);
  writeFileSync(`${scene.backups}/plants-20200101T000000Z.db`, "old");
  renameSync(scene.backups, `${scene.backups}.away`);
  await using service = await spawnService({ ...scene.env, PLANTSTORE_BACKUP_KEEP: "1" });
  await until("a backup has failed", async () => (await made(service, "failed")) >= 1);
  const response = await sendPlant(service.started.url, { id: 11n, name: "meanwhile", tag: null });
  expect(response.status).toBe(200);
  expect(await readMetrics(service)).not.toMatch(/^plantstore_backup_bytes /m);
  expect(readdirSync(`${scene.backups}.away`)).toEqual(["plants-20200101T000000Z.db"]);

  renameSync(`${scene.backups}.away`, scene.backups);
  await until("a backup is made", async () => (await made(service)) >= 1);
  service.kill("SIGTERM");
  await service.exited;
  expect(await service.stderr).toContain(
    `"event":"backup_failed","to":"${scene.backups}","reason":"${scene.backups}: no such file or directory."`,
  );
  expect(readPlants(`${scene.backups}/${scene.list().at(-1)}`)).toHaveLength(11);
});

test("serve --backup-to: a restart makes no backup before it is due, and shows the age of the newest", async () => {
  using scene = makeScene();
  makeStore(scene.store, 3);
  const env = { ...scene.env, PLANTSTORE_BACKUP_EVERY: "1h" };
  for (let round = 0; round < 2; round++) {
    await using service = await spawnService(env);
    await until("a backup is there", () => scene.list().some((name) => NAME.test(name)));
    await until("it is counted", async () => (await made(service)) === (round === 0 ? 1 : 0));
    expect(await readMetrics(service)).toMatch(/^plantstore_backup_timestamp_seconds \d/m);
    const headers = { authorization: `Bearer ${TEST_TOKEN}` };
    const activity = await (await fetch(`${service.started.url}/activity`, { headers })).json();
    expect(activity).toMatchObject({
      backups: { everyMs: 3_600_000, last: { bytes: expect.any(Number) } },
    });
    service.kill("SIGTERM");
    await service.exited;
  }
  expect(scene.list()).toHaveLength(1);
});

test("serve --backup-to: PostgreSQL and wrong values are refused at the start", async () => {
  using scene = makeScene();
  const postgres = { ...scene.env, DATABASE_URL: "postgres://shop@127.0.0.1:1/plants" };
  expect(await runCommand(["serve"], postgres)).toMatchObject({
    exitCode: 2,
    stderr: expect.stringContaining(
      "--backup-to: for backups of PostgreSQL, see docs/operations.md",
    ),
  });
  for (const every of ["", "15", "0m", "8d", "1w"])
    expect(
      await runCommand(["serve"], { ...scene.env, PLANTSTORE_BACKUP_EVERY: every }),
    ).toMatchObject({ exitCode: 2, stderr: expect.stringContaining("PLANTSTORE_BACKUP_EVERY") });
});

test("backup verify: restores the newest backup in a temporary place, and leaves nothing behind", async () => {
  using scene = makeScene();
  makeStore(`${scene.backups}/plants-20260101T000000Z.db`, 5);
  makeStore(`${scene.backups}/plants-20260101T001500Z.db`, 7);
  writeFileSync(`${scene.backups}/plants-20260101T003000Z.db.0123456789ab.tmp`, "half");
  const temporary = `${scene.backups}/../tmp`;
  mkdirSync(temporary);
  const before = scene.list();
  // It uses no settings, so a wrong one does not matter.
  const finished = await runCommand(["backup", "verify", "--json", scene.backups], {
    TMPDIR: temporary,
    PORT: "none",
  });
  expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
  expect(JSON.parse(finished.stdout)).toMatchObject({
    event: "verified",
    from: expect.stringMatching(/plants-20260101T001500Z\.db$/),
    plants: 7,
  });
  expect(scene.list()).toEqual(before);
  expect(readdirSync(temporary)).toEqual([]);

  damage(`${scene.backups}/plants-20260101T001500Z.db`);
  expect(await runCommand(["backup", "verify", scene.backups])).toMatchObject({ exitCode: 1 });
});

test("backup verify: a folder without a backup, or that does not exist, is an error", async () => {
  using scene = makeScene();
  expect(await runCommand(["backup", "verify", scene.backups])).toMatchObject({
    exitCode: 1,
    stderr: expect.stringContaining("holds no backup of plantstore serve --backup-to"),
  });
  expect(await runCommand(["backup", "verify", `${scene.backups}/nowhere`])).toMatchObject({
    exitCode: 1,
    stderr: expect.stringContaining("no such file or directory"),
  });
});
