/** SQLite's result codes, translated into our catalogue. By code, never by text. */

import { SQLiteError } from "bun:sqlite";
import { Refusal, StoreOpenError } from "../../domain/errors.ts";
import { StoreLockedError } from "./database.ts";

export const isLocked = (error: unknown): boolean =>
  error instanceof StoreLockedError ||
  hasCode(error instanceof StoreOpenError ? error.cause : error, "SQLITE_BUSY", "SQLITE_LOCKED");

/**
 * After a failed sync the kernel may forget the pages it could not write and report success the
 * next time, so that the next sync of the same log proves nothing about what this one left behind.
 */
export const isSyncFailure = (error: unknown): boolean =>
  hasCode(error, "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC");

export const isTokenNameTaken = (error: unknown): boolean =>
  hasCode(error, "SQLITE_CONSTRAINT_UNIQUE");

/** What a waiting caller is told; whatever is not known to be the disk's or a lock's doing stays as it is. */
export function translate(error: unknown): Error {
  if (!(error instanceof Error)) return new Error("thrown by SQLite", { cause: error });
  if (isLocked(error)) return new Refusal("store_busy", undefined, error);
  if (error instanceof StoreOpenError) return new Refusal("store_unavailable", undefined, error);
  const unavailable = hasCode(
    error,
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_READONLY",
    "SQLITE_CANTOPEN",
    "SQLITE_CORRUPT",
    "SQLITE_NOTADB",
    "SQLITE_NOMEM",
    "SQLITE_PROTOCOL",
  );
  return unavailable ? new Refusal("store_unavailable", undefined, error) : error;
}

/** Extended codes begin with the primary one: SQLITE_IOERR_WRITE is a SQLITE_IOERR. */
function hasCode(error: unknown, ...codes: string[]): boolean {
  if (!(error instanceof SQLiteError) || error.code === undefined) return false;
  const { code } = error;
  return codes.some((known) => code === known || code.startsWith(`${known}_`));
}
