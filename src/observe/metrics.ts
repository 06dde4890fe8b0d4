/** Counters since the start, in shared memory. Each thread counts in its own block; the reader adds them up. */

import { catalogue } from "../domain/errors.ts";

/** Eight buckets for each doubling, so each is 9 % wide, from 2^-5 ms (31 µs) to 2^17 ms (two minutes). */
const STEPS = 8;
const DOUBLING_MIN = -5;
const DOUBLING_MAX = 17;
const BUCKETS = (DOUBLING_MAX - DOUBLING_MIN) * STEPS + 1;
/** After the buckets: the count and the sum of all durations. */
const TOTAL = BUCKETS;
const TOTAL_MS = BUCKETS + 1;
const HISTOGRAM_LENGTH = BUCKETS + 2;

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

  add(ms: number, times = 1): void {
    const index = Math.ceil((Math.log2(ms) - DOUBLING_MIN) * STEPS);
    this.increase(index > 0 ? (index < BUCKETS ? index : BUCKETS - 1) : 0, times);
    this.increase(TOTAL, times);
    this.increase(TOTAL_MS, ms * times);
  }

  /** Adds the other histogram `times` times; −1 subtracts it. */
  addAll({ memory }: Histogram, times = 1): this {
    for (const [index, value] of memory.entries()) this.increase(index, value * times);
    return this;
  }

  /** The duration at this quantile, to within 5 %; undefined without any. */
  quantile(share: number): number | undefined {
    if (this.count <= 0) return undefined;
    const rank = Math.max(1, Math.ceil(share * this.count));
    let seen = 0;
    let index = -1;
    while (seen < rank && index < BUCKETS - 1) seen += this.memory[++index] ?? 0;
    return 2 ** (DOUBLING_MIN + (index - 0.5) / STEPS);
  }

  /** Cumulative counts at each power of two between these two, which are powers of two. */
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

/** The methods that the service knows, in the order of the Allow header. */
export const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] as const;
/** All others share a label; otherwise a client could create unlimited counters. */
const OTHER_METHOD = "other";
const methodLabels = [...methods, OTHER_METHOD];
const failureStatuses = Object.values(catalogue).map((each) => each.status);
/** The statuses of our answers. 0 stands for any other. */
const statuses = [...new Set([0, 200, 201, 202, 204, 304, 308].concat(failureStatuses))];
const placeOf = (status: number): number => Math.max(0, statuses.indexOf(status));
/** A kind is a path and a method. It has a count for each status, and a histogram of durations. */
const KIND_LENGTH = statuses.length + HISTOGRAM_LENGTH;

/** Each thread sets its own, and the sum of all is reported. */
const gauges = [
  "bytesHeld",
  "requestsInFlight",
  "feedReaders",
  "writesWaiting",
  "spansExported",
  "spansDropped",
] as const;
type Gauge = (typeof gauges)[number];

/** Layout: gauges, changes of plants, commit durations, commit sizes, batch lines, the kinds of each path. */
const CHANGES = gauges.length;
const COMMIT_DURATIONS = CHANGES + 1;
const COMMIT_SIZES = COMMIT_DURATIONS + HISTOGRAM_LENGTH;
const LINES = COMMIT_SIZES + HISTOGRAM_LENGTH;
const KINDS = LINES + KIND_LENGTH;

/** These exist from the start: an alert misses the first burst of a counter that appears with it. */
const FAILURE_STATUSES = [500, 503];
const LINE_STATUSES = [200, 400, 409, ...FAILURE_STATUSES];
/** A counter that exists at zero: so small that adding 1 gives 1. */
const SHOWN_ZERO = Number.MIN_VALUE;

/** Counts are indexed like `statuses`. A counter that does not exist is 0. */
type Kind = Readonly<{ counts: Float64Array; times: Histogram }>;

function increase({ counts }: Kind, status: number): void {
  const place = placeOf(status);
  counts[place] = (counts[place] ?? 0) + 1;
}

const listCounts = <Labels extends object>({ counts }: Kind, labels: Labels) =>
  statuses.flatMap((status, place) =>
    counts[place] ? [[{ ...labels, status }, Math.floor(counts[place])] as const] : [],
  );

/** The path of everything without a route. Otherwise a client could create unlimited time series. */
export const OTHER_PATH = "other";

export class Metrics {
  /** A path's index numbers its kinds. */
  readonly paths: readonly string[];
  private readonly memory: Float64Array;
  /** Not a kind of request: it counts the lines of batches, and has the durations of creates. */
  private readonly lines: Kind;
  private readonly commitDurations: Histogram;
  private readonly commitSizes: Histogram;

