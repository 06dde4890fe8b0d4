/** Puts a finished file in a place: whole or not at all, whenever the process is killed or the power fails. */

import { Database, SQLiteError } from "bun:sqlite";
import { existsSync, linkSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { StoreOpenError } from "../../domain/errors.ts";
import { APPLICATION_ID, readPragma, StoreLockedError, syncDirectory } from "./database.ts";
import { isLocked } from "./failure.ts";

/** What SQLite keeps beside a file, and takes for that file's own whatever file it finds there. */
export const companions = ["-wal", "-shm", "-journal"] as const;

/** A place that is ours to fill, until it is disposed of. */
export interface Place extends Disposable {
  /** Moves the file in; it has been synced, and is in the same folder. */
  readonly put: (file: string) => void;
}

/** Throws a StoreOpenError where something is there that may not, or cannot safely, be replaced. */
export function reservePlace(path: string, { replace }: { replace: boolean }): Place {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found === undefined) return reserveEmptyPlace(path);
  if (!found.isFile()) throw new StoreOpenError(`${path} is not a file.`);
  if (!replace) throw new StoreOpenError(`${path} exists; it is replaced only with --force.`);
  return reserveTakenPlace(path);
}

/** No file, then no log either: one that is left of a lost file would be replayed into ours. */
function reserveEmptyPlace(path: string): Place {
  const orphan = companions.map((suffix) => path + suffix).find((file) => existsSync(file));
  if (orphan !== undefined)
    throw new StoreOpenError(
      `${orphan} is there without the file that it belongs to. Make sure that no service is using it, and move it away first.`,
    );
  return {
    put: (file) => {
      moveWhereNothingIs(file, path);
      syncDirectory(dirname(path));
    },
    [Symbol.dispose]: () => undefined,
  };
}

/** A link fails, as a rename would not, where a file has come into being meanwhile. */
function moveWhereNothingIs(file: string, path: string): void {
  try {
    linkSync(file, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST" || existsSync(path))
      throw new StoreOpenError(`${path} has come into being meanwhile. It was left alone.`, {
        cause: error,
      });
    // A file system without links.
    renameSync(file, path);
    return;
  }
  rmSync(file);
}

/**
 * SQLite replays a `-wal` into whatever file it lies beside, and likewise a `-journal`, so that the
 * old file's must never lie beside the new one. Hence this order, in which each step may be the last:
 *
 * 1. The old file is locked for us alone, from here to the end: nobody has it open, nobody opens it.
 * 2. Leaving WAL mode writes all of its log into it, syncs it and removes the log. Killed during
 *    this, the old file is complete: with its own log, or without needing one.
 * 3. The folder is synced. From here on no log can come back beside the file, power failure or not.
 * 4. The rename: before it the old file is in the place, after it the new one, and never less.
 *
 * A service that starts meanwhile has opened the old file, and waits for the lock to go on with a
 * file that is no longer there. But to use a file that is not in WAL mode it has to write to it
 * first, and SQLite does not begin to write to a file that was moved (SQLITE_READONLY_DBMOVED).
 */
function reserveTakenPlace(path: string): Place {
  const db = lockAlone(path);
  return {
    put: (file) => {
      leaveWal(db, path);
      syncDirectory(dirname(path));
      renameSync(file, path);
      syncDirectory(dirname(path));
    },
    [Symbol.dispose]: () => db.close(),
  };
}

function leaveWal(db: Database, path: string): void {
  db.run("PRAGMA synchronous = FULL");
  db.run("PRAGMA fullfsync = ON");
  db.run("PRAGMA checkpoint_fullfsync = ON");
  db.run("PRAGMA journal_mode = DELETE");
  // Under this lock the journal of that very change stays until the connection closes, which then
  // removes it by its name: by then the name may be that of the new file's.
  db.run("PRAGMA journal_mode = MEMORY");
  for (const suffix of companions) rmSync(path + suffix, { force: true });
}

const LOCK_WAIT_MS = 500;

/** Whoever has a file in WAL mode open shares a lock on it, from its first read until it closes. */
function lockAlone(path: string): Database {
  try {
    const db = new Database(path, { readwrite: true, create: false, safeIntegers: true });
    try {
      db.run(`PRAGMA busy_timeout = ${LOCK_WAIT_MS}`);
      db.run("PRAGMA locking_mode = EXCLUSIVE");
      db.run("BEGIN EXCLUSIVE");
      db.run("COMMIT");
      refuseForeign(db, path);
      return db;
    } catch (error) {
      db.close();
      throw error;
    }
  } catch (error) {
    if (isLocked(error))
      throw new StoreLockedError(
        `${path} is in use. Stop the service, and whatever else has it open, first.`,
      );
    if (!(error instanceof SQLiteError)) throw error;
    throw new StoreOpenError(
      `${path} cannot be opened as a store (${error.message}), so that nobody can tell whether a service is using it. ` +
        "Make sure that none is, move it away with its -wal and -shm, and try again.",
      { cause: error },
    );
  }
}

/** To replace is to destroy, so that only what is a store, or nothing yet, is replaced. */
function refuseForeign(db: Database, path: string): void {
  if (readPragma(db, "application_id") === APPLICATION_ID || statSync(path).size === 0) return;
  throw new StoreOpenError(`${path} is a SQLite file, but not a plant store. It was left alone.`);
}
