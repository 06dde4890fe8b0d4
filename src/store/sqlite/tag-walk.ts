/** Walks the different tags, each found by one step down the index, however many plants have it. */

import type { Database, Statement } from "bun:sqlite";
import {
  findBehind,
  findTagPrefixRange,
  TAG_PREFIX_CHARACTERS,
  type TagPrefix,
  type TagQuery,
} from "../../domain/page.ts";

export type HeadStatement = Statement<{ head: string; bytes: bigint }, [from: string]>;

export function prepareHeadStatement(db: Database): HeadStatement {
  return db.prepare(
    `SELECT substr(tag, 1, ${TAG_PREFIX_CHARACTERS}) AS head, octet_length(tag) AS bytes
      FROM plants WHERE tag >= ? ORDER BY tag LIMIT 1`,
  );
}

export function* walkHeads(statement: HeadStatement, query: TagQuery): Generator<TagPrefix> {
  const range = findTagPrefixRange(query);
  for (let from = range?.from; from !== undefined;) {
    const row = statement.get(from);
    if (row === null || !row.head.startsWith(query.prefix)) return;
    yield { head: row.head, bytes: Number(row.bytes) };
    from = findBehind(row.head);
  }
}
