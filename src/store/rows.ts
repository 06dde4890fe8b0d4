/** Rows as both engines return them. */

import type { Plant } from "../domain/plant.ts";
import type { Scope, TokenRecord } from "../domain/token.ts";
import type { Webhook } from "../domain/webhook.ts";

export interface PlantRow {
  readonly id: bigint;
  readonly name: string;
  readonly tag: string | null;
}

export const toPlant = (row: PlantRow): Plant =>
  // A row with a tag is a plant already: a copy of each takes a tenth of the time of a page.
  hasTag(row) ? row : { id: row.id, name: row.name, tag: undefined };

const hasTag = (row: PlantRow): row is PlantRow & { readonly tag: string } => row.tag !== null;

export const TOKEN_COLUMNS =
  "hash, prefix, name, scopes, created_at_ms, expires_at_ms, last_used_at_ms, revoked_at_ms, rate";

/** In the order of the columns. */
export const toTokenValues = (token: TokenRecord) => [
  token.hash,
  token.prefix,
  token.name,
  token.scopes.join(" "),
  token.createdAtMs,
  token.expiresAtMs ?? null,
  token.lastUsedAtMs ?? null,
  token.revokedAtMs ?? null,
  token.rate ?? null,
];

export interface TokenRow {
  readonly hash: string;
  readonly prefix: string;
  readonly name: string;
  readonly scopes: string;
  readonly created_at_ms: bigint;
  readonly expires_at_ms: bigint | null;
  readonly last_used_at_ms: bigint | null;
  readonly revoked_at_ms: bigint | null;
  readonly rate: string | null;
}

export function toTokenRecord(row: TokenRow): TokenRecord {
  return {
    hash: row.hash,
    prefix: row.prefix,
    name: row.name,
    scopes: row.scopes.split(" ") as Scope[],
    createdAtMs: Number(row.created_at_ms),
    expiresAtMs: toMs(row.expires_at_ms),
    lastUsedAtMs: toMs(row.last_used_at_ms),
    revokedAtMs: toMs(row.revoked_at_ms),
    rate: row.rate ?? undefined,
  };
}

const toMs = (value: bigint | null): number | undefined =>
  value === null ? undefined : Number(value);

export interface WebhookRow {
  /** As JSON. */
  readonly record: string;
}

export const toWebhook = ({ record }: WebhookRow): Webhook => JSON.parse(record) as Webhook;

/** Which statement puts `next` in the place of `last`, and the values of it. */
export function planWebhook(
  next: Webhook | undefined,
  last: Webhook | undefined,
): ["insert" | "update" | "delete", string[]] {
  const found = last === undefined ? [] : [last.name, last.version];
  if (next === undefined) return ["delete", found];
  const stored = [next.version, JSON.stringify(next)];
  return last === undefined
    ? ["insert", [next.name, ...stored]]
    : ["update", [...found, ...stored]];
}

/** How much a store holds. */
export interface PlantCounts {
  readonly count: bigint;
  readonly tagged: bigint;
  readonly tags: bigint;
  readonly idMin: bigint | null;
  readonly idMax: bigint | null;
}

export const COUNT_PLANTS = `SELECT count(*) AS count, count(tag) AS tagged, count(DISTINCT tag) AS tags,
  min(id) AS "idMin", max(id) AS "idMax" FROM plants`;

/** Both are SQL: the table, and the time now in milliseconds. */
export const countTokens = (table: string, nowMs: string): string =>
  `WITH states AS (SELECT CASE WHEN revoked_at_ms IS NOT NULL THEN 'revoked'
    WHEN expires_at_ms <= ${nowMs} THEN 'expired' ELSE 'active' END AS state FROM ${table})
  SELECT count(*) FILTER (WHERE state = 'active') AS active,
    count(*) FILTER (WHERE state = 'expired') AS expired,
    count(*) FILTER (WHERE state = 'revoked') AS revoked FROM states`;

/** Whether the token `t` has the scope and is neither revoked nor expired. Both are SQL: the scope, and the time now. */
export const usableWith = (scope: string, nowMs: string): string =>
  `t.revoked_at_ms IS NULL AND (t.expires_at_ms IS NULL OR t.expires_at_ms > ${nowMs})
    AND ' ' || t.scopes || ' ' LIKE '% ' || ${scope} || ' %'`;

export interface TokenCounts {
  readonly active: bigint;
  readonly expired: bigint;
  readonly revoked: bigint;
}
