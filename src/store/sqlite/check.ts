/** Looks through a store, while the service may be running, and changes nothing. */

import { Database, SQLiteError } from "bun:sqlite";
import { resolve } from "node:path";
import { StoreOpenError } from "../../domain/errors.ts";
import {
  COUNT_PLANTS,
  countTokens,
  type Fault,
  type Inspection,
  type PlantCounts,
  type TokenCounts,
} from "../inspection.ts";
import {
  fileBytesOf,
  getSchemaVersion,
  isLocked,
  isOfEnvironment,
  migrations,
  readStore,
} from "./database.ts";

const FAULTS_MAX = 10;

export function inspectStore(path: string): Inspection {
  return readStore(path, (db) => {
    const faults: Fault[] = [];
    /** What cannot be read is a fault of the store, unless a lock, a right or the room on a disk is missing. */
    const attempt = <Result>(check: string, look: () => Result): Result | undefined => {
      try {
        return look();
      } catch (error) {
        const isFault =
          error instanceof StoreOpenError ||
          (error instanceof SQLiteError && !isOfEnvironment(error));
        if (!isFault || isLocked(error)) throw error;
        faults.push({ check, message: error.message });
        return undefined;
      }
    };
    const collect = (check: string, look: () => string[]): void => {
      for (const message of attempt(check, look) ?? []) faults.push({ check, message });
    };
    attempt("integrity", () => db.query("SELECT 1 FROM sqlite_schema LIMIT 1").get());
    const schemaVersion =
      faults.length > 0 ? undefined : attempt("schema", () => getSchemaVersion(db, path));
    const count = (statement: string): unknown =>
      schemaVersion === undefined ? undefined : attempt("counts", () => db.query(statement).get());
    if (schemaVersion !== undefined) {
      collect("tables", () => findMissing(db, schemaVersion));
      collect("integrity", () => findDamage(db, FAULTS_MAX));
    }
    return {
      kind: "file",
      location: resolve(path),
      schemaVersion,
      newestVersion: migrations.length,
      sound: {
        tables: "every table and index exists",
        integrity: "every page, row and index is sound",
      },
      faults,
      plants: count(COUNT_PLANTS) as PlantCounts | undefined,
      tokens: count(countTokens("tokens")) as TokenCounts | undefined,
      // The newest part of the log is not in the file yet.
      bytes: { file: fileBytesOf(path), log: fileBytesOf(`${path}-wal`) },
    };
  });
}

/** Compares tables and indexes with those of the migrations. An additional index does no harm. */
function findMissing(db: Database, schemaVersion: number): string[] {
  const found = new Map(readParts(db).map((part) => [part.name, part]));
  const model = new Database(":memory:");
  for (const step of migrations.slice(0, schemaVersion)) model.run(step);
  const expected = readParts(model);
  model.close();
  return expected.flatMap(({ type, name, sql }) => {
    const part = found.get(name);
    if (part === undefined) return [`The ${type} ${name} is missing.`];
    return part.sql === sql ? [] : [`The ${type} ${name} is not as plantstore makes it.`];
  });
}

const readParts = (db: Database) =>
  db
    .query<Record<"type" | "name" | "sql", string>, []>(
      "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL",
    )
    .all();

/** What SQLite finds wrong with pages, rows, indexes and constraints. */
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
