/** Looks a store over, in use or not, without changing it: what is in it, and everything that is wrong with it. */

import { Database, SQLiteError } from "bun:sqlite";
import type { PlantCounts, TokenCounts } from "../rows.ts";
import { countPlants, countTokens } from "./counts.ts";
import { StoreOpenError } from "../../domain/errors.ts";
import { isLocked } from "./failure.ts";
import { migrations } from "./migrations.ts";
import { fileBytesOf, isForbidden, readStore, requireOurs } from "./read.ts";
import { findUnstorableTexts } from "./text.ts";
import { findDamage } from "./verify.ts";

/** In the order in which they are made; without the first nothing else is looked at. */
export const checks = ["schema", "tables", "integrity", "text", "counts"] as const;

export type Check = (typeof checks)[number];

interface Fault {
  readonly check: Check;
  readonly message: string;
}

export interface Inspection {
  readonly faults: readonly Fault[];
  /** Undefined where it is not one that we know, or the file is no plant store; then so is the rest. */
  readonly schemaVersion: number | undefined;
  readonly plants: PlantCounts | undefined;
  readonly tokens: TokenCounts | undefined;
  readonly fileBytes: number;
  /** The size of the log beside it, whose newest part is not in the file yet. */
  readonly logBytes: number;
}

const FAULTS_MAX = 10;

export function inspectStore(path: string, nowMs: number): Inspection {
  return readStore(path, (db) => {
    const sizes = { fileBytes: fileBytesOf(path), logBytes: fileBytesOf(`${path}-wal`) };
    const faults = new Faults();
    const schemaVersion = faults.attempt("schema", () => requireOurs(db, path));
    if (schemaVersion === undefined)
      return {
        ...sizes,
        schemaVersion,
        faults: faults.found,
        plants: undefined,
        tokens: undefined,
      };
    faults.collect("tables", () => findMissing(db, schemaVersion));
    faults.collect("integrity", () => findDamage(db, FAULTS_MAX));
    faults.collect("text", () => findUnstorableTexts(db, FAULTS_MAX));
    const plants = faults.attempt("counts", () => countPlants(db));
    const tokens = faults.attempt("counts", () => countTokens(db, nowMs));
    return { ...sizes, schemaVersion, faults: faults.found, plants, tokens };
  });
}

class Faults {
  readonly found: Fault[] = [];

  collect(check: Check, look: () => string[]): void {
    for (const message of this.attempt(check, look) ?? []) this.found.push({ check, message });
  }

  /** What cannot even be read is a fault like any other; what may not be read, or not now, is none. */
  attempt<Result>(check: Check, look: () => Result): Result | undefined {
    try {
      return look();
    } catch (error) {
      const isFault =
        error instanceof StoreOpenError || (error instanceof SQLiteError && !isForbidden(error));
      if (!isFault || isLocked(error)) throw error;
      this.found.push({ check, message: error.message });
      return undefined;
    }
  }
}

interface Part {
  readonly type: string;
  readonly name: string;
  readonly sql: string;
}

/** Compares tables and indexes with what the migrations make; an index that somebody added does no harm. */
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
