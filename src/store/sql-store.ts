/** What both engines do alike: plants go through one queue, and tokens and webhooks are small tables. */

import type { Refusal } from "../domain/errors.ts";
import { type Condition, lengthOf, type Plant } from "../domain/plant.ts";
import type { Created, TokenStore } from "../domain/store.ts";
import type { Scope, TokenQuery, TokenRecord } from "../domain/token.ts";
import { type Webhook, WEBHOOKS_MAX } from "../domain/webhook.ts";
import type { Batcher } from "./batcher.ts";

interface About {
  readonly id: bigint;
  /** Who writes, as `joinWriter` makes it. */
  readonly by: string | undefined;
}

export interface Create extends About {
  readonly kind: "create";
  readonly plant: Plant;
}

export interface Change extends About {
  readonly kind: "replace" | "remove";
  /** Undefined if the plant is to be removed. */
  readonly plant: Plant | undefined;
  readonly condition: Condition;
}

export type PlantWrite = Create | Change;

export interface PlantRow<Id = bigint> {
  readonly id: Id;
  readonly name: string;
  readonly tag: string | null;
}

/** Field by field: a further column of a table never reaches a client. */
export const toPlant = <Id>({ id, name, tag }: PlantRow<Id>): Plant<Id> => ({
  id,
  name,
  tag: tag ?? undefined,
});

export type Value = string | number | bigint | boolean | null;
export type Statement = readonly [sql: string, ...values: Value[]];
/** Stores the record and its version in place of the last version. */
export type WebhookUpdate = readonly [name: string, last: string, version: string, record: string];

/** In the order of the parameters. */
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
export const TOKEN_FIELDS = Object.entries(tokenColumns)
  .map(([field, column]) => `${column} AS "${field}"`)
  .join(", ");
const GIVEN = Object.keys(tokenColumns)
  .map((field, index) => `CAST(value ->> ${index} AS ${field.endsWith("Ms") ? "bigint" : "text"})`)
  .join(", ");

export type TokenRow = Readonly<Record<keyof TokenRecord, string | bigint | null>>;

/** A row has bigints in the place of numbers, and null in the place of undefined. */
export function toTokenRecord(row: TokenRow): TokenRecord {
  const fields = Object.entries(row).map(([field, value]) => [
    field,
    typeof value === "bigint" ? Number(value) : (value ?? undefined),
  ]);
  const scopes = String(row.scopes).split(" ");
  return { ...(Object.fromEntries(fields) as TokenRecord), scopes: scopes as Scope[] };
}

const toValues = (token: TokenRecord): Value[] =>
  Object.keys(tokenColumns).map((field) => {
    const value = token[field as keyof TokenRecord] ?? null;
    return typeof value === "object" ? (value?.join(" ") ?? null) : value;
  });

/** Where the SQL of the engines differs. */
interface Dialect {
  /** Of the names of tables. */
  readonly prefix: string;
  /** Ends a query whose rows stay locked until the statement is committed. */
  readonly lock: string;
  /** A row for each element of the JSON in the first parameter, in the column `value`. */
  readonly given: string;
  /** Begins a statement with `turn`: one row, or none if another writer has taken a turn since the statement began. */
  readonly turn: string;
}

/**
 * Both dialects know numbered parameters, CAST, ON CONFLICT and RETURNING. However many tokens there are, they are
 * stored by one statement: on a server each has a way and a sync of its own.
 */
