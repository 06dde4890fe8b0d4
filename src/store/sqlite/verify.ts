/** Whether a file is a whole plant store, of a schema that we know; and how much is in it. */

import type { Database } from "bun:sqlite";
import { StoreOpenError } from "../../domain/errors.ts";
import { fileBytesOf, readStore, requireOurs } from "./read.ts";

export interface StoreFacts {
  readonly schemaVersion: number;
  readonly plants: bigint;
  readonly tokens: bigint;
  readonly bytes: number;
}

/** Throws a StoreOpenError that says what is wrong with the file, called as people know it. */
export function verifyStore(path: string, calledAs = path): StoreFacts {
  return readStore(path, (db) => {
    const schemaVersion = requireOurs(db, calledAs);
    const [fault] = findDamage(db, 1);
    if (fault !== undefined) throw new StoreOpenError(`${calledAs} is damaged: ${fault}`);
    const counts = db
      .query<{ plants: bigint; tokens: bigint }, []>(
        "SELECT (SELECT count(*) FROM plants) AS plants, (SELECT count(*) FROM tokens) AS tokens",
      )
      .get() as { plants: bigint; tokens: bigint };
    return { schemaVersion, ...counts, bytes: fileBytesOf(path) };
  });
}

/** What SQLite finds wrong with pages, rows, indexes and constraints; nothing where all is well. */
export function findDamage(db: Database, faultsMax: number): string[] {
  const faults: string[] = [];
  try {
    for (const { integrity_check: lines } of db
      .query<{ integrity_check: string }, []>(`PRAGMA integrity_check(${faultsMax})`)
      .iterate())
      faults.push(...lines.split("\n").filter((line) => line !== "ok" && !line.startsWith("***")));
  } catch (error) {
    // With enough damage the check itself ends in an error, after what it has found so far.
    if (faults.length === 0) throw error;
  }
  return faults;
}
