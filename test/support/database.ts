/** A database for one test, with direct access past the service. */

import { SQL } from "bun";
import { Database } from "bun:sqlite";
import { type Config, resolveConfig } from "../../src/config.ts";
import type { ErrorName } from "../../src/domain/errors.ts";
import type { OnMigrate, Store } from "../../src/domain/store.ts";
import { parsePostgresUrl } from "../../src/store-url.ts";
import { openStore } from "../../src/store/open.ts";
import type { Connection } from "../../src/store/postgres/connection.ts";
import { onServer } from "../../src/store/postgres/pool.ts";
import { readLimits } from "./limits.ts";
import { makeTemporaryFolder } from "./folder.ts";
import type { StoredPlant } from "./plants.ts";
import {
  createTestSchema,
  type PostgresServer,
  sharedPostgres,
  startPostgres,
} from "./postgres-server.ts";
import { alter, findPlant, readNumber, readPlants } from "./stores.ts";
import { until } from "./until.ts";

/** A server of the tester's own, in place of the one that comes with npm. Each test makes a database there. */
const URL_VARIABLE = "PLANTSTORE_TEST_URL";
const engines = ["sqlite", "postgres", "postgres-serializable"] as const;

export type Engine = (typeof engines)[number];

/** Over which engine the tests run. */
export const engine: Engine = (process.env["PLANTSTORE_TEST_ENGINE"] ?? "sqlite") as Engine;
if (!engines.includes(engine))
  throw new Error(`PLANTSTORE_TEST_ENGINE is none of ${engines.join()}`);

/** How a request is refused that others hold up for too long; or as `store_unavailable`, if it has begun by then. */
export const heldUp: ErrorName = engine === "sqlite" ? "store_busy" : "store_down";

/** By connections of its own: what it sees is what has been committed. */
export interface TestDatabase extends AsyncDisposable {
  /** As `DATABASE_URL` has it. Empty until a store is opened there. */
  readonly url: string;
  /** Where the file is. Throws on an engine that has none. */
  readonly path: string;
  /** Every plant, in the order of their ids. */
  readonly readPlants: () => Promise<StoredPlant[]>;
  readonly findPlant: (id: bigint) => Promise<StoredPlant | undefined>;
  /** A statement that every engine understands. */
  readonly run: (statement: string) => Promise<void>;
  /** How many intervals services have run for, and how many marks are kept of them. */
  readonly readMark: () => Promise<number>;
  readonly countMarks: () => Promise<number>;
  /** All changes so far are older than they are kept: the next trim leaves only the newest. */
  readonly ageChanges: () => Promise<void>;
  /** From now on the engine itself refuses to store a plant of this name, by a message with "failed by a test". */
  readonly failPlantsNamed: (name: string) => Promise<void>;
  readonly holdWrites: () => Promise<HeldWrites>;
}

/** Until the release no other connection can write. Reads still work. */
interface HeldWrites extends AsyncDisposable {
  /** Resolves when others can write again. A second time it does nothing. */
  readonly release: () => Promise<void>;
}

export async function openTestDatabase(on: Engine = engine): Promise<TestDatabase> {
  return on === "sqlite" ? openSqliteDatabase() : openPostgresDatabase(on);
}

/** The same with these variables for a database server, which is then the test's own. */
export async function openTestDatabaseWith(
  environment: Readonly<Record<string, string>>,
): Promise<TestDatabase> {
  if (engine === "sqlite") return openSqliteDatabase();
  const server = await startPostgres({ environment });
  const database = await openPostgresDatabase(engine, server);
  const close = database[Symbol.asyncDispose];
  return Object.assign(database, {
    async [Symbol.asyncDispose](): Promise<void> {
      await close();
      await server[Symbol.asyncDispose]();
    },
  });
}

/** Nothing stays open between two calls: a connection that outlives a crash would spare the next store its recovery. */
function openSqliteDatabase(): TestDatabase {
  const folder = makeTemporaryFolder();
  const path = `${folder.path}/plants.db`;
  return {
    url: `sqlite:${path}`,
    path,
    readPlants: async () => readPlants(path),
    findPlant: async (id) => findPlant(path, id),
    run: async (statement) => run(path, statement),
    readMark: async () => readNumber(path, "SELECT max(number) FROM journal_marks"),
    countMarks: async () => readNumber(path, "SELECT count(*) FROM journal_marks"),
    ageChanges: async () => run(path, ageChanges("")),
    failPlantsNamed: async (name) =>
      run(
        path,
        `CREATE TRIGGER fail BEFORE INSERT ON plants WHEN NEW.name = '${name}'
          BEGIN SELECT RAISE(ABORT, 'failed by a test'); END`,
      ),
    holdWrites: async () => lockFile(path),
    async [Symbol.asyncDispose]() {
      folder[Symbol.dispose]();
    },
  };
}

/** Only what is sent to the service has to be durable, and not what a test undoes between two runs. */
const run = (path: string, statement: string): void =>
  alter(path, "PRAGMA synchronous = OFF", statement);

function lockFile(path: string): HeldWrites {
  const holder = new Database(path, { readwrite: true, create: false });
  holder.run("PRAGMA busy_timeout = 60000");
  holder.run("BEGIN IMMEDIATE");
  // Closing rolls back, and a second time does nothing.
  const release = async (): Promise<void> => holder.close();
  return { release, [Symbol.asyncDispose]: release };
}

