/** Another HTTP thread: a whole server, with its own store linked to the store's threads. */

import { openAuthenticator } from "../auth/token.ts";
import { findTracing } from "../config.ts";
import { listRoutes, pathsOf, startServer } from "../http/server.ts";
import { createLog } from "../observe/log.ts";
import { Metrics } from "../observe/metrics.ts";
import { RecentRequests } from "../observe/recent-requests.ts";
import { openStore } from "../store/open.ts";
import { createCaller, onMessage, runThread, toAnswer } from "../thread.ts";
import { answerClock } from "../tick.ts";
import type { FromWorker, Question, WorkerOrder, WorkerSetup } from "./start.ts";

const send = (message: FromWorker): void => postMessage(message);

const recent = new RecentRequests();

async function start(setup: WorkerSetup) {
  const { config, metricsMemory, ratesMemory, link, tls } = setup;
  const { ask: askFirst } = createCaller(setup.questions);
  const ask = (question: Question) => askFirst(question) as Promise<never>;
  const routes = listRoutes(config);
  const metrics = new Metrics(pathsOf(routes), metricsMemory);
  const log = createLog(config.logLevel, (logLine) => send({ logLine }));
  const tracing = findTracing(config);
  const tracer =
    tracing && (await import("../observe/tracer.ts")).createTracer(tracing, config, metrics, log);
  const limits = { ...config, onCommit: metrics.countCommit, tracing: tracer };
  const store = await openStore(config.databaseUrl, limits, undefined, link);
  const server = startServer({
    config,
    store,
    authenticator: await openAuthenticator(store, config, log),
    log,
    metrics,
    tracer,
    routes,
    reports: {
      readActivity: (sinceMs, query) => ask({ asks: "activity", sinceMs, query }),
      formatMetrics: () => ask({ asks: "metrics" }),
      areBackupsFailing: () => ask({ asks: "backups" }),
    },
    recent,
    ratesMemory,
    tls,
  });
  const stop = async (): Promise<void> => {
    await server.stop();
    await Promise.all([tracer?.close(), store.close()]);
  };
  return { replaceTls: server.replaceTls, stop };
}

runThread(({ orders, ...setup }: WorkerSetup & { readonly orders: MessagePort }) => {
  let started: ReturnType<typeof start> | undefined;
  // If it rejects, the thread fails, and with it the process.
  const perform = async (order: WorkerOrder): Promise<void> => {
    if (typeof order === "object" && "clock" in order)
      return orders.postMessage({ value: answerClock(order) });
    if (typeof order === "object" && "query" in order)
      return orders.postMessage({ value: recent.find(order.query) });
    const { replaceTls, stop } = await (started ??= start(setup));
    // Without descriptors for another listener it fails, and is tried again.
    if (typeof order === "object") return orders.postMessage(toAnswer(() => replaceTls(order.tls)));
    if (order === "stop") await stop();
    orders.postMessage({ value: undefined });
  };
  onMessage(orders, (order: WorkerOrder) => void perform(order));
});
