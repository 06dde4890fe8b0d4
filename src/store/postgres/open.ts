/** From the target of a URL to a store whose schema is up to date. */

import type { StoreLimits } from "../../domain/store.ts";
import type { ServerLimits } from "../open.ts";
import { StoreOpenError } from "../../domain/errors.ts";
import type { Connection } from "./connection.ts";
import { Hosts } from "./hosts.ts";
import { Lanes } from "./lanes.ts";
import { describeMigration, findVersion, migrate, refuseNewerSchema } from "./migrate.ts";
import { migrations } from "./migrations.ts";
import { PostgresStore } from "./postgres-store.ts";
import { describeTarget, type Target } from "./url.ts";

/** Time for a migration, and for another instance to be done with it. */
const MIGRATE_SECONDS_MAX = 600;

type OpenLimits = Pick<StoreLimits & ServerLimits, "queueSecondsMax" | "statementSecondsMax">;

/** A server that is just coming up is waited for as long as a request would wait for it. */
export async function openPostgresStore(
  target: Target,
  limits: StoreLimits & ServerLimits,
): Promise<PostgresStore> {
  const location = describeTarget(target);
  const durability = await onServer(target, limits, async (connection) => {
    await migrate(connection, location, migrateDeadline());
    return connection.durability;
  });
  return new PostgresStore(
    createHosts(target, limits),
    { engine: "PostgreSQL", location, durability },
    limits,
  );
}

export interface FoundSchema {
  readonly location: string;
  /** Undefined where plantstore has never been here. */
  readonly version: number | undefined;
  readonly newest: number;
}

/** Changes nothing. */
export async function findSchema(target: Target, limits: OpenLimits): Promise<FoundSchema> {
  const location = describeTarget(target);
  const deadlineMs = startDeadline(limits);
  const version = await onServer(target, limits, (connection) =>
    findVersion(connection, deadlineMs),
  );
  refuseNewerSchema(version ?? 0, location);
  return { location, version, newest: migrations.length };
}

export interface Migrated {
  readonly location: string;
  readonly before: number;
  readonly after: number;
}

export async function migratePostgres(target: Target, limits: OpenLimits): Promise<Migrated> {
  const location = describeTarget(target);
  const before = await onServer(target, limits, (connection) =>
    migrate(connection, location, migrateDeadline()),
  );
  return { location, before, after: migrations.length };
}

/** The statements that `migratePostgres` would run, each without its semicolon. */
export async function planMigration(
  target: Target,
  limits: OpenLimits,
): Promise<readonly string[]> {
  const { version } = await findSchema(target, limits);
  return version === migrations.length ? [] : describeMigration(version);
}

const createHosts = (target: Target, { statementSecondsMax }: OpenLimits): Hosts =>
  new Hosts({ target, statementMsMax: statementSecondsMax * 1000 });

const startDeadline = ({ queueSecondsMax }: OpenLimits): number =>
  performance.now() + queueSecondsMax * 1000;

const migrateDeadline = (): number => performance.now() + MIGRATE_SECONDS_MAX * 1000;

/** Does something on a connection of its own, and says in a sentence why it cannot. */
export async function onServer<Result>(
  target: Target,
  limits: OpenLimits,
  work: (connection: Connection) => Promise<Result>,
): Promise<Result> {
  const lanes = new Lanes(createHosts(target, limits), { lanesMax: 1, waitingMax: 0 });
  try {
    return await lanes.run(startDeadline(limits), work);
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    if (cause instanceof StoreOpenError) throw cause;
    throw new StoreOpenError(
      `${describeTarget(target)} cannot be opened: ${(cause as Error).message.replace(/\.$/, "")}.`,
      { cause },
    );
  } finally {
    lanes.close();
  }
}
