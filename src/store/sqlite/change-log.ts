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
import { type Change, joinWriter } from "../../domain/change.ts";
import { StoreOpenError } from "../../domain/errors.ts";
import { type BlockRow, JournalBlock, parseBlock } from "../sql-store.ts";
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

/** The newest change in a store. */
interface Position {
  readonly change: number;
  readonly atMs: number;
}

/** The last moment to restore, by the number of a change or by a time. */
export interface Until {
  readonly unit: keyof Position;
  readonly value: number;
}

export const NEWEST: Until = { unit: "change", value: Number.POSITIVE_INFINITY };

const readPosition = (db: Database): Position =>
  db
    .query("SELECT last AS change, at_ms AS atMs FROM changes ORDER BY last DESC LIMIT 1")
    .safeIntegers(false)
    .get() as Position;

export const findPosition = (copy: string): Position =>
  readStore(copy, (db) => {
    getSchemaVersion(db, copy);
    return readPosition(db);
  });

/** The newest change in a copy and its log together. */
export function findReach(copy: string): Position {
  let reached = findPosition(copy);
  for (const { line } of readLog(logOf(copy), reached.change))
    if ("entries" in line) reached = { change: line.last, atMs: line.at };
  return reached;
}

const CHUNK_BYTES = 1_048_576;
const NEWLINE = 10;

/** Yields each line with its end offset. A log that does not exist is empty. */
function* readLog(
  file: string,
  after: number,
): Generator<{ readonly line: Block | Table; readonly end: number }> {
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
  return text === formatLine(json) ? (JSON.parse(json) as Block | Table) : undefined;
}

const CRC_DIGITS = 8;

const formatLine = (json: string): string =>
  `${Bun.hash.crc32(json).toString(16).padStart(CRC_DIGITS, "0")} ${json}`;

/** The size of one write and sync. */
const WRITE_CHARACTERS = 4_194_304;

/** Appends a store's changes to the log of one of its copies. It blocks, so it runs on its own thread. */
export class ChangeLog {
  readonly copy: string;
  private readonly file: string;
  private readonly db: Database;
  private readonly assertNotMoved: () => void;
  /** The number of the last change in the log, and where its line ends. */
  private last: number;
  private end = 0;
  /** The version of each table in the log. */
  private readonly versions = new Map<string, string | null>();

  /** Continues an existing log. Throws if it does not belong to the copy. */
  constructor(from: string, copy: string) {
    this.copy = copy;
    this.file = logOf(copy);
    const version = readStore(copy, (db) => getSchemaVersion(db, copy));
    this.last = findPosition(copy).change;
    for (const { line, end } of readLog(this.file, this.last)) {
      this.end = end;
      if ("entries" in line) this.last = line.last;
    }
    this.db = openReadOnly(from);
    this.assertNotMoved = watchFiles([from]);
    if (getSchemaVersion(this.db, from) !== version) this.last = Number.NaN;
  }

  /** Returns false if the journal does not continue the log: a new copy is needed. After an error, open the log again. */
  append(): boolean {
    this.assertNotMoved();
    if (!existsSync(dirname(this.copy)))
      throw new StoreOpenError(`The folder ${dirname(this.copy)} does not exist.`);
    if (!existsSync(this.copy) || (this.end > 0 && !existsSync(this.file))) return false;
    for (let hasMore = true; hasMore;) {
      const page = this.readPage();
      if (page === undefined) return false;
      if (page.text !== "") this.write(page.text);
      this.last = page.last;
      hasMore = page.hasMore;
    }
    return true;
  }

  close(): void {
    this.db.close(true);
  }

  private readPage(): { text: string; last: number; hasMore: boolean } | undefined {
    let { last } = this;
    let text = "";
    const blocks = this.db.prepare<BlockRow, [number]>(
      "SELECT first, last, at_ms, entries FROM changes WHERE last >= ? ORDER BY last",
    );
    let isFirst = true;
    for (const row of blocks.iterate(this.last)) {
      const isBreak = row.first > row.last;
      if (isFirst ? Number(row.last) !== this.last : isBreak) return undefined;
      if (isFirst) {
        isFirst = false;
        continue;
      }
      text += `${formatLine(
        `{"after":${last},"first":${row.first},"last":${row.last},"at":${row.at_ms},"entries":${row.entries}}`,
      )}\n`;
      last = Number(row.last);
      if (text.length >= WRITE_CHARACTERS) return { text, last, hasMore: true };
    }
    return isFirst ? undefined : { text: text + this.readTables(), last, hasMore: false };
  }

