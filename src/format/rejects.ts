/** Refused records as a file that can be mended and imported again. */

import type { FileFormat } from "./plants.ts";

export interface Rejected {
  readonly line: number;
  /** As it stands in the file; undefined if it is too large to keep or not text. */
  readonly text: string | undefined;
  readonly reason: string;
}

/**
 * The records in the format of their file, unchanged, each with its line and the reason in front. Import ignores
 * both, and a second round replaces them. In a table they are columns; in JSON they are members.
 */
export class RejectsFormat {
  private readonly kind: FileFormat["kind"];
  private readonly delimiter: string;
  private heading = "";
  private isEmpty = true;

  constructor(format: FileFormat) {
    this.kind = format.kind;
    this.delimiter = format.kind === "csv" ? format.delimiter : "";
  }

  /** For the option of `readPlants`. */
  readonly onHeading = (heading: string): void => {
    this.heading = heading;
  };

  /** The text that comes next in the file. */
  add(rejected: readonly Rejected[]): string {
    if (rejected.length === 0) return "";
    const texts = rejected.map((one) =>
      this.kind === "csv" ? this.formatRow(one) : formatObject(one),
    );
    const between = this.kind === "json" ? ",\n" : "\n";
    const before = this.isEmpty ? this.begin() : between;
    this.isEmpty = false;
    return before + texts.join(between);
  }

  /** The end of the file. */
  end(): string {
    if (this.isEmpty) return this.kind === "json" ? "[]\n" : "";
    return this.kind === "json" ? "\n]\n" : "\n";
  }

  private begin(): string {
    if (this.kind !== "csv") return this.kind === "json" ? "[\n" : "";
    const { heading, delimiter } = this;
    // Without the mark, spreadsheets take UTF-8 for another encoding.
    return `\ufeffline${delimiter}reason${delimiter}${this.strip(heading, "line", "reason")}\n`;
  }

  private formatRow({ line, text = "", reason }: Rejected): string {
    const { heading, delimiter } = this;
    const isSecondRound = this.strip(heading, "line", "reason") !== heading;
    const row = isSecondRound ? this.strip(text, "\\d*", '(?:"(?:[^"]|"")*"|[^"]*?)') : text;
    return `${line}${delimiter}"${reason.replaceAll('"', '""')}"${delimiter}${row}`;
  }

  /** Removes the first two cells if they match. */
  private strip(row: string, first: string, second: string): string {
    const delimiter = `\\${this.delimiter}`;
    return row.replace(new RegExp(`^${first}${delimiter}${second}${delimiter}`), "");
  }
}

const OWN_MEMBERS = /^\{"line":\d+,"reason":"(?:[^"\\]|\\.)*",?/;

function formatObject({ line, text, reason }: Rejected): string {
  const own = `"line":${line},"reason":${JSON.stringify(reason)}`;
  const isObject = text !== undefined && isJsonObject(text);
  if (!isObject) return `{${own}${text === undefined ? "" : `,"text":${JSON.stringify(text)}`}}`;
  const members = text.trim().replace(OWN_MEMBERS, "{").slice(1).trimStart();
  return `{${own}${members.startsWith("}") ? "" : ","}${members}`;
}

function isJsonObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
