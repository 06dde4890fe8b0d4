/** Every SQL statement of the engine, prepared once a connection. */

import type { Database } from "bun:sqlite";
import type { PlantRow, TokenRow } from "../rows.ts";

const TOKEN_COLUMNS =
  "hash, prefix, name, scopes, created_at_ms, expires_at_ms, last_used_at_ms, revoked_at_ms";

export type TokenValues = [
  hash: string,
  prefix: string,
  name: string,
  scopes: string,
  createdAtMs: number,
  expiresAtMs: number | null,
];

type TokenChanges = [revokedAtMs: number | null, lastUsedAtMs: number | null, hash: string];

const INSERT_TOKEN = `INSERT INTO tokens (hash, prefix, name, scopes, created_at_ms, expires_at_ms)
  SELECT ?, ?, ?, ?, ?, ?`;

const FIND_PLANT = "SELECT id, name, tag FROM plants WHERE id = ?";

export type ReadStatements = ReturnType<typeof prepareReadStatements>;

export function prepareReadStatements(db: Database) {
  return {
    begin: db.prepare("BEGIN"),
    end: db.prepare("COMMIT"),
    findPlant: db.prepare<PlantRow, [id: bigint]>(FIND_PLANT),
    countPlants: db.prepare<{ count: bigint }, []>("SELECT count(*) AS count FROM plants"),
    findToken: db.prepare<TokenRow, [hash: string]>(
      `SELECT ${TOKEN_COLUMNS} FROM tokens WHERE hash = ?`,
    ),
    listTokens: db.prepare<TokenRow, []>(
      `SELECT ${TOKEN_COLUMNS} FROM tokens ORDER BY created_at_ms, name`,
    ),
  };
}

export type WriteStatements = ReturnType<typeof prepareWriteStatements>;

export function prepareWriteStatements(db: Database) {
  return {
    // IMMEDIATE takes the write lock at once: a transaction never fails half-way for want of it.
    begin: db.prepare("BEGIN IMMEDIATE"),
    commit: db.prepare("COMMIT"),
    rollback: db.prepare("ROLLBACK"),

    insertPlant: db.prepare<unknown, [id: bigint, name: string, tag: string | null]>(
      "INSERT INTO plants (id, name, tag) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
    ),
    findPlant: db.prepare<PlantRow, [id: bigint]>(FIND_PLANT),
    updatePlant: db.prepare<unknown, [name: string, tag: string | null, id: bigint]>(
      "UPDATE plants SET name = ?, tag = ? WHERE id = ?",
    ),
    deletePlant: db.prepare<unknown, [id: bigint]>("DELETE FROM plants WHERE id = ?"),

    insertToken: db.prepare<unknown, TokenValues>(INSERT_TOKEN),
    insertFirstToken: db.prepare<unknown, TokenValues>(
      `${INSERT_TOKEN} WHERE NOT EXISTS (SELECT 1 FROM tokens)`,
    ),
    revokeToken: db.prepare<unknown, [revokedAtMs: number, hash: string]>(
      "UPDATE tokens SET revoked_at_ms = ? WHERE hash = ? AND revoked_at_ms IS NULL",
    ),
    touchToken: db.prepare<unknown, [usedAtMs: number, hash: string]>(
      "UPDATE tokens SET last_used_at_ms = max(?, ifnull(last_used_at_ms, 0)) WHERE hash = ?",
    ),

    // The later of two times, either of which may be missing.
    mergeToken: db.prepare<unknown, TokenChanges>(
      `UPDATE tokens SET revoked_at_ms = ifnull(revoked_at_ms, ?1),
        last_used_at_ms = max(ifnull(last_used_at_ms, ?2), ifnull(?2, last_used_at_ms)) WHERE hash = ?3`,
    ),
    adoptToken: db.prepare<unknown, [...TokenValues, number | null, number | null]>(
      `INSERT INTO tokens (${TOKEN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
    ),

    probe: db.prepare<unknown, [nowMs: number]>(
      "INSERT INTO probe (id, probed_at_ms) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET probed_at_ms = excluded.probed_at_ms",
    ),
  };
}
