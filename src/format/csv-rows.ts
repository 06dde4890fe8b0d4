/** Cuts comma-separated values into the texts of their rows, in constant memory. */

import type { Line } from "./lines.ts";
import { MalformedFile } from "./malformed.ts";
import { RecordText } from "./record-text.ts";

const NEWLINE = 10;
const RETURN = 13;
const QUOTE = 34;

type Place = "cell start" | "plain cell" | "quoted cell" | "behind a quote";

/**
 * The rows in blocks, as readElements has them, each with the line it begins on. Empty lines are left out.
 * A row ends at a line break (of any system) that no quotes enclose. What its cells hold is not judged, so
 * that a row with a quote in the wrong place spoils no other: the library, left to cut, would go on to
 * the next quote, and would drop what it passed. Throws a MalformedFile where a quote is never closed.
 */
export async function* readRows(
  chunks: AsyncIterable<Uint8Array>,
  delimiter: string,
  bytesMax: number,
  blockLengthMax: number,
): AsyncGenerator<Line[]> {
  const cutter = new RowCutter(delimiter.charCodeAt(0), bytesMax);
  for await (const chunk of chunks) {
    const rows = cutter.cut(chunk);
    for (let start = 0; start < rows.length; start += blockLengthMax)
      yield rows.slice(start, start + blockLengthMax);
  }
  const last = cutter.end();
  if (last !== undefined) yield [last];
}

class RowCutter {
  private readonly delimiter: number;
  private readonly text: RecordText;
  private place: Place = "cell start";
  private line = 1;
  private rowLine = 1;
  private wasReturn = false;

  constructor(delimiter: number, bytesMax: number) {
    this.delimiter = delimiter;
    this.text = new RecordText(bytesMax);
  }

  cut(chunk: Uint8Array): Line[] {
    const rows: Line[] = [];
    let start = 0;
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      const isBreak = byte === NEWLINE || byte === RETURN;
      // The second half of a break; its first has ended the line, and the row where there was one to end.
      const isRest = byte === NEWLINE && this.wasReturn;
      this.wasReturn = byte === RETURN;
      if (isBreak && !isRest) this.line++;
      if (!isBreak || this.place === "quoted cell") {
        this.place = this.next(byte);
        continue;
      }
      this.text.add(chunk.subarray(start, at));
      start = at + 1;
      const row = this.takeRow();
      if (row !== undefined) rows.push(row);
    }
    // Copied, because the memory of the chunk may be used again.
    this.text.add(new Uint8Array(chunk.subarray(start)));
    return rows;
  }

  end(): Line | undefined {
    if (this.place === "quoted cell")
      throw new MalformedFile(
        `The file ends inside a quoted cell, in the row that begins on line ${this.rowLine}.`,
      );
    return this.takeRow();
  }

  private takeRow(): Line | undefined {
    const row = this.text.isEmpty ? undefined : { number: this.rowLine, text: this.text.take() };
    this.place = "cell start";
    this.rowLine = this.line;
    return row;
  }

  /** RFC 4180, section 2: a quote opens at the start of a cell, and two of them inside stand for one. */
  private next(byte: number): Place {
    if (this.place === "quoted cell") return byte === QUOTE ? "behind a quote" : "quoted cell";
    if (byte === this.delimiter) return "cell start";
    const mayQuote = this.place === "cell start" || this.place === "behind a quote";
    return byte === QUOTE && mayQuote ? "quoted cell" : "plain cell";
  }
}
