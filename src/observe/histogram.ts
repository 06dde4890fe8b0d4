/** How durations are distributed: a fixed number of counters, each for a range 9 % wide. */

/** Eight to each doubling, from 2^-5 ms (31 µs) to 2^17 ms (two minutes). */
const STEPS = 8;
const DOUBLING_MIN = -5;
const DOUBLING_MAX = 17;
const LENGTH = (DOUBLING_MAX - DOUBLING_MIN) * STEPS + 1;

export interface Bucket {
  readonly upToMs: number;
  /** Of durations up to this one, those in the buckets before it included. */
  readonly count: number;
}

export class Histogram {
  private readonly counts = new Float64Array(LENGTH);
  private total = 0;
  private totalMs = 0;

  get count(): number {
    return this.total;
  }

  get sumMs(): number {
    return this.totalMs;
  }

  add(ms: number): void {
    const index = Math.ceil((Math.log2(ms) - DOUBLING_MIN) * STEPS);
    const kept = index > 0 ? (index < LENGTH ? index : LENGTH - 1) : 0;
    this.counts[kept] = (this.counts[kept] ?? 0) + 1;
    this.total++;
    this.totalMs += ms;
  }

  /** What this share of the durations does not exceed, to within 5 %; undefined where there are none. */
  quantile(share: number): number | undefined {
    if (this.total === 0) return undefined;
    const rank = Math.max(1, Math.ceil(share * this.total));
    let seen = 0;
    let index = -1;
    while (seen < rank) seen += this.counts[++index] ?? rank;
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
      while (index <= end) count += this.counts[index++] ?? 0;
      buckets.push({ upToMs, count });
    }
    return buckets;
  }

  clear(): void {
    this.counts.fill(0);
    this.total = 0;
    this.totalMs = 0;
  }
}
