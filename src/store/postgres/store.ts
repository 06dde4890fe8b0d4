/** The engine for more than one machine: PostgreSQL, or what speaks its protocol, and any number of instances. */

import type { ChangePage, ChangeQuery } from "../../domain/change.ts";
import type { Plant } from "../../domain/plant.ts";
import {
  isSearch,
  type PlantPage,
  type PlantQuery,
  type TagPage,
  type TagQuery,
} from "../../domain/page.ts";
import type {
  OnMigrate,
  Store,
  StoreDescription,
  StoreFigures,
  StoreLimits,
} from "../../domain/store.ts";
import type { ServerLimits } from "../open.ts";
import type { TokenRecord } from "../../domain/token.ts";
import { Batcher } from "../batcher.ts";
import { keepTrimmed, requireJournal } from "../journal.ts";
import { createScans, type Scans } from "../scans.ts";
import {
  type PlantWrite,
  SqlStore,
  type Statement,
  TOKEN_FIELDS,
  type TokenRow,
  toTokenRecord,
} from "../sql-store.ts";
import { beginJournal, readChanges, trimChanges } from "./changes.ts";
import { type Connection, toArray } from "./connection.ts";
import { type ConnectionPool, createHosts, createPool, onServer } from "./pool.ts";
import { countPlants, FIND_LENGTH_MAX, findPlants, listPlants, listTags } from "./read.ts";
import { migrate } from "./schema.ts";
import { describeTarget, type Target } from "./url.ts";
import { type Accounts, commitWrites, createQuota } from "./write.ts";

type Limits = StoreLimits & ServerLimits;

const MEASURE = "SELECT pg_database_size(current_database()) AS bytes";
const PROBE = `INSERT INTO plantstore_marks (name, at_ms) VALUES ('probe', $1::bigint)
  ON CONFLICT (name) DO UPDATE SET at_ms = excluded.at_ms`;

/** Pages that are asked for together take a third less processor time, of the service and of the server. */
const READERS_PER_CONNECTION = 8;
const SEARCHES_MAX = 2;
/** A larger page takes milliseconds of this thread, and of the server. While there are writes, few are read at a time. */
const SMALL_PAGE_LENGTH = 100;
const LARGE_PAGES_MAX = 2;
/** A health check gets its answer soon: one attempt on the connection that there is, and one on a new one. */
const PROBE_MS_MAX = 1_000;
const PROBE_ATTEMPTS_MAX = 2;
const MEASURE_MS_MAX = 1_500;

/** A parameter of the type json would be turned into JSON once more. */
const GIVEN = "json_array_elements(CAST(CAST($1 AS text) AS json))";
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
  /** Neither load nor a long search delays the service's own questions. */
  private readonly control: ConnectionPool;
  protected readonly writes: Batcher<PlantWrite, unknown>;
  private readonly reads: Batcher<bigint, Plant | undefined>;
  private readonly lookUps: Batcher<string, TokenRecord | undefined>;
  /** Many would take all connections, and most of this thread's time, from other requests. */
  private readonly scans: Scans;
  private readonly largePages: Scans;
  readonly countPlants: Store["countPlants"] = (...asked) => this.scans.count(...asked);
  private readonly accounts: Accounts;
  private readonly stopTrimming: () => void;

  constructor(target: Target, description: StoreDescription, limits: Limits) {
    super({ prefix: "plantstore_", lock: "FOR UPDATE", given: GIVEN });
    this.description = description;
    this.limits = limits;
    this.accounts = {
      hasJournal: limits.changesDays > 0,
      changesWritten: 0,
      quota: limits.plantsMax ? createQuota(limits.plantsMax, this.countPlants) : undefined,
    };
    const { queueSecondsMax: secondsMax, queueLengthMax: waitingMax, scanRowsMax } = limits;
    const hosts = createHosts(target, limits);
    this.figures = hosts.figures;
    const openPool = (connectionsMax: number, usersMax = 1): ConnectionPool =>
      createPool(hosts, { connectionsMax, usersMax, secondsMax, waitingMax });
    this.writers = openPool(limits.writeConnections);
    this.readers = openPool(limits.readConnections, READERS_PER_CONNECTION);
    this.control = openPool(1);
    const commitMsMin = Math.min(limits.queueSecondsMax, limits.statementSecondsMax) * 1000;
    this.writes = new Batcher<PlantWrite, unknown>(
      (batch, deadlineMs) => commitWrites(this.writers, batch, deadlineMs, this.accounts),
      limits,
      {
        inFlightMax: limits.writeConnections,
        commitMsMin,
        keyOf: ({ id }) => id,
        onCommit: limits.onCommit,
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
    const scanner = {
      search: (query: PlantQuery, deadlineMs: number) => this.search(query, deadlineMs),
      count: (query: PlantQuery, deadlineMs: number) =>
        this.readers.run((connection) => countPlants(connection, query, scanRowsMax), deadlineMs),
    };
    this.scans = createScans(limits, scanner, SEARCHES_MAX);
    this.largePages = createScans(limits, scanner, LARGE_PAGES_MAX);
    this.stopTrimming = keepTrimmed(limits, (beforeMs) =>
      this.control.run((connection) => trimChanges(connection, beforeMs)),
    );
  }

  async readChanges(query: ChangeQuery): Promise<ChangePage> {
    requireJournal(this.limits);
    return this.readers.run((connection) => readChanges(connection, query));
  }

  get changesWritten(): number {
    return this.accounts.changesWritten;
  }

  findPlant(id: bigint): Promise<Plant | undefined> {
    return this.reads.submit(id);
  }

  listPlants(query: PlantQuery): Promise<PlantPage> {
    if (isSearch(query)) return this.scans.search(query);
    if (query.limit > SMALL_PAGE_LENGTH && this.writes.isBusy) return this.largePages.search(query);
    return this.search(query);
  }

  private search(query: PlantQuery, deadlineMs?: number): Promise<PlantPage> {
    const { scanRowsMax } = this.limits;
    return this.readers.run((connection) => listPlants(connection, query, scanRowsMax), deadlineMs);
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

  /** Not on the control connection: the server looks at every file of the database, which may take long. */
  measureBytes(): Promise<number> {
    return this.readers.run(measure, performance.now() + MEASURE_MS_MAX, 1);
  }

  override findToken(hash: string): Promise<TokenRecord | undefined> {
    return this.lookUps.submit(hash);
  }

  async close(): Promise<void> {
    this.stopTrimming();
    const { writes, reads, lookUps, scans, largePages } = this;
    await Promise.all([writes, reads, lookUps, scans, largePages].map((part) => part.close()));
    for (const pool of [this.writers, this.readers, this.control]) pool.close();
  }

  protected writeRecords<Row>(...statements: readonly Statement[]): Promise<readonly Row[]> {
    return this.control.run(async (connection) => {
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
