/** The records that were refused: the first to be shown, all to be downloaded. */

import type { PlantRecord } from "../../format/read-plants.ts";
import type { Refused } from "./messages.ts";

const SHOWN_MAX = 200;
const SHOWN_CHARACTERS_MAX = 120;
const PIECE_LENGTH = 1000;

export class RefusedLines {
  count = 0;
  readonly first: Refused[] = [];
  /** The browser may put these on its disk. */
  private readonly pieces: Blob[] = [];
  private lines: string[] = [];

  add({ line, text }: PlantRecord, reason: string): void {
    this.count++;
    if (this.first.length < SHOWN_MAX)
      this.first.push({ line, reason, text: (text ?? "").slice(0, SHOWN_CHARACTERS_MAX) });
    this.lines.push(`${line},${quote(reason)},${quote(text ?? "")}\r\n`);
    if (this.lines.length < PIECE_LENGTH) return;
    this.pieces.push(new Blob(this.lines));
    this.lines = [];
  }

  /** A table of lines, reasons and texts, that a spreadsheet opens. */
  toBlob(): Blob {
    return new Blob(["line,reason,text\r\n", ...this.pieces, ...this.lines], { type: "text/csv" });
  }
}

/** A text that a spreadsheet would run as a formula gets an apostrophe, as in an export. */
function quote(text: string): string {
  const harmless = /^'*[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return `"${harmless.replaceAll('"', '""')}"`;
}
