/** Another HTTP thread: a whole server, with its own store linked to the store's threads. */

import { parentPort, workerData } from "node:worker_threads";
import { openAuthenticator } from "../auth/token.ts";
import { startServer } from "../http/server.ts";
import { createLog } from "../observe/log.ts";
import { Metrics } from "../observe/metrics.ts";
import { openStore } from "../store/open.ts";
import type { FromWorker, ToWorker, WorkerSetup } from "./start.ts";

const { config, metricsMemory, ratesMemory, link } = workerData as WorkerSetup;
const send = (message: FromWorker): void => parentPort?.postMessage(message);

const asked: PromiseWithResolvers<never>[] = [];
function ask(asks: "activity" | "metrics", sinceMs = 0): Promise<never> {
  const answered = Promise.withResolvers<never>();
  asked.push(answered);
  send({ asks, sinceMs });
  return answered.promise;
}

async function start(): Promise<() => Promise<void>> {
  const metrics = new Metrics(metricsMemory);
  const limits = { ...config, onCommit: metrics.countCommit };
  const store = await openStore(config.databaseUrl, limits, undefined, link);
  const log = createLog(config.logLevel, (logLine) => send({ logLine }));
  const server = startServer({
    config,
    store,
    authenticator: await openAuthenticator(store, config, log),
    log,
    metrics,
    reports: {
      readActivity: (sinceMs) => ask("activity", sinceMs),
      formatMetrics: () => ask("metrics"),
      noteFailure: (failure) => send({ failure }),
    },
    ratesMemory,
  });
  send("listening");
  return async () => {
    await server.stop();
    await store.close();
    send("stopped");
  };
}

// If it rejects, the thread fails, and with it the process.
const started = start();
parentPort?.on("message", (message: ToWorker) => {
  if (message === "stop") void started.then((stop) => stop());
  else asked.shift()?.resolve(message.answer as never);
});
