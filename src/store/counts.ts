/** Counts of plants: bounded in time, and shared by all that ask the same. */

import type { CountPage, CountQuery, PlantCount, PlantQuery } from "../domain/page.ts";

const COUNT_MS_MAX = 1_000;
/** A count that took longer is used again for a while. */
const CHEAP_MS = 100;
const REUSE_MS = 1_000;

interface Known {
  readonly count: Promise<PlantCount>;
  untilMs: number;
}

export class Counts {
  private readonly known = new Map<string, Known>();
  private readonly countPage: (query: PlantQuery) => Promise<CountPage>;

  constructor(countPage: (query: PlantQuery) => Promise<CountPage>) {
    this.countPage = countPage;
  }

  count({ tag, name, q }: CountQuery, msMax = COUNT_MS_MAX): Promise<PlantCount> {
    const startedAtMs = performance.now();
    for (const [key, { untilMs }] of this.known) if (untilMs <= startedAtMs) this.known.delete(key);
    const key = JSON.stringify([tag, name, q, msMax]);
    const known = this.known.get(key);
    if (known !== undefined) return known.count;
    const query = { tag, name, q, order: "asc", limit: Number.POSITIVE_INFINITY } as const;
    const counting: Known = {
      count: this.countPages(query, startedAtMs + msMax),
      untilMs: Number.POSITIVE_INFINITY,
    };
    this.known.set(key, counting);
    counting.count.then(
      () => {
        const nowMs = performance.now();
        counting.untilMs = nowMs - startedAtMs > CHEAP_MS ? nowMs + REUSE_MS : nowMs;
      },
      () => this.known.delete(key),
    );
    return counting.count;
  }

  private async countPages(
    query: Omit<PlantQuery, "after">,
    endsAtMs: number,
  ): Promise<PlantCount> {
    let count = 0;
    for (let after: bigint | undefined; ;) {
      const page = await this.countPage({ ...query, after });
      count += page.count;
      after = page.next;
      if (after === undefined) return { count, exact: true };
      if (performance.now() > endsAtMs) return { count, exact: false };
    }
  }
}
