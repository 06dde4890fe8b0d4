/** plantstore serve --backup-to s3://…, and the commands that read a bucket. */

import { expect, test } from "bun:test";
import { readdirSync, readFileSync, rmSync } from "node:fs";
import { openBucket } from "../../src/backup/bucket.ts";
import { type Fault, startBucket } from "../support/bucket.ts";
import {
  runCommand,
  runForJson,
  type ServiceProcess,
  spawnService,
  startCommand,
} from "../support/command.ts";
import { makeWorkplace, type Workplace } from "../support/folder.ts";
import { defaults, limits } from "../support/limits.ts";
import { readMetric, send, sendPlant, TEST_TOKEN } from "../support/service.ts";
import { readPlants } from "../support/stores.ts";
import { until } from "../support/until.ts";

const untilCaughtUp = (service: ServiceProcess): Promise<void> =>
  until(
    "every change is in the bucket",
    async () => (await readMetric(service.started, "plantstore_backup_lag_changes")) === 0,
  );

const untilProven = (service: ServiceProcess): Promise<void> =>
  until(
    "a copy is proven",
    async () =>
      (await readMetric(service.started, 'plantstore_backup_proofs_total{result="proven"}')) > 0,
  );

/** Of a service with backups in this bucket. */
const environmentOf = (
  at: Workplace,
  bucket: Awaited<ReturnType<typeof startBucket>>,
  every: string,
) => ({
  ...at.env,
  ...bucket.env,
  PLANTSTORE_TOKEN: TEST_TOKEN,
  PLANTSTORE_BACKUP_TO: bucket.url,
  PLANTSTORE_BACKUP_EVERY: every,
  ...limits({ backupBucketSeconds: 0.1 }),
});

const listLocal = (folder: string): string[] =>
  readdirSync(folder).filter((name) => name.includes(".piece.tmp"));

test("a service whose bucket fails serves as ever, catches up, and is restored without a gap", async () => {
  await using bucket = await startBucket();
  using at = makeWorkplace();
  const env = environmentOf(at, bucket, "2s");
  const ids: bigint[] = [];
  const create = async (service: ServiceProcess, count: number): Promise<void> => {
    for (let made = 0; made < count; made++) {
      const id = BigInt(ids.length + 1);
      expect(
        (await sendPlant(service.started.url, { id, name: `plant ${id}`, tag: null })).status,
      ).toBe(200);
      ids.push(id);
    }
  };
  {
    await using service = await spawnService(env);
    await create(service, 20);
    await untilProven(service);

    // Gone: refused, reset, and 5xx.
    const faults: Fault[] = ["reset", { status: 503, code: "SlowDown" }, "lose-answer", "truncate"];
    const failed = Promise.withResolvers<void>();
    let count = 0;
    bucket.fault = () => {
      if (++count === 20) failed.resolve();
      return faults[count % faults.length];
    };
    await create(service, 20);
    await failed.promise;
    await create(service, 20);
    expect(await readMetric(service.started, "plantstore_backup_lag_changes")).toBeGreaterThan(0);

    // Half of everything fails.
    bucket.fault = () => (count++ % 2 === 0 ? faults[count % faults.length] : undefined);
    await create(service, 20);
    await untilCaughtUp(service);
    bucket.fault = () => undefined;
    await create(service, 20);
    await untilCaughtUp(service);
    service.kill("SIGKILL");
    await service.exited;
  }
  const restored = { ...bucket.env, DATABASE_URL: `sqlite:${at.file("restored.db")}` };
  const report = await runForJson(["restore", bucket.url], restored);
  expect(report).toMatchObject({ plants: ids.length, missing: [] });
  expect(readPlants(at.file("restored.db")).map(({ id }) => id)).toEqual(ids);
  expect(await runForJson(["backup", "verify", bucket.url], bucket.env)).toMatchObject({
    plants: ids.length,
    damage: [],
  });
  expect(await runForJson(["backup", "list", bucket.url], bucket.env)).toMatchObject({
    place: bucket.url,
    stores: [{ missing: [] }],
  });
  // Also after the killed service.
  expect(listLocal(at.path)).toEqual([]);

  // An interrupted restore leaves nothing behind either.
  bucket.fault = ({ path }) => (path.endsWith(".db.zst") ? "hang" : undefined);
  const again = { ...restored, DATABASE_URL: `sqlite:${at.file("again.db")}` };
  const command = startCommand(["restore", bucket.url], again);
  await until("a download has begun", () => listLocal(at.path).length > 0);
  command.kill("SIGINT");
  expect(await command.finished).toEqual({ exitCode: 130, stdout: "", stderr: "" });
  expect(listLocal(at.path)).toEqual([]);
  expect(readdirSync(at.path).filter((name) => name.startsWith("again"))).toEqual([]);
});

