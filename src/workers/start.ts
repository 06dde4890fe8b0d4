/** Starts HTTP: a server on this thread and, with --workers, on other threads that share its port. */

import { join } from "node:path";
import { openAuthenticator } from "../auth/token.ts";
import { RATES_BYTES } from "../auth/rate-limit.ts";
import type { Config } from "../config.ts";
import type { Route } from "../http/handle.ts";
import { createKindFinder, isPortShared, type RunningServer, startServer } from "../http/server.ts";
import type { Tls, TlsPair } from "../http/tls.ts";
import { createReporter, type Reporter, type ServiceFacts } from "../observe/reporter.ts";
import type { Log } from "../observe/log.ts";
import type { Tracer } from "../observe/tracer.ts";
import { Metrics } from "../observe/metrics.ts";
import {
  type RecentRequest,
  RecentRequests,
  type RequestQuery,
} from "../observe/recent-requests.ts";
import type { ServedStores } from "../store/open.ts";
import { type Answer, onMessage, startThread, toFailed } from "../thread.ts";
import { type ClockOrder, shareClock } from "../tick.ts";

export interface WorkerSetup {
  readonly config: Config;
  /** The worker counts only; the first thread aggregates. */
  readonly metricsMemory: SharedArrayBuffer;
  /** Shared by all threads. */
  readonly ratesMemory: SharedArrayBuffer;
  readonly link: ServedStores["links"][number];
  readonly tls: TlsPair | undefined;
  readonly questions: MessagePort;
}

/** What only the first thread knows. */
export type Question =
  | { readonly asks: "activity"; readonly sinceMs: number; readonly query: RequestQuery }
  | { readonly asks: "metrics" | "backups" };

export type FromWorker = Readonly<{ logLine: string }>;

/** `query` asks for its recent requests. */
export type WorkerOrder =
  "start" | "stop" | ClockOrder | Readonly<{ tls: TlsPair }> | Readonly<{ query: RequestQuery }>;

interface Parts {
  readonly config: Config;
  readonly served: ServedStores;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly writeLog: (line: string) => void;
  readonly facts?: ServiceFacts | undefined;
  readonly tracer?: Tracer | undefined;
  readonly routes: readonly Route[];
  readonly tls?: Tls | undefined;
}

/** Rejects, and leaves nothing running, if a thread cannot listen. */
export async function startHttp(parts: Parts): Promise<RunningServer> {
  const { served, metrics, writeLog, facts, tls } = parts;
  const { store, links } = served;
  const reservation = holdPort(parts.config);
  // Each thread gets a share of the memory budget, at least enough for one body.
  const { bodyBytesMax, bodyBytesTotalMax, workers: threads } = parts.config;
  const config = {
    ...parts.config,
    port: reservation.port,
    bodyBytesTotalMax: Math.max(bodyBytesMax, Math.floor(bodyBytesTotalMax / threads)),
  };
  const ratesMemory = new SharedArrayBuffer(RATES_BYTES);
  const memories = links.map(() => new SharedArrayBuffer(Metrics.bytesOf(metrics.paths)));
  const blocks = [metrics, ...memories.map((memory) => new Metrics(metrics.paths, memory))];
  const recent = new RecentRequests();
  const reporter = createReporter(blocks, {
    ...facts,
    tls: tls?.state,
    store,
    limits: parts.config,
    kindOf: createKindFinder(parts.routes),
    checkReady: () => server.checkReady(),
    findKeysAge: () => server.findKeysAge(),
    findRequests: (query) => [
      Promise.resolve(recent.find(query)),
      ...workers.map((worker) => worker.findRequests(query)),
    ],
  });
  const workers = links.map((link, index) => {
    const metricsMemory = memories[index] as SharedArrayBuffer;
    const setup = { config, metricsMemory, ratesMemory, link, tls: tls?.pair };
    return startWorker(setup, writeLog, reporter);
  });
  let server: RunningServer;
  try {
    // Threads need descriptors, so they start before there are connections.
    await Promise.all(workers.map((worker) => worker.listening));
    const authenticator = await openAuthenticator(store, config, parts.log);
    const own = { config, store, authenticator, reports: reporter, recent, ratesMemory };
    server = startServer({ ...parts, ...own, tls: tls?.pair });
  } catch (error) {
    await Promise.all(workers.map((worker) => worker.stop()));
    throw error;
  } finally {
    reservation.release();
  }
  reporter.start();
  tls?.watch(async (pair) => {
    server.replaceTls(pair);
    await Promise.all(workers.map((worker) => worker.replaceTls(pair)));
  });
  return {
    ...server,
    stop: async () => {
      await tls?.close();
      await Promise.all([server, ...workers].map((thread) => thread.stop()));
      reporter.stop();
    },
  };
}

