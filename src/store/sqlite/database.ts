/** A SQLite file: opening, schema, durability and errors. */

import { constants, Database, SQLiteError } from "bun:sqlite";
import {
  closeSync,
  existsSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readSync,
  realpathSync,
  statfsSync,
  statSync,
  writeSync,
} from "node:fs";
import { dirname, resolve } from "node:path";
import { syncFile, withFile } from "../../descriptor.ts";
import { TIME_NUMBER_MAX } from "../../domain/change.ts";
import { refuseNewerSchema, Refusal, StoreOpenError } from "../../domain/errors.ts";
import type { OnMigrate } from "../../domain/store.ts";
import type { Statement } from "../engine.ts";
import { findObstacle } from "./obstacle.ts";

/** SQLite keeps files with these suffixes beside a database, and would use any file with such a name. */
export const companions = ["-wal", "-shm", "-journal"] as const;

/** Marks the file as a plant store: "PLS1". We never write into a file without it. */
export const APPLICATION_ID = 0x504c5331;

/** Tells a break from the beginning of the journal, which the schema inserts with the entries `[]`. */
export const BREAK_ENTRIES = "[ ]";
export const IS_BEGINNING = "first > last AND entries = '[]'";

/** A block of one entry, in the trigger of a table that is not of plants. The numbers are as in `src/store/journal.ts`. */
const noteEntry = (entry: string): string => `INSERT INTO changes (last, first, at_ms, entries)
    SELECT next, next, now, ${entry} FROM (
      SELECT now, max(min(now * 1000, ${TIME_NUMBER_MAX}), (SELECT max(last) FROM changes) + 1) AS next
      FROM (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now))`;

const TOKEN_ENTRY = `json_array('t', json_object('hash', NEW.hash, 'prefix', NEW.prefix, 'name', NEW.name,
      'scopes', NEW.scopes, 'tags', NEW.tags, 'rate', NEW.rate, 'created_at_ms', NEW.created_at_ms,
      'expires_at_ms', NEW.expires_at_ms, 'revoked_at_ms', NEW.revoked_at_ms))`;

/** A webhook without its lease and the outcome of deliveries. */
const settingsOf = (row: "OLD" | "NEW"): string =>
  `json_set(json_remove(${row}.record, '$.holder', '$.waitMs'), '$.attempts', json('[]'), '$.failures', 0,
      '$.nextAttemptAtMs', 0)`;

const WEBHOOK_ENTRY = `json_array('w', NEW.name, ${settingsOf("NEW")})`;

