/** Looks through a store, while the service may be running, and changes nothing. */

import { Database, SQLiteError } from "bun:sqlite";
import { StoreOpenError } from "../../domain/errors.ts";
import { COUNT_PLANTS, countTokens, type PlantCounts, type TokenCounts } from "../rows.ts";
import {
  fileBytesOf,
  getSchemaVersion,
  isForbidden,
  isLocked,
  migrations,
  readStore,
} from "./database.ts";

/** In this order. If the first fails, the others are not made. */
export const checks = ["schema", "tables", "integrity", "counts"] as const;

type Check = (typeof checks)[number];

interface Fault {
  readonly check: Check;
  readonly message: string;
}

const FAULTS_MAX = 10;

/** Without a version, the file is not a plant store, or has a schema that we do not know. Then nothing is counted. */
export function inspectStore(path: string, nowMs: number) {
  return readStore(path, (db) => {
    // The newest part of the log is not in the file yet.
    const sizes = { fileBytes: fileBytesOf(path), logBytes: fileBytesOf(`${path}-wal`) };
    const faults: Fault[] = [];
    /** What cannot be read is a fault. A store that is locked, or that we may not read, is not. */
    const attempt = <Result>(check: Check, look: () => Result): Result | undefined => {
      try {
        return look();
      } catch (error) {
        const isFault =
          error instanceof StoreOpenError || (error instanceof SQLiteError && !isForbidden(error));
        if (!isFault || isLocked(error)) throw error;
        faults.push({ check, message: error.message });
        return undefined;
      }
    };
    const collect = (check: Check, look: () => string[]): void => {
      for (const message of attempt(check, look) ?? []) faults.push({ check, message });
    };
    const schemaVersion = attempt("schema", () => getSchemaVersion(db, path));
    if (schemaVersion === undefined)
      return { ...sizes, faults, schemaVersion, plants: undefined, tokens: undefined };
    collect("tables", () => findMissing(db, schemaVersion));
    collect("integrity", () => findDamage(db, FAULTS_MAX));
    const plants = attempt(
      "counts",
      () => db.query<PlantCounts, []>(COUNT_PLANTS).get() as PlantCounts,
    );
    const tokens = attempt(
      "counts",
      () =>
        db
          .query<TokenCounts, [nowMs: number]>(countTokens("tokens", "?"))
          .get(nowMs) as TokenCounts,
    );
    return { ...sizes, faults, schemaVersion, plants, tokens };
  });
}

interface Part {
  readonly type: string;
  readonly name: string;
  readonly sql: string;
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

const readParts = (db: Database): Part[] =>
  db.query<Part, []>("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").all();

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
