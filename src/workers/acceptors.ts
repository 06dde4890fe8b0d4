/** Several threads that accept requests on one port, in front of one store: this thread owns it, and alone writes. */

import { MessageChannel, Worker } from "node:worker_threads";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import { Readiness } from "../http/health.ts";
import type { RunningServer } from "../http/server.ts";
import { Metrics, METRICS_BYTES } from "../observe/metrics.ts";
import { Observatory } from "../observe/observatory.ts";
import { Callee, type Calls, type Methods } from "./calls.ts";
import { methodsOf } from "./linked-store.ts";
import type { AcceptorSetup, FromAcceptor, Listening, ToAcceptor } from "./messages.ts";
import { holdPort } from "./port.ts";

interface Parts {
  readonly config: Config;
  readonly store: Store;
  readonly writeLog: (line: string) => void;
}

/** Rejects, and leaves nothing behind, where one of them cannot listen. */
export async function startAcceptors({ config, store, writeLog }: Parts): Promise<RunningServer> {
  const held = holdPort(config);
  const setup = {
    config: { ...config, ...shareOf(config), port: held.port },
    store: store.description,
  };
  const memories = Array.from(
    { length: config.workers },
    () => new SharedArrayBuffer(METRICS_BYTES),
  );
  const acceptors = memories.map(
    (metricsMemory) => new Acceptor({ ...setup, metricsMemory }, writeLog),
  );
  const stop = async (): Promise<void> => {
    await Promise.all(acceptors.map((acceptor) => acceptor.stop()));
    held[Symbol.dispose]();
  };
  try {
    const listening = await Promise.all(acceptors.map((acceptor) => acceptor.listening));
    const { url, hasConsole, metricsPaths } = listening[0] as Listening;
    const observatory = new Observatory(
      memories.map((memory) => new Metrics(memory, metricsPaths)),
      store,
    );
    const { listSamples, formatMetrics } = observatory;
    const readiness = new Readiness(store);
    const methods = {
      ...methodsOf(store),
      listSamples,
      formatMetrics,
      // However many ask, on whichever thread.
      probe: () => readiness.check(),
    };
    for (const acceptor of acceptors) acceptor.serve(methods);
    observatory.start();
    return {
      url,
      hasConsole,
      stop: async () => {
        observatory.stop();
        await stop();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Of what all together may hold in memory, and enough for one body in any case. */
const shareOf = (config: Config): Pick<Config, "bodyBytesTotalMax"> => ({
  bodyBytesTotalMax: Math.max(
    config.bodyBytesMax,
    Math.floor(config.bodyBytesTotalMax / config.workers),
  ),
});

class Acceptor {
  private readonly worker: Worker;
  private readonly channel = new MessageChannel();
  private readonly started = Promise.withResolvers<Listening>();
  private readonly ended = Promise.withResolvers<void>();
  private isListening = false;
  private isStopping = false;

  constructor(setup: Omit<AcceptorSetup, "calls">, writeLog: (line: string) => void) {
    const { port2: calls } = this.channel;
    this.worker = new Worker(new URL("acceptor.ts", import.meta.url), {
      workerData: { ...setup, calls } satisfies AcceptorSetup,
      transferList: [calls],
    });
    this.worker.on("message", (message: FromAcceptor) => {
      if (message === "stopped") this.ended.resolve();
      else if ("logLine" in message) writeLog(message.logLine);
      else {
        this.isListening = true;
        this.started.resolve(message.listening);
      }
    });
    this.worker.on("error", (error) => this.fail(error));
    this.worker.on("exit", () => {
      if (!this.isStopping) this.fail(new Error("a thread that accepts requests has ended"));
      this.ended.resolve();
    });
  }

  get listening(): Promise<Listening> {
    return this.started.promise;
  }

  serve(methods: Methods): void {
    const { port1 } = this.channel;
    const callee = new Callee(methods, (results) => port1.postMessage(results));
    port1.on("message", (calls: Calls) => callee.answer(calls));
  }

  async stop(): Promise<void> {
    this.isStopping = true;
    this.send("stop");
    await this.ended.promise;
    this.channel.port1.close();
    await this.worker.terminate();
  }

  /** A defect that nobody caught, as on any other thread: there is one place where those end. */
  private fail(error: unknown): void {
    this.isStopping = true;
    this.ended.resolve();
    this.started.reject(error);
    if (this.isListening)
      queueMicrotask(() => {
        throw error as Error;
      });
  }

  private send(message: ToAcceptor): void {
    this.worker.postMessage(message);
  }
}
