/** Listens, and shuts down without losing a request. */

import { readdirSync, statSync } from "node:fs";
import { findMetadataUrl, METADATA_PATH } from "../auth/challenge.ts";
import { createRateLimiter } from "../auth/rate-limit.ts";
import type { Config } from "../config.ts";
import type { ServedStore, Store } from "../domain/store.ts";
import { OTHER_PATH } from "../observe/metrics.ts";
import { findDescriptorsMax } from "../descriptor.ts";
import { within } from "../tick.ts";
import { JSON_TYPE } from "./body.ts";
import { Budget, LINES_SHARE, PACKING_SHARE } from "./budget.ts";
import type { Endpoint } from "./endpoint.ts";
import type { RoutedRequest, Service } from "./exchange.ts";
import { Feed } from "./feed.ts";
import { createHandler, listSentHeaders, type Kind, type Operation, type Route } from "./handle.ts";
import { Jobs } from "./job-runner.ts";
import { createHeadParser } from "./query.ts";
import { createRoutes, listOperations } from "./operations.ts";
import { CONSOLE_FOLDER, createFileRoutes } from "./static-files.ts";
import { createReadiness } from "./status.ts";
import { createTools, type Tools } from "./tools.ts";
import type { TlsPair } from "./tls.ts";

export type RunningServer = ReturnType<typeof startServer>;

interface Parts extends Pick<
  Service,
  "config" | "authenticator" | "log" | "metrics" | "reports" | "recent" | "tracer"
> {
  readonly store: ServedStore & Pick<Store, "writesWaiting">;
  readonly ratesMemory?: SharedArrayBuffer;
  readonly tls?: TlsPair | undefined;
  readonly routes: readonly Route[];
}

export function listRoutes(config: Config, consoleFolder = CONSOLE_FOLDER): readonly Route[] {
  const operations = listOperations(config);
  const files = createFileRoutes(config, consoleFolder);
  return [...createRoutes(operations), createMcpRoute(operations), ...files];
}

/** Each has its counters. */
export const pathsOf = (routes: readonly Route[]): readonly string[] => [
  ...routes.map(({ path }) => path),
  OTHER_PATH,
];

/** A HEAD is the GET of its path. */
export function createKindFinder(routes: readonly Route[]) {
  const kinds = new Map(
    routes.flatMap(({ path, operations }) =>
      Object.entries(operations).map(([method, { kind }]) => [`${method} ${path}`, kind] as const),
    ),
  );
  return (method: string, path: string): Kind | undefined =>
    kinds.get(`${method === "HEAD" ? "GET" : method} ${path}`);
}

/** Patterns of the runtime's router. The metadata is also at its own URL, outside of the base path. */
function listPatterns({ path }: Route, { basePath, jwtAudience }: Config): string[] {
  const own = basePath + path.replace(/\{(\w+)\}/, ":$1");
  const other = path === METADATA_PATH ? findMetadataUrl(jwtAudience)?.pathname : undefined;
  return other === undefined || /[:*]/.test(other) ? [own] : [own, other];
}

const GAUGES_PER_FLUSH = 30;
/** Share of the drain time for requests in flight. The rest is for closing the store. */
const DRAIN_SHARE = 0.8;

