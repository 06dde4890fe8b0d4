/** The engine for more than one machine: PostgreSQL, or what speaks its protocol, and any number of instances. */

import type { ChangePage, ChangeQuery } from "../../domain/change.ts";
import { Refusal } from "../../domain/errors.ts";
import { type Condition, lengthOf, type Plant } from "../../domain/plant.ts";
import {
  type CountPage,
  isSearch,
  type PlantPage,
  type PlantQuery,
  type TagPage,
  type TagQuery,
} from "../../domain/page.ts";
import type {
  Created,
  OnMigrate,
  Store,
  StoreDescription,
  StoreFigures,
  StoreLimits,
} from "../../domain/store.ts";
import type { ServerLimits } from "../open.ts";
import type { Scope, TokenRecord, TokenUse } from "../../domain/token.ts";
import { Batcher } from "../batcher.ts";
import { createCounter } from "../counts.ts";
import { keepTrimmed, requireJournal } from "../journal.ts";
import {
  planWebhook,
  TOKEN_COLUMNS,
  type TokenRow,
  toTokenRecord,
  toTokenValues,
  toWebhook,
  usableWith,
  type WebhookRow,
} from "../rows.ts";
import { type Webhook, WEBHOOKS_MAX } from "../../domain/webhook.ts";
import { beginJournal, breakJournal, readChanges, trimChanges } from "./changes.ts";
import { type Connection, type Parameter, toArray } from "./connection.ts";
import { ConnectionPool, Hosts, onServer } from "./pool.ts";
import { countPlants, findPlants, listPlants, listTags } from "./read.ts";
import { migrate } from "./schema.ts";
import { describeTarget, type Target } from "./url.ts";
import { commitWrites, type Journal, type Outcome, Quota, type Write } from "./write.ts";

type Limits = StoreLimits & ServerLimits;

const MEASURE = "SELECT pg_database_size(current_database()) AS bytes";
const PROBE = `INSERT INTO plantstore_marks (name, at_ms) VALUES ('probe', $1::bigint)
  ON CONFLICT (name) DO UPDATE SET at_ms = excluded.at_ms`;

/** Names may be long, and all that are found together are held together. */
const FIND_LENGTH_MAX = 128;
/** Pages that are asked for together take a third less processor time, of the service and of the server. */
const READERS_PER_CONNECTION = 8;
/** A health check gets its answer soon: one attempt on the connection that there is, and one on a new one. */
const PROBE_MS_MAX = 1_000;
const PROBE_ATTEMPTS_MAX = 2;
const MEASURE_MS_MAX = 1_500;

/* Statements about tokens may be sent twice: the second time they change nothing. */
const FIND_TOKENS = `SELECT ${TOKEN_COLUMNS} FROM plantstore_tokens WHERE hash = ANY ($1::text[])`;
const LIST_TOKENS = `SELECT ${TOKEN_COLUMNS} FROM plantstore_tokens ORDER BY created_at_ms, name`;
/** The locks make two revocations wait for each other; otherwise each could count on the other's token. */
const REVOKE_TOKEN = `WITH usable AS MATERIALIZED (
    SELECT t.hash FROM plantstore_tokens t WHERE ${usableWith("$3::text", "$2::bigint")} ORDER BY t.hash FOR UPDATE
  )
  UPDATE plantstore_tokens SET revoked_at_ms = $2::bigint WHERE hash = $1::text AND revoked_at_ms IS NULL
    AND ($3::text IS NULL OR EXISTS (SELECT 1 FROM usable WHERE usable.hash <> $1::text))`;
const TOUCH_TOKENS = `UPDATE plantstore_tokens t
  SET last_used_at_ms = greatest(u.used_at_ms, coalesce(t.last_used_at_ms, 0))
  FROM unnest($1::text[], $2::bigint[]) AS u (hash, used_at_ms) WHERE t.hash = u.hash`;
const GIVEN = `unnest($1::text[], $2::text[], $3::text[], $4::text[],
  $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[]) AS given (${TOKEN_COLUMNS})`;
const INSERT_TOKENS = `INSERT INTO plantstore_tokens (${TOKEN_COLUMNS}) SELECT ${TOKEN_COLUMNS} FROM ${GIVEN}
  ON CONFLICT DO NOTHING`;
