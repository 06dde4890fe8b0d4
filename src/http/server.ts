/** Listens, and stops without losing a request. */

import { createRateLimiter } from "../auth/rate-limit.ts";
import type { ServedStore, Store } from "../domain/store.ts";
import { Budget, LINES_SHARE } from "./body.ts";
import { Feed } from "./feed.ts";
import { createHandler, type Service } from "./handle.ts";
import { Listener } from "./listener.ts";
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
  const listener = new Listener(options, config, log);
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