function statementsOf({ prefix, lock, given, turn }: Dialect) {
  const [tokens, webhooks, changes] = [`${prefix}tokens`, `${prefix}webhooks`, `${prefix}changes`];
  return {
    findToken: `SELECT ${TOKEN_FIELDS} FROM ${tokens} WHERE hash = $1`,
    listTokens: `SELECT ${TOKEN_FIELDS} FROM ${tokens} WHERE hash > $1 ORDER BY hash LIMIT CAST($2 AS bigint)`,
    findHashes: `SELECT hash FROM ${tokens} WHERE hash IN (SELECT value ->> 0 FROM ${given})`,
    countExpiring: `SELECT count(*) AS count FROM ${tokens} WHERE revoked_at_ms IS NULL
      AND expires_at_ms > CAST($1 AS bigint) AND expires_at_ms < CAST($2 AS bigint)`,
    insertTokens: `INSERT INTO ${tokens} (${COLUMNS}) SELECT ${GIVEN} FROM ${given} WHERE true
      ON CONFLICT DO NOTHING`,
    // Of hash, revocation and use. A revocation that is there stays, and of two uses the later one.
    mergeTokens: `UPDATE ${tokens} SET revoked_at_ms = coalesce(revoked_at_ms, CAST(value ->> 1 AS bigint)),
      last_used_at_ms = CASE WHEN coalesce(last_used_at_ms, 0) < CAST(value ->> 2 AS bigint)
        THEN CAST(value ->> 2 AS bigint) ELSE last_used_at_ms END FROM ${given} WHERE hash = value ->> 0`,
    // The locks make two revocations wait for each other; otherwise each could count on the other's token.
    revokeToken: `WITH usable AS MATERIALIZED (
        SELECT t.hash FROM ${tokens} t WHERE t.revoked_at_ms IS NULL
          AND (t.expires_at_ms IS NULL OR t.expires_at_ms > CAST($2 AS bigint))
          AND ' ' || t.scopes || ' ' LIKE '% ' || CAST($3 AS text) || ' %' ORDER BY t.hash ${lock}
      )
      UPDATE ${tokens} SET revoked_at_ms = CAST($2 AS bigint) WHERE hash = $1 AND revoked_at_ms IS NULL
        AND (CAST($3 AS text) IS NULL OR EXISTS (SELECT 1 FROM usable WHERE usable.hash <> $1))`,

    changeBefore: `SELECT max(last) AS last FROM ${changes} WHERE last < CAST($1 AS bigint)`,

    listWebhooks: `SELECT record FROM ${webhooks} ORDER BY name`,
    // Every write has a version of its own. Where that is found, the same statement has stored it, and its answer was lost.
    // Those who insert take turns: each sees all that the others have inserted when it counts.
    insertWebhook: `WITH ${turn} INSERT INTO ${webhooks} (name, version, record)
      SELECT CAST($1 AS text), CAST($2 AS text), CAST($3 AS text) FROM turn
      WHERE (SELECT count(*) FROM ${webhooks} WHERE name <> $1) < ${WEBHOOKS_MAX}
      ON CONFLICT (name) DO UPDATE SET record = excluded.record
        WHERE ${webhooks}.version = excluded.version RETURNING name`,
    updateWebhooks: `UPDATE ${webhooks} SET version = value ->> 2, record = value ->> 3 FROM ${given}
      WHERE name = value ->> 0 AND version IN (value ->> 1, value ->> 2) RETURNING version`,
    removeWebhook: `DELETE FROM ${webhooks} WHERE name = $1 AND version = $2`,
    findWebhook: `SELECT name FROM ${webhooks} WHERE name = $1`,
  };
}

/** `Task` is what the queue takes beside plants. */
export abstract class SqlStore<Task = never> implements TokenStore {
  protected abstract readonly writes: Batcher<PlantWrite | Task, unknown>;
  private readonly sql: ReturnType<typeof statementsOf>;

  constructor(dialect: Dialect) {
    this.sql = statementsOf(dialect);
  }

  protected abstract readRecords<Row>(statement: Statement): Promise<readonly Row[]>;

  /**
   * Runs the statements in order, and resolves to the rows of the last one. They may be run twice: the second time
   * they change nothing.
   */
  protected abstract writeRecords<Row>(
    ...statements: readonly Statement[]
  ): Promise<readonly Row[]>;

  createPlant(plant: Plant, by?: string): Promise<Created> {
    return this.writes.submit(toCreate(plant, by), lengthOf(plant)) as Promise<Created>;
  }

  createPlants(plants: readonly Plant[], by?: string): Promise<(Created | Refusal)[]> {
    const writes = plants.map((plant) => toCreate(plant, by));
    const created = this.writes.submitAll(writes, plants.map(lengthOf));
    return created as Promise<(Created | Refusal)[]>;
  }

  async replacePlant(plant: Plant, condition: Condition, by?: string): Promise<void> {
    const write: Change = { kind: "replace", id: plant.id, by, plant, condition };
    await this.writes.submit(write, lengthOf(plant));
  }

  async removePlant(id: bigint, condition: Condition, by?: string): Promise<void> {
    await this.writes.submit({ kind: "remove", id, by, plant: undefined, condition });
  }

  get writesWaiting(): number {
    return this.writes.waiting;
  }

