/** The schema and its migration, which several instances may start at once. */

import { refuseNewerSchema, StoreOpenError } from "../../domain/errors.ts";
import type { OnMigrate } from "../../domain/store.ts";
import { type Connection, sqlStateOf, TransientError } from "./connection.ts";
import { onServer, type OpenLimits } from "./pool.ts";
import { describeTarget, type Target } from "../../store-url.ts";
import { pause } from "../../tick.ts";

/** Idempotent statements. A released step never changes: a later one fixes a mistake. */
export const steps: readonly (readonly string[])[] = [
  [
    `CREATE TABLE IF NOT EXISTS plants (
  id   bigint PRIMARY KEY,
  name text NOT NULL,
  tag  text COLLATE "C"
)`,

    // On the first 100 characters, because an index entry must fit on a page, and on the id, so a tag's plants are in
    // order. Collation "C": a locale update cannot corrupt it.
    `CREATE INDEX IF NOT EXISTS plants_tag ON plants (left(tag, 100), id) WHERE tag IS NOT NULL`,

    `CREATE TABLE IF NOT EXISTS plantstore_tokens (
  hash            text COLLATE "C" PRIMARY KEY,
  prefix          text NOT NULL,
  name            text COLLATE "C" NOT NULL,
  scopes          text NOT NULL,
  rate            text,
  created_at_ms   bigint NOT NULL,
  expires_at_ms   bigint,
  last_used_at_ms bigint,
  revoked_at_ms   bigint
)`,

    `CREATE UNIQUE INDEX IF NOT EXISTS plantstore_tokens_name ON plantstore_tokens (name)
  WHERE revoked_at_ms IS NULL`,

    // The time of the last probe, and the numbers of the newest change and of the last break in the journal.
    `CREATE TABLE IF NOT EXISTS plantstore_marks (
  name  text COLLATE "C" PRIMARY KEY,
  at_ms bigint NOT NULL
)`,

    // The journal, in blocks of entries. `last` is the number of a block's last entry; null until a reader assigns it.
    `CREATE TABLE IF NOT EXISTS plantstore_changes (
  last    bigint,
  length  int NOT NULL,
  lsn     bigint NOT NULL,
  at_us   bigint NOT NULL,
  entries text NOT NULL,
  kept    text
)`,

    // Numbered blocks by number, then unnumbered ones by LSN. One index for both, because every create pays for it.
    `CREATE INDEX IF NOT EXISTS plantstore_changes_order ON plantstore_changes (last, lsn)`,

    // A first number, so readers have a cursor before the first change.
    `WITH mark AS (
  INSERT INTO plantstore_marks (name, at_ms)
  VALUES ('changes', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
  ON CONFLICT (name) DO NOTHING RETURNING at_ms
)
INSERT INTO plantstore_changes (last, length, lsn, at_us, entries)
SELECT at_ms, 0, 0, at_ms, '[]' FROM mark`,

    `CREATE TABLE IF NOT EXISTS plantstore_webhooks (
  name    text COLLATE "C" PRIMARY KEY,
  version text NOT NULL,
  record  text NOT NULL
)`,
  ],
  [
    // Minutes that a service has run, each with the newest change at its end.
    `CREATE TABLE IF NOT EXISTS plantstore_journal_marks (
  number bigint PRIMARY KEY,
  change bigint NOT NULL
)`,

    `CREATE TABLE IF NOT EXISTS plantstore_jobs (
  name    text COLLATE "C" PRIMARY KEY,
  version text NOT NULL,
  record  text NOT NULL
)`,

    // A JSON array; null for the whole store.
    `ALTER TABLE plantstore_tokens ADD COLUMN IF NOT EXISTS tags text`,

    // The time of the plant's newest change. Null since before this column.
    `ALTER TABLE plants ADD COLUMN IF NOT EXISTS changed_at_ms bigint`,

    // The first number of a database that was made with a clock beyond it: TIME_NUMBER_MAX in src/domain/change.ts.
    `WITH mark AS (
  UPDATE plantstore_marks SET at_ms = 4503599627370495
  WHERE name = 'changes' AND at_ms > 4503599627370495 AND (SELECT count(*) FROM plantstore_changes) = 1
  RETURNING at_ms
)
UPDATE plantstore_changes SET last = mark.at_ms FROM mark`,
  ],
];

