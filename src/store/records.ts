/** Tokens, webhooks and jobs: small tables, the same on both engines. */

import { type Job, JOBS_MAX } from "../domain/job.ts";
import type { StoreLimits, TokenStore } from "../domain/store.ts";
import type { Scope, TokenQuery, TokenRecord } from "../domain/token.ts";
import { type Webhook, WEBHOOKS_MAX } from "../domain/webhook.ts";
import { Queue } from "./queue.ts";

export type Value = string | number | bigint | boolean | null;
/** Without bigints, because JSON has none: one would fail every write of its group. */
export type Statement = readonly [sql: string, ...values: Exclude<Value, bigint>[]];
/** Compare-and-set: stores the record and its new version if the stored version is `last`. */
type RecordUpdate = readonly [name: string, last: string, version: string, record: string];

/** Tables of JSON records, and how many each may have. */
const recordsMax = { webhooks: WEBHOOKS_MAX, jobs: JOBS_MAX };
type RecordTable = keyof typeof recordsMax;
type NamedRecord = Readonly<Record<"name" | "version", string>>;
type RecordRow = Readonly<Record<"record", string>>;

const tokenColumns: Readonly<Record<keyof TokenRecord, string>> = {
  hash: "hash",
  prefix: "prefix",
  name: "name",
  scopes: "scopes",
  createdAtMs: "created_at_ms",
  expiresAtMs: "expires_at_ms",
  lastUsedAtMs: "last_used_at_ms",
  revokedAtMs: "revoked_at_ms",
  rate: "rate",
};
const COLUMNS = Object.values(tokenColumns).join(", ");
const TOKEN_FIELDS = Object.entries(tokenColumns)
  .map(([field, column]) => `${column} AS "${field}"`)
  .join(", ");
const TOKEN_VALUES = Object.keys(tokenColumns)
  .map((field, index) => `CAST(value ->> ${index} AS ${field.endsWith("Ms") ? "bigint" : "text"})`)
  .join(", ");

type TokenRow = Readonly<Record<keyof TokenRecord, string | bigint | null>>;

/** A row has bigints for numbers and null for undefined. */
function toTokenRecord(row: TokenRow): TokenRecord {
  const fields = Object.entries(row).map(([field, value]) => [
    field,
    typeof value === "bigint" ? Number(value) : (value ?? undefined),
  ]);
  const scopes = String(row.scopes).split(" ");
  return { ...(Object.fromEntries(fields) as TokenRecord), scopes: scopes as Scope[] };
}

const toValues = (token: TokenRecord) =>
  Object.keys(tokenColumns).map((field) => {
    const value = token[field as keyof TokenRecord] ?? null;
    return typeof value === "object" ? (value?.join(" ") ?? null) : value;
  });

interface Dialect {
  readonly prefix: string;
  /** The row-lock clause of a query; empty if the engine needs none. */
  readonly lock: string;
  /** Expands the JSON array in $1 to rows with a column `value`. */
  readonly rows: string;
  /** A CTE `insert_lock`: one row, or none if another writer has inserted since this statement's snapshot. */
  readonly insertLock: string;
  /** Whether a row of `changes` is where the journal began, so no change was made before it. */
  readonly isBeginning: string;
}

