/** Which format a file has: by what was said of it, or by its name. */

import { extname } from "node:path";
import { type Headings, type PlantField, plantFields } from "../format/csv.ts";
import type { FileFormat } from "../format/plants.ts";
import { UsageError } from "./failure.ts";

export type FormatName = FileFormat["kind"];

const formatsByExtension: Readonly<Record<string, FormatName>> = {
  ".ndjson": "ndjson",
  ".jsonl": "ndjson",
  ".json": "json",
  ".csv": "csv",
  ".tsv": "csv",
};

export function findFormat(path: string): FormatName | undefined {
  return formatsByExtension[extname(path).toLowerCase()];
}

export interface FormatOptions {
  readonly format?: FormatName;
  readonly map?: string;
  readonly delimiter?: string;
}

export function parseFormat(path: string, options: FormatOptions): FileFormat {
  const kind = options.format ?? findFormat(path);
  if (kind === undefined)
    throw new UsageError(
      path === "-"
        ? "--format is needed to read standard input: ndjson, json or csv"
        : `${path}: the name does not say what it holds; give --format ndjson, json or csv`,
    );
  if (kind !== "csv") {
    if (options.map !== undefined) throw new UsageError("--map: only with CSV, which has headings");
    if (options.delimiter !== undefined) throw new UsageError("--delimiter: only with CSV");
    return { kind };
  }
  const delimiter = options.delimiter ?? (extname(path).toLowerCase() === ".tsv" ? "tab" : ",");
  return {
    kind,
    headings: options.map === undefined ? {} : parseMap(options.map),
    delimiter: delimiter === "tab" ? "\t" : delimiter,
  };
}

/** `id=Nr,name=Plant`: our field, and how its column is headed. */
function parseMap(text: string): Headings {
  const headings: Partial<Record<PlantField, string>> = {};
  for (const pair of text.split(",")) {
    const equals = pair.indexOf("=");
    const heading = pair.slice(equals + 1).trim();
    if (equals === -1 || heading === "")
      throw new UsageError(
        `--map: ${JSON.stringify(pair)} is not allowed; expected field=heading, as in name=Plant,tag=Type`,
      );
    const name = pair.slice(0, equals).trim();
    const field = plantFields.find((known) => known === name);
    if (field === undefined)
      throw new UsageError(
        `--map: ${JSON.stringify(name)} is no field of a plant; the fields are ${plantFields.join(", ")}`,
      );
    if (headings[field] !== undefined) throw new UsageError(`--map: ${field} is given twice`);
    headings[field] = heading;
  }
  return headings;
}