const CREATE_VERSION = `CREATE TABLE IF NOT EXISTS plantstore_version (
  id      int PRIMARY KEY CHECK (id = 1),
  version int NOT NULL
)`;
const FIRST_VERSION =
  "INSERT INTO plantstore_version (id, version) VALUES (1, 0) ON CONFLICT (id) DO NOTHING";

const READ_VERSION = "SELECT version FROM plantstore_version WHERE id = 1";
const FIND_FOREIGN = `SELECT table_name FROM information_schema.tables
  WHERE table_schema = current_schema() AND table_name IN ('plants', 'plantstore_tokens')`;

/** If several instances create a table at once, PostgreSQL lets one win and fails the others. */
const RACE_STATES = /^(23505|42P07|42710)$/;
/** Not in the session of a pooler, which lacks our parameter. */
const NO_LOCK_TIMEOUT = `SELECT set_config('lock_timeout', '0', false)
  WHERE current_setting('plantstore.session', true) <> ''`;
const ALTER_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', '1000', true)";
/** In between, older instances get their turn. */
const ALTER_PAUSE_MS = 2_000;
const FIND_COLUMN = `SELECT attname FROM pg_attribute
  WHERE attrelid = to_regclass($1::text) AND attname = $2::text AND NOT attisdropped`;
/** Includes the wait for another instance that runs the same step. */
const MIGRATE_MS_MAX = 600_000;

/** Undefined if there is no plant store. Throws a StoreOpenError if the tables that are there are not ours. */
export async function findVersion(connection: Connection, location: string) {
  const version = await readVersion(connection);
  if (version !== undefined) {
    refuseNewerSchema(version, steps.length, location);
    return version;
  }
  const [foreign] = await connection.query<{ readonly table_name: string }>(FIND_FOREIGN);
  // Another instance may have created them a moment ago.
  if (foreign === undefined || (await readVersion(connection)) !== undefined) return undefined;
  throw new StoreOpenError(
    `${location} has a table ${foreign.table_name} that plantstore 1.0 or newer did not make. It was left alone; use a database or schema of its own.`,
  );
}

async function readVersion(connection: Connection): Promise<number | undefined> {
  try {
    const [row] = await connection.query<{ readonly version: number | bigint }>(READ_VERSION);
    // Engines with longer integers answer a bigint.
    return row && Number(row.version);
  } catch (error) {
    if (sqlStateOf(error) === "42P01") return undefined;
    throw error;
  }
}

interface Part {
  readonly kind: "table" | "index";
  readonly name: string;
}

/** An index whose build failed is not valid. */
const ABSENT = `SELECT name FROM unnest($1::text[]) AS name
  WHERE to_regclass(name) IS NULL
    OR EXISTS (SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(name) AND NOT indisvalid)`;

/** Which tables and indexes of the newest schema are missing. */
export async function findAbsent(connection: Connection): Promise<Part[]> {
  const created = /(TABLE|INDEX) IF NOT EXISTS (\w+)/;
  const parts = steps.flat().flatMap((statement): Part[] => {
    const [, kind, name] = created.exec(statement) ?? [];
    if (name === undefined) return [];
    return [{ kind: kind === "TABLE" ? "table" : "index", name }];
  });
  const names = parts.map(({ name }) => name);
  const rows = await connection.query<{ readonly name: string }>(ABSENT, [`{${names.join()}}`]);
  const absent = new Set(Array.from(rows, ({ name }) => name));
  return parts.filter(({ name }) => absent.has(name));
}

