/** What a file seems to hold: its format, its columns, and the first rows as plants. */

import { Refusal } from "../../domain/errors.ts";
import {
  type Headings,
  MissingColumn,
  parseHeading,
  type PlantField,
  RowReader,
} from "../../format/csv.ts";
import { type Encoding, toUtf8, WrongEncoding } from "../../format/encoding.ts";
import { type PlantRecord, readPlants } from "../../format/plants.ts";
import { MalformedFile } from "../../format/records.ts";
import { listMissing, type Preview, type Reading, UNREADABLE } from "./messages.ts";

const ROWS_SHOWN = 8;
const SNIFFED_BYTES = 65_536;
/** The first character beyond ASCII may come late. */
const DECIDING_BYTES_MAX = 64_000_000;
/** Browsers hand out megabytes at a time, too coarse for a progress bar. */
const PIECE_BYTES = 262_144;
/** The service's default limit, with room for the id. */
const RECORD_BYTES_MAX = 1_048_576 + 64;
const BLOCK_LENGTH_MAX = 2000;

/** Uses a reader because not every browser can iterate over a stream. */
export async function* readChunks(
  file: Blob,
  counter = { bytesRead: 0 },
): AsyncGenerator<Uint8Array> {
  const reader = file.stream().getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      for (let start = 0; start < value.length; start += PIECE_BYTES) {
        const piece = value.subarray(start, start + PIECE_BYTES);
        counter.bytesRead += piece.length;
        yield piece;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** The records of a file, read exactly as `plantstore import` reads them. */
export const readRecords = (
  chunks: AsyncIterable<Uint8Array>,
  reading: Reading,
  onHeading?: (heading: string) => void,
): AsyncGenerator<PlantRecord[]> =>
  readPlants(chunks, reading, {
    recordBytesMax: RECORD_BYTES_MAX,
    blockLengthMax: BLOCK_LENGTH_MAX,
    encoding: reading.encoding,
    onHeading,
  });

/** Reads the file as chosen, or guesses how. */
export async function previewFile(file: File, chosen: Reading | undefined): Promise<Preview> {
  let reading: Reading = chosen ?? {
    kind: "csv",
    encoding: "utf-8",
    delimiter: ",",
    headings: {},
  };
  let columns: string[] = [];
  try {
    if (chosen === undefined) reading = await guessReading(file);
    if (reading.kind === "csv") {
      const headings = await readHeadings(file, reading);
      // A heading that occurs twice names no column.
      columns = headings.filter(
        (heading) => heading !== "" && headings.indexOf(heading) === headings.lastIndexOf(heading),
      );
      if (reading.headings.tag === undefined)
        reading = { ...reading, headings: guessColumns(columns) };
    }
    return { reading, columns, rows: await readFirst(file, reading) };
  } catch (error) {
    const problem = error instanceof MalformedFile ? error.message : UNREADABLE;
    return { reading, columns, problem, rows: [] };
  }
}

async function guessReading(file: File): Promise<Reading> {
  const guessed = await guessEncoding(file);
  const bytes = await file.slice(0, SNIFFED_BYTES).arrayBuffer();
  const start = new TextDecoder(guessed).decode(bytes);
  const kind = guessKind(file.name, start);
  // JSON is UTF-8 by definition.
  const encoding = kind !== "csv" && guessed === "windows-1252" ? "utf-8" : guessed;
  return { kind, encoding, delimiter: guessDelimiter(start), headings: {} };
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
  const [extension = ""] = /[^.]*$/.exec(name.toLowerCase()) ?? [];
  if (extension === "csv" || extension === "tsv") return "csv";
  const [first = ""] = start.trimStart();
  if (first === "[") return "json";
  if (first === "{") return "ndjson";
  if (extension === "json") return "json";
  return extension === "ndjson" || extension === "jsonl" ? "ndjson" : "csv";
}

/** The most frequent candidate in the first line, outside quotes. */
function guessDelimiter(start: string): string {
  const [line = ""] = start.split(/[\r\n]/, 1);
  const bare = line.replaceAll(/"[^"]*"/g, "");
  const counts = [",", ";", "\t", "|"].map((sign) => [sign, bare.split(sign).length] as const);
  return counts.reduce((best, next) => (next[1] > best[1] ? next : best))[0];
}

async function readHeadings(file: File, { encoding, delimiter }: Reading): Promise<string[]> {
  const chunks = toUtf8(readChunks(file), { encoding }, false);
  for await (const [first] of new RowReader(delimiter, RECORD_BYTES_MAX).read(chunks, 1))
    if (first !== undefined) return parseHeading(first, delimiter);
  throw new MissingColumn("The file is empty.");
}

/** Common headings of such columns. */
const words: Readonly<Record<PlantField, RegExp>> = {
  id: /^(id|nr|no|number|nummer|num|#|key|plant[ _-]?(id|nr|no|number))\.?$/i,
  name: /^(name|plant|plant[ _-]?name|title|species|pflanze|label)$/i,
  tag: /^(tag|tags|type|kind|category|group|art|typ|genus)$/i,
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
  for await (const records of readRecords(readChunks(file), reading)) {
    rows.push(...records.slice(0, ROWS_SHOWN - rows.length));
    if (rows.length === ROWS_SHOWN) break;
  }
  return rows.map(({ line, plant }) => ({
    line,
    plant: plant instanceof Refusal ? plant.message : plant,
  }));
}