  /** The memory fits these paths: GC counts all of it as live, and lets garbage grow to four times the live bytes. */
  static bytesOf(paths: readonly string[]): number {
    const length = KINDS + paths.length * methodLabels.length * KIND_LENGTH;
    return length * Float64Array.BYTES_PER_ELEMENT;
  }

  /** `paths` are those of all routes, and OTHER_PATH. The blocks of all threads have the same. */
  constructor(
    paths: readonly string[],
    memory: ArrayBufferLike = new ArrayBuffer(Metrics.bytesOf(paths)),
  ) {
    if (memory.byteLength !== Metrics.bytesOf(paths))
      throw new RangeError(`${memory.byteLength} bytes do not fit ${paths.length} paths`);
    this.memory = new Float64Array(memory);
    this.paths = paths;
    this.lines = this.kindAt(LINES);
    this.commitDurations = this.histogramAt(COMMIT_DURATIONS);
    this.commitSizes = this.histogramAt(COMMIT_SIZES);
    for (const status of LINE_STATUSES) this.lines.counts[placeOf(status)] ||= SHOWN_ZERO;
  }

  private kindOf(path: number, method: number): Kind {
    return this.kindAt(KINDS + (path * methodLabels.length + method) * KIND_LENGTH);
  }

  private kindAt(start: number): Kind {
    const middle = start + statuses.length;
    return { counts: this.memory.subarray(start, middle), times: this.histogramAt(middle) };
  }

  private histogramAt(start: number): Histogram {
    return new Histogram(this.memory.subarray(start, start + HISTOGRAM_LENGTH));
  }

  /** The counter of one path, labelled with its pattern, never with what a client sent, and the methods it serves. */
  counterOf(path: string, served: readonly string[]) {
    const place = this.paths.indexOf(path);
    if (place === -1) throw new RangeError(`${path} is not one of the paths`);
    const kinds = new Map(methodLabels.map((method, index) => [method, this.kindOf(place, index)]));
    const kindOf = (method: string): Kind => kinds.get(method) ?? (kinds.get(OTHER_METHOD) as Kind);
    for (const method of served)
      for (const status of FAILURE_STATUSES) kindOf(method).counts[placeOf(status)] = SHOWN_ZERO;
    return (method: string, status: number, durationMs: number): void => {
      const kind = kindOf(method);
      increase(kind, status);
      kind.times.add(durationMs);
    };
  }

  setGauge(name: Gauge, value: number): void {
    this.memory[gauges.indexOf(name)] = value;
  }

  countBatchLine(status: number): void {
    increase(this.lines, status);
  }

  /** For a commit of plants: its duration, its writes, and how many of them changed a plant. */
  readonly countCommit = (durationMs: number, writes: number, changes: number): void => {
    this.commitDurations.add(durationMs);
    this.commitSizes.add(writes);
    this.memory[CHANGES] = (this.memory[CHANGES] ?? 0) + changes;
  };

  countCreates(durationMs: number, count = 1): void {
    this.lines.times.add(durationMs, count);
  }

  /** The sum of blocks that have the paths of the first. */
  static addUp(blocks: readonly Metrics[]) {
    const sum = new Metrics(blocks[0]?.paths ?? []);
    for (const { memory } of blocks)
      // Not entries(), which is far slower.
      for (let at = 0; at < memory.length; at++)
        sum.memory[at] = (sum.memory[at] ?? 0) + (memory[at] ?? 0);
    const levels = gauges.map((name, at) => [name, sum.memory[at]]);
    const kinds = sum.paths.flatMap((path, place) =>
      methodLabels.map((method, index) => ({
        labels: { method, path },
        kind: sum.kindOf(place, index),
      })),
    );
    return {
      /** From the arrival of a new plant until it is on disk and answered. */
      creates: sum.lines.times,
      changes: sum.memory[CHANGES] ?? 0,
      commits: { durations: sum.commitDurations, sizes: sum.commitSizes },
      gauges: Object.fromEntries(levels) as Record<Gauge, number>,
      requests: kinds.flatMap(({ labels, kind }) => listCounts(kind, labels)),
      /** A batch answers 200 whatever the status of its lines. */
      batchLines: listCounts(sum.lines, {}),
      /** From the head of a request to its answer, or to the start of a stream. */
      durations: kinds
        .filter(({ kind }) => kind.times.count > 0)
        .map(({ labels, kind }) => [labels, kind.times] as const),
    };
  }
}
