/** A SQLite file: how it is opened, what its schema is, when it is durable, and what its errors mean. */

import { Database, SQLiteError } from "bun:sqlite";
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readSync,
  statfsSync,
  statSync,
  writeSync,
} from "node:fs";
import { dirname, resolve } from "node:path";
import {
  refuseNewerSchema,
  Refusal,
  StoreOpenError,
  UnreleasedStoreError,
} from "../../domain/errors.ts";
import type { OnMigrate } from "../../domain/store.ts";
import type { Statement } from "../sql-store.ts";

/** Marks the file as a plant store: "PLS1". We never write into a file without it. */
export const APPLICATION_ID = 0x504c5331;
/** "PLNT": a store of before the first release. */
const UNRELEASED_ID = 0x504c4e54;

/** The schema, step by step. A released step never changes: the next step repairs a mistake. */
export const migrations: readonly string[] = [
  // A block of the journal holds the entries from `first` to `last`. One without entries is a break in it.
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
];

/**
 * Before this version SQLite has a bug that can corrupt a file in WAL mode that several connections use
 * (https://www.sqlite.org/wal.html#walresetbug): the token commands beside the service do that.
 */
const SQLITE_VERSION_MIN = "3.51.3";

// The runtime brings its own SQLite, except on macOS, where the system's is too old.
if (process.platform === "darwin")
  for (const prefix of ["/opt/homebrew", "/usr/local"]) {
    const library = `${prefix}/opt/sqlite/lib/libsqlite3.dylib`;
    if (existsSync(library) && Database.setCustomSQLite(library)) break;
  }

function readSqliteVersion(): string {
  using db = new Database(":memory:");
  return (db.query("SELECT sqlite_version() AS version").get() as { version: string }).version;
}

function requireSqliteVersion(version: string): void {
  if (Bun.semver.order(version, SQLITE_VERSION_MIN) >= 0) return;
  throw new StoreOpenError(
    `SQLite ${version} is too old: a bug in it can damage the store. plantstore needs ${SQLITE_VERSION_MIN} or newer` +
      (process.platform === "darwin" ? "; install it with: brew install sqlite" : "."),
  );
}

/** How long commands and a starting service wait for a lock that another process holds. */
const LOCK_WAIT_MS = 5_000;
/** How long a reading thread of the service waits. Only opening or closing the file locks readers out. */
const READER_LOCK_WAIT_MS = 100;

/** Opens the store for the service, or for a command that writes. Creates the file if it does not exist. */
export function openDatabase(
  path: string,
  onMigrate?: OnMigrate,
  sqliteVersion = readSqliteVersion(),
): Database {
  requireSqliteVersion(sqliteVersion);
  makeDirectoryDurably(dirname(resolve(path)));
  createPrivateFile(path);
  return openFile(path, (db) => {
    db.run(`PRAGMA busy_timeout = ${LOCK_WAIT_MS}`);
    setUp(db, path, isBlank(db), onMigrate);
  });
}

/** A file without content. One that could not be set up, because the disk was full, is blank too. */
export const isBlank = (db: Database): boolean =>
  db.query("SELECT 1 FROM sqlite_schema LIMIT 1").get() === null &&
  readPragma(db, "application_id") === 0;

/** Opens the store again while clients are being served: creates nothing, and waits for no lock. */
export const reopenDatabase = (path: string): Database =>
  openFile(path, (db) => setUp(db, path, false));

/** Opens the store on a further thread, to read. The thread that writes has opened it already. */
export function openReadOnly(path: string): Database {
  const db = new Database(path, { readonly: true, safeIntegers: true });
  db.run(`PRAGMA busy_timeout = ${READER_LOCK_WAIT_MS}`);
  return db;
}

