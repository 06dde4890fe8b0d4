/** Rows as both engines return them. */

import type { Plant } from "../domain/plant.ts";

export interface PlantRow {
  readonly id: bigint;
  readonly name: string;
  readonly tag: string | null;
}

export const toPlant = (row: PlantRow): Plant =>
  // A row with a tag is a plant already: a copy of each takes a tenth of the time of a page.
  hasTag(row) ? row : { id: row.id, name: row.name, tag: undefined };

const hasTag = (row: PlantRow): row is PlantRow & { readonly tag: string } => row.tag !== null;

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

export interface TokenCounts {
  readonly active: bigint;
  readonly expired: bigint;
  readonly revoked: bigint;
}
