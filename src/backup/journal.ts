/** Reads the journal of a running store for its backups, as lines of a segment. */

import type { Database } from "bun:sqlite";
import type { BlockRow } from "../store/journal.ts";
import { getSchemaVersion, openReadOnly, watchFile } from "../store/sqlite/database.ts";
import { findTail, hashTail, type Tail } from "./log.ts";
import { joinSpans, type Span } from "./names.ts";
import { readCursors, readHistory, readPoint } from "./survey.ts";

export type Journal = ReturnType<typeof readJournal>;

/** The size of one write and sync. */
const WRITE_CHARACTERS = 4_194_304;

/** The journal began later, or a break follows, before which it may have had the change. */
const IS_TRIMMED = `SELECT 1 FROM (SELECT first > last AS isBreak FROM changes WHERE last > ?1 ORDER BY last LIMIT 1)
  WHERE isBreak OR ?1 < (SELECT min(last) FROM changes)`;

export interface Page {
  readonly lines: readonly string[];
  readonly newest: number;
  /** Of the lines; undefined if there is none. */
  readonly span: Span | undefined;
  readonly hasMore: boolean;
}

export function openJournal(from: string) {
  const assertNotMoved = watchFile(from);
  const db = openReadOnly(from);
  try {
    return readJournal(db, from, assertNotMoved);
  } catch (error) {
    db.close(true);
    throw error;
  }
}

function readJournal(db: Database, from: string, assertNotMoved: () => void) {
  /** Lines after `cursor`, from one snapshot; undefined if the journal does not continue it. */
  const readPage = db.transaction((cursor: number): Page | undefined => {
    assertNotMoved();
    const { change } = readPoint(db);
    if (db.query("SELECT 1 FROM changes WHERE last = ?").get(cursor) === null) return undefined;
    const blocks: string[] = [];
    let newest = cursor;
    let span: Span | undefined;
    let characters = 0;
    const rows = db.query<BlockRow, [number]>("SELECT * FROM changes WHERE last > ? ORDER BY last");
    for (const row of rows.iterate(cursor)) {
      // A break: changes were made that the journal does not have.
      if (row.first > row.last) return undefined;
      const json = `{"after":${newest},"first":${row.first},"last":${row.last},"at":${row.at_ms},"entries":${row.entries}}`;
      blocks.push(json);
      newest = Number(row.last);
      const atMs = Number(row.at_ms);
      span = joinSpans(span, { fromMs: atMs, toMs: atMs });
      characters += json.length;
      if (characters >= WRITE_CHARACTERS) break;
    }
    return { lines: blocks, newest, span, hasMore: newest < change };
  });

  return {
    history: readHistory(db),
    schema: getSchemaVersion(db, from),
    newest: readPoint(db).change,
    readPage,
    readNewest: () => readPoint(db).change,
    readCursors: () => readCursors(db),
    hashAt: (change: number): string | undefined => {
      const tail = findTail(db, change);
      return tail && hashTail(tail);
    },
    close: (): void => db.close(true),
    /**
     * `known`: the journal continues it. `trimmed`: it is too old, or was made without a journal. `unknown`: this store
     * never had it. A number alone proves nothing: a store that was rolled back assigns it again if the clock was set
     * back too.
     */
    locate: (tail: Tail, change = tail.last): "known" | "trimmed" | "unknown" => {
      const own = findTail(db, change);
      if (own !== undefined) {
        const isSame = own.first === tail.first && own.at === tail.at;
        return isSame && (tail.last !== change || own.text === tail.text) ? "known" : "unknown";
      }
      return db.query(IS_TRIMMED).get(change) === null ? "unknown" : "trimmed";
    },
  };
}
