/** plantstore serve --backup-to with its change log, restore from its folder, and plantstore backup verify. */

import { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { STOP_MS_MAX } from "../../src/backup/schedule.ts";
import { createThread } from "../../src/backup/thread.ts";
import { ClockShim } from "../support/clock-shim.ts";
import { runCommand, runForJson, type ServiceProcess, spawnService } from "../support/command.ts";
import { lackOfShim } from "../support/disk-shim.ts";
import { failure } from "../support/expect.ts";
import { makeWorkplace } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { runSync } from "../support/processes.ts";
import { readMetric, send, sendPlant, TEST_TOKEN } from "../support/service.ts";
import { canMount, mountSmallFolder } from "../support/small-disk.ts";
import { checkIntegrity, damage, makeStore } from "../support/stores.ts";
import { until } from "../support/until.ts";

const NAME = /^plants-[0-9a-f]{16}-t\d{4}-s\d{8}-\d{16}-\d{8}T\d{6}Z-[0-9a-f]{16}\.db\.zst$/;

const quick = { backupFolderSeconds: 0.1, backupCopySeconds: 0.5 };
const daily = { backupFolderSeconds: 0.1 };

/** Of a segment, packed or not. */
function readText(path: string): string {
  const bytes = readFileSync(path);
  return Buffer.from(path.endsWith(".zst") ? Bun.zstdDecompressSync(bytes) : bytes).toString();
}

function makeScene(every = "1s") {
  const at = makeWorkplace();
  const backups = at.file("backups");
  mkdirSync(backups);
  const env = {
    ...at.env,
    PLANTSTORE_TOKEN: TEST_TOKEN,
    PLANTSTORE_BACKUP_TO: backups,
    PLANTSTORE_BACKUP_EVERY: every,
    PLANTSTORE_BACKUP_MOMENTS_DAYS: "0",
    PLANTSTORE_BACKUP_STATES_DAYS: "0",
    ...limits(every === "1h" ? daily : quick),
  };
  /** Without segments and the lease, oldest first. */
  const list = (): string[] =>
    readdirSync(backups)
      .filter((name) => !/\.(changes|changes\.zst|writer)$/.test(name))
      .toSorted();
  /** Blocks of changes in all segments. */
  const countBlocks = (): number =>
    readdirSync(backups)
      .filter((name) => /\.changes(\.zst)?$/.test(name))
      .map((name) => readText(`${backups}/${name}`).match(/"entries":/g)?.length ?? 0)
      .reduce((sum, blocks) => sum + blocks, 0);
  const copies = (): string[] => list().filter((name) => NAME.test(name));
  return {
    ...at,
    backups,
    env,
    list,
    copies,
    countBlocks,
    newest: () => `${backups}/${copies().at(-1)}`,
  };
}

const count = (service: ServiceProcess, result = "made"): Promise<number> =>
  readMetric(service.started, `plantstore_backups_total{result="${result}"}`);

const countProofs = (service: ServiceProcess, result: string): Promise<number> =>
  readMetric(service.started, `plantstore_backup_proofs_total{result="${result}"}`);

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

test("orders to a thread of backups wait for each other, and its end rejects those that wait", async () => {
  using at = makeWorkplace();
  makeStore(at.store, 3);
  const thread = createThread();
  const task = { place: at.path, label: "", scratch: at.path } as const;
  const ask = () => thread.ask("listPlace", task);
  const [one, other] = await Promise.all([ask(), ask()]);
  expect(one).toEqual(other);
  const waiting = Promise.allSettled([ask(), ask()]);
  thread.end();
  expect((await waiting).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  expect(await ask()).toEqual(one);
  thread.end();
});

describe("serve --backup-to", () => {
  test("makes whole backups, proves them, keeps the newest, and removes no files but its own", async () => {
    using scene = makeScene();
    const others = [
      "notes.txt",
      "plants-20200101T000000Z.db",
      "plants-0000000000000000-t0001-s00000001-0000000000000001-20990101T000000Z-0000000000000000.db",
    ];
    for (const name of others) writeFileSync(`${scene.backups}/${name}`, "no backup");
    const startedAt = Math.floor(Date.now() / 1000);
    await using service = await spawnService({
      ...scene.env,
    });
    const kept = (): string[] => scene.copies().filter((name) => !others.includes(name));
    for (const id of [1n, 2n, 3n]) {
      const before = await count(service);
      await create(service, id);
      await until("another backup is made", async () => (await count(service)) > before);
    }
    await until("older ones are removed", async () => kept().length === 2);
    await until("they are proven", async () => (await countProofs(service, "proven")) >= 2);

    expect(await count(service, "failed")).toBe(0);
    expect(await countProofs(service, "failed")).toBe(0);
    expect(await readMetric(service.started, "plantstore_backup_bytes")).toBeGreaterThan(0);
    expect(await readMetric(service.started, "plantstore_backup_interval_seconds")).toBe(1);
    expect(await readMetric(service.started, "plantstore_backup_lag_changes")).toBe(0);
    expect(await readMetric(service.started, "plantstore_backup_age_seconds")).toBeGreaterThan(0);
    expect(await readMetric(service.started, "plantstore_backup_unproven_seconds")).toBeGreaterThan(
      0,
    );
    const madeAt = await readMetric(service.started, "plantstore_backup_timestamp_seconds");
    expect(madeAt).toBeWithin(startedAt, Math.ceil(Date.now() / 1000) + 1);
    // A stop may end in the middle of a proof, whose files the next one removes.
    await until("no proof is under way", async () =>
      readdirSync(scene.path).every((name) => !name.includes("tmp")),
    );
    const log = await stop(service);
    expect(log).toContain('"event":"backed_up"');
    expect(log).toContain('"event":"backup_proven"');
    expect(scene.list().filter((name) => others.includes(name))).toEqual(others.toSorted());
    for (const name of others) rmSync(`${scene.backups}/${name}`);
    const verified = await runForJson(["backup", "verify", scene.backups]);
    expect(verified).toMatchObject({ from: scene.newest(), plants: 3, missing: [], damage: [] });
    const restored = { DATABASE_URL: `sqlite:${scene.file("restored.db")}` };
    expect(await runForJson(["restore", scene.newest()], restored)).toMatchObject({ plants: 3 });
    expect(checkIntegrity(scene.file("restored.db"))).toBe("ok");
    expect(statSync(scene.newest()).mode & 0o777).toBe(0o600);
    // Another service could write at once, unless the machine was too slow for the time that a stop gives it.
    const stoppedMs = Number(/"event":"stopped","durationMs":(\d+)/.exec(log)?.[1]);
    const note = readdirSync(scene.backups).find((name) => name.endsWith(".writer")) ?? "";
    const holds = readFileSync(`${scene.backups}/${note}`, "utf8").includes("holder");
    expect(stoppedMs > STOP_MS_MAX ? false : holds).toBe(false);
  });

  test.skipIf(lackOfShim() !== undefined)(
    "a clock that is set back by a day delays no copy",
    async () => {
      using scene = makeScene();
      using clock = new ClockShim();
      await using service = await spawnService({ ...scene.env, ...clock.environment });
      await until("a copy is made", async () => (await count(service)) > 0);
      clock.set(-86_400);
      for (const id of [1n, 2n]) {
        const made = await count(service);
        await create(service, id);
        await until("another is made", async () => (await count(service)) > made);
      }
    },
  );

  test("a failing backup is logged and counted, deletes nothing, and the next one succeeds", async () => {
    using scene = makeScene();
    makeStore(scene.store, 10);
    renameSync(scene.backups, `${scene.backups}.away`);
    // The state is the first thread's; another may answer.
    const env = { ...scene.env, ...(process.platform === "linux" && { PLANTSTORE_WORKERS: "2" }) };
    await using service = await spawnService(env);
    const readiness = async (): Promise<unknown> =>
      (await fetch(`${service.started.url}/readyz`)).json();
    const readLag = () => readMetric(service.started, "plantstore_backup_lag_seconds");
    await until("the lag grows", async () => (await readLag()) > 2);
    await create(service, 11n);
    expect(await readMetric(service.started, "plantstore_backup_bytes")).toBeNaN();
    expect(await readMetric(service.started, "plantstore_backup_lag_changes")).toBe(1);
    const activity = await (await send(service.started, "GET", "/activity")).json();
    const problem = `The folder ${scene.backups} does not exist.`;
    expect((activity as { backups: unknown }).backups).toEqual({
      place: scene.backups,
      everyMs: 1_000,
      made: 0,
      failed: 0,
      last: null,
      loggedAtMs: expect.any(Number),
      lagChanges: 1,
      proven: null,
      proofs: 0,
      proofsFailed: 0,
      problem,
    });
    for (let asked = 0; asked < 8; asked++)
      expect(await readiness()).toEqual({ status: "ready", backups: "failing" });
    expect(await readMetric(service.started, "plantstore_backup_problem")).toBe(1);

    renameSync(`${scene.backups}.away`, scene.backups);
    await until("a backup is made", async () => (await count(service)) >= 1);
    for (let asked = 0; asked < 8; asked++) expect(await readiness()).toEqual({ status: "ready" });
    expect(await readMetric(service.started, "plantstore_backup_problem")).toBe(0);
    const log = await stop(service);
    expect(log).toContain(`"warning":"No backups in ${scene.backups} yet: ${problem}"`);
    expect(log).toContain(`"event":"change_log_failed","to":"${scene.backups}"`);
    const restored = { DATABASE_URL: `sqlite:${scene.file("restored.db")}` };
    expect(await runForJson(["restore", scene.backups], restored)).toMatchObject({ plants: 11 });
  });

  test("after a stop the next start continues the segments, and makes no backup before it is due", async () => {
    using scene = makeScene("1h");
    for (const round of [1, 2]) {
      await using service = await spawnService(scene.env);
      await until("a backup is there", () => scene.copies().length === 1);
      await until("it is counted", async () => (await count(service)) === 2 - round);
      await create(service, BigInt(round));
      await until("a segment has the plant", () => scene.countBlocks() === round);
      if (round === 1)
        await until("it is proven", async () => (await countProofs(service, "proven")) > 0);
      await until(
        "the copy is known",
        async () => (await readMetric(service.started, "plantstore_backup_timestamp_seconds")) > 0,
      );
      const activity: unknown = await (await send(service.started, "GET", "/activity")).json();
      const backups = { everyMs: 3_600_000, last: { bytes: expect.any(Number) } };
      expect(activity).toMatchObject({ backups });
      await stop(service);
    }
    expect(scene.list()).toHaveLength(1);
    const verified = await runForJson(["backup", "verify", scene.backups]);
    expect(verified).toMatchObject({ plants: 2, missing: [], damage: [] });
    const { moment } = verified as { moment: { change: number } };
    expect((await runCommand(["check"], scene.env)).stdout).toContain(
      `up to change ${moment.change}; later writes would be lost`,
    );
  });

  test("while the folder is gone creates are stored, the lag is shown, and the segments catch up", async () => {
    using scene = makeScene("1h");
    await using service = await spawnService(scene.env);
    const readLag = () => readMetric(service.started, "plantstore_backup_lag_seconds");
    await until("a copy is there", () => scene.copies().length === 1);
    renameSync(scene.backups, `${scene.backups}.away`);
    await create(service, 1n);
    await until("the lag grows", async () => (await readLag()) > 2);
    renameSync(`${scene.backups}.away`, scene.backups);
    await until("a segment has the plant", () => scene.countBlocks() >= 1);
    await until("the lag is gone", async () => (await readLag()) < 2);
    const log = await stop(service);
    expect(log).toContain(`"event":"change_log_failed","to":"${scene.backups}"`);
    expect(log).toContain('"event":"change_log_resumed"');
    expect(await runForJson(["backup", "verify", scene.backups])).toMatchObject({
      plants: 1,
      missing: [],
    });
  });

  test("while the folder hangs clients are served, the lag is shown, and a stop is prompt", async () => {
    using scene = makeScene("1h");
    makeStore(scene.store, 1);
    using db = new Database(scene.store, { readonly: true });
    const { id } = db.query("SELECT id FROM timelines").get() as { id: string };
    db.close();
    // Opening a pipe without a writer takes until there is one: the thread that opens it hangs in the kernel.
    const lease = `${scene.backups}/plantstore-${id}.writer`;
    expect(runSync(["mkfifo", lease]).exitCode).toBe(0);
    await using service = await spawnService(scene.env);
    await create(service, 2n, 3n);
    for (const path of ["/livez", "/readyz", "/plants/2", "/plants", "/changes", "/activity"])
      expect((await send(service.started, "GET", path)).status).toBe(200);
    expect(await readMetric(service.started, "plantstore_backup_lag_changes")).toBe(2);
    const lag = () => readMetric(service.started, "plantstore_backup_lag_seconds");
    await until("the lag grows", async () => (await lag()) > 2);
    await stop(service);
    expect(scene.copies()).toEqual([]);

    rmSync(lease);
    await using again = await spawnService(scene.env);
    await until("a copy is there", () => scene.copies().length === 1);
    await stop(again);
    const to = { DATABASE_URL: `sqlite:${scene.file("restored.db")}` };
    expect(await runForJson(["restore", scene.backups], to)).toMatchObject({ plants: 3 });
  });

  test.skipIf(!canMount)(
    "a full folder is named, costs no client anything, and is caught up",
    async () => {
      using scene = makeScene("1h");
      using small = mountSmallFolder("256k");
      const env = { ...scene.env, PLANTSTORE_BACKUP_TO: small.path };
      await using service = await spawnService(env);
      await until("a copy is proven", async () => (await countProofs(service, "proven")) > 0);
      const filler = `${small.path}/filler`;
      expect(() => writeFileSync(filler, Buffer.alloc(1_000_000))).toThrow("ENOSPC");
      await create(service, 1n, 2n);
      const activity = async () =>
        (await (await send(service.started, "GET", "/activity")).json()) as {
          backups: { problem: string | null };
        };
      await until("the cause is shown", async () =>
        /no space/.test(String((await activity()).backups.problem)),
      );
      rmSync(filler);
      await until("it is caught up", async () => (await activity()).backups.problem === null);
      await stop(service);
      const to = { DATABASE_URL: `sqlite:${scene.file("restored.db")}` };
      expect(await runForJson(["restore", small.path], to)).toMatchObject({
        plants: 2,
        missing: [],
      });
    },
  );

  test("damage to what it wrote is found by the next proof, and written again", async () => {
    using scene = makeScene();
    await using service = await spawnService(scene.env);
    await until("a copy is there", () => scene.copies().length > 0);
    await create(service, 1n);
    await until("a segment has the plant", () => scene.countBlocks() >= 1);
    for (const name of readdirSync(scene.backups).filter((one) => one.endsWith(".changes"))) {
      const file = `${scene.backups}/${name}`;
      writeFileSync(file, readFileSync(file, "utf8").replaceAll("plant 1", "planT 1"));
    }
    const proofs = await countProofs(service, "proven");
    for (let id = 2n; id < 5n; id++) {
      const made = await count(service);
      await create(service, id);
      await until("another is made", async () => (await count(service)) > made);
    }
    await until("it is proven", async () => (await countProofs(service, "proven")) > proofs);
    const damaged = await readMetric(service.started, "plantstore_backup_damaged_total");
    const log = await stop(service);
    expect(log).toMatch(/"event":"backup_(damaged|proof_failed)"/);
    expect(damaged).toBe(log.match(/"event":"backup_damaged"/g)?.length ?? 0);
    const env = { DATABASE_URL: `sqlite:${scene.file("restored.db")}` };
    expect(await runForJson(["restore", scene.backups], env)).toMatchObject({
      plants: 4,
      missing: [],
    });
  });

  test("without a journal there are copies, in the order in which they were made", async () => {
    using scene = makeScene();
    const env = { ...scene.env, PLANTSTORE_CHANGES_DAYS: "0" };
    await using service = await spawnService(env);
    for (const id of [1n, 2n, 3n]) {
      await create(service, id);
      const before = await count(service);
      await until(
        "another copy is made",
        async () => (await count(service)) > before || scene.copies().length > Number(id),
      );
    }
    expect(await readMetric(service.started, "plantstore_backup_lag_seconds")).toBeNaN();
    expect(await countProofs(service, "proven")).toBeGreaterThan(0);
    expect(await countProofs(service, "failed")).toBe(0);
    await stop(service);
    for (const file of scene.copies()) {
      const time = "20260101T000000Z";
      renameSync(
        `${scene.backups}/${file}`,
        `${scene.backups}/${file.replace(/\d{8}T\d{6}Z/, time)}`,
      );
    }
    const to = { DATABASE_URL: `sqlite:${scene.file("restored.db")}` };
    expect(await runForJson(["restore", scene.backups], to)).toMatchObject({
      plants: 3,
      missing: [],
    });
  });

  test("PostgreSQL is refused at the start", async () => {
    using scene = makeScene();
    const postgres = { ...scene.env, DATABASE_URL: "postgres://shop@127.0.0.1:1/plants" };
    const says = "--backup-to: for backups of PostgreSQL, see docs/operations.md";
    expect(await runCommand(["serve"], postgres)).toEqual(failure(2, says));
  });
});

describe("backup verify", () => {
  test("restores the newest state in a temporary place, and leaves nothing behind", async () => {
    using scene = makeScene();
    makeStore(`${scene.backups}/plants-20260101T000000Z.db`, 5);
    const temporary = scene.file("tmp");
    mkdirSync(temporary);
    const before = scene.list();
    // It uses no settings, so a wrong one does not matter.
    const env = { TMPDIR: temporary, PORT: "none" };
    expect(await runForJson(["backup", "verify", scene.backups], env)).toMatchObject({
      event: "verified",
      from: expect.stringMatching(/plants-20260101T000000Z\.db$/),
      plants: 5,
    });
    expect(scene.list()).toEqual(before);
    expect(readdirSync(temporary)).toEqual([]);

    damage(`${scene.backups}/plants-20260101T000000Z.db`);
    for (const [folder, says] of [
      [scene.backups, "No copy in"],
      [temporary, "holds no backup of plantstore serve --backup-to"],
      [`${temporary}/nowhere`, "does not exist"],
    ] as const)
      expect(await runCommand(["backup", "verify", folder])).toEqual(failure(1, says));
  });
});