/** The schema's migrations. A released one never changes: a later one fixes a mistake. */
export const migrations: readonly string[] = [
  // A journal block holds the entries `first` to `last`. A block without entries is a break.
  `
  CREATE TABLE plants (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    tag  TEXT
  ) STRICT;

  CREATE INDEX plants_tag ON plants (tag) WHERE tag IS NOT NULL;

  CREATE TABLE tokens (
    hash            TEXT PRIMARY KEY,
    prefix          TEXT NOT NULL,
    name            TEXT NOT NULL,
    scopes          TEXT NOT NULL,
    rate            TEXT,
    created_at_ms   INTEGER NOT NULL,
    expires_at_ms   INTEGER,
    last_used_at_ms INTEGER,
    revoked_at_ms   INTEGER
  ) STRICT, WITHOUT ROWID;

  CREATE UNIQUE INDEX tokens_name ON tokens (name) WHERE revoked_at_ms IS NULL;

  CREATE TABLE changes (
    last    INTEGER PRIMARY KEY,
    first   INTEGER NOT NULL,
    at_ms   INTEGER NOT NULL,
    entries TEXT NOT NULL
  ) STRICT;

  INSERT INTO changes (last, first, at_ms, entries)
    SELECT now, now + 1, now / 1000, '[]'
    FROM (SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now);

  CREATE TABLE webhooks (
    name    TEXT PRIMARY KEY,
    version TEXT NOT NULL,
    record  TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE probe (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    probed_at_ms INTEGER NOT NULL
  ) STRICT;
  `,
  // The first timeline is the identity of the store. Each restore adds one. A mark is a minute in which a service ran,
  // with the newest change at its end. The UPDATE is for a store that was made with a clock beyond TIME_NUMBER_MAX
  // (src/domain/change.ts).
  `
  CREATE TABLE timelines (
    number      INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    after       INTEGER NOT NULL,
    began_at_ms INTEGER NOT NULL
  ) STRICT;

  INSERT INTO timelines (number, id, after, began_at_ms)
    VALUES (1, lower(hex(randomblob(8))), 0, CAST(unixepoch('subsec') * 1000 AS INTEGER));

  CREATE TABLE journal_marks (
    number INTEGER PRIMARY KEY,
    change INTEGER NOT NULL
  ) STRICT;

  -- A JSON array; null for the whole store.
  ALTER TABLE tokens ADD COLUMN tags TEXT;

  -- A token that is made or revoked, and a webhook whose settings change, is a block of the journal too: a copy and the
  -- journal after it are the whole store. Readers of changes see plants only.
  CREATE TRIGGER token_created AFTER INSERT ON tokens BEGIN
    ${noteEntry(TOKEN_ENTRY)};
  END;

  CREATE TRIGGER token_revoked AFTER UPDATE OF revoked_at_ms ON tokens
    WHEN OLD.revoked_at_ms IS NULL AND NEW.revoked_at_ms IS NOT NULL BEGIN
    ${noteEntry(TOKEN_ENTRY)};
  END;

  CREATE TRIGGER webhook_created AFTER INSERT ON webhooks BEGIN
    ${noteEntry(WEBHOOK_ENTRY)};
  END;

  CREATE TRIGGER webhook_changed AFTER UPDATE OF record ON webhooks
    WHEN json_remove(${settingsOf("OLD")}, '$.cursor', '$.version') <>
      json_remove(${settingsOf("NEW")}, '$.cursor', '$.version') BEGIN
    ${noteEntry(WEBHOOK_ENTRY)};
  END;

  CREATE TRIGGER webhook_removed AFTER DELETE ON webhooks BEGIN
    ${noteEntry("json_array('w', OLD.name, NULL)")};
  END;

  CREATE TABLE jobs (
    name    TEXT PRIMARY KEY,
    version TEXT NOT NULL,
    record  TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;

  -- The time of the plant's newest change, which is the time of its journal block. Null since before this column.
  ALTER TABLE plants ADD COLUMN changed_at_ms INTEGER;

  UPDATE changes SET last = 4503599627370495, first = 4503599627370496
    WHERE last > 4503599627370495 AND (SELECT count(*) FROM changes) = 1;
  `,
];

/**
 * Takes the id of the timeline, a number to be above, the time, and the change at which it leaves the one before it;
 * null for the newest change.
 */
export const START_TIMELINE = `INSERT INTO timelines (number, id, after, began_at_ms)
  SELECT max($2, (SELECT max(number) FROM timelines)) + 1, $1,
    coalesce($4, (SELECT max(last) FROM changes)), $3`;

/** Older versions can corrupt a WAL-mode file with several connections: https://www.sqlite.org/wal.html#walresetbug. */
const SQLITE_VERSION_MIN = "3.51.3";

// The runtime brings its own SQLite, except on macOS, where the system's is too old.
if (process.platform === "darwin")
  for (const prefix of ["/opt/homebrew", "/usr/local"]) {
    const library = `${prefix}/opt/sqlite/lib/libsqlite3.dylib`;
    if (existsSync(library) && Database.setCustomSQLite(library)) break;
  }

/** `injected` is for tests. */
function requireSqliteVersion(injected?: string): void {
  using db = new Database(":memory:");
  const version = injected ?? String(db.query("SELECT sqlite_version()").values()[0]);
  if (Bun.semver.order(version, SQLITE_VERSION_MIN) >= 0) return;
  throw new StoreOpenError(
    `SQLite ${version} is too old: a bug in it can damage the store. plantstore needs ${SQLITE_VERSION_MIN} or newer` +
      (process.platform === "darwin" ? "; install it with: brew install sqlite" : "."),
  );
}

