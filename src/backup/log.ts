/**
 * A segment of a backup: lines of a CRC-32 and JSON, each checked by itself, so damage costs only what is damaged. The
 * first line is the header. A record is a block of the journal with the number of the block before it. Records are
 * numbered, so a missing one shows. The last line of a closed segment is its end. Version 1.0 wrote blocks and whole
 * tables only.
 */

import type { Database } from "bun:sqlite";
import { closeSync, openSync, readSync } from "node:fs";
import { type Change, writerOf } from "../domain/change.ts";
import { StoreOpenError } from "../domain/errors.ts";
import { isSameState, type Plant } from "../domain/plant.ts";
import { findRecordEntry, JournalBlock, parseBlock, type RecordEntry } from "../store/journal.ts";
import { type PlantRow, toPlant } from "../store/reads.ts";
import {
  type Cursors,
  joinSpans,
  sealOf,
  type Segment,
  type Span,
  type Timeline,
} from "./names.ts";
import type { Run, Step } from "./plan.ts";

export interface Header {
  readonly segment: typeof FORMAT;
  readonly store: string;
  readonly schema: number;
  /** From the first to the one that the changes belong to. */
  readonly timelines: readonly Timeline[];
  readonly after: number;
}

const FORMAT = 2;

interface Block {
  /** The number of the last change before this block. */
  readonly after: number;
  readonly first: number;
  readonly last: number;
  readonly at: number;
  readonly entries: readonly unknown[];
}

/** Version 1.0 wrote a table as a whole when one of its rows had changed. */
interface TableRecord {
  readonly at: number;
  readonly table: "tokens" | "webhooks";
  readonly rows: readonly Readonly<Record<string, string | number | null>>[];
}

type SegmentRecord = Block | TableRecord;
interface End {
  readonly end: true;
}
type Line = (Header | SegmentRecord | End) & { readonly n?: number };

const CRC_DIGITS = 8;

/** The checksum is that of the seal and the JSON together. */
const formatLine = (json: string, sealCrc: number): string =>
  `${Bun.hash.crc32(json, sealCrc).toString(16).padStart(CRC_DIGITS, "0")} ${json}\n`;

function findLine(text: string, sealCrc: number): Line | undefined {
  const json = text.slice(CRC_DIGITS + 1);
  return `${text}\n` === formatLine(json, sealCrc) ? (JSON.parse(json) as Line) : undefined;
}

/** Formats the lines of one segment, numbered. `json` is an object without its number. */
export function createFormatter(seal: string) {
  let n = 0;
  const sealCrc = Bun.hash.crc32(seal);
  return (json: string): string => formatLine(`{"n":${n++},${json.slice(1)}`, sealCrc);
}

export const formatHeader = (header: Omit<Header, "segment">): string =>
  JSON.stringify({ segment: FORMAT, ...header });

export const END = JSON.stringify({ end: true } satisfies End);

const CHUNK_BYTES = 1_048_576;
/** A longer line is damage: the newline is lost. */
const LINE_BYTES_MAX = 67_108_864;
const NEWLINE = 10;

/** Yields each line, undefined if it is damaged, with its offset. `isTorn`: it has no newline. */
function* readLines(file: string, segment: Segment) {
  const sealCrc = Bun.hash.crc32(sealOf(segment, segment.after));
  const descriptor = openSync(file, "r");
  try {
    let rest = Buffer.alloc(0);
    let offset = 0;
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
    for (;;) {
      const length = readSync(descriptor, chunk);
      if (length === 0) break;
      rest = Buffer.concat([rest, chunk.subarray(0, length)]);
      let start = 0;
      for (let at = rest.indexOf(NEWLINE); at !== -1; at = rest.indexOf(NEWLINE, start)) {
        const line = findLine(rest.toString("utf8", start, at), sealCrc);
        yield { line, offset, isTorn: false };
        offset += at + 1 - start;
        start = at + 1;
      }
      rest = rest.subarray(start);
      // On its own, GC lets tens of megabytes pile up beside a service that is serving.
      if (length === CHUNK_BYTES) Bun.gc(true);
      if (rest.length <= LINE_BYTES_MAX) continue;
      yield { line: undefined, offset, isTorn: false };
      offset += rest.length;
      rest = Buffer.alloc(0);
    }
    // Only its newline may be lost.
    if (rest.length > 0)
      yield { line: findLine(rest.toString("utf8"), sealCrc), offset, isTorn: true };
  } finally {
    closeSync(descriptor);
  }
}

export interface InspectedSegment {
  readonly header: Header | undefined;
  readonly runs: readonly Run[];
  /** The last change in it, or what its end says. */
  readonly end: number;
  /** What is damaged, in words. */
  readonly faults: readonly string[];
  /** Its last line is incomplete: the service was killed during a write, or the file was cut. */
  readonly isTorn: boolean;
  /** Its last line is damaged or incomplete, so it may have held further changes. */
  readonly isEndUnknown: boolean;
  /** Of its changes, to the millisecond. */
  readonly span: Span | undefined;
}

