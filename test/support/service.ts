/** The whole service in this process, on a free port and a database of its own. */

import { afterAll } from "bun:test";
import { basename, join } from "node:path";
import type { Writer } from "../../src/domain/change.ts";
import { mintToken, type TokenGrant, toRecord } from "../../src/auth/token.ts";
import { findTracing, resolveConfig } from "../../src/config.ts";
import { type Scope, scopes } from "../../src/domain/token.ts";
import { listRoutes, pathsOf } from "../../src/http/server.ts";
import { createLog } from "../../src/observe/log.ts";
import type { ServiceFacts } from "../../src/observe/reporter.ts";
import { Metrics } from "../../src/observe/metrics.ts";
import { createTracer } from "../../src/observe/tracer.ts";
import { openServed } from "../../src/store/open.ts";
import { startHttp } from "../../src/workers/start.ts";
import { isBuilt } from "./command.ts";
import { readLimits } from "./limits.ts";
import { openTestDatabase } from "./database.ts";
import { type StoredPlant, toBody } from "./plants.ts";

/** The store's threads as they are shipped: compiling their sources takes half of the CPU time of a start. */
if (isBuilt) {
  const folder = join(import.meta.dir, "../../dist/service");
  globalThis.Worker = class extends Worker {
    constructor(file: string | URL, options?: WorkerOptions) {
      const name = basename(String(file));
      super(/^(store|reader)-worker$/.test(name) ? join(folder, `${name}.js`) : file, options);
    }
  };
}

export const TEST_TOKEN = "test-token-with-all-scopes";

export type TestService = Awaited<ReturnType<typeof startService>>;

interface Options {
  /** The test's own console instead of the built one. */
  readonly consoleFolder?: string;
  readonly facts?: ServiceFacts;
}

