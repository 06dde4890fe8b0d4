/** What an instance did lately: samples of its counters, and the requests that failed. */

import { Histogram, Metrics } from "./metrics.ts";

/** An hour of the interval in the configuration. */
export const SAMPLES_MAX = 720;
const FAILURES_MAX = 20;

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

export class ActivityLog {
  readonly size: StoreFigure;
  private readonly blocks: readonly Metrics[];
  private readonly samples: ReturnType<ActivityLog["compare"]>[] = [];
  /** Status 4xx and 5xx apart, so many refusals do not push out the failures. */
  private readonly failures: readonly [FailedRequest[], FailedRequest[]] = [[], []];
  private last = summarize([]);

  constructor(blocks: readonly Metrics[], size: StoreFigure) {
    this.blocks = blocks;
    this.size = size;
  }

  /** With the samples after that time, oldest first, and the failures, newest first. */
  read(sinceMs: number) {
    const failures = this.failures.flat().toReversed();
    return {
      samples: this.samples.filter(({ atMs }) => atMs > sinceMs),
      failures: failures.toSorted((one, other) => other.atMs - one.atMs),
    };
  }

  readonly noteFailure = (failure: FailedRequest): void => {
    const kept = this.failures[failure.status < 500 ? 0 : 1];
    if (kept.push(failure) > FAILURES_MAX) kept.shift();
  };

  sample(atMs: number, waiting: number): void {
    this.samples.push(this.compare(atMs, waiting));
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
    // The chart of the size shows the hour before a person opens it.
    void this.size.refresh(SIZE_SAMPLED_MS);
  }

  /** What happened since the last one. The description of GET /activity says what each figure is. */
  private compare(atMs: number, waiting: number) {
    const [last, now] = [this.last, summarize(this.blocks)];
    this.last = now;
    const creates = between(last.creates, now.creates);
    const reads = between(last.reads, now.reads);
    const writes = between(last.writes, now.writes);
    return {
      atMs,
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
      waiting,
      storeBytes: this.size.value,
    };
  }
}

const between = (from: Histogram, to: Histogram): Histogram =>
  new Histogram().addAll(to).addAll(from, -1);

function summarize(blocks: readonly Metrics[]) {
  const { creates, requests, durations } = Metrics.addUp(blocks);
  const count = (from: number, to: number): number =>
    requests.reduce(
      (sum, { status, count: more }) => sum + (status >= from && status <= to ? more : 0),
      0,
    );
  // Of plants and tags. Batches and feeds last as long as their clients want.
  const [reads, writes] = [new Histogram(), new Histogram().addAll(creates)];
  for (const { method, path, times } of durations)
    if (/GET|HEAD/.test(method) && /^\/(plants|tags)/.test(path)) reads.addAll(times);
    else if (/PUT|DELETE/.test(method) && path === "/plants/{id}") writes.addAll(times);
  return {
    creates,
    reads,
    writes,
    requests: count(0, 999),
    refused: count(400, 499),
    errors: count(500, 999),
  };
}

/** To three digits: the histogram has no more. */
const round = (ms: number | undefined): number | undefined =>
  ms === undefined ? undefined : Number(ms.toPrecision(3));

const SIZE_FRESH_MS = 10_000;
const SIZE_SAMPLED_MS = 30_000;

/** A figure of the store. Measured seldom unless clients ask, because the answer may come from a database server. */
export class StoreFigure {
  /** As last measured; undefined if it could not be. */
  value: number | undefined;
  private readonly measure: () => Promise<number | undefined>;
  private measuredAtMs = 0;
  private measuring = Promise.resolve();

  constructor(measure: () => Promise<number | undefined>) {
    this.measure = measure;
  }

  /** Resolves when the figure is known. */
  refresh(freshMs = SIZE_FRESH_MS): Promise<void> {
    if (Date.now() - this.measuredAtMs < freshMs) return this.measuring;
    this.measuredAtMs = Date.now();
    const keep = (value: number | undefined): void => void (this.value = value);
    this.measuring = this.measure().then(keep, () => keep(undefined));
    return this.measuring;
  }
}
