/** GET /activity and GET /metrics: what this instance does and did, for the console and for Prometheus. */

import { SAMPLE_MS } from "../observe/activity.ts";
import { PROMETHEUS_TYPE } from "../observe/prometheus.ts";
import { parseSince } from "./query.ts";
import type { Answer, Service } from "./service.ts";

export async function answerActivity(request: Request, service: Service): Promise<Answer> {
  const samples = await service.observations.listSamples(parseSince(request.url));
  const body = { intervalMs: SAMPLE_MS, samples };
  // What nobody knows is said to be so: a reader need not tell it from what we forgot.
  return { status: 200, body: JSON.stringify(body, (_key, value: unknown) => value ?? null) };
}

export async function answerMetrics(_request: Request, service: Service): Promise<Answer> {
  const body = await service.observations.formatMetrics();
  return { status: 200, body, headers: { "content-type": PROMETHEUS_TYPE } };
}
