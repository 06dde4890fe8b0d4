/** Guesses the format and the columns of a file, and parses its first rows. */

import { Refusal } from "../../src/domain/errors.ts";
import {
  type Headings,
  MissingColumn,
  numberColumns,
  parseHeading,
  type PlantField,
  RowReader,
} from "../../src/format/csv.ts";
import { type Encoding, toUtf8, WrongEncoding } from "../../src/format/encoding.ts";
import {
  isTable,
  type PlantRecord,
  readPlants,
  type RejectsFormat,
} from "../../src/format/plants.ts";
import { type Line, MalformedFile } from "../../src/format/records.ts";
import type { Workbook } from "../../src/format/workbook.ts";
import type * as workbookScript from "../workbook.ts";
import { listMissing, type Preview, type Reading } from "./messages.ts";

/** The reading of a file that was not guessed yet. */
const unread: Reading = {
  kind: "csv",
  encoding: "utf-8",
  delimiter: ",",
  sheet: undefined,
  isHeadless: undefined,
  headings: {},
};

/** Includes the heading of a table. */
const ROWS_SHOWN = 9;
const SNIFFED_BYTES = 65_536;
/** The first character outside ASCII decides the encoding, and may come late. */
const DECIDING_BYTES_MAX = 64_000_000;
const PIECE_BYTES = 262_144;
/** The service's default limit, with room for the id. */
const RECORD_BYTES_MAX = 1_048_576 + 64;
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

/** The records of a file, read exactly as `plantstore import` reads them. */
export const readRecords = (
  file: File,
  reading: Reading,
  onHeading?: RejectsFormat["onHeading"],
): AsyncGenerator<PlantRecord[]> =>
  readPlants(readTexts(file, reading), reading, {
    recordBytesMax: RECORD_BYTES_MAX,
    blockLengthMax: BLOCK_LENGTH_MAX,
    encoding: reading.encoding,
    onHeading,
  });

type Writable<Type> = { -readonly [Key in keyof Type]: Type[Key] };

/** Reads the file as chosen, or guesses how. */
export async function previewFile(file: File, chosen = unread): Promise<Preview> {
  const none = { sheets: [], columns: [], table: [], rows: [], problem: undefined };
  const preview: Writable<Preview> = { reading: chosen, ...none };
  try {
    if (chosen === unread) preview.reading = await guessReading(file);
    const { kind, sheet } = preview.reading;
    if (kind === "xlsx") {
      preview.sheets = (await open(file)).sheets;
      preview.reading = { ...preview.reading, sheet: sheet ?? preview.sheets[0] };
    }
    if (isTable(preview.reading)) await previewTable(file, preview);
    if (listMissing(preview.reading).length === 0)
      preview.rows = (await takeFirst(readRecords(file, preview.reading))).map(toRow);
  } catch (error) {
    preview.problem = explainFile(error);
  }
  return preview;
}

async function previewTable(file: File, preview: Writable<Preview>): Promise<void> {
  const { reading } = preview;
  const reader = new RowReader(reading, RECORD_BYTES_MAX);
  const chunks = toUtf8(readTexts(file, reading), reading, false);
  const lines = await takeFirst(reader.read(chunks, ROWS_SHOWN));
  const { delimiter } = reader;
  const [first] = lines;
  if (first === undefined) throw new MissingColumn("The file is empty.");
  const cells = parseHeading(first, delimiter);
  // A first cell such as 17 is an id, not a heading.
  const isHeadless = reading.isHeadless ?? /^\s*-?\d+\s*$/.test(cells[0] ?? "");
  const found = isHeadless ? numberColumns(cells) : cells;
  if (!isHeadless) lines.shift();
  preview.table = [found, ...lines.map((line) => showCells(line, delimiter))];
  // A duplicate heading is ambiguous.
  preview.columns = found.filter(
    (heading) => heading !== "" && found.indexOf(heading) === found.lastIndexOf(heading),
  );
  const { tag } = reading.headings;
  const headings = tag === undefined ? guessColumns(preview.columns) : reading.headings;
  preview.reading = { ...reading, isHeadless, headings };
}

/** A malformed row is shown as one cell. */
function showCells(line: Line, delimiter: string): string[] {
  try {
    return parseHeading(line, delimiter);
  } catch {
    return [String(line.text)];
  }
}

async function takeFirst<Item>(blocks: AsyncIterable<Item[]>): Promise<Item[]> {
  const taken: Item[] = [];
  for await (const block of blocks) {
    taken.push(...block);
    if (taken.length >= ROWS_SHOWN) break;
  }
  return taken.slice(0, ROWS_SHOWN);
}

const toRow = ({ line, plant }: PlantRecord): Preview["rows"][number] => ({
  line,
  plant: plant instanceof Refusal ? plant.message : plant,
});

export function explainFile(error: unknown): string {
  // The bundle for workbooks has its own copy of the class.
  const isByName = error instanceof Error && error.name === "MalformedFile";
  if (isByName || error instanceof MalformedFile) return error.message;
  return "The file can no longer be read. Choose it again, or choose another file.";
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

/** The most frequent candidate in the first line, outside quotes. */
function guessDelimiter(start: string): string {
  const [line = ""] = start.split(/[\r\n]/, 1);
  const bare = line.replaceAll(/"[^"]*"/g, "");
  const counts = [",", ";", "\t", "|"].map((sign) => [sign, bare.split(sign).length] as const);
  return counts.reduce((best, next) => (next[1] > best[1] ? next : best))[0];
}

/** Common headings of each column. */
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
