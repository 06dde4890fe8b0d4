/** Plants as comma-separated values (RFC 4180) that a spreadsheet can open without running anything. */

import { stringify } from "csv-stringify/sync";
import type { Plant } from "../domain/plant.ts";

export const CSV_HEAD = "id,name,tag\r\n";

/** A tag that is not there is an empty cell; one that is the empty string is a pair of quotes. */
export function formatCsv(plants: readonly Plant[]): string {
  return stringify(
    plants.map(({ id, name, tag }) => [id, defuse(name), tag === undefined ? null : defuse(tag)]),
    { quoted_string: true, record_delimiter: "\r\n" },
  );
}

/**
 * A cell that begins like a formula is run by spreadsheets, so it gets an apostrophe in front. So does one
 * that begins with apostrophes and then like a formula: that makes restoring exact for any text.
 */
function defuse(text: string): string {
  return /^'*[=+\-@\t\r]/.test(text) ? `'${text}` : text;
}

export function restore(text: string): string {
  return /^'+[=+\-@\t\r]/.test(text) ? text.slice(1) : text;
}
