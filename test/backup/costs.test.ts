/** What backups in a bucket cost: bytes and requests, with a real S3 server. */

import { afterAll, beforeAll, expect, spyOn, test } from "bun:test";
import { Database } from "bun:sqlite";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { resolveConfig } from "../../src/config.ts";
import { findDurationMs } from "../../src/domain/time.ts";
import { createDemoPlants } from "../../scripts/demo-plants.ts";
import { Appender, type Reached } from "../../src/backup/ship.ts";
import { backUp, prune } from "../../src/backup/maintain.ts";
import { labelOf, nameCopy, nameNote, nameSegment, parseNote } from "../../src/backup/names.ts";
import { openPlace } from "../../src/backup/place.ts";
import { listPlace, verifyPlace } from "../../src/backup/report.ts";
import { Survey } from "../../src/backup/survey.ts";
import { startBucket } from "../support/bucket.ts";
import { runForJson, type ServiceProcess, spawnService, startCommand } from "../support/command.ts";
import { isLong } from "../support/long.ts";
import { openStoreAt } from "../support/database.ts";
import { makeWorkplace } from "../support/folder.ts";
import { defaults, limits } from "../support/limits.ts";
import { readMetric, sendPlant, TEST_TOKEN } from "../support/service.ts";
import { alter, makeStore } from "../support/stores.ts";
import { until } from "../support/until.ts";

const EVERY_MS = 1_000;
let bucket: Awaited<ReturnType<typeof startBucket>>;
beforeAll(async () => {
  bucket = await startBucket();
  Object.assign(process.env, bucket.env);
});
afterAll(async () => {
  for (const name of Object.keys(bucket.env)) delete process.env[name];
  await bucket[Symbol.asyncDispose]();
});

const count = ({ started }: ServiceProcess, metric: string): Promise<number> =>
  readMetric(started, `plantstore_${metric}`);

/** In sizes of the store, what was sent and received meanwhile. */
async function measure(storeBytes: number, meanwhile: () => Promise<unknown>) {
  const { bytesUp, bytesDown } = bucket;
  bucket.seen.length = 0;
  await meanwhile();
  const up = (bucket.bytesUp - bytesUp) / storeBytes;
  const down = (bucket.bytesDown - bytesDown) / storeBytes;
  const puts = bucket.seen.filter(({ method }) => method === "PUT").length;
  return { up, down, puts };
}

/** How far the search for rot in the idle store's folder is, by the note. */
async function readChecked() {
  const place = await openPlace(`${bucket.url}/idle`, tmpdir());
  try {
    const note = (await place.list()).find(({ name }) => name.endsWith(".writer"));
    return parseNote(await place.readNote(note?.name ?? "")).checked;
  } finally {
    place.close();
  }
}

test("an idle store sends nothing for six intervals, and a restart reads no piece", async () => {
  using at = makeWorkplace();
  makeStore(at.store, 20_000, "a plant with a name of some length");
  const storeBytes = statSync(at.store).size;
  const env = {
    ...at.env,
    ...bucket.env,
    PLANTSTORE_TOKEN: TEST_TOKEN,
    PLANTSTORE_BACKUP_TO: `${bucket.url}/idle`,
    PLANTSTORE_BACKUP_EVERY: `${EVERY_MS / 1_000}s`,
    ...limits({ backupBucketSeconds: 0.1 }),
  };
  const start = async () => {
    const service = await spawnService(env);
    await until("nothing is due", async () => (await count(service, "backup_age_seconds")) >= 0);
    return service;
  };
  {
    await using service = await start();
    expect((await sendPlant(service.started.url, { id: -1n, name: "n", tag: null })).status).toBe(
      200,
    );
    await until(
      "it is proven",
      async () => (await count(service, 'backup_proofs_total{result="proven"}')) > 0,
    );
    await until(
      "it is in the bucket",
      async () => (await count(service, "backup_lag_changes")) === 0,
    );
    const idle = await measure(storeBytes, () => Bun.sleep(6 * EVERY_MS));
    expect([idle.up, idle.puts]).toEqual([0, 0]);
    expect(idle.down).toBeLessThan(0.1);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
  }
  const checked = await readChecked();
  expect(checked?.share).toBeGreaterThan(0);
  const restart = await measure(storeBytes, async () => {
    await using service = await start();
    expect((await sendPlant(service.started.url, { id: -2n, name: "n", tag: null })).status).toBe(
      200,
    );
    await until(
      "it is in the bucket",
      async () => (await count(service, "backup_lag_changes")) === 0,
    );
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
  });
  expect(restart.up).toBeLessThan(0.1);
  expect(restart.down).toBeLessThan(0.1);
  // The search for rot continues, and does not begin again.
  expect((await readChecked())?.share).toBeGreaterThanOrEqual(checked?.share ?? 1);
});

