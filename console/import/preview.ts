/** Guesses the format and the columns of a file, and parses its first rows. */

import { Refusal } from "../../src/domain/errors.ts";
import {
  guessDelimiter,
  numberColumns,
  parseHeading,
  RowReader,
  SNIFFED_BYTES,
} from "../../src/format/csv.ts";
import { type Encoding, toUtf8, WrongEncoding } from "../../src/format/encoding.ts";
import {
  isTable,
  type PlantRecord,
  readPlants,
  type RejectsFormat,
} from "../../src/format/plants.ts";
import { type Line, MalformedFile, recordBytesMaxOf } from "../../src/format/records.ts";
import type { Workbook } from "../../src/format/workbook.ts";
import type * as workbookScript from "../workbook.ts";
import { guessColumns } from "./headings.ts";
import { type ImportRequest, listMissing, type Preview, type Reading } from "./messages.ts";
import type { Wording } from "./reasons.ts";
import { ROWS_SHOWN } from "./tally.ts";

/** The reading of a file that was not guessed yet. */
const unread: Reading = {
  kind: "csv",
  encoding: "utf-8",
  delimiter: ",",
  sheet: undefined,
  isHeadless: undefined,
  firstLine: undefined,
  needsName: true,
  headings: {},
};

/** The headings are one of the first rows. */
const TOPS_MAX = 20;
const TOP_CHARACTERS_MAX = 60;
/** The first character outside ASCII decides the encoding, and may come late. */
const DECIDING_BYTES_MAX = 64_000_000;
const PIECE_BYTES = 262_144;
const BLOCK_LENGTH_MAX = 2000;

/** The share of the file that was read, from 0 to 1. A worker reads one file only. */
export const position = { share: 0 };

async function* readChunks(file: Blob): AsyncGenerator<Uint8Array> {
  for (let start = 0; start === 0 || start < file.size; start += PIECE_BYTES) {
    position.share = Math.min(1, (start + PIECE_BYTES) / file.size);
    // A deleted file has size 0. Reading the whole file throws then; reading a slice does not.
    const piece = file.size === 0 ? file : file.slice(start, start + PIECE_BYTES);
    yield new Uint8Array(await piece.arrayBuffer());
  }
}

let workbook: Promise<Workbook> | undefined;

async function open(file: File): Promise<Workbook> {
  const { openWorkbook } = (await import(self.name)) as typeof workbookScript;
  return (workbook ??= openWorkbook(file));
}

/** The bytes of the file, or the rows of its sheet as CSV. */
async function* readTexts(file: File, { kind, sheet }: Reading): AsyncGenerator<Uint8Array> {
  if (kind !== "xlsx") return yield* readChunks(file);
  yield* (await open(file)).readRows(sheet, (share) => {
    position.share = share;
  });
}

type Limits = ImportRequest["limits"];

const findRecordBytesMax = (limits: Limits): number =>
  limits === undefined ? Number.POSITIVE_INFINITY : recordBytesMaxOf(limits);

/** Its message is in the user's language. */
class Unreadable extends Error {}

/** The records of a file, read exactly as `plantstore import` reads them. */
export const readRecords = (
  file: File,
  reading: Reading,
  limits: Limits,
  onHeading?: RejectsFormat["onHeading"],
): AsyncGenerator<PlantRecord[]> =>
  readPlants(readTexts(file, reading), reading, {
    recordBytesMax: findRecordBytesMax(limits),
    limits,
    blockLengthMax: BLOCK_LENGTH_MAX,
    encoding: reading.encoding,
    onHeading,
  });

type Writable<Type> = { -readonly [Key in keyof Type]: Type[Key] };

/** Reads the file as chosen, or guesses how. */
export async function previewFile(request: ImportRequest, wording: Wording): Promise<Preview> {
  const { file, reading: chosen, limits } = request;
  const none = { sheets: [], tops: [], columns: [], table: [], rows: [], problem: undefined };
  const preview: Writable<Preview> = { reading: chosen, ...none };
  try {
    let reading = (preview.reading ??= await guessReading(file));
    if (reading.kind === "xlsx") {
      preview.sheets = (await open(file)).sheets;
      preview.reading = reading = { ...reading, sheet: reading.sheet ?? preview.sheets[0] };
    }
    if (isTable(reading)) reading = await previewTable(request, preview, reading, wording);
    if (listMissing(reading).length === 0)
      preview.rows = (await takeFirst(readRecords(file, reading, limits), ROWS_SHOWN)).map(
        ({ line, plant }) => ({
          line,
          plant: plant instanceof Refusal ? wording.word(plant) : plant,
        }),
      );
  } catch (error) {
    preview.problem = explainFile(error, wording);
  }
  return preview;
}

