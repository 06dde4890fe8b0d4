/** Listens, and stops listening without losing a request. */

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
  readonly shared?: { readonly metrics: Metrics; readonly observations: Observations };
};

export function startServer(given: Parts): RunningServer {
  const { consoleFolder = CONSOLE_FOLDER, shared, ...parts } = given;
  const { config, store } = parts;
  const readiness = new Readiness(store);
  const metrics = shared?.metrics ?? new Metrics();
  const observatory = new Observatory([metrics], store);
  const service: Service = {
    ...parts,
    readiness,
    metrics,
    observations: shared?.observations ?? observatory,
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

  if (shared === undefined) observatory.start();
  return {
    url: `http://${server.hostname?.includes(":") ? `[${server.hostname}]` : server.hostname}:${server.port}${config.basePath}`,
    hasConsole: routes.some(({ path }) => path === "/"),
    stop: async () => {
      readiness.drain();
      observatory.stop();
      await Bun.sleep(config.drainDelaySeconds * 1000);
      const drained = server.stop();
      await Promise.race([drained, Bun.sleep(config.drainSecondsMax * 1000)]);
      await server.stop(true);
    },
  };
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
