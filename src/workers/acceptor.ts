/** A thread that accepts requests: everything up to the store, which another thread owns. */

import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { Authenticator } from "../auth/authenticate.ts";
import { startServer } from "../http/server.ts";
import { createLog } from "../observe/log.ts";
import { Metrics } from "../observe/metrics.ts";
import type { Observations } from "../observe/observatory.ts";
import { openReader } from "../store/open.ts";
import { Caller, type Results } from "./calls.ts";
import { linkStore } from "./linked-store.ts";
import type { AcceptorSetup, FromAcceptor, ToAcceptor } from "./messages.ts";

const { config, store: description, metricsMemory, calls } = workerData as AcceptorSetup;
const send = (message: FromAcceptor): void => parentPort?.postMessage(message);

const caller = new Caller({
  send: (sent) => calls.postMessage(sent),
  receive: () => receiveMessageOnPort(calls)?.message as Results | undefined,
});
calls.on("message", (results: Results) => caller.settle(results));
const observations: Observations = {
  listSamples: (sinceMs) =>
    caller.call("listSamples", [sinceMs]) as ReturnType<Observations["listSamples"]>,
  formatMetrics: () =>
    caller.call("formatMetrics", []) as ReturnType<Observations["formatMetrics"]>,
};
const reader = openReader(config.databaseUrl, config);
const store = linkStore(caller, description, reader?.reads ?? {});
const metrics = new Metrics(metricsMemory);
const server = startServer({
  config,
  store,
  authenticator: new Authenticator(store, config.token),
  log: createLog(config.logLevel, (logLine) => send({ logLine })),
  shared: { metrics, observations },
});

parentPort?.on("message", (message: ToAcceptor) => {
  if (message === "stop") void stop();
});
const { url, hasConsole } = server;
send({ listening: { url, hasConsole, metricsPaths: metrics.paths } });

async function stop(): Promise<void> {
  await server.stop();
  await reader?.close();
  calls.close();
  send("stopped");
}