function openFile(path: string, prepare: (db: Database) => void): Database {
  let db: Database | undefined;
  try {
    db = new Database(path, { create: false, readwrite: true, safeIntegers: true });
    prepare(db);
    return db;
  } catch (error) {
    db?.close();
    if (!(error instanceof SQLiteError)) throw error;
    const free = hasCode(error, /^SQLITE_(FULL|IOERR)/) ? findDiskFree(path) : undefined;
    const advice =
      free !== undefined && free < INDEX_BYTES
        ? ` Its disk is full: ${free} bytes are free, and SQLite needs ${INDEX_BYTES} to open it.`
        : "";
    const message = `${path} cannot be opened: ${error.message}.${advice}`;
    throw new StoreOpenError(message, { cause: error });
  }
}

/** Of the log, in a file of its own. It is made by the first process that opens the store, and removed by the last. */
const INDEX_BYTES = 32_768;

function setUp(db: Database, path: string, isNew: boolean, onMigrate?: OnMigrate): void {
  if (!isNew) requirePlantStore(db, path);
  // WAL with FULL is one sync a commit. fullfsync reaches the platter on macOS, where fsync does not.
  db.run("PRAGMA journal_mode = WAL");
  db.run("PRAGMA synchronous = FULL");
  db.run("PRAGMA fullfsync = ON");
  db.run("PRAGMA checkpoint_fullfsync = ON");
  db.run("PRAGMA trusted_schema = OFF");
  // More than SQLite's 1,000 pages: random ids touch a page each, and gain from it (npm run bench). With still more,
  // one checkpoint would hold everything up for too long.
  db.run("PRAGMA wal_autocheckpoint = 8000");
  // Less than SQLite's 2 MB: the system has the pages too, and more gains little even for random ids.
  db.run("PRAGMA cache_size = -1000");
  db.run("PRAGMA journal_size_limit = 67108864");
  migrate(db, path, onMigrate);
  // The writer retries, because it has a deadline.
  db.run("PRAGMA busy_timeout = 0");
}

function migrate(db: Database, path: string, onMigrate?: OnMigrate): void {
  if (readPragma(db, "user_version") === migrations.length) return;
  const steps = db.transaction(() => {
    const version = readPragma(db, "user_version");
    refuseNewerSchema(version, migrations.length, path);
    if (version > 0) onMigrate?.({ location: path, from: version, to: migrations.length });
    for (const step of migrations.slice(version)) db.run(step);
    db.run(`PRAGMA application_id = ${APPLICATION_ID}`);
    db.run(`PRAGMA user_version = ${migrations.length}`);
  });
  steps.immediate();
}

function readPragma(db: Database, name: "application_id" | "user_version"): number {
  const row = db.query(`PRAGMA ${name}`).get() as Record<string, bigint>;
  return Number(row[name]);
}

/**
 * Reads a store for a command, while the service may be running. Changes, creates and migrates nothing.
 * Failures are StoreOpenErrors.
 */
export function readStore<Result>(
  path: string,
  read: (db: Database) => Result,
  sqliteVersion = readSqliteVersion(),
): Result {
  requireSqliteVersion(sqliteVersion);
  const found = find(path);
  if (found === undefined) throw new StoreOpenError(`${path} does not exist.`);
  if (!found.isFile()) throw new StoreOpenError(`${path} is not a file.`);
  try {
    using db = openToRead(path);
    return read(db);
  } catch (error) {
    if (isLocked(error)) throw new StoreLockedError(path);
    if (!(error instanceof SQLiteError)) throw error;
    const advice = isForbidden(error)
      ? "Run this as the user that the service runs as."
      : isOfEnvironment(error)
        ? adviseOnTemporaryFiles(findTemporaryFolder())
        : "";
    const message = `${path} cannot be read: ${error.message}. ${advice}`.trimEnd();
    throw new StoreOpenError(message, { cause: error });
  }
}

export const adviseOnTemporaryFiles = (folder: string | undefined): string =>
  folder === undefined
    ? "There is no folder for temporary files that this user may write to. Name one with TMPDIR."
    : `Temporary files are in ${folder}: make room there, or name another folder with TMPDIR.`;