async function previewTable(
  { file, mappings, limits }: ImportRequest,
  preview: Writable<Preview>,
  reading: Reading,
  wording: Wording,
): Promise<Reading> {
  const reader = new RowReader({ ...reading, firstLine: 1 }, findRecordBytesMax(limits));
  const chunks = toUtf8(readTexts(file, reading), reading, false);
  const rowsMax = TOPS_MAX + ROWS_SHOWN;
  const lines = await takeFirst(reader.read(chunks, rowsMax), rowsMax);
  const { delimiter } = reader;
  const rows = lines.map((line) => showCells(line, delimiter));
  const tops = rows.slice(0, TOPS_MAX);
  const { start, isHeadless } = findStart(
    tops,
    reading,
    lines.findIndex(({ number }) => number === reading.firstLine),
  );
  const first = lines[start];
  if (first === undefined) throw new Unreadable(wording.say("empty"));
  const cells = parseHeading(first, delimiter);
  const found = isHeadless ? numberColumns(cells) : cells;
  const data = rows.slice(isHeadless ? start : start + 1).slice(0, ROWS_SHOWN);
  preview.tops = tops.map((top, at) => ({
    line: lines[at]?.number ?? 0,
    text: listFilled(top).join(", ").slice(0, TOP_CHARACTERS_MAX),
  }));
  preview.table = [found, ...data];
  preview.columns = listColumns(found);
  const isNumeric = (heading: string): boolean =>
    data.every((row) => NUMERIC.test(row[found.indexOf(heading)] ?? ""));
  // Tables without headings look alike.
  const known =
    !isHeadless && mappings.find(({ columns }) => listOwn(columns) === listOwn(preview.columns));
  const guess = known ? known.headings : guessColumns(preview.columns, isNumeric);
  const headings = reading.headings.tag === undefined ? guess : reading.headings;
  return (preview.reading = { ...reading, firstLine: first.number, isHeadless, headings });
}

const INTEGER = /^\s*-?\d+\s*$/;
/** Or empty, or rounded by a spreadsheet. */
const NUMERIC = /^[-+\d\s.,e]*$/i;
const listFilled = (cells: readonly string[]): string[] => cells.filter((cell) => cell !== "");

/** A duplicate heading is ambiguous. */
const listColumns = (found: readonly string[]): string[] =>
  listFilled(found).filter((heading) => found.indexOf(heading) === found.lastIndexOf(heading));

/** The index of the headings, or of the first row of data. `chosen` is -1 if the user has not chosen one. */
function findStart(rows: readonly (readonly string[])[], { isHeadless }: Reading, chosen: number) {
  if (chosen !== -1) return { start: chosen, isHeadless: isHeadless === true };
  const named = rows.findIndex((cells) => {
    const { id, name } = guessColumns(listColumns(cells));
    return id !== undefined && name !== undefined;
  });
  if (named !== -1 && isHeadless !== true) return { start: named, isHeadless: false };
  // A title is alone in its row.
  const start = Math.max(
    0,
    rows.findIndex((cells) => listFilled(cells).length > 1),
  );
  // A first cell such as 17 is an id, not a heading.
  return { start, isHeadless: isHeadless ?? INTEGER.test(rows[start]?.[0] ?? "") };
}

/** Files of refused rows have two columns more. */
const listOwn = (columns: readonly string[]): string =>
  JSON.stringify(columns.filter((column) => column !== "line" && column !== "reason"));

/** A malformed row is shown as one cell. */
function showCells(line: Line, delimiter: string): string[] {
  try {
    return parseHeading(line, delimiter);
  } catch {
    return [String(line.text)];
  }
}

async function takeFirst<Item>(blocks: AsyncIterable<Item[]>, count: number): Promise<Item[]> {
  const taken: Item[] = [];
  for await (const block of blocks) {
    taken.push(...block);
    if (taken.length >= count) break;
  }
  return taken.slice(0, count);
}

export function explainFile(error: unknown, wording: Wording): string {
  if (error instanceof Unreadable) return error.message;
  // The bundle for workbooks has its own copy of the class.
  const isByName = error instanceof Error && error.name === "MalformedFile";
  if (isByName || error instanceof MalformedFile) return wording.word(error as MalformedFile);
  return wording.say("gone");
}

async function guessReading(file: File): Promise<Reading> {
  const bytes = await file.slice(0, SNIFFED_BYTES).arrayBuffer();
  // Workbooks are ZIP archives.
  if (new TextDecoder("latin1").decode(bytes.slice(0, 4)) === "PK\u0003\u0004")
    return { ...unread, kind: "xlsx" };
  const guessed = await guessEncoding(file);
  const start = new TextDecoder(guessed).decode(bytes);
  const kind = guessKind(file.name, start);
  // JSON is UTF-8 by definition.
  const encoding = kind !== "csv" && guessed === "windows-1252" ? "utf-8" : guessed;
  return { ...unread, kind, encoding, delimiter: guessDelimiter(start) };
}

async function guessEncoding(file: File): Promise<Encoding> {
  let encoding: Encoding = "utf-8";
  const onEncoding = (found: Encoding): void => {
    encoding = found;
  };
  const start = readChunks(file.slice(0, DECIDING_BYTES_MAX));
  try {
    for await (const _ of toUtf8(start, { onEncoding }, true)) if (encoding !== "utf-8") break;
  } catch (error) {
    if (!(error instanceof WrongEncoding)) throw error;
    return error.guess;
  }
  return encoding;
}

function guessKind(name: string, start: string): Reading["kind"] {
  if (/\.[ct]sv$/i.test(name)) return "csv";
  const [first = ""] = start.trimStart();
  return first === "[" ? "json" : first === "{" ? "ndjson" : "csv";
}
