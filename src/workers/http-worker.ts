/** Another HTTP thread: a whole server, with its own store linked to the store's threads. */

import { openAuthenticator } from "../auth/token.ts";
import { findTracing } from "../config.ts";
import { listRoutes, pathsOf, startServer } from "../http/server.ts";
import type { TlsPair } from "../http/tls.ts";
import { createLog } from "../observe/log.ts";
import { Metrics } from "../observe/metrics.ts";
import { RecentRequests } from "../observe/recent-requests.ts";
import { openStore } from "../store/open.ts";
import { type Answer, fromFailed, onMessage, runThread, toAnswer } from "../thread.ts";
import { answerClock, type ClockOrder } from "../tick.ts";
import type { FromWorker, Question, ToWorker, WorkerSetup } from "./start.ts";

const send = (message: FromWorker): void => postMessage(message);

/** Answers come in the order of the requests. */
const requests: PromiseWithResolvers<never>[] = [];
function receive(answer: Answer): void {
  const first = requests.shift();
  if ("value" in answer) first?.resolve(answer.value as never);
  else first?.reject(fromFailed(answer));
}

function ask(question: Question): Promise<never> {
  const answered = Promise.withResolvers<never>();
  requests.push(answered);
  send(question);
  return answered.promise;
}

const recent = new RecentRequests();

async function start(setup: WorkerSetup) {
  const { config, metricsMemory, ratesMemory, link, tls } = setup;
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
  addEventListener("message", ({ data }) => {
    const message = data as ToWorker;
    if ("query" in message) send({ found: recent.find(message.query) });
    else receive(message);
  });
  let started: ReturnType<typeof start> | undefined;
  // If it rejects, the thread fails, and with it the process.
  const perform = async (
    order: "start" | "stop" | ClockOrder | { readonly tls: TlsPair },
  ): Promise<void> => {
    if (typeof order === "object" && "clock" in order)
      return orders.postMessage({ value: answerClock(order) });
    const { replaceTls, stop } = await (started ??= start(setup));
    // Without descriptors for another listener it fails, and is tried again.
    if (typeof order === "object") return orders.postMessage(toAnswer(() => replaceTls(order.tls)));
    if (order === "stop") await stop();
    orders.postMessage({ value: undefined });
  };
  onMessage(orders, (order: Parameters<typeof perform>[0]) => void perform(order));
});
