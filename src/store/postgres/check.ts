/** Looks into a database, in use or not, without changing it: what it holds, and what is wrong with it. */

import { refuseNewerSchema } from "../../domain/errors.ts";
import { COUNT_PLANTS, countTokens, type PlantCounts, type TokenCounts } from "../rows.ts";
import type { Connection } from "./connection.ts";
import { onServer, type OpenLimits } from "./pool.ts";
import { findVersion, NEWEST_SCHEMA, steps } from "./schema.ts";
import { describeTarget, type Target } from "./url.ts";

/** What the steps of the schema make: columns, as table.column, and indexes. */
function listExpected(): { columns: string[]; indexes: string[] } {
  const columns: string[] = [];
  const indexes: string[] = [];
  for (const step of steps) {
    const [, table, body = ""] = /^CREATE TABLE IF NOT EXISTS (\w+) \(([^]*)\)$/.exec(step) ?? [];
    for (const [, column] of body.matchAll(/^  (\w+) /gm)) columns.push(`${table}.${column}`);
    if (body.includes("PRIMARY KEY")) indexes.push(`${table}_pkey`);
    const [, index] = /INDEX IF NOT EXISTS (\w+)/.exec(step) ?? [];
    if (index !== undefined) indexes.push(index);
    const [, altered, added] = /^ALTER TABLE (\w+) ADD COLUMN IF NOT EXISTS (\w+)/.exec(step) ?? [];
    if (added !== undefined) columns.push(`${altered}.${added}`);
  }
  return { columns, indexes };
}

const COLUMNS = `SELECT table_name || '.' || column_name AS name FROM information_schema.columns
  WHERE table_schema = current_schema()`;
/** One that could not be finished is not valid. */
const INDEXES = `SELECT c.relname AS name FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND i.indisvalid`;
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
    const faults = isNewest ? await findFaults(connection) : [];
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

async function findFaults(connection: Connection): Promise<string[]> {
  const findMissing = async (kind: string, names: string[], statement: string) => {
    const rows = await connection.query<{ readonly name: string }>(statement);
    const found = new Set(Array.from(rows, ({ name }) => name));
    return names
      .filter((name) => !found.has(name))
      .map((name) => `The ${kind} ${name} is missing.`);
  };
  const { columns, indexes } = listExpected();
  return [
    ...(await findMissing("column", columns, COLUMNS)),
    ...(await findMissing("index", indexes, INDEXES)),
  ];
}