/** How long commands and a starting service wait for a lock that another process holds. */
const LOCK_WAIT_MS = 5_000;
/** The same for reader threads. Readers are locked out only while the file is opened or closed. */
const READER_LOCK_WAIT_MS = 100;

/** Opens the store for the service, or for a command that writes. Creates the file if it does not exist. */
export function openDatabase(path: string, onMigrate?: OnMigrate, version?: string): Database {
  requireSqliteVersion(version);
  try {
    makeDirectoryDurably(dirname(resolve(path)));
    refuseLoneLog(path);
    // Mode 0600: the file holds token hashes, and SQLite creates the WAL with the same mode. Only a new file is opened
    // here: closing any descriptor of a file drops all POSIX locks that this process holds on it.
    closeSync(openSync(path, "wx", 0o600));
  } catch (error) {
    if (error instanceof StoreOpenError) throw error;
    const { code, syscall } = error as NodeJS.ErrnoException;
    if (code !== "EEXIST" || syscall !== "open") throw failToOpen(path, error);
  }
  // SQLite would open a file that it cannot write, and every write would fail.
  if (findStoreObstacle(path) !== undefined) throw failToOpen(path);
  return openFile(path, true, onMigrate);
}

/** SQLite would delete a WAL without its file, and the plants in it. The WAL first: another process may be creating both. */
function refuseLoneLog(path: string): void {
  const log = logOf(path);
  if (fileBytesOf(log) > 0 && fileBytesOf(path) === 0)
    throw new StoreOpenError(
      `${path} is missing or empty, but ${log} has changes of it. Put the file back; to begin with an empty store, move the WAL away.`,
    );
}

/** A system error begins with its code and ends with its call: `ENOSPC: no space left on device, mkdir 'x'`. */
function failToOpen(path: string, cause?: unknown): StoreOpenError {
  const message = (cause as Error | undefined)?.message.replace(/^E[A-Z0-9]+: ([^,]+), .*$/s, "$1");
  const why = findStoreObstacle(path) ?? message;
  return new StoreOpenError(`${path} cannot be opened: ${why}.`, { cause });
}

/** In WAL mode a process needs the folder too, and the files that another process left there. */
function findStoreObstacle(path: string): string | undefined {
  const file = followLink(path);
  return ["", "-wal", "-shm"].map((suffix) => findObstacle(file + suffix)).find((found) => found);
}

/** An empty file, or one whose setup failed because the disk was full. */
export const isBlank = (db: Database): boolean =>
  db.query("SELECT 1 FROM sqlite_schema LIMIT 1").get() === null &&
  readPragma(db, "application_id") === 0;

/** Reopens the store while clients are being served: creates nothing, and waits for no lock. */
export const reopenDatabase = (path: string): Database => openFile(path, false);

/** Opens the store on another thread, to read. The writer has opened it already. */
export function openReadOnly(path: string): Database {
  try {
    const db = new Database(path, { readonly: true, safeIntegers: true });
    db.run(`PRAGMA busy_timeout = ${READER_LOCK_WAIT_MS}`);
    return db;
  } catch (error) {
    throw failToOpen(path, error);
  }
}

