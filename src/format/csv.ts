/** Plants as comma-separated values (RFC 4180) that a spreadsheet opens without running anything. */

import { type Fault, Refusal } from "../domain/errors.ts";
import { createFault, type PlantField, plantFields } from "../domain/faults.ts";
import { type ListedPlant, parseTexts, type Plant, refuseRow } from "../domain/plant.ts";
import { Bytes, type Chunks, type Line, MalformedFile, RecordReader } from "./records.ts";

export const CSV_HEAD = "id,name,tag\r\n";
export const TIMED_CSV_HEAD = "id,name,tag,changed\r\n";

/** No tag and no known time are empty cells; the empty tag is a pair of quotes. */
export const formatCsv = (plants: readonly ListedPlant[], hasTimes = false): string =>
  plants
    .map(({ id, name, tag, changed = "" }) => {
      const row = `${id},${formatCell(name)},${formatCell(tag)}`;
      return hasTimes ? `${row},${changed}\r\n` : `${row}\r\n`;
    })
    .join("");

/**
 * What spreadsheets run as a formula, by OWASP's list for CSV injection: the full-width signs in East Asian locales,
 * and what follows white space that an import may drop. Apostrophes in front count, so restoring is exact.
 */
const FORMULA = /^'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/;

/** A cell that a spreadsheet would run is prefixed with an apostrophe. */
export function formatCell(text: string | undefined): string {
  if (text === undefined) return "";
  const harmless = FORMULA.test(text) ? `'${text}` : text;
  return `"${harmless.replaceAll('"', '""')}"`;
}

export const restoreCell = (text: string): string =>
  text.startsWith("'") && FORMULA.test(text) ? text.slice(1) : text;

const NEWLINE = 10;
const RETURN = 13;
const QUOTE = 34;

/** A first line that tells Excel the delimiter. */
const NAMED_DELIMITER = /^sep=([,;|\t])$/i;
const EMPTY_ROW = /^[\s,;|]*$/;

const delimiters = [",", ";", "\t", "|"];
/** A cell in quotes, which may have any sign and line breaks. */
const QUOTED = /(?<=^|[,;\t|])"(?:[^"]|"")*"/gm;
/** The heading of a file of refused rows, whose rows may have any number of cells. */
const REJECTS_HEADING = /^"?line"?([,;\t|])"?reason"?\1/;
const SNIFFED_LINES = 20;
export const SNIFFED_BYTES = 65_536;

/** The sign that most of the first lines have equally often, outside quotes. A title may have none, or another. */
export function guessDelimiter(start: string): string {
  const own = REJECTS_HEADING.exec(start)?.[1];
  if (own !== undefined) return own;
  const lines = start.replaceAll(QUOTED, "").split(/[\r\n]+/, SNIFFED_LINES);
  const rate = (sign: string): number => {
    const counts = lines.map((line) => line.split(sign).length - 1).filter((count) => count > 0);
    const sizes = counts.map((count) => counts.filter((other) => other === count).length);
    // If two signs occur in equally many lines, the more frequent one wins.
    return Math.max(0, ...sizes) + Math.max(0, ...counts) / 1000;
  };
  return delimiters.reduce((best, next) => (rate(next) > rate(best) ? next : best));
}

interface TableFormat {
  readonly kind: string;
  /** Detected in CSV if undefined. The sheet of a workbook has commas. */
  readonly delimiter?: string | undefined;
  /** Rows that begin above this line, such as a title, are skipped. */
  readonly firstLine?: number | undefined;
}

/**
 * Rows, without the empty ones that spreadsheets write around their data. A row ends at a line break outside quotes.
 * Its cells are parsed later, so a misplaced quote affects no other row. Throws a MalformedFile if a quote is never
 * closed. A first line `sep=;` is skipped and sets the delimiter.
 */
export class RowReader extends RecordReader {
  /** Final once the first block is read. */
  delimiter: string;
  private readonly isDetected: boolean;
  private readonly firstLine: number;
  private readonly countsRows: boolean;
  /** A quote opens at the start of a cell, and after one that seemed to close: two quotes stand for one. */
  private place: "quote may open" | "plain cell" | "quoted cell" = "quote may open";
  private wasReturn = false;

  /** For a workbook, `line` counts rows, whatever line breaks their cells have. */
  constructor({ kind, delimiter, firstLine = 1 }: TableFormat, bytesMax: number) {
    super(bytesMax);
    this.delimiter = delimiter ?? ",";
    this.firstLine = firstLine;
    this.countsRows = kind === "xlsx";
    this.isDetected = delimiter === undefined && !this.countsRows;
  }

  override read(chunks: Chunks, blockLengthMax: number): AsyncGenerator<Line[]> {
    return super.read(this.isDetected ? this.detect(chunks) : chunks, blockLengthMax);
  }

  /** Passes the chunks on, the first of them together, once they tell the delimiter. */
  private async *detect(chunks: Chunks): AsyncGenerator<Uint8Array> {
    const start = new Bytes();
    let breaks = 0;
    let isKnown = false;
    for await (const chunk of chunks) {
      if (isKnown) {
        yield chunk;
        continue;
      }
      start.add(chunk);
      for (const byte of chunk) if (byte === NEWLINE || byte === RETURN) breaks++;
      // CR LF counts twice.
      isKnown = start.length >= SNIFFED_BYTES || breaks >= 2 * SNIFFED_LINES;
      if (isKnown) yield this.guess(start.take());
    }
    if (!isKnown) yield this.guess(start.take());
  }

