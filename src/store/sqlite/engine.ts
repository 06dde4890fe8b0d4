/** The embedded engine: one file, one writer, one sync for every commit. */

import { Refusal } from "../../domain/errors.ts";
import type { Plant } from "../../domain/plant.ts";
import type { OnMigrate, Store, StoreLimits } from "../../domain/store.ts";
import { within } from "../../tick.ts";
import type { Engine, Statement } from "../engine.ts";
import { openLane, Queue } from "../queue.ts";
import type { ReadRequest, ResultOf } from "../reads.ts";
import { createStore } from "../sql-store.ts";
import { createWriteQueue, type NotedCommit } from "../write-queue.ts";
import { IS_BEGINNING, type measureFiles, START_TIMELINE } from "./database.ts";
import { type ReaderOrder, type RecordRead, SqliteReader } from "./reader.ts";
import { SqliteWriter, type Write } from "./writer.ts";

const PROBE_MS_MAX = 1_500;
const PROBE = `INSERT INTO probe (id, probed_at_ms) VALUES (1, $1)
  ON CONFLICT (id) DO UPDATE SET probed_at_ms = excluded.probed_at_ms`;

const DURABILITY = "every answer is sent after its commit is synced (WAL, synchronous=FULL)";

type Ask = (order: ReaderOrder) => Promise<unknown>;

/** Where writes, and long reads, the journal and records run. Without `read`, reads run on this thread. */
interface Threads {
  commit: NotedCommit<Write>;
  readonly read?: Ask;
  readonly isMoved?: () => boolean;
  readonly isDurable: boolean;
  close(): unknown;
}

/** For a command: everything runs on this thread. Throws a StoreOpenError. */
export const openAlone = (path: string, limits: StoreLimits, onMigrate?: OnMigrate): Store =>
  openSqliteStore(path, limits, new SqliteWriter(path, limits, onMigrate));

export const openSqliteStore = (path: string, limits: StoreLimits, threads: Threads): Store =>
  createStore(createEngine(path, limits, threads), limits);

function createEngine(path: string, limits: StoreLimits, threads: Threads): Engine {
  const reader = new SqliteReader(path, limits, threads.isMoved);
  const { read = async (order: ReaderOrder) => reader.perform(order) } = threads;
  const writes = createWriteQueue<Write>((...args) => threads.commit(...args), limits);
  const lookUps = new Queue<bigint, Plant | undefined>((ids) => reader.findPlants(ids), limits);
  const reads = openLane<ReadRequest, unknown>(read, limits);
  /** Pages of changes, also for feeds and webhooks: they wait for the long read in flight, not for those in the queue. */
  const journalReads = openLane<ReadRequest, unknown>(read, limits);
  /** Those of a tick share a message. */
  const records = new Queue<RecordRead, unknown>(
    async (all) => (await read({ kind: "records", reads: all })) as unknown[],
    limits,
  );
  let runsWaiting = 0;

  async function run<Row>(...statements: Statement[]): Promise<readonly Row[]> {
    runsWaiting++;
    try {
      return (await writes.submit({ kind: "run", statements })) as Row[];
    } finally {
      runsWaiting--;
    }
  }

  /** After a crash, reads wait for the first commit, which syncs everything readable. Rejects if that fails. */
  const whenDurable = <Result>(act: () => Result): Result | Promise<Awaited<Result>> =>
    threads.isDurable ? act() : actOnceDurable(act);

  async function actOnceDurable<Result>(act: () => Result): Promise<Awaited<Result>> {
    await run().catch((error: unknown) => {
      if (!threads.isDurable) throw error;
    });
    return await act();
  }

  const measure = async () => (await records.submit("files")) as ReturnType<typeof measureFiles>;

  return {
    description: { engine: "SQLite", location: path, durability: DURABILITY },
    dialect: {
      prefix: "",
      lock: "",
      insertLock: "insert_lock AS (SELECT 1)",
      rows: "json_each($1)",
      isBeginning: IS_BEGINNING,
    },
    writes,
    countWaiting: () => writes.waiting - runsWaiting,
    findPlant: async (id) => whenDurable(() => lookUps.submit(id)),
    read: <Request extends ReadRequest>(request: Request) =>
      whenDurable(() => reader.perform(request) as ResultOf<Request>),
    readLong: async <Request extends ReadRequest>(request: Request) =>
      whenDurable(() => {
        const lane = request.kind === "changes" ? journalReads : reads;
        return lane.submit(request) as Promise<ResultOf<Request>>;
      }),
    query: async <Row>(statement: Statement) => (await records.submit(statement)) as Row[],
    run,

    /** Whether a plant could be created. A hanging disk is reported before a health check times out. */
    probe: async () => {
      const written = await within(PROBE_MS_MAX, run([PROBE, Date.now()]));
      if (written === undefined) throw new Refusal("store_unavailable");
    },

    readFigures: async () => {
      const { diskFreeBytes, logBytes } = await measure();
      return { diskFreeBytes, logBytes };
    },

    measureBytes: async () => {
      const { storeBytes, logBytes } = await measure();
      return storeBytes + logBytes;
    },

    backUps: {
      startTimeline: async (above, after = null) => {
        const id = crypto.getRandomValues(new Uint8Array(8)).toHex();
        await run([START_TIMELINE, id, above, Date.now(), after]);
      },
    },

    close: async () => {
      for (const queue of [writes, lookUps, reads, journalReads, records]) await queue.close();
      reader.close();
      await threads.close();
    },
  };
}
