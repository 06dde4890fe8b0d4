/** Brings the schema up to date: once, however many instances start together. */

import { StoreOpenError } from "../../domain/errors.ts";
import type { Connection } from "./connection.ts";
import { sqlStateOf } from "./failure.ts";
import { CREATE_SCHEMA, FIRST_VERSION, migrations } from "./migrations.ts";

const READ_VERSION = "SELECT version FROM plantstore_schema WHERE id = 1";
const FIND_FOREIGN = `SELECT table_name FROM information_schema.tables
  WHERE table_schema = current_schema() AND table_name IN ('plants', 'plantstore_tokens')`;

/** Whoever has died with the lock holds the others up for so long; whoever takes longer may be joined. */
const LOCK = `UPDATE plantstore_schema
  SET locked_by = $1::text, locked_until = now() + interval '30 seconds'
  WHERE id = 1 AND (locked_by IS NULL OR locked_by = $1::text OR locked_until < now())
  RETURNING version`;
const ADVANCE = `UPDATE plantstore_schema
  SET version = $2::int, locked_until = now() + interval '30 seconds'
  WHERE id = 1 AND locked_by = $1::text AND version = $2::int - 1
  RETURNING version`;
const UNLOCK = `UPDATE plantstore_schema SET locked_by = NULL, locked_until = NULL
  WHERE id = 1 AND locked_by = $1::text`;

const LOCK_RETRY_MS = 100;
/** Several who make the same table at one time: PostgreSQL lets one win and fails the others. */
const RACE_STATES = new Set(["23505", "42P07", "42710", "40001"]);

/** An int is a number here, and a bigint on engines whose integers are longer. */
interface VersionRow {
  readonly version: number | bigint;
}

/** Undefined where plantstore has never been here. */
export async function findVersion(
  connection: Connection,
  deadlineMs: number,
): Promise<number | undefined> {
  try {
    const [row] = await connection.query<VersionRow>(READ_VERSION, [], deadlineMs);
    return row === undefined ? undefined : Number(row.version);
  } catch (error) {
    if (sqlStateOf(error) === "42P01") return undefined;
    throw error;
  }
}

export function refuseNewerSchema(version: number, location: string): void {
  if (version > migrations.length)
    throw new StoreOpenError(
      `${location} has schema ${version}, and this version of plantstore knows schemas up to ${migrations.length}. ` +
        "A newer plantstore has been here; start that one.",
    );
}

/** The statements that a migration from this version runs, as a script for whoever runs it by hand. */
export function describeMigration(version: number | undefined): readonly string[] {
  const first = version === undefined ? [CREATE_SCHEMA, FIRST_VERSION] : [];
  const steps = migrations
    .slice(version ?? 0)
    .flatMap((step, index) => [
      step,
      `UPDATE plantstore_schema SET version = ${(version ?? 0) + index + 1} WHERE id = 1`,
    ]);
  return [...first, ...steps];
}

/** Resolves to the version that was there before. */
export async function migrate(
  connection: Connection,
  location: string,
  deadlineMs: number,
): Promise<number> {
  const before = await findVersion(connection, deadlineMs);
  refuseNewerSchema(before ?? 0, location);
  if (before === migrations.length) return before;
  try {
    if (before === undefined) await begin(connection, location, deadlineMs);
    await advance(connection, location, deadlineMs);
  } catch (error) {
    if (sqlStateOf(error) !== "42501") throw error;
    throw new StoreOpenError(
      `${location} needs its schema migrated from ${before ?? "nothing"} to ${migrations.length}, and this user may not (${(error as Error).message}). ` +
        "Run plantstore migrate as one who may; see docs/scaling.md.",
      { cause: error },
    );
  }
  return before ?? 0;
}

async function begin(connection: Connection, location: string, deadlineMs: number): Promise<void> {
  const foreign = await connection.query<{ table_name: string }>(FIND_FOREIGN, [], deadlineMs);
  // Another instance may have made them a moment ago.
  if (foreign.length > 0 && (await findVersion(connection, deadlineMs)) === undefined)
    throw new StoreOpenError(
      `${location} has a table ${foreign[0]?.table_name} that plantstore did not make. It was left alone; use a database or schema of its own.`,
    );
  for (const statement of [CREATE_SCHEMA, FIRST_VERSION])
    await winning(() => connection.queryPatiently(statement, deadlineMs));
}

/** A race that was lost is as good as one that was won. */
async function winning(race: () => Promise<unknown>): Promise<void> {
  for (let tries = 0; tries < 10; tries++) {
    try {
      await race();
      return;
    } catch (error) {
      if (!RACE_STATES.has(sqlStateOf(error) ?? "")) throw error;
      await Bun.sleep(LOCK_RETRY_MS * Math.random());
    }
  }
  await race();
}

async function advance(
  connection: Connection,
  location: string,
  deadlineMs: number,
): Promise<void> {
  const owner = crypto.randomUUID();
  for (;;) {
    const [locked] = await connection.query<VersionRow>(LOCK, [owner], deadlineMs);
    const version = Number(locked?.version);
    if (locked !== undefined && (await takeSteps(connection, owner, version, deadlineMs))) return;
    const reached = await findVersion(connection, deadlineMs);
    refuseNewerSchema(reached ?? 0, location);
    if (reached === migrations.length) return;
    if (performance.now() > deadlineMs)
      throw new StoreOpenError(`${location} is being migrated by another instance.`);
    await Bun.sleep(LOCK_RETRY_MS);
  }
}

/** False where somebody else has taken the lock meanwhile. */
async function takeSteps(
  connection: Connection,
  owner: string,
  version: number,
  deadlineMs: number,
): Promise<boolean> {
  for (const [index, step] of migrations.entries()) {
    if (index < version) continue;
    await winning(() => connection.queryPatiently(step, deadlineMs));
    const advanced = await connection.query(ADVANCE, [owner, index + 1], deadlineMs);
    if (advanced.length === 0) return false;
  }
  await connection.query(UNLOCK, [owner], deadlineMs);
  return true;
}
