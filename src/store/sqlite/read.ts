/** A store opened by a command beside the service, to be read: nothing in it is changed, made or migrated. */

import { Database, SQLiteError } from "bun:sqlite";
import { statSync } from "node:fs";
import { StoreOpenError } from "../../domain/errors.ts";
import { APPLICATION_ID, readPragma, refuseNewerSchema, StoreLockedError } from "./database.ts";
import { isLocked } from "./failure.ts";

const LOCK_WAIT_MS = 5_000;

export function readStore<Result>(path: string, read: (db: Database) => Result): Result {
  requireFile(path);
  try {
    const db = openToRead(path);
    try {
      return read(db);
    } finally {
      db.close();
    }
  } catch (error) {
    if (isLocked(error))
      throw new StoreLockedError(`${path} is in use: another process kept it locked for too long.`);
    if (!(error instanceof SQLiteError)) throw error;
    if (isForbidden(error))
      throw new StoreOpenError(
        `${path} cannot be opened (${error.message}). Run this as the user that the service runs as.`,
        { cause: error },
      );
    throw new StoreOpenError(`${path} cannot be read: ${error.message}.`, { cause: error });
  }
}

/** To read a file in WAL mode takes, where nobody has it open, the right to write to its folder. */
export const isForbidden = (error: SQLiteError): boolean =>
  /^SQLITE_(READONLY|CANTOPEN|PERM)/.test(error.code ?? "");

/**
 * To read a file in WAL mode SQLite makes a log and an index beside it where there are none, and
 * only a connection that could write takes them away at the end. Where the log has something in it,
 * a connection that could write would fold it into the file at the end, and one that cannot does not.
 */
function openToRead(path: string): Database {
  const hasLog = fileBytesOf(`${path}-wal`) > 0;
  const db = new Database(path, {
    ...(hasLog ? { readonly: true } : { readwrite: true, create: false }),
    safeIntegers: true,
  });
  db.run(`PRAGMA busy_timeout = ${LOCK_WAIT_MS}`);
  db.run("PRAGMA trusted_schema = OFF");
  // For the copies that are written through this connection; see openDatabase.
  db.run("PRAGMA fullfsync = ON");
  return db;
}

/** The version of its schema, which is one that we know. */
export function requireOurs(db: Database, path: string): number {
  if (readPragma(db, "application_id") !== APPLICATION_ID)
    throw new StoreOpenError(`${path} is not a plant store.`);
  const version = readPragma(db, "user_version");
  refuseNewerSchema(version, path);
  return version;
}

function requireFile(path: string): void {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found === undefined) throw new StoreOpenError(`${path} does not exist.`);
  if (!found.isFile()) throw new StoreOpenError(`${path} is not a file.`);
}

/** Zero where there is no such file. */
export function fileBytesOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}