/** Settings by the names of environment variables, as an operator would give them. */
export async function startService(
  settings: Readonly<Record<string, string | undefined>> = {},
  { consoleFolder, facts }: Options = {},
) {
  await using opened = new AsyncDisposableStack();
  const database = opened.use(await openTestDatabase());
  const environment = {
    PORT: "0",
    PLANTSTORE_TOKEN: TEST_TOKEN,
    DATABASE_URL: database.url,
    PLANTSTORE_LOG_LEVEL: "debug",
    PLANTSTORE_WORKERS: process.env["PLANTSTORE_TEST_WORKERS"] ?? "1",
    ...settings,
  };
  const { config } = resolveConfig({}, environment, readLimits(settings));
  const logLines: string[] = [];
  const routes = listRoutes(config, consoleFolder);
  const metrics = new Metrics(pathsOf(routes));
  const writeLog = (line: string): void => void logLines.push(line);
  const log = createLog(config.logLevel, writeLog);
  const tracing = findTracing(config);
  const tracer = tracing && createTracer(tracing, config, metrics, log);
  opened.defer(() => tracer?.close());
  const served = await openServed(
    config.databaseUrl,
    { ...config, onCommit: metrics.countCommit, tracing: tracer },
    config.workers,
  );
  const { store } = served;
  opened.defer(() => store.close());
  const server = await listen(() =>
    startHttp({ config, served, routes, metrics, log, writeLog, facts, tracer }),
  );
  opened.defer(() => server.stop());
  const stack = opened.move();
  return {
    url: server.url,
    config,
    store,
    tracer,
    database,
    readPlants: database.readPlants,
    findPlant: database.findPlant,
    logLines,
    /** POST /plants with a good token and media type, unless `more` says otherwise. */
    create: (body: Sent["body"] & {}, more: Sent = {}): Promise<Response> =>
      send(server, "POST", "/plants", { body, ...more }),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

/** One service for all tests of a file. */
export async function startShared(...given: Parameters<typeof startService>): Promise<TestService> {
  const service = await startService(...given);
  afterAll(() => service[Symbol.asyncDispose]());
  return service;
}

/** Threads agree on a free port before each of them takes it. Meanwhile a client of another test may have got it. */
async function listen<Server>(start: () => Promise<Server>, tries = 5): Promise<Server> {
  try {
    return await start();
  } catch (error) {
    if ((error as { code?: string }).code !== "EADDRINUSE" || tries === 1) throw error;
    return listen(start, tries - 1);
  }
}

export interface Sent extends Pick<BunFetchRequestInit, "signal" | "keepalive" | "tls"> {
  readonly body?: string | Uint8Array | ReadableStream<Uint8Array>;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The operation that answered, for `expectError`. */
export const askedOf = new WeakMap<Response, readonly [method: string, path: string]>();

export async function send(
  service: Pick<TestService, "url">,
  method: string,
  path: string,
  sent: Sent = {},
): Promise<Response> {
  const type = sent.body !== undefined && { "content-type": "application/json" };
  const headers = { ...bearer(), ...type, ...sent.headers };
  const response = await fetch(service.url + path, { method, ...sent, headers });
  askedOf.set(response, [method, path.replace(/[?#].*/s, "")]);
  return response;
}

export const bearer = (token = TEST_TOKEN) => ({ authorization: `Bearer ${token}` });

/** The body of a 200. */
export async function getText(service: Pick<TestService, "url">, path: string): Promise<string> {
  const response = await send(service, "GET", path);
  if (response.status !== 200) throw new Error(`${path} answers ${response.status}`);
  return response.text();
}

/** A figure of GET /metrics, by its name and labels; NaN if there is none. */
export async function readMetric(service: Pick<TestService, "url">, name: string): Promise<number> {
  const lines = (await getText(service, "/metrics")).split("\n");
  return Number(lines.find((line) => line.startsWith(`${name} `))?.slice(name.length));
}

export const getJson = async <Json>(service: TestService, path: string): Promise<Json> =>
  JSON.parse(await getText(service, path)) as Json;

/** POST /plants/batch with NDJSON. */
export const sendLines = (
  service: TestService,
  body: NonNullable<Sent["body"]>,
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> =>
  send(service, "POST", "/plants/batch", {
    body,
    headers: { "content-type": "application/x-ndjson", ...headers },
  });

/** Plants with ids from 0 on, in the store; `writer` is whom the journal names. */
export const storePlants = (
  { store }: Pick<TestService, "store">,
  count: number,
  name = "n",
  writer?: Writer,
): Promise<unknown> =>
  store.createPlants(
    Array.from({ length: count }, (_, id) => ({ id: BigInt(id), name, tag: undefined })),
    writer,
  );

export async function removeAll({ store, readPlants }: TestService): Promise<void> {
  const plants = await readPlants();
  await store.writePlants(plants.map(({ id }) => ({ kind: "remove", id, condition: {} })));
}

export const sendPlant = (url: string, plant: StoredPlant, token?: string): Promise<Response> =>
  send({ url }, "POST", "/plants", { body: toBody(plant), headers: bearer(token) });

/** A new token in the store. */
export async function grantToken(
  { store }: Pick<TestService, "store">,
  granted: readonly Scope[] = scopes,
  more: Partial<TokenGrant> = {},
): Promise<string> {
  const token = mintToken();
  const grant = { name: crypto.randomUUID(), scopes: granted, createdAtMs: Date.now(), ...more };
  if (!(await store.createToken(toRecord(token, grant)))) throw new Error("the name is taken");
  return token;
}

/** Follows the links to the last page. */
export async function walkPages(
  service: TestService,
  path: string,
  headers: Sent["headers"] & {} = {},
): Promise<{ items: unknown[]; pages: number }> {
  const items: unknown[] = [];
  let pages = 0;
  for (let next: string | undefined = path; next !== undefined; pages++) {
    const response = await send(service, "GET", next, { headers });
    if (response.status !== 200) throw new Error(`${next} answers ${response.status}`);
    items.push(...((await response.json()) as unknown[]));
    next = /^<([^>]*)>; rel="next"$/.exec(response.headers.get("link") ?? "")?.[1];
  }
  return { items, pages };
}