function openFile(path: string, isFirst: boolean, onMigrate?: OnMigrate): Database {
  let db: Database | undefined;
  try {
    db = new Database(path, { create: false, readwrite: true, safeIntegers: true });
    if (isFirst) db.run(`PRAGMA busy_timeout = ${LOCK_WAIT_MS}`);
    // Before WAL mode is set: a file that is refused stays as it is.
    if (!(isFirst && isBlank(db))) getSchemaVersion(db, path);
    switchToWal(db, isFirst ? LOCK_WAIT_MS : 0);
    setUp(db, path, onMigrate);
    return db;
  } catch (error) {
    if (db !== undefined && !isFirst) keepLog(db);
    db?.close();
    if (isLocked(error)) throw new StoreLockedError(path);
    if (!(error instanceof SQLiteError)) throw error;
    if (isForbidden(error)) throw failToOpen(path, error);
    const free = hasCode(error, /^SQLITE_(FULL|IOERR)/) ? findDiskFree(path) : undefined;
    const advice =
      (free ?? INDEX_BYTES) < INDEX_BYTES
        ? ` Its disk is full: ${free} bytes are free, and SQLite needs ${INDEX_BYTES} to open it.`
        : "";
    const message = `${path} cannot be opened: ${error.message}.${advice}`;
    throw new StoreOpenError(message, { cause: error });
  }
}

/** The size of the WAL index (-shm), which the first process that opens the store creates. */
const INDEX_BYTES = 32_768;

function setUp(db: Database, path: string, onMigrate?: OnMigrate): void {
  // WAL with FULL is one sync per commit. On macOS, fsync does not flush the drive's cache; fullfsync does.
  db.run("PRAGMA synchronous = FULL");
  db.run("PRAGMA fullfsync = ON");
  db.run("PRAGMA checkpoint_fullfsync = ON");
  db.run("PRAGMA trusted_schema = OFF");
  // SQLite's default is 1,000 pages, but every random id touches another page. Above 8,000 a checkpoint takes too long.
  db.run("PRAGMA wal_autocheckpoint = 8000");
  // SQLite's default is 2 MB. The kernel caches the pages too, and more gains little even for random ids.
  db.run("PRAGMA cache_size = -1000");
  db.run("PRAGMA journal_size_limit = 67108864");
  migrate(db, path, onMigrate);
  // The writer retries, because it has a deadline.
  db.run("PRAGMA busy_timeout = 0");
}

/** SQLite fails at once, whatever its busy timeout, if two processes switch a new file at the same time. */
function switchToWal(db: Database, waitMs: number): void {
  const deadline = performance.now() + waitMs;
  for (;;)
    try {
      db.run("PRAGMA journal_mode = WAL");
      return;
    } catch (error) {
      if (!isLocked(error) || performance.now() >= deadline) throw error;
      Bun.sleepSync(5);
    }
}

function migrate(db: Database, path: string, onMigrate?: OnMigrate): void {
  if (readPragma(db, "user_version") === migrations.length) return;
  const migrateAll = db.transaction(() => {
    const version = readPragma(db, "user_version");
    refuseNewerSchema(version, migrations.length, path);
    if (version > 0) onMigrate?.({ location: path, from: version, to: migrations.length });
    for (const step of migrations.slice(version)) db.run(step);
    db.run(`PRAGMA application_id = ${APPLICATION_ID}`);
    db.run(`PRAGMA user_version = ${migrations.length}`);
  });
  migrateAll.immediate();
}

function readPragma(db: Database, name: "application_id" | "user_version"): number {
  const row = db.query(`PRAGMA ${name}`).get() as Record<string, bigint>;
  return Number(row[name]);
}

/** For a command, while the service may be running. Changes nothing. Throws StoreOpenErrors. */
export function readStore<Result>(
  path: string,
  read: (db: Database) => Result,
  version?: string,
): Result {
  requireSqliteVersion(version);
  const found = find(path);
  if (found === undefined) throw new StoreOpenError(`${path} does not exist.`);
  if (!found.isFile()) throw new StoreOpenError(`${path} is not a file.`);
  try {
    using db = openToRead(path);
    return read(db);
  } catch (error) {
    if (isLocked(error)) throw new StoreLockedError(path);
    if (!(error instanceof SQLiteError)) throw error;
    const obstacle = isForbidden(error) ? findStoreObstacle(path) : undefined;
    const advice = isForbidden(error) ? " Run this as the user that the service runs as." : "";
    const message = `${path} cannot be read: ${obstacle ?? error.message}.${advice}`;
    throw new StoreOpenError(message, { cause: error });
  }
}

