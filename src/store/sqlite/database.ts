/** A SQLite file as we want it: ours, of a schema we know, and durable at every commit. */

import { Database, SQLiteError } from "bun:sqlite";
import { closeSync, fsyncSync, mkdirSync, openSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { StoreOpenError } from "../../domain/errors.ts";
import { migrations } from "./migrations.ts";

/** Marks the file as a plant store's, so that we never write into somebody else's: "PLNT". */
export const APPLICATION_ID = 0x504c4e54;

/** Nothing is wrong with the store: someone else is using it, and may be done soon. */
export class StoreLockedError extends StoreOpenError {}

/** How long a first opening waits for a lock that someone else holds: nobody is being served yet. */
const OPEN_LOCK_WAIT_MS = 5_000;

/** Makes the file where there is none. */
export function openDatabase(path: string): Database {
  makeDirectoryDurably(dirname(resolve(path)));
  makeFilePrivately(path);
  return open(path, (db) => {
    db.run(`PRAGMA busy_timeout = ${OPEN_LOCK_WAIT_MS}`);
    refuseForeignFile(db, path);
    setUp(db, path);
  });
}

/** Makes nothing, and waits for nobody: others are being served meanwhile. */
export function reopenDatabase(path: string): Database {
  return open(path, (db) => {
    if (readPragma(db, "application_id") !== APPLICATION_ID)
      throw new StoreOpenError(`${path} is not a plant store any more. It was left alone.`);
    setUp(db, path);
  });
}

function open(path: string, prepare: (db: Database) => void): Database {
  try {
    const db = new Database(path, { create: false, readwrite: true, safeIntegers: true });
    try {
      prepare(db);
      return db;
    } catch (error) {
      db.close();
      throw error;
    }
  } catch (error) {
    if (!(error instanceof SQLiteError)) throw error;
    throw new StoreOpenError(`${path} cannot be opened: ${error.message}.`, { cause: error });
  }
}

function setUp(db: Database, path: string): void {
  // WAL with FULL is one sync a commit. fullfsync reaches the platter on macOS, where fsync does not.
  db.run("PRAGMA journal_mode = WAL");
  db.run("PRAGMA synchronous = FULL");
  db.run("PRAGMA fullfsync = ON");
  db.run("PRAGMA checkpoint_fullfsync = ON");
  db.run("PRAGMA trusted_schema = OFF");
  // Larger than SQLite's 1,000 pages and 2 MB: ids at random touch a page each, and are faster for it (see
  // npm run bench). Larger still, and folding the log in would hold everyone up for too long at a time.
  db.run("PRAGMA wal_autocheckpoint = 8000");
  db.run("PRAGMA cache_size = -4000");
  db.run("PRAGMA journal_size_limit = 67108864");
  migrate(db, path);
  // From here on a lock held by someone else must not stop the event loop, so that statements
  // do not wait for it: the group commit does, between turns.
  db.run("PRAGMA busy_timeout = 0");
}

/**
 * Copies everything that is readable into the main file, and syncs it.
 *
 * After a crash, or a failed fsync, the log may show a plant whose pages are only in the kernel's
 * memory. Its creator was never answered; but whoever retries would be told "replayed" at once,
 * without any sync. Written anew and synced before the first such answer, the plant is what it seems.
 */
export function makeReadableDurable(db: Database, path: string): void {
  const row = db.query("PRAGMA wal_checkpoint(TRUNCATE)").get() as { busy: bigint };
  if (row.busy !== 0n)
    throw new StoreLockedError(`${path} is in use: another process kept it locked for too long.`);
}

function refuseForeignFile(db: Database, path: string): void {
  const found = readPragma(db, "application_id");
  if (found === APPLICATION_ID) return;
  const { tables } = db.query("SELECT count(*) AS tables FROM sqlite_schema").get() as {
    tables: bigint;
  };
  if (found !== 0 || tables > 0n)
    throw new StoreOpenError(`${path} is a SQLite file, but not a plant store. It was left alone.`);
}

function migrate(db: Database, path: string): void {
  if (readPragma(db, "user_version") === migrations.length) return;
  const steps = db.transaction(() => {
    const version = readPragma(db, "user_version");
    refuseNewerSchema(version, path);
    for (const step of migrations.slice(version)) db.run(step);
    db.run(`PRAGMA application_id = ${APPLICATION_ID}`);
    db.run(`PRAGMA user_version = ${migrations.length}`);
  });
  steps.immediate();
}

export function refuseNewerSchema(version: number, path: string): void {
  if (version > migrations.length)
    throw new StoreOpenError(
      `${path} has schema ${version}, and this version of plantstore knows schemas up to ${migrations.length}. ` +
        "A newer plantstore wrote it; start that one.",
    );
}

export function readPragma(db: Database, name: "application_id" | "user_version"): number {
  const row = db.query(`PRAGMA ${name}`).get() as Record<string, bigint>;
  return Number(row[name]);
}

/**
 * Its owner's alone, because it holds hashes of tokens; SQLite makes the log beside it likewise. Only where
 * there is none: to close a descriptor of a file gives up every lock that this process has on it.
 */
function makeFilePrivately(path: string): void {
  try {
    closeSync(openSync(path, "wx", 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}

/** SQLite syncs the folder of its files, but nobody else syncs the folders that we make for it. */
export function makeDirectoryDurably(path: string): void {
  const firstMade = mkdirSync(path, { recursive: true, mode: 0o700 });
  if (firstMade === undefined) return;
  for (let made = path; made.startsWith(firstMade); made = dirname(made))
    syncDirectory(dirname(made));
}

export function syncDirectory(path: string): void {
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
