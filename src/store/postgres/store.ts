/** The engine for several instances: PostgreSQL, or a server that speaks its protocol. */

import type { Plant } from "../../domain/plant.ts";
import type { OnMigrate, ServerLimits, Store, StoreLimits } from "../../domain/store.ts";
import { describeTarget, type Target } from "../../store-url.ts";
import { Queue } from "../queue.ts";
import { createWriteQueue } from "../traced-queue.ts";
import type { RecordTable, RecordUpdate, Statement } from "../records.ts";
import { perform, readLater, type ReadRequest, type ResultOf } from "../reads.ts";
import { READ_MS_MIN, SqlStore } from "../sql-store.ts";
import { beginJournal, IS_BEGINNING, numberBlocks } from "./changes.ts";
import { type ConnectionPool, createHosts, createPool, onServer } from "./pool.ts";
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
    return new PostgresStore(target, description, { ...limits, changesDays });
  });
}

class PostgresStore extends SqlStore implements Store {
  readonly description: Store["description"];
  readonly readFigures: Store["readFigures"];
  readonly probe: Store["probe"];
  private readonly writers: ConnectionPool;
  private readonly readers: ConnectionPool;
  /** For writes other than plants: tokens, webhooks, jobs, the numbers of the journal. */
  private readonly recordWriters: ConnectionPool;
  protected readonly writes: Queue<GroupWrite, unknown>;
  private readonly lookUps: Queue<bigint, Plant | undefined>;
  /** Numbering costs a sync, so readers of the journal share it, and reads of plants do not wait behind it. */
  private readonly numberings: Queue<undefined, number>;
  /** Grouped: with a slow sync, webhooks that write one by one would wait for each other for seconds. */
  private readonly webhookUpdates: Queue<RecordUpdate, boolean>;
  private readonly lanes: Readonly<
    Partial<Record<ReadRequest["kind"], Queue<ReadRequest, unknown>>>
  >;

  constructor(target: Target, description: Store["description"], limits: Limits) {
    const dialect = { prefix: "plantstore_", lock: "FOR UPDATE", insertLock: INSERT_LOCK };
    super({ ...dialect, rows: JSON_ROWS, isBeginning: IS_BEGINNING }, limits);
    this.description = description;
    const hosts = createHosts(target, limits);
    this.readFigures = async () => ({ ...hosts.figures });
    this.writers = createPool(hosts, limits, limits.writeConnections);
    this.readers = createPool(hosts, limits, limits.readConnections, READERS_PER_CONNECTION);
    this.recordWriters = createPool(hosts, limits);
    const commitMsMin = Math.min(limits.queueSecondsMax, limits.statementSecondsMax) * 1000;
    const accounts: Accounts = {
      hasJournal: limits.changesDays > 0,
      quota: limits.plantsMax ? createQuota(limits.plantsMax, this.countPlants) : undefined,
    };
    const health = createProbe(this.writers, accounts.hasJournal);
    this.probe = health.check;
    this.writes = createWriteQueue<GroupWrite>(
      async (group, deadlineMs) => {
        const outcomes = await commitWrites(this.writers, group, deadlineMs, accounts);
        health.note(outcomes);
        return outcomes;
      },
      limits,
      {
        inFlightMax: limits.writeConnections,
        commitMsMin,
        keysOf: idsOf,
        onCommit: this.countCommit,
      },
    );
    this.lookUps = new Queue(
      (ids, deadlineMs) =>
        this.readers.run((connection) => findPlants(connection, ids), deadlineMs),
      { ...limits, commitLengthMax: FIND_LENGTH_MAX },
      { inFlightMax: limits.readConnections, commitMsMin },
    );
    this.numberings = new Queue(
      async (readers, deadlineMs) => {
        const newest = await this.recordWriters.run(numberBlocks, deadlineMs);
        return readers.map(() => newest);
      },
      limits,
      { commitMsMin },
    );
    this.webhookUpdates = new Queue((updates) => super.updateRecords("webhooks", updates), limits);
    const openLane = (inFlightMax: number): Queue<ReadRequest, unknown> =>
      new Queue<ReadRequest, unknown>(
        async ([request], deadlineMs) => [await this.read(request as ReadRequest, deadlineMs)],
        { ...limits, commitLengthMax: 1 },
        { inFlightMax, commitMsMin: READ_MS_MIN },
      );
    // Throttled: many at once would starve other requests of connections and CPU. Sorted lists take turns. Counts have a
    // queue of their own: a person waits for a search, and counts must not delay it.
    this.lanes = { plants: openLane(LONG_READS_MAX), sort: openLane(1), count: openLane(1) };
  }

  readonly findPlant: Store["findPlant"] = (id) => this.lookUps.submit(id);

  protected read<Request extends ReadRequest>(
    request: Request,
    deadlineMs?: number,
    newest?: number,
  ): Promise<ResultOf<Request>> {
    const { scanRowsMax } = this.limits;
    return this.readers.run(
      (connection) => readLater(perform(createSource(connection, scanRowsMax, newest), request)),
      deadlineMs,
    ) as Promise<ResultOf<Request>>;
  }

  protected async readLong<Request extends ReadRequest>(
    request: Request,
  ): Promise<ResultOf<Request>> {
    if (request.kind === "changes")
      return this.read(request, undefined, await this.numberings.submit(undefined));
    const lane = this.lanes[request.kind];
    if (lane === undefined) return this.read(request);
    return lane.submit(request) as Promise<ResultOf<Request>>;
  }

  /** The server stats every file of the database, which may be slow. */
  async measureBytes(): Promise<number> {
    const [row] = await this.readers.run(
      (connection) => connection.query<{ readonly bytes: bigint }>(MEASURE),
      performance.now() + MEASURE_MS_MAX,
      1,
    );
    return Number(row?.bytes);
  }

  override async close(): Promise<void> {
    await super.close();
    const { writes, lookUps, numberings, webhookUpdates, lanes } = this;
    const queues = [writes, lookUps, numberings, webhookUpdates, ...Object.values(lanes)];
    await Promise.all(queues.map((queue) => queue.close()));
    for (const pool of [this.writers, this.readers, this.recordWriters]) pool.close();
  }

  /** Numbers the blocks first: there may be no reader that does. */
  protected async writeJournal(...statements: Statement[]): Promise<readonly unknown[]> {
    await this.numberings.submit(undefined);
    return this.writeRecords(...statements);
  }

  protected readRecords<Row>([sql, ...values]: Statement): Promise<readonly Row[]> {
    return this.readers.run((connection) => connection.query<Row>(sql, values));
  }

  protected override updateRecord(table: RecordTable, update: RecordUpdate): Promise<boolean> {
    if (table !== "webhooks") return super.updateRecord(table, update);
    return this.webhookUpdates.submit(update);
  }

  protected writeRecords<Row>(...statements: Statement[]): Promise<readonly Row[]> {
    return this.recordWriters.run(async (connection) => {
      let rows: readonly Row[] = [];
      for (const [sql, ...values] of statements) rows = await connection.query<Row>(sql, values);
      return rows;
    });
  }
}