/** One statement stores any number of tokens: on a server, each statement costs a round trip and a sync. */
function statementsOf({ prefix, lock, rows }: Dialect) {
  const tokens = `${prefix}tokens`;
  return {
    findToken: `SELECT ${TOKEN_FIELDS} FROM ${tokens} WHERE hash = $1`,
    listTokens: `SELECT ${TOKEN_FIELDS} FROM ${tokens} WHERE hash > $1 ORDER BY hash LIMIT CAST($2 AS bigint)`,
    findHashes: `SELECT hash FROM ${tokens} WHERE hash IN (SELECT value ->> 0 FROM ${rows})`,
    countExpiring: `SELECT count(*) AS count FROM ${tokens} WHERE revoked_at_ms IS NULL
      AND expires_at_ms > CAST($1 AS bigint) AND expires_at_ms < CAST($2 AS bigint)`,
    insertTokens: `INSERT INTO ${tokens} (${COLUMNS}) SELECT ${TOKEN_VALUES} FROM ${rows} WHERE true
      ON CONFLICT DO NOTHING`,
    // Takes [hash, revoked, used]. An existing revocation stays; the later use wins.
    mergeTokens: `UPDATE ${tokens} SET revoked_at_ms = coalesce(revoked_at_ms, CAST(value ->> 1 AS bigint)),
      last_used_at_ms = CASE WHEN coalesce(last_used_at_ms, 0) < CAST(value ->> 2 AS bigint)
        THEN CAST(value ->> 2 AS bigint) ELSE last_used_at_ms END FROM ${rows} WHERE hash = value ->> 0`,
    // The locks serialize revocations: two at once could each count on the token that the other revokes.
    revokeToken: `WITH usable AS MATERIALIZED (
        SELECT t.hash FROM ${tokens} t WHERE t.revoked_at_ms IS NULL
          AND (t.expires_at_ms IS NULL OR t.expires_at_ms > CAST($2 AS bigint))
          AND ' ' || t.scopes || ' ' LIKE '% ' || CAST($3 AS text) || ' %' ORDER BY t.hash ${lock}
      )
      UPDATE ${tokens} SET revoked_at_ms = CAST($2 AS bigint) WHERE hash = $1 AND revoked_at_ms IS NULL
        AND (CAST($3 AS text) IS NULL OR EXISTS (SELECT 1 FROM usable WHERE usable.hash <> $1))`,
  };
}

function recordStatementsOf({ prefix, rows, insertLock }: Dialect, name: RecordTable) {
  const table = `${prefix}${name}`;
  return {
    list: `SELECT record FROM ${table} ORDER BY name`,
    // Every write has a unique version. If the row has it, an earlier attempt stored it and its answer was lost. The lock
    // serializes inserts, so each counts the rows of all before it.
    insert: `WITH ${insertLock} INSERT INTO ${table} (name, version, record)
      SELECT CAST($1 AS text), CAST($2 AS text), CAST($3 AS text) FROM insert_lock
      WHERE (SELECT count(*) FROM ${table} WHERE name <> $1) < ${recordsMax[name]}
      ON CONFLICT (name) DO UPDATE SET record = excluded.record
        WHERE ${table}.version = excluded.version RETURNING name`,
    update: `UPDATE ${table} SET version = value ->> 2, record = value ->> 3 FROM ${rows}
      WHERE name = value ->> 0 AND version IN (value ->> 1, value ->> 2) RETURNING version`,
    remove: `DELETE FROM ${table} WHERE name = $1 AND version = $2`,
    find: `SELECT record FROM ${table} WHERE name = $1`,
  };
}

/** What the tables need of an engine. */
export interface RecordEngine {
  readonly dialect: Dialect;
  query<Row>(statement: Statement): Promise<readonly Row[]>;
  /** Resolves to the rows of the last statement. The statements are idempotent: a retry changes nothing. */
  run<Row>(...statements: Statement[]): Promise<readonly Row[]>;
}

type RecordStatements = ReturnType<typeof recordStatementsOf>;

export class RecordStore<Engine extends RecordEngine> implements TokenStore {
  protected readonly engine: Engine;
  private readonly sql: ReturnType<typeof statementsOf>;
  private readonly records: Readonly<Record<RecordTable, RecordStatements>>;
  /** Grouped: with a slow sync, webhooks that write one by one would wait for each other for seconds. */
  private readonly updates: Readonly<Record<RecordTable, Queue<RecordUpdate, boolean>>>;

  constructor(engine: Engine, limits: StoreLimits) {
    this.engine = engine;
    this.sql = statementsOf(engine.dialect);
    this.records = {
      webhooks: recordStatementsOf(engine.dialect, "webhooks"),
      jobs: recordStatementsOf(engine.dialect, "jobs"),
    };
    const update = (table: RecordTable): Queue<RecordUpdate, boolean> =>
      new Queue((updates) => this.updateRecords(table, updates), limits);
    this.updates = { webhooks: update("webhooks"), jobs: update("jobs") };
  }

  async close(): Promise<void> {
    await Promise.all([this.updates.webhooks.close(), this.updates.jobs.close()]);
  }

  async findToken(hash: string): Promise<TokenRecord | undefined> {
    return (await this.engine.query<TokenRow>([this.sql.findToken, hash])).map(toTokenRecord)[0];
  }