test("an object that is lost between listing and reading is not looked for again and again", async () => {
  using at = makeWorkplace();
  const to = `${bucket.url}/lost`;
  await using backed = await openBacked(at.store, to);
  await backed.copy();
  await backed.store.createPlant({ id: 1n, name: "n", tag: undefined });
  await backed.append();
  let lost = 0;
  bucket.fault = ({ method, path }) =>
    method === "GET" && path.includes(".changes.zst") && lost++ === 0
      ? { status: 404, code: "NoSuchKey" }
      : undefined;
  const env = { ...bucket.env, DATABASE_URL: `sqlite:${at.file("restored.db")}` };
  expect(await runForJson(["restore", to], env)).toMatchObject({ plants: 1, missing: [] });
  expect(lost).toBeGreaterThan(1);
  bucket.fault = () => undefined;
});

test("a restore to a time reads no segment after it, and of those before it only what it replays", async () => {
  using at = makeWorkplace();
  const to = `${bucket.url}/timed`;
  await using backed = await openBacked(at.store, to);
  await backed.copy();
  const START_MS = Date.UTC(2035, 0, 1);
  const HOUR_MS = 3_600_000;
  const SEGMENTS = 12;
  for (let nth = 0; nth < SEGMENTS; nth++) {
    for (const part of [0, 1]) {
      const id = BigInt(2 * nth + part);
      await backed.store.createPlant({ id, name: "n", tag: undefined });
      const atMs = START_MS + (nth + part / 2) * HOUR_MS;
      alter(at.store, `UPDATE changes SET at_ms = ${atMs} ORDER BY last DESC LIMIT 1`);
    }
    await backed.append();
    if (nth === 5) await backed.copy();
  }
  const restore = async (hours: number) => {
    bucket.seen.length = 0;
    const time = new Date(START_MS + hours * HOUR_MS).toISOString();
    const env = { ...bucket.env, DATABASE_URL: `sqlite:${at.file(`${hours}.db`)}` };
    const restored = await runForJson(["restore", to, "--at", time], env);
    const read = bucket.seen.filter(({ path }) => path.includes(".changes.zst"));
    return { ...(restored as object), read: new Set(read.map(({ path }) => path)).size };
  };
  // The segment with changes on both sides of the time is among those that are replayed.
  expect(await restore(2.25)).toMatchObject({ plants: 5, missing: [], read: 3 });
  expect(await restore(8.25)).toMatchObject({ plants: 17, missing: [], read: 3 });
  // Between two segments, and at a change itself.
  expect(await restore(7.75)).toMatchObject({ plants: 16, missing: [], read: 2 });
  expect(await restore(8)).toMatchObject({ plants: 17, missing: [], read: 3 });
  expect(await restore(99)).toMatchObject({ plants: 24, missing: [], read: 6 });
});

test("backup verify has one copy at a time in its temporary folder", async () => {
  using at = makeWorkplace();
  const to = `${bucket.url}/verified`;
  await using backed = await openBacked(at.store, to);
  for (const id of [1n, 2n, 3n]) {
    await backed.store.createPlant({ id, name: "n", tag: undefined });
    await backed.copy();
  }
  await backed.append();
  const scratch = at.path;
  const local: number[] = [];
  bucket.fault = ({ path }) => {
    if (path.includes(".db.zst"))
      local.push(readdirSync(scratch).filter((name) => name.endsWith(".piece.tmp")).length);
    return undefined;
  };
  // While every piece is read; the restore after that keeps what it needs.
  using planned = spyOn(Survey.prototype, "plan");
  planned.mockImplementationOnce(function (this: Survey, target) {
    bucket.fault = () => undefined;
    return this.plan(target);
  });
  const task = { place: to, label: "plants", store: undefined, scratch } as const;
  expect(await verifyPlace(task)).toMatchObject({ plants: 3n, missing: [], damage: [] });
  // The packed one, and what it is unpacked to.
  expect([local.length, Math.max(...local)]).toEqual([3, 2]);
});

