/** Every SQL statement of the engine, prepared once a connection, and the walks over plants and tags. */

import type { Database, Statement } from "bun:sqlite";
import { findHint, isSearch } from "../../domain/filter.ts";
import {
  type CountPage,
  createPage,
  firstIdOf,
  type Order,
  type PlantPage,
  type PlantQuery,
  TAG_PREFIX_CHARACTERS,
  type TagPrefix,
  type TagQuery,
} from "../../domain/page.ts";
import { INT64_MAX, INT64_MIN } from "../../domain/plant.ts";
import { type BlockRow, trimBlocks } from "../journal.ts";
import { type PlantRow, toPlant, type Value } from "../sql-store.ts";

type Prepare = <Row = unknown>(sql: string) => Statement<Row, Value[]>;

/** LIKE compares plain ASCII as a search does. Other texts, and long ones, are for the search itself to look at. */
const mayMatch = (column: string): string =>
  `octet_length(${column}) > 4096 OR length(${column}) < octet_length(${column}) OR ${column} LIKE ?4 ESCAPE '\\'`;

/** The index on the tag holds the ids of each tag in order, so it is walked as the table is. */
const TAGGED = "tag = ?1 AND";

/** Walks in the order of the ids. */
function prepareWalk(prepare: Prepare, order: Order, condition: string) {
  const [from, to] = order === "asc" ? [">=", "<="] : ["<=", ">="];
  const rows = `FROM plants WHERE ${condition} id ${from} ?2`;
  return {
    page: prepare<PlantRow<bigint | number>>(
      `SELECT id, name, tag ${rows} ORDER BY id ${order} LIMIT ?3`,
    ),
    // The last row of a piece, if there are as many.
    last: prepare<{ id: bigint }>(`SELECT id ${rows} ORDER BY id ${order} LIMIT 1 OFFSET ?3 - 1`),
    count: prepare<{ count: bigint }>(`SELECT count(*) AS count ${rows}`),
    // All rows that may match, and the last one.
    candidates: prepare<PlantRow>(
      `SELECT id, name, tag ${rows} AND id ${to} ?3
        AND (?4 IS NULL OR ${mayMatch("name")} OR ${mayMatch("tag")} OR id = ?3) ORDER BY id ${order}`,
    ),
  };
}

/** Plants that one statement creates. */
export const ROWS_TOGETHER = [16, 4] as const;
export type RowsTogether = (typeof ROWS_TOGETHER)[number];

export type Statements = ReturnType<typeof prepareStatements>;

function prepareStatements(db: Database) {
  const prepare: Prepare = (sql) => db.prepare(sql);
  const insertRows = (count: number): Statement<unknown, Value[]> =>
    prepare(
      `INSERT OR FAIL INTO plants (id, name, tag) VALUES ${"(?, ?, ?), ".repeat(count - 1)}(?, ?, ?)`,
    );
  return {
    begin: prepare("BEGIN"),
    // IMMEDIATE takes the write lock at once: a transaction that has begun never fails for lack of it.
    beginWrite: prepare("BEGIN IMMEDIATE"),
    commit: prepare("COMMIT"),
    rollback: prepare("ROLLBACK"),

    insertPlant: prepare(
      "INSERT INTO plants (id, name, tag) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
    ),
    // An id that is taken ends the statement, and what it has inserted stays. To undo that, SQLite would copy every page
    // that the statement changes.
    insertPlants: { 16: insertRows(16), 4: insertRows(4) },
    countChanged: prepare<{ count: bigint }>("SELECT changes() AS count"),
    updatePlant: prepare("UPDATE plants SET name = ?, tag = ? WHERE id = ?"),
    deletePlant: prepare("DELETE FROM plants WHERE id = ?"),
    findPlant: prepare<PlantRow>("SELECT id, name, tag FROM plants WHERE id = ?"),
    asc: prepareWalk(prepare, "asc", ""),
    desc: prepareWalk(prepare, "desc", ""),
    taggedAsc: prepareWalk(prepare, "asc", TAGGED),
    taggedDesc: prepareWalk(prepare, "desc", TAGGED),
    // A tag has no byte 0, so the next one after a whole tag is at least a byte 1 longer. No text has the byte 255, so
    // that one leads behind all tags that begin with a prefix.
    nextTag: prepare<TagPrefix>(
      `SELECT substr(tag, 1, ${TAG_PREFIX_CHARACTERS}) AS head, octet_length(tag) AS bytes
        FROM plants WHERE tag >= max(?1, coalesce(substr(?2, 1, ${TAG_PREFIX_CHARACTERS})
          || iif(length(?2) < ${TAG_PREFIX_CHARACTERS}, x'01', x'ff'), '')) ORDER BY tag LIMIT 1`,
    ),

    // How many entries, the time, and their text.
    insertChanges: prepare(
      `INSERT INTO changes (last, first, at_ms, entries)
        SELECT last, last - ?1 + 1, ?2, ?3
        FROM (SELECT max(?2 * 1000, (SELECT max(last) FROM changes) + max(?1, 1)) AS last)`,
    ),
    // The first row is the block that contains the number ?1. Only its numbers are used.
    readChanges: prepare<BlockRow>(
      `SELECT first, last, at_ms,
        iif(last > ?1 AND (?2 IS NULL OR instr(entries, ?2)), entries, NULL) AS entries
        FROM changes WHERE last >= ?1 ORDER BY last`,
    ),
    lastBreak: prepare<{ last: bigint | null }>(
      "SELECT max(last) AS last FROM changes WHERE first > last",
    ),
    newestChange: prepare<{ newest: bigint }>("SELECT max(last) AS newest FROM changes"),
  };
}

export const TRIM = trimBlocks("changes", "at_ms");

export const PROBE = `INSERT INTO probe (id, probed_at_ms) VALUES (1, $1)
  ON CONFLICT (id) DO UPDATE SET probed_at_ms = excluded.probed_at_ms`;

export interface Connection {
  readonly db: Database;
  readonly statements: Statements;
}

export const connect = (db: Database): Connection => ({ db, statements: prepareStatements(db) });

/** With its statements: a connection with an unfinished one does not release its file. */
export const disconnect = (connection: Connection | undefined): void => connection?.db.close(true);

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

/** The page of a query that is not a search. */
export function readPage(statements: Statements, query: PlantQuery): PlantPage {
  const { tag = null, limit } = query;
  const firstId = firstIdOf(query);
  if (firstId === undefined) return { plants: [], next: undefined };
  const read = (isExact: boolean): PlantPage | undefined => {
    const page = createPage(query, Number.POSITIVE_INFINITY);
    const rows = walkOf(statements, query).page.safeIntegers(isExact);
    // One more than the page may have tells whether there is a next one.
    for (const row of rows.iterate(tag, firstId, limit + 1)) {
      if (!isExact && !Number.isSafeInteger(row.id)) return undefined;
      if (!page.add(toPlant(row))) return { plants: page.plants, next: page.lastId };
    }
    return { plants: page.plants, next: undefined };
  };
  // As numbers, which take a tenth less time, unless an id among them may have been rounded.
  return read(false) ?? (read(true) as PlantPage);
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
  const page = createPage(query, scanRowsMax);
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
  for (let after = query.after ?? null; ;) {
    const row = nextTag.get(query.prefix, after);
    if (row === null || !row.head.startsWith(query.prefix)) return;
    yield row;
    after = row.head;
  }
}
