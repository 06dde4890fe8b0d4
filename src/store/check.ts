/** plantstore check: inspects a store, which may be in use, and changes nothing. */

import { Database, SQLiteError } from "bun:sqlite";
import { resolve } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { describeTarget, parseStoreUrl, type Target } from "../store-url.ts";
import type { OpenLimits } from "./postgres/pool.ts";
import {
  fileBytesOf,
  findDamage,
  getSchemaVersion,
  isLocked,
  isOfEnvironment,
  logOf,
  migrations,
  readStore,
} from "./sqlite/database.ts";

export interface Inspection {
  readonly kind: "file" | "database";
  readonly location: string;
  /** Undefined if there is no store, or none that we know. Then nothing else is checked. */
  readonly schemaVersion: number | undefined;
  readonly newestVersion: number;
  /** The sentence for each further check that finds no fault, in order. */
  readonly sound: Readonly<Record<string, string>>;
  readonly faults: readonly Fault[];
  /** Undefined if they cannot be counted. */
  readonly plants: PlantCounts | undefined;
  readonly tokens: TokenCounts | undefined;
  readonly bytes: Readonly<Record<string, number | bigint>>;
}

interface Fault {
  /** `schema`, `counts`, or a key of `sound`. */
  readonly check: string;
  readonly message: string;
}

export type PlantCounts = Readonly<
  Record<"count" | "tagged" | "tags", bigint> & Record<"idMin" | "idMax", bigint | null>
>;
type TokenCounts = Readonly<Record<"active" | "expired" | "revoked", bigint>>;

/** Not count(DISTINCT tag): SQLite would sort all tags in a temporary file, although the index has them sorted. */
const COUNT_PLANTS = `SELECT count(*) AS count, count(tag) AS tagged,
  (SELECT count(*) FROM (SELECT DISTINCT tag FROM plants WHERE tag IS NOT NULL) AS used) AS tags,
  min(id) AS "idMin", max(id) AS "idMax" FROM plants`;

const countTokens = (table: string): string =>
  `WITH states AS (SELECT CASE WHEN revoked_at_ms IS NOT NULL THEN 'revoked'
    WHEN expires_at_ms <= ${Date.now()} THEN 'expired' ELSE 'active' END AS state FROM ${table})
  SELECT count(*) FILTER (WHERE state = 'active') AS active,
    count(*) FILTER (WHERE state = 'expired') AS expired,
    count(*) FILTER (WHERE state = 'revoked') AS revoked FROM states`;

const ALL_TABLES = "every table and index exists";
const FAULTS_MAX = 10;

export async function inspectStore(databaseUrl: string, limits: OpenLimits): Promise<Inspection> {
  const url = parseStoreUrl(databaseUrl);
  return url.engine === "sqlite" ? inspectFile(url.path) : inspectDatabase(url.target, limits);
}

function inspectFile(path: string): Inspection {
  return readStore(path, (db) => {
    const faults: Fault[] = [];
    /** A read error is a fault of the store, unless a lock, a permission or the system caused it. */
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
      sound: { tables: ALL_TABLES, integrity: "every page, row and index is sound" },
      faults,
      plants: count(COUNT_PLANTS) as PlantCounts | undefined,
      tokens: count(countTokens("tokens")) as TokenCounts | undefined,
      // The newest commits may be only in the WAL.
      bytes: { file: fileBytesOf(path), log: fileBytesOf(logOf(path)) },
    };
  });
}

/** Compares tables and indexes with those of the migrations. An additional index does no harm. */
function findMissing(db: Database, schemaVersion: number): string[] {
  const found = new Map(readParts(db).map((part) => [part.name, part]));
  using model = new Database(":memory:");
  for (const step of migrations.slice(0, schemaVersion)) model.run(step);
  return readParts(model).flatMap(({ type, name, sql }) => {
    const part = found.get(name);
    if (part === undefined) return [`The ${type} ${name} is missing.`];
    return part.sql === sql ? [] : [`The ${type} ${name} has an unexpected definition.`];
  });
}

const PARTS = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL";
const readParts = (db: Database) =>
  db.query<Record<"type" | "name" | "sql", string>, []>(PARTS).all();

const SIZE = "SELECT pg_database_size(current_database()) AS database";

/** Counting scans every plant. */
const COUNT_MS_MAX = 3_600_000;

const NO_STORE =
  "This database holds no plant store yet. The service creates one when it starts; so does plantstore migrate.";

async function inspectDatabase(target: Target, limits: OpenLimits): Promise<Inspection> {
  const location = describeTarget(target);
  const { onServer } = await import("./postgres/pool.ts");
  const { findAbsent, findVersion, steps } = await import("./postgres/schema.ts");
  return onServer(target, limits, async (connection) => {
    connection.deadlineMs = performance.now() + COUNT_MS_MAX;
    const schemaVersion = await findVersion(connection, location);
    const isMissing = schemaVersion === undefined;
    // Only the newest schema is checked: a migration adds what an older one lacks.
    const isNewest = schemaVersion === steps.length;
    const absent = isNewest ? await findAbsent(connection) : [];
    const faults = absent.map(({ kind, name }) => ({
      check: "tables",
      message: `The ${kind} ${name} is missing or not valid.`,
    }));
    const readOne = async <Row>(canRead: boolean, statement: string): Promise<Row | undefined> =>
      canRead ? (await connection.query<Row>(statement, [], COUNT_MS_MAX))[0] : undefined;
    const canCount = isNewest && faults.length === 0;
    const size = await readOne<{ readonly database: bigint }>(!isMissing, SIZE);
    return {
      kind: "database",
      location,
      schemaVersion,
      newestVersion: steps.length,
      sound: {
        tables: ALL_TABLES,
        durability: connection.durability.replace(/^every answer is sent after its/, "a"),
      },
      faults: isMissing ? [{ check: "schema", message: NO_STORE }] : faults,
      plants: await readOne<PlantCounts>(canCount, COUNT_PLANTS),
      tokens: await readOne<TokenCounts>(canCount, countTokens("plantstore_tokens")),
      bytes: { ...size },
    };
  });
}