export function startServer(parts: Parts) {
  const { routes, authenticator, config, store, log, metrics } = parts;
  const readiness = createReadiness(store);
  /** Best effort: a failed write of last uses is only logged. */
  const flushUses = (): Promise<void> =>
    authenticator
      .flushUses()
      .catch((cause: unknown) => log.warn("token_uses_not_written", { cause }));
  const budget = new Budget(config.bodyBytesTotalMax);
  let metricsText: Promise<Blob> | undefined;
  const formatMetrics = async (): Promise<Blob> => {
    setGauges();
    return new Blob([await parts.reports.formatMetrics()]);
  };
  const service: Service = {
    ...parts,
    readiness,
    budget,
    lines: new Budget(config.bodyBytesTotalMax * LINES_SHARE),
    packing: new Budget(config.bodyBytesTotalMax * PACKING_SHARE),
    formatMetrics: () => (metricsText ??= formatMetrics().finally(() => (metricsText = undefined))),
    rates: createRateLimiter(config.rateLimit, parts.ratesMemory),
    feed: new Feed(store, log),
    jobs: new Jobs(parts, config.jobLostSeconds),
    sentHeaders: listSentHeaders(routes),
    addressOf: (request) => listener.requestIP(request)?.address,
    limitIdle: (request, seconds) => listener.timeout(request, seconds),
  };
  const options = {
    hostname: config.host,
    port: config.port,
    idleTimeout: config.idleSecondsMax,
    // The development error page would show our source.
    development: false,
    // By default the runtime silently shares a port that another process has.
    reusePort: isPortShared(config),
    ...(parts.tls === undefined ? {} : { tls: parts.tls }),
    // The runtime's own 413 has no body, so the service bounds bodies itself.
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    routes: Object.fromEntries(
      routes.flatMap((route) => {
        const handle = createHandler(service, route);
        return listPatterns(route, config).map((pattern) => [pattern, handle]);
      }),
    ),
    fetch: createHandler(service, undefined),
  };
  const listener = listen(options, service);
  const { hostname, port } = listener;

  const setGauges = (): void => {
    metrics.setGauge("bytesHeld", budget.bytesHeld);
    metrics.setGauge("requestsInFlight", listener.countRequests());
    metrics.setGauge("feedReaders", service.feed.readers);
    metrics.setGauge("writesWaiting", store.writesWaiting);
  };
  let seconds = 0;
  const working = setInterval(() => {
    setGauges();
    if (++seconds % GAUGES_PER_FLUSH === 0) void flushUses();
  }, 1_000).unref();
  return {
    url: `http${parts.tls === undefined ? "" : "s"}://${hostname?.includes(":") ? `[${hostname}]` : hostname}:${port}${config.basePath}`,
    /** False if the console has not been built. */
    hasConsole: routes.some(({ path }) => path === "/"),
    checkReady: readiness.check,
    /** New connections get this certificate. Those that are open stay, and none of their requests is lost. */
    replaceTls: listener.replaceTls,
    findKeysAge: (): number | undefined => authenticator.keysAgeSeconds,
    /** Lets requests in flight finish within the configured time, then cuts off the rest. */
    stop: async (): Promise<void> => {
      readiness.isDraining = true;
      await Bun.sleep(config.drainDelaySeconds * 1000);
      clearInterval(working);
      service.feed.close();
      service.rates.close();
      const drained = Promise.all([drain(listener), service.jobs.close()]);
      await within(config.drainSecondsMax * 1000 * DRAIN_SHARE, drained);
      await listener.stop(true);
      authenticator.close();
      await flushUses();
    },
  };
}

const DRAIN_POLL_MS = 20;
/** For the last answers to reach their clients. */
const CLOSE_MS = 500;

/** Resolves when every connection is closed, or every request answered: a client may keep one that it sends a body on. */
async function drain(listener: ReturnType<typeof listen>): Promise<void> {
  let isClosed = false;
  const closed = listener.stop(false).then(() => (isClosed = true));
  const isBusy = (): boolean => !isClosed && listener.countRequests() > 0;
  do {
    while (isBusy()) await Bun.sleep(DRAIN_POLL_MS);
    await within(CLOSE_MS, closed);
  } while (isBusy());
}

/** Not in the API description: MCP describes its tools itself. Loaded at the first call. */
function createMcpRoute(operations: ReturnType<typeof listOperations>): Route {
  let tools: Tools | undefined;
  const POST: Operation = {
    scopes: [],
    kind: "other",
    isWhole: false,
    body: { types: [JSON_TYPE] },
    parse: createHeadParser({}),
    run: async (_input, exchange) => {
      const { answerMcp } = await import("./mcp.ts");
      tools ??= createTools(Object.values(operations).flatMap(Object.values<Endpoint>));
      return answerMcp(exchange, tools);
    },
  };
  return { path: "/mcp", operations: { POST } };
}

type Handler = (request: RoutedRequest) => Promise<Response>;
type Options = Parameters<typeof Bun.serve<undefined>>[0] & {
  readonly port: number;
  readonly tls?: TlsPair;
  readonly routes: Readonly<Record<string, Handler>>;
  readonly fetch: Handler;
};

/** Asks the client to close the connection. */
const lastly =
  (handle: Handler): Handler =>
  async (request) => {
    const response = await handle(request);
    response.headers.set("connection", "close");
    return response;
  };

