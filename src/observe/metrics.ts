/** What this process has done since it started, in counters: to count a request takes less than a microsecond. */

import { Histogram } from "./histogram.ts";

/** Methods by name, and one name for all others: what a client makes up does not become a counter. */
const methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "other"] as const;
const OTHER = methods.length - 1;

export interface RequestCount {
  readonly path: string;
  readonly method: string;
  readonly status: number;
  readonly count: number;
}

/** What happened between two samples. */
export interface Interval {
  readonly creates: number;
  readonly requests: number;
  /** 5xx. */
  readonly errors: number;
  /** 4xx. */
  readonly refused: number;
  readonly durableP50Ms: number | undefined;
  readonly durableP99Ms: number | undefined;
}

type CountRequest = (method: string, status: number) => void;

export class Metrics {
  /** From arrival to answer, and so until the plant is on disk. */
  readonly creates = new Histogram();
  private readonly createsLately = new Histogram();
  private readonly byPath = new Map<string, Map<number, number>>();
  private requests = 0;
  private errors = 0;
  private refused = 0;

  /** The counter of one path, by its pattern and never as it was sent. */
  counterOf(path: string): CountRequest {
    const counts = new Map<number, number>();
    this.byPath.set(path, counts);
    return (method, status) => {
      this.requests++;
      if (status >= 500) this.errors++;
      else if (status >= 400) this.refused++;
      const index = methods.indexOf(method as (typeof methods)[number]);
      const key = status * methods.length + (index === -1 ? OTHER : index);
      counts.set(key, (counts.get(key) ?? 0) + 1);
    };
  }

  /** A plant that was not there is on disk. */
  countCreate(durationMs: number): void {
    this.creates.add(durationMs);
    this.createsLately.add(durationMs);
  }

  listRequests(): RequestCount[] {
    return [...this.byPath].flatMap(([path, counts]) =>
      [...counts].map(([key, count]) => ({
        path,
        method: methods[key % methods.length] ?? "other",
        status: Math.floor(key / methods.length),
        count,
      })),
    );
  }

  /** Ends the interval that the last call began. */
  takeInterval(): Interval {
    const { requests, errors, refused, createsLately } = this;
    const interval = {
      creates: createsLately.count,
      requests,
      errors,
      refused,
      durableP50Ms: round(createsLately.quantile(0.5)),
      durableP99Ms: round(createsLately.quantile(0.99)),
    };
    this.requests = 0;
    this.errors = 0;
    this.refused = 0;
    createsLately.clear();
    return interval;
  }
}

/** To the digits that mean something. */
const round = (ms: number | undefined): number | undefined =>
  ms === undefined ? undefined : Number(ms.toPrecision(3));