/**
 * The loss window, by events: an append reads the store after the one before has ended. So it has all that was
 * acknowledged when the upload of the segment before it began. At most one interval and one upload are lost.
 */
test.each([
  ["its segment is uploaded", "segment", "hang", false],
  ["its segment is stored and the answer is lost", "segment", "lose-answer", true],
  ["its note is uploaded", "note", "hang", true],
] as const)(
  "a machine that dies during an append, while %s, loses at most what was acknowledged since the append before",
  async (_when, during, fault, isStored) => {
    await using bucket = await startBucket();
    using machine = makeWorkplace();
    using at = makeWorkplace();
    const env = environmentOf(machine, bucket, "1h");
    let acknowledged = 0;
    /** What was acknowledged when the upload of each segment began. */
    const atUpload: number[] = [];
    await using service = await spawnService(env);
    // The one copy is made before the first create, so every segment that follows is an append.
    await untilProven(service);
    const APPENDS = 4;
    const dying = Promise.withResolvers<void>();
    let isDying = false;
    bucket.fault = ({ method, path }) => {
      if (isDying) return "hang";
      const isSegment = path.includes(".changes.zst");
      if (method !== "PUT") return undefined;
      if (isSegment) atUpload.push(acknowledged);
      if (atUpload.length < APPENDS || isSegment !== (during === "segment")) return undefined;
      isDying = true;
      dying.resolve();
      return fault;
    };
    const create = async (): Promise<void> => {
      for (let id = 1n; ; id++) {
        const plant = { id, name: `plant ${id}`, tag: null };
        const answer = await sendPlant(service.started.url, plant).catch(() => undefined);
        if (answer?.status !== 200) return;
        acknowledged++;
      }
    };
    const created = create();
    await dying.promise;
    const atDeath = acknowledged;
    await until("creates are acknowledged that no append has", () => acknowledged > atDeath + 1);
    service.kill("SIGKILL");
    await service.exited;
    await created;
    rmSync(machine.path, { recursive: true });

    bucket.fault = () => undefined;
    const restored = { ...bucket.env, DATABASE_URL: `sqlite:${at.file("restored.db")}` };
    const report = await runForJson<{ plants: number }>(["restore", bucket.url], restored);
    expect(report).toMatchObject({ missing: [] });
    const ids = readPlants(at.file("restored.db")).map(({ id }) => id);
    expect(ids).toEqual(Array.from({ length: report.plants }, (_, nth) => BigInt(nth + 1)));
    // Of the last segment that is stored, the one before it.
    const kept = atUpload[APPENDS - (isStored ? 2 : 3)] ?? Number.NaN;
    expect(kept).toBeGreaterThan(0);
    // What was acknowledged after the last upload began is lost, and nothing else.
    expect(report.plants).toBeWithin(kept, acknowledged);
    const page = readFileSync(`${import.meta.dir}/../../docs/operations.md`, "utf8");
    const { backupBucketSeconds } = defaults;
    expect(page).toContain(`With a bucket: in the last ${backupBucketSeconds} seconds, and during`);
  },
);