  async listTokens({ after, limit }: TokenQuery): Promise<TokenRecord[]> {
    const rows = await this.engine.query<TokenRow>([this.sql.listTokens, after, limit]);
    return rows.map(toTokenRecord);
  }

  async countExpiring(fromMs: number, toMs: number): Promise<number> {
    const { countExpiring } = this.sql;
    const [row] = await this.engine.query<{ count: bigint }>([countExpiring, fromMs, toMs]);
    return Number(row?.count);
  }

  async createToken(token: TokenRecord): Promise<boolean> {
    const found = await this.engine.run(
      [this.sql.insertTokens, JSON.stringify([toValues(token)])],
      [this.sql.findToken, token.hash],
    );
    // Hashes are unique, so a token that is found was stored by this call.
    return found.length === 1;
  }

  async revokeToken(hash: string, revokedAtMs: number, unlessLast?: Scope): Promise<boolean> {
    const [row] = await this.engine.run<TokenRow>(
      [this.sql.revokeToken, hash, revokedAtMs, unlessLast ?? null],
      [this.sql.findToken, hash],
    );
    return typeof row?.revokedAtMs === "bigint";
  }

  async adoptTokens(records: readonly TokenRecord[]): Promise<readonly TokenRecord[]> {
    const { mergeTokens, insertTokens, findHashes } = this.sql;
    const known = records.map((token) => [token.hash, token.revokedAtMs, token.lastUsedAtMs]);
    const values = JSON.stringify(records.map(toValues));
    const stored = await this.engine.run<Pick<TokenRow, "hash">>(
      // Merge first: a revocation frees a name that an inserted token may have.
      [mergeTokens, JSON.stringify(known)],
      [insertTokens, values],
      [findHashes, values],
    );
    const hashes = new Set<unknown>(stored.map(({ hash }) => hash));
    return records.filter(({ hash }) => !hashes.has(hash));
  }

  async touchTokens(usedAtMs: ReadonlyMap<string, number>): Promise<void> {
    const known = Array.from(usedAtMs, ([hash, atMs]) => [hash, null, atMs]);
    await this.engine.run([this.sql.mergeTokens, JSON.stringify(known)]);
  }

  listWebhooks(): Promise<Webhook[]> {
    return this.listRecords("webhooks");
  }

  putWebhook(next: Webhook | undefined, last: Webhook | undefined): Promise<boolean> {
    return this.putRecord("webhooks", next, last);
  }

  listJobs(): Promise<Job[]> {
    return this.listRecords("jobs");
  }

  async findJob(name: string): Promise<Job | undefined> {
    const [row] = await this.engine.query<RecordRow>([this.records.jobs.find, name]);
    return row && (JSON.parse(row.record) as Job);
  }

  putJob(next: Job | undefined, last: Pick<Job, "name" | "version"> | undefined): Promise<boolean> {
    return this.putRecord("jobs", next, last);
  }

  private async listRecords<Named>(table: RecordTable): Promise<Named[]> {
    const rows = await this.engine.query<RecordRow>([this.records[table].list]);
    return Array.from(rows, ({ record }) => JSON.parse(record) as Named);
  }

  private async putRecord(
    table: RecordTable,
    next: NamedRecord | undefined,
    last: NamedRecord | undefined,
  ): Promise<boolean> {
    const { insert, remove, find } = this.records[table];
    if (next === undefined) {
      const { name = "", version = "" } = last ?? {};
      const left = await this.engine.run([remove, name, version], [find, name]);
      return left.length === 0;
    }
    const stored = [next.version, JSON.stringify(next)] as const;
    if (last !== undefined) return this.updates[table].submit([last.name, last.version, ...stored]);
    return (await this.engine.run([insert, next.name, ...stored])).length === 1;
  }

  /** One statement for all. False for each whose version has changed. */
  private async updateRecords(
    table: RecordTable,
    updates: readonly RecordUpdate[],
  ): Promise<boolean[]> {
    const update: Statement = [this.records[table].update, JSON.stringify(updates)];
    const rows = await this.engine.run<{ readonly version: string }>(update);
    const stored = new Set(rows.map((row) => row.version));
    return updates.map(([, , version]) => stored.has(version));
  }
}
