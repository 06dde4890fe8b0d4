/** The whole service in this process, on a free port and a database of its own. */

import { Authenticator } from "../../src/auth/authenticate.ts";
import { type Config, resolveConfig } from "../../src/config.ts";
import type { Store } from "../../src/domain/store.ts";
import { startServer } from "../../src/http/server.ts";
import { createLog } from "../../src/observe/log.ts";
import { openStore } from "../../src/store/open.ts";
import { startAcceptors } from "../../src/workers/acceptors.ts";
import { openTestDatabase, type TestDatabase } from "./database.ts";

export const TEST_TOKEN = "test-token-with-all-scopes";

export interface TestService extends AsyncDisposable {
  readonly url: string;
  readonly config: Config;
  readonly store: Store;
  readonly database: TestDatabase;
  readonly readPlants: TestDatabase["readPlants"];
  readonly findPlant: TestDatabase["findPlant"];
  readonly logLines: string[];
  /** POST /plants with a good token and media type, unless `init` says otherwise. */
  readonly create: (
    body: string | Uint8Array | ReadableStream<Uint8Array>,
    init?: RequestInit,
  ) => Promise<Response>;
}

interface Options {
  /** Of a test's own, instead of the one that has been built. */
  readonly consoleFolder?: string;
}

/** Settings by the names of environment variables, as an operator would give them. */
export async function startService(
  settings: Readonly<Record<string, string>> = {},
  options: Options = {},
): Promise<TestService> {
  await using opened = new AsyncDisposableStack();
  const database = opened.use(await openTestDatabase());
  const { config } = resolveConfig(
    {},
    {
      PORT: "0",
      PLANTSTORE_TOKEN: TEST_TOKEN,
      DATABASE_URL: database.url,
      PLANTSTORE_LOG_LEVEL: "debug",
      PLANTSTORE_WORKERS: process.env["PLANTSTORE_TEST_WORKERS"] ?? "1",
      ...settings,
    },
  );
  const logLines: string[] = [];
  const store = await openStore(config.databaseUrl, config);
  opened.defer(() => store.close());
  const writeLog = (line: string): void => void logLines.push(line);
  const server =
    config.workers === 1
      ? startServer({
          config,
          store,
          authenticator: new Authenticator(store, config.token),
          log: createLog(config.logLevel, writeLog),
          ...options,
        })
      : await startAcceptors({ config, store, writeLog });
  opened.defer(() => server.stop());
  const stack = opened.move();
  return {
    url: server.url,
    config,
    store,
    database,
    readPlants: database.readPlants,
    findPlant: database.findPlant,
    logLines,
    create: (body, init) =>
      fetch(`${server.url}/plants`, {
        method: "POST",
        body,
        ...init,
        headers: {
          authorization: `Bearer ${TEST_TOKEN}`,
          "content-type": "application/json",
          ...(init?.headers as Record<string, string> | undefined),
        },
      }),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}