test("an object that is lost while the service runs is missed, and what it held is written again", async () => {
  await using bucket = await startBucket();
  using at = makeWorkplace();
  const env = environmentOf(at, bucket, "1s");
  await using service = await spawnService(env);
  await untilProven(service);
  const create = async (id: bigint): Promise<void> => {
    const plant = { id, name: "n", tag: null };
    expect((await sendPlant(service.started.url, plant)).status).toBe(200);
    await untilCaughtUp(service);
  };
  for (const id of [1n, 2n, 3n]) await create(id);
  const place = openBucket(bucket.url, at.path, bucket.env);
  const segments = (await place.list()).filter(({ name }) => name.endsWith(".changes.zst"));
  // The one in the middle.
  await place.remove(segments.at(-2)?.name ?? "");
  const countDamaged = () => readMetric(service.started, "plantstore_backup_damaged_total");
  await until("it is missed", async () => (await countDamaged()) > 0);
  place.close();
  let restores = 0;
  await until("it is written again", async () => {
    const to = at.file(`restored-${++restores}.db`);
    const restored = { ...bucket.env, DATABASE_URL: `sqlite:${to}` };
    return (await runCommand(["restore", bucket.url], restored)).exitCode === 0;
  });
  expect(readPlants(at.file(`restored-${restores}.db`)).map(({ id }) => id)).toEqual([1n, 2n, 3n]);
  // No copy was needed for it.
  expect(await readMetric(service.started, 'plantstore_backups_total{result="made"}')).toBe(1);
  expect(await countDamaged()).toBe(1);
  service.kill("SIGTERM");
  expect(await service.exited).toBe(0);
  expect(await service.stderr).toMatch(/"backup_damaged".*"name":"the changes after \d+"/);
});

test.each([
  ["s3://Bad_Bucket", {}, 2, '--backup-to: "s3://Bad_Bucket" is not allowed (a bucket has 3 to 63'],
  ["s3://plants-backup", {}, 1, "s3://plants-backup needs the variable AWS_ACCESS_KEY_ID."],
  [
    "s3://plants-backup",
    { AWS_ACCESS_KEY_ID: "key", AWS_SECRET_ACCESS_KEY: "secret" },
    1,
    "s3://plants-backup needs the variable AWS_REGION or AWS_DEFAULT_REGION.",
  ],
])("serve --backup-to %s with %j is refused at the start", async (url, given, code, sentence) => {
  using at = makeWorkplace();
  const command = ["serve", "--backup-to", url, "--port", "0"];
  const { exitCode, stderr } = await runCommand(command, { ...at.env, ...given });
  expect(stderr).toContain(sentence);
  expect(exitCode).toBe(code);
});

test("a copy without room is tried again later, and a stop in the middle of one gives up the lease", async () => {
  await using bucket = await startBucket();
  using at = makeWorkplace();
  const env = environmentOf(at, bucket, "1s");
  {
    await using service = await spawnService({
      ...env,
      PLANTSTORE_DISK_FREE_BYTES_MIN: "100000000000000",
    });
    const countFailed = () =>
      readMetric(service.started, 'plantstore_backups_total{result="failed"}');
    await until("a copy has failed", async () => (await countFailed()) > 0);
    // About thirty appends that ask for a copy, and two intervals.
    await Bun.sleep(3_000);
    expect(await countFailed()).toBe(1);
    const activity: unknown = await (await send(service.started, "GET", "/activity")).json();
    const problem = expect.stringMatching(/^A copy needs \d+ free bytes in /);
    expect(activity).toMatchObject({ backups: { problem } });
    const ready: unknown = await (await send(service.started, "GET", "/readyz")).json();
    expect(ready).toEqual({ status: "ready", backups: "failing" });
    expect(await readMetric(service.started, "plantstore_backup_problem")).toBe(1);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
  }
  bucket.fault = ({ method, path }) =>
    method !== "GET" && path.includes(".db.zst") ? "hang" : undefined;
  await using service = await spawnService(env);
  await until("a copy is sent", () =>
    bucket.seen.some(({ method, path }) => method !== "GET" && path.includes(".db.zst")),
  );
  service.kill("SIGTERM");
  expect(await service.exited).toBe(0);
  expect(await service.stderr).not.toMatch(/backup_failed|backup_proof_failed/);
  const place = openBucket(bucket.url, at.path, bucket.env);
  const note = (await place.list()).find(({ name }) => name.endsWith(".writer"))?.name ?? "";
  const text: unknown = JSON.parse((await place.readNote(note)) ?? "");
  place.close();
  expect(text).toMatchObject({ shipped: { isCovered: false } });
  expect(text).not.toHaveProperty("holder");
});
