/** Listens, and stops listening without losing a request. */

import type { Store } from "../domain/store.ts";
import { Metrics } from "../observe/metrics.ts";
import { type Observations, Observatory } from "../observe/observatory.ts";
import { BodyReader } from "./body.ts";
import { CONSOLE_FOLDER } from "./console-pages.ts";
import { createHandler } from "./handle.ts";
import { Readiness } from "./health.ts";
import { createPageRoutes, createRoutes } from "./routes.ts";
import type { Service } from "./service.ts";

export interface RunningServer {
  readonly url: string;
  /** False where it has not been built: the service does without it. */
  readonly hasConsole: boolean;
  /** Stops accepting, lets what is in flight finish within the configured time, then cuts off the rest. */
  readonly stop: () => Promise<void>;
}

type Parts = Pick<Service, "config" | "store" | "authenticator" | "log"> & {
  /** Where the console has been built. */
  readonly consoleFolder?: string;
  /** Where several threads listen on the port: what this one counts, others add up. */
  readonly shared?: Observed;
};

interface Observed {
  readonly metrics: Metrics;
  readonly observations: Observations;
  readonly stop?: () => void;
}

const FLUSH_USES_MS = 30_000;

export function startServer(given: Parts): RunningServer {
  const { consoleFolder = CONSOLE_FOLDER, shared, ...parts } = given;
  const { config, store } = parts;
  // Of several, each asks anew: the one that they ask sees to it that probes are few.
  const readiness = shared === undefined ? new Readiness(store) : new Readiness(store, 0);
  const { metrics, observations, stop: stopObserving } = shared ?? observeAlone(store);
  const service: Service = {
    ...parts,
    readiness,
    metrics,
    observations,
    bodies: new BodyReader(config),
    limitIdle: (request, seconds) => server.timeout(request, seconds),
  };
  const routes = [...createRoutes(config), ...createPageRoutes(config, consoleFolder)];
  limitHeads(config.headerBytesMax);
  const server = Bun.serve({
    hostname: config.host,
    port: config.port,
    idleTimeout: config.idleSecondsMax,
    // Its own error page would show our source, its own 413 would have no body: both are ours to answer.
    development: false,
    // Outside development the runtime shares a taken port with whoever has it, without a word.
    reusePort: shared !== undefined,
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    routes: Object.fromEntries(
      routes.map((route) => [config.basePath + route.path, createHandler(service, route)]),
    ),
    fetch: createHandler(service, undefined),
  });

  const flushing = setInterval(() => void flushUses(service), FLUSH_USES_MS);
  flushing.unref();
  return {
    url: `http://${server.hostname?.includes(":") ? `[${server.hostname}]` : server.hostname}:${server.port}${config.basePath}`,
    hasConsole: routes.some(({ path }) => path === "/"),
    stop: async () => {
      readiness.drain();
      stopObserving?.();
      clearInterval(flushing);
      await Bun.sleep(config.drainDelaySeconds * 1000);
      const drained = server.stop();
      await Promise.race([drained, Bun.sleep(config.drainSecondsMax * 1000)]);
      await server.stop(true);
      await flushUses(service);
    },
  };
}

function observeAlone(store: Store): Observed {
  const metrics = new Metrics();
  const observatory = new Observatory([metrics], store);
  observatory.start();
  return { metrics, observations: observatory, stop: () => observatory.stop() };
}

/** When a token was last used is good to know, and no reason to fail. */
async function flushUses({ authenticator, log }: Service): Promise<void> {
  try {
    await authenticator.flushUses();
  } catch (cause) {
    log.warn("token_uses_not_written", { cause });
  }
}

/** What the runtime starts with. */
let headerBytesMaxInForce = 16_384;

/** The runtime has one global for this, for its own kind of server too, in a module that takes 7 MB: so only on demand. */
function limitHeads(headerBytesMax: number): void {
  if (headerBytesMax === headerBytesMaxInForce) return;
  const http: { maxHeaderSize: number } = process.getBuiltinModule("node:http");
  http.maxHeaderSize = headerBytesMax;
  headerBytesMaxInForce = headerBytesMax;
}
