/** Looks into a database, in use or not, without changing it: what it holds, and what is wrong with it. */

import { refuseNewerSchema } from "../../domain/errors.ts";
import { COUNT_PLANTS, countTokens, type PlantCounts, type TokenCounts } from "../rows.ts";
import type { Connection } from "./connection.ts";
import { onServer, type OpenLimits } from "./pool.ts";
import { findVersion, NEWEST_SCHEMA } from "./schema.ts";
import { describeTarget, type Target } from "./url.ts";

/** Everything that the service relies on: each table with the names and types of its columns, each index. */
const expectedColumns = {
  plants: "id bigint, name text, tag text",
  plantstore_tokens:
    "hash text, prefix text, name text, scopes text, created_at_ms bigint, expires_at_ms bigint, last_used_at_ms bigint, revoked_at_ms bigint, rate text",
  plantstore_marks: "name text, at_ms bigint",
  plantstore_changes:
    "last bigint, length integer, lsn bigint, at_us bigint, entries text, kept ARRAY",
  plantstore_webhooks: "name text, version text, record text",
};
const expectedIndexes = [
  "plants_pkey",
  "plants_tag",
  "plantstore_tokens_pkey",
  "plantstore_tokens_name",
  "plantstore_marks_pkey",
  "plantstore_changes_last",
  "plantstore_changes_new",
  "plantstore_webhooks_pkey",
];

const COLUMNS = `SELECT table_name || '.' || column_name AS name, data_type AS type
  FROM information_schema.columns
  WHERE table_schema = current_schema()`;
const INDEXES = `SELECT c.relname AS name, i.indisvalid AS valid
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema()`;
const COUNT_TOKENS = countTokens("plantstore_tokens", "extract(epoch FROM now()) * 1000");
const SIZE = "SELECT pg_database_size(current_database()) AS bytes";

/** Counting takes time in proportion to the plants. */
const COUNT_MS_MAX = 3_600_000;

/** Without a version, the database has no plant store, and the rest is empty. */
export function inspectPostgres(target: Target, limits: OpenLimits) {
  const location = describeTarget(target);
  return onServer(target, limits, async (connection) => {
    connection.deadlineMs = performance.now() + COUNT_MS_MAX;
    const schemaVersion = await findVersion(connection);
    const { durability } = connection;
    const known = { location, durability, schemaVersion, newestVersion: NEWEST_SCHEMA };
    if (schemaVersion === undefined)
      return { ...known, faults: [], plants: undefined, tokens: undefined, bytes: 0n };
    refuseNewerSchema(schemaVersion, NEWEST_SCHEMA, location);
    // An older schema is for the migration to judge.
    const isNewest = schemaVersion === NEWEST_SCHEMA;
    const faults = isNewest
      ? [...(await findColumnFaults(connection)), ...(await findIndexFaults(connection))]
      : [];
    const canCount = isNewest && faults.length === 0;
    const readOne = async <Row>(statement: string): Promise<Row | undefined> =>
      (await connection.query<Row>(statement, [], COUNT_MS_MAX))[0];
    return {
      ...known,
      faults,
      plants: canCount ? await readOne<PlantCounts>(COUNT_PLANTS) : undefined,
      tokens: canCount ? await readOne<TokenCounts>(COUNT_TOKENS) : undefined,
      bytes: (await readOne<{ readonly bytes: bigint }>(SIZE))?.bytes ?? 0n,
    };
  });
}

async function findColumnFaults(connection: Connection): Promise<string[]> {
  const rows = await connection.query<{ readonly name: string; readonly type: string }>(COLUMNS);
  const found = new Map(rows.map(({ name, type }) => [name, type]));
  return Object.entries(expectedColumns).flatMap(([table, columns]) =>
    columns.split(", ").flatMap((column) => {
      const [name = "", type] = `${table}.${column}`.split(" ");
      const foundType = found.get(name);
      if (foundType === undefined) return `The column ${name} is missing.`;
      return foundType === type ? [] : `The column ${name} is of type ${foundType}.`;
    }),
  );
}

async function findIndexFaults(connection: Connection): Promise<string[]> {
  const rows = await connection.query<{ readonly name: string; readonly valid: boolean }>(INDEXES);
  const found = new Map(rows.map(({ name, valid }) => [name, valid]));
  return expectedIndexes.flatMap((name) => {
    if (!found.has(name)) return `The index ${name} is missing.`;
    return found.get(name) ? [] : `The index ${name} is not valid; drop it and migrate again.`;
  });
}
