/**
 * The change log of a backup: every change since the copy, so a restore reaches any moment after it.
 *
 * A line is a CRC-32 and JSON: a block of the journal with the number of the block before it, or all tokens or webhooks
 * after a change of them. A last line without a newline is a torn write of a crash, and is ignored.
 */

import { Database } from "bun:sqlite";
import {
  closeSync,
  existsSync,
  fdatasyncSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  writeSync,
} from "node:fs";
import { dirname } from "node:path";
import type { Change } from "../../domain/change.ts";
import { StoreOpenError } from "../../domain/errors.ts";
import { isSameState } from "../../domain/plant.ts";
import { type BlockRow, JournalBlock, parseBlock } from "../journal.ts";
import { type PlantRow, toPlant } from "../sql-store.ts";
import { getSchemaVersion, openReadOnly, readStore, syncFile, watchFiles } from "./database.ts";

export const logOf = (copy: string): string => copy.replace(/\.db$/, ".changes");

interface Block {
  /** The number of the last change before this block. */
  readonly after: number;
  readonly first: number;
  readonly last: number;
  readonly at: number;
  readonly entries: readonly unknown[];
}

/** Tables that are not in the journal, and a query whose result tells whether one has changed. */
const tables = {
  // Tokens are only added and revoked. Their last use is not kept up to date.
  tokens: "SELECT count(*) || ' ' || count(revoked_at_ms) AS version FROM tokens",
  webhooks: "SELECT group_concat(version) AS version FROM webhooks",
};

interface Table {
  readonly at: number;
  readonly table: keyof typeof tables;
  readonly rows: readonly Readonly<Record<string, string | number | null>>[];
}

/** A point in the journal: the newest change in a store, or the last one to restore. */
export interface Point {
  readonly change: number;
  readonly atMs: number;
}

export const NEWEST: Point = { change: Number.POSITIVE_INFINITY, atMs: Number.POSITIVE_INFINITY };

const readPoint = (db: Database): Point =>
  db
    .query("SELECT last AS change, at_ms AS atMs FROM changes ORDER BY last DESC LIMIT 1")
    .safeIntegers(false)
    .get() as Point;

export const findPoint = (copy: string): Point =>
  readStore(copy, (db) => {
    getSchemaVersion(db, copy);
    return readPoint(db);
  });

/** The newest change in a copy and its log together. */
export function findReach(copy: string): Point {
  let reached = findPoint(copy);
  for (const { line } of readLog(logOf(copy), reached.change))
    if ("entries" in line) reached = { change: line.last, atMs: line.at };
  return reached;
}

const CHUNK_BYTES = 1_048_576;
const NEWLINE = 10;

/** Yields each line with its end offset. A log that does not exist is empty. */
function* readLog(file: string, after: number) {
  if (!existsSync(file)) return;
  const descriptor = openSync(file, "r");
  try {
    let rest = Buffer.alloc(0);
    let end = 0;
    let last = after;
    for (;;) {
      const chunk = Buffer.alloc(CHUNK_BYTES);
      const length = readSync(descriptor, chunk);
      if (length === 0) return;
      rest = Buffer.concat([rest, chunk.subarray(0, length)]);
      let start = 0;
      for (let at = rest.indexOf(NEWLINE); at !== -1; at = rest.indexOf(NEWLINE, start)) {
        const line = parseLine(rest.toString("utf8", start, at));
        if (line === undefined || ("entries" in line && line.after !== last))
          throw new StoreOpenError(
            `${file} is damaged ${end} bytes from its start. The changes before that can be restored with --at-change ${last}.`,
          );
        if ("entries" in line) last = line.last;
        end += at + 1 - start;
        start = at + 1;
        yield { line, end };
      }
      rest = rest.subarray(start);
    }
  } finally {
    closeSync(descriptor);
  }
}

function parseLine(text: string): Block | Table | undefined {
  const json = text.slice(CRC_DIGITS + 1);
  return `${text}\n` === formatLine(json) ? (JSON.parse(json) as Block | Table) : undefined;
}

const CRC_DIGITS = 8;

const formatLine = (json: string): string =>
  `${Bun.hash.crc32(json).toString(16).padStart(CRC_DIGITS, "0")} ${json}\n`;

/** The size of one write and sync. */
const WRITE_CHARACTERS = 4_194_304;

/**
 * Appends a store's changes to the log of one of its copies. It blocks, so it runs on its own thread. Continues an
 * existing log. Throws if it does not belong to the copy.
 */
