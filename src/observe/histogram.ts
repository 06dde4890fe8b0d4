/** How durations are distributed: a fixed number of counters, each for a range 9 % wide. */

/** Eight to each doubling, from 2^-5 ms (31 µs) to 2^17 ms (two minutes). */
const STEPS = 8;
const DOUBLING_MIN = -5;
const DOUBLING_MAX = 17;
const LENGTH = (DOUBLING_MAX - DOUBLING_MIN) * STEPS + 1;
/** Behind the counters. */
const TOTAL = LENGTH;
const TOTAL_MS = LENGTH + 1;
export const HISTOGRAM_LENGTH = LENGTH + 2;

export interface Bucket {
  readonly upToMs: number;
  /** Of durations up to this one, those in the buckets before it included. */
  readonly count: number;
}

export class Histogram {
  private readonly memory: Float64Array;

  /** The memory is its own, or one that other threads look into. */
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
    this.increase(index > 0 ? (index < LENGTH ? index : LENGTH - 1) : 0, 1);
    this.increase(TOTAL, 1);
    this.increase(TOTAL_MS, ms);
  }

  /** All that is in the other one, as often as that: −1 takes it away again. */
  addAll({ memory }: Histogram, times = 1): this {
    for (const [index, value] of memory.entries()) this.increase(index, value * times);
    return this;
  }

  /** What this share of the durations does not exceed, to within 5 %; undefined where there are none. */
  quantile(share: number): number | undefined {
    if (this.count <= 0) return undefined;
    const rank = Math.max(1, Math.ceil(share * this.count));
    let seen = 0;
    let index = -1;
    while (seen < rank && index < LENGTH - 1) seen += this.memory[++index] ?? 0;
    // The middle of the range.
    return 2 ** (DOUBLING_MIN + (index - 0.5) / STEPS);
  }

  /** At every doubling between these two, which are powers of two. */
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
