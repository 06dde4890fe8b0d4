/**
 * The journal. A statement that changes plants inserts a block without numbers, with the id of its transaction. Readers
 * number the blocks of transactions that are older than every running one, by the ids: no block can appear before
 * those any more. docs/architecture.md has the reasoning.
 */

import type { ChangePage, ChangeQuery } from "../../domain/change.ts";
import { type BlockRow, ChangePageBuilder, partOf } from "../journal.ts";
import { type Connection, sqlStateOf } from "./connection.ts";

const NOW_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/**
 * The change, which returns the ids that it was made to, and its block in one statement. The two parameters are the
 * text of the block, and how many entries it has. Those that the change was not made to do not count.
 */
export const withChanges = (change: string, firstParameter: number): string => `WITH done AS (
    ${change}
  ), written AS (
    INSERT INTO plantstore_changes (length, xid, at_us, entries, kept)
    SELECT count(*), pg_current_xact_id()::text::bigint, ${NOW_US}, $${firstParameter}::text,
      CASE WHEN count(*) < $${firstParameter + 1}::int THEN array_agg(id) END
    FROM done HAVING count(*) > 0
  )
  SELECT id FROM done`;

const BLOCKS_MAX = 256;
const BYTES_MAX = 2_097_152;
/** A statement and its way take longer than reading a file. */
const PAGE_MS_MAX = 50;

/**
 * Two readers that do this at once compute the same numbers: a block's last number is that of the block before it and
 * its own length, or the time of its write if that is more. A transaction id that does not exist here yet is from a
 * server that this database was restored from.
 */
const NUMBER = `WITH running AS (
    SELECT pg_snapshot_xmin(now)::text::bigint AS oldest, pg_snapshot_xmax(now)::text::bigint AS next
    FROM pg_current_snapshot() AS now
  ), ready AS (
    SELECT place, at_us, sum(length) OVER (ORDER BY xid, at_us ROWS UNBOUNDED PRECEDING) AS total
    FROM (
      SELECT c.ctid AS place, xid, at_us, length FROM plantstore_changes c, running
      WHERE last IS NULL AND (xid < oldest OR xid >= next) ORDER BY xid, at_us LIMIT ${BLOCKS_MAX}
    ) AS oldest_blocks
  ), numbered AS (
    SELECT place, total + greatest((SELECT max(last) FROM plantstore_changes),
      max(at_us - total) OVER (ORDER BY total)) AS number
    FROM ready
  )
  UPDATE plantstore_changes c SET last = number FROM numbered
  WHERE c.ctid = place AND c.last IS NULL RETURNING c.last`;

/** The block with the number to begin behind comes first, for its numbers only. */
const READ = `SELECT last - length + 1 AS first, last, at_us / 1000 AS at_ms, kept::text AS kept,
    (SELECT max(last) FROM plantstore_changes) AS newest,
    CASE WHEN last > $1::bigint AND ($2::text IS NULL OR position($2::text IN entries) > 0)
      THEN entries END AS entries
  FROM (
    SELECT *, sum(octet_length(entries))
      OVER (ORDER BY last ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
      SELECT last, length, at_us, entries, kept FROM plantstore_changes
      WHERE last >= $1::bigint ORDER BY last LIMIT ${BLOCKS_MAX}
    ) AS page
  ) AS sized
  WHERE coalesce(bytes_before, 0) <= ${BYTES_MAX} ORDER BY last`;

const NEWEST = "SELECT max(last) AS newest FROM plantstore_changes";

/** The newest one stays: numbers go on from it. */
const TRIM = `DELETE FROM plantstore_changes
  WHERE last IN (SELECT last FROM plantstore_changes ORDER BY last LIMIT ${BLOCKS_MAX})
    AND at_us < $1::bigint * 1000 AND last < (SELECT max(last) FROM plantstore_changes)
  RETURNING last`;

/** A break: from here on changes are made that the journal does not have. */
export const BREAK = `INSERT INTO plantstore_changes (last, length, xid, at_us, entries)
  SELECT greatest(max(last) + 1, ${NOW_US}), 0, 0, ${NOW_US}, '[]' FROM plantstore_changes`;

/** False on an engine that has no transaction ids, and so no order of commits that a reader could see. */
export async function canOrderCommits(connection: Connection): Promise<boolean> {
  try {
    await connection.query("SELECT pg_snapshot_xmin(pg_current_snapshot())::text");
    return true;
  } catch (error) {
    if (/^(42883|42704|0A)/.test(sqlStateOf(error) ?? "")) return false;
    throw error;
  }
}

export async function readChanges(connection: Connection, query: ChangeQuery): Promise<ChangePage> {
  await numberBlocks(connection);
  const page = new ChangePageBuilder(query, PAGE_MS_MAX);
  for (;;) {
    const rows = await connection.query<BlockRow>(READ, [page.last, partOf(query)]);
    if (!rows.every((row) => page.add(row))) return page.finish();
    if (rows.length === 0) {
      const [row] = await connection.query<{ readonly newest: bigint }>(NEWEST);
      return page.finish(Number(row?.newest));
    }
    if (page.last === Number(rows[0]?.newest)) return page.finish();
  }
}

/** False if there is nothing more to remove. */
export async function trimChanges(connection: Connection, beforeMs: number): Promise<boolean> {
  await numberBlocks(connection);
  return (await connection.query(TRIM, [Math.floor(beforeMs)])).length === BLOCKS_MAX;
}

async function numberBlocks(connection: Connection): Promise<void> {
  while ((await connection.query(NUMBER)).length === BLOCKS_MAX);
}
