/** What a file seems to hold: its format, its columns, and the first rows as plants. */

import { Refusal } from "../../domain/errors.ts";
import {
  type Headings,
  MissingColumn,
  numberColumns,
  parseHeading,
  type PlantField,
  RowReader,
} from "../../format/csv.ts";
import { type Encoding, toUtf8, WrongEncoding } from "../../format/encoding.ts";
import {
  delimiterOf,
  isTable,
  type PlantRecord,
  readPlants,
  type RejectsFormat,
} from "../../format/plants.ts";
import { MalformedFile } from "../../format/records.ts";
import type { Workbook } from "../../format/workbook.ts";
import type * as workbookScript from "../workbook.ts";
import { listMissing, type Preview, type Reading } from "./messages.ts";

/** Nothing is known of it yet. */
const unread: Reading = {
  kind: "csv",
  encoding: "utf-8",
  delimiter: ",",
  sheet: undefined,
  isHeadless: undefined,
  headings: {},
};

const ROWS_SHOWN = 8;
const SNIFFED_BYTES = 65_536;
/** The first character beyond ASCII may come late. */
const DECIDING_BYTES_MAX = 64_000_000;
const PIECE_BYTES = 262_144;
/** The service's default limit, with room for the id. */
const RECORD_BYTES_MAX = 1_048_576 + 64;
const BLOCK_LENGTH_MAX = 2000;

async function* readChunks(file: Blob, counter = { bytesRead: 0 }): AsyncGenerator<Uint8Array> {
  do {
    const start = counter.bytesRead;
    counter.bytesRead = Math.min(file.size, start + PIECE_BYTES);
    // A file that is gone has no size. Reading all of it says so; reading a piece does not.
    const piece = file.size === 0 ? file : file.slice(start, counter.bytesRead);
    yield new Uint8Array(await piece.arrayBuffer());
  } while (counter.bytesRead < file.size);
}

/** A worker reads one file. */
let workbook: Promise<Workbook> | undefined;

const open = (file: File): Promise<Workbook> => (workbook ??= load(file));

async function load(file: File): Promise<Workbook> {
  const { openWorkbook } = (await import(self.name)) as typeof workbookScript;
  return openWorkbook(file);
}

/** The bytes of the file, or the rows of its sheet as CSV. */
async function* readTexts(
  file: File,
  { kind, sheet, isHeadless }: Reading,
  counter = { bytesRead: 0 },
): AsyncGenerator<Uint8Array> {
  if (kind !== "xlsx") return yield* readChunks(file, counter);
  const onProgress = (share: number): void => {
    counter.bytesRead = share * file.size;
  };
  // A first row of data may end before the tag.
  const columnsMin = isHeadless === true ? 3 : 1;
  yield* (await open(file)).readRows({ sheet, columnsMin, onProgress });
}

/** The records of a file, read exactly as `plantstore import` reads them. */
export const readRecords = (
  file: File,
  reading: Reading,
  counter?: { bytesRead: number },
  onHeading?: RejectsFormat["onHeading"],
): AsyncGenerator<PlantRecord[]> =>
  readPlants(readTexts(file, reading, counter), reading, {
    recordBytesMax: RECORD_BYTES_MAX,
    blockLengthMax: BLOCK_LENGTH_MAX,
    encoding: reading.encoding,
    onHeading,
  });

/** Reads the file as chosen, or guesses how. */
export async function previewFile(file: File, chosen: Reading | undefined): Promise<Preview> {
  let reading = chosen ?? unread;
  let columns: string[] = [];
  let table: string[][] = [];
  let sheets: readonly string[] = [];
  try {
    if (chosen === undefined) reading = await guessReading(file);
    if (reading.kind === "xlsx") {
      ({ sheets } = await open(file));
      reading = { ...reading, encoding: "utf-8", sheet: reading.sheet ?? sheets[0] };
    }
    if (isTable(reading)) {
      table = await readTable(file, reading);
      // No column is called 17: an id stands there.
      const isHeadless = reading.isHeadless ?? /^\s*-?\d+\s*$/.test(table[0]?.[0] ?? "");
      reading = { ...reading, isHeadless };
      if (isHeadless) table.unshift(numberColumns(table[0] ?? []));
      const [headings = []] = table;
      // A heading that occurs twice names no column.
      columns = headings.filter(
        (heading) => heading !== "" && headings.indexOf(heading) === headings.lastIndexOf(heading),
      );
      if (reading.headings.tag === undefined)
        reading = { ...reading, headings: guessColumns(columns) };
    }
    return { reading, sheets, columns, table, rows: await readFirst(file, reading) };
  } catch (error) {
    return { reading, sheets, columns, table, problem: explainFile(error), rows: [] };
  }
}