/** Of several instances one makes the mark, and the token with it. */
const INSERT_FIRST_TOKEN = `WITH first AS (
    INSERT INTO plantstore_marks (name, at_ms) SELECT 'first_token', created_at_ms FROM ${GIVEN}
    WHERE NOT EXISTS (SELECT 1 FROM plantstore_tokens) ON CONFLICT DO NOTHING RETURNING at_ms
  )
  INSERT INTO plantstore_tokens (${TOKEN_COLUMNS}) SELECT ${TOKEN_COLUMNS} FROM first, ${GIVEN}
  ON CONFLICT DO NOTHING`;
const MERGE_TOKENS = `UPDATE plantstore_tokens t
  SET revoked_at_ms = coalesce(t.revoked_at_ms, given.revoked_at_ms),
    last_used_at_ms = greatest(t.last_used_at_ms, given.last_used_at_ms)
  FROM ${GIVEN} WHERE t.hash = given.hash`;

const LIST_WEBHOOKS = "SELECT record FROM plantstore_webhooks ORDER BY name";
const PUT_WEBHOOK = {
  insert: `INSERT INTO plantstore_webhooks (name, version, record)
    SELECT $1::text, $2::text, $3::text
    WHERE (SELECT count(*) FROM plantstore_webhooks) < ${WEBHOOKS_MAX}
    ON CONFLICT DO NOTHING RETURNING name`,
  update: `UPDATE plantstore_webhooks SET version = $3::text, record = $4::text
    WHERE name = $1::text AND version = $2::text RETURNING name`,
  delete: `DELETE FROM plantstore_webhooks
    WHERE name = $1::text AND version = $2::text RETURNING name`,
};

/** Resolves when the schema is up to date. */
export async function openPostgresStore(
  target: Target,
  limits: Limits,
  onMigrate?: OnMigrate,
): Promise<PostgresStore> {
  const location = describeTarget(target);
  const { durability, isOrdered } = await onServer(target, limits, async (connection) => {
    await migrate(connection, location, onMigrate);
    return { durability: connection.durability, isOrdered: await beginJournal(connection) };
  });
  const description = { engine: "PostgreSQL", location, durability };
  return new PostgresStore(target, description, limits, isOrdered);
}

class PostgresStore implements Store {
  readonly description: StoreDescription;
  private readonly limits: Limits;
  private readonly writers: ConnectionPool;
  private readonly readers: ConnectionPool;
  /** Neither load nor a long search delays the service's own questions. */
  private readonly control: ConnectionPool;
  private readonly writes: Batcher<Write, Outcome>;
  private readonly reads: Batcher<bigint, Plant | undefined>;
  private readonly lookUps: Batcher<string, TokenRecord | undefined>;
  /** A few at a time. Many would take all connections, and most of this thread's time, from other requests. */
  private readonly searches: Batcher<PlantQuery, PlantPage>;
  private readonly pieces: Batcher<PlantQuery, CountPage>;
  readonly countPlants = createCounter((query) => this.pieces.submit(query));
  private readonly journal: Journal;
  private readonly quota: Quota | undefined;
  /** Whether the engine can tell the order of commits. */
  private readonly isOrdered: boolean;
  private breaking: Promise<void> | undefined;
  private readonly stopTrimming: () => void;

