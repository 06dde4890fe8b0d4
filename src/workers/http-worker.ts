/** The thread of an HTTP worker: a whole server, in front of a store that the main thread owns. */

import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { Authenticator } from "../auth/authenticate.ts";
import { startServer } from "../http/server.ts";
import { createLog } from "../observe/log.ts";
import { Metrics } from "../observe/metrics.ts";
import { WRITING_MS } from "../store/batcher.ts";
import { parseStoreUrl } from "../store/open.ts";
import { openReads } from "../store/sqlite/read.ts";
import { createCaller, createRemoteStore, type Results } from "./remote-store.ts";
import type { FromWorker, WorkerSetup } from "./start.ts";

const setup = workerData as WorkerSetup;
const { config, metricsMemory, ratesMemory, calls, calledAtMs } = setup;
const send = (message: FromWorker): void => parentPort?.postMessage(message);

const caller = createCaller(
  (sent) => {
    calledAtMs[0] = Date.now();
    calls.postMessage(sent);
  },
  () => receiveMessageOnPort(calls)?.message as Results | undefined,
);
calls.on("message", (results: Results) => caller.settle(results));
/** Plants are read on this thread, so calls are writes, of this worker's clients or of others'. */
const isWriting = (): boolean => Date.now() - Number(calledAtMs[0]) < WRITING_MS;
const location = parseStoreUrl(config.databaseUrl);
// A server may fail over, and the thread that writes to it knows best where it is now.
const reader =
  location.engine === "sqlite" ? openReads(location.path, config, isWriting) : undefined;
const store = createRemoteStore(caller, reader);
const { readActivity, formatMetrics } = store;
const metrics = new Metrics(metricsMemory);
const server = startServer({
  config,
  store,
  authenticator: new Authenticator(store, config.token),
  log: createLog(config.logLevel, (logLine) => send({ logLine })),
  shared: {
    metrics,
    reports: { readActivity, formatMetrics, noteFailure: (failure) => send({ failure }) },
    ratesMemory,
  },
});

// The only message is the one to stop.
parentPort?.on("message", () => void stop());
const { url, hasConsole } = server;
send({ listening: { url, hasConsole, metricsPaths: metrics.paths } });

async function stop(): Promise<void> {
  await server.stop();
  await reader?.close();
  calls.close();
  send("stopped");
}
