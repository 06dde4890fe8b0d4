/** Counts of plants: bounded in time, and shared by all that ask the same. */

import type { CountPage, CountQuery, PlantCount, PlantQuery } from "../domain/page.ts";

const COUNT_MS_MAX = 1_000;
/** A count that took longer is used again for a while. */
const CHEAP_MS = 100;
const REUSE_MS = 1_000;

export function createCounter(countPage: (query: PlantQuery) => Promise<CountPage>) {
  const known = new Map<string, Promise<PlantCount>>();

  async function countPages(query: CountQuery, msMax: number, key: string): Promise<PlantCount> {
    const startedAtMs = performance.now();
    const { tag, name, q } = query;
    const all = { tag, name, q, order: "asc", limit: Number.POSITIVE_INFINITY } as const;
    let count = 0;
    let tookMs = 0;
    try {
      for (let after: bigint | undefined; ;) {
        const page = await countPage({ ...all, after });
        count += page.count;
        after = page.next;
        tookMs = performance.now() - startedAtMs;
        if (after === undefined) return { count, exact: true };
        if (tookMs > msMax) return { count, exact: false };
      }
    } finally {
      const forget = (): unknown => known.delete(key);
      if (tookMs > CHEAP_MS) setTimeout(forget, REUSE_MS).unref();
      else forget();
    }
  }

  return (query: CountQuery = {}, msMax = COUNT_MS_MAX): Promise<PlantCount> => {
    const key = JSON.stringify([query.tag, query.name, query.q, msMax]);
    const counted = known.get(key) ?? countPages(query, msMax, key);
    known.set(key, counted);
    return counted;
  };
}