  constructor(target: Target, description: StoreDescription, limits: Limits, isOrdered: boolean) {
    this.description = description;
    this.limits = limits;
    this.isOrdered = isOrdered;
    this.journal = { isOn: isOrdered && limits.changesDays > 0, written: 0 };
    const { queueLengthMax: waitingMax, writeConnections, readConnections } = limits;
    if (limits.plantsMax) this.quota = new Quota(limits.plantsMax, this.countPlants);
    const hosts = new Hosts(target, limits);
    this.writers = new ConnectionPool(hosts, { connectionsMax: writeConnections, waitingMax });
    this.readers = new ConnectionPool(hosts, {
      connectionsMax: readConnections,
      usersMax: READERS_PER_CONNECTION,
      waitingMax,
    });
    this.control = new ConnectionPool(hosts, { connectionsMax: 1, waitingMax });
    this.writes = new Batcher(
      async (batch, deadlineMs) => {
        if (!this.journal.isOn) await this.breakJournal();
        return commitWrites(this.writers, batch, deadlineMs, this.journal, this.quota);
      },
      limits,
      {
        inFlightMax: writeConnections,
        commitMsMin: Math.min(limits.queueSecondsMax, limits.statementSecondsMax) * 1000,
        keyOf: ({ id }) => id,
        onCommit: limits.onCommit,
      },
    );
    const lookUp = <Key, Found>(
      find: (connection: Connection, keys: readonly Key[]) => Promise<ReadonlyMap<Key, Found>>,
      inFlightMax: number,
    ): Batcher<Key, Found | undefined> =>
      new Batcher(
        (keys, deadlineMs) =>
          this.readers.run(deadlineMs, async (connection) => {
            const found = await find(connection, keys);
            return keys.map((key) => found.get(key));
          }),
        { ...limits, batchLengthMax: FIND_LENGTH_MAX },
        { inFlightMax },
      );
    this.reads = lookUp(findPlants, readConnections);
    this.lookUps = lookUp(findTokens, 1);
    const each =
      <Page>(
        read: (connection: Connection, query: PlantQuery, scanRowsMax: number) => Promise<Page>,
      ) =>
      (queries: readonly PlantQuery[], deadlineMs: number): Promise<Page[]> =>
        this.readers.run(deadlineMs, (connection) =>
          Promise.all(queries.map((query) => read(connection, query, limits.scanRowsMax))),
        );
    const alone = { ...limits, batchLengthMax: 1 };
    this.searches = new Batcher(each(listPlants), alone, { inFlightMax: 2 });
    this.pieces = new Batcher(each(countPlants), alone);
    this.stopTrimming = keepTrimmed(limits, (beforeMs) =>
      this.control.run(this.deadline(), (connection) => trimChanges(connection, beforeMs)),
    );
  }

  createPlant(plant: Plant, by?: string): Promise<Created> {
    const write: Write = { kind: "create", id: plant.id, by, plant };
    return this.writes.submit(write, lengthOf(plant)) as Promise<Created>;
  }

  createPlants(plants: readonly Plant[], by?: string): Promise<(Created | Refusal)[]> {
    const writes = plants.map((plant): Write => ({ kind: "create", id: plant.id, by, plant }));
    const created = this.writes.submitAll(writes, plants.map(lengthOf));
    return created as Promise<(Created | Refusal)[]>;
  }

  async replacePlant(plant: Plant, condition: Condition, by?: string): Promise<void> {
    const write: Write = { kind: "replace", id: plant.id, by, plant, condition };
    await this.writes.submit(write, lengthOf(plant));
  }

  async removePlant(id: bigint, condition: Condition, by?: string): Promise<void> {
    await this.writes.submit({ kind: "remove", id, by, plant: undefined, condition });
  }

  async readChanges(query: ChangeQuery): Promise<ChangePage> {
    requireJournal(this.limits);
    if (!this.isOrdered)
      throw new Refusal("changes_gone", "This database cannot tell the order of its commits.");
    return this.readers.run(this.deadline(), (connection) => readChanges(connection, query));
  }

  get changesWritten(): number {
    return this.journal.written;
  }

  findPlant(id: bigint): Promise<Plant | undefined> {
    return this.reads.submit(id);
  }

  listPlants(query: PlantQuery): Promise<PlantPage> {
    if (isSearch(query)) return this.searches.submit(query);
    return this.readers.run(this.deadline(), (connection) =>
      listPlants(connection, query, this.limits.scanRowsMax),
    );
  }

  listTags(query: TagQuery): Promise<TagPage> {
    return this.readers.run(this.deadline(), (connection) => listTags(connection, query));
  }

  async probe(): Promise<void> {
    await this.control.run(
      performance.now() + PROBE_MS_MAX,
      (connection) => connection.query(PROBE, [Date.now()]),
      PROBE_ATTEMPTS_MAX,
    );
  }

  get writesWaiting(): number {
    return this.writes.waiting;
  }

  readFigures(): StoreFigures {
    const pools = [this.writers, this.readers, this.control];
    const sum = (of: (pool: ConnectionPool) => number): number =>
      pools.reduce((total, pool) => total + of(pool), 0);
    return {
      connectionsInUse: sum((pool) => pool.connectionsInUse),
      callersWaiting: sum((pool) => pool.callersWaiting),
      retries: sum((pool) => pool.retries),
      connects: sum((pool) => pool.connects),
    };
  }

