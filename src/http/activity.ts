/** GET /activity and GET /metrics: what this instance does and did, for the console and for Prometheus. */

import packageJson from "../../package.json";
import { SAMPLE_MS } from "../observe/activity.ts";
import { formatMetrics, PROMETHEUS_TYPE } from "../observe/prometheus.ts";
import { parseSince } from "./query.ts";
import type { Answer, Service } from "./service.ts";

export function answerActivity(request: Request, service: Service): Answer {
  const since = parseSince(request.url);
  // For the next sample: this answer does not wait for a server.
  void service.storeSize.watch();
  const body = { intervalMs: SAMPLE_MS, samples: service.activity.since(since) };
  // What nobody knows is said to be so: a reader need not tell it from what we forgot.
  return { status: 200, body: JSON.stringify(body, (_key, value: unknown) => value ?? null) };
}

export async function answerMetrics(_request: Request, service: Service): Promise<Answer> {
  const { metrics, store, storeSize } = service;
  await storeSize.watch();
  const body = formatMetrics({
    metrics,
    waiting: store.writesWaiting,
    storeBytes: storeSize.bytes,
    version: packageJson.version,
    engine: store.description.engine,
  });
  return { status: 200, body, headers: { "content-type": PROMETHEUS_TYPE } };
}
