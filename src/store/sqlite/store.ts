/** The embedded engine: one file, one writer, one sync for every commit. */

import type { ChangePage, ChangeQuery } from "../../domain/change.ts";
import { isSearch } from "../../domain/filter.ts";
import type {
  CountPage,
  PageForm,
  PageText,
  PlantPage,
  PlantQuery,
  TagPage,
  TagQuery,
} from "../../domain/page.ts";
import { Refusal } from "../../domain/errors.ts";
import type { Plant } from "../../domain/plant.ts";
import type {
  OnMigrate,
  Store,
  StoreDescription,
  StoreFigures,
  StoreLimits,
} from "../../domain/store.ts";
import { within } from "../../tick.ts";
import { Batcher, type Commit } from "../batcher.ts";
import { createCounter } from "../counter.ts";
import { keepTrimmed, requireJournal } from "../journal.ts";
import { countChanges, SqlStore, type Statement } from "../sql-store.ts";
import { fileBytesOf, findDiskFree } from "./database.ts";
import { type ReadOrder, SqliteReader } from "./reader.ts";
import { PROBE, TRIM } from "./sql.ts";
import { createCaller, encodeBatch, fromOutcome, type StoreLink } from "./thread.ts";
import { SqliteWriter, type Write } from "./writer.ts";

/** A larger page is read and formatted on the reader thread. */
const SMALL_PAGE_LENGTH = 100;
/** A read that begins late gets this time too. */
const READ_MS_MIN = 1_000;
const PROBE_MS_MAX = 1_500;

/** Where a store writes, and where it reads at length. */
interface Engine {
  readonly commit: Commit<Write, unknown>;
  readonly read: (order: ReadOrder) => unknown;
  /** Whether everything that can be read is on disk. */
  readonly isDurable: () => boolean;
  readonly close: () => Promise<void>;
}

/** For a command: everything is done on this thread. Throws a StoreOpenError. */
export function openAlone(path: string, limits: StoreLimits, onMigrate?: OnMigrate): SqliteStore {
  const writer = new SqliteWriter(path, limits, onMigrate);
  const reader = new SqliteReader(path, limits.scanRowsMax);
  return new SqliteStore(path, limits, reader, {
    commit: (batch, deadlineMs) => writer.commit(batch, deadlineMs),
    read: (order) => reader.perform(order),
    isDurable: () => writer.isDurable,
    close: async () => writer.close(),
  });
}

/** For a thread of the service. `close` is called at the end, by the thread that started those of the store. */
export function openLinked(
  path: string,
  limits: StoreLimits,
  link: StoreLink,
  close?: () => Promise<void>,
): SqliteStore {
  const [writes, reads] = [createCaller(link.writes), createCaller(link.reads)];
  return new SqliteStore(path, limits, new SqliteReader(path, limits.scanRowsMax), {
    commit: async (batch, deadlineMs) => {
      const outcomes = await writes.ask(encodeBatch(batch, performance.timeOrigin + deadlineMs));
      return (outcomes as unknown[]).map(fromOutcome);
    },
    read: (order) => reads.ask(order),
    isDurable: () => Atomics.load(link.durable, 0) === 1,
    close: async () => {
      for (const caller of [writes, reads]) caller.close();
      await close?.();
    },
  });
}

export class SqliteStore extends SqlStore<Write> implements Store {
  readonly description: StoreDescription;
  private readonly path: string;
  private readonly limits: StoreLimits;
  private readonly engine: Engine;
  private readonly reader: SqliteReader;
  protected readonly writes: Batcher<Write, unknown>;
  private readonly lookUps: Batcher<bigint, Plant | undefined>;
  /** Each takes a bounded time, so those of all clients take turns. */
  private readonly longReads: Batcher<ReadOrder, unknown>;
  private readonly count: Store["countPlants"];
  private readonly stopTrimming: () => void;
  private tasksWaiting = 0;

