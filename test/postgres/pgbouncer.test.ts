/** Behind PgBouncer in transaction mode, where two statements in a row may reach two server connections. */

import { SQL } from "bun";
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runCommand } from "../support/command.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { makePlants, type StoredPlant } from "../support/plants.ts";
import { findFreePort, giveToServer, HOSTNAME, spawnOptions } from "../support/postgres-files.ts";
import {
  createTestDatabase,
  type PostgresServer,
  sharedPostgres,
} from "../support/postgres-server.ts";
import { guardFolder, runSync } from "../support/processes.ts";
import { sendPlant, startService, type TestService } from "../support/service.ts";
import { until } from "../support/until.ts";

/** Debian has it where only root looks for programs. */
const BINARY = Bun.which("pgbouncer") ?? ["/usr/sbin/pgbouncer"].find((path) => existsSync(path));

/** A database gets two server connections, for however many clients. */
async function startPgbouncer(serverPort: number) {
  if (BINARY === undefined) throw new Error("PgBouncer is not here");
  const folder = makeTemporaryFolder();
  guardFolder(folder.path);
  const port = findFreePort();
  const settings = join(folder.path, "pgbouncer.ini");
  const log = join(folder.path, "log");
  // It has no statements of its own to replace named ones by: before 1.21 it could not, since then it need not.
  const version = runSync([BINARY, "--version"]).stdout.toString();
  const canReplace = !/ 1\.(\d|1\d|20)\./.test(version);
  writeFileSync(
    settings,
    `[databases]
* = host=${HOSTNAME} port=${serverPort} user=postgres
[pgbouncer]
listen_addr = ${HOSTNAME}
listen_port = ${port}
unix_socket_dir =
auth_type = any
admin_users = postgres
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
logfile = ${log}
${canReplace ? "max_prepared_statements = 0" : ""}
`,
  );
  giveToServer(folder.path);
  const child = Bun.spawn([BINARY, "-q", settings], {
    ...spawnOptions,
    stdio: ["ignore", "ignore", "ignore"],
  });
  const urlOf = (database: string): string => `postgres://postgres@${HOSTNAME}:${port}/${database}`;
  const ask = async (): Promise<unknown> => {
    await using admin = new SQL(urlOf("pgbouncer"), { max: 1, tls: false });
    return await admin.unsafe("SHOW VERSION").simple();
  };
  const stop = async (): Promise<void> => {
    child.kill("SIGKILL");
    await child.exited;
    folder[Symbol.dispose]();
  };
  await until("PgBouncer answers", async () => {
    if (child.exitCode !== null) throw new Error(`it ended: ${readFileSync(log, "utf8")}`);
    return ask().then(
      () => true,
      () => false,
    );
  });
  return { urlOf, [Symbol.asyncDispose]: stop };
}

const SERVICES = 3;
const PLANTS = 300;

describe.skipIf(BINARY === undefined)("several services behind PgBouncer", () => {
  const opened = new AsyncDisposableStack();
  let server: PostgresServer;
  let database: string;
  let bouncer: Awaited<ReturnType<typeof startPgbouncer>>;
  let services: TestService[];

  beforeAll(async () => {
    server = await sharedPostgres();
    database = opened.use(await createTestDatabase(server)).name;
    bouncer = opened.use(await startPgbouncer(server.port));
    const settings = { DATABASE_URL: bouncer.urlOf(database) };
    // Together, as they would come up: one of them makes the schema.
    services = await Promise.all(Array.from({ length: SERVICES }, () => startService(settings)));
    for (const service of services) opened.use(service);
  });
  afterAll(() => opened.disposeAsync());

  const plants = makePlants(PLANTS, (index) => ({
    id: BigInt(index),
    name: `fern ${index}`,
    tag: index % 3 === 0 ? "green" : null,
  }));
  /** Each plant to one of them, and the next to the next. */
  const create = (shift: number): Promise<number[]> =>
    Promise.all(
      plants.map(async (plant, index) => {
        const service = services[(index + shift) % SERVICES] as TestService;
        return (await sendPlant(service.url, plant)).status;
      }),
    );

  test("create every plant once, though all are sent to two of them", async () => {
    const statuses = (await Promise.all([create(0), create(1)])).flat();
    expect(statuses).toEqual(Array.from({ length: 2 * PLANTS }, () => 200));
    const stored = "SELECT id, name, tag FROM plants ORDER BY id";
    expect(await server.run<StoredPlant>(stored, database)).toEqual(plants);
  });

  test("are ready, and leave no setting behind in the sessions that they share", async () => {
    for (const { store } of services) await store.probe();
    await create(2);
    const settings = `SELECT name FROM pg_settings
      WHERE source = 'session' AND name IN ('lock_timeout', 'synchronous_commit', 'work_mem')`;
    await using shared = new SQL(bouncer.urlOf(database), { max: 4, tls: false, prepare: false });
    const found = await Promise.all(
      Array.from({ length: 8 }, () => shared.unsafe(settings).simple()),
    );
    expect(found.map((rows: unknown[]) => rows.length)).toEqual(found.map(() => 0));
  });

  test("honour and refuse tokens that commands make and revoke", async () => {
    const env = { DATABASE_URL: bouncer.urlOf(database) };
    const made = await runCommand(["token", "create", "--name", "clerk"], env);
    expect(made.exitCode).toBe(0);
    const token = /pst_\w+/.exec(made.stdout)?.[0] ?? "";
    const ask = (service: TestService): Promise<Response> =>
      fetch(`${service.url}/plants`, { headers: { authorization: `Bearer ${token}` } });
    for (const service of services) expect((await ask(service)).status).toBe(200);
    expect((await runCommand(["token", "list"], env)).stdout).toContain("clerk");
    expect((await runCommand(["token", "revoke", "clerk"], env)).exitCode).toBe(0);
    for (const service of services) while ((await ask(service)).status !== 401) await Bun.sleep(50);
    expect((await runCommand(["check"], env)).exitCode).toBe(0);
  });
});
