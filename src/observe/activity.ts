/** What this process did lately, a sample every two seconds: enough to see, without any other program, how it is. */

import { Histogram } from "./histogram.ts";
import type { Totals } from "./metrics.ts";
import type { StoreSize } from "./store-size.ts";

export const SAMPLE_MS = 2_000;
/** Ten minutes. */
export const SAMPLES_MAX = 300;

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
  /** Writes that wait for a commit. */
  readonly waiting: number;
  readonly storeBytes: number | undefined;
}

interface Sources {
  readonly total: () => Totals;
  readonly size: StoreSize;
  readonly countWaiting: () => number;
}

export class Activity {
  private readonly sources: Sources;
  private readonly samples: Sample[] = [];
  private last: Totals = { requests: [], creates: new Histogram() };
  private timer: Timer | undefined;

  constructor(sources: Sources) {
    this.sources = sources;
  }

  start(): void {
    this.timer = setInterval(() => this.sample(Date.now()), SAMPLE_MS);
    this.timer.unref();
  }

  stop(): void {
    clearInterval(this.timer);
  }

  sample(atMs: number): void {
    const { total, size, countWaiting } = this.sources;
    const now = total();
    const creates = new Histogram().addAll(now.creates).addAll(this.last.creates, -1);
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
      waiting: countWaiting(),
      storeBytes: size.bytes,
    });
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
    this.last = now;
    // For the next sample: this one does not wait for a server.
    void size.refreshIfWatched();
  }

  /** Oldest first. */
  since(atMs: number): readonly Sample[] {
    return this.samples.filter((sample) => sample.atMs > atMs);
  }
}

function countBetween({ requests }: Totals, statusMin: number, statusMax: number): number {
  let sum = 0;
  for (const { status, count } of requests)
    if (status >= statusMin && status <= statusMax) sum += count;
  return sum;
}

/** To the digits that mean something. */
const round = (ms: number | undefined): number | undefined =>
  ms === undefined ? undefined : Number(ms.toPrecision(3));
