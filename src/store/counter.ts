/** Counts in bounded pieces, shared by all that ask the same. */

import type { Filter } from "../domain/filter.ts";
import type { CountPage, PlantCount, PlantQuery } from "../domain/page.ts";

const COUNT_MS_MAX = 1_000;
/** A count that took longer is used again for a while: pages that ask every few seconds would slow other reads. */
const CHEAP_MS = 100;
const REUSE_MS = 1_000;

export function createCounter(countPiece: (query: PlantQuery) => Promise<CountPage>) {
  const known = new Map<string, Promise<PlantCount>>();

  const countAll = async (query: Filter, msMax: number): Promise<PlantCount> => {
    const endsAtMs = performance.now() + msMax;
    let count = 0;
    for (let after: bigint | undefined; ;) {
      const limit = Number.POSITIVE_INFINITY;
      const piece = await countPiece({ ...query, after, order: "asc", limit });
      count += piece.count;
      after = piece.next;
      if (after === undefined || performance.now() > endsAtMs)
        return { count, exact: after === undefined };
    }
  };

  return (query: Filter = {}, msMax = COUNT_MS_MAX): Promise<PlantCount> => {
    const key = JSON.stringify([query, msMax]);
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
