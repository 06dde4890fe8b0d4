/** Pages of tags: each found by one step down the index, however many plants have it. */

import {
  findBehind,
  findTagPrefixRange,
  TAG_PREFIX_CHARACTERS,
  TAG_PREFIXES_MAX,
  type TagPrefixRange,
  isComplete,
  type TagPrefix,
  type TagPage,
  type TagQuery,
  takeTags,
} from "../../domain/page.ts";
import type { Connection } from "./connection.ts";

/** One statement finds a page of tags that can all be listed; where some cannot, the next goes on behind it. */
export async function listTags(
  connection: Connection,
  query: TagQuery,
  deadlineMs: number,
): Promise<TagPage> {
  const heads: TagPrefix[] = [];
  let wanted = query.limit + 1;
  let range = findTagPrefixRange(query);
  while (range !== undefined && wanted > 0 && heads.length <= TAG_PREFIXES_MAX) {
    // As many again as were in vain, so that it does not take many statements to pass over many.
    const rowsMax = Math.max(wanted, heads.length);
    const piece = await readHeads(connection, range, rowsMax, deadlineMs);
    heads.push(...piece);
    if (piece.length < rowsMax) break;
    wanted -= piece.filter(({ head }) => isComplete(head)).length;
    const from = findBehind(piece.at(-1)?.head ?? "");
    range = from === undefined ? undefined : { from, until: range.until };
  }
  return takeTags(heads, query.limit);
}

async function readHeads(
  connection: Connection,
  { from, until }: TagPrefixRange,
  rowsMax: number,
  deadlineMs: number,
): Promise<readonly TagPrefix[]> {
  const rows = await connection.query<{ head: string }>(
    until === undefined ? OPEN : BOUNDED,
    until === undefined ? [from, rowsMax] : [from, rowsMax, until],
    deadlineMs,
  );
  return rows.map(({ head }) => ({ head, bytes: head.length }));
}

const OPEN = statementOf("");
const BOUNDED = statementOf(`AND left(tag, ${TAG_PREFIX_CHARACTERS}) < $3::text`);

/** The last row of the recursion, where nothing more is found, has no head. */
function statementOf(andBefore: string): string {
  const first = (comparison: string): string =>
    `SELECT left(tag, ${TAG_PREFIX_CHARACTERS}) AS head FROM plants
      WHERE tag IS NOT NULL AND left(tag, ${TAG_PREFIX_CHARACTERS}) ${comparison} ${andBefore}
      ORDER BY left(tag, ${TAG_PREFIX_CHARACTERS}) LIMIT 1`;
  return `WITH RECURSIVE heads AS (
    (${first(">= $1::text")})
    UNION ALL
    SELECT (${first("> heads.head")}) FROM heads WHERE head IS NOT NULL
  )
  SELECT head FROM heads WHERE head IS NOT NULL LIMIT $2::int`;
}
