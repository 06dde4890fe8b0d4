/** Every SQL statement of the engine, prepared once a connection, and the walks over plants and tags. */

import type { Database } from "bun:sqlite";
import {
  type CountPage,
  findBehind,
  findHint,
  findTagPrefixRange,
  firstIdOf,
  isSearch,
  type Order,
  PageBuilder,
  type PlantPage,
  type PlantQuery,
  TAG_PREFIX_CHARACTERS,
  type TagPrefix,
  type TagQuery,
} from "../../domain/page.ts";
import { INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import type { Plant } from "../../domain/plant.ts";
import { WEBHOOKS_MAX } from "../../domain/webhook.ts";
import type { BlockRow } from "../journal.ts";
import { type PlantRow, toPlant, type TokenRow, usableWith, type WebhookRow } from "../rows.ts";

const TOKEN_COLUMNS =
  "hash, prefix, name, scopes, created_at_ms, expires_at_ms, rate, last_used_at_ms, revoked_at_ms";

export type TokenValues = [
  hash: string,
  prefix: string,
  name: string,
  scopes: string,
  createdAtMs: number,
  expiresAtMs: number | null,
  rate: string | null,
  lastUsedAtMs: number | null,
  revokedAtMs: number | null,
];

type ChangesValues = [count: number, atMs: number, entries: string];

type TokenChanges = [revokedAtMs: number | null, lastUsedAtMs: number | null, hash: string];

type From = [tag: string | null, firstId: bigint, rows: number];
type Range = [tag: string | null, firstId: bigint, lastId: bigint, hint: string | null];

/** LIKE compares plain ASCII as a search does. Other texts, and long ones, are for the search itself to look at. */
const mayMatch = (column: string): string =>
  `octet_length(${column}) > 4096 OR length(${column}) < octet_length(${column}) OR ${column} LIKE ?4 ESCAPE '\\'`;

/** The index on the tag holds the ids of each tag in order, so it is walked as the table is. */
const TAGGED = "tag = ?1 AND";

/** Walks in the order of the ids. */
function prepareWalk(db: Database, order: Order, condition: string) {
  const [from, to] = order === "asc" ? [">=", "<="] : ["<=", ">="];
  const rows = `FROM plants WHERE ${condition} id ${from} ?2`;
  return {
    page: db.prepare<PlantRow, From>(`SELECT id, name, tag ${rows} ORDER BY id ${order} LIMIT ?3`),
    // The last row of a piece, if there are as many.
    last: db.prepare<{ id: bigint }, From>(
      `SELECT id ${rows} ORDER BY id ${order} LIMIT 1 OFFSET ?3 - 1`,
    ),
    count: db.prepare<{ count: bigint }, [tag: string | null, firstId: bigint]>(
      `SELECT count(*) AS count ${rows}`,
    ),
    // All rows that may match, and the last one.
    candidates: db.prepare<PlantRow, Range>(
      `SELECT id, name, tag ${rows} AND id ${to} ?3
        AND (?4 IS NULL OR ${mayMatch("name")} OR ${mayMatch("tag")} OR id = ?3) ORDER BY id ${order}`,
    ),
  };
}

export type Statements = ReturnType<typeof prepareStatements>;

function prepareStatements(db: Database) {
  return {
    begin: db.prepare("BEGIN"),
    // IMMEDIATE takes the write lock at once: a transaction that has begun never fails for lack of it.
    beginWrite: db.prepare("BEGIN IMMEDIATE"),
    commit: db.prepare("COMMIT"),
    rollback: db.prepare("ROLLBACK"),

    insertPlant: db.prepare<unknown, [id: bigint, name: string, tag: string | null]>(
      "INSERT INTO plants (id, name, tag) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
    ),
    updatePlant: db.prepare<unknown, [name: string, tag: string | null, id: bigint]>(
      "UPDATE plants SET name = ?, tag = ? WHERE id = ?",
    ),
    deletePlant: db.prepare<unknown, [id: bigint]>("DELETE FROM plants WHERE id = ?"),
    findPlant: db.prepare<PlantRow, [id: bigint]>("SELECT id, name, tag FROM plants WHERE id = ?"),
    asc: prepareWalk(db, "asc", ""),
    desc: prepareWalk(db, "desc", ""),
    taggedAsc: prepareWalk(db, "asc", TAGGED),
    taggedDesc: prepareWalk(db, "desc", TAGGED),
    nextTag: db.prepare<{ head: string; bytes: bigint }, [from: string]>(
      `SELECT substr(tag, 1, ${TAG_PREFIX_CHARACTERS}) AS head, octet_length(tag) AS bytes
        FROM plants WHERE tag >= ? ORDER BY tag LIMIT 1`,
    ),

    insertChanges: db.prepare<unknown, ChangesValues>(
      `INSERT INTO changes (last, first, at_ms, entries)
        SELECT last, last - ?1 + 1, ?2, ?3
        FROM (SELECT max(?2 * 1000, (SELECT max(last) FROM changes) + max(?1, 1)) AS last)`,
    ),
    // The first row is the block that contains `after`. Only its numbers are used.
    readChanges: db.prepare<BlockRow, [after: number, part: string | null]>(
      `SELECT first, last, at_ms, (SELECT max(last) FROM changes) AS newest,
        iif(last > ?1 AND (?2 IS NULL OR instr(entries, ?2)), entries, NULL) AS entries
        FROM changes WHERE last >= ?1 ORDER BY last`,
    ),
    lastBreak: db.prepare<{ last: bigint | null }, []>(
      "SELECT max(last) AS last FROM changes WHERE first > last",
    ),
    newestChange: db.prepare<{ newest: bigint }, []>("SELECT max(last) AS newest FROM changes"),
    // The newest one stays: numbers go on from it.
    trimChanges: db.prepare<unknown, [beforeMs: number, rows: number]>(
      `DELETE FROM changes WHERE last IN (SELECT last FROM changes ORDER BY last LIMIT ?2)
        AND at_ms < ?1 AND last < (SELECT max(last) FROM changes)`,
    ),

    findToken: db.prepare<TokenRow, [hash: string]>(
      `SELECT ${TOKEN_COLUMNS} FROM tokens WHERE hash = ?`,
    ),
    listTokens: db.prepare<TokenRow, []>(
      `SELECT ${TOKEN_COLUMNS} FROM tokens ORDER BY created_at_ms, name`,
    ),
    insertToken: db.prepare<unknown, [...TokenValues, onlyFirst: boolean]>(
      `INSERT INTO tokens (${TOKEN_COLUMNS}) SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?
        WHERE NOT ? OR NOT EXISTS (SELECT 1 FROM tokens) ON CONFLICT DO NOTHING`,
    ),
    revokeToken: db.prepare<
      unknown,
      [revokedAtMs: number, hash: string, unlessLast: string | null]
    >(
      `UPDATE tokens SET revoked_at_ms = ?1 WHERE hash = ?2 AND revoked_at_ms IS NULL
        AND (?3 IS NULL OR EXISTS (SELECT 1 FROM tokens t WHERE t.hash <> ?2 AND ${usableWith("?3", "?1")}))`,
    ),
    touchToken: db.prepare<unknown, [usedAtMs: number, hash: string]>(
      "UPDATE tokens SET last_used_at_ms = max(?, ifnull(last_used_at_ms, 0)) WHERE hash = ?",
    ),
    // The later of two times; either may be missing.
    mergeToken: db.prepare<unknown, TokenChanges>(
      `UPDATE tokens SET revoked_at_ms = ifnull(revoked_at_ms, ?1),
        last_used_at_ms = max(ifnull(last_used_at_ms, ?2), ifnull(?2, last_used_at_ms)) WHERE hash = ?3`,
    ),

    listWebhooks: db.prepare<WebhookRow, []>("SELECT record FROM webhooks ORDER BY name"),
    insertWebhook: db.prepare<unknown, [name: string, version: string, record: string]>(
      `INSERT INTO webhooks (name, version, record) SELECT ?, ?, ?
        WHERE (SELECT count(*) FROM webhooks) < ${WEBHOOKS_MAX} ON CONFLICT DO NOTHING`,
    ),
    updateWebhook: db.prepare<
      unknown,
      [version: string, record: string, name: string, lastVersion: string]
    >("UPDATE webhooks SET version = ?, record = ? WHERE name = ? AND version = ?"),
    deleteWebhook: db.prepare<unknown, [name: string, lastVersion: string]>(
      "DELETE FROM webhooks WHERE name = ? AND version = ?",
    ),

    probe: db.prepare<unknown, [nowMs: number]>(
      "INSERT INTO probe (id, probed_at_ms) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET probed_at_ms = excluded.probed_at_ms",
    ),
  };
}

export interface Connection {
  readonly db: Database;
  readonly statements: Statements;
}

export const connect = (db: Database): Connection => ({ db, statements: prepareStatements(db) });

/** A connection with an unfinished statement does not release its file. */
export function disconnect(connection: Connection | undefined): void {
  for (const prepared of Object.values(connection?.statements ?? {}))
    for (const statement of "finalize" in prepared ? [prepared] : Object.values(prepared))
      statement.finalize();
  connection?.db.close();
}

export function inSnapshot<Result>({ db, statements }: Connection, read: () => Result): Result {
  statements.begin.run();
  try {
    return read();
  } finally {
    if (db.inTransaction) statements.commit.run();
  }
}

function walkOf(statements: Statements, { tag, order }: PlantQuery) {
  if (tag === undefined) return statements[order];
  return order === "asc" ? statements.taggedAsc : statements.taggedDesc;
}

/** At most that many plants, one at a time, from where the query begins, in its order and with its tag. */
export function* walkPlants(
  statements: Statements,
  query: PlantQuery,
  rowsMax: number,
): Generator<Plant> {
  const firstId = firstIdOf(query);
  if (firstId === undefined) return;
  const { page } = walkOf(statements, query);
  for (const row of page.iterate(query.tag ?? null, firstId, rowsMax)) yield toPlant(row);
}

/** Rows between two looks at the clock: about a millisecond, if none of them matches. */
const STEP_ROWS = 5_000;

/** Needs a read transaction. */
export function searchPlants(
  statements: Statements,
  query: PlantQuery,
  scanRowsMax: number,
): PlantPage {
  const { tag = null, order } = query;
  const { last, candidates } = walkOf(statements, query);
  const hint = findHint(query);
  const pattern = hint === undefined ? null : `%${hint.replace(/[%_\\]/g, "\\$&")}%`;
  const page = new PageBuilder(query, scanRowsMax);
  let firstId = firstIdOf(query);
  while (firstId !== undefined) {
    const rows = page.rowsLeft(STEP_ROWS);
    const lastId = last.get(tag, firstId, rows)?.id;
    const end = lastId ?? (order === "asc" ? INT64_MAX : INT64_MIN);
    let found = 0;
    for (const row of candidates.iterate(tag, firstId, end, pattern)) {
      if (!page.add(toPlant(row))) return { plants: page.plants, next: page.lastId };
      found++;
    }
    if (lastId === undefined) break;
    page.skip(rows - found);
    firstId = firstIdOf({ ...query, after: lastId });
  }
  return { plants: page.plants, next: undefined };
}

/** Counting these takes some ten milliseconds. */
const COUNT_ROWS = 200_000;

/** Needs a read transaction. */
export function countPlants(
  statements: Statements,
  query: PlantQuery,
  scanRowsMax: number,
): CountPage {
  if (isSearch(query)) {
    const { plants, next } = searchPlants(statements, query, scanRowsMax);
    return { count: plants.length, next };
  }
  const firstId = firstIdOf(query);
  if (firstId === undefined) return { count: 0, next: undefined };
  const { tag = null } = query;
  const { last, count } = walkOf(statements, query);
  const lastId = last.get(tag, firstId, COUNT_ROWS)?.id;
  if (lastId !== undefined) return { count: COUNT_ROWS, next: lastId };
  return { count: Number(count.get(tag, firstId)?.count), next: undefined };
}

/** The different tags. Each costs one step down the index, however many plants have it. */
export function* walkTags({ nextTag }: Statements, query: TagQuery): Generator<TagPrefix> {
  const range = findTagPrefixRange(query);
  for (let from = range?.from; from !== undefined;) {
    const row = nextTag.get(from);
    if (row === null || !row.head.startsWith(query.prefix)) return;
    yield { head: row.head, bytes: Number(row.bytes) };
    from = findBehind(row.head);
  }
}