/** Where SQLite sorts what does not fit in memory: https://www.sqlite.org/tempfiles.html#tempdir. */
function findTemporaryFolder(): string | undefined {
  const named = [process.env["SQLITE_TMPDIR"], process.env["TMPDIR"]].filter(Boolean) as string[];
  return [...named, "/var/tmp", "/usr/tmp", "/tmp", "."].find((folder) => {
    try {
      accessSync(folder, constants.W_OK | constants.X_OK);
      return find(folder)?.isDirectory();
    } catch {
      return false;
    }
  });
}

/**
 * To read a file in WAL mode, SQLite creates a log and an index beside it if there are none. Only a connection
 * that could write removes them at the end. If the log has content, such a connection would fold it into the
 * file at the end; a read-only one does not.
 */
function openToRead(path: string): Database {
  const hasLog = fileBytesOf(`${path}-wal`) > 0;
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

function requirePlantStore(db: Database, path: string): void {
  const id = readPragma(db, "application_id");
  if (id === UNRELEASED_ID) throw new UnreleasedStoreError(path);
  if (id !== APPLICATION_ID)
    throw new StoreOpenError(`${path} is not a plant store. It was left alone.`);
}

/** Throws a StoreOpenError if the file is not a plant store, or has a schema that we do not know. */
export function getSchemaVersion(db: Database, path: string): number {
  requirePlantStore(db, path);
  const version = readPragma(db, "user_version");
  refuseNewerSchema(version, migrations.length, path);
  return version;
}

const find = (path: string) => statSync(path, { throwIfNoEntry: false });

/** Undefined if the system does not tell. Asking takes some microseconds. */
export function findDiskFree(path: string): number | undefined {
  try {
    const { bavail, bsize } = statfsSync(dirname(resolve(path)));
    return bavail * bsize;
  } catch {
    return undefined;
  }
}

export const runOn = (db: Database, [sql, ...values]: Statement): unknown[] =>
  // SQLite counts parameters that begin with $ in the order in which they appear.
  db.query<unknown, typeof values>(sql.replaceAll("$", "?")).all(...values);

/** Zero if there is no such file. */
export const fileBytesOf = (path: string): number => find(path)?.size ?? 0;

/**
 * What is known to be on disk.
 *
 * After a crash, or a failed fsync, the log may show a plant whose pages are only in the kernel's memory. Its creator
 * was never answered. But a client that reads it, or sends it again and is told "replayed", would take it for stored.
 */
export interface Durability {
  /** All that can be read is synced, in the main file or in the log: answers about plants may be given. */
  readonly reads: boolean;
  /** The log is empty too. One that failed to sync must not grow. */
  readonly writes: boolean;
}

/** Copies everything that can be read into the main file, syncs it, and empties the log, as far as readers allow. */
export function makeDurable(db: Database): Durability {
  const { busy, log, checkpointed } = db.query("PRAGMA wal_checkpoint(TRUNCATE)").get() as Record<
    "busy" | "log" | "checkpointed",
    bigint
  >;
  const writes = busy === 0n;
  // The counts are -1 if another process is making a checkpoint.
  return { writes, reads: writes || (log >= 0n && log === checkpointed) };
}

const REWRITTEN_BYTES = 1_048_576;

/**
 * Makes the log durable as it is, on a disk without room for a checkpoint. A sync alone would not prove it: an earlier
 * one may have failed, and the kernel taken the pages for written. So each is written again, in place, where no new
 * block is needed. The transaction keeps other processes from writing to the log meanwhile.
 */
export function rewriteLog(db: Database, path: string): void {
  const rewrite = db.transaction(() => {
    const log = openSync(`${path}-wal`, "r+");
    try {
      const bytes = new Uint8Array(REWRITTEN_BYTES);
      for (let at = 0, length = 0; ; at += length) {
        length = readSync(log, bytes, 0, bytes.length, at);
        if (length === 0) break;
        for (let written = 0; written < length;)
          written += writeSync(log, bytes, written, length - written, at + written);
      }
      fsyncSync(log);
    } finally {
      closeSync(log);
    }
  });
  rewrite.immediate();
}

/**
 * Returns a check that throws once one of these files is moved or removed: writes would go into a file that
 * has no name any more.
 */
export function watchFiles(files: readonly string[]): () => void {
  const watched = files.map((file) => [file, find(file)] as const);
  return function assertFilesNotMoved() {
    for (const [file, before] of watched) {
      const now = find(file);
      if (now?.ino !== before?.ino || now?.dev !== before?.dev)
        throw new StoreOpenError(
          `${file} was moved or removed while it was in use. Put it back, or restart on what is there now.`,
        );
    }
  };
}

/**
 * Readable by its owner alone, because it holds hashes of tokens; SQLite creates the log with the same mode. Only
 * a new file is opened here: closing a descriptor of a file gives up all locks that this process has on it.
 */
function createPrivateFile(path: string): void {
  try {
    closeSync(openSync(path, "wx", 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}

/** SQLite syncs the folder of its files, but not the folders above it that we create. */
export function makeDirectoryDurably(path: string): void {
  const firstMade = mkdirSync(path, { recursive: true, mode: 0o700 });
  if (firstMade === undefined) return;
  for (let made = path; made.startsWith(firstMade); made = dirname(made)) syncFile(dirname(made));
}

/** Syncs a file or a folder. */
export function syncFile(path: string): void {
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** The store is sound, but another process is using it. */
export class StoreLockedError extends StoreOpenError {
  constructor(path: string) {
    super(`${path} is in use: another process kept it locked for too long.`);
  }
}

export const isLocked = (error: unknown): boolean =>
  error instanceof StoreLockedError ||
  hasCode(error instanceof StoreOpenError ? error.cause : error, /^SQLITE_(BUSY|LOCKED)/);

/**
 * After a failed sync the kernel may drop the pages that it could not write, and report success the next time.
 * So the next sync of the same log proves nothing about this commit.
 */
export const isSyncFailure = (error: unknown): boolean =>
  hasCode(error, /^SQLITE_IOERR_(DIR_)?FSYNC/);

/** Even reading a file in WAL mode takes the right to write to its folder, if no process has it open. */
const isForbidden = (error: unknown): boolean => hasCode(error, /^SQLITE_(READONLY|CANTOPEN|PERM)/);

/** The system has failed, and says nothing about what is in the file. */
export const isOfEnvironment = (error: unknown): boolean =>
  isForbidden(error) || hasCode(error, /^SQLITE_(FULL|IOERR|NOMEM)/);

const UNAVAILABLE = /^SQLITE_(FULL|IOERR|READONLY|CANTOPEN|CORRUPT|NOTADB|NOMEM|PROTOCOL)/;

/** What the client is told. Errors that neither the disk nor a lock caused stay as they are. */
export function translate(error: unknown): Error {
  if (!(error instanceof Error)) return new Error("thrown by SQLite", { cause: error });
  if (isLocked(error)) return new Refusal("store_busy", undefined, error);
  // The system refused to look up a file, for lack of a permission or a descriptor.
  const isOfSystem = (error as NodeJS.ErrnoException).syscall !== undefined;
  const isUnavailable =
    error instanceof StoreOpenError || isOfSystem || hasCode(error, UNAVAILABLE);
  return isUnavailable ? new Refusal("store_unavailable", undefined, error) : error;
}

/** Extended codes begin with the primary one: SQLITE_IOERR_WRITE is a SQLITE_IOERR. */
export const hasCode = (error: unknown, codes: RegExp): boolean =>
  error instanceof SQLiteError && codes.test(error.code ?? "");
