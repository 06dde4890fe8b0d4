/** The journal's blocks: stored unnumbered, numbered by readers. docs/architecture.md has the reasoning. */

import { type ChangeQuery, TIME_NUMBER_MAX } from "../../domain/change.ts";
import { type BlockRow, partOf, timesOf } from "../journal.ts";
import { type Connection, LSN, NOW_US, sqlStateOf } from "./connection.ts";

const BLOCKS_MAX = 256;
const BYTES_MAX = 2_097_152;
/** More than on SQLite, because each statement is a round trip. */
export const CHANGES_MS_MAX = 50;

/** Compare-and-set on the mark with the newest number: of several readers one succeeds, the others number nothing. */
const NUMBER = `WITH ready AS (
    SELECT place, least(at_us, ${TIME_NUMBER_MAX}) AS at_us, sum(length) OVER (ORDER BY lsn ROWS UNBOUNDED PRECEDING) AS total
    FROM (
      SELECT ctid AS place, lsn, at_us, length FROM plantstore_changes
      WHERE last IS NULL ORDER BY last, lsn LIMIT ${BLOCKS_MAX}
    ) AS oldest
  ), numbered AS (
    SELECT place, total + greatest((SELECT max(last) FROM plantstore_changes),
      max(at_us - total) OVER (ORDER BY total)) AS number
    FROM ready
  ), claimed AS (
    UPDATE plantstore_marks SET at_ms = (SELECT max(number) FROM numbered)
    WHERE name = 'changes' AND at_ms = (SELECT max(last) FROM plantstore_changes)
      AND EXISTS (SELECT 1 FROM numbered)
    RETURNING name
  ), assigned AS (
    UPDATE plantstore_changes c SET last = number FROM numbered, claimed WHERE c.ctid = place
    RETURNING c.last
  )
  SELECT (SELECT count(*) FROM ready) AS ready, (SELECT count(*) FROM assigned) AS assigned,
    greatest((SELECT max(last) FROM assigned), (SELECT max(last) FROM plantstore_changes)) AS newest`;

/** The first block is a break too, and has no mark. */
export const IS_BEGINNING =
  "length = 0 AND NOT EXISTS (SELECT 1 FROM plantstore_marks WHERE name = 'break')";

/**
 * The first row is the block that contains the number $1. Its text does not count, so another block is always read.
 * `hasText`: which rows come with their text.
 */
function selectBlocks(isBack: boolean, hasText: string, blocksMax = BLOCKS_MAX): string {
  const order = isBack ? "last DESC" : "last";
  const from = isBack
    ? "<= coalesce((SELECT min(last) FROM plantstore_changes WHERE last >= $1::bigint), $1::bigint)"
    : ">= $1::bigint";
  return `SELECT last - length + 1 AS first, last, at_us / 1000 AS at_ms, kept,
    ${IS_BEGINNING} AS is_beginning,
    CASE WHEN ${hasText} AND ($3::bigint IS NULL OR at_us / 1000 >= $3::bigint)
        AND ($4::bigint IS NULL OR at_us / 1000 <= $4::bigint) AND ($2::text IS NULL OR position($2::text IN entries) > 0)
      THEN entries END AS entries
  FROM (
    SELECT *, sum(octet_length(entries)) FILTER (WHERE last ${isBack ? "<" : ">"} $1::bigint)
      OVER (ORDER BY ${order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
      SELECT last, length, at_us, entries, kept FROM plantstore_changes
      WHERE last ${from} ORDER BY ${order} LIMIT ${blocksMax}
    ) AS page
  ) AS sized
  WHERE coalesce(bytes_before, 0) <= ${BYTES_MAX} ORDER BY ${order}`;
}

const READ = selectBlocks(false, "last > $1::bigint");
const READ_BACK = selectBlocks(true, "true");
/** Tells whether the journal is unbroken since then, and its newest number. Every instance asks ten times a second. */
const PEEK = selectBlocks(false, "false", 2);

const LAST_BREAK = "SELECT at_ms AS last FROM plantstore_marks WHERE name = 'break'";

/** Adds a break: the changes after it are not in the journal. The mark 'break' has the number of the last one. */
const BREAK = `WITH mark AS (
    UPDATE plantstore_marks SET at_ms = greatest(at_ms + 1, least(${NOW_US}, ${TIME_NUMBER_MAX}))
    WHERE name = 'changes'
    RETURNING at_ms
  ), block AS (
    INSERT INTO plantstore_changes (last, length, lsn, at_us, entries)
    SELECT at_ms, 0, 0, ${NOW_US}, '[]' FROM mark
  )
  INSERT INTO plantstore_marks (name, at_ms) SELECT 'break', at_ms FROM mark
  ON CONFLICT (name) DO UPDATE SET at_ms = excluded.at_ms`;

/** Resolves to how many days changes are kept: 0 on an engine without WAL positions. */
export async function beginJournal(connection: Connection, changesDays: number): Promise<number> {
  // Without a grant on them the journal would never be trimmed.
  await connection.query("SELECT number FROM plantstore_journal_marks LIMIT 1");
  try {
    await connection.query(`SELECT ${LSN} AS lsn`);
    // A database restored from a dump may have unnumbered blocks with another server's LSNs.
    await numberBlocks(connection);
    if (changesDays > 0) return changesDays;
  } catch (error) {
    if (!/^(42883|42704|0A)/.test(sqlStateOf(error) ?? "")) throw error;
  }
  await connection.query(BREAK);
  return 0;
}

export async function findLastBreak(connection: Connection): Promise<number> {
  const [found] = await connection.query<{ readonly last: bigint }>(LAST_BREAK);
  return Number(found?.last ?? 0);
}

export function readBlocks(connection: Connection, query: ChangeQuery, start: number) {
  const statement = query.order === "desc" ? READ_BACK : query.limit === 0 ? PEEK : READ;
  return connection.query<BlockRow>(statement, [start, partOf(query), ...timesOf(query)]);
}

/** Numbers every block committed before the call. Resolves to the newest number. */
export async function numberBlocks(connection: Connection): Promise<number> {
  for (;;) {
    const [row] = await connection.query<Record<"ready" | "assigned" | "newest", bigint>>(NUMBER);
    const { ready = 0n, assigned = 0n, newest } = row ?? {};
    if (ready === assigned && ready < BLOCKS_MAX) return Number(newest);
  }
}