async function openBacked(store: string, to: string) {
  const opened = await openStoreAt(`sqlite:${store}`);
  const source = { from: store, to, label: labelOf(store), instance: "0123456789ab" };
  const appender = new Appender(source);
  const append = async () => (await appender.append()) as Reached;
  const copy = async () => {
    const { serial } = await append();
    const made = await backUp({ ...source, serial, diskFreeBytesMin: 0 });
    appender.cover(made);
    return made;
  };
  const close = async () => {
    appender.disconnect();
    await opened.close();
  };
  return { store: opened, source, append, copy, [Symbol.asyncDispose]: close };
}

const retention = { momentsMs: 86_400_000, days: 1 };

/** Above it a restore would hold the store, or all of its changes. */
const RESTORE_MB_MAX = 160;

/** What a command prints, its CPU time, and the most memory that it had. */
async function runWatched(args: readonly string[], database: string) {
  const command = startCommand([...args, "--json"], { DATABASE_URL: `sqlite:${database}` });
  let peakMb = 0;
  const look = async (): Promise<void> => {
    // It may have ended.
    const status = await readFile(`/proc/${command.pid}/status`, "utf8").catch(() => "");
    peakMb = Math.max(peakMb, Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1_024);
  };
  const watch = setInterval(() => void look(), 20);
  const { exitCode, stdout } = await command.finished;
  clearInterval(watch);
  expect(exitCode).toBe(0);
  return { report: JSON.parse(stdout) as unknown, cpuMs: command.cpuMs(), peakMb };
}

/** Of a small store, the starts of the commands take most of the time. */
test("a restore takes at most twice the CPU time of unpacking the copy and importing the changes, in bounded memory", async () => {
  using at = makeWorkplace();
  const [plants, changes] = isLong ? [1_000_000, 100_000] : [50_000, 5_000];
  makeStore(at.store, plants, "a plant with a name of some length");
  const to = at.file("backups");
  mkdirSync(to);
  const rows = Array.from({ length: changes }, (_, nth) => ({
    id: BigInt(plants + 1 + nth),
    name: `another plant ${nth}`,
    tag: undefined,
  }));
  {
    await using backed = await openBacked(at.store, to);
    await backed.copy();
    for (let nth = 0; nth < changes; nth += 1_000)
      await backed.store.createPlants(rows.slice(nth, nth + 1_000));
    await backed.append();
  }
  const copy = readdirSync(to).find((name) => name.endsWith(".db.zst")) ?? "";
  const lines = rows.map(({ id, name }) => `{"id":${id},"name":"${name}"}`);
  writeFileSync(at.file("changes.ndjson"), lines.join("\n"));
  const restored = await runWatched(["restore", to], at.file("restored.db"));
  expect(restored.report).toMatchObject({ plants: plants + changes, changes, missing: [] });
  // Only Linux tells how much memory another process has.
  if (process.platform === "linux") expect(restored.peakMb).toBeWithin(1, RESTORE_MB_MAX);
  if (!isLong) return;
  const plain = at.file("plain.db");
  const before = process.cpuUsage();
  writeFileSync(plain, Bun.zstdDecompressSync(readFileSync(`${to}/${copy}`)));
  const { user, system } = process.cpuUsage(before);
  const imported = await runWatched(["import", at.file("changes.ndjson")], plain);
  expect(restored.cpuMs).toBeLessThan(2 * ((user + system) / 1_000 + imported.cpuMs));
});

