/**
 * Counters of this process since its start. Counting a request takes less than a microsecond.
 *
 * The counters are in a block of memory that threads can share. Each thread counts in its own block, so no
 * thread waits for another; the reader adds the blocks up.
 */

import { catalogue } from "../domain/errors.ts";

/** Eight buckets for each doubling, so each is 9 % wide, from 2^-5 ms (31 µs) to 2^17 ms (two minutes). */
const STEPS = 8;
const DOUBLING_MIN = -5;
const DOUBLING_MAX = 17;
const BUCKETS = (DOUBLING_MAX - DOUBLING_MIN) * STEPS + 1;
/** Behind the buckets: the count and the sum of all durations. */
const TOTAL = BUCKETS;
const TOTAL_MS = BUCKETS + 1;
const HISTOGRAM_LENGTH = BUCKETS + 2;

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

  /** How many durations there are up to each doubling between these two, which are powers of two. */
  buckets(fromMs: number, toMs: number) {
    const buckets: { readonly upToMs: number; readonly count: number }[] = [];
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
/** Those that answers have. The first stands for any other. */
const statuses = [
  ...new Set([0, 200, 201, 204, 304, 308, ...Object.values(catalogue).map((each) => each.status)]),
];
/** The first is that of the lines of batches. */
const PATHS_MAX = 32;
const LINES = "lines";
/** A kind of request is a path and a method. Each has a count for every status, and its durations. */
const KINDS_MAX = PATHS_MAX * methods.length;

/** What a thread holds at the moment. */
const gauges = ["bytesHeld", "requestsInFlight", "feedReaders"] as const;
type Gauge = (typeof gauges)[number];

const COUNTS_AT = gauges.length;
const COUNTS_LENGTH = KINDS_MAX * statuses.length;
const DURATIONS_AT = COUNTS_AT + COUNTS_LENGTH;
/** The collector counts all of it as used, and lets garbage grow to four times what is used: so it is small. */
export const METRICS_BYTES =
  (DURATIONS_AT + KINDS_MAX * HISTOGRAM_LENGTH) * Float64Array.BYTES_PER_ELEMENT;

/** Counted from the start: an alert does not see the first burst of a counter that did not exist before. */
const FAILURE_STATUSES = [500, 503];
const LINE_STATUSES = [200, 400, 409, ...FAILURE_STATUSES];
/** A counter that exists and has counted nothing. It is so small that adding 1 makes 1 of it. */
const NOTHING = Number.MIN_VALUE;

const placeOf = (kind: number, status: number): number =>
  kind * statuses.length + Math.max(0, statuses.indexOf(status));

type CountRequest = (method: string, status: number, durationMs: number) => void;

export class Metrics {
  /** Their order numbers the counters. */
  readonly paths: string[];
  /** Of new plants. It has the place of the first kind, which no request has. */
  private readonly creates: Histogram;
  /** By kind and status. A counter that does not exist is 0. */
  private readonly counts: Float64Array;
  private readonly gauges: Float64Array;
  private readonly memory: ArrayBufferLike;

  /** `paths` are for a reader of another thread's block: the paths that the thread counts. */
  constructor(
    memory: ArrayBufferLike = new ArrayBuffer(METRICS_BYTES),
    paths: readonly string[] = [LINES],
  ) {
    this.memory = memory;
    this.gauges = this.part(0, gauges.length);
    this.counts = this.part(COUNTS_AT, COUNTS_LENGTH);
    this.creates = this.durationsOf(0);
    this.paths = [...paths];
    for (const status of LINE_STATUSES) this.counts[placeOf(0, status)] ||= NOTHING;
  }

  /** The counter of one path, named by its pattern and never by what a client sent, with the methods it serves. */
  counterOf(path: string, served: readonly string[]): CountRequest {
    const first = (this.paths.push(path) - 1) * methods.length;
    const durations = methods.map((_, index) => this.durationsOf(first + index));
    const indexOf = (method: string): number => {
      const found = methods.indexOf(method as (typeof methods)[number]);
      return found === -1 ? OTHER : found;
    };
    for (const method of served)
      for (const status of FAILURE_STATUSES)
        this.counts[placeOf(first + indexOf(method), status)] = NOTHING;
    return (method, status, durationMs) => {
      const index = indexOf(method);
      this.count(first + index, status);
      durations[index]?.add(durationMs);
    };
  }

  setGauge(name: Gauge, value: number): void {
    this.gauges[gauges.indexOf(name)] = value;
  }

  countBatchLine(status: number): void {
    this.count(0, status);
  }

  /** A new plant is on disk. */
  countCreate(durationMs: number): void {
    this.creates.add(durationMs);
  }

  /** The sum of blocks that count the same paths. */
  static addUp(blocks: readonly Metrics[]) {
    const { paths } = blocks[0] ?? new Metrics();
    const held = gauges.map((name, index) => [
      name,
      blocks.reduce((sum, block) => sum + (block.gauges[index] ?? 0), 0),
    ]);
    const requests: [{ method: string; path: string; status: number }, number][] = [];
    const batchLines: [{ status: number }, number][] = [];
    const durations: [{ method: string; path: string }, Histogram][] = [];
    const creates = new Histogram();
    for (let kind = 0; kind < paths.length * methods.length; kind++) {
      const method = methods[kind % methods.length] ?? "other";
      const path = paths[Math.floor(kind / methods.length)] ?? LINES;
      for (const status of statuses) {
        let count = 0;
        for (const block of blocks) count += block.counts[placeOf(kind, status)] ?? 0;
        if (count === 0) continue;
        if (path === LINES) batchLines.push([{ status }, Math.floor(count)]);
        else requests.push([{ method, path, status }, Math.floor(count)]);
      }
      const times = kind === 0 ? creates : new Histogram();
      for (const block of blocks) times.addAll(block.durationsOf(kind));
      if (kind > 0 && times.count > 0) durations.push([{ method, path }, times]);
    }
    return {
      /** From the arrival of a new plant to its answer, so until it is on disk. */
      creates,
      gauges: Object.fromEntries(held) as Record<Gauge, number>,
      requests,
      /** A batch answers 200 whatever becomes of its lines. */
      batchLines,
      /** From the head of a request to its answer, or to the beginning of a stream. */
      durations,
    };
  }

  private part(start: number, length: number): Float64Array {
    return new Float64Array(this.memory, start * Float64Array.BYTES_PER_ELEMENT, length);
  }

  private durationsOf(kind: number): Histogram {
    return new Histogram(this.part(DURATIONS_AT + kind * HISTOGRAM_LENGTH, HISTOGRAM_LENGTH));
  }

  private count(kind: number, status: number): void {
    const place = placeOf(kind, status);
    this.counts[place] = (this.counts[place] ?? 0) + 1;
  }
}
