/** The engine for more than one machine: PostgreSQL, or what speaks its protocol, and any number of instances. */

import type { ChangePage, ChangeQuery } from "../../domain/change.ts";
import type { Plant } from "../../domain/plant.ts";
import {
  type CountPage,
  isSearch,
  type PageForm,
  type PageText,
  type PlantPage,
  type PlantQuery,
  type TagPage,
  type TagQuery,
} from "../../domain/page.ts";
import type {
  OnMigrate,
  ServerLimits,
  Store,
  StoreDescription,
  StoreFigures,
  StoreLimits,
} from "../../domain/store.ts";
import type { TokenRecord } from "../../domain/token.ts";
import { formatPage } from "../../format/page.ts";
import { Batcher } from "../batcher.ts";
import { keepTrimmed, requireJournal } from "../journal.ts";
import { createCounter } from "../counter.ts";
import {
  countChanges,
  type PlantWrite,
  SqlStore,
  type Statement,
  TOKEN_FIELDS,
  type TokenRow,
  toTokenRecord,
  type WebhookUpdate,
} from "../sql-store.ts";
import { beginJournal, numberBlocks, readChanges, trimChanges } from "./changes.ts";
import { type Connection, toArray } from "./connection.ts";
import { type ConnectionPool, createHosts, createPool, onServer } from "./pool.ts";
import { countPlants, FIND_LENGTH_MAX, findPlants, listPlants, listTags } from "./read.ts";
import { migrate } from "./schema.ts";
import { describeTarget, type Target } from "../../domain/store-url.ts";
import { type Accounts, commitWrites, createQuota } from "./write.ts";

type Limits = StoreLimits & ServerLimits;

const MEASURE = "SELECT pg_database_size(current_database()) AS bytes";
const PROBE = `INSERT INTO plantstore_marks (name, at_ms) VALUES ('probe', $1::bigint)
  ON CONFLICT (name) DO UPDATE SET at_ms = excluded.at_ms`;

/** Pages that are asked for together take a third less processor time, of the service and of the server. */
const READERS_PER_CONNECTION = 8;
/** A larger page, or a search, takes milliseconds of this thread and of the server: few are read at a time. */
const SMALL_PAGE_LENGTH = 100;
const LONG_READS_MAX = 2;
/** A read that begins late gets this time too. */
const READ_MS_MIN = 1_000;
/** A health check gets its answer soon: one attempt on the connection that there is, and one on a new one. */
const PROBE_MS_MAX = 1_000;
const PROBE_ATTEMPTS_MAX = 2;
const MEASURE_MS_MAX = 1_500;

/** A parameter of the type json would be turned into JSON once more. */
const GIVEN = "json_array_elements(CAST(CAST($1 AS text) AS json))";
/** What the statement sees is as old as its start. If the mark is newer, what it would count may be too few. */
const TURN = `turn AS (
    INSERT INTO plantstore_marks (name, at_ms) VALUES ('turn', 1)
    ON CONFLICT (name) DO UPDATE SET at_ms = plantstore_marks.at_ms + 1
      WHERE plantstore_marks.at_ms = (SELECT at_ms FROM plantstore_marks WHERE name = 'turn')
    RETURNING name
  )`;
const FIND_TOKENS = `SELECT ${TOKEN_FIELDS} FROM plantstore_tokens WHERE hash = ANY ($1::text[])`;

/** Resolves when the schema is up to date. */
export async function openPostgresStore(
  target: Target,
  limits: Limits,
  onMigrate?: OnMigrate,
): Promise<PostgresStore> {
  const location = describeTarget(target);
  return onServer(target, limits, async (connection) => {
    await migrate(connection, location, onMigrate);
    const changesDays = await beginJournal(connection, limits.changesDays);
    const description = { engine: "PostgreSQL", location, durability: connection.durability };
    return new PostgresStore(target, description, { ...limits, changesDays });
  });
}