/** Reads a whole segment. It never throws because of damage. */
export function inspectSegment(file: string, segment: Segment): InspectedSegment {
  const { last } = segment;
  let header: Header | undefined;
  const runs: { after: number; last: number }[] = [];
  const faults: string[] = [];
  // An empty file has lost its header.
  let [isTorn, isEnded, isEndUnknown] = [false, false, true];
  let [count, lost] = [0, 0];
  let [end, span] = [] as [end?: number, span?: Span];
  for (const { line, offset, isTorn: isCut } of readLines(file, segment)) {
    isTorn = isCut;
    isEndUnknown = line === undefined || isCut;
    if (line === undefined) {
      if (!isCut) faults.push(`damaged ${offset} bytes from its start`);
      lost++;
      continue;
    }
    const n = line.n ?? count;
    if (n > count + lost) {
      faults.push(`records are missing ${offset} bytes from its start`);
    }
    [count, lost] = [n + 1, 0];
    if ("segment" in line) header = line;
    else if ("end" in line) isEnded = true;
    else if ("entries" in line) {
      const run = runs.at(-1);
      if (run?.last === line.after) run.last = line.last;
      else if (run === undefined || line.after >= run.last)
        runs.push({ after: line.after, last: line.last });
      else {
        faults.push(`a record is out of order ${offset} bytes from its start`);
        continue;
      }
      end = line.last;
      span = joinSpans(span, { fromMs: line.at, toMs: line.at });
    }
  }
  end = Math.max(end ?? header?.after ?? 0, last ?? 0);
  if (last !== undefined && !isEnded) faults.push("its end is missing");
  return { header, runs, end, faults, isTorn, isEndUnknown, span };
}

/** A block as the journal has it. */
export interface Tail {
  readonly first: number;
  readonly last: number;
  readonly at: number;
  readonly text: string;
}

export const hashTail = ({ first, last, at, text }: Tail): string =>
  new Bun.CryptoHasher("sha256")
    .update(`${first} ${last} ${at} ${text}`)
    .digest("hex")
    .slice(0, 32);

export const toTail = ({ first, last, at, entries }: Block): Tail => ({
  first,
  last,
  at,
  text: JSON.stringify(entries),
});

/** The block of a store's journal that ends with this change. */
export const findTail = (db: Database, change: number): Tail | undefined =>
  (db
    .query("SELECT first, last, at_ms AS at, entries AS text FROM changes WHERE last = ?")
    .safeIntegers(false)
    .get(change) ?? undefined) as Tail | undefined;

/** The blocks of a segment, with their times, in its order. */
export function* readBlocks(file: string, segment: Segment): Generator<Block> {
  for (const { line } of readLines(file, segment))
    if (line !== undefined && "entries" in line) yield line;
}

export const isWhole = ({ faults, isTorn }: InspectedSegment): boolean =>
  faults.length === 0 && !isTorn;

/** One segment with the records of several that follow each other. */
export function joinSegments(
  header: Header,
  parts: readonly { readonly path: string; readonly segment: Segment }[],
  seal: string,
): string {
  const format = createFormatter(seal);
  let text = format(JSON.stringify({ ...header, n: undefined }));
  for (const { path, segment } of parts)
    for (const { line } of readLines(path, segment))
      if (line !== undefined && !("segment" in line) && !("end" in line))
        text += format(JSON.stringify({ ...line, n: undefined }));
  return text + format(END);
}

/** A change that does not follow, or does not fit its plant. */
export class ReplayError extends StoreOpenError {
  readonly reached: number;

  constructor(message: string, reached: number) {
    super(message);
    this.reached = reached;
  }
}

/**
 * Replays the changes after `from`, in the caller's transaction. Throws a ReplayError. Tables of version 1.0 are stored
 * where they stand: after the last change only if the end is not chosen.
 */
export function replaySegment(
  db: Database,
  file: string,
  { segment, until }: Step,
  from: number,
  { isBounded, untilMs }: { readonly isBounded: boolean; readonly untilMs: number },
) {
  let reached = from;
  let atMs: number | undefined;
  let changes = 0;
  const put = createPut(db);
  for (const { line } of readLines(file, segment)) {
    const isStored = reached < until || !isBounded;
    if (line !== undefined && "table" in line && line.at <= untilMs && isStored)
      storeTable(db, line);
    if (line === undefined || !("entries" in line) || line.last <= reached) continue;
    if (reached >= until) break;
    if (line.after !== reached)
      throw new ReplayError(`${file} does not continue change ${reached}.`, reached);
    const last = Math.min(line.last, until);
    // Numbers have gaps: the change before this block is the last one up to `until`.
    if (last < line.first) return { changes, reached, atMs };
    changes += replayBlock(db, put, line, last, file);
    reached = last;
    atMs = line.at;
  }
  if (reached < until) throw new ReplayError(`${file} ends before change ${until}.`, reached);
  return { changes, reached, atMs };
}

