/** Listens, and stops without losing a request. */

import { readdirSync, readFileSync, statSync } from "node:fs";
import { createRateLimiter } from "../auth/rate-limit.ts";
import type { ServedStore, Store } from "../domain/store.ts";
import { Budget, LINES_SHARE, type Service } from "./exchange.ts";
import { Feed } from "./feed.ts";
import { createHandler } from "./handle.ts";
import { createRoutes, describeApi, listOperations } from "./operations.ts";
import { CONSOLE_FOLDER, createFileRoutes } from "./static-files.ts";
import { createReadiness } from "./status.ts";

export interface RunningServer {
  readonly url: string;
  /** False if the console has not been built. */
  readonly hasConsole: boolean;
  /** Whether a write was committed within the last second. */
  readonly isReady: () => Promise<boolean>;
  /** Stops accepting, lets requests in flight finish within the configured time, then cuts off the rest. */
  readonly stop: () => Promise<void>;
}

interface Parts extends Pick<Service, "config" | "authenticator" | "log" | "metrics" | "reports"> {
  readonly store: ServedStore & Pick<Store, "writesWaiting">;
  /** Of all threads that share the port. */
  readonly ratesMemory?: SharedArrayBuffer;
  readonly consoleFolder?: string | undefined;
}

const GAUGES_MS = 1_000;
const GAUGES_A_FLUSH = 30;

export function startServer(given: Parts): RunningServer {
  const { consoleFolder = CONSOLE_FOLDER, authenticator, config, store, log, metrics } = given;
  const readiness = createReadiness(store);
  /** A failure to store when a token was last used fails nothing else. */
  const flushUses = (): Promise<void> =>
    authenticator
      .flushUses()
      .catch((cause: unknown) => log.warn("token_uses_not_written", { cause }));
  const budget = new Budget(config.bodyBytesTotalMax);
  const service: Service = {
    ...given,
    readiness,
    budget,
    lines: new Budget(config.bodyBytesTotalMax * LINES_SHARE),
    reports: {
      ...given.reports,
      formatMetrics: () => {
        setGauges();
        return given.reports.formatMetrics();
      },
    },
    rates: createRateLimiter(config.rateLimit, given.ratesMemory),
    feed: new Feed(store, log),
    addressOf: (request) => listener.server.requestIP(request)?.address,
    limitIdle: (request, seconds) => listener.server.timeout(request, seconds),
  };
  const operations = listOperations(config, JSON.stringify(describeApi(config)));
  const routes = [...createRoutes(operations), ...createFileRoutes(config, consoleFolder)];
  const options = {
    hostname: config.host,
    port: config.port,
    idleTimeout: config.idleSecondsMax,
    // The error page of development would show our source.
    development: false,
    // Outside development the runtime silently shares a port that another process has.
    reusePort: config.workers > 1,
    // The runtime's own 413 has no body, so the service bounds bodies itself.
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    routes: Object.fromEntries(
      routes.map((route) => [
        config.basePath + route.path.replace(/\{(\w+)\}/, ":$1"),
        createHandler(service, route),
      ]),
    ),
    fetch: createHandler(service, undefined),
  };
  const listener = new Listener(options, service);
  const { hostname, port } = listener.server;

  const setGauges = (): void => {
    metrics.setGauge("bytesHeld", budget.bytesHeld);
    metrics.setGauge("requestsInFlight", listener.requestsInFlight);
    metrics.setGauge("feedReaders", service.feed.readers);
    metrics.setGauge("writesWaiting", store.writesWaiting);
  };
  let seconds = 0;
  const working = setInterval(() => {
    setGauges();
    if (++seconds % GAUGES_A_FLUSH === 0) void flushUses();
  }, GAUGES_MS);
  working.unref();
  return {
    url: `http://${hostname?.includes(":") ? `[${hostname}]` : hostname}:${port}${config.basePath}`,
    hasConsole: routes.some(({ path }) => path === "/"),
    isReady: () =>
      readiness.check().then(
        () => true,
        () => false,
      ),
    stop: async () => {
      readiness.isDraining = true;
      await Bun.sleep(config.drainDelaySeconds * 1000);
      clearInterval(working);
      service.feed.close();
      service.rates.close();
      const drained = listener.stop(false);
      await Promise.race([drained, Bun.sleep(config.drainSecondsMax * 1000)]);
      await listener.stop(true);
      await flushUses();
    },
  };
}

type Options = Parameters<typeof Bun.serve<undefined>>[0] & { port: number };
type Server = ReturnType<typeof Bun.serve<undefined>>;

const LOOK_MS = 100;
/** It opens again below this, so it does not flap. */
const OPEN_SHARE = 0.875;
/** For files and threads that are opened later. */
const DESCRIPTORS_SPARE = 64;

/**
 * The runtime has no bound of its own. At the limit of descriptors it polls a connection that waits without a pause, so
 * the listener closes before that too. A new connection is refused then, connections without a request are closed, and
 * requests in flight are answered.
 */
class Listener {
  private readonly options: Options;
  private readonly log: Service["log"];
  private readonly connectionsMax: number;
  private readonly descriptorsOwn = countDescriptors();
  private readonly looking: ReturnType<typeof setInterval>;
  /** Those before it may still have connections. */
  private readonly servers: Set<Server>;
  private isOpen = true;
  /** Methods that concern a request work on any server. */
  server: Server;

  constructor(options: Options, { config, log }: Service) {
    this.server = Bun.serve(options);
    this.servers = new Set([this.server]);
    this.options = { ...options, port: this.server.port ?? options.port };
    this.log = log;
    const descriptors = findDescriptorsMax() - this.descriptorsOwn - DESCRIPTORS_SPARE;
    this.connectionsMax = Math.max(1, Math.min(config.connectionsMax, descriptors));
    this.looking = setInterval(() => this.look(), LOOK_MS);
    this.looking.unref();
  }

  get requestsInFlight(): number {
    return this.servers.values().reduce((sum, { pendingRequests }) => sum + pendingRequests, 0);
  }

  /** Resolves when every connection has ended. */
  async stop(isAtOnce: boolean): Promise<void> {
    clearInterval(this.looking);
    await Promise.all(Array.from(this.servers, (server) => server.stop(isAtOnce)));
  }

  private look(): void {
    const connections = countDescriptors() - this.descriptorsOwn;
    if (this.isOpen && connections > this.connectionsMax) this.close(connections);
    else if (!this.isOpen && connections < this.connectionsMax * OPEN_SHARE) this.open();
  }

  private close(connections: number): void {
    const { server, connectionsMax } = this;
    this.isOpen = false;
    this.log.warn("connections_full", { connections, connectionsMax });
    void server.stop().then(() => this.servers.delete(server));
  }

  private open(): void {
    try {
      this.server = Bun.serve(this.options);
      this.servers.add(this.server);
      this.isOpen = true;
    } catch (cause) {
      // Another process has the port now. It is tried again.
      this.log.error("port_lost", { cause });
    }
  }
}

/** Sockets are nearly all of them. */
function countDescriptors(): number {
  const folder = process.platform === "linux" ? "/proc/self/fd" : "/dev/fd";
  try {
    // Linux tells since 6.2.
    return statSync(folder).size || readdirSync(folder).length;
  } catch {
    // None is left to look with.
    return Number.POSITIVE_INFINITY;
  }
}

function findDescriptorsMax(): number {
  try {
    const limits = readFileSync("/proc/self/limits", "latin1");
    return Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Number.POSITIVE_INFINITY);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
