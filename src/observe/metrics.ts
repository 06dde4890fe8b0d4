/**
 * Counters of this process since its start. Counting a request takes less than a microsecond.
 *
 * The counters are in a block of memory that threads can share. Each thread counts in its own block, so no
 * thread waits for another; the reader adds the blocks up.
 */

/** Eight buckets for each doubling, so each is 9 % wide, from 2^-5 ms (31 µs) to 2^17 ms (two minutes). */
const STEPS = 8;
const DOUBLING_MIN = -5;
const DOUBLING_MAX = 17;
const BUCKETS = (DOUBLING_MAX - DOUBLING_MIN) * STEPS + 1;
/** Behind the buckets: the count and the sum of all durations. */
const TOTAL = BUCKETS;
const TOTAL_MS = BUCKETS + 1;
const HISTOGRAM_LENGTH = BUCKETS + 2;

interface Bucket {
  readonly upToMs: number;
  /** Durations up to this one, the buckets before it included. */
  readonly count: number;
}

/** How durations are distributed. */
export class Histogram {
  private readonly memory: Float64Array;

  constructor(memory: Float64Array = new Float64Array(HISTOGRAM_LENGTH)) {
    this.memory = memory;
  }

  get count(): number {
    return this.memory[TOTAL] ?? 0;
  }

  get sumMs(): number {
    return this.memory[TOTAL_MS] ?? 0;
  }

  add(ms: number): void {
    const index = Math.ceil((Math.log2(ms) - DOUBLING_MIN) * STEPS);
    this.increase(index > 0 ? (index < BUCKETS ? index : BUCKETS - 1) : 0, 1);
    this.increase(TOTAL, 1);
    this.increase(TOTAL_MS, ms);
  }

  /** Adds the other one that many times; −1 subtracts it. */
  addAll({ memory }: Histogram, times = 1): this {
    for (const [index, value] of memory.entries()) this.increase(index, value * times);
    return this;
  }

  /** The duration that this share of all durations does not exceed, to within 5 %; undefined without any. */
  quantile(share: number): number | undefined {
    if (this.count <= 0) return undefined;
    const rank = Math.max(1, Math.ceil(share * this.count));
    let seen = 0;
    let index = -1;
    while (seen < rank && index < BUCKETS - 1) seen += this.memory[++index] ?? 0;
    // The middle of the bucket.
    return 2 ** (DOUBLING_MIN + (index - 0.5) / STEPS);
  }

  /** One bucket for each doubling between these two, which are powers of two. */
  buckets(fromMs: number, toMs: number): Bucket[] {
    const buckets: Bucket[] = [];
    let index = 0;
    let count = 0;
    for (let upToMs = fromMs; upToMs <= toMs; upToMs *= 2) {
      const end = (Math.log2(upToMs) - DOUBLING_MIN) * STEPS;
      while (index <= end) count += this.memory[index++] ?? 0;
      buckets.push({ upToMs, count });
    }
    return buckets;
  }

  private increase(index: number, by: number): void {
    this.memory[index] = (this.memory[index] ?? 0) + by;
  }
}

/** All other methods share one name; otherwise a client could create unlimited counters. */
const methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "other"] as const;
const OTHER = methods.length - 1;
const STATUSES = 600;
/** Durations are kept by path and by these methods. HEAD is a GET. */
const timedMethods = ["GET", "POST", "PUT", "DELETE"] as const;
/** The first is that of the lines of batches. */
const PATHS_MAX = 48;
const LINES = "lines";

/** What a thread holds at the moment. */
const gauges = ["bytesHeld", "requestsInFlight", "feedReaders"] as const;
type Gauge = (typeof gauges)[number];

const GAUGES_AT = HISTOGRAM_LENGTH;
const COUNTS_AT = GAUGES_AT + gauges.length;
const COUNTS_LENGTH = PATHS_MAX * methods.length * STATUSES;
const DURATIONS_AT = COUNTS_AT + COUNTS_LENGTH;
/** Memory that is never written to takes no room, so the bounds may be generous. */
export const METRICS_BYTES =
  (DURATIONS_AT + PATHS_MAX * timedMethods.length * HISTOGRAM_LENGTH) *
  Float64Array.BYTES_PER_ELEMENT;

/** Counted from the start: an alert does not see the first burst of a counter that did not exist before. */
const FAILURE_STATUSES = [500, 503];
const LINE_STATUSES = [200, 400, 409, ...FAILURE_STATUSES];
/** A counter that exists and has counted nothing. It is so small that adding 1 makes 1 of it. */
const NOTHING = Number.MIN_VALUE;

