/** Looks into a database, in use or not, without changing it: what it holds, and what is wrong with it. */

import {
  COUNT_PLANTS,
  countTokens,
  type Fault,
  type Inspection,
  type PlantCounts,
  type TokenCounts,
} from "../inspection.ts";
import { type Connection, toArray } from "./connection.ts";
import { onServer, type OpenLimits } from "./pool.ts";
import { findVersion, steps } from "./schema.ts";
import { describeTarget, type Target } from "../../domain/store-url.ts";

/** The tables and indexes that the steps of the schema make. An index that could not be finished is not valid. */
const MISSING = `SELECT name FROM unnest($1::text[]) AS name
  WHERE to_regclass(name) IS NULL
    OR EXISTS (SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(name) AND NOT indisvalid)`;
const SIZE = "SELECT pg_database_size(current_database()) AS database";

/** Counting takes time in proportion to the plants. */
const COUNT_MS_MAX = 3_600_000;

const NO_STORE =
  "This database holds no plant store yet. The service creates one when it starts; so does plantstore migrate.";

export function inspectPostgres(target: Target, limits: OpenLimits): Promise<Inspection> {
  const location = describeTarget(target);
  return onServer(target, limits, async (connection) => {
    connection.deadlineMs = performance.now() + COUNT_MS_MAX;
    const schemaVersion = await findVersion(connection, location);
    const isMissing = schemaVersion === undefined;
    // An older schema is for the migration to judge.
    const isNewest = schemaVersion === steps.length;
    const faults = isNewest ? await findFaults(connection) : [];
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
        tables: "every table and index exists",
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
  const names = steps
    .flat()
    .flatMap((statement) => /(?:TABLE|INDEX) IF NOT EXISTS (\w+)/.exec(statement)?.[1] ?? []);
  const rows = await connection.query<{ readonly name: string }>(MISSING, [toArray(names)]);
  return Array.from(rows, ({ name }) => ({
    check: "tables",
    message: `The table or index ${name} is missing or not valid.`,
  }));
}
