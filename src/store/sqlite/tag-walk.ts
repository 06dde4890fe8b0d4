/** Walks the different tags, each found by one step down the index, however many plants have it. */

import type { Database, Statement } from "bun:sqlite";
import {
  findBehind,
  findHeadRange,
  HEAD_CHARACTERS,
  type TagHead,
  type TagQuery,
} from "../../domain/tag-page.ts";

export type HeadStatement = Statement<{ head: string; bytes: bigint }, [from: string]>;

export function prepareHeadStatement(db: Database): HeadStatement {
  return db.prepare(
    `SELECT substr(tag, 1, ${HEAD_CHARACTERS}) AS head, octet_length(tag) AS bytes
      FROM plants WHERE tag >= ? ORDER BY tag LIMIT 1`,
  );
}

export function* walkHeads(statement: HeadStatement, query: TagQuery): Generator<TagHead> {
  const range = findHeadRange(query);
  for (let from = range?.from; from !== undefined;) {
    const row = statement.get(from);
    if (row === null || !row.head.startsWith(query.prefix)) return;
    yield { head: row.head, bytes: Number(row.bytes) };
    from = findBehind(row.head);
  }
}