export function openChangeLog(from: string, copy: string) {
  const file = logOf(copy);
  const schema = readStore(copy, (db) => getSchemaVersion(db, copy));
  /** The number of the last change in the log, and where its line ends. */
  let last = findPoint(copy).change;
  let end = 0;
  for (const read of readLog(file, last)) {
    ({ end } = read);
    if ("entries" in read.line) ({ last } = read.line);
  }
  /** The version of each table in the log. */
  const versions = new Map<string, string | null>();
  const db = openReadOnly(from);
  const assertNotMoved = watchFiles([from]);
  if (getSchemaVersion(db, from) !== schema) last = Number.NaN;

  /** The lines after `last`, from one snapshot. Undefined if the journal does not continue the log. */
  const readPage = db.transaction(() => {
    if (db.query("SELECT 1 FROM changes WHERE last = ?").get(last) === null) return undefined;
    let text = "";
    let newest = last;
    const blocks = db.query<BlockRow, [number]>(
      "SELECT * FROM changes WHERE last > ? ORDER BY last",
    );
    for (const row of blocks.iterate(last)) {
      // A break: changes were made that the journal does not have.
      if (row.first > row.last) return undefined;
      text += formatLine(
        `{"after":${newest},"first":${row.first},"last":${row.last},"at":${row.at_ms},"entries":${row.entries}}`,
      );
      newest = Number(row.last);
      if (text.length >= WRITE_CHARACTERS) return { text, newest, hasMore: true };
    }
    return { text: text + readTables(), newest, hasMore: false };
  });

  const readTables = (): string => {
    let text = "";
    for (const [table, query] of Object.entries(tables)) {
      const { version } = db.query(query).get() as { version: string | null };
      if (versions.get(table) === version) continue;
      versions.set(table, version);
      const rows = db.query(`SELECT * FROM ${table}`).safeIntegers(false).all();
      text += formatLine(JSON.stringify({ at: Date.now(), table, rows }));
    }
    return text;
  };

  /** Writes after the last whole line: a crash may have left a partial one. */
  const write = (text: string): void => {
    const isNew = end === 0;
    const descriptor = openSync(file, isNew ? "w" : "r+", 0o600);
    try {
      if (fstatSync(descriptor).size < end) throw new StoreOpenError(`${file} was cut short.`);
      ftruncateSync(descriptor, end);
      const bytes = Buffer.from(text);
      for (let at = 0; at < bytes.length;)
        at += writeSync(descriptor, bytes, at, bytes.length - at, end + at);
      fdatasyncSync(descriptor);
      end += bytes.length;
    } finally {
      closeSync(descriptor);
    }
    if (isNew) syncFile(dirname(file));
  };

  return {
    copy,
    close: (): void => db.close(true),

    /** Returns false if a new copy is needed. After an error, open the log again. */
    append(): boolean {
      assertNotMoved();
      if (!existsSync(dirname(copy)))
        throw new StoreOpenError(`The folder ${dirname(copy)} does not exist.`);
      if (!existsSync(copy) || (end > 0 && !existsSync(file))) return false;
      for (let hasMore = true; hasMore;) {
        const page = readPage();
        if (page === undefined) return false;
        if (page.text !== "") write(page.text);
        ({ newest: last, hasMore } = page);
      }
      return true;
    },
  };
}

/** Replays the log into a copy. Throws a StoreOpenError if a change does not match its plant. */
export function replayLog(copy: string, log: string, until: Point) {
  using db = new Database(copy, { readwrite: true, create: false, safeIntegers: true });
  // The copy is synced as a whole afterwards.
  db.run("PRAGMA journal_mode = OFF");
  db.run("PRAGMA synchronous = OFF");
  let reached = readPoint(db);
  let changes = 0;
  db.run("BEGIN");
  for (const { line } of readLog(log, reached.change)) {
    if (line.at > until.atMs) break;
    if (!("entries" in line)) {
      storeTable(db, line);
      continue;
    }
    const last = Math.min(line.last, until.change);
    if (last < line.first) break;
    changes += replayBlock(db, line, last, log);
    reached = { change: last, atMs: line.at };
    if (last === until.change) break;
  }
  db.run("COMMIT");
  return { changes, reached };
}

/** Returns the number of changes up to `last`. */
function replayBlock(db: Database, block: Block, last: number, log: string): number {
  const [first, at] = [BigInt(block.first), BigInt(block.at)];
  const row = { first, last: BigInt(last), at_ms: at, entries: JSON.stringify(block.entries) };
  const kept = new JournalBlock();
  for (const change of parseBlock(row)) {
    if (change.seq > last) break;
    if (!applyChange(db, change))
      throw new StoreOpenError(
        `${log} does not fit the copy: plant ${change.id} is not in the state that change ${change.seq} expects.`,
      );
    kept.add(change.id, { token: change.by, batch: change.batch }, change.plant, change.before);
  }
  const insert = db.query("INSERT INTO changes (last, first, at_ms, entries) VALUES (?, ?, ?, ?)");
  insert.run(row.last, first, at, kept.format());
  return kept.count;
}

/** False if the plant is not as it was before the change. */
function applyChange(db: Database, { id, plant, before }: Change): boolean {
  const find = db.query<PlantRow, [bigint]>("SELECT id, name, tag FROM plants WHERE id = ?");
  const put = db.query("REPLACE INTO plants (id, name, tag) VALUES (?, ?, ?)");
  const row = find.get(id);
  if (!isSameState(row === null ? undefined : toPlant(row), before)) return false;
  if (plant === undefined) db.query("DELETE FROM plants WHERE id = ?").run(id);
  else put.run(id, plant.name, plant.tag ?? null);
  return true;
}

function storeTable(db: Database, { table, rows }: Table): void {
  db.run(`DELETE FROM ${table}`);
  for (const row of rows) {
    const columns = Object.keys(row);
    const places = columns.map(() => "?").join(", ");
    const insert = db.query(`INSERT INTO ${table} (${columns.join(", ")}) VALUES (${places})`);
    insert.run(...Object.values(row));
  }
}