  constructor(path: string, limits: StoreLimits, reader: SqliteReader, engine: Engine) {
    super({ prefix: "", lock: "", given: "json_each($1)", turn: "turn AS (SELECT 1)" });
    this.path = path;
    this.limits = limits;
    this.reader = reader;
    this.engine = engine;
    this.description = {
      engine: "SQLite",
      location: path,
      durability: "every answer is sent after its commit is synced (WAL, synchronous=FULL)",
    };
    this.writes = new Batcher(engine.commit, limits, {
      onCommit: (durationMs, writes, outcomes) => {
        const done = outcomes.filter((_, index) => writes[index]?.kind !== "run");
        if (done.length > 0) limits.onCommit?.(durationMs, done.length, countChanges(done));
      },
    });
    this.lookUps = new Batcher((ids) => reader.findPlants(ids), limits);
    this.longReads = new Batcher(
      async ([order]) => [await engine.read(order as ReadOrder)],
      { ...limits, batchLengthMax: 1 },
      { commitMsMin: READ_MS_MIN },
    );
    this.count = createCounter(
      (query) => this.longReads.submit({ kind: "count", query }) as Promise<CountPage>,
    );
    this.stopTrimming = keepTrimmed(limits, async (beforeMs) => {
      const removed = await this.perform(true, [TRIM, beforeMs]);
      return removed.length > 0;
    });
  }

  findPlant(id: bigint): Promise<Plant | undefined> {
    return this.whenDurable(() => this.lookUps.submit(id));
  }

  listPlants(query: PlantQuery): Promise<PlantPage> {
    return this.whenDurable(async () => this.reader.listPlants(query));
  }

  readPlants(query: PlantQuery, form: PageForm): Promise<PageText> {
    const isSmall = form === "json" && query.limit <= SMALL_PAGE_LENGTH && !isSearch(query);
    if (!isSmall) return this.readLong({ kind: "plants", query, form });
    return this.whenDurable(async () => this.reader.readPlants(query, form));
  }

  listTags(query: TagQuery): Promise<TagPage> {
    return this.readLong({ kind: "tags", query });
  }

  countPlants(...asked: Parameters<Store["countPlants"]>): ReturnType<Store["countPlants"]> {
    return this.whenDurable(() => this.count(...asked));
  }

  async readChanges(query: ChangeQuery): Promise<ChangePage> {
    requireJournal(this.limits);
    return this.readLong({ kind: "changes", query });
  }

  /** Finds out whether a plant could be created. A disk that hangs is noticed before a client's patience ends. */
  async probe(): Promise<void> {
    const written = await within(PROBE_MS_MAX, this.perform(true, [PROBE, Date.now()]));
    if (written === undefined) throw new Refusal("store_unavailable");
  }

  readFigures(): StoreFigures {
    return { diskFreeBytes: findDiskFree(this.path), logBytes: fileBytesOf(`${this.path}-wal`) };
  }

  async measureBytes(): Promise<number> {
    return fileBytesOf(this.path) + fileBytesOf(`${this.path}-wal`);
  }

  async close(): Promise<void> {
    this.stopTrimming();
    for (const queue of [this.writes, this.lookUps, this.longReads]) await queue.close();
    this.reader.close();
    await this.engine.close();
  }

  protected async readRecords<Row>(statement: Statement): Promise<readonly Row[]> {
    return this.reader.run(statement) as Row[];
  }

  protected writeRecords<Row>(...statements: readonly Statement[]): Promise<readonly Row[]> {
    return this.perform(false, ...statements) as Promise<Row[]>;
  }

  /** Of plants alone. */
  override get writesWaiting(): number {
    return this.writes.waiting - this.tasksWaiting;
  }

  private async perform(concernsPlants: boolean, ...statements: Statement[]): Promise<unknown[]> {
    this.tasksWaiting++;
    try {
      return (await this.writes.submit({ kind: "run", concernsPlants, statements })) as unknown[];
    } finally {
      this.tasksWaiting--;
    }
  }

  private readLong<Result>(order: ReadOrder): Promise<Result> {
    return this.whenDurable(() => this.longReads.submit(order) as Promise<Result>);
  }

  /** After a crash, everything that can be read is on disk after the first commit. Rejects if that fails. */
  private async whenDurable<Result>(read: () => Promise<Result>): Promise<Result> {
    if (this.engine.isDurable()) return read();
    await this.perform(true).catch((error: unknown) => {
      if (!this.engine.isDurable()) throw error;
    });
    return read();
  }
}