export const adviseOnTemporaryFiles = (folder: string): string =>
  `Temporary files are in ${folder}: make room there, or name another folder with TMPDIR.`;

// SQLite creates -wal and -shm if they are missing. Only a read-write connection removes them on close, but it would
// also checkpoint a WAL that has content.
function openToRead(path: string): Database {
  const hasLog = fileBytesOf(logOf(path)) > 0;
  const db = new Database(path, {
    ...(hasLog ? { readonly: true } : { readwrite: true, create: false }),
    safeIntegers: true,
  });
  db.run(`PRAGMA busy_timeout = ${LOCK_WAIT_MS}`);
  db.run("PRAGMA trusted_schema = OFF");
  // For the copies that are written through this connection; see setUp.
  db.run("PRAGMA fullfsync = ON");
  return db;
}

/** Throws a StoreOpenError if the file is not a plant store, or has a schema that we do not know. */
export function getSchemaVersion(db: Database, path: string): number {
  if (readPragma(db, "application_id") !== APPLICATION_ID)
    throw new StoreOpenError(
      `${path} is not a plant store of version 1.0 or newer. It was left alone.`,
    );
  const version = readPragma(db, "user_version");
  refuseNewerSchema(version, migrations.length, path);
  return version;
}

export function findDamage(db: Database, faultsMax: number): string[] {
  const faults: string[] = [];
  try {
    const found = db.query<{ integrity_check: string }, []>(`PRAGMA integrity_check(${faultsMax})`);
    for (const { integrity_check: lines } of found.iterate())
      faults.push(...lines.split("\n").filter((line) => line !== "ok" && !line.startsWith("***")));
  } catch (error) {
    // With enough damage the check itself throws, after it has reported some faults.
    if (faults.length === 0) throw error;
  }
  return faults;
}

const find = (path: string) => statSync(path, { throwIfNoEntry: false });

/** SQLite keeps its other files beside the file, not beside a symbolic link to it. */
function followLink(path: string): string {
  try {
    return lstatSync(path).isSymbolicLink() ? realpathSync(path) : path;
  } catch {
    return path;
  }
}

export const logOf = (path: string): string => `${followLink(path)}-wal`;

export function findDiskFree(path: string): number | undefined {
  try {
    const { bavail, bsize } = statfsSync(dirname(resolve(followLink(path))));
    return bavail * bsize;
  } catch {
    return undefined;
  }
}

export const runOn = (db: Database, [sql, ...values]: Statement): unknown[] =>
  // SQLite numbers $ parameters in order of appearance, ? parameters by their number.
  db.query<unknown, typeof values>(sql.replaceAll("$", "?")).all(...values);

export const fileBytesOf = (path: string): number => find(path)?.size ?? 0;

/** For metrics. */
export const measureFiles = (path: string) => ({
  diskFreeBytes: findDiskFree(path),
  storeBytes: fileBytesOf(path),
  logBytes: fileBytesOf(logOf(path)),
});

/**
 * After a crash or a failed fsync, the WAL may have a plant whose pages are only in the kernel's cache. Its create was
 * never acknowledged. But a client that reads it, or retries and gets "replayed", would take it for stored.
 */
export interface Durability {
  /** Everything readable is synced: plants may be answered. */
  readonly reads: boolean;
  /** The WAL is empty too: one that failed to sync must not grow. */
  readonly writes: boolean;
}

/** Checkpoints the WAL into the main file, syncs it, and truncates the WAL, as far as readers allow. */
export function makeDurable(db: Database): Durability {
  type Counts = Record<"busy" | "log" | "checkpointed", bigint>;
  const found = db.query("PRAGMA wal_checkpoint(TRUNCATE)").get();
  const { busy, log, checkpointed } = found as Counts;
  const writes = busy === 0n;
  // The counts are -1 if another process is checkpointing.
  return { writes, reads: writes || (log >= 0n && log === checkpointed) };
}

