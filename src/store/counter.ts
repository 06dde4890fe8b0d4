/** Counts in bounded pieces. Equal counts share their work, and slow ones are cached. */

import type { CountPage, CountQuery, PlantCount, PlantQuery } from "../domain/page.ts";

/** A count slower than this is cached for REUSE_MS: pages that poll would slow other reads. */
const CHEAP_MS = 100;
const REUSE_MS = 1_000;

export function createCounter(
  countPiece: (query: PlantQuery) => Promise<CountPage>,
  usualMsMax: number,
) {
  const known = new Map<string, Promise<PlantCount>>();

  const countAll = async (query: CountQuery, msMax: number): Promise<PlantCount> => {
    const endsAtMs = performance.now() + msMax;
    let count = 0;
    for (let { after } = query; ;) {
      const limit = Number.POSITIVE_INFINITY;
      const piece = await countPiece({ ...query, after, order: "asc", limit });
      count += piece.count;
      after = piece.next;
      if (after === undefined) return { count, exact: true };
      if (performance.now() > endsAtMs) return { count, exact: false, next: after };
    }
  };

  return (query: CountQuery = {}, msMax = usualMsMax): Promise<PlantCount> => {
    const key = JSON.stringify([{ ...query, after: query.after?.toString() }, msMax]);
    const begun = known.get(key);
    if (begun !== undefined) return begun;
    const counted = countAll(query, msMax);
    known.set(key, counted);
    const startedAtMs = performance.now();
    const forget = (): boolean => known.delete(key);
    const keep = (): void => {
      if (performance.now() - startedAtMs <= CHEAP_MS) forget();
      else setTimeout(forget, REUSE_MS).unref();
    };
    counted.then(keep, forget);
    return counted;
  };
}