  async measureBytes(): Promise<number | undefined> {
    // Not on the control connection: the server looks at every file of the database, which may take long.
    return this.readers
      .run(
        performance.now() + MEASURE_MS_MAX,
        (connection) => connection.query<{ readonly bytes: bigint }>(MEASURE),
        1,
      )
      .then(([row]) => (row === undefined ? undefined : Number(row.bytes)))
      .catch(() => undefined);
  }

  findToken(hash: string): Promise<TokenRecord | undefined> {
    return this.lookUps.submit(hash);
  }

  listTokens(): Promise<TokenRecord[]> {
    return this.runOnControl<TokenRow>(LIST_TOKENS, []).then((rows) => rows.map(toTokenRecord));
  }

  async createToken(token: TokenRecord): Promise<boolean> {
    return (await this.storeTokens([token], [INSERT_TOKENS])).length === 0;
  }

  async createFirstToken(token: TokenRecord): Promise<boolean> {
    return (await this.storeTokens([token], [INSERT_FIRST_TOKEN])).length === 0;
  }

  adoptTokens(records: readonly TokenRecord[]): Promise<readonly TokenRecord[]> {
    return this.storeTokens(records, [MERGE_TOKENS, INSERT_TOKENS]);
  }

  async revokeToken(hash: string, revokedAtMs: number, unlessLast?: Scope): Promise<boolean> {
    return this.control.run(this.deadline(), async (connection) => {
      await connection.query(REVOKE_TOKEN, [hash, revokedAtMs, unlessLast ?? null]);
      return (await findTokens(connection, [hash])).get(hash)?.revokedAtMs !== undefined;
    });
  }

  async touchTokens(uses: readonly TokenUse[]): Promise<void> {
    await this.runOnControl(TOUCH_TOKENS, [
      toArray(uses.map(({ hash }) => hash)),
      toArray(uses.map(({ usedAtMs }) => usedAtMs)),
    ]);
  }

  async listWebhooks(): Promise<Webhook[]> {
    return (await this.runOnControl<WebhookRow>(LIST_WEBHOOKS, [])).map(toWebhook);
  }

  async putWebhook(next: Webhook | undefined, last: Webhook | undefined): Promise<boolean> {
    const [kind, values] = planWebhook(next, last);
    return (await this.runOnControl(PUT_WEBHOOK[kind], values)).length === 1;
  }

  async close(): Promise<void> {
    this.stopTrimming();
    const { writes, reads, lookUps, searches, pieces } = this;
    await Promise.all([writes, reads, lookUps, searches, pieces].map((batcher) => batcher.close()));
    for (const pool of [this.writers, this.readers, this.control]) pool.close();
  }

  /** Resolves to the tokens that are not stored then. Hashes are unique, so those found were stored by this call. */
  private storeTokens(
    records: readonly TokenRecord[],
    statements: readonly string[],
  ): Promise<readonly TokenRecord[]> {
    const hashes = records.map(({ hash }) => hash);
    const rows = records.map(toTokenValues);
    const values = TOKEN_COLUMNS.split(", ").map((_, column) =>
      toArray(rows.map((row) => row[column])),
    );
    return this.control.run(this.deadline(), async (connection) => {
      for (const statement of statements) await connection.query(statement, values);
      const found = await findTokens(connection, hashes);
      return records.filter(({ hash }) => !found.has(hash));
    });
  }

  /** Once, before the first change that the journal does not get. */
  private breakJournal(): Promise<void> {
    this.breaking ??= this.control.run(this.deadline(), breakJournal).catch((error: unknown) => {
      this.breaking = undefined;
      throw error;
    });
    return this.breaking;
  }

  private runOnControl<Row>(
    statement: string,
    parameters: readonly Parameter[],
  ): Promise<readonly Row[]> {
    return this.control.run(this.deadline(), (connection) =>
      connection.query<Row>(statement, parameters),
    );
  }

  private deadline(): number {
    return performance.now() + this.limits.queueSecondsMax * 1000;
  }
}

async function findTokens(
  connection: Connection,
  hashes: readonly string[],
): Promise<ReadonlyMap<string, TokenRecord>> {
  const rows = await connection.query<TokenRow>(FIND_TOKENS, [toArray(hashes)]);
  return new Map(rows.map((row) => [row.hash, toTokenRecord(row)]));
}
