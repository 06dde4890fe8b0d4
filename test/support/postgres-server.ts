/** A PostgreSQL server of the test's own: started, killed, paused and started again at will. */

import { SQL } from "bun";
import { appendFileSync, closeSync, cpSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeTemporaryFolder } from "./folder.ts";
import {
  findFreePort,
  findPostgresBinaries,
  HOSTNAME,
  makeDataFolder,
  type PostgresOptions,
  spawnOptions,
} from "./postgres-files.ts";
import {
  guardFolder,
  killProcesses,
  listChildren,
  removeServerFolder,
  signal,
  stopProcesses,
} from "./processes.ts";
import { until } from "./until.ts";

/** Resolves when the server answers. */
export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const folder = makeTemporaryFolder().path;
  guardFolder(folder);
  try {
    await makeDataFolder(join(folder, "data"), options);
    const server = new PostgresServer(folder, findFreePort(), options);
    await server.start();
    return server;
  } catch (error) {
    removeServerFolder(folder);
    throw error;
  }
}

let shared: Promise<PostgresServer> | undefined;
let databaseCount = 0;

/** One for all tests of this process; it ends with the process. A test that kills or pauses a server starts its own. */
export function sharedPostgres(): Promise<PostgresServer> {
  return (shared ??= startPostgres({
    settings: { shared_buffers: "32MB", max_connections: "100", log_statement: "ddl" },
  }));
}

/** Empty, on that server or the shared one. Dropping it ends all connections to it. */
export async function createTestDatabase(on?: PostgresServer) {
  const server = on ?? (await sharedPostgres());
  const name = `test_${++databaseCount}`;
  // After a file copy, which is no faster, dropping takes twenty times as long.
  await server.run(`CREATE DATABASE ${name} TEMPLATE template0 STRATEGY wal_log`);
  return {
    url: server.urlOf(name),
    name,
    run: <Row = Record<string, unknown>>(statement: string) => server.run<Row>(statement, name),
    async [Symbol.asyncDispose](): Promise<void> {
      await server.run(`DROP DATABASE ${name} WITH (FORCE)`);
    },
  };
}

/**
 * A user with an empty schema, which is all that the service needs. Dropping a database takes a checkpoint, so hundreds
 * of milliseconds; dropping a schema takes a few, and it ends all connections of the user too.
 */
export async function createTestSchema(
  server: PostgresServer,
  isolation: "serializable" | "read committed",
): Promise<AsyncDisposable & { readonly url: string }> {
  const name = `test_${++databaseCount}`;
  await server.run(`DO $$ BEGIN
    CREATE ROLE ${name} SUPERUSER LOGIN;
    ALTER ROLE ${name} SET default_transaction_isolation TO '${isolation}';
    ALTER ROLE ${name} SET search_path TO ${name};
    CREATE SCHEMA ${name} AUTHORIZATION ${name};
  END $$`);
  return {
    url: `postgres://${name}@${HOSTNAME}:${server.port}/postgres`,
    async [Symbol.asyncDispose]() {
      await server.run(`ALTER ROLE ${name} NOLOGIN`);
      await server.run(`DO $$ BEGIN
        PERFORM pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = '${name}';
        DROP SCHEMA ${name} CASCADE;
      END $$`);
    },
  };
}

export class PostgresServer implements AsyncDisposable {
  readonly port: number;
  readonly dataFolder: string;
  readonly #folder: string;
  readonly #logPath: string;
  readonly #settings: Readonly<Record<string, string>>;
  readonly #environment: Readonly<Record<string, string>>;
  #child: Bun.Subprocess | undefined;

  constructor(folder: string, port: number, { settings, environment }: PostgresOptions = {}) {
    this.port = port;
    this.dataFolder = join(folder, "data");
    this.#folder = folder;
    this.#logPath = join(folder, "log");
    this.#settings = settings ?? {};
    this.#environment = environment ?? {};
  }

  get url(): string {
    return this.urlOf("postgres");
  }

  urlOf(database: string): string {
    return `postgres://postgres@${HOSTNAME}:${this.port}/${database}`;
  }