export function explainFile(error: unknown): string {
  // The script for workbooks has the class a second time.
  const isByName = error instanceof Error && error.name === "MalformedFile";
  if (isByName || error instanceof MalformedFile) return error.message;
  return "The file can no longer be read. Choose it again, or choose another file.";
}

async function guessReading(file: File): Promise<Reading> {
  const bytes = await file.slice(0, SNIFFED_BYTES).arrayBuffer();
  // Workbooks are archives.
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
  let bytes = 0;
  const onEncoding = (found: Encoding): void => {
    encoding = found;
  };
  try {
    for await (const chunk of toUtf8(readChunks(file), { onEncoding }, true)) {
      bytes += chunk.length;
      if (encoding !== "utf-8" || bytes > DECIDING_BYTES_MAX) break;
    }
  } catch (error) {
    if (!(error instanceof WrongEncoding)) throw error;
    encoding = error.guess;
  }
  return encoding;
}

function guessKind(name: string, start: string): Reading["kind"] {
  if (/\.[ct]sv$/i.test(name)) return "csv";
  const [first = ""] = start.trimStart();
  return first === "[" ? "json" : first === "{" ? "ndjson" : "csv";
}

/** The most frequent candidate in the first line, outside quotes. */
function guessDelimiter(start: string): string {
  const [line = ""] = start.split(/[\r\n]/, 1);
  const bare = line.replaceAll(/"[^"]*"/g, "");
  const counts = [",", ";", "\t", "|"].map((sign) => [sign, bare.split(sign).length] as const);
  return counts.reduce((best, next) => (next[1] > best[1] ? next : best))[0];
}

/** The first rows, the heading included. */
async function readTable(file: File, reading: Reading): Promise<string[][]> {
  const reader = new RowReader(delimiterOf(reading), RECORD_BYTES_MAX);
  const chunks = toUtf8(readTexts(file, reading), reading, false);
  const table: string[][] = [];
  for await (const [row] of reader.read(chunks, 1)) {
    if (row === undefined) continue;
    try {
      table.push(parseHeading(row, reader.delimiter));
    } catch (error) {
      // A bad heading spoils the file; a bad row is shown as it is.
      if (table.length === 0) throw error;
      table.push([String(row.text)]);
    }
    if (table.length > ROWS_SHOWN) break;
  }
  if (table.length === 0) throw new MissingColumn("The file is empty.");
  return table;
}

/** Common headings of such columns. */
const words: Readonly<Record<PlantField, RegExp>> = {
  id: /^(id|nr|no|number|nummer|num|#|key|plant[ _-]?(id|nr|no|number)|column 1)\.?$/i,
  name: /^(name|plant|plant[ _-]?name|title|species|pflanze|label|column 2)$/i,
  tag: /^(tag|tags|type|kind|category|group|art|typ|genus|column 3)$/i,
};

function guessColumns(columns: readonly string[]): Headings {
  const guess = (field: PlantField): string | undefined =>
    columns.find((heading) => heading === field) ??
    columns.find((heading) => words[field].test(heading.trim()));
  return { id: guess("id"), name: guess("name"), tag: guess("tag") ?? null };
}

async function readFirst(file: File, reading: Reading): Promise<Preview["rows"]> {
  if (listMissing(reading).length > 0) return [];
  const rows: PlantRecord[] = [];
  for await (const records of readRecords(file, reading)) {
    rows.push(...records.slice(0, ROWS_SHOWN - rows.length));
    if (rows.length === ROWS_SHOWN) break;
  }
  return rows.map(({ line, plant }) => ({
    line,
    plant: plant instanceof Refusal ? plant.message : plant,
  }));
}
