/** A service in this process whose way to its PostgreSQL database can be disturbed, and a look behind its back. */

import { send, type Sent } from "./client.ts";
import type { StoredPlant } from "./plants.ts";
import { createTestDatabase, type PostgresServer, sharedPostgres } from "./postgres-server.ts";
import { type Proxy, startProxy } from "./proxy.ts";
import { startService, type TestService } from "./service.ts";

export interface DisturbedService extends AsyncDisposable {
  readonly service: TestService;
  readonly proxy: Proxy;
  readonly database: string;
  readonly send: (method: string, path: string, sent?: Sent) => Promise<Response>;
  /** By a way that is not disturbed. */
  readonly run: (statement: string) => Promise<Record<string, unknown>[]>;
  readonly readPlants: () => Promise<StoredPlant[]>;
  readonly countConnections: () => Promise<number>;
  /** Resolves when nothing of the service is connected to the server any more. */
  readonly stop: () => Promise<void>;
}

export interface DisturbedOptions {
  /** Else the one that the tests share. */
  readonly server?: PostgresServer;
  readonly settings?: Readonly<Record<string, string>>;
}

export async function startDisturbed({
  server,
  settings,
}: DisturbedOptions = {}): Promise<DisturbedService> {
  await using started = new AsyncDisposableStack();
  const postgres = server ?? (await sharedPostgres());
  const { name } = started.use(await createTestDatabase(postgres));
  const proxy = started.use(await startProxy(postgres.port));
  const service = await startService({
    DATABASE_URL: `postgres://postgres@127.0.0.1:${proxy.port}/${name}?sslmode=disable`,
    ...settings,
  });
  let stopping: PromiseLike<void> | undefined;
  const stop = async (): Promise<void> => {
    await (stopping ??= service[Symbol.asyncDispose]());
  };
  started.defer(stop);
  const stack = started.move();
  const run = (statement: string): Promise<Record<string, unknown>[]> =>
    postgres.run(statement, name);
  return {
    service,
    proxy,
    database: name,
    send: (method, path, sent) => send(service, method, path, sent),
    run,
    readPlants: () =>
      postgres.run<StoredPlant>("SELECT id, name, tag FROM plants ORDER BY id", name),
    countConnections: async () => {
      const [row] = await run(
        "SELECT count(*) AS count FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'plantstore'",
      );
      return Number(row?.["count"]);
    },
    stop,
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}