  /** The process id of the postmaster; another one after every start. */
  get pid(): number {
    if (this.#child === undefined) throw new Error("the PostgreSQL server is not running");
    return this.#child.pid;
  }

  /** Everything logged so far, by every start. */
  log(): string {
    return readFileSync(this.#logPath, "utf8");
  }

  /** Rows of one statement, over a connection of its own; int8 is a bigint. */
  async run<Row = Record<string, unknown>>(text: string, database = "postgres"): Promise<Row[]> {
    await using db = new SQL(this.urlOf(database), { tls: false, max: 1, bigint: true });
    return [...((await db.unsafe(text)) as Row[])];
  }

  /** Again, on the same folder and port, after a kill or a stop. Resolves when the server answers. */
  async start(): Promise<void> {
    if (this.#child !== undefined) throw new Error("the PostgreSQL server is running already");
    const settings = {
      listen_addresses: HOSTNAME,
      port: String(this.port),
      unix_socket_directories: "",
      // Where it goes with the folder, even when the server is killed.
      dynamic_shared_memory_type: "mmap",
      ...this.#settings,
    };
    const log = openSync(this.#logPath, "a");
    const child = Bun.spawn(
      [
        join(findPostgresBinaries(), "postgres"),
        "-D",
        this.dataFolder,
        ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
      ],
      {
        ...spawnOptions,
        env: { ...spawnOptions.env, ...this.#environment },
        stdin: "ignore",
        stdout: log,
        stderr: log,
      },
    );
    closeSync(log);
    child.unref();
    this.#child = child;
    await until("PostgreSQL answers", () => {
      if (child.exitCode === null && child.signalCode === null) return this.#answers();
      throw new Error(`PostgreSQL did not start:\n${this.log()}`);
    });
  }

  async restart(): Promise<void> {
    await this.stop("fast");
    await this.start();
  }

  /** "fast" leaves everything in order; "immediate" as a crash does, but tells the clients. */
  async stop(mode: "fast" | "immediate"): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    child.ref();
    signal(child.pid, mode === "fast" ? "SIGINT" : "SIGQUIT");
    this.resume();
    await child.exited;
    this.#child = undefined;
  }

  /** The whole server at once, as when the machine is switched off. Resolves when nothing of it is left. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    child.ref();
    await stopProcesses(child.pid);
    // A child that lived on would hold the shared memory, and the next start would be refused.
    await killProcesses(...this.#listChildren(), child.pid);
    await child.exited;
    this.#child = undefined;
  }

  /** Connections stay, new ones are accepted by the kernel, and nothing answers. */
  async pause(): Promise<void> {
    await stopProcesses(this.pid);
    await stopProcesses(...this.#listChildren());
  }

  resume(): void {
    for (const pid of [...this.#listChildren(), this.pid]) signal(pid, "SIGCONT");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop("immediate");
    removeServerFolder(this.#folder);
  }

  /** Every backend and every worker is a child of the postmaster, which alone starts them. */
  #listChildren(): number[] {
    return listChildren(this.pid).map(({ pid }) => pid);
  }

  /** As long as another server answers on the port, this one is not there yet. */
  #answers(): Promise<boolean> {
    return this.run("SELECT current_setting('data_directory') AS folder").then(
      ([row]) => row?.["folder"] === this.dataFolder,
      () => false,
    );
  }
}

/** Synchronous: a commit is acknowledged only when the standby has it on disk too. Resolves when the standby follows. */
export async function startPair({ synchronous }: { readonly synchronous: boolean }) {
  await using started = new AsyncDisposableStack();
  // A copy of the data folder before its first start is a base backup.
  const backup = join(started.use(makeTemporaryFolder()).path, "data");
  const primary = started.use(
    await startPostgres({
      settings: {
        wal_keep_size: "1GB",
        ...(synchronous ? { synchronous_standby_names: "*" } : {}),
      },
      prepare: (dataFolder) => cpSync(dataFolder, backup, { recursive: true }),
    }),
  );
  const standby = started.use(
    await startPostgres({
      settings: {
        wal_retrieve_retry_interval: "100ms",
        // Otherwise the primary removes old rows that a query of the test on the standby still sees, and it is cancelled.
        hot_standby_feedback: "on",
      },
      takeOver: backup,
      prepare: (dataFolder) => {
        writeFileSync(join(dataFolder, "standby.signal"), "");
        appendFileSync(
          join(dataFolder, "postgresql.auto.conf"),
          `primary_conninfo = 'host=${HOSTNAME} port=${primary.port} user=postgres application_name=standby'\n`,
        );
      },
    }),
  );
  const isFollowed = `SELECT FROM pg_stat_replication
    WHERE state = 'streaming' AND sync_state = '${synchronous ? "sync" : "async"}'`;
  await until("the standby follows", async () => (await primary.run(isFollowed)).length > 0);
  const both = started.move();
  return {
    primary,
    /** Answers queries, but writes nothing, until it is promoted. */
    standby,
    /** Resolves when the standby receives nothing more. */
    cutOff: async (): Promise<void> => {
      await standby.run("ALTER SYSTEM SET primary_conninfo = ''");
      await standby.run("SELECT pg_reload_conf()");
      const isReceiving = async (): Promise<boolean> =>
        (await standby.run("SELECT FROM pg_stat_wal_receiver")).length > 0;
      await until("the standby receives nothing", async () => !(await isReceiving()));
    },
    /** Resolves when the standby accepts writes. From then on it has no standby of its own to wait for. */
    promote: async (): Promise<void> => {
      const [row] = await standby.run("SELECT pg_promote() AS promoted");
      if (row?.["promoted"] !== true) throw new Error(`it was not promoted:\n${standby.log()}`);
    },
    [Symbol.asyncDispose]: () => both.disposeAsync(),
  };
}
