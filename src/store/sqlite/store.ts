/** The embedded engine: one file, one writer, one sync for every commit. */

import { Refusal } from "../../domain/errors.ts";
import type { Plant } from "../../domain/plant.ts";
import type { OnMigrate, Store, StoreFigures, StoreLimits } from "../../domain/store.ts";
import { within } from "../../tick.ts";
import { Queue } from "../queue.ts";
import type { ReadRequest, ResultOf } from "../reads.ts";
import type { Statement } from "../records.ts";
import { READ_MS_MIN, SqlStore } from "../sql-store.ts";
import { createWriteQueue, type NotedCommit } from "../traced-queue.ts";
import { IS_BEGINNING, type measureFiles, START_TIMELINE } from "./database.ts";
import { type ReaderOrder, type RecordRead, SqliteReader } from "./reader.ts";
import { SqliteWriter, type Task, type Write } from "./writer.ts";

const PROBE_MS_MAX = 1_500;
const PROBE = `INSERT INTO probe (id, probed_at_ms) VALUES (1, $1)
  ON CONFLICT (id) DO UPDATE SET probed_at_ms = excluded.probed_at_ms`;

/** Where writes, long reads, the journal and records run. Without `read`, reads run on this thread. */
interface Engine {
  commit: NotedCommit<Write>;
  readonly read?: (order: ReaderOrder) => Promise<unknown>;
  readonly readJournal?: (order: ReaderOrder) => Promise<unknown>;
  readonly readRecords?: (order: ReaderOrder) => Promise<unknown>;
  readonly isMoved?: () => boolean;
  readonly isDurable: boolean;
  close(): unknown;
}

/** For a command: everything runs on this thread. Throws a StoreOpenError. */
export const openAlone = (path: string, limits: StoreLimits, onMigrate?: OnMigrate): SqliteStore =>
  new SqliteStore(path, limits, new SqliteWriter(path, limits, onMigrate));

export class SqliteStore extends SqlStore<Task> implements Store {
  readonly description: Store["description"];
  private readonly engine: Engine;
  private readonly reader: SqliteReader;
  protected readonly writes: Queue<Write, unknown>;
  private readonly lookUps: Queue<bigint, Plant | undefined>;
  /** One at a time. Each takes a bounded time, so clients take turns. */
  private readonly longReads: Queue<ReadRequest, unknown>;
  /** Pages of changes, also for feeds and webhooks, which must not wait behind exports. */
  private readonly journalReads: Queue<ReadRequest, unknown>;
  /** Those of a tick share a message. */
  private readonly recordReads: Queue<RecordRead, unknown>;
  private tasksWaiting = 0;

  constructor(path: string, limits: StoreLimits, engine: Engine) {
    const dialect = { prefix: "", lock: "", insertLock: "insert_lock AS (SELECT 1)" };
    super({ ...dialect, rows: "json_each($1)", isBeginning: IS_BEGINNING }, limits);
    this.engine = engine;
    const durability = "every answer is sent after its commit is synced (WAL, synchronous=FULL)";
    this.description = { engine: "SQLite", location: path, durability };
    const reader = (this.reader = new SqliteReader(path, limits, engine.isMoved));
    const readHere = async (order: ReaderOrder) => reader.perform(order);
    const { read = readHere, readJournal = readHere, readRecords = readHere } = engine;
    const commit: Engine["commit"] = (...args) => engine.commit(...args);
    this.writes = createWriteQueue(commit, limits, { onCommit: this.countCommit });
    this.lookUps = new Queue((ids) => reader.findPlants(ids), limits);
    const createLane = (perform: typeof read): Queue<ReadRequest, unknown> =>
      new Queue(
        async ([order]) => [await perform(order as ReadRequest)],
        { ...limits, commitLengthMax: 1 },
        { commitMsMin: READ_MS_MIN },
      );
    this.longReads = createLane(read);
    this.journalReads = createLane(readJournal);
    this.recordReads = new Queue(
      async (reads) => (await readRecords({ kind: "records", reads })) as unknown[],
      limits,
    );
  }

  readonly findPlant: Store["findPlant"] = async (id) =>
    this.whenDurable(() => this.lookUps.submit(id));

  /** Whether a plant could be created. A hanging disk is reported before a health check times out. */
  async probe(): Promise<void> {
    const written = await within(PROBE_MS_MAX, this.perform([PROBE, Date.now()]));
    if (written === undefined) throw new Refusal("store_unavailable");
  }

  async readFigures(): Promise<StoreFigures> {
    const { diskFreeBytes, logBytes } = await this.measureFiles();
    return { diskFreeBytes, logBytes };
  }

  async measureBytes(): Promise<number> {
    const { storeBytes, logBytes } = await this.measureFiles();
    return storeBytes + logBytes;
  }

  private async measureFiles() {
    return (await this.recordReads.submit("files")) as ReturnType<typeof measureFiles>;
  }

  readonly backUps: NonNullable<Store["backUps"]> = {
    startTimeline: async (above, after = null) => {
      const id = crypto.getRandomValues(new Uint8Array(8)).toHex();
      await this.perform([START_TIMELINE, id, above, Date.now(), after]);
    },
  };

  override async close(): Promise<void> {
    await super.close();
    const { writes, lookUps, longReads, journalReads, recordReads } = this;
    for (const queue of [writes, lookUps, longReads, journalReads, recordReads])
      await queue.close();
    this.reader.close();
    await this.engine.close();
  }

  override get writesWaiting(): number {
    return this.writes.waiting - this.tasksWaiting;
  }

  protected read<Request extends ReadRequest>(request: Request) {
    return this.whenDurable(() => this.reader.perform(request) as ResultOf<Request>);
  }

  protected async readLong<Request extends ReadRequest>(
    request: Request,
  ): Promise<ResultOf<Request>> {
    const lane = request.kind === "changes" ? this.journalReads : this.longReads;
    return this.whenDurable(() => lane.submit(request) as Promise<ResultOf<Request>>);
  }

  protected writeJournal(...statements: Statement[]): Promise<unknown[]> {
    return this.perform(...statements);
  }

  protected async readRecords<Row>(statement: Statement): Promise<readonly Row[]> {
    return (await this.recordReads.submit(statement)) as Row[];
  }

  protected writeRecords<Row>(...statements: Statement[]): Promise<readonly Row[]> {
    return this.perform(...statements) as Promise<Row[]>;
  }

  private async perform(...statements: Statement[]): Promise<unknown[]> {
    this.tasksWaiting++;
    try {
      return (await this.writes.submit({ kind: "run", statements })) as unknown[];
    } finally {
      this.tasksWaiting--;
    }
  }

  /** After a crash, reads wait for the first commit, which syncs everything readable. Rejects if that fails. */
  private whenDurable<Result>(read: () => Result): Result | Promise<Awaited<Result>> {
    return this.engine.isDurable ? read() : this.readOnceDurable(read);
  }

  private async readOnceDurable<Result>(read: () => Result): Promise<Awaited<Result>> {
    await this.perform().catch((error: unknown) => {
      if (!this.engine.isDurable) throw error;
    });
    return await read();
  }
}
