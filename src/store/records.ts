/** Tokens, webhooks and jobs: small tables, the same on both engines. */

import { tagsRule } from "../domain/confinement.ts";
import { JOBS_MAX } from "../domain/job.ts";
import type { StoreLimits, TokenStore } from "../domain/store.ts";
import type { Scope, TokenRecord } from "../domain/token.ts";
import { WEBHOOKS_MAX } from "../domain/webhook.ts";
import type { Dialect, Engine } from "./engine.ts";
import { Queue } from "./queue.ts";

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
  tags: "tags",
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
  return { ...(Object.fromEntries(fields) as TokenRecord), ...findGrant(row) };
}

/**
 * A token with tags has a comma after each scope. A version that does not know tags, still running beside this one,
 * finds no scope then; and the token does not count as one that manages all others.
 */
const formatScopes = ({ scopes, tags }: TokenRecord): string =>
  tags === undefined ? scopes.join(" ") : scopes.map((scope) => `${scope},`).join("");

/** Tags that are no list of tags, as by hand, grant nothing. Nor do tags that such a version did not copy. */
function findGrant({ scopes, tags }: TokenRow): Pick<TokenRecord, "scopes" | "tags"> {
  if (tags === null) return { scopes: String(scopes).split(" ") as Scope[], tags: undefined };
  const found = findTags(String(tags));
  if (found === undefined) return { scopes: [], tags: [] };
  return { scopes: String(scopes).split(",").slice(0, -1) as Scope[], tags: found };
}

function findTags(text: string): readonly string[] | undefined {
  try {
    return tagsRule.find(JSON.parse(text));
  } catch {
    return undefined;
  }
}

function toValues(token: TokenRecord): readonly (string | number | null)[] {
  const tags = token.tags && JSON.stringify(token.tags);
  const row = { ...token, scopes: formatScopes(token), tags };
  return Object.keys(tokenColumns).map((field) => row[field as keyof TokenRecord] ?? null);
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
        AND (CAST($3 AS text) IS NULL OR tags IS NOT NULL OR EXISTS (SELECT 1 FROM usable WHERE usable.hash <> $1))`,
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

export function createTokens(engine: Engine): TokenStore {
  const sql = statementsOf(engine.dialect);
  return {
    findToken: async (hash) =>
      (await engine.query<TokenRow>([sql.findToken, hash])).map(toTokenRecord)[0],

    listTokens: async ({ after, limit }) =>
      (await engine.query<TokenRow>([sql.listTokens, after, limit])).map(toTokenRecord),

    countExpiring: async (fromMs, toMs) => {
      const [row] = await engine.query<{ count: bigint }>([sql.countExpiring, fromMs, toMs]);
      return Number(row?.count);
    },

    createToken: async (token) => {
      const found = await engine.run(
        [sql.insertTokens, JSON.stringify([toValues(token)])],
        [sql.findToken, token.hash],
      );
      // Hashes are unique, so a token that is found was stored by this call.
      return found.length === 1;
    },

    revokeToken: async (hash, revokedAtMs, unlessLast) => {
      const [row] = await engine.run<TokenRow>(
        [sql.revokeToken, hash, revokedAtMs, unlessLast ?? null],
        [sql.findToken, hash],
      );
      return typeof row?.revokedAtMs === "bigint";
    },

    adoptTokens: async (records) => {
      const known = records.map((token) => [token.hash, token.revokedAtMs, token.lastUsedAtMs]);
      const values = JSON.stringify(records.map(toValues));
      const stored = await engine.run<Pick<TokenRow, "hash">>(
        // Merge first: a revocation frees a name that an inserted token may have.
        [sql.mergeTokens, JSON.stringify(known)],
        [sql.insertTokens, values],
        [sql.findHashes, values],
      );
      const hashes = new Set<unknown>(stored.map(({ hash }) => hash));
      return records.filter(({ hash }) => !hashes.has(hash));
    },

    touchTokens: async (usedAtMs) => {
      const known = Array.from(usedAtMs, ([hash, atMs]) => [hash, null, atMs]);
      await engine.run([sql.mergeTokens, JSON.stringify(known)]);
    },
  };
}

/** Webhooks or jobs: records with a name, each replaced by compare-and-set on its version. */
export function createRecords<Named extends NamedRecord>(
  engine: Engine,
  limits: StoreLimits,
  table: RecordTable,
) {
  const sql = recordStatementsOf(engine.dialect, table);
  /** One statement for all. False for each whose version has changed. */
  const updateAll = async (all: readonly RecordUpdate[]): Promise<boolean[]> => {
    const rows = await engine.run<Pick<Named, "version">>([sql.update, JSON.stringify(all)]);
    const stored = new Set(rows.map(({ version }) => version));
    return all.map(([, , version]) => stored.has(version));
  };
  /** Grouped: with a slow sync, webhooks that write one by one would wait for each other for seconds. */
  const updates = new Queue(updateAll, limits);
  const parse = ({ record }: RecordRow) => JSON.parse(record) as Named;
  return {
    list: async (): Promise<Named[]> =>
      Array.from(await engine.query<RecordRow>([sql.list]), parse),

    find: async (name: string): Promise<Named | undefined> =>
      (await engine.query<RecordRow>([sql.find, name])).map(parse)[0],

    put: async (next: Named | undefined, last: NamedRecord | undefined): Promise<boolean> => {
      if (next === undefined) {
        const { name = "", version = "" } = last ?? {};
        const left = await engine.run([sql.remove, name, version], [sql.find, name]);
        return left.length === 0;
      }
      const stored = [next.version, JSON.stringify(next)] as const;
      if (last !== undefined) return updates.submit([last.name, last.version, ...stored]);
      return (await engine.run([sql.insert, next.name, ...stored])).length === 1;
    },

    close: (): Promise<void> => updates.close(),
  };
}
