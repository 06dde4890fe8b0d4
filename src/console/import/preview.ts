/** What a file seems to hold: its format, its columns, and the first rows as plants. */

import { Refusal } from "../../domain/errors.ts";
import { MissingColumn, parseCells, type PlantField, RowReader } from "../../format/csv.ts";
import { type Encoding, toUtf8, WrongEncoding } from "../../format/encoding.ts";
import type { PlantRecord } from "../../format/plants.ts";
import { MalformedFile } from "../../format/records.ts";
import {
  type FileKind,
  type Mapping,
  type Preview,
  type PreviewRow,
  type Reading,
  UNREADABLE,
} from "./messages.ts";
import { readChunks, readRecords, RECORD_BYTES_MAX } from "./records.ts";

const ROWS_SHOWN = 8;
const SNIFFED_BYTES = 65_536;
/** The first character beyond ASCII may come late. */
const DECIDING_BYTES_MAX = 64_000_000;

/** Reads the file as chosen, or guesses how. */
export async function previewFile(file: File, chosen: Reading | undefined): Promise<Preview> {
  let reading: Reading = chosen ?? {
    kind: "csv",
    encoding: "utf-8",
    delimiter: ",",
    mapping: undefined,
  };
  let headings: string[] = [];
  try {
    if (chosen === undefined) reading = await guessReading(file);
    if (reading.kind === "csv") headings = await readHeadings(file, reading);
    // A heading that occurs twice names no column.
    const unique = headings.filter(
      (heading) => heading !== "" && headings.indexOf(heading) === headings.lastIndexOf(heading),
    );
    const isTable = reading.kind === "csv";
    const mapping = isTable ? (reading.mapping ?? guessMapping(unique)) : undefined;
    const known: Preview = {
      reading: { ...reading, mapping },
      headings: unique,
      missing: (["id", "name"] as const).filter(
        (field) => isTable && mapping?.[field] === undefined,
      ),
      problem: undefined,
      rows: [],
    };
    if (known.missing.length > 0) return known;
    return { ...known, rows: await readFirst(file, known.reading) };
  } catch (error) {
    const isFault = error instanceof MalformedFile || error instanceof MissingColumn;
    const problem = isFault ? error.message : UNREADABLE;
    return { reading, headings, missing: [], problem, rows: [] };
  }
}

async function guessReading(file: File): Promise<Reading> {
  const guessed = await guessEncoding(file);
  const bytes = await file.slice(0, SNIFFED_BYTES).arrayBuffer();
  const start = new TextDecoder(guessed).decode(bytes);
  const kind = guessKind(file.name, start);
  // JSON is UTF-8 by definition.
  const encoding = kind !== "csv" && guessed === "windows-1252" ? "utf-8" : guessed;
  return { kind, encoding, delimiter: guessDelimiter(start), mapping: undefined };
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

function guessKind(name: string, start: string): FileKind {
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
  for await (const [first] of new RowReader(delimiter, RECORD_BYTES_MAX).read(chunks, 1)) {
    if (typeof first?.text !== "string") break;
    const text = first.text.replace(/^\ufeff/, "");
    try {
      return parseCells(text, delimiter).map((cell) => cell ?? "");
    } catch {
      throw new MissingColumn("The quotes in the first line are unbalanced.");
    }
  }
  throw new MissingColumn("The file is empty, or its first line is not a heading.");
}

/** Common headings of such columns. */
const words: Readonly<Record<PlantField, RegExp>> = {
  id: /^(id|nr|no|number|nummer|num|#|key|plant[ _-]?(id|nr|no|number))\.?$/i,
  name: /^(name|plant|plant[ _-]?name|title|species|pflanze|label)$/i,
  tag: /^(tag|tags|type|kind|category|group|art|typ|genus)$/i,
};

function guessMapping(headings: readonly string[]): Mapping {
  const guess = (field: PlantField): string | undefined =>
    headings.find((heading) => heading === field) ??
    headings.find((heading) => words[field].test(heading.trim()));
  return { id: guess("id"), name: guess("name"), tag: guess("tag") };
}

async function readFirst(file: File, reading: Reading): Promise<PreviewRow[]> {
  const rows: PreviewRow[] = [];
  for await (const records of readRecords(readChunks(file), reading)) {
    for (const record of records) {
      rows.push(toRow(record));
      if (rows.length === ROWS_SHOWN) return rows;
    }
  }
  return rows;
}

function toRow({ line, plant }: PlantRecord): PreviewRow {
  return plant instanceof Refusal
    ? { line, id: "", name: "", tag: undefined, fault: plant.message }
    : { line, id: String(plant.id), name: plant.name, tag: plant.tag, fault: undefined };
}
