/** The engine for several instances: PostgreSQL, or a server that speaks its protocol. */

import type { Plant } from "../../domain/plant.ts";
import type { OnMigrate, ServerLimits, Store, StoreLimits } from "../../domain/store.ts";
import { describeTarget, type Target } from "../../store-url.ts";
import { createCounter } from "../counter.ts";
import type { Engine, Statement } from "../engine.ts";
import { openLane, Queue } from "../queue.ts";
import { createWriteQueue } from "../write-queue.ts";
import { perform, readLater, type ReadRequest, type ResultOf } from "../reads.ts";
import { createStore } from "../sql-store.ts";
import { beginJournal, IS_BEGINNING, numberBlocks } from "./changes.ts";
import { createHosts, createPool, onServer } from "./pool.ts";
import { createProbe } from "./probe.ts";
import { FIND_LENGTH_MAX, findPlants, createSource } from "./read.ts";
import { migrate } from "./schema.ts";
import { type Accounts, commitWrites, createQuota, type GroupWrite, idsOf } from "./write.ts";

type Limits = StoreLimits & ServerLimits;

const MEASURE = "SELECT pg_database_size(current_database()) AS bytes";

/** Reads that share a connection need less CPU, here and on the server. */
const READERS_PER_CONNECTION = 8;
/** A large page or a search takes milliseconds of CPU, here and on the server. */
const LONG_READS_MAX = 2;
const MEASURE_MS_MAX = 1_500;

/** The client would encode a parameter of type json a second time. */
const JSON_ROWS = "json_array_elements(CAST(CAST($1 AS text) AS json))";
/** Optimistic lock: no row if the mark has moved since the statement's snapshot, whose count may then be too low. */
const INSERT_LOCK = `insert_lock AS (
    INSERT INTO plantstore_marks (name, at_ms) VALUES ('turn', 1)
    ON CONFLICT (name) DO UPDATE SET at_ms = plantstore_marks.at_ms + 1
      WHERE plantstore_marks.at_ms = (SELECT at_ms FROM plantstore_marks WHERE name = 'turn')
    RETURNING name
  )`;

export function openPostgresStore(target: Target, limits: Limits, onMigrate?: OnMigrate) {
  const location = describeTarget(target);
  return onServer(target, limits, async (connection) => {
    await migrate(connection, location, onMigrate);
    const changesDays = await beginJournal(connection, limits.changesDays);
    const description = { engine: "PostgreSQL", location, durability: connection.durability };
    const known = { ...limits, changesDays };
    return createStore(createEngine(target, description, known), known);
  });
}

function createEngine(target: Target, description: Store["description"], limits: Limits): Engine {
  const hosts = createHosts(target, limits);
  const writers = createPool(hosts, limits, limits.writeConnections);
  const readers = createPool(hosts, limits, limits.readConnections, READERS_PER_CONNECTION);
  /** For writes other than plants: tokens, webhooks, jobs, the numbers of the journal. */
  const recordWriters = createPool(hosts, limits);
  const commitMsMin = Math.min(limits.queueSecondsMax, limits.statementSecondsMax) * 1000;

  const read = <Request extends ReadRequest>(
    request: Request,
    deadlineMs?: number,
    newest?: number,
  ): Promise<ResultOf<Request>> =>
    readers.run(
      (connection) =>
        readLater(perform(createSource(connection, limits.scanRowsMax, newest), request)),
      deadlineMs,
    ) as Promise<ResultOf<Request>>;

  const openReads = (inFlightMax: number) =>
    openLane<ReadRequest, unknown>(read, limits, inFlightMax);
  // Throttled: many at once would starve other requests of connections and CPU. Sorted lists take turns. Counts have a
  // lane of their own: a person waits for a search, and counts must not delay it.
  const lanes: Partial<Record<ReadRequest["kind"], ReturnType<typeof openReads>>> = {
    plants: openReads(LONG_READS_MAX),
    sort: openReads(1),
    count: openReads(1),
  };
  /** Numbering costs a sync, so readers of the journal share it, and reads of plants do not wait behind it. */
  const numberings = new Queue<undefined, number>(
    async (waiting, deadlineMs) => {
      const newest = await recordWriters.run(numberBlocks, deadlineMs);
      return waiting.map(() => newest);
    },
    limits,
    { commitMsMin },
  );

  async function readLong<Request extends ReadRequest>(
    request: Request,
  ): Promise<ResultOf<Request>> {
    if (request.kind === "changes")
      return read(request, undefined, await numberings.submit(undefined));
    const lane = lanes[request.kind];
    return lane === undefined
      ? read(request)
      : (lane.submit(request) as Promise<ResultOf<Request>>);
  }

  const { plantsMax } = limits;
  const countAll = createCounter((query) => readLong({ kind: "count", query }), 0);
  const accounts: Accounts = {
    hasJournal: limits.changesDays > 0,
    quota: plantsMax ? createQuota(plantsMax, countAll) : undefined,
  };
  const health = createProbe(writers, accounts.hasJournal);
  const writes = createWriteQueue<GroupWrite>(
    async (group, deadlineMs) => {
      const outcomes = await commitWrites(writers, group, deadlineMs, accounts);
      health.note(outcomes);
      return outcomes;
    },
    limits,
    { inFlightMax: limits.writeConnections, commitMsMin, keysOf: idsOf },
  );
  const lookUps = new Queue<bigint, Plant | undefined>(
    (ids, deadlineMs) => readers.run((connection) => findPlants(connection, ids), deadlineMs),
    { ...limits, commitLengthMax: FIND_LENGTH_MAX },
    { inFlightMax: limits.readConnections, commitMsMin },
  );

  return {
    description,
    dialect: {
      prefix: "plantstore_",
      lock: "FOR UPDATE",
      insertLock: INSERT_LOCK,
      rows: JSON_ROWS,
      isBeginning: IS_BEGINNING,
    },
    writes,
    countWaiting: () => writes.waiting,
    findPlant: (id) => lookUps.submit(id),
    read: (request) => read(request),
    readLong,
    numberChanges: () => numberings.submit(undefined),
    query: <Row>([sql, ...values]: Statement) =>
      readers.run((connection) => connection.query<Row>(sql, values)),
    run: <Row>(...statements: Statement[]) =>
      recordWriters.run(async (connection) => {
        let rows: readonly Row[] = [];
        for (const [sql, ...values] of statements) rows = await connection.query<Row>(sql, values);
        return rows;
      }),
    probe: health.check,
    readFigures: async () => ({ ...hosts.figures }),

    /** The server stats every file of the database, which may be slow. */
    measureBytes: async () => {
      const [row] = await readers.run(
        (connection) => connection.query<{ readonly bytes: bigint }>(MEASURE),
        performance.now() + MEASURE_MS_MAX,
        1,
      );
      return Number(row?.bytes);
    },

    close: async () => {
      const queues = [writes, lookUps, numberings, ...Object.values(lanes)];
      await Promise.all(queues.map((queue) => queue.close()));
      for (const pool of [writers, readers, recordWriters]) pool.close();
    },
  };
}
