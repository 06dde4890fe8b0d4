/** Counts of plants: bounded in time, and shared by all that ask the same. */

import type { CountPage, CountQuery, PlantCount, PlantQuery } from "../domain/page.ts";

const COUNT_MS_MAX = 1_000;
/** A count that took longer is used again for a while. */
const CHEAP_MS = 100;
const REUSE_MS = 1_000;

export class Counts {
  private readonly known = new Map<string, Promise<PlantCount>>();
  private readonly countPage: (query: PlantQuery) => Promise<CountPage>;

  constructor(countPage: (query: PlantQuery) => Promise<CountPage>) {
    this.countPage = countPage;
  }

  count({ tag, name, q }: CountQuery, msMax = COUNT_MS_MAX): Promise<PlantCount> {
    const key = JSON.stringify([tag, name, q, msMax]);
    const known = this.known.get(key) ?? this.countPages({ tag, name, q }, msMax, key);
    this.known.set(key, known);
    return known;
  }

  private async countPages(
    { tag, name, q }: CountQuery,
    msMax: number,
    key: string,
  ): Promise<PlantCount> {
    const startedAtMs = performance.now();
    const query = { tag, name, q, order: "asc", limit: Number.POSITIVE_INFINITY } as const;
    let count = 0;
    let tookMs = 0;
    try {
      for (let after: bigint | undefined; ;) {
        const page = await this.countPage({ ...query, after });
        count += page.count;
        after = page.next;
        tookMs = performance.now() - startedAtMs;
        if (after === undefined) return { count, exact: true };
        if (tookMs > msMax) return { count, exact: false };
      }
    } finally {
      const forget = (): unknown => this.known.delete(key);
      if (tookMs > CHEAP_MS) setTimeout(forget, REUSE_MS).unref();
      else forget();
    }
  }
}