/** Returns the number of changes of plants up to `last`. */
function replayBlock(db: Database, put: Put, block: Block, last: number, file: string): number {
  const [first, at] = [BigInt(block.first), BigInt(block.at)];
  const row = { first, last: BigInt(last), at_ms: at, entries: JSON.stringify(block.entries) };
  const insert = db.query("INSERT INTO changes (last, first, at_ms, entries) VALUES (?, ?, ?, ?)");
  const entry = findRecordEntry(block.entries);
  if (entry !== undefined) {
    storeRecord(db, entry);
    insert.run(row.last, first, at, row.entries);
    return 0;
  }
  const kept = new JournalBlock();
  for (const change of parseBlock(row)) {
    if (change.seq > last) break;
    if (!applyChange(db, put, change))
      throw new ReplayError(
        `${file} does not fit the copy: plant ${change.id} is not in the state that change ${change.seq} expects.`,
        block.after,
      );
    kept.add(change.id, writerOf(change), change.plant, change.before);
  }
  insert.run(row.last, first, at, kept.text);
  return kept.count;
}

type Put = (plant: Plant, atMs: number) => void;

/** A copy of version 1.0 is restored in its own schema, which has no times. */
function createPut(db: Database): Put {
  const column = db.query("SELECT 1 FROM pragma_table_info('plants') WHERE name = 'changed_at_ms'");
  if (column.get() === null) {
    const put = db.query("REPLACE INTO plants (id, name, tag) VALUES (?, ?, ?)");
    return ({ id, name, tag = null }) => put.run(id, name, tag);
  }
  const put = db.query("REPLACE INTO plants (id, name, tag, changed_at_ms) VALUES (?, ?, ?, ?)");
  return ({ id, name, tag = null }, atMs) => put.run(id, name, tag, atMs);
}

/** False if the plant is not as it was before the change. */
function applyChange(db: Database, put: Put, { id, plant, before, atMs }: Change): boolean {
  const find = db.query<PlantRow, [bigint]>("SELECT id, name, tag FROM plants WHERE id = ?");
  const row = find.get(id);
  if (!isSameState(row === null ? undefined : toPlant(row), before)) return false;
  if (plant === undefined) db.query("DELETE FROM plants WHERE id = ?").run(id);
  else put(plant, atMs);
  return true;
}

/**
 * What was sent to webhooks is not in the journal, but noted from time to time. After changes that are lost, no webhook
 * has sent more than what is left.
 */
export function moveCursors(db: Database, cursors: Cursors, reached: number): void {
  const move = db.query(
    `UPDATE webhooks SET record = json_set(record, '$.cursor', max(?1, record ->> 'cursor'))
      WHERE name = ?2 AND coalesce(record ->> 'createdAtMs', 0) = ?3`,
  );
  for (const [name, [createdAtMs, cursor]] of Object.entries(cursors))
    move.run(cursor, name, createdAtMs);
  db.query(
    "UPDATE webhooks SET record = json_set(record, '$.cursor', ?1) WHERE record ->> 'cursor' > ?1",
  ).run(BigInt(reached));
}

/** Triggers add blocks to the journal. A restore adds those that it has. */
export function withoutTriggers(db: Database, perform: () => void): void {
  const triggers = db
    .query<{ readonly name: string; readonly sql: string }, []>(
      "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'",
    )
    .all();
  for (const { name } of triggers) db.run(`DROP TRIGGER ${name}`);
  perform();
  for (const { sql } of triggers) db.run(sql);
}

function storeTable(db: Database, { table, rows }: TableRecord): void {
  db.run(`DELETE FROM ${table}`);
  for (const row of rows) storeRow(db, table, row);
}

function storeRow(db: Database, table: TableRecord["table"], row: TableRecord["rows"][number]) {
  const columns = Object.keys(row);
  const places = columns.map(() => "?").join(", ");
  const sql = `REPLACE INTO ${table} (${columns.join(", ")}) VALUES (${places})`;
  db.query(sql).run(...Object.values(row));
}

function storeRecord(db: Database, entry: RecordEntry): void {
  if (entry[0] === "t") {
    const known = db.query("SELECT last_used_at_ms FROM tokens WHERE hash = ?");
    const { last_used_at_ms = null } = (known.get(entry[1]["hash"] ?? null) ?? {}) as {
      readonly last_used_at_ms?: number | null;
    };
    return storeRow(db, "tokens", { ...entry[1], last_used_at_ms });
  }
  const [, name, record] = entry;
  if (record === null) return void db.query("DELETE FROM webhooks WHERE name = ?").run(name);
  const version = String(record["version"]);
  storeRow(db, "webhooks", { name, version, record: JSON.stringify(record) });
}