/** Prices are a list's, and quantities follow from the settings. */
test("the table of what a bucket costs follows from its formula", () => {
  const { backupMomentsDays: moments, backupStatesDays: states } = resolveConfig({}, {}).config;
  const [C, L, MONTH_DAYS] = [0.3, 0.01, 30];
  const stored = C * (moments + 1 + states) + moments * L;
  const sent = MONTH_DAYS * (C + L);
  const received = sent + stored;
  const appends = (MONTH_DAYS * 10 * 3_600) / 10;
  const dollars = [stored * 0.023, received * 0.09, 2 * appends * 5e-6, 3 * appends * 4e-7];
  const page = readFileSync(`${import.meta.dir}/../../docs/operations.md`, "utf8");
  const sum = dollars.reduce((total, price) => total + price).toFixed(2);
  const texts = [
    `C × (${moments + 1} + ${states}) + ${moments} × L`,
    ...[stored, sent, received].map((bytes) => `| ${bytes.toFixed(1)} GB |`),
    `| ${(2 * appends).toLocaleString("en")} |`,
    `| ${(3 * appends).toLocaleString("en")} |`,
    `at most ${(2 * MONTH_DAYS * 8_640).toLocaleString("en")} |`,
    ...dollars.map((price) => ` ${price.toFixed(2)} $`),
    `${stored.toFixed(1)} GB in the folder, or ${sum} $ a month`,
  ];
  expect(texts.filter((text) => !page.includes(text))).toEqual([]);
});

test("a copy of the demo data is packed to less than 0.4 of the store", async () => {
  using at = makeWorkplace();
  await using backed = await openBacked(at.store, `${bucket.url}/packed`);
  await backed.store.createPlants(createDemoPlants(5_000));
  const { bytes } = await backed.copy();
  using db = new Database(at.store, { readonly: true });
  const [[pages]] = db.query("PRAGMA page_count").values() as [[number]];
  expect(bytes).toBeLessThan(0.4 * pages * 4_096);
});