class PostgresStore extends SqlStore implements Store {
  readonly description: StoreDescription;
  private readonly limits: Limits;
  private readonly figures: StoreFigures;
  private readonly writers: ConnectionPool;
  private readonly readers: ConnectionPool;
  /** For the health check alone: nothing delays it but the server. */
  private readonly control: ConnectionPool;
  /** What is written beside plants: tokens, webhooks, the numbers of the journal. */
  private readonly records: ConnectionPool;
  protected readonly writes: Batcher<PlantWrite, unknown>;
  private readonly reads: Batcher<bigint, Plant | undefined>;
  private readonly lookUps: Batcher<string, TokenRecord | undefined>;
  /** Numbering syncs, so all that read the journal share it, and no read of plants waits behind it. */
  private readonly numberings: Batcher<undefined, number>;
  /** With a slow sync, webhooks that write one by one would wait for each other for seconds. */
  private readonly webhookUpdates: Batcher<WebhookUpdate, boolean>;
  /** Many would take all connections, and most of this thread's time, from other requests. */
  private readonly longReads: Batcher<PlantQuery, PlantPage>;
  /** Pieces of counts. A person waits for a search, and many counts must not take its place. */
  private readonly counts: Batcher<PlantQuery, CountPage>;
  readonly countPlants: Store["countPlants"];
  private readonly accounts: Accounts;
  private readonly stopTrimming: () => void;

  constructor(target: Target, description: StoreDescription, limits: Limits) {
    super({ prefix: "plantstore_", lock: "FOR UPDATE", given: GIVEN, turn: TURN });
    this.description = description;
    this.limits = limits;
    const { queueSecondsMax: secondsMax, queueLengthMax: waitingMax, scanRowsMax } = limits;
    const hosts = createHosts(target, limits);
    this.figures = hosts.figures;
    const openPool = (connectionsMax: number, usersMax = 1): ConnectionPool =>
      createPool(hosts, { connectionsMax, usersMax, secondsMax, waitingMax });
    this.writers = openPool(limits.writeConnections);
    this.readers = openPool(limits.readConnections, READERS_PER_CONNECTION);
    this.control = openPool(1);
    this.records = openPool(1);
    const commitMsMin = Math.min(limits.queueSecondsMax, limits.statementSecondsMax) * 1000;
    this.writes = new Batcher<PlantWrite, unknown>(
      (batch, deadlineMs) => commitWrites(this.writers, batch, deadlineMs, this.accounts),
      limits,
      {
        inFlightMax: limits.writeConnections,
        commitMsMin,
        keyOf: ({ id }) => id,
        onCommit: (durationMs, writes, outcomes) =>
          limits.onCommit?.(durationMs, writes.length, countChanges(outcomes)),
      },
    );
    const lookUp = <Key, Found>(
      find: (connection: Connection, keys: readonly Key[]) => Promise<(Found | undefined)[]>,
      inFlightMax: number,
    ): Batcher<Key, Found | undefined> =>
      new Batcher(
        (keys, deadlineMs) => this.readers.run((connection) => find(connection, keys), deadlineMs),
        { ...limits, batchLengthMax: FIND_LENGTH_MAX },
        { inFlightMax, commitMsMin },
      );
    this.reads = lookUp(findPlants, limits.readConnections);
    this.lookUps = lookUp(findTokens, 1);
    this.numberings = new Batcher(
      async (asked, deadlineMs) => {
        const newest = await this.records.run(numberBlocks, deadlineMs);
        return asked.map(() => newest);
      },
      limits,
      { commitMsMin },
    );
    this.webhookUpdates = new Batcher((updates) => super.updateWebhooks(updates), limits);
    const readOne = <Page extends object>(
      read: (connection: Connection, query: PlantQuery, scanRowsMax: number) => Promise<Page>,
      inFlightMax: number,
    ): Batcher<PlantQuery, Page> =>
      new Batcher<PlantQuery, Page>(
        async ([query], deadlineMs) => [
          await this.readers.run<Page>(
            (connection) => read(connection, query as PlantQuery, scanRowsMax),
            deadlineMs,
          ),
        ],
        { ...limits, batchLengthMax: 1 },
        { inFlightMax, commitMsMin: READ_MS_MIN },
      );
    this.longReads = readOne(listPlants, LONG_READS_MAX);
    this.counts = readOne(countPlants, 1);
    this.countPlants = createCounter((query) => this.counts.submit(query));
    this.accounts = {
      hasJournal: limits.changesDays > 0,
      quota: limits.plantsMax ? createQuota(limits.plantsMax, this.countPlants) : undefined,
    };
    this.stopTrimming = keepTrimmed(limits, (beforeMs) =>
      this.records.run((connection) => trimChanges(connection, beforeMs)),
    );
  }

