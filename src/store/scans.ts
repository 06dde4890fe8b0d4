/** Searches and counts. Each looks at many plants, so few run at a time, and counts are shared by all that ask the same. */

import type { CountPage, CountQuery, PlantCount, PlantPage, PlantQuery } from "../domain/page.ts";
import type { StoreLimits } from "../domain/store.ts";
import { Batcher, type Commit } from "./batcher.ts";

/** How an engine looks through plants, for a bounded time. */
interface Scanner {
  readonly search: Scan<PlantPage>;
  readonly count: Scan<CountPage>;
  readonly close?: () => Promise<void>;
}

type Scan<Page> = (query: PlantQuery, deadlineMs: number) => Promise<Page>;

const COUNT_MS_MAX = 1_000;
/** A count that took longer is used again for a while: pages that ask every few seconds would slow creates. */
const CHEAP_MS = 100;
const REUSE_MS = 1_000;
/** One that begins late gets this time too. So only one that hangs is ended, and a thread with it. */
const SCAN_MS_MIN = 1_000;

export type Scans = ReturnType<typeof createScans>;

export function createScans(limits: StoreLimits, scanner: Scanner, searchesMax = 1) {
  const bounds = { ...limits, batchLengthMax: 1 };
  const options = { commitMsMin: SCAN_MS_MIN };
  const searchOptions = { ...options, inFlightMax: searchesMax };
  const searches = new Batcher(oneOf(scanner.search), bounds, searchOptions);
  // Pieces of counts. A person waits for a search, and many counts must not take its place.
  const pieces = new Batcher(oneOf(scanner.count), bounds, options);
  const known = new Map<string, Promise<PlantCount>>();

  const countPieces = async ({ tag, name, q }: CountQuery, msMax: number): Promise<PlantCount> => {
    const endsAtMs = performance.now() + msMax;
    const all = { tag, name, q, order: "asc", limit: Number.POSITIVE_INFINITY } as const;
    let count = 0;
    for (let after: bigint | undefined; ;) {
      const piece = await pieces.submit({ ...all, after });
      count += piece.count;
      after = piece.next;
      if (after === undefined || performance.now() > endsAtMs)
        return { count, exact: after === undefined };
    }
  };

  return {
    search: (query: PlantQuery): Promise<PlantPage> => searches.submit(query),

    count(query: CountQuery = {}, msMax = COUNT_MS_MAX): Promise<PlantCount> {
      const key = JSON.stringify([query.tag, query.name, query.q, msMax]);
      const counted = known.get(key) ?? countPieces(query, msMax);
      if (known.has(key)) return counted;
      known.set(key, counted);
      const startedAtMs = performance.now();
      const forget = (): boolean => known.delete(key);
      const keep = (): void => {
        if (performance.now() - startedAtMs <= CHEAP_MS) forget();
        else setTimeout(forget, REUSE_MS).unref();
      };
      counted.then(keep, forget);
      return counted;
    },

    async close(): Promise<void> {
      await Promise.all([searches.close(), pieces.close()]);
      await scanner.close?.();
    },
  };
}

const oneOf =
  <Page>(scan: Scan<Page>): Commit<PlantQuery, Page> =>
  async ([query], deadlineMs) => [await scan(query as PlantQuery, deadlineMs)];
