/** Plants from the rows of a table with a heading, each row judged alone. */

import { CsvError, parse } from "csv-parse/sync";
import { Refusal } from "../domain/errors.ts";
import { parseTexts, type Plant } from "../domain/plant.ts";
import { restore } from "./csv.ts";
import type { Line } from "./lines.ts";
import { MissingColumn } from "./malformed.ts";

export const plantFields = ["id", "name", "tag"] as const;
export type PlantField = (typeof plantFields)[number];

/** What the column of a field is headed; `tag` may be missing where nobody asked for it by a heading. */
export type Headings = Readonly<Partial<Record<PlantField, string>>>;

interface Columns {
  readonly id: number;
  readonly name: number;
  readonly tag: number | undefined;
  readonly count: number;
}

/** An empty cell without quotes is null; with them, it is the empty text. */
type Cell = string | null;

export class CsvTable {
  private readonly headings: Headings;
  private readonly delimiter: string;
  private columns: Columns | undefined;

  constructor(headings: Headings, delimiter: string) {
    this.headings = headings;
    this.delimiter = delimiter;
  }

  /** Whether the heading has been read, without which there is no table. */
  get hasHeading(): boolean {
    return this.columns !== undefined;
  }

  /** The first row. Throws a MissingColumn that names the columns there are. */
  readHeading({ text }: Line): void {
    const cells = typeof text === "string" ? this.parseRow(text) : text;
    if (cells instanceof Refusal) throw new MissingColumn(`The heading: ${cells.message}`);
    this.columns = findColumns(
      cells.map((cell) => cell ?? ""),
      this.headings,
    );
  }

  /** One plant a row, or why it is none. */
  parsePlants(rows: readonly Line[]): (Plant | Refusal)[] {
    const texts = rows.flatMap(({ text }) => (typeof text === "string" ? [text] : []));
    const parsed = this.parseRows(texts).values();
    return rows.map(({ text }) => {
      if (typeof text !== "string") return text;
      const cells = parsed.next().value as Cell[] | Refusal;
      return cells instanceof Refusal ? cells : this.toPlant(cells);
    });
  }

  private toPlant(cells: readonly Cell[]): Plant | Refusal {
    const columns = this.columns as Columns;
    if (cells.length !== columns.count)
      return new Refusal(
        "invalid_plant",
        `The row has ${cells.length} cells, and the heading has ${columns.count}.`,
      );
    const tag = columns.tag === undefined ? null : (cells[columns.tag] ?? null);
    try {
      return parseTexts(
        cells[columns.id] ?? "",
        restore(cells[columns.name] ?? ""),
        tag === null ? undefined : restore(tag),
      );
    } catch (error) {
      if (error instanceof Refusal) return error;
      throw error;
    }
  }

  /** All at once, which is much faster; one by one where one of them is no row at all. */
  private parseRows(texts: readonly string[]): (Cell[] | Refusal)[] {
    try {
      const rows = this.parseCells(texts.join("\n"));
      if (rows.length === texts.length) return rows;
    } catch (error) {
      if (!(error instanceof CsvError)) throw error;
    }
    return texts.map((text) => this.parseRow(text));
  }

  private parseRow(text: string): Cell[] | Refusal {
    try {
      const [row, another] = this.parseCells(text);
      if (row !== undefined && another === undefined) return row;
      return new Refusal("invalid_plant", "The row is not one row.");
    } catch (error) {
      if (!(error instanceof CsvError)) throw error;
      return new Refusal("invalid_plant", `The row is malformed: ${explain(error)}.`, error);
    }
  }

  private parseCells(text: string): Cell[][] {
    return parse(text, {
      delimiter: this.delimiter,
      record_delimiter: "\n",
      // Counted here instead, so that a row of another length is refused alone.
      relax_column_count: true,
      // Bounded already, where the rows were cut.
      max_record_size: 0,
      cast: (value, { quoting }) => (value === "" && !quoting ? null : value),
    });
  }
}

function findColumns(found: readonly string[], headings: Headings): Columns {
  const columnOf = (field: PlantField): number | undefined => {
    const heading = headings[field] ?? field;
    const column = found.indexOf(heading);
    if (column === -1) {
      if (field === "tag" && headings.tag === undefined) return undefined;
      throw new MissingColumn(
        `No column is headed ${JSON.stringify(heading)}; ${list(found)}.${suggestDelimiter(found)}`,
      );
    }
    if (found.indexOf(heading, column + 1) !== -1)
      throw new MissingColumn(
        `More than one column is headed ${JSON.stringify(heading)}; ${list(found)}.`,
      );
    return column;
  };
  return {
    id: columnOf("id") as number,
    name: columnOf("name") as number,
    tag: columnOf("tag"),
    count: found.length,
  };
}

/** Spreadsheets of many countries write semicolons, because theirs have a comma in numbers. */
function suggestDelimiter(found: readonly string[]): string {
  const other = [";", "\t", "|"].find((sign) => found.length === 1 && found[0]?.includes(sign));
  if (other === undefined) return "";
  return ` Is --delimiter ${other === "\t" ? "tab" : `'${other}'`} missing?`;
}

const HEADINGS_SHOWN_MAX = 20;

function list(found: readonly string[]): string {
  const shown = found.slice(0, HEADINGS_SHOWN_MAX).map((heading) => JSON.stringify(heading));
  const more = found.length > shown.length ? ` and ${found.length - shown.length} more` : "";
  return `the columns are ${shown.join(", ")}${more}`;
}

function explain(error: CsvError): string {
  if (error.code === "CSV_INVALID_CLOSING_QUOTE") return "a quoted cell goes on behind its quotes";
  if (error.code === "INVALID_OPENING_QUOTE")
    return "there is a quote inside a cell without quotes";
  return error.code;
}