/** The test after this one has appends of real sizes. With 20 changes each, there are the most objects for a change. */
test("creates cost two writes for each append, and few objects after compaction", async () => {
  using at = makeWorkplace();
  const to = `${bucket.url}/hour`;
  await using backed = await openBacked(at.store, to);
  await backed.append();
  await backed.copy();
  const APPENDS = 100;
  const { puts } = await measure(1, async () => {
    for (let nth = 0; nth < APPENDS; nth++) {
      const plants = Array.from({ length: 20 }, (_, index) => ({
        id: BigInt(nth * 20 + index),
        name: `plant ${index}`,
        tag: undefined,
      }));
      await backed.store.createPlants(plants);
      await backed.append();
    }
  });
  expect(puts).toBeLessThanOrEqual(2 * APPENDS + 1);
  bucket.seen.length = 0;
  await prune({ ...backed.source, retention });
  // Copies are kept or removed by their names.
  expect(bucket.seen.filter(({ path }) => path.includes(".db.zst"))).toEqual([]);
  bucket.seen.length = 0;
  type Listed = { stores: [{ pieces: unknown[]; missing: unknown[] }] };
  const listed: unknown = await runForJson(["backup", "list", to], bucket.env);
  const [{ pieces, missing }] = (listed as Listed).stores;
  expect(missing).toEqual([]);
  expect(pieces.length).toBeLessThanOrEqual((3 * 20 * APPENDS) / 1_000);
  // The list of a bucket is one listing and the note.
  const read = bucket.seen.filter(({ path }) => !path.includes("list-type"));
  expect(read.map(({ path }) => path.replace(/.*\//, ""))).toEqual([
    expect.stringMatching(/\.writer$/),
  ]);
});

/** Only against a hang: the whole hour takes minutes of CPU time on a slow machine. */
const BUSY_MS_MAX = 1_800_000;

/** In the long tests the whole hour. Requests and objects are counted, so no clock is needed. */
test(
  "1,000 creates a second cost less than one PUT a second, with copies, and leave few objects",
  async () => {
    using at = makeWorkplace();
    const to = `${bucket.url}/busy`;
    await using backed = await openBacked(at.store, to);
    await backed.append();
    await backed.copy();
    const SECONDS = isLong ? 3_600 : 60;
    const names = createDemoPlants(1_000).map(({ name }) => name);
    const { backupBucketSeconds, backupEvery } = defaults;
    const copySeconds = (findDurationMs(backupEvery) ?? Number.NaN) / 1_000;
    bucket.seen.length = 0;
    for (let second = 1; second <= SECONDS; second++) {
      const plants = names.map((name, nth) => ({
        id: BigInt(second * 1_000 + nth),
        name: `${name} ${second}`,
        tag: undefined,
      }));
      await backed.store.createPlants(plants);
      if (second % backupBucketSeconds === 0) await backed.append();
      // As often as a copy can be due.
      if (second % copySeconds === 0 || second === SECONDS) {
        await backed.copy();
        await prune({ ...backed.source, retention });
      }
    }
    // The beginning and the end of an upload in parts cost as much as a part.
    const writes = bucket.seen.filter(({ method }) => method === "PUT" || method === "POST");
    expect(writes.length).toBeWithin((2 * SECONDS) / backupBucketSeconds, SECONDS);
    type Listed = { stores: [{ pieces: unknown[]; missing: unknown[] }] };
    const listed = await runForJson<Listed>(["backup", "list", to], bucket.env);
    const [{ pieces, missing }] = listed.stores;
    expect(missing).toEqual([]);
    expect(pieces.length).toBeLessThanOrEqual(3 * SECONDS);
  },
  BUSY_MS_MAX,
);

test("the list of thousands of pieces is pages of one listing, and the note", async () => {
  const PIECES = isLong ? 10_000 : 3_000;
  const owner = { label: "plants", store: "0123456789abcdef", timeline: 1 };
  const names = Array.from({ length: PIECES }, (_, nth) => {
    const serial = nth + 1;
    if (nth % 250 === 0) return nameCopy({ ...owner, serial }, nth, nth * 1_000, "0".repeat(16));
    const span = { fromMs: nth * 1_000, toMs: nth * 1_000 };
    return nameSegment({ ...owner, serial }, nth - 1, nth, span);
  });
  const timelines = [{ number: 1, id: owner.store, after: 0 }];
  const shipped = { timelines, change: PIECES - 1, isCovered: true, serial: PIECES + 1 };
  bucket.seed("long", [
    ...names.map((name) => [name, "never read"] as const),
    [nameNote(owner.store), JSON.stringify({ shipped })],
  ]);
  bucket.seen.length = 0;
  const listed: unknown = await runForJson(["backup", "list", `${bucket.url}/long`], bucket.env);
  expect(listed).toMatchObject({ stores: [{ missing: [], timeline: 1 }] });
  const [{ pieces, reachable }] = (
    listed as { stores: [{ pieces: unknown[]; reachable: unknown[] }] }
  ).stores;
  expect(pieces).toHaveLength(PIECES);
  expect([reachable.length, reachable.at(-1)]).toEqual([
    PIECES / 250,
    { from: PIECES - 250, to: PIECES - 1 },
  ]);
  const pages = bucket.seen.filter(({ path }) => path.includes("list-type"));
  // The note is an object too.
  expect([pages.length, bucket.seen.length]).toEqual([PIECES / 1_000 + 1, PIECES / 1_000 + 2]);

  // The machine's speed is no test: what is counted is how often a piece is looked at.
  let looks = 0;
  const know = Reflect.get(Survey.prototype, "know");
  using knowing = spyOn(Survey.prototype, "know");
  knowing.mockImplementation(function (this: Survey) {
    const known = know.call(this);
    for (const piece of [...known.copies, ...known.segments]) {
      const { timeline } = piece;
      Object.defineProperty(piece, "timeline", { get: () => (looks++, timeline) });
    }
    return known;
  });
  const place = `${bucket.url}/long`;
  const task = {
    place,
    label: "plants",
    store: undefined,
    scratch: tmpdir(),
  } as const;
  expect(await listPlace(task)).toMatchObject({ stores: [{ missing: [] }] });
  expect(knowing.mock.calls.length).toBeLessThan(10);
  expect(looks).toBeWithin(PIECES, 10 * PIECES);
});