function startWorker(
  setup: Omit<WorkerSetup, "questions">,
  writeLog: (line: string) => void,
  reporter: Reporter,
) {
  const { link } = setup;
  const { port1, port2: questions } = new MessageChannel();
  const ports = link === undefined ? [questions] : [questions, link.writes, link.reads];
  const thread = startThread(join(import.meta.dir, "http-worker"), { ...setup, questions }, ports);
  thread.ended.catch(() => port1.close());
  const ask = (order: WorkerOrder): Promise<unknown> => thread.ask(order);
  const listening = shareClock(ask).then(() => ask("start"));
  let isStopping = false;
  // Rethrown on this thread, which has the handler for it. Before it listens, the start fails.
  const watch = () =>
    thread.ended.catch((error: unknown) => {
      if (!isStopping) throw error;
    });
  listening.then(watch, () => undefined);
  const make = async (question: Question) => {
    if (question.asks === "activity")
      return reporter.readActivity(question.sinceMs, question.query);
    return question.asks === "metrics" ? reporter.formatMetrics() : reporter.areBackupsFailing();
  };
  onMessage(
    port1,
    (question: Question) =>
      void make(question)
        .then((value): Answer => ({ value }), toFailed)
        .then((answer) => port1.postMessage(answer)),
  );
  thread.worker.addEventListener("message", ({ data }) => {
    const { logLine } = data as Partial<FromWorker>;
    if (logLine !== undefined) writeLog(logLine);
  });
  return {
    listening,
    findRequests: (query: RequestQuery) => ask({ query }) as Promise<readonly RecentRequest[]>,
    replaceTls: (tls: TlsPair) => ask({ tls }),
    async stop(): Promise<void> {
      isStopping = true;
      await listening.then(() => ask("stop")).catch(() => undefined);
      thread.end();
    },
  };
}

/**
 * Fails if another process has the port. Any process could join a port shared by threads: until they listen, a socket
 * name holds a given port, and a listener one that the system chose.
 */
export function holdPort(config: Config) {
  const { host, port: wanted } = config;
  const isShared = isPortShared(config);
  const isChosen = isShared && wanted === 0;
  // In the abstract namespace of Linux: unique on the machine, and gone when the process ends. Before the port is tried.
  const name =
    isShared && !isChosen && process.platform === "linux"
      ? Bun.listen({ unix: `\0plantstore/${host}:${wanted}`, socket: { data: () => undefined } })
      : undefined;
  try {
    const alone = Bun.serve({
      hostname: host,
      port: wanted,
      reusePort: isChosen,
      development: false,
      // Never called: the listener is closed at once, or its port is not announced yet.
      fetch: () => new Response(null, { status: 503 }),
    });
    if (!isChosen) void alone.stop(true);
    const release = (): void => {
      void alone.stop(true);
      name?.stop(true);
    };
    return { port: isShared ? (alone.port ?? wanted) : wanted, release };
  } catch (error) {
    name?.stop(true);
    throw error;
  }
}
