/** Reading from the embedded engine: look-ups, pages, tags and counts. */

import type { ChangePage, ChangeQuery } from "../../domain/change.ts";
import { Refusal } from "../../domain/errors.ts";
import {
  type CountQuery,
  isSearch,
  type PlantCount,
  type PlantPage,
  type PlantQuery,
  type TagPage,
  type TagQuery,
  takeTags,
} from "../../domain/page.ts";
import { lengthOf, type Plant } from "../../domain/plant.ts";
import type { StoreLimits } from "../../domain/store.ts";
import { Batcher, type Committed, pause } from "../batcher.ts";
import { createChangePage, partOf, requireJournal } from "../journal.ts";
import { toPlant } from "../sql-store.ts";
import type { Scans } from "../scans.ts";
import { isLocked, openReadOnly, translate } from "./database.ts";
import { connect, type Connection, disconnect, inSnapshot, readPage, walkTags } from "./sql.ts";
import { scanOnThread } from "./thread.ts";

/**
 * A thread that reads a large page has milliseconds of work with it. So after a page, reading rests this many times as
 * long as the page took, if there are writes.
 */
const PAGE_REST = 3;
/** Of pages that take longer to read, one is read in a tick: it is answered or refused before the next takes memory. */
const LARGE_PAGE_MS = 2;
/** Pages that waited are read together for so long. Then other requests get their turn, and these are answered. */
const PAGES_MS_MAX = 10;
/** The plants that one tick looks up. The others are looked up when these are answered, so few are in memory at once. */
const LOOK_UP_CHARACTERS_MAX = 524_288;

/** Where plants are read. */
interface Source {
  /** The connection to use now. Throws if there is none, or if a plant that can be read may not be on disk. */
  readonly connect: () => Connection;
  /** Whether clients of this thread are writing. */
  readonly isWriting: () => boolean;
  readonly close: () => void;
}

/** Reads on a thread beside the one that owns the store. The owner has made durable what can be read. */
export function openReads(
  path: string,
  limits: StoreLimits,
  isWriting: () => boolean,
): SqliteReads {
  let connection: Connection | undefined = connect(openReadOnly(path));
  return new SqliteReads(path, limits, {
    connect: () => {
      if (connection === undefined) throw new Refusal("shutting_down");
      return connection;
    },
    isWriting,
    close: () => {
      disconnect(connection);
      connection = undefined;
    },
  });
}

/** What the owner of a store and the readers on other threads have in common. Readers do not block the writer. */
export class SqliteReads {
  /** One read transaction for all plants asked for in one tick: its lock costs more than a look-up. */
  private readonly lookUps: Batcher<bigint, Plant | undefined>;
  private readonly scans: Scans;
  /** Pages that wait for their turn. */
  private readonly pages: Batcher<() => unknown, unknown>;
  private readonly limits: StoreLimits;
  private readonly source: Source;
  /** Set for the rest of the tick in which a page was read that is large, or read beside writes. */
  private isTickTaken = false;
  /** The number of the last break in the journal, once it was looked for; 0 if there is none. */
  private lastBreak: number | undefined;
  /** While there are writes, no page is read before this time. */
  private restsUntilMs = 0;

  constructor(path: string, limits: StoreLimits, source: Source) {
    this.pages = new Batcher((reads) => this.readInTurn(reads), limits);
    this.limits = limits;
    this.source = source;
    this.lookUps = new Batcher((ids) => this.findPlants(ids), limits);
    this.scans = scanOnThread(path, limits);
  }

  findPlant(id: bigint): Promise<Plant | undefined> {
    return this.lookUps.submit(id);
  }

  async listPlants(query: PlantQuery): Promise<PlantPage> {
    if (isSearch(query)) {
      // The thread opens the file by itself, so whether it may be read is decided here.
      this.readPlants(() => undefined);
      return this.scans.search(query);
    }
    return this.readPage(({ statements }) => readPage(statements, query));
  }

  async readChanges(query: ChangeQuery): Promise<ChangePage> {
    requireJournal(this.limits);
    return this.readPage(({ statements }) => {
      // To find it takes a scan. While a process keeps a journal, nothing makes another break.
      if (query.after === 0) this.lastBreak ??= Number(statements.lastBreak.get()?.last ?? 0);
      const page = createChangePage(query, Number(statements.newestChange.get()?.newest));
      const start = query.after || (this.lastBreak as number);
      for (const row of statements.readChanges.iterate(start, partOf(query)))
        if (!page.add(row)) break;
      return page.finish();
    });
  }

  async listTags(query: TagQuery): Promise<TagPage> {
    return this.readPlants((connection) =>
      inSnapshot(connection, () => takeTags(walkTags(connection.statements, query), query.limit)),
    );
  }

  async countPlants(query?: CountQuery, msMax?: number): Promise<PlantCount> {
    this.readPlants(() => undefined);
    return this.scans.count(query, msMax);
  }

  async close(): Promise<void> {
    await this.lookUps.close();
    await this.pages.close();
    await this.scans.close();
    this.source.close();
  }

  private findPlants(ids: readonly bigint[]): Committed<Plant | undefined> {
    try {
      const connection = this.source.connect();
      const found: (Plant | undefined)[] = [];
      let characters = 0;
      return inSnapshot(connection, () => {
        for (const id of ids) {
          if (characters > LOOK_UP_CHARACTERS_MAX) break;
          const row = connection.statements.findPlant.get(id);
          const plant = row === null ? undefined : toPlant(row);
          characters += lengthOf(plant);
          found.push(plant);
        }
        return found;
      });
    } catch (error) {
      if (isLocked(error)) return [];
      throw translate(error);
    }
  }

  /** At once, or when it is its turn. */
  private async readPage<Page>(read: (connection: Connection) => Page): Promise<Page> {
    const readNow = (): Page => {
      const startedAtMs = performance.now();
      const page = this.readPlants(read);
      this.isTickTaken = this.source.isWriting() || performance.now() - startedAtMs > LARGE_PAGE_MS;
      // By the end of the tick its text is made and sent, which takes as long again.
      if (this.isTickTaken)
        setImmediate(() => {
          const nowMs = performance.now();
          this.restsUntilMs = nowMs + (nowMs - startedAtMs) * PAGE_REST;
          this.isTickTaken = false;
        });
      return page;
    };
    const isFree = this.pages.waiting === 0 && this.mayRead();
    return isFree ? readNow() : (this.pages.submit(readNow) as Promise<Page>);
  }

  /**
   * Those that follow the last page wait for the next tick. If it were one page a tick, busy clients would keep the
   * queue filled after one large page, and read slower from then on.
   */
  private async readInTurn(reads: readonly (() => unknown)[]): Promise<unknown[]> {
    while (!this.mayRead()) await pause(this.restMs());
    const endsAtMs = performance.now() + PAGES_MS_MAX;
    const pages: Promise<unknown>[] = [];
    for (const read of reads) {
      pages.push(Promise.try(read));
      if (!this.mayRead() || performance.now() > endsAtMs) break;
    }
    return pages;
  }

  private mayRead(): boolean {
    return !this.isTickTaken && this.restMs() === 0;
  }

  private restMs(): number {
    return this.source.isWriting() ? Math.max(0, this.restsUntilMs - performance.now()) : 0;
  }

  private readPlants<Result>(query: (connection: Connection) => Result): Result {
    try {
      return query(this.source.connect());
    } catch (error) {
      throw translate(error);
    }
  }
}
