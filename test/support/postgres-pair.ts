/** A PostgreSQL server with another one that follows it and can take its place. */

import { cpSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeTemporaryFolder } from "./folder.ts";
import { HOSTNAME } from "./postgres-folder.ts";
import { type PostgresServer, startPostgres } from "./postgres-server.ts";

const STREAM_MS_MAX = 30_000;

export interface PairOptions {
  /** Whether a commit is acknowledged only when the standby has it on disk as well. */
  readonly synchronous: boolean;
  /** For both servers. */
  readonly settings?: Readonly<Record<string, string>>;
}

export interface PostgresPair extends AsyncDisposable {
  readonly primary: PostgresServer;
  /** Answers queries, but writes nothing, until it is promoted. */
  readonly standby: PostgresServer;
  /** Resolves when the standby accepts writes. It waits for nobody's acknowledgement then. */
  readonly promote: () => Promise<void>;
}

/** Resolves when the standby has caught up and follows. */
export async function startPair({ synchronous, settings }: PairOptions): Promise<PostgresPair> {
  await using started = new AsyncDisposableStack();
  // A copy of the data folder before its first start is a base backup.
  const backup = join(started.use(makeTemporaryFolder()).path, "data");
  const primary = started.use(
    await startPostgres({
      settings: {
        ...settings,
        wal_keep_size: "1GB",
        ...(synchronous ? { synchronous_standby_names: "*" } : {}),
      },
      prepare: (dataFolder) => cpSync(dataFolder, backup, { recursive: true }),
    }),
  );
  const standby = started.use(
    await startPostgres({
      settings: {
        ...settings,
        primary_conninfo: `host=${HOSTNAME} port=${primary.port} user=postgres application_name=standby`,
        wal_retrieve_retry_interval: "100ms",
      },
      takeOver: backup,
      prepare: (dataFolder) => writeFileSync(join(dataFolder, "standby.signal"), ""),
    }),
  );
  await untilFollowed(primary, synchronous ? "sync" : "async");
  const both = started.move();
  return {
    primary,
    standby,
    promote: async () => {
      const [row] = await standby.run("SELECT pg_promote() AS promoted");
      if (row?.["promoted"] !== true) throw new Error(`it was not promoted:\n${standby.log()}`);
    },
    [Symbol.asyncDispose]: () => both.disposeAsync(),
  };
}

async function untilFollowed(primary: PostgresServer, sync: "sync" | "async"): Promise<void> {
  const startedAtMs = performance.now();
  const query = `SELECT FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '${sync}'`;
  while ((await primary.run(query)).length === 0) {
    if (performance.now() - startedAtMs > STREAM_MS_MAX)
      throw new Error(`the standby does not follow:\n${primary.log()}`);
    await Bun.sleep(10);
  }
}
