/** Looks a database over, in use or not, without changing it: what is in it, and what is wrong with it. */

import type { StoreLimits } from "../../domain/store.ts";
import type { ServerLimits } from "../open.ts";
import type { PlantCounts, TokenCounts } from "../rows.ts";
import type { Connection } from "./connection.ts";
import { findVersion, refuseNewerSchema } from "./migrate.ts";
import { migrations } from "./migrations.ts";
import { onServer } from "./open.ts";
import { describeTarget, type Target } from "./url.ts";

export interface PostgresInspection {
  readonly location: string;
  readonly durability: string;
  /** Undefined where plantstore has never been here; then so is the rest. */
  readonly schemaVersion: number | undefined;
  readonly faults: readonly string[];
  readonly plants: PlantCounts | undefined;
  readonly tokens: TokenCounts | undefined;
  readonly bytes: bigint;
}

/** Everything that the service relies on: each table with its columns, each index. */
const expectedColumns: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  plants: { id: "bigint", name: "text", tag: "text" },
  plantstore_tokens: {
    hash: "text",
    prefix: "text",
    name: "text",
    scopes: "text",
    created_at_ms: "bigint",
    expires_at_ms: "bigint",
    last_used_at_ms: "bigint",
    revoked_at_ms: "bigint",
  },
  plantstore_marks: { name: "text", at_ms: "bigint" },
  plantstore_notes: { key: "uuid", ids: "text", made_at: "timestamp with time zone" },
};
const expectedIndexes = [
  "plants_pkey",
  "plants_tag",
  "plantstore_tokens_pkey",
  "plantstore_tokens_name",
  "plantstore_marks_pkey",
  "plantstore_notes_pkey",
];

const COLUMNS = `SELECT table_name, column_name, data_type FROM information_schema.columns
  WHERE table_schema = current_schema()`;
const INDEXES = `SELECT c.relname AS name, i.indisvalid AS is_valid
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema()`;
const COUNT_PLANTS = `SELECT count(*) AS count, count(tag) AS tagged, count(DISTINCT tag) AS tags,
  min(id) AS "idMin", max(id) AS "idMax" FROM plants`;
const COUNT_TOKENS = `WITH states AS (SELECT CASE WHEN revoked_at_ms IS NOT NULL THEN 'revoked'
    WHEN expires_at_ms <= extract(epoch FROM now()) * 1000 THEN 'expired' ELSE 'active' END AS state
    FROM plantstore_tokens)
  SELECT count(*) FILTER (WHERE state = 'active') AS active,
    count(*) FILTER (WHERE state = 'expired') AS expired,
    count(*) FILTER (WHERE state = 'revoked') AS revoked FROM states`;
const SIZE = "SELECT pg_database_size(current_database()) AS bytes";

/** To count takes time in proportion. */
const COUNT_SECONDS_MAX = 3_600;

export async function inspectPostgres(
  target: Target,
  limits: StoreLimits & ServerLimits,
): Promise<PostgresInspection> {
  const location = describeTarget(target);
  return onServer(target, limits, async (connection) => {
    const deadlineMs = performance.now() + COUNT_SECONDS_MAX * 1000;
    const schemaVersion = await findVersion(connection, deadlineMs);
    const { durability } = connection;
    const known = { location, durability, schemaVersion };
    if (schemaVersion === undefined)
      return { ...known, faults: [], plants: undefined, tokens: undefined, bytes: 0n };
    refuseNewerSchema(schemaVersion, location);
    // What an older version has is for the migration to say.
    const isNewest = schemaVersion === migrations.length;
    const faults = !isNewest
      ? []
      : [
          ...(await findColumnFaults(connection, deadlineMs)),
          ...(await findIndexFaults(connection, deadlineMs)),
        ];
    const canCount = isNewest && faults.length === 0;
    return {
      ...known,
      faults,
      plants: canCount
        ? await readOne<PlantCounts>(connection, COUNT_PLANTS, deadlineMs)
        : undefined,
      tokens: canCount
        ? await readOne<TokenCounts>(connection, COUNT_TOKENS, deadlineMs)
        : undefined,
      bytes: (await readOne<{ bytes: bigint }>(connection, SIZE, deadlineMs))?.bytes ?? 0n,
    };
  });
}

async function readOne<Row>(
  connection: Connection,
  statement: string,
  deadlineMs: number,
): Promise<Row | undefined> {
  const [row] = await connection.queryPatiently<Row>(statement, deadlineMs);
  return row;
}

async function findColumnFaults(connection: Connection, deadlineMs: number): Promise<string[]> {
  const rows = await connection.query<{
    table_name: string;
    column_name: string;
    data_type: string;
  }>(COLUMNS, [], deadlineMs);
  const found = new Map(rows.map((row) => [`${row.table_name}.${row.column_name}`, row.data_type]));
  return Object.entries(expectedColumns).flatMap(([table, columns]) =>
    Object.entries(columns).flatMap(([column, type]) => {
      const foundType = found.get(`${table}.${column}`);
      if (foundType === undefined) return [`The column ${table}.${column} is missing.`];
      return foundType === type ? [] : [`The column ${table}.${column} is of type ${foundType}.`];
    }),
  );
}

async function findIndexFaults(connection: Connection, deadlineMs: number): Promise<string[]> {
  const rows = await connection.query<{ name: string; is_valid: boolean }>(INDEXES, [], deadlineMs);
  const found = new Map(rows.map(({ name, is_valid: isValid }) => [name, isValid]));
  return expectedIndexes.flatMap((name) => {
    if (!found.has(name)) return [`The index ${name} is missing.`];
    return found.get(name) ? [] : [`The index ${name} is not valid; drop it and migrate again.`];
  });
}