  async readChanges(query: ChangeQuery): Promise<ChangePage> {
    requireJournal(this.limits);
    const newest = await this.numberings.submit(undefined);
    return this.readers.run((connection) => readChanges(connection, query, newest));
  }

  findPlant(id: bigint): Promise<Plant | undefined> {
    return this.reads.submit(id);
  }

  listPlants(query: PlantQuery): Promise<PlantPage> {
    if (isSearch(query) || query.limit > SMALL_PAGE_LENGTH) return this.longReads.submit(query);
    const { scanRowsMax } = this.limits;
    return this.readers.run((connection) => listPlants(connection, query, scanRowsMax));
  }

  async readPlants(query: PlantQuery, form: PageForm): Promise<PageText> {
    return formatPage(await this.listPlants(query), form);
  }

  listTags(query: TagQuery): Promise<TagPage> {
    return this.readers.run((connection) => listTags(connection, query));
  }

  async probe(): Promise<void> {
    await this.control.run(
      (connection) => connection.query(PROBE, [Date.now()]),
      performance.now() + PROBE_MS_MAX,
      PROBE_ATTEMPTS_MAX,
    );
  }

  readFigures(): StoreFigures {
    return { ...this.figures };
  }

  /** The server looks at every file of the database, which may take long. */
  measureBytes(): Promise<number> {
    return this.readers.run(measure, performance.now() + MEASURE_MS_MAX, 1);
  }

  override findToken(hash: string): Promise<TokenRecord | undefined> {
    return this.lookUps.submit(hash);
  }

  async close(): Promise<void> {
    this.stopTrimming();
    const { writes, reads, lookUps, numberings, webhookUpdates, longReads, counts } = this;
    const queues = [writes, reads, lookUps, numberings, webhookUpdates, longReads, counts];
    await Promise.all(queues.map((queue) => queue.close()));
    for (const pool of [this.writers, this.readers, this.control, this.records]) pool.close();
  }

  protected readRecords<Row>([sql, ...values]: Statement): Promise<readonly Row[]> {
    return this.readers.run((connection) => connection.query<Row>(sql, values));
  }

  protected override updateWebhook(update: WebhookUpdate): Promise<boolean> {
    return this.webhookUpdates.submit(update);
  }

  protected writeRecords<Row>(...statements: readonly Statement[]): Promise<readonly Row[]> {
    return this.records.run(async (connection) => {
      let rows: readonly Row[] = [];
      for (const [sql, ...values] of statements) rows = await connection.query<Row>(sql, values);
      return rows;
    });
  }
}

async function measure(connection: Connection): Promise<number> {
  const [row] = await connection.query<{ readonly bytes: bigint }>(MEASURE);
  return Number(row?.bytes);
}

async function findTokens(
  connection: Connection,
  hashes: readonly string[],
): Promise<(TokenRecord | undefined)[]> {
  const rows = await connection.query<TokenRow>(FIND_TOKENS, [toArray(hashes)]);
  const found = new Map(rows.map(toTokenRecord).map((token) => [token.hash, token]));
  return hashes.map((hash) => found.get(hash));
}
