/** What this process did lately, a sample every two seconds: enough to see, without any other program, how it is. */

import type { Interval, Metrics } from "./metrics.ts";
import type { StoreSize } from "./store-size.ts";

export const SAMPLE_MS = 2_000;
/** Ten minutes. */
export const SAMPLES_MAX = 300;

export interface Sample extends Interval {
  readonly atMs: number;
  /** Writes that wait for a commit. */
  readonly waiting: number;
  readonly storeBytes: number | undefined;
}

interface Sources {
  readonly metrics: Metrics;
  readonly size: StoreSize;
  readonly countWaiting: () => number;
}

export class Activity {
  private readonly sources: Sources;
  private readonly samples: Sample[] = [];
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
    const { metrics, size, countWaiting } = this.sources;
    const interval = metrics.takeInterval();
    this.samples.push({ atMs, ...interval, waiting: countWaiting(), storeBytes: size.bytes });
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
    // For the next sample: this one does not wait for a server.
    void size.refreshIfWatched();
  }

  /** Oldest first. */
  since(atMs: number): readonly Sample[] {
    return this.samples.filter((sample) => sample.atMs > atMs);
  }
}
