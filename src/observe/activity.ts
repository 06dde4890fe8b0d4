/** What an instance did lately: samples of its counters, and the requests that failed. */

import { Histogram, Metrics } from "./metrics.ts";

/** An hour of the interval in the configuration. */
export const SAMPLES_MAX = 720;

/** A request that was refused or failed. It holds nothing that a client could have put a secret into. */
export interface FailedRequest {
  readonly atMs: number;
  readonly status: number;
  readonly reason: string;
  readonly method: string;
  readonly path: string;
  /** The name of the token. */
  readonly token: string | undefined;
  readonly requestId: string;
}

/** What happened from one summary to the next. The description of GET /activity says what each figure is. */
export function compare(last: Summary, now: Summary) {
  const creates = between(last.creates, now.creates);
  const reads = between(last.reads, now.reads);
  const writes = between(last.writes, now.writes);
  return {
    creates: creates.count,
    requests: now.requests - last.requests,
    errors: now.errors - last.errors,
    refused: now.refused - last.refused,
    durableP50Ms: round(creates.quantile(0.5)),
    durableP99Ms: round(creates.quantile(0.99)),
    readP50Ms: round(reads.quantile(0.5)),
    readP99Ms: round(reads.quantile(0.99)),
    writeP50Ms: round(writes.quantile(0.5)),
    writeP99Ms: round(writes.quantile(0.99)),
  };
}

const between = (from: Histogram, to: Histogram): Histogram =>
  new Histogram().addAll(to).addAll(from, -1);

type Summary = ReturnType<typeof summarize>;

export function summarize(blocks: readonly Metrics[]) {
  const { creates, requests, durations, gauges } = Metrics.addUp(blocks);
  const count = (from: number, to: number): number =>
    requests.reduce(
      (sum, [{ status }, more]) => sum + (status >= from && status <= to ? more : 0),
      0,
    );
  // Of plants and tags. Batches and feeds last as long as their clients want.
  const [reads, writes] = [new Histogram(), new Histogram().addAll(creates)];
  for (const [{ method, path }, times] of durations)
    if (/GET|HEAD/.test(method) && /^\/(plants|tags)/.test(path)) reads.addAll(times);
    else if (/PUT|DELETE/.test(method) && path === "/plants/{id}") writes.addAll(times);
  return {
    creates,
    reads,
    writes,
    requests: count(0, 999),
    refused: count(400, 499),
    errors: count(500, 999),
    waiting: gauges.writesWaiting,
  };
}

/** To three digits: the histogram has no more. */
const round = (ms: number | undefined): number | undefined =>
  ms === undefined ? undefined : Number(ms.toPrecision(3));

const SIZE_FRESH_MS = 10_000;

/** A figure of the store. Measured seldom unless clients ask, because the answer may come from a database server. */
export function createFigure<Value>(measure: () => Promise<Value>) {
  let measuredAtMs = Number.NEGATIVE_INFINITY;
  let measuring = Promise.resolve();
  const figure = {
    /** As last measured; undefined if it could not be. */
    value: undefined as Value | undefined,
    /** Resolves when the figure is known. */
    refresh: (freshMs = SIZE_FRESH_MS): Promise<void> => {
      if (performance.now() - measuredAtMs < freshMs) return measuring;
      measuredAtMs = performance.now();
      const known = measure().catch(() => undefined);
      return (measuring = known.then((value) => void (figure.value = value)));
    },
  };
  return figure;
}