/** Without an index the service is slow, without a table it cannot work. */
async function refuseAbsentTables(connection: Connection, location: string): Promise<void> {
  const absent = (await findAbsent(connection)).filter(({ kind }) => kind === "table");
  if (absent.length > 0)
    throw new StoreOpenError(
      `${location} has schema ${steps.length}, and lacks the table ${absent.map(({ name }) => name).join(", ")}. ` +
        "Another program removed or renamed it, or it is in a schema outside of the search_path: restore it or a backup.",
    );
}

export type FoundSchema = Awaited<ReturnType<typeof findSchema>>;

/** The version is undefined if the database has no plant store. */
export async function findSchema(target: Target, limits: OpenLimits) {
  const location = describeTarget(target);
  const version = await onServer(target, limits, (connection) => findVersion(connection, location));
  return { location, version, newest: steps.length };
}

const altersTable = (statement: string): boolean => statement.startsWith("ALTER TABLE");

/**
 * The statements left to run. They are idempotent, so several instances may run them at once. In a script for another
 * client a step that alters a table is one transaction: its lock times out, and then the version stays the same.
 */
export function listStatements(version: number | undefined, { isScript = false } = {}): string[] {
  const rest = steps.slice(version).flatMap((step) => {
    const reached = steps.indexOf(step) + 1;
    const statements = step.concat(
      `UPDATE plantstore_version SET version = ${reached} WHERE id = 1 AND version < ${reached}`,
    );
    if (!isScript || !step.some(altersTable)) return statements;
    return ["BEGIN", ALTER_LOCK_TIMEOUT].concat(statements, "COMMIT");
  });
  return version === undefined ? [CREATE_VERSION, FIRST_VERSION, ...rest] : rest;
}

/**
 * Behind a long reader, such as a dump, the statement would wait for its lock, and every read and write of older
 * instances behind it. So it waits for a moment at a time, and not at all if another instance has added the column.
 */
async function addColumn(connection: Connection, statement: string): Promise<void> {
  const [, table = "", column = ""] =
    /TABLE (\w+) ADD COLUMN IF NOT EXISTS (\w+)/.exec(statement) ?? [];
  for (;;) {
    if ((await connection.query(FIND_COLUMN, [table, column])).length > 0) return;
    try {
      // One transaction, even in the session of a pooler.
      await connection.query(`${ALTER_LOCK_TIMEOUT}; ${statement}`, [], MIGRATE_MS_MAX);
      return;
    } catch (error) {
      const retryAtMs = performance.now() + ALTER_PAUSE_MS;
      if (sqlStateOf(error) !== "55P03" || retryAtMs > connection.deadlineMs) throw error;
      await pause(ALTER_PAUSE_MS);
    }
  }
}

export async function migrate(connection: Connection, location: string, onMigrate?: OnMigrate) {
  connection.deadlineMs = performance.now() + MIGRATE_MS_MAX;
  const before = await findVersion(connection, location);
  if (before === steps.length) return refuseAbsentTables(connection, location);
  if (before !== undefined && before > 0) onMigrate?.({ location, from: before, to: steps.length });
  try {
    // Another instance may hold its locks for as long as its migration takes.
    await connection.query(NO_LOCK_TIMEOUT);
    for (const statement of listStatements(before))
      if (altersTable(statement)) await addColumn(connection, statement);
      else await connection.query(statement, [], MIGRATE_MS_MAX);
  } catch (error) {
    const state = sqlStateOf(error) ?? "";
    if (RACE_STATES.test(state)) throw new TransientError("another instance migrates, too");
    if (state !== "42501") throw error;
    throw new StoreOpenError(
      `${location} needs its schema migrated from ${before ?? "nothing"} to ${steps.length}, and this user may not (${(error as Error).message}). ` +
        "Run plantstore migrate as a user with the CREATE privilege; see docs/operations.md.",
      { cause: error },
    );
  }
}