type TimedMethod = (typeof timedMethods)[number];
type CountRequest = (method: string, status: number, durationMs: number) => void;

export class Metrics {
  /** Their order numbers the counters. */
  readonly paths: string[];
  private readonly creates: Histogram;
  /** By path, method and status. A counter that does not exist is 0. */
  private readonly counts: Float64Array;
  private readonly gauges: Float64Array;
  private readonly memory: ArrayBufferLike;

  /** `paths` are for a reader of another thread's block: the paths that the thread counts. */
  constructor(
    memory: ArrayBufferLike = new ArrayBuffer(METRICS_BYTES),
    paths: readonly string[] = [LINES],
  ) {
    this.memory = memory;
    this.creates = new Histogram(this.part(0, HISTOGRAM_LENGTH));
    this.gauges = this.part(GAUGES_AT, gauges.length);
    this.counts = this.part(COUNTS_AT, COUNTS_LENGTH);
    this.paths = [...paths];
    for (const status of LINE_STATUSES) this.counts[status] ||= NOTHING;
  }

  /** The counter of one path, named by its pattern and never by what a client sent, with the methods it serves. */
  counterOf(path: string, served: readonly string[]): CountRequest {
    const index = this.paths.push(path) - 1;
    const durations = new Map(
      timedMethods.map((method) => [method, this.durationsOf(index, method)]),
    );
    const kindOf = (method: string, status: number): number => {
      const found = methods.indexOf(method as (typeof methods)[number]);
      return (index * methods.length + (found === -1 ? OTHER : found)) * STATUSES + status;
    };
    for (const method of served)
      for (const status of FAILURE_STATUSES) this.counts[kindOf(method, status)] = NOTHING;
    return (method, status, durationMs) => {
      this.count(kindOf(method, status));
      durations.get((method === "HEAD" ? "GET" : method) as TimedMethod)?.add(durationMs);
    };
  }

  setGauge(name: Gauge, value: number): void {
    this.gauges[gauges.indexOf(name)] = value;
  }

  countBatchLine(status: number): void {
    this.count(status);
  }

  /** A new plant is on disk. */
  countCreate(durationMs: number): void {
    this.creates.add(durationMs);
  }

  /** The sum of blocks that count the same paths. */
  static addUp(blocks: readonly Metrics[]) {
    const { paths } = blocks[0] ?? new Metrics();
    const creates = new Histogram();
    for (const block of blocks) creates.addAll(block.creates);
    const held = gauges.map((name, index) => [
      name,
      blocks.reduce((sum, block) => sum + (block.gauges[index] ?? 0), 0),
    ]);
    const counts: { method: string; path: string; status: number; count: number }[] = [];
    for (let kind = 0; kind < paths.length * methods.length * STATUSES; kind++) {
      let count = 0;
      for (const block of blocks) count += block.counts[kind] ?? 0;
      if (count === 0) continue;
      counts.push({
        method: methods[Math.floor(kind / STATUSES) % methods.length] ?? "other",
        path: paths[Math.floor(kind / STATUSES / methods.length)] ?? LINES,
        status: kind % STATUSES,
        count: Math.floor(count),
      });
    }
    const durations = paths.flatMap((path, index) =>
      timedMethods.map((method) => {
        const sum = new Histogram();
        for (const block of blocks) sum.addAll(block.durationsOf(index, method));
        return { method, path, durations: sum };
      }),
    );
    return {
      /** From the arrival of a new plant to its answer, so until it is on disk. */
      creates,
      gauges: Object.fromEntries(held) as Record<Gauge, number>,
      requests: counts.filter(({ path }) => path !== LINES),
      /** A batch answers 200 whatever becomes of its lines. */
      batchLines: counts.filter(({ path }) => path === LINES),
      /** From the head of a request to its answer, or to the beginning of a stream. */
      durations: durations.filter(({ durations: { count } }) => count > 0),
    };
  }

  private part(start: number, length: number): Float64Array {
    return new Float64Array(this.memory, start * Float64Array.BYTES_PER_ELEMENT, length);
  }

  private durationsOf(pathIndex: number, method: TimedMethod): Histogram {
    const index = pathIndex * timedMethods.length + timedMethods.indexOf(method);
    return new Histogram(this.part(DURATIONS_AT + index * HISTOGRAM_LENGTH, HISTOGRAM_LENGTH));
  }

  private count(kind: number): void {
    this.counts[kind] = (this.counts[kind] ?? 0) + 1;
  }
}
