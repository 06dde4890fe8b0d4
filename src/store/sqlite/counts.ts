/** Counts what a file holds. */

import type { Database } from "bun:sqlite";
import type { PlantCounts, TokenCounts } from "../rows.ts";

export const countPlants = (db: Database): PlantCounts =>
  db
    .query<PlantCounts, []>(
      `SELECT (SELECT count(*) FROM plants) AS count,
        (SELECT count(*) FROM plants WHERE tag IS NOT NULL) AS tagged,
        (SELECT count(DISTINCT tag) FROM plants WHERE tag IS NOT NULL) AS tags,
        (SELECT min(id) FROM plants) AS idMin,
        (SELECT max(id) FROM plants) AS idMax`,
    )
    .get() as PlantCounts;

export const countTokens = (db: Database, nowMs: number): TokenCounts =>
  db
    .query<TokenCounts, [nowMs: number]>(
      `WITH states AS (SELECT CASE WHEN revoked_at_ms IS NOT NULL THEN 'revoked'
          WHEN expires_at_ms <= ? THEN 'expired' ELSE 'active' END AS state FROM tokens)
        SELECT count(*) FILTER (WHERE state = 'active') AS active,
          count(*) FILTER (WHERE state = 'expired') AS expired,
          count(*) FILTER (WHERE state = 'revoked') AS revoked
        FROM states`,
    )
    .get(nowMs) as TokenCounts;