  private readTables(): string {
    let text = "";
    for (const [table, query] of Object.entries(tables)) {
      const { version } = this.db.query(query).get() as { version: string | null };
      if (this.versions.get(table) === version) continue;
      this.versions.set(table, version);
      const rows = this.db.query(`SELECT * FROM ${table}`).safeIntegers(false).all();
      text += `${formatLine(JSON.stringify({ at: Date.now(), table, rows }))}\n`;
    }
    return text;
  }

  /** Writes after the last whole line: a crash may have left a partial one. */
  private write(text: string): void {
    const isNew = this.end === 0;
    const descriptor = openSync(this.file, isNew ? "w" : "r+", 0o600);
    try {
      if (fstatSync(descriptor).size < this.end)
        throw new StoreOpenError(`${this.file} was cut short.`);
      ftruncateSync(descriptor, this.end);
      const bytes = Buffer.from(text);
      for (let written = 0; written < bytes.length;)
        written += writeSync(
          descriptor,
          bytes,
          written,
          bytes.length - written,
          this.end + written,
        );
      fdatasyncSync(descriptor);
      this.end += bytes.length;
    } finally {
      closeSync(descriptor);
    }
    if (isNew) syncFile(dirname(this.file));
  }
}

export interface Replayed {
  readonly changes: number;
  readonly reached: Position;
}

/** Replays the log into a copy. Throws a StoreOpenError if a change does not match its plant. */
export function replayLog(copy: string, log: string, { unit, value }: Until): Replayed {
  using db = new Database(copy, { readwrite: true, create: false, safeIntegers: true });
  // The copy is synced as a whole afterwards.
  db.run("PRAGMA journal_mode = OFF");
  db.run("PRAGMA synchronous = OFF");
  const atMs = unit === "atMs" ? value : Number.POSITIVE_INFINITY;
  const change = unit === "change" ? value : Number.POSITIVE_INFINITY;
  let reached = readPosition(db);
  let changes = 0;
  db.run("BEGIN");
  for (const { line } of readLog(log, reached.change)) {
    if (line.at > atMs) break;
    if (!("entries" in line)) {
      storeTable(db, line);
      continue;
    }
    const last = Math.min(line.last, change);
    if (last < line.first) break;
    changes += replayBlock(db, line, last, log);
    reached = { change: last, atMs: line.at };
    if (last === change) break;
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
    kept.add(change.id, joinWriter(change.by, change.batch), change.plant, change.before);
  }
  db.query("INSERT INTO changes (last, first, at_ms, entries) VALUES (?, ?, ?, ?)").run(
    row.last,
    first,
    at,
    kept.format(),
  );
  return kept.count;
}

/** False if the plant is not as it was before the change. */
function applyChange(db: Database, { id, plant, before }: Change): boolean {
  const tag = plant?.tag ?? null;
  const was = [before?.name ?? "", before?.tag ?? null] as const;
  const done =
    plant === undefined
      ? db.query("DELETE FROM plants WHERE id = ? AND name = ? AND tag IS ?").run(id, ...was)
      : before === undefined
        ? db
            .query("INSERT INTO plants (id, name, tag) VALUES (?, ?, ?) ON CONFLICT DO NOTHING")
            .run(id, plant.name, tag)
        : db
            .query("UPDATE plants SET name = ?, tag = ? WHERE id = ? AND name = ? AND tag IS ?")
            .run(plant.name, tag, id, ...was);
  return done.changes === 1;
}

function storeTable(db: Database, { table, rows }: Table): void {
  db.run(`DELETE FROM ${table}`);
  for (const row of rows) {
    const columns = Object.keys(row);
    const places = columns.map(() => "?").join(", ");
    db.query(`INSERT INTO ${table} (${columns.join(", ")}) VALUES (${places})`).run(
      ...Object.values(row),
    );
  }
}