/**
 * Makes the WAL durable on a disk too full for a checkpoint. A sync alone proves nothing: after an earlier failure the
 * kernel may have marked the pages clean. So every page is rewritten in place, which needs no new disk block. The
 * transaction keeps other processes from writing to the WAL meanwhile.
 */
export const rewriteLog = (db: Database, path: string): void =>
  db
    .transaction(() =>
      withFile(logOf(path), "r+", (log) => {
        const bytes = new Uint8Array(1_048_576);
        for (let at = 0, length = 0; ; at += length) {
          length = readSync(log, bytes, 0, bytes.length, at);
          if (length === 0) break;
          for (let written = 0; written < length;)
            written += writeSync(log, bytes, written, length - written, at + written);
        }
        fsyncSync(log);
      }),
    )
    .immediate();

export const movedError = (file: string): StoreOpenError =>
  new StoreOpenError(`${file} was moved or removed while it was in use. Put it back.`);

/** Returns a check that throws once the file is moved or removed: writes would go to an unlinked file. */
export function watchFile(path: string): () => void {
  const before = find(path);
  return () => {
    const now = find(path);
    if (before === undefined || now?.ino !== before.ino || now.dev !== before.dev)
      throw movedError(path);
  };
}

/** Closing this connection will not remove the WAL, even if no other process or thread has the file open. */
export const keepLog = (db: Database): unknown =>
  db.fileControl(constants.SQLITE_FCNTL_PERSIST_WAL, 1);

/** SQLite syncs the folder of its files, but not the folders above it that we create. */
export function makeDirectoryDurably(path: string): void {
  const topmost = mkdirSync(path, { recursive: true, mode: 0o700 });
  if (topmost === undefined) return;
  for (let folder = path; folder.startsWith(topmost); folder = dirname(folder))
    syncFile(dirname(folder));
}

export class StoreLockedError extends StoreOpenError {
  constructor(path: string) {
    super(`${path} is in use: another process kept it locked for too long.`);
  }
}

/** PROTOCOL: SQLite has tried for 10 seconds, whatever its busy timeout, while another process creates the WAL index. */
export const isLocked = (error: unknown): boolean =>
  error instanceof StoreLockedError || hasCode(error, /^SQLITE_(BUSY|LOCKED|PROTOCOL)/);

/** The kernel may drop the pages and report success the next time, so another sync of this WAL proves nothing. */
export const isSyncFailure = (error: unknown): boolean =>
  hasCode(error, /^SQLITE_IOERR_(DIR_)?FSYNC/);

/** In WAL mode even a reader needs write permission on the folder, if no process has the file open. */
const isForbidden = (error: unknown): boolean => hasCode(error, /^SQLITE_(READONLY|CANTOPEN|PERM)/);

/** The system failed, which says nothing about the file's content. */
export const isOfEnvironment = (error: unknown): boolean =>
  isForbidden(error) || hasCode(error, /^SQLITE_(FULL|IOERR|NOMEM)/);

const UNAVAILABLE = /^SQLITE_(FULL|IOERR|READONLY|CANTOPEN|CORRUPT|NOTADB|NOMEM)/;

/** The error for the client. Errors that neither the disk nor a lock caused stay as they are. */
export function translate(error: unknown): Error {
  if (!(error instanceof Error)) return new Error("thrown by SQLite", { cause: error });
  if (isLocked(error)) return new Refusal("store_busy", undefined, error);
  // A system call failed, for lack of a permission or a descriptor.
  const isOfSystem = (error as NodeJS.ErrnoException).syscall !== undefined;
  const isUnavailable =
    error instanceof StoreOpenError || isOfSystem || hasCode(error, UNAVAILABLE);
  return isUnavailable ? new Refusal("store_unavailable", undefined, error) : error;
}

/** Extended codes begin with the primary one: SQLITE_IOERR_WRITE is a SQLITE_IOERR. */
export const hasCode = (error: unknown, codes: RegExp): boolean =>
  error instanceof SQLiteError && codes.test(error.code ?? "");