/** By threads, or by the listeners of an old and a new certificate. */
export const isPortShared = ({ workers, tlsCert }: Config): boolean =>
  workers > 1 || tlsCert !== "";

const LOOK_MS = 100;
/** In addition to the idle time, which the runtime counts in steps of 4 s. */
const RETIRE_MS = 5_000;
/** Reopens below this share, so it does not flap. */
const OPEN_SHARE = 0.875;
/** Reserved for files and threads opened later. */
export const DESCRIPTORS_SPARE = 64;

/**
 * The runtime has no connection limit, and spins when descriptors run out. So the listener closes before that: new
 * connections are refused, idle ones are closed, and requests in flight are answered.
 */
function listen(options: Options, { config, log }: Service) {
  let tls = options.tls;
  const descriptorsOwn = countDescriptors();
  const descriptorsMax = (findDescriptorsMax() ?? Infinity) - descriptorsOwn - DESCRIPTORS_SPARE;
  const connectionsMax = Math.max(1, Math.min(config.connectionsMax, descriptorsMax));
  /** Methods on a request work on any of the servers. */
  let server = Bun.serve(options);
  const port = server.port ?? options.port;
  /** Closed servers may still have connections. */
  const servers = new Set([server]);
  let isOpen = true;
  const close = (closing: typeof server): void =>
    void closing.stop().then(() => servers.delete(closing));
  const open = (): void => {
    server = Bun.serve({ ...options, port, ...(tls === undefined ? {} : { tls }) });
    servers.add(server);
  };
  const retiring = new Map<typeof server, Timer>();
  /**
   * The runtime cannot change the certificate of a listener, and one that stops closes idle connections, on which a
   * request may be on its way. So the old listener stays for as long as a connection may be idle, and its answers ask
   * clients to close theirs. Until then it accepts connections too.
   */
  const retire = (retired: typeof server): void => {
    const routes = Object.entries(options.routes).map(([path, handle]) => [path, lastly(handle)]);
    retired.reload({
      ...options,
      routes: Object.fromEntries(routes) as Options["routes"],
      fetch: lastly(options.fetch),
    });
    const end = (): void => {
      retiring.delete(retired);
      close(retired);
    };
    retiring.set(retired, setTimeout(end, RETIRE_MS + config.idleSecondsMax * 1000).unref());
  };
  const replaceTls = (pair: TlsPair): void => {
    if (pair.cert === tls?.cert && pair.key === tls.key) return;
    const [replaced, before] = [server, tls];
    tls = pair;
    if (!isOpen) return;
    try {
      open();
    } catch (error) {
      tls = before;
      throw error;
    }
    retire(replaced);
  };
  const look = (): void => {
    const connections = countDescriptors() - descriptorsOwn;
    if (isOpen && connections > connectionsMax) {
      isOpen = false;
      log.warn("connections_full", { connections, connectionsMax });
      for (const [retired, timer] of retiring) {
        clearTimeout(timer);
        close(retired);
      }
      retiring.clear();
      close(server);
    } else if (!isOpen && connections < connectionsMax * OPEN_SHARE)
      try {
        open();
        isOpen = true;
      } catch (cause) {
        // Another process has the port now. The next look retries.
        log.error("port_lost", { cause });
      }
  };
  const looking = setInterval(look, LOOK_MS).unref();
  return {
    hostname: server.hostname,
    port,
    replaceTls,
    requestIP: (request: Request) => server.requestIP(request),
    timeout: (request: Request, seconds: number) => server.timeout(request, seconds),
    countRequests: () =>
      servers.values().reduce((sum, { pendingRequests }) => sum + pendingRequests, 0),
    stop: async (isAtOnce: boolean): Promise<void> => {
      clearInterval(looking);
      retiring.forEach((timer) => clearTimeout(timer));
      await Promise.all(Array.from(servers, (each) => each.stop(isAtOnce)));
    },
  };
}

/** Open descriptors; nearly all are sockets. */
function countDescriptors(): number {
  const folder = process.platform === "linux" ? "/proc/self/fd" : "/dev/fd";
  try {
    // Linux reports the count since 6.2.
    return statSync(folder).size || readdirSync(folder).length;
  } catch {
    // No descriptor is left to read the folder.
    return Number.POSITIVE_INFINITY;
  }
}
