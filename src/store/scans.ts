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
/** A count that took longer is used again for a while. */
const CHEAP_MS = 100;
const REUSE_MS = 1_000;
/** One that begins late gets this time too. So only one that hangs is ended, and a thread with it. */
const SCAN_MS_MIN = 1_000;

export class Scans {
  private readonly searches: Batcher<PlantQuery, PlantPage>;
  /** Pieces of counts. A person waits for a search, and many counts must not take its place. */
  private readonly pieces: Batcher<PlantQuery, CountPage>;
  private readonly known = new Map<string, Promise<PlantCount>>();
  private readonly scanner: Scanner;

  constructor(limits: StoreLimits, scanner: Scanner, searchesMax = 1) {
    const bounds = { ...limits, batchLengthMax: 1 };
    const options = { commitMsMin: SCAN_MS_MIN };
    this.scanner = scanner;
    this.searches = new Batcher(oneOf(scanner.search), bounds, {
      ...options,
      inFlightMax: searchesMax,
    });
    this.pieces = new Batcher(oneOf(scanner.count), bounds, options);
  }

  search(query: PlantQuery): Promise<PlantPage> {
    return this.searches.submit(query);
  }

  count(query: CountQuery = {}, msMax = COUNT_MS_MAX): Promise<PlantCount> {
    const key = JSON.stringify([query.tag, query.name, query.q, msMax]);
    const counted = this.known.get(key) ?? this.countPieces(query, msMax, key);
    this.known.set(key, counted);
    return counted;
  }

  async close(): Promise<void> {
    await Promise.all([this.searches.close(), this.pieces.close()]);
    await this.scanner.close?.();
  }

  private async countPieces(query: CountQuery, msMax: number, key: string): Promise<PlantCount> {
    const startedAtMs = performance.now();
    const { tag, name, q } = query;
    const all = { tag, name, q, order: "asc", limit: Number.POSITIVE_INFINITY } as const;
    let count = 0;
    let isReused = false;
    try {
      for (let after: bigint | undefined; ;) {
        const piece = await this.pieces.submit({ ...all, after });
        count += piece.count;
        after = piece.next;
        const tookMs = performance.now() - startedAtMs;
        if (after !== undefined && tookMs <= msMax) continue;
        isReused = tookMs > CHEAP_MS;
        return { count, exact: after === undefined };
      }
    } finally {
      const forget = (): unknown => this.known.delete(key);
      if (isReused) setTimeout(forget, REUSE_MS).unref();
      else forget();
    }
  }
}

const oneOf =
  <Page>(scan: Scan<Page>): Commit<PlantQuery, Page> =>
  async ([query], deadlineMs) => [await scan(query as PlantQuery, deadlineMs)];
