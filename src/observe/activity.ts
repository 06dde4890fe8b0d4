/** What an instance did lately: samples of its counters, and the requests that failed. */

import { Histogram, Metrics, type Totals } from "./metrics.ts";

/** An hour of the interval in the configuration. */
export const SAMPLES_MAX = 720;
const FAILURES_MAX = 20;

/** What happened in one interval. */
export interface Sample {
  readonly atMs: number;
  readonly creates: number;
  readonly requests: number;
  /** 5xx. */
  readonly errors: number;
  /** 4xx. */
  readonly refused: number;
  readonly durableP50Ms: number | undefined;
  readonly durableP99Ms: number | undefined;
  /** From the head of a request to its answer. */
  readonly readP50Ms: number | undefined;
  readonly readP99Ms: number | undefined;
  readonly writeP50Ms: number | undefined;
  readonly writeP99Ms: number | undefined;
  /** Writes that wait for a commit. */
  readonly waiting: number;
  readonly storeBytes: number | undefined;
}

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
  private readonly samples: Sample[] = [];
  /** Status 4xx and 5xx apart, so many refusals do not push out the failures. */
  private readonly failures: readonly [FailedRequest[], FailedRequest[]] = [[], []];
  private last: Totals = Metrics.addUp([]);
  private lastLatencies = addUpLatencies([]);

  constructor(blocks: readonly Metrics[], size: StoreFigure) {
    this.blocks = blocks;
    this.size = size;
  }

  /** With the samples after that time, oldest first, and the failures, newest first. */
  read(sinceMs: number): { samples: readonly Sample[]; failures: readonly FailedRequest[] } {
    return {
      samples: this.samples.filter(({ atMs }) => atMs > sinceMs),
      failures: this.failures
        .flat()
        .toReversed()
        .toSorted((one, other) => other.atMs - one.atMs),
    };
  }

  readonly noteFailure = (failure: FailedRequest): void => {
    const kept = this.failures[failure.status < 500 ? 0 : 1];
    if (kept.push(failure) > FAILURES_MAX) kept.shift();
  };

  sample(atMs: number, waiting: number): void {
    const now = Metrics.addUp(this.blocks);
    const latencies = addUpLatencies(this.blocks);
    const creates = between(now.creates, this.last.creates);
    const reads = between(latencies.reads, this.lastLatencies.reads);
    const writes = between(latencies.writes, this.lastLatencies.writes).addAll(creates);
    const since = (from: number, to: number): number =>
      countBetween(now, from, to) - countBetween(this.last, from, to);
    this.samples.push({
      atMs,
      creates: creates.count,
      requests: since(0, 999),
      errors: since(500, 999),
      refused: since(400, 499),
      durableP50Ms: round(creates.quantile(0.5)),
      durableP99Ms: round(creates.quantile(0.99)),
      readP50Ms: round(reads.quantile(0.5)),
      readP99Ms: round(reads.quantile(0.99)),
      writeP50Ms: round(writes.quantile(0.5)),
      writeP99Ms: round(writes.quantile(0.99)),
      waiting,
      storeBytes: this.size.value,
    });
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
    this.last = now;
    this.lastLatencies = latencies;
    // The chart of the size shows the hour before a person opens it.
    void this.size.refresh(SIZE_KNOWN_MS / 2);
  }
}

const between = (to: Histogram, from: Histogram): Histogram =>
  new Histogram().addAll(to).addAll(from, -1);

/** Of plants and tags. Creates are counted on their own; batches and feeds last as long as their clients want. */
function addUpLatencies(blocks: readonly Metrics[]): { reads: Histogram; writes: Histogram } {
  const [reads, writes] = [new Histogram(), new Histogram()];
  for (const { method, path, durations } of Metrics.addUpDurations(blocks))
    if (method === "GET" && /^\/(plants|tags)/.test(path)) reads.addAll(durations);
    else if (path === "/plants/{id}") writes.addAll(durations);
  return { reads, writes };
}

function countBetween({ requests }: Totals, statusMin: number, statusMax: number): number {
  let sum = 0;
  for (const { status, count } of requests)
    if (status >= statusMin && status <= statusMax) sum += count;
  return sum;
}

/** To three digits: the histogram has no more. */
const round = (ms: number | undefined): number | undefined =>
  ms === undefined ? undefined : Number(ms.toPrecision(3));

const SIZE_FRESH_MS = 10_000;
const SIZE_KNOWN_MS = 60_000;

/** A figure of the store. Measured seldom unless clients ask, because the answer may come from a database server. */
export class StoreFigure {
  private readonly measure: () => Promise<number | undefined>;
  private readonly now: () => number;
  private measuredAtMs = Number.NEGATIVE_INFINITY;
  private measuring = Promise.resolve();
  private lastValue: number | undefined;

  constructor(measure: () => Promise<number | undefined>, now = () => performance.now()) {
    this.measure = measure;
    this.now = now;
  }

  /** As last measured; undefined if it was not measured lately, or if it could not be measured. */
  get value(): number | undefined {
    return this.now() - this.measuredAtMs < SIZE_KNOWN_MS ? this.lastValue : undefined;
  }

  /** Resolves when the figure is known. */
  refresh(freshMs = SIZE_FRESH_MS): Promise<void> {
    if (this.now() - this.measuredAtMs >= freshMs) {
      this.measuredAtMs = this.now();
      this.measuring = this.measure().then(
        (value) => void (this.lastValue = value),
        () => void (this.lastValue = undefined),
      );
    }
    return this.measuring;
  }
}