  private guess(start: Uint8Array): Uint8Array {
    this.delimiter = guessDelimiter(new TextDecoder().decode(start.subarray(0, SNIFFED_BYTES)));
    return start;
  }

  /** RFC 4180, section 2. */
  protected override findEnd(chunk: Uint8Array, from: number): number {
    const delimiter = this.delimiter.charCodeAt(0);
    for (let at = from; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      const isQuoted = this.place === "quoted cell";
      const isBreak = byte === NEWLINE || byte === RETURN;
      // CR LF is one break: the CR has ended the row.
      const isRest = byte === NEWLINE && this.wasReturn;
      this.wasReturn = byte === RETURN;
      if (isBreak && !isRest && !(this.countsRows && isQuoted)) this.line++;
      if (isQuoted) this.place = byte === QUOTE ? "quote may open" : "quoted cell";
      else if (isBreak || byte === delimiter) this.place = "quote may open";
      else if (byte === QUOTE && this.place === "quote may open") this.place = "quoted cell";
      else this.place = "plain cell";
      if (isBreak && !isQuoted) return at;
    }
    return -1;
  }

  protected override accept({ number, text }: Line): boolean {
    const named = number === 1 ? NAMED_DELIMITER.exec(String(text)) : null;
    this.delimiter = named?.[1] ?? this.delimiter;
    if (named !== null || number < this.firstLine) return false;
    return !(typeof text === "string" && EMPTY_ROW.test(text));
  }

  protected override requireEnd(): void {
    if (this.place === "quoted cell")
      throw new MalformedFile([createFault("openCell", { line: this.begunOn })]);
  }
}

/** An empty cell without quotes is null; with quotes it is the empty text. */
type Cell = string | null;

/** A quote inside a cell that does not begin with one is text, as in spreadsheets. Throws a Refusal if text follows a closing one. */
export function createCellParser(delimiter: string): (row: string) => Cell[] {
  const sign = `\\${delimiter}`;
  const cell = new RegExp(`(?:"([^"]*(?:""[^"]*)*)"|([^"${sign}][^${sign}]*|))(${sign}|$)`, "y");
  return (row) => {
    const cells: Cell[] = [];
    for (cell.lastIndex = 0; ;) {
      const [, quoted, plain, end] = cell.exec(row) ?? [];
      if (end === undefined) throw refuseRow(createFault("textAfterQuote"));
      cells.push(quoted === undefined ? plain || null : quoted.replaceAll('""', '"'));
      if (end === "") return cells;
    }
  };
}

/** The heading of each column, by default the field. The tag column may be missing unless named; null ignores it. */
export type Headings = Readonly<Partial<Record<PlantField, string | null | undefined>>>;

/** Marks a workbook cell that does not show what was entered. XML has no such character. */
export const UNUSABLE = "\0";

function explainCell(field: PlantField, shown: string): Fault {
  if (shown === "=") return createFault("formula", { field });
  if (shown.startsWith("#")) return createFault("cellError", { field, error: shown });
  return createFault("rounded", { field, value: shown });
}

export class MissingColumn extends MalformedFile {
  override readonly name = "MissingColumn";
}

/** Returns a parser of rows below these headings. It throws a Refusal for a bad row. Throws a MissingColumn. */
export function createRowParser(
  found: readonly string[],
  headings: Headings,
  delimiter: string,
  needsName: boolean,
) {
  const parseCells = createCellParser(delimiter);
  const [id, name, tag] = plantFields.map((field) => findColumn(found, field, headings));
  return (row: string): Plant => {
    const cells = parseCells(row);
    if (cells.length !== found.length)
      throw refuseRow(createFault("cellCount", { cells: cells.length, heads: found.length }));
    const cellAt = (field: PlantField, column = -1): Cell => {
      const cell = cells[column] ?? null;
      if (cell?.startsWith(UNUSABLE) === true) throw refuseRow(explainCell(field, cell.slice(1)));
      return cell;
    };
    const tagCell = cellAt("tag", tag);
    const named = restoreCell(cellAt("name", name) ?? "");
    return parseTexts(
      cellAt("id", id) ?? "",
      needsName && named.trim() === "" ? undefined : named,
      tagCell === null ? undefined : restoreCell(tagCell),
    );
  };
}

export function parseHeading({ text }: Line, delimiter: string): string[] {
  try {
    if (typeof text !== "string") throw text;
    return createCellParser(delimiter)(text).map((cell) => cell?.replace(UNUSABLE, "") ?? "");
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    throw new MissingColumn([createFault("inHeading"), ...error.faults], error);
  }
}

/** The heading of a table whose first row is data. */
export const numberColumns = (first: readonly string[]): string[] =>
  first.map((_cell, at) => `Column ${at + 1}`);

/** Undefined for a tag column that may be missing. The error lists the columns there are. */
function findColumn(found: readonly string[], field: PlantField, headings: Headings) {
  const heading = headings[field] === undefined ? field : headings[field];
  const columns = found.flatMap((one, column) => (one === heading ? [column] : []));
  if (columns.length === 1) return columns[0];
  const mayBeMissing = heading === null || (field === "tag" && headings.tag === undefined);
  if (mayBeMissing && columns.length === 0) return undefined;
  const known = found.map((one) => JSON.stringify(one)).join(", ");
  const named = { heading: JSON.stringify(heading), columns: known };
  throw new MissingColumn([
    columns.length === 0 ? createFault("noColumn", named) : createFault("twoColumns", named),
  ]);
}
