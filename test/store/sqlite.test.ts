/** The SQLite engine alone: its file, its schema, its threads and its neighbours. */

import { Database } from "bun:sqlite";
import { describe, expect, spyOn, test } from "bun:test";
import {
  existsSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { type Config, resolveConfig } from "../../src/config.ts";
import { createCounter } from "../../src/store/counter.ts";
import { mintToken, readTokens, toRecord } from "../../src/auth/token.ts";
import type { CountPage } from "../../src/domain/page.ts";
import { formatStoredPlants, type Plant } from "../../src/domain/plant.ts";
import type { Store } from "../../src/domain/store.ts";
import { Refusal, StoreOpenError } from "../../src/domain/errors.ts";
import { runOnThread } from "../../src/backup/thread.ts";
import {
  APPLICATION_ID,
  getSchemaVersion,
  isLocked,
  migrations,
  openDatabase,
  openReadOnly,
  readStore,
} from "../../src/store/sqlite/database.ts";
import { openAlone } from "../../src/store/sqlite/engine.ts";
import { decodeGroup, encodeGroup, startStoreThreads } from "../../src/store/sqlite/thread.ts";
import type { Create } from "../../src/domain/write.ts";
import { createCaller, onMessage } from "../../src/thread.ts";
import {
  CHECK_MS,
  isCreates,
  SqliteWriter,
  toCreates,
  toParts,
  type Write,
} from "../../src/store/sqlite/writer.ts";
import { runCommand } from "../support/command.ts";
import { reasonOf, rejectionOf } from "../support/expect.ts";
import { makeTemporaryFolder, makeWorkplace } from "../support/folder.ts";
import { runSync } from "../support/processes.ts";
import { makeJob } from "../support/job.ts";
import { send, startService } from "../support/service.ts";
import { changesIn, everything } from "../support/plants.ts";
import {
  alter,
  makeCrashedStore,
  makeStore,
  readFolder,
  readMainFile,
  readPlants,
} from "../support/stores.ts";
import { until } from "../support/until.ts";

const { config } = resolveConfig({}, {});
const plant = { id: 1n, name: "a", tag: undefined };

/** Closed at the end of the test, if not before. */
function openStore(path: string, limits: Partial<Config> = {}) {
  const store = openAlone(path, { ...config, countSecondsMax: 60, ...limits });
  return Object.assign(store, { [Symbol.asyncDispose]: () => store.close() });
}

test("a write whose wait for a lock ends past its deadline is refused, although the lock is free by then", () => {
  using folder = makeTemporaryFolder();
  const path = `${folder.path}/plants.db`;
  const writer = new SqliteWriter(path, config);
  using other = new Database(path);
  other.run("BEGIN IMMEDIATE");
  let nowMs = 0;
  using clock = spyOn(performance, "now").mockImplementation(() => nowMs);
  using sleep = spyOn(Bun, "sleepSync").mockImplementation(() => {
    other.run("ROLLBACK");
    nowMs = 100;
  });
  const write = { kind: "create", id: 1n, plant } as const;
  expect(reasonOf(() => writer.commit([write], 100))).toBe("store_busy");
  writer.close();
  expect(readPlants(path)).toEqual([]);
  expect([clock.mock.calls.length > 0, sleep.mock.calls.length]).toEqual([true, 1]);
});

test("groups whose deadline passes once the lock is held are dropped, each alone", () => {
  using folder = makeTemporaryFolder();
  const path = `${folder.path}/plants.db`;
  const writer = new SqliteWriter(path, config);
  const groups = [50, 200].map((deadlineMs) => ({
    parts: toParts([create(BigInt(deadlineMs))]),
    deadlineMs,
  }));
  using other = new Database(path);
  const isHeld = (): boolean => {
    try {
      other.run("BEGIN IMMEDIATE; ROLLBACK");
      return false;
    } catch (error) {
      return isLocked(error);
    }
  };
  {
    // The file, the WAL and the free space are looked at first, which may take long.
    let looks = 0;
    const held: boolean[] = [];
    using clock = spyOn(performance, "now").mockImplementation(() => {
      held.push(isHeld());
      return looks++ === 0 ? 0 : 100;
    });
    expect(writer.commitAll(groups)).toEqual([undefined, ["created"]]);
    looks = 0;
    expect(reasonOf(() => writer.commitAll(groups.slice(0, 1)))).toBe("store_busy");
    expect(clock).toHaveBeenCalled();
    // Before it is held, another service may still write.
    expect(held.slice(0, 2)).toEqual([true, true]);
  }
  writer.close();
  expect(readPlants(path).map(({ id }) => id)).toEqual([200n]);
});

test("a job that is taken over while its write waits for the lock stores nothing", async () => {
  using at = makeWorkplace();
  await using store = openStore(at.store);
  await store.putJob(makeJob("mine/1"), undefined);
  using other = new Database(at.store);
  other.run("BEGIN IMMEDIATE");
  other.run("UPDATE jobs SET version = 'theirs/0'");
  using sleep = spyOn(Bun, "sleepSync").mockImplementation(() => other.run("COMMIT"));
  const writer = { batch: "b", lease: { run: "mine" } };
  expect(await rejectionOf(store.createPlant(plant, writer))).toMatchObject({
    reason: "job_stopped",
  });
  expect([readPlants(at.store), sleep.mock.calls.length]).toEqual([[], 1]);
});

describe("opening a store", () => {
  test("makes the folder and the file once, readable by the owner alone", async () => {
    using folder = makeTemporaryFolder();
    const path = `${folder.path}/new/folder/plants.db`;
    for (const outcome of ["created", "replayed"] as const) {
      await using store = openStore(path);
      expect(await store.createPlant(plant)).toBe(outcome);
    }
    expect(statSync(`${folder.path}/new`).mode & 0o777).toBe(0o700);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    using db = new Database(path);
    const ask = (statement: string): unknown =>
      Object.values(db.query(statement).get() as object)[0];
    expect(ask("SELECT sql FROM sqlite_schema WHERE name = 'plants'")).toMatch(
      /id\s+INTEGER PRIMARY KEY[^]*STRICT$/,
    );
    expect(ask("PRAGMA journal_mode")).toBe("wal");
    expect(ask("PRAGMA user_version")).toBe(migrations.length);
    expect(ask("PRAGMA application_id")).toBe(APPLICATION_ID);
  });

  test.each<[what: string, (path: string) => void, says: string]>([
    [
      "of a newer schema",
      (path) => {
        makeStore(path, 1);
        alter(path, "PRAGMA user_version = 999");
      },
      `has schema 999, and this version of plantstore knows schemas up to ${migrations.length}`,
    ],
    [
      "of a newer schema that is not in WAL mode",
      (path) => {
        makeStore(path, 1);
        alter(path, "PRAGMA user_version = 999", "PRAGMA journal_mode = DELETE");
      },
      "has schema 999",
    ],
    ["that is no store", (path) => alter(path, "CREATE TABLE theirs (x)"), "not a plant store"],
    ["that is no database", (path) => writeFileSync(path, "text".repeat(999)), "not a database"],
  ])("refuses a file %s without touching it", (_what, make, says) => {
    using at = makeWorkplace();
    make(at.store);
    const before = readFolder(at.path);
    expect(() => openStore(at.store)).toThrow(StoreOpenError);
    expect(() => openStore(at.store)).toThrow(says);
    expect(readFolder(at.path)).toEqual(before);
  });

  test("needs SQLite 3.51.3", () => {
    using folder = makeTemporaryFolder();
    const path = `${folder.path}/data/plants.db`;
    const opens = [
      (version: string) => openDatabase(path, undefined, version).close(),
      (version: string) => readStore(path, (db) => getSchemaVersion(db, path), version),
    ];
    for (const version of ["3.9.2", "3.43.2", "3.51.2"])
      for (const open of opens) {
        const says = `SQLite ${version} is too old: a bug in it can damage the store.`;
        expect(() => open(version)).toThrow(StoreOpenError);
        expect(() => open(version)).toThrow(says);
      }
    expect(existsSync(`${folder.path}/data`)).toBe(false);
    for (const version of ["3.51.3", "3.52.0", "3.100.0", "4.0.0"])
      for (const open of opens) open(version);
  });
});

describe("a plant that a crashed predecessor left in the log", () => {
  const reads: Record<string, (store: Store) => Promise<unknown>> = {
    findPlant: (store) => store.findPlant(1n),
    listPlants: (store) => store.listPlants(everything),
    "listPlants by tag": (store) => store.listPlants({ ...everything, tag: "t" }),
    "listPlants by name": (store) => store.listPlants({ ...everything, name: "a" }),
    listTags: (store) => store.listTags({ prefix: "", after: undefined, limit: 10 }),
    countPlants: (store) => store.countPlants(),
  };

  /** The predecessor has not synced its plant, and has it open still, so nothing has folded its log in. */
  async function leavePlant(path: string, before: (db: Database) => void = () => undefined) {
    await openStore(path).close();
    const predecessor = new Database(path);
    predecessor.run("PRAGMA synchronous = OFF");
    before(predecessor);
    predecessor.run("INSERT INTO plants (id, name, tag) VALUES (1, 'a', 't')");
    expect(readMainFile(path)).toEqual([]);
    return predecessor;
  }

  const logged = [{ id: 1n, name: "a", tag: "t" }];

  test.each(Object.keys(reads))("is in the main file before %s shows it", async (name) => {
    using at = makeWorkplace();
    using predecessor = await leavePlant(at.store);
    await using store = openStore(at.store);
    await reads[name]?.(store);
    expect(readMainFile(at.store)).toEqual(logged);
    expect(predecessor.query("PRAGMA synchronous").get()).toEqual({ synchronous: 0 });
  });

  test("is not shown while an older reader keeps it out of the main file", async () => {
    using at = makeWorkplace();
    using reader = new Database(at.store);
    using predecessor = await leavePlant(at.store, () => {
      reader.run("BEGIN");
      reader.query("SELECT count(*) FROM plants").get();
    });
    await using store = openStore(at.store, { queueSecondsMax: 0.5 });
    expect(await readTokens(store)).toEqual([]);
    const token = toRecord(mintToken(), { name: "n", scopes: ["plants:read"], createdAtMs: 5 });
    const writes = [() => store.createPlant(plant), () => store.createToken(token)];
    for (const attempt of [...Object.values(reads).map((read) => () => read(store)), ...writes])
      expect(await rejectionOf(attempt())).toMatchObject({ reason: "store_busy" });
    reader.run("COMMIT");
    expect(await store.createToken(token)).toBe(true);
    expect(await store.findPlant(1n)).toMatchObject({ name: "a" });
    expect(await rejectionOf(store.createPlant(plant))).toMatchObject({ reason: "id_taken" });
    predecessor.close();
  });

  test("is shown while a reader of the newest state, such as a backup, only delays writes", async () => {
    using at = makeWorkplace();
    using reader = new Database(at.store);
    using predecessor = await leavePlant(at.store);
    reader.run("BEGIN");
    reader.query("SELECT count(*) FROM plants").get();
    await using store = openStore(at.store, { queueSecondsMax: 1 });
    for (const read of Object.values(reads)) await read(store);
    expect(readMainFile(at.store)).toEqual(logged);
    expect(await rejectionOf(store.createPlant(plant))).toMatchObject({ reason: "store_busy" });
    reader.run("COMMIT");
    expect(await store.createPlant({ ...plant, id: 2n })).toBe("created");
    predecessor.close();
  });
});

test("of a token only its hash is in the file", async () => {
  using at = makeWorkplace();
  await using store = openStore(at.store);
  const token = mintToken();
  const made = toRecord(token, { name: "n", scopes: ["plants:read"], createdAtMs: 5 });
  expect(await store.createToken(made)).toBe(true);
  await store.close();
  const bytes = await Bun.file(at.store).bytes();
  expect(Buffer.from(bytes).includes(token.slice(0, 20))).toBe(false);
  expect(Buffer.from(bytes).includes(made.hash)).toBe(true);
});

test.each([
  ["is trimmed", { trimSeconds: 0.005, markSeconds: 0.01, changesDays: 2 / 1_440 }],
  ["is off", { trimSeconds: 0.005, markSeconds: 0.01, changesDays: 0 }],
])("a removed webhook is forgotten when the journal %s", async (_state, limits) => {
  using at = makeWorkplace();
  await using store = openStore(at.store, limits);
  const webhook = { name: "shop", version: "1", secret: "s" } as never;
  await store.createPlant(plant);
  await store.putWebhook(webhook, undefined);
  await store.putWebhook(undefined, webhook);
  await store.createPlant({ ...plant, id: 2n });
  const count = (db: Database) =>
    db.query(`SELECT count(*) FROM changes WHERE entries LIKE '["w"%'`).values()[0]?.[0] as bigint;
  await until("it is forgotten", () => readStore(at.store, count) === 0n);
});

test("GET /plants leaves nothing open that would keep the log from being folded in", async () => {
  await using service = await startService();
  for (const id of [1n, 2n, 3n]) await service.store.createPlant({ id, name: "n", tag: "t" });
  await send(service, "GET", "/plants?limit=1");
  await send(service, "GET", "/plants?limit=1&tag=t&order=desc");
  await send(service, "GET", "/plants?limit=1&name=n");
  using other = new Database(service.database.path);
  expect(other.query("PRAGMA wal_checkpoint(TRUNCATE)").get()).toMatchObject({ busy: 0 });
});

/** The next commit checks the WAL. A timer may fire a little early. */
const untilLogCheckIsDue = (): Promise<void> => Bun.sleep(CHECK_MS + 2);

test.each(["plants.db", "plants.db-wal", ""])(
  "a store from whose folder %j is taken away acknowledges nothing until it is back",
  async (name) => {
    using folder = makeTemporaryFolder();
    const data = `${folder.path}/data`;
    await using store = openStore(`${data}/plants.db`);
    await store.createPlant(plant);
    const expectUnavailable = async (): Promise<void> => {
      for (const write of [store.createPlant({ ...plant, id: 2n }), store.probe()])
        expect(await rejectionOf(write)).toMatchObject({ reason: "store_unavailable" });
    };
    const [taken, elsewhere] = [join(data, name), `${folder.path}/elsewhere`];
    renameSync(taken, elsewhere);
    await untilLogCheckIsDue();
    await expectUnavailable();
    // As without the permission to search a folder, which root always has: looking up the file fails.
    if (name === "") symlinkSync(data, data);
    else writeFileSync(taken, "");
    await expectUnavailable();
    if (name === "")
      expect(await rejectionOf(store.measureBytes())).toMatchObject({ code: "ELOOP" });
    rmSync(taken);
    renameSync(elsewhere, taken);
    expect(await store.createPlant({ ...plant, id: 2n })).toBe("created");
    expect(readPlants(`${data}/plants.db`).map(({ id }) => id)).toEqual([1n, 2n]);
  },
);

test("of a WAL that was removed, plants are in the file after a clean close", async () => {
  using at = makeWorkplace();
  {
    await using store = openStore(at.store);
    await store.createPlant(plant);
    rmSync(`${at.store}-wal`);
    await untilLogCheckIsDue();
    const refused = await rejectionOf(store.createPlant({ ...plant, id: 2n }));
    expect(refused).toMatchObject({ reason: "store_unavailable" });
    expect(await store.findPlant(1n)).toEqual(plant);
  }
  expect(readPlants(at.store).map(({ id }) => id)).toEqual([1n]);
});

test.each([
  ["missing", (path: string) => rmSync(path)],
  ["empty", (path: string) => writeFileSync(path, "")],
])("a WAL whose file is %s is refused and kept, until the file is back", async (_name, take) => {
  using folder = makeTemporaryFolder();
  const path = `${folder.path}/plants.db`;
  makeCrashedStore(path, 3);
  const [file, log] = [readFileSync(path), readFileSync(`${path}-wal`)];
  take(path);
  expect(() => openStore(path)).toThrow("Put the file back");
  expect(readFileSync(`${path}-wal`)).toEqual(log);
  writeFileSync(path, file);
  {
    await using store = openStore(path);
    expect(await store.findPlant(3n)).toMatchObject({ name: "logged" });
  }
  expect(readPlants(path)).toHaveLength(3);
});

test("of a store behind a symbolic link, the WAL beside the file is counted, and its removal noticed", async () => {
  using folder = makeTemporaryFolder();
  const path = `${folder.path}/behind/plants.db`;
  const link = `${folder.path}/plants.db`;
  makeStore(path, 1);
  symlinkSync(path, link);
  await using store = openStore(link);
  await store.createPlant({ ...plant, id: 2n });
  expect(await store.measureBytes()).toBe(statSync(path).size + statSync(`${path}-wal`).size);
  renameSync(`${path}-wal`, `${path}.taken`);
  await untilLogCheckIsDue();
  const refused = await rejectionOf(store.createPlant({ ...plant, id: 3n }));
  expect(refused).toMatchObject({ reason: "store_unavailable" });
  renameSync(`${path}.taken`, `${path}-wal`);
  expect(await store.createPlant({ ...plant, id: 3n })).toBe("created");
});

test("a command that reads a store through a symbolic link leaves its WAL as it is", async () => {
  using folder = makeTemporaryFolder();
  const path = `${folder.path}/behind/plants.db`;
  makeCrashedStore(path, 3);
  symlinkSync(path, `${folder.path}/plants.db`);
  const before = readFolder(dirname(path));
  const { exitCode } = await runCommand(["check"], {
    DATABASE_URL: `sqlite:${folder.path}/plants.db`,
  });
  expect(exitCode).toBe(0);
  expect(readFolder(dirname(path))).toMatchObject({
    "plants.db": before["plants.db"],
    "plants.db-wal": before["plants.db-wal"],
  });
});

const COUNT_MS_MAX = 60_000;

test("a page of plants is read at once: its answer holds memory before another request reads a page", async () => {
  using at = makeWorkplace();
  await using store = openStore(at.store);
  await store.createPlant(plant);
  const page = store.readPlants({ after: undefined, order: "asc", limit: 100 }, "json");
  expect(page).toEqual({ text: formatStoredPlants([plant]), next: undefined });
});

test("a count is shared only by those that ask with the same filter", async () => {
  const asked: (string | undefined)[] = [];
  const gate = Promise.withResolvers<void>();
  const count = createCounter(async ({ tag, name, q }): Promise<CountPage> => {
    asked.push(tag ?? name ?? q);
    await gate.promise;
    return { count: (tag ?? name ?? q ?? "").length, next: undefined };
  }, COUNT_MS_MAX);
  const filters = [{}, { tag: "a" }, { tag: "bb" }, { name: "ccc" }, { q: "dddd" }];
  const counts = [...filters, ...filters].map((filter) => count(filter));
  gate.resolve();
  const counted = (await Promise.all(counts)).map((one) => one.count);
  expect(counted).toEqual([0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
  expect(asked).toEqual([undefined, "a", "bb", "ccc", "dddd"]);
});

test("a count that took long is used again, unless it failed", async () => {
  let pieces = 0;
  const count = createCounter(async (): Promise<CountPage> => {
    const piece = ++pieces;
    if (piece === 2) throw new Refusal("store_unavailable");
    await Bun.sleep(120);
    return { count: 1, next: piece === 1 ? 1n : undefined };
  }, COUNT_MS_MAX);
  expect(await rejectionOf(count())).toMatchObject({ reason: "store_unavailable" });
  const counted = await count();
  expect(counted).toEqual({ count: 1, exact: true });
  expect(await count()).toBe(counted);
});

test.each(["ABORT", "FAIL"])("a plant that a trigger refuses fails alone: %s", async (action) => {
  using at = makeWorkplace();
  await using store = openStore(at.store);
  using db = new Database(at.store);
  db.run(`CREATE TRIGGER fail BEFORE INSERT ON plants WHEN NEW.id = 5
      BEGIN SELECT RAISE(${action}, 'refused'); END`);
  const plants = Array.from({ length: 16 }, (_, id) => ({ ...plant, id: BigInt(id) }));
  const outcomes = await store.createPlants(plants);
  const made = plants.filter((_, index) => outcomes[index] === "created").map(({ id }) => id);
  expect(made).toEqual(plants.map(({ id }) => id).filter((id) => id !== 5n));
  const changes = changesIn(
    await store.readChanges({ after: 0, limit: 100, id: undefined, types: undefined }),
  );
  expect(changes.map(({ id }) => id)).toEqual(made);
});

test("of plants that are created together, each has its outcome: made, there, taken, or over the quota", async () => {
  using at = makeWorkplace();
  await using store = openStore(at.store, { plantsMax: 24 });
  const many = (first: number, count: number): Plant[] =>
    Array.from({ length: count }, (_, index) => ({ ...plant, id: BigInt(first + index) }));
  const create = async (plants: readonly Plant[]): Promise<string[]> =>
    (await store.createPlants(plants)).map((outcome) =>
      outcome instanceof Refusal ? outcome.reason : outcome,
    );
  expect(await create(many(0, 20))).toEqual(many(0, 20).map(() => "created"));
  const mixed = [...many(20, 2), ...many(3, 1), { ...plant, id: 21n, name: "b" }];
  expect(await create(mixed)).toEqual(["created", "created", "replayed", "id_taken"]);
  expect(await create(many(22, 4))).toEqual(["created", "created", "store_full", "store_full"]);
  expect(readPlants(at.store).map(({ id }) => Number(id))).toEqual([...Array(24).keys()]);
});

test("a quota is exact for several processes on one file", async () => {
  using at = makeWorkplace();
  const plantsMax = 10;
  await using service = openStore(at.store, { plantsMax });
  await using other = openStore(at.store, { plantsMax });
  const ids = Array.from({ length: 30 }, (_, id) => BigInt(id));
  const outcomes = await Promise.all(
    ids.map((id) =>
      (id % 2n === 0n ? service : other)
        .createPlant({ ...plant, id })
        .catch((error: Refusal) => error.reason),
    ),
  );
  expect(outcomes.filter((outcome) => outcome === "created")).toHaveLength(plantsMax);
  expect(outcomes.filter((outcome) => outcome === "store_full")).toHaveLength(20);
  // An import that runs beside them.
  writeFileSync(at.file("more.csv"), "id,name\n100,a\n101,b\n");
  const env = { ...at.env, PLANTSTORE_PLANTS_MAX: String(plantsMax) };
  const runImport = () => runCommand(["import", at.file("more.csv")], env);
  expect(await runImport()).toMatchObject({ stdout: "created 0, replayed 0, refused 2\n" });
  const id = readPlants(at.store)[0]?.id as bigint;
  await other.removePlant(id, {});
  expect(await runImport()).toMatchObject({ stdout: "created 1, replayed 0, refused 1\n" });
  for (const store of [service, other])
    expect(await rejectionOf(store.createPlant({ ...plant, id: 200n }))).toMatchObject({
      reason: "store_full",
    });
  expect(readPlants(at.store)).toHaveLength(plantsMax);
});

const create = (id: bigint): Write => ({
  kind: "create",
  id,
  writer: { token: "till" },
  plant: { ...plant, id },
});

test("a batch arrives as it was sent: every kind of write, any id and text", () => {
  const [safe, max] = [2n ** 53n, 2n ** 63n];
  const writes = [0n, -7n, safe - 1n, safe + 1n, -safe - 1n, max - 1n, -max].flatMap(
    (id): Write[] => [
      create(id),
      {
        kind: "replace",
        id,
        writer: { token: "é", batch: "b" },
        plant: { id, name: '"\\\u2028🌱', tag: "" },
        condition: { noneMatch: ['"a"', '"b"'] },
      },
      {
        kind: "remove",
        id,
        writer: { token: "till" },
        plant: undefined,
        condition: { match: "any" },
      },
      { kind: "run", statements: [["SELECT $1", "x", 1, null]] },
    ],
  );
  const lasting = { token: "till", batch: "b", lease: { run: "r", token: "h" } };
  const shared = [1n, 2n, 3n].map((id): Create => ({
    kind: "create",
    id,
    writer: lasting,
    plant: { ...plant, id },
  }));
  writes.push(...shared, create(4n), { kind: "atomic", writes: shared });
  const sent = { deadlineMs: 1_767_225_605_000.25, isNoted: true };
  const { parts, ...head } = decodeGroup(encodeGroup(writes, sent.deadlineMs, sent.isNoted));
  expect(head).toEqual(sent);
  const arrived = parts.flatMap((part): readonly Write[] =>
    isCreates(part) ? toCreates(part) : part,
  );
  expect(arrived).toEqual(writes);
  expect(parts.filter(isCreates).map(({ count }) => count)).toEqual([1, 1, 1, 1, 1, 1, 1, 3, 1]);
});

test("a bigint, which JSON lacks, is no parameter of a statement", () => {
  // @ts-expect-error: it would fail every write of its group.
  const write: Write = { kind: "run", statements: [["SELECT $1", 1n]] };
  expect(() => encodeGroup([write], 0)).toThrow("BigInt");
});

test("the store thread drops only a batch that is late", async () => {
  using at = makeWorkplace();
  const threads = await startStoreThreads(at.store, config, 2);
  const [one, other] = threads.links.map(({ writes }) => createCaller(writes));
  const late = other?.ask(encodeGroup([create(1n)], performance.now() - 1)) as Promise<unknown>;
  expect(await rejectionOf(late)).toMatchObject({ reason: "store_busy" });
  const inTime = one?.ask(encodeGroup([create(2n), create(2n)], performance.now() + 60_000));
  expect(await inTime).toEqual(["created", "replayed"]);
  await threads.close();
  expect(readPlants(at.store).map(({ id }) => id)).toEqual([2n]);
});

test("a caller of a thread has one request in flight, so no answer reaches another's request", async () => {
  const { port1, port2 } = new MessageChannel();
  using caller = Object.assign(createCaller(port1), { [Symbol.dispose]: () => caller.close() });
  const received: unknown[] = [];
  onMessage(port2, (question) => received.push(question));
  const first = caller.ask("first");
  const second = caller.ask("second");
  await until("the first request arrives", () => received.length > 0);
  expect(received).toEqual(["first"]);
  port2.postMessage({ value: 1 });
  expect(await first).toBe(1);
  await until("the second request arrives", () => received.length > 1);
  expect(received).toEqual(["first", "second"]);
  port2.postMessage({ value: 2 });
  expect(await second).toBe(2);
});

test("writes fail once the store thread has ended", async () => {
  using at = makeWorkplace();
  const threads = await startStoreThreads(at.store, config, 2);
  const [one] = threads.links.map(({ writes }) => createCaller(writes));
  const ended = Promise.withResolvers<unknown>();
  threads.onEnd(ended.resolve);
  // What no HTTP thread sends.
  threads.links[1]?.writes.postMessage("not a batch");
  for (let count = 0; count < 2; count++) {
    const write = one?.ask(
      encodeGroup([create(1n)], performance.now() + 60_000),
    ) as Promise<unknown>;
    expect(await rejectionOf(write)).toMatchObject({ reason: "store_unavailable" });
  }
  expect(await ended.promise).toBeInstanceOf(Error);
  await threads.close();
});

// In a process of its own: in that of the tests, threads do not handle their errors.
test.each(["throws", "rejects"])("a thread that %s ends with its error", (fails) => {
  const program = join(import.meta.dir, "../support/failing-thread.ts");
  const { stdout } = runSync([process.execPath, program, fails]);
  const { stack, ...error } = JSON.parse(stdout.toString()) as Record<string, string>;
  expect(error).toEqual({
    name: "TypeError",
    message: "broken",
    code: "EXAMPLE",
    syscall: "listen",
  });
  expect(stack).toContain("failing-thread.ts");
});

test("a thread that is ended while it copies or reads leaves the store free for writers", async () => {
  using at = makeWorkplace();
  makeStore(at.store, 20_000, "n".repeat(1_000));
  const to = at.file("copy.db");
  writeFileSync(to, "");
  const ending = new AbortController();
  const copying = runOnThread(ending.signal, "copyStore", at.store, to);
  await until("the copy has begun", () => statSync(to).size > 0);
  ending.abort();
  await copying.catch(() => undefined);
  alter(at.store, "BEGIN IMMEDIATE");
  // What cannot lock the store for writing cannot be ended while it does.
  using reader = openReadOnly(at.store);
  expect(() => reader.run("DELETE FROM plants")).toThrow("readonly");
  const threads = await startStoreThreads(at.store, config, 1);
  const query = { limit: 1_000, order: "asc", words: ["zzz"] };
  for (let count = 0; count < 100; count++)
    threads.links[0]?.reads.postMessage({ kind: "count", query });
  await threads.close();
  alter(at.store, "BEGIN IMMEDIATE");
});
