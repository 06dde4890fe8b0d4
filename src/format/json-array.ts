/** Cuts the elements out of a JSON array, exactly as they are written, in constant memory. */

import { MalformedFile, RecordReader } from "./records.ts";

const [NEWLINE, SPACE, QUOTE, COMMA, BACKSLASH] = [10, 32, 34, 44, 92];
const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [91, 93, 123, 125];

/**
 * Each element has the number of the line on which it begins, and the white space around it. Only the end of an
 * element is looked for, so a bad element spoils no other. One that is missing between two commas is left out. Throws
 * a MalformedFile if there is no array, or no end of it.
 */
export class ElementReader extends RecordReader {
  /** Open brackets of either kind. The first is the array's own. */
  private depth = 0;
  private isOver = false;
  private string: "none" | "open" | "escaping" = "none";
  /** So far the record is white space. */
  private isBlank = true;

  protected override findEnd(chunk: Uint8Array, from: number): number {
    for (let at = from; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      if (byte === NEWLINE) this.line++;
      if (this.string === "escaping") this.string = "open";
      else if (this.string === "open") {
        if (byte === BACKSLASH) this.string = "escaping";
        else if (byte === QUOTE) this.string = "none";
      } else if (byte > SPACE) {
        this.isBlank = this.passStructure(byte);
        if (this.isBlank) return at;
      } else if (this.isBlank) this.begunOn = this.line;
    }
    return -1;
  }

  /** Whether the byte ends a record. The bracket that opens the array ends the white space before it. */
  private passStructure(byte: number): boolean {
    const before = this.depth;
    if (this.isOver)
      throw new MalformedFile(`Line ${this.line} has more text after the end of the array.`);
    if (before === 0 && byte !== OPEN_ARRAY)
      throw new MalformedFile(
        `Line ${this.line} does not begin a JSON array. For one plant on each line, the format is ndjson.`,
      );
    if (byte === QUOTE) this.string = "open";
    else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) this.depth++;
    else if (byte === CLOSE_ARRAY || (byte === CLOSE_OBJECT && before > 1)) this.depth--;
    this.isOver = this.depth < before && this.depth === 0;
    return before + this.depth === 1 || (before === 1 && byte === COMMA);
  }

  protected override requireEnd(): void {
    if (this.isOver) return;
    throw new MalformedFile(
      this.depth === 0
        ? "The file is empty; expected a JSON array."
        : `The file ends inside its array, in the record that begins on line ${this.begunOn}.`,
    );
  }
}
