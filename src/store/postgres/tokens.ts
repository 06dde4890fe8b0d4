/** Tokens in PostgreSQL: by statements that may be sent twice, because each tells its own work from that of others. */

import type { TokenRecord, TokenUse } from "../../domain/token.ts";
import { textArray } from "./array.ts";
import type { Connection, Parameter } from "./connection.ts";
import { type TokenRow, toTokenRecord } from "../rows.ts";

const COLUMNS =
  "hash, prefix, name, scopes, created_at_ms, expires_at_ms, last_used_at_ms, revoked_at_ms";

const FIND = `SELECT ${COLUMNS} FROM plantstore_tokens WHERE hash = ANY ($1::text[])`;
const LIST = `SELECT ${COLUMNS} FROM plantstore_tokens ORDER BY created_at_ms, name`;
const VALUES =
  "$1::text, $2::text, $3::text, $4::text, $5::bigint, $6::bigint, $7::bigint, $8::bigint";
const INSERT = `INSERT INTO plantstore_tokens (${COLUMNS}) VALUES (${VALUES})
  ON CONFLICT DO NOTHING RETURNING hash`;
/** Of several at one time one makes the mark, and the token with it. */
const INSERT_FIRST = `WITH first AS (
    INSERT INTO plantstore_marks (name, at_ms) SELECT 'first_token', $5::bigint
    WHERE NOT EXISTS (SELECT 1 FROM plantstore_tokens) ON CONFLICT DO NOTHING RETURNING name
  )
  INSERT INTO plantstore_tokens (${COLUMNS}) SELECT ${VALUES} FROM first
  ON CONFLICT DO NOTHING RETURNING hash`;
const HAS = "SELECT 1 AS found FROM plantstore_tokens WHERE hash = $1::text";
const REVOKE = `UPDATE plantstore_tokens SET revoked_at_ms = $2::bigint
  WHERE hash = $1::text AND revoked_at_ms IS NULL`;
const TOUCH = `UPDATE plantstore_tokens t
  SET last_used_at_ms = greatest(u.used_at_ms, coalesce(t.last_used_at_ms, 0))
  FROM unnest($1::text[], $2::bigint[]) AS u (hash, used_at_ms) WHERE t.hash = u.hash`;

const ADOPTED = `unnest($1::text[], $2::text[], $3::text[], $4::text[],
  $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[]) AS a (${COLUMNS})`;
const MERGE = `UPDATE plantstore_tokens t SET revoked_at_ms = coalesce(t.revoked_at_ms, a.revoked_at_ms),
  last_used_at_ms = greatest(t.last_used_at_ms, a.last_used_at_ms)
  FROM ${ADOPTED} WHERE t.hash = a.hash`;
const ADOPT = `INSERT INTO plantstore_tokens (${COLUMNS}) SELECT ${COLUMNS} FROM ${ADOPTED}
  ON CONFLICT DO NOTHING`;

export async function findTokens(
  connection: Connection,
  hashes: readonly string[],
  deadlineMs: number,
): Promise<ReadonlyMap<string, TokenRecord>> {
  const rows = await connection.query<TokenRow>(FIND, [textArray(hashes)], deadlineMs);
  return new Map(rows.map((row) => [row.hash, toTokenRecord(row)]));
}

export async function listTokens(
  connection: Connection,
  deadlineMs: number,
): Promise<TokenRecord[]> {
  const rows = await connection.query<TokenRow>(LIST, [], deadlineMs);
  return rows.map(toTokenRecord);
}

export const insertToken = (
  connection: Connection,
  token: TokenRecord,
  deadlineMs: number,
): Promise<boolean> => insert(connection, INSERT, token, deadlineMs);

export const insertFirstToken = (
  connection: Connection,
  token: TokenRecord,
  deadlineMs: number,
): Promise<boolean> => insert(connection, INSERT_FIRST, token, deadlineMs);

/** Whether it is stored now. A hash is nobody else's, so that to find it there is to have stored it. */
async function insert(
  connection: Connection,
  statement: string,
  token: TokenRecord,
  deadlineMs: number,
): Promise<boolean> {
  const inserted = await connection.query(statement, valuesOf(token), deadlineMs);
  if (inserted.length > 0) return true;
  return (await connection.query(HAS, [token.hash], deadlineMs)).length > 0;
}

export async function revokeToken(
  connection: Connection,
  hash: string,
  revokedAtMs: number,
  deadlineMs: number,
): Promise<void> {
  await connection.query(REVOKE, [hash, revokedAtMs], deadlineMs);
}

export async function touchTokens(
  connection: Connection,
  uses: readonly TokenUse[],
  deadlineMs: number,
): Promise<void> {
  const hashes = textArray(uses.map(({ hash }) => hash));
  const times = timeArray(uses.map(({ usedAtMs }) => usedAtMs));
  await connection.query(TOUCH, [hashes, times], deadlineMs);
}

/** Two statements, each of which changes nothing the second time. */
export async function adoptTokens(
  connection: Connection,
  records: readonly TokenRecord[],
  deadlineMs: number,
): Promise<readonly TokenRecord[]> {
  const values = [
    textArray(records.map(({ hash }) => hash)),
    textArray(records.map(({ prefix }) => prefix)),
    textArray(records.map(({ name }) => name)),
    textArray(records.map((record) => record.scopes.join(" "))),
    timeArray(records.map(({ createdAtMs }) => createdAtMs)),
    timeArray(records.map(({ expiresAtMs }) => expiresAtMs)),
    timeArray(records.map(({ lastUsedAtMs }) => lastUsedAtMs)),
    timeArray(records.map(({ revokedAtMs }) => revokedAtMs)),
  ];
  await connection.query(MERGE, values, deadlineMs);
  await connection.query(ADOPT, values, deadlineMs);
  const hashes = records.map(({ hash }) => hash);
  const found = await findTokens(connection, hashes, deadlineMs);
  return records.filter(({ hash }) => !found.has(hash));
}

const timeArray = (times: readonly (number | undefined)[]): string =>
  textArray(times.map((time) => (time === undefined ? undefined : String(time))));

const valuesOf = (token: TokenRecord): Parameter[] => [
  token.hash,
  token.prefix,
  token.name,
  token.scopes.join(" "),
  token.createdAtMs,
  token.expiresAtMs ?? null,
  token.lastUsedAtMs ?? null,
  token.revokedAtMs ?? null,
];
