/** Cuts the elements out of a JSON array, exactly as they are written, in constant memory. */

import { MalformedFile, type Role, ScanningReader } from "./records.ts";

const [TAB, NEWLINE, RETURN, SPACE] = [9, 10, 13, 32];
const [QUOTE, COMMA, BACKSLASH] = [34, 44, 92];
const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [91, 93, 123, 125];

const isSpace = (byte: number): boolean =>
  byte === SPACE || byte === NEWLINE || byte === RETURN || byte === TAB;

/**
 * Each element has the number of the line on which it begins, and the white space that follows it. Only the end of an
 * element is looked for, so a bad element spoils no other. A missing one between two commas is the empty text. Throws
 * a MalformedFile if there is no array, or no end of it.
 */
export class ElementReader extends ScanningReader {
  private place: "before" | "inside" | "after" = "before";
  private hasElements = false;
  /** Open brackets of either kind in the element. */
  private depth = 0;
  private inString = false;
  private isEscaped = false;

  protected override pass(byte: number): Role {
    if (byte === NEWLINE) this.line++;
    if (this.inString) return this.passString(byte);
    if (this.begunOn === undefined && isSpace(byte)) return "between";
    return this.place === "inside" ? this.passStructure(byte) : this.passOutside(byte);
  }

  private passString(byte: number): Role {
    if (this.isEscaped) this.isEscaped = false;
    else if (byte === BACKSLASH) this.isEscaped = true;
    else if (byte === QUOTE) this.inString = false;
    return "part";
  }

  private passStructure(byte: number): Role {
    if (this.depth === 0 && (byte === COMMA || byte === CLOSE_ARRAY)) {
      const isNone = byte === CLOSE_ARRAY && !this.hasElements && this.begunOn === undefined;
      this.hasElements = true;
      if (byte === CLOSE_ARRAY) this.place = "after";
      return isNone ? "between" : "end";
    }
    if (byte === QUOTE) this.inString = true;
    else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) this.depth++;
    else if ((byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) && this.depth > 0) this.depth--;
    return "part";
  }

  private passOutside(byte: number): Role {
    if (this.place === "after")
      throw new MalformedFile(`Line ${this.line} has more text after the end of the array.`);
    if (byte !== OPEN_ARRAY)
      throw new MalformedFile(
        `Line ${this.line} does not begin a JSON array. For one plant on each line, the format is ndjson.`,
      );
    this.place = "inside";
    return "between";
  }

  protected override requireEnd(): void {
    if (this.place === "after") return;
    if (this.place === "before")
      throw new MalformedFile("The file is empty; expected a JSON array.");
    throw new MalformedFile(
      this.begunOn === undefined
        ? `The file ends on line ${this.line}, before the end of its array.`
        : `The file ends inside its array, in the record that begins on line ${this.begunOn}.`,
    );
  }
}
