/** The file of an import: its format, its records, and where the refused ones go. */

import { fstatSync, openSync, statSync } from "node:fs";
import { extname } from "node:path";
import type { Config } from "../config.ts";
import { readDescriptor, STANDARD_INPUT } from "../descriptor.ts";
import { type PlantField, plantFields } from "../domain/faults.ts";
import type { Headings } from "../format/csv.ts";
import type { Encoding } from "../format/encoding.ts";
import { createRejectsFormat, type FileFormat, isTable, type Rejected } from "../format/plants.ts";
import { CommandError, type Flags, UsageError } from "./command.ts";
import { openOutput } from "./files.ts";
import { REFUSED_PRINTED_MAX } from "./terminal.ts";

export type FormatFlags = Flags<"delimiter" | "map" | "sheet"> & {
  readonly encoding?: Encoding;
  readonly format?: FileFormat["kind"];
};
type RejectFlags = Flags<"rejects">;

/** Writes every refused record to the --rejects file, or the first 10 to the terminal. */
export function openRejects(config: Config, flags: RejectFlags, fileFormat: FileFormat) {
  const { rejects: path } = flags;
  const output = path === undefined ? undefined : openOutput("--rejects", path, flags, config);
  const format = createRejectsFormat(fileFormat);
  let count = 0;
  let isShort = false;
  let isEmpty = true;
  return {
    onHeading: format.onHeading,
    add: async (rejected: readonly Rejected[], print: (line: string) => void): Promise<void> => {
      if (output !== undefined) {
        isShort = true;
        await output.write(format.add(rejected));
        isShort = false;
        isEmpty &&= rejected.length === 0;
        return;
      }
      for (const { line, reason } of rejected)
        if (++count <= REFUSED_PRINTED_MAX) print(`line ${line}: ${reason}`);
    },
    finish: async (print: (line: string) => void): Promise<void> => {
      const more = count - REFUSED_PRINTED_MAX;
      if (more > 0) print(`… and ${more} more; --rejects <file> keeps them all.`);
      // After a failed write (disk full), the rejects written before it are kept.
      if (isShort && isEmpty) return;
      await output?.write(format.end());
      output?.finish();
    },
    [Symbol.dispose]: () => output?.[Symbol.dispose](),
  };
}

export function requireSource(path: string, { kind }: FileFormat): void {
  const found = path === "-" ? undefined : statSync(path);
  if (found?.isDirectory()) throw new CommandError(`${path} is a folder, not a file.`);
  if (kind === "xlsx" && !found?.isFile())
    throw new UsageError(`${path}: a workbook is read from a file, not from a pipe`);
}

/** `onProgress` gets the part of the file that was read; undefined for a pipe. */
export async function* readSource(
  path: string,
  { kind }: FileFormat,
  sheet: string | undefined,
  signal: AbortSignal,
  onProgress: (part: number | undefined) => unknown,
): AsyncGenerator<Uint8Array> {
  if (kind === "xlsx") {
    const { openWorkbook } = await import("../format/workbook.ts");
    const { readRows } = await openWorkbook(Bun.file(path));
    return yield* readRows(sheet, onProgress);
  }
  // Stays open until the process exits.
  const descriptor = path === "-" ? STANDARD_INPUT : openSync(path, "r");
  const found = fstatSync(descriptor);
  const size = path !== "-" && found.isFile() ? found.size : undefined;
  let bytes = 0;
  for await (const chunk of readDescriptor(descriptor, signal)) {
    bytes += chunk.length;
    onProgress(size && bytes / size);
    yield chunk;
  }
}

const formatsByExtension: Readonly<Record<string, FileFormat["kind"]>> = {
  ".ndjson": "ndjson",
  ".jsonl": "ndjson",
  ".json": "json",
  ".csv": "csv",
  ".tsv": "csv",
  ".xlsx": "xlsx",
};

export const findFormat = (path: string): FileFormat["kind"] | undefined =>
  formatsByExtension[extname(path).toLowerCase()];

export function parseFormat(path: string, flags: FormatFlags): FileFormat {
  const { format: kind = findFormat(path), map, delimiter, encoding, sheet } = flags;
  if (kind === undefined && /\.(xls|ods)$/i.test(path))
    throw new CommandError(`${path}: save the workbook as .xlsx or as CSV, and import that file.`);
  if (kind === undefined)
    throw new UsageError(
      path === "-"
        ? "--format is needed to read standard input: ndjson, json or csv"
        : `${path}: cannot tell the format from the file name; give --format ndjson, json, csv or xlsx`,
    );
  const misplaced = [
    sheet !== undefined && kind !== "xlsx" && "--sheet: only with a workbook (.xlsx)",
    delimiter !== undefined && kind !== "csv" && "--delimiter: only with CSV",
    encoding !== undefined && kind === "xlsx" && "--encoding: a workbook has its own",
    map !== undefined && !isTable({ kind }) && "--map: only with CSV, which has headings",
  ].find((fault) => fault !== false);
  if (misplaced !== undefined) throw new UsageError(misplaced);
  if (!isTable({ kind })) return { kind };
  const headings = map === undefined ? {} : parseMap(map);
  if (kind === "xlsx") return { kind, headings };
  return { kind, headings, delimiter: delimiter === "tab" ? "\t" : delimiter };
}

/** Parses `id=Nr,name=Plant`: fields, and the headings of their columns. */
function parseMap(text: string): Headings {
  const headings: Partial<Record<PlantField, string>> = {};
  for (const pair of text.split(",")) {
    const [, name, heading] = /^\s*([^=]*?)\s*=\s*(.*?\S)\s*$/s.exec(pair) ?? [];
    const field = plantFields.find((known) => known === name);
    if (field === undefined || heading === undefined)
      throw new UsageError(
        `--map: ${JSON.stringify(pair)} is not allowed; expected field=heading, as in name=Plant,tag=Type; the fields are ${plantFields.join(", ")}`,
      );
    if (headings[field] !== undefined) throw new UsageError(`--map: ${field} appears twice`);
    headings[field] = heading;
  }
  return headings;
}
