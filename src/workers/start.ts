/** Starts HTTP workers: threads that share one port, in front of one store. This thread owns the store and writes. */

import { join } from "node:path";
import { MessageChannel, type MessagePort, Worker } from "node:worker_threads";
import { RATES_BYTES } from "../auth/rate-limit.ts";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import type { RunningServer } from "../http/server.ts";
import { createReadiness } from "../http/status.ts";
import type { FailedRequest } from "../observe/activity.ts";
import { Metrics, METRICS_BYTES } from "../observe/metrics.ts";
import { createReporter, type MetricsReporter, type ServiceFacts } from "../observe/reporter.ts";
import { createCallee, type Methods } from "./remote-store.ts";

/** What a worker is started with. */
export interface WorkerSetup {
  /** With the port that was chosen for all workers. */
  readonly config: Config;
  /** The worker counts in this memory, and this thread reads it. */
  readonly metricsMemory: SharedArrayBuffer;
  /** All workers count what a token uses in this memory. */
  readonly ratesMemory: SharedArrayBuffer;
  /** Carries calls of the store and their results. */
  readonly calls: MessagePort;
  /** Shared by all workers: when one of them last called the store, in milliseconds since 1970. */
  readonly calledAtMs: Float64Array;
}

interface Listening extends Pick<RunningServer, "url" | "hasConsole"> {
  /** The paths that the worker counts, in order. */
  readonly metricsPaths: readonly string[];
}

export type FromWorker =
  | { readonly logLine: string }
  | { readonly failure: FailedRequest }
  | { readonly listening: Listening }
  | "stopped";

interface Parts {
  readonly config: Config;
  readonly store: Store;
  readonly writeLog: (line: string) => void;
  readonly facts?: ServiceFacts;
}

/** Rejects, and leaves nothing running, if a worker cannot listen. */
export async function startWorkers(parts: Parts): Promise<RunningServer> {
  const { config, store, writeLog, facts } = parts;
  const held = holdPort(config);
  // A worker's share of the memory for bodies: at least enough for one body.
  const bodyBytesTotalMax = Math.max(
    config.bodyBytesMax,
    Math.floor(config.bodyBytesTotalMax / config.workers),
  );
  const setup = {
    calledAtMs: new Float64Array(new SharedArrayBuffer(Float64Array.BYTES_PER_ELEMENT)),
    config: { ...config, bodyBytesTotalMax, port: held.port },
    ratesMemory: new SharedArrayBuffer(RATES_BYTES),
  };
  const memories = Array.from(
    { length: config.workers },
    () => new SharedArrayBuffer(METRICS_BYTES),
  );
  const workers = memories.map((metricsMemory) =>
    startWorker({ ...setup, metricsMemory }, writeLog),
  );
  const stop = async (): Promise<void> => {
    await Promise.all(workers.map((worker) => worker.stop()));
    held.release();
  };
  try {
    const listening = await Promise.all(workers.map((worker) => worker.listening));
    const { url, hasConsole, metricsPaths } = listening[0] as Listening;
    const readiness = createReadiness(store);
    const reporter = createReporter(
      memories.map((memory) => new Metrics(memory, metricsPaths)),
      { ...facts, store, limits: config, findReadiness: readiness.findLast },
    );
    const { readActivity, formatMetrics } = reporter;
    // One probe serves the clients of all workers.
    const others = { readActivity, formatMetrics, probe: () => readiness.check() };
    for (const worker of workers) worker.serve(store, others, reporter.noteFailure);
    reporter.start();
    return {
      url,
      hasConsole,
      stop: async () => {
        readiness.isDraining = true;
        await stop();
        reporter.stop();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

function startWorker(setup: Omit<WorkerSetup, "calls">, writeLog: (line: string) => void) {
  const { port1, port2: calls } = new MessageChannel();
  const worker = new Worker(join(import.meta.dir, "http-worker"), {
    workerData: { ...setup, calls } satisfies WorkerSetup,
    transferList: [calls],
  });
  const started = Promise.withResolvers<Listening>();
  const ended = Promise.withResolvers<void>();
  let isListening = false;
  let isStopping = false;
  let onFailure: MetricsReporter["noteFailure"] | undefined;
  /** An uncaught defect of a worker becomes one of this thread, which has the handler for it. */
  const fail = (error: unknown): void => {
    isStopping = true;
    ended.resolve();
    started.reject(error);
    if (isListening)
      queueMicrotask(() => {
        throw error as Error;
      });
  };
  worker.on("message", (message: FromWorker) => {
    if (message === "stopped") ended.resolve();
    else if ("logLine" in message) writeLog(message.logLine);
    else if ("failure" in message) onFailure?.(message.failure);
    else {
      isListening = true;
      started.resolve(message.listening);
    }
  });
  worker.on("error", fail);
  worker.on("exit", () => {
    if (!isStopping) fail(new Error("an HTTP worker has ended"));
    ended.resolve();
  });
  return {
    listening: started.promise,
    serve(store: Store, others: Methods, noteFailure: MetricsReporter["noteFailure"]): void {
      onFailure = noteFailure;
      const answer = createCallee(store, others, (results) => port1.postMessage(results));
      port1.on("message", answer);
    },
    async stop(): Promise<void> {
      isStopping = true;
      worker.postMessage("stop");
      await ended.promise;
      port1.close();
      await worker.terminate();
    },
  };
}

/**
 * A port that can be shared can be shared with any process. So the port is first taken alone, which fails if
 * another process has it; then a name is held, which a second service could not take.
 */
function holdPort({ host, port: wanted }: Config) {
  const alone = Bun.serve({
    hostname: host,
    port: wanted,
    reusePort: false,
    development: false,
    // Never called: the listener closes in the same tick.
    fetch: () => new Response(null, { status: 503 }),
  });
  try {
    const port = alone.port ?? wanted;
    // In the abstract namespace: one for the machine, and gone when the process ends.
    const name = `\0plantstore/${host}:${port}`;
    const held = Bun.listen({ unix: name, socket: { data: () => undefined } });
    return { port, release: () => held.stop(true) };
  } finally {
    void alone.stop(true);
  }
}