async function openPostgresDatabase(on: Engine, server?: PostgresServer): Promise<TestDatabase> {
  const serverUrl = server === undefined ? process.env[URL_VARIABLE] : undefined;
  const isolation = on === "postgres-serializable" ? "serializable" : "read committed";
  const database =
    serverUrl === undefined
      ? await createTestSchema(server ?? (await sharedPostgres()), isolation)
      : await createDatabaseOn(serverUrl);
  const { url } = database;
  const db = connect(url);
  return {
    url,
    get path(): string {
      throw new Error("PostgreSQL has no file of its own for a database");
    },
    readPlants: async () => [
      ...(await db<StoredPlant[]>`SELECT id, name, tag FROM plants ORDER BY id`),
    ],
    findPlant: async (id) =>
      (await db<StoredPlant[]>`SELECT id, name, tag FROM plants WHERE id = ${id}`)[0],
    run: async (statement) => void (await db.unsafe(statement)),
    readMark: async () =>
      Number((await db`SELECT max(number) AS number FROM plantstore_journal_marks`)[0].number),
    countMarks: async () =>
      Number((await db`SELECT count(*) AS number FROM plantstore_journal_marks`)[0].number),
    ageChanges: async () => void (await db.unsafe(ageChanges("plantstore_"))),
    failPlantsNamed: async (name) =>
      void (await db.unsafe(
        `ALTER TABLE plants ADD CONSTRAINT "failed by a test" CHECK (name <> '${name}')`,
      )),
    holdWrites: () => lockTables(url),
    async [Symbol.asyncDispose]() {
      await db.close();
      await database[Symbol.asyncDispose]();
    },
  };
}

/** Two marks, further apart than the default retention in minutes. */
const ageChanges = (prefix: string): string => `INSERT INTO ${prefix}journal_marks (number, change)
  SELECT number, (SELECT max(last) FROM ${prefix}changes)
  FROM (SELECT 1000000 AS number UNION ALL SELECT 2000000) AS marks`;

const connect = (url: string): SQL => new SQL(url, { max: 1, bigint: true });

/** With statements that every engine which calls itself compatible should know. */
async function createDatabaseOn(
  serverUrl: string,
): Promise<AsyncDisposable & { readonly url: string }> {
  const name = `plantstore_test_${crypto.randomUUID().replaceAll("-", "")}`;
  const server = connect(serverUrl);
  await server.unsafe(`CREATE DATABASE ${name}`);
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return {
    url: url.href,
    async [Symbol.asyncDispose]() {
      const drop = async (): Promise<boolean> =>
        server.unsafe(`DROP DATABASE ${name}`).then(
          () => true,
          () => false,
        );
      await until("the connections to the test's database are closed", drop);
      await server.close();
    },
  };
}

/** EXCLUSIVE lets others read, and neither write nor lock a row. */
async function lockTables(url: string): Promise<HeldWrites> {
  const holder = connect(url);
  const tables = await holder<{ name: string }[]>`
    SELECT quote_ident(tablename) AS name FROM pg_tables WHERE schemaname = current_schema()`;
  await holder.unsafe("BEGIN");
  await holder.unsafe(`LOCK TABLE ${tables.map(({ name }) => name).join()} IN EXCLUSIVE MODE`);
  // Closing alone would roll back as well, at some time after it.
  let releasing: Promise<void> | undefined;
  const release = (): Promise<void> =>
    (releasing ??= holder.unsafe("ROLLBACK").then(() => holder.close()));
  return { release, [Symbol.asyncDispose]: release };
}

type TestStore = Store & AsyncDisposable & { readonly database: TestDatabase };

/** By a URL, with default settings but for these. Closed with the test. */
export async function openStoreAt(
  url: string,
  { onMigrate, ...limits }: Partial<Config> & { readonly onMigrate?: OnMigrate } = {},
): Promise<Store & AsyncDisposable> {
  const store = await openStore(url, { ...resolveConfig({}, {}).config, ...limits }, onMigrate);
  return Object.assign(store, { [Symbol.asyncDispose]: () => store.close() });
}

/** On a connection whose rows are shown to the test before they are handed on; and on the connection itself. */
export const onWatched = <Result>(
  url: string,
  onRows: (rows: readonly object[]) => unknown,
  use: (watched: Connection, connection: Connection) => Promise<Result>,
): Promise<Result> =>
  onServer(parsePostgresUrl(url), resolveConfig({}, {}).config, (connection) => {
    const watched = Object.create(connection) as Connection;
    watched.query = async <Row>(...asked: Parameters<Connection["query"]>) => {
      const rows = await connection.query<Row>(...asked);
      await onRows(rows as readonly object[]);
      return rows;
    };
    return use(watched, connection);
  });

/** A store in that database, or in one of its own. Gone with the test. */
export async function openTestStore(
  limits: Partial<Config> = {},
  given?: TestDatabase,
): Promise<TestStore> {
  const database = given ?? (await openTestDatabase());
  const { config } = resolveConfig({}, { DATABASE_URL: database.url }, readLimits({}));
  const store = await openStore(config.databaseUrl, { ...config, ...limits });
  const dispose = async (): Promise<void> => {
    await store.close();
    if (given === undefined) await database[Symbol.asyncDispose]();
  };
  return Object.assign(store, { database, [Symbol.asyncDispose]: dispose });
}
