/** Cuts the elements out of a JSON array, exactly as they are written, in constant memory. */

import { type Line, MalformedFile, RecordReader } from "./records.ts";

const [TAB, NEWLINE, RETURN, SPACE] = [9, 10, 13, 32];
const [QUOTE, COMMA, BACKSLASH] = [34, 44, 92];
const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [91, 93, 123, 125];

/**
 * Each element has the number of the line on which it begins. Only the end of an element is looked for, so a bad
 * element spoils no other. A missing one between two commas is the empty text. Throws a MalformedFile if there is
 * no array, or no end of it.
 */
export class ElementReader extends RecordReader {
  private place: "before" | "inside" | "after" = "before";
  private line = 1;
  /** Undefined until the element begins. */
  private elementLine: number | undefined;
  private elementCount = 0;
  /** Open brackets of either kind in the element. */
  private depth = 0;
  private inString = false;
  private isEscaped = false;

  protected override cut(chunk: Uint8Array): Line[] {
    const elements: Line[] = [];
    let start = 0;
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      if (byte === NEWLINE) this.line++;
      if (this.inString) this.passString(byte);
      else if (this.place !== "inside") {
        this.passOutside(byte);
        start = at + 1;
      } else if (this.depth === 0 && (byte === COMMA || byte === CLOSE_ARRAY)) {
        this.text.add(chunk.subarray(start, at));
        const isEmptyArray = byte === CLOSE_ARRAY && this.elementCount === 0;
        if (this.elementLine !== undefined || !isEmptyArray) elements.push(this.takeElement());
        if (byte === CLOSE_ARRAY) this.place = "after";
        start = at + 1;
      } else if (this.elementLine !== undefined) this.passStructure(byte);
      else if (isWhiteSpace(byte)) start = at + 1;
      else {
        this.elementLine = this.line;
        this.passStructure(byte);
      }
    }
    this.text.addCopy(chunk.subarray(start));
    return elements;
  }

  protected override end(): undefined {
    if (this.place === "after") return undefined;
    if (this.place === "before")
      throw new MalformedFile("The file is empty; expected a JSON array.");
    throw new MalformedFile(
      this.elementLine === undefined
        ? `The file ends on line ${this.line}, before the end of its array.`
        : `The file ends inside its array, in the record that begins on line ${this.elementLine}.`,
    );
  }

  private takeElement(): Line {
    const text = this.text.take();
    const number = this.elementLine ?? this.line;
    this.elementLine = undefined;
    this.elementCount++;
    return { number, text: typeof text === "string" ? trimWhiteSpaceEnd(text) : text };
  }

  private passString(byte: number): void {
    if (this.isEscaped) this.isEscaped = false;
    else if (byte === BACKSLASH) this.isEscaped = true;
    else if (byte === QUOTE) this.inString = false;
  }

  private passStructure(byte: number): void {
    if (byte === QUOTE) this.inString = true;
    else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) this.depth++;
    else if ((byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) && this.depth > 0) this.depth--;
  }

  private passOutside(byte: number): void {
    if (isWhiteSpace(byte)) return;
    if (this.place === "after")
      throw new MalformedFile(`Line ${this.line} has more text after the end of the array.`);
    if (byte !== OPEN_ARRAY)
      throw new MalformedFile(
        `Line ${this.line} does not begin a JSON array. For one plant on each line, the format is ndjson.`,
      );
    this.place = "inside";
  }
}

const isWhiteSpace = (byte: number): boolean =>
  byte === SPACE || byte === NEWLINE || byte === RETURN || byte === TAB;

/** Only the white space that JSON allows. */
function trimWhiteSpaceEnd(text: string): string {
  let end = text.length;
  while (end > 0 && isWhiteSpace(text.charCodeAt(end - 1))) end--;
  return text.slice(0, end);
}
