/** Looks into a database, in use or not, without changing it: what it holds, and what is wrong with it. */

import { refuseNewerSchema } from "../../domain/errors.ts";
import {
  COUNT_PLANTS,
  countTokens,
  type Fault,
  type Inspection,
  type PlantCounts,
  type TokenCounts,
} from "../inspection.ts";
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
const SIZE = "SELECT pg_database_size(current_database()) AS database";

/** Counting takes time in proportion to the plants. */
const COUNT_MS_MAX = 3_600_000;

const NO_STORE =
  "This database holds no plant store yet. The service creates one when it starts; so does plantstore migrate.";

export function inspectPostgres(target: Target, limits: OpenLimits): Promise<Inspection> {
  const location = describeTarget(target);
  return onServer(target, limits, async (connection) => {
    connection.deadlineMs = performance.now() + COUNT_MS_MAX;
    const schemaVersion = await findVersion(connection);
    refuseNewerSchema(schemaVersion ?? 0, NEWEST_SCHEMA, location);
    const isMissing = schemaVersion === undefined;
    // An older schema is for the migration to judge.
    const isNewest = schemaVersion === NEWEST_SCHEMA;
    const faults = isNewest ? await findFaults(connection) : [];
    const readOne = async <Row>(canRead: boolean, statement: string): Promise<Row | undefined> =>
      canRead ? (await connection.query<Row>(statement, [], COUNT_MS_MAX))[0] : undefined;
    const canCount = isNewest && faults.length === 0;
    const size = await readOne<{ readonly database: bigint }>(!isMissing, SIZE);
    return {
      kind: "database",
      location,
      schemaVersion,
      newestVersion: NEWEST_SCHEMA,
      sound: {
        tables: "every table, column and index exists",
        durability: connection.durability.replace(/^every answer is sent after its/, "a"),
      },
      faults: isMissing ? [{ check: "schema", message: NO_STORE }] : faults,
      plants: await readOne<PlantCounts>(canCount, COUNT_PLANTS),
      tokens: await readOne<TokenCounts>(canCount, countTokens("plantstore_tokens")),
      bytes: { ...size },
    };
  });
}

async function findFaults(connection: Connection): Promise<Fault[]> {
  const findMissing = async (kind: string, names: string[], statement: string, note = "") => {
    const rows = await connection.query<{ readonly name: string }>(statement);
    const found = new Set(Array.from(rows, ({ name }) => name));
    return names
      .filter((name) => !found.has(name))
      .map((name) => ({ check: "tables", message: `The ${kind} ${name} is missing${note}.` }));
  };
  const { columns, indexes } = listExpected();
  return [
    ...(await findMissing("column", columns, COLUMNS)),
    ...(await findMissing("index", indexes, INDEXES, " or not valid")),
  ];
}
