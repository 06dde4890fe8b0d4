/** From the bytes of a file to plants, in constant memory, each record judged alone. */

import { Refusal } from "../domain/errors.ts";
import { parseNewPlant, type Plant } from "../domain/plant.ts";
import { readRows } from "./csv-rows.ts";
import { CsvTable, type Headings } from "./csv-table.ts";
import { readElements } from "./json-array.ts";
import { type Line, readLines } from "./lines.ts";
import { MalformedFile, MissingColumn } from "./malformed.ts";

export type FileFormat =
  | { readonly kind: "ndjson" }
  | { readonly kind: "json" }
  | { readonly kind: "csv"; readonly headings: Headings; readonly delimiter: string };

export interface PlantRecord {
  /** The line of the file that it begins on. */
  readonly line: number;
  /** As it stands in the file; undefined where it is too large to be kept, or no text. */
  readonly text: string | undefined;
  readonly plant: Plant | Refusal;
}

interface Bounds {
  readonly recordBytesMax: number;
  readonly blockLengthMax: number;
}

/** The records in blocks. Throws a MalformedFile or a MissingColumn where the file itself is at fault. */
export async function* readPlants(
  chunks: AsyncIterable<Uint8Array>,
  format: FileFormat,
  { recordBytesMax, blockLengthMax }: Bounds,
): AsyncGenerator<PlantRecord[]> {
  const bytes = skipByteOrderMark(chunks);
  if (format.kind === "csv") {
    const table = new CsvTable(format.headings, format.delimiter);
    for await (const rows of readRows(bytes, format.delimiter, recordBytesMax, blockLengthMax)) {
      const first = table.hasHeading ? undefined : rows.shift();
      if (first !== undefined) table.readHeading(first);
      if (rows.length > 0) yield toRecords(rows, table.parsePlants(rows));
    }
    if (!table.hasHeading) throw new MissingColumn("The file is empty; expected a heading.");
    return;
  }
  const read = format.kind === "json" ? readElements : readLines;
  for await (const lines of read(bytes, recordBytesMax, blockLengthMax))
    yield toRecords(lines, lines.map(parseLine));
}

function toRecords(lines: readonly Line[], plants: readonly (Plant | Refusal)[]): PlantRecord[] {
  return lines.map(({ number, text }, index) => ({
    line: number,
    text: typeof text === "string" ? text : undefined,
    plant: plants[index] as Plant | Refusal,
  }));
}

function parseLine({ text }: Line): Plant | Refusal {
  if (typeof text !== "string") return text;
  try {
    return parseNewPlant(text);
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
}

const MARK_UTF8 = Buffer.from([0xef, 0xbb, 0xbf]);
const MARKS_UTF16 = [Buffer.from([0xff, 0xfe]), Buffer.from([0xfe, 0xff])];

/** Spreadsheets put a mark in front of UTF-8, where it says nothing, and write UTF-16, which we do not read. */
async function* skipByteOrderMark(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let start: Buffer | undefined = Buffer.alloc(0);
  for await (const chunk of chunks) {
    if (start === undefined) {
      yield chunk;
      continue;
    }
    start = Buffer.concat([start, chunk]);
    if (start.length < MARK_UTF8.length) continue;
    yield withoutMark(start);
    start = undefined;
  }
  if (start !== undefined) yield withoutMark(start);
}

function withoutMark(start: Buffer): Buffer {
  if (MARKS_UTF16.some((mark) => start.subarray(0, mark.length).equals(mark)))
    throw new MalformedFile("The file is in UTF-16; expected UTF-8.");
  const isMarked = start.subarray(0, MARK_UTF8.length).equals(MARK_UTF8);
  return isMarked ? start.subarray(MARK_UTF8.length) : start;
}
