/** Parses files to plants in constant memory, each record on its own; writes refused records back to a file. */

import { Refusal } from "../domain/errors.ts";
import { createFault, type PlantLimits, sayFault } from "../domain/faults.ts";
import { describe } from "../domain/json.ts";
import { parseObject, type Plant, refusePlant, toNewPlant } from "../domain/plant.ts";
import {
  createRowParser,
  type Headings,
  MissingColumn,
  numberColumns,
  parseHeading,
  RowReader,
  UNUSABLE,
} from "./csv.ts";
import { type DecodeOptions, toUtf8 } from "./encoding.ts";
import { ElementReader, type Line, LineReader } from "./records.ts";

/** All but `kind` is about tables. */
export interface FileFormat {
  readonly kind: "ndjson" | "json" | "csv" | "xlsx";
  readonly headings?: Headings;
  /** Detected in CSV if undefined. */
  readonly delimiter?: string | undefined;
  readonly isHeadless?: boolean | undefined;
  /** The line of the heading, or of the first row of data. Rows above it, such as a title, are skipped. */
  readonly firstLine?: number | undefined;
  /** Refuses a row without a name. Otherwise it has the empty name. */
  readonly needsName?: boolean;
}

/** The sheet of a workbook is read as CSV, and its refused rows are kept as CSV. */
export const isTable = ({ kind }: FileFormat): boolean => kind === "csv" || kind === "xlsx";

export interface PlantRecord {
  readonly line: number;
  /** The raw text; undefined if it is too large to keep or not text. */
  readonly text: string | undefined;
  readonly plant: Plant | Refusal;
}

interface ReadOptions extends DecodeOptions {
  readonly recordBytesMax: number;
  /** Undefined if they are unknown: the service knows them. */
  readonly limits: PlantLimits | undefined;
  readonly blockLengthMax: number;
  /** Called with a table's raw heading and its delimiter. */
  readonly onHeading?: ((heading: string, delimiter: string) => void) | undefined;
}

/** The records in blocks. Throws a MalformedFile if the file as a whole is at fault. */
export async function* readPlants(
  chunks: AsyncIterable<Uint8Array>,
  format: FileFormat,
  { recordBytesMax, limits, blockLengthMax, onHeading, ...decoding }: ReadOptions,
): AsyncGenerator<PlantRecord[]> {
  // JSON is UTF-8 by definition, so a bad byte there makes one record bad and says nothing about the rest.
  const bytes = toUtf8(chunks, decoding, isTable(format));
  if (!isTable(format)) {
    const Reader = format.kind === "json" ? ElementReader : LineReader;
    for await (const lines of new Reader(recordBytesMax).read(bytes, blockLengthMax))
      if (lines.length > 0) yield lines.map((line) => toRecord(line, parseRecord, limits));
    return;
  }
  const { headings = {}, isHeadless = false, needsName = false } = format;
  const reader = new RowReader(format, recordBytesMax);
  let parse: ((row: string) => Plant) | undefined;
  for await (const rows of reader.read(bytes, blockLengthMax)) {
    const [first] = rows;
    if (first === undefined) continue;
    if (parse === undefined) {
      const { delimiter } = reader;
      const cells = parseHeading(first, delimiter);
      const found = isHeadless ? numberColumns(cells) : cells;
      parse = createRowParser(found, headings, delimiter, needsName);
      onHeading?.(isHeadless ? found.join(delimiter) : String(first.text), delimiter);
      if (!isHeadless) rows.shift();
    }
    const parseRow = parse;
    if (rows.length > 0) yield rows.map((row) => toRecord(row, parseRow, limits));
  }
  if (parse === undefined) throw new MissingColumn([createFault("emptyTable")]);
}

/** A batch would remove such a plant, or write it on a condition. An import must not store it as if neither were said. */
function parseRecord(text: string): Plant {
  const members = parseObject(text);
  const faults = (["removed", "ifMatch"] as const)
    .filter((name) => members[name] !== undefined)
    .map((member) => createFault("notInFile", { member, value: describe(members[member]) }));
  if (faults.length > 0)
    throw new Refusal("invalid_plant", faults.map(sayFault).join("; "), undefined, faults);
  return toNewPlant(text, members);
}

function toRecord(
  { number: line, text }: Line,
  parse: (text: string) => Plant,
  limits: PlantLimits | undefined,
): PlantRecord {
  if (typeof text !== "string") return { line, text: undefined, plant: text };
  const shown = text.replaceAll(UNUSABLE, "");
  try {
    const plant = parse(text);
    return { line, text: shown, plant: (limits && refusePlant(plant, limits)) ?? plant };
  } catch (error) {
    if (error instanceof Refusal) return { line, text: shown, plant: error };
    throw error;
  }
}

export type Rejected = Omit<PlantRecord, "plant"> & { readonly reason: string };

/** Refused records as they were, each prefixed with its line and reason. Import ignores or replaces both. */
export function createRejectsFormat(format: FileFormat) {
  const isArray = format.kind === "json";
  const between = isArray ? ",\n" : "\n";
  let before = isArray ? "[\n" : "";
  let formatOne = formatObject;
  let isEmpty = true;
  return {
    onHeading: (heading: string, delimiter: string): void => {
      const sign = `\\${delimiter}`;
      /** Removes the first two cells if they match. */
      const strip = (row: string, first: string, second: string): string =>
        row.replace(new RegExp(`^${first}${sign}${second}${sign}`), "");
      const columns = strip(heading, '"?line"?', '"?reason"?');
      // The sign is detected again, unless a line `sep=` has overruled the option.
      const isNamed = format.delimiter !== undefined && delimiter !== format.delimiter;
      const named = isNamed ? `sep=${delimiter}\n` : "";
      // Without a byte order mark, spreadsheets take UTF-8 for another encoding.
      before = `\ufeff${named}${["line", "reason", columns].join(delimiter)}\n`;
      formatOne = ({ line, text = "", reason }) => {
        const row = columns === heading ? text : strip(text, "\\d*", '(?:"(?:[^"]|"")*"|[^"]*?)');
        return [line, `"${reason.replaceAll('"', '""')}"`, row].join(delimiter);
      };
    },
    add: (rejected: readonly Rejected[]): string => {
      if (rejected.length === 0) return "";
      const text = before + rejected.map(formatOne).join(between);
      before = between;
      isEmpty = false;
      return text;
    },
    end: (): string => {
      if (isArray) return isEmpty ? "[]\n" : "\n]\n";
      return isEmpty ? "" : "\n";
    },
  };
}

export type RejectsFormat = ReturnType<typeof createRejectsFormat>;

const OWN_MEMBERS = /^\{"line":\d+,"reason":"(?:[^"\\]|\\.)*",?/;

function formatObject({ line, text, reason }: Rejected): string {
  const own = `"line":${line},"reason":${JSON.stringify(reason)}`;
  const record = text?.trim();
  if (record === undefined) return `{${own}}`;
  if (!isJsonObject(record)) return `{${own},"text":${JSON.stringify(record)}}`;
  const members = record.replace(OWN_MEMBERS, "{").slice(1).trimStart();
  return `{${own}${members.startsWith("}") ? "" : ","}${members}`;
}

function isJsonObject(text: string): boolean {
  try {
    return text.startsWith("{") && Boolean(JSON.parse(text));
  } catch {
    return false;
  }
}