  async findChangeBefore(seq: number): Promise<number | undefined> {
    const asked: Statement = [this.sql.changeBefore, seq];
    const [row] = await this.readRecords<{ readonly last: bigint | null }>(asked);
    return typeof row?.last === "bigint" ? Number(row.last) : undefined;
  }

  async findToken(hash: string): Promise<TokenRecord | undefined> {
    return (await this.readRecords<TokenRow>([this.sql.findToken, hash])).map(toTokenRecord)[0];
  }

  async listTokens({ after, limit }: TokenQuery): Promise<TokenRecord[]> {
    const rows = await this.readRecords<TokenRow>([this.sql.listTokens, after, limit]);
    return rows.map(toTokenRecord);
  }

  async countExpiring(fromMs: number, toMs: number): Promise<number> {
    const asked: Statement = [this.sql.countExpiring, fromMs, toMs];
    const [row] = await this.readRecords<{ readonly count: bigint }>(asked);
    return Number(row?.count);
  }

  async createToken(token: TokenRecord): Promise<boolean> {
    const found = await this.writeRecords(
      [this.sql.insertTokens, JSON.stringify([toValues(token)])],
      [this.sql.findToken, token.hash],
    );
    // Hashes are unique, so a token that is found was stored by this call.
    return found.length === 1;
  }

  async revokeToken(hash: string, revokedAtMs: number, unlessLast?: Scope): Promise<boolean> {
    const [row] = await this.writeRecords<TokenRow>(
      [this.sql.revokeToken, hash, revokedAtMs, unlessLast ?? null],
      [this.sql.findToken, hash],
    );
    return typeof row?.revokedAtMs === "bigint";
  }

  async adoptTokens(records: readonly TokenRecord[]): Promise<readonly TokenRecord[]> {
    const { mergeTokens, insertTokens, findHashes } = this.sql;
    const known = records.map((token) => [token.hash, token.revokedAtMs, token.lastUsedAtMs]);
    const given = JSON.stringify(records.map(toValues));
    const stored = await this.writeRecords<Pick<TokenRow, "hash">>(
      // These first: a revocation frees a name that another token may have.
      [mergeTokens, JSON.stringify(known)],
      [insertTokens, given],
      [findHashes, given],
    );
    const hashes = new Set<unknown>(stored.map(({ hash }) => hash));
    return records.filter(({ hash }) => !hashes.has(hash));
  }

  async touchTokens(usedAtMs: ReadonlyMap<string, number>): Promise<void> {
    const known = Array.from(usedAtMs, ([hash, atMs]) => [hash, null, atMs]);
    await this.writeRecords([this.sql.mergeTokens, JSON.stringify(known)]);
  }

  async listWebhooks(): Promise<Webhook[]> {
    const rows = await this.readRecords<{ readonly record: string }>([this.sql.listWebhooks]);
    return Array.from(rows, ({ record }) => JSON.parse(record) as Webhook);
  }

  async putWebhook(next: Webhook | undefined, last: Webhook | undefined): Promise<boolean> {
    const { insertWebhook, removeWebhook, findWebhook } = this.sql;
    if (next === undefined) {
      const { name = "", version = "" } = last ?? {};
      const left = await this.writeRecords([removeWebhook, name, version], [findWebhook, name]);
      return left.length === 0;
    }
    const stored = [next.version, JSON.stringify(next)] as const;
    if (last !== undefined) return this.updateWebhook([last.name, last.version, ...stored]);
    return (await this.writeRecords([insertWebhook, next.name, ...stored])).length === 1;
  }

  protected async updateWebhook(update: WebhookUpdate): Promise<boolean> {
    return (await this.updateWebhooks([update]))[0] === true;
  }

  /** In one statement. False for each that had another version by then. */
  protected async updateWebhooks(updates: readonly WebhookUpdate[]): Promise<boolean[]> {
    const rows = await this.writeRecords<{ readonly version: string }>([
      this.sql.updateWebhooks,
      JSON.stringify(updates),
    ]);
    const stored = new Set(rows.map((row) => row.version));
    return updates.map(([, , version]) => stored.has(version));
  }
}

/** Of the outcomes of a commit, those that changed a plant. */
export const countChanges = (outcomes: readonly unknown[]): number =>
  outcomes.filter(
    (outcome) =>
      !(outcome instanceof Error || outcome instanceof Promise) && outcome !== "replayed",
  ).length;

const toCreate = (plant: Plant, by: string | undefined): Create => ({
  kind: "create",
  id: plant.id,
  by,
  plant,
});
