/** Whether something that is measured again and again grows for good, told from its ups and downs. */

import { quantile } from "./creators.ts";

export interface Sample {
  /** What has been done so far. */
  readonly requests: number;
  readonly bytes: number;
}

export interface Growth {
  /** Between the first and the last quarter behind the warm-up, by their medians. */
  readonly bytes: number;
  readonly requests: number;
  readonly bytesPerRequest: number;
}

/** Compilers and caches fill up in the beginning. */
const WARM_UP_SHARE = 0.4;

export function measureGrowth(samples: readonly Sample[]): Growth {
  const warm = samples.slice(Math.floor(samples.length * WARM_UP_SHARE));
  const quarter = Math.max(1, Math.floor(warm.length / 4));
  const [first, last] = [warm.slice(0, quarter), warm.slice(-quarter)];
  const between = (read: (sample: Sample) => number): number =>
    quantile(last.map(read), 0.5) - quantile(first.map(read), 0.5);
  const bytes = between((sample) => sample.bytes);
  const requests = between((sample) => sample.requests);
  return { bytes, requests, bytesPerRequest: requests === 0 ? 0 : bytes / requests };
}
