/** plantstore import: plants out of a file, into the store or a running service. Running it again is safe. */

import { closeSync, fstatSync, openSync } from "node:fs";
import { extname } from "node:path";
import { type Refused, ServiceError, type Settle } from "../../client/client.ts";
import { type Config, ConfigError } from "../config.ts";
import { Refusal } from "../domain/errors.ts";
import type { Plant } from "../domain/plant.ts";
import { type Headings, MissingColumn, type PlantField, plantFields } from "../format/csv.ts";
import { type Encoding, WrongEncoding } from "../format/encoding.ts";
import {
  type FileFormat,
  type PlantRecord,
  readPlants,
  type Rejected,
  RejectsFormat,
} from "../format/plants.ts";
import {
  CommandError,
  EXIT_DIFFERENT,
  explain,
  Interrupted,
  plantsOf,
  type TargetOptions,
  timeUntilInterrupted,
  toRefused,
  UsageError,
  withTarget,
} from "./command.ts";
import {
  isSameFile,
  readDescriptor,
  requireFree,
  requireOutsideStore,
  STANDARD_INPUT,
  STANDARD_OUTPUT,
  writeDescriptor,
} from "./files.ts";
import {
  countOf,
  formatCount,
  formatSeconds,
  printError,
  printLine,
  Progress,
  roundToMs,
} from "./terminal.ts";

/** A record may be larger than the request that stored it, by an id. */
const RECORD_BYTES_MORE = 64;
const BLOCK_LENGTH_MAX = 2_000;
const REFUSED_PRINTED_MAX = 10;

interface ImportOptions extends TargetOptions {
  readonly format?: FileFormat["kind"];
  readonly map?: string;
  readonly delimiter?: string;
  readonly encoding?: Encoding;
  readonly sheet?: string;
  readonly rejects?: string;
  readonly force?: boolean;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

interface Tally {
  created: number;
  replayed: number;
  refused: number;
  /** Plants that were sent and not answered for: they may be stored. */
  unknown: number;
}

export async function importPlants(
  config: Config,
  options: ImportOptions,
  path: string,
): Promise<void> {
  const format = parseFormat(path, options);
  const source = openSource(path, format);
  requireRejects(config, options, format, source);
  const tally: Tally = { created: 0, replayed: 0, refused: 0, unknown: 0 };

  const { seconds, error } = await timeUntilInterrupted(async (signal) => {
    let part: number | undefined;
    using progress = new Progress(options.quiet, () => ({
      plants: tally.created + tally.replayed,
      refused: tally.refused,
      part,
    }));
    const print = (line: string): void => progress.print(line);
    const chunks = readSource(source, options.sheet, signal, (read) => {
      part = read;
    });
    await withTarget(config, options, { ...plantsOf, isMade: true }, async (target) => {
      const rejects =
        options.rejects === undefined
          ? printRejects(print)
          : openRejects(options.rejects, options.force, format);
      const blocks = readPlants(chunks, format, {
        recordBytesMax: config.bodyBytesMax + RECORD_BYTES_MORE,
        blockLengthMax: BLOCK_LENGTH_MAX,
        encoding: options.encoding,
        onEncoding: (encoding) => print(`Reading the file as ${encoding.toUpperCase()}.`),
        onHeading: rejects.onHeading,
      });
      const retrying = { signal, onRetry: progress.onRetry };
      try {
        for await (const block of blocks) {
          signal.throwIfAborted();
          const create: Create = (plants, settle) => target.createBatch(plants, settle, retrying);
          await importBlock(block, create, rejects, tally);
        }
      } finally {
        await rejects.close();
      }
    });
  });
  await summarize(tally, seconds, error, options);
}

type Create = (plants: readonly Plant[], settle: Settle) => Promise<void>;

/** Counts each record once, also if the import ends early. */
async function importBlock(
  block: readonly PlantRecord[],
  create: Create,
  rejects: Rejects,
  tally: Tally,
): Promise<void> {
  const refused = new Map<PlantRecord, Refused>();
  const good: PlantRecord[] = [];
  for (const record of block)
    if (record.plant instanceof Refusal) refused.set(record, toRefused(record.plant));
    else good.push(record);
  tally.unknown = good.length;
  try {
    await create(
      good.map(({ plant }) => plant as Plant),
      (index, outcome) => {
        tally.unknown--;
        if (typeof outcome === "string") tally[outcome]++;
        else refused.set(good[index] as PlantRecord, outcome);
      },
    );
  } finally {
    tally.refused += refused.size;
    await rejects.add(
      block.flatMap((record) => {
        const why = refused.get(record);
        return why === undefined
          ? []
          : [{ ...record, reason: `${why.message} (error ${why.code})` }];
      }),
    );
  }
}

interface Rejects {
  readonly onHeading?: (heading: string) => void;
  readonly add: (rejected: readonly Rejected[]) => Promise<void>;
  readonly close: () => Promise<void>;
}

/** All refused records, in the format of the import. */
function openRejects(path: string, force = false, fileFormat: FileFormat): Rejects {
  const format = new RejectsFormat(fileFormat);
  if (path !== "-") requireFree(path, force);
  const descriptor = path === "-" ? STANDARD_OUTPUT : openSync(path, force ? "w" : "wx");
  return {
    onHeading: format.onHeading,
    add: (rejected) => writeDescriptor(descriptor, format.add(rejected)),
    close: async () => {
      await writeDescriptor(descriptor, format.end());
      if (descriptor !== STANDARD_OUTPUT) closeSync(descriptor);
    },
  };
}

/** The first few, on the terminal. */
function printRejects(print: (line: string) => void): Rejects {
  let count = 0;
  return {
    add: async (rejected) => {
      for (const { line, reason } of rejected)
        if (++count <= REFUSED_PRINTED_MAX) print(`line ${line}: ${reason}`);
    },
    close: async () => {
      const more = count - REFUSED_PRINTED_MAX;
      if (more > 0) print(`… and ${more} more; --rejects <file> keeps them all.`);
    },
  };
}

interface Source {
  readonly path: string;
  /** Open until the process ends. */
  readonly descriptor: number;
  /** Undefined for a pipe. */
  readonly bytes: number | undefined;
  readonly isWorkbook: boolean;
}

function openSource(path: string, format: FileFormat): Source {
  const descriptor = path === "-" ? STANDARD_INPUT : openSync(path, "r");
  const found = fstatSync(descriptor);
  if (found.isDirectory()) throw new CommandError(`${path} is a folder, not a file.`);
  const bytes = path !== "-" && found.isFile() ? found.size : undefined;
  const isWorkbook = format.kind === "xlsx";
  if (isWorkbook && bytes === undefined)
    throw new UsageError(`${path}: a workbook is read from a file, not from a pipe`);
  return { path, descriptor, bytes, isWorkbook };
}

/** `onProgress` is told how much is read, from 0 to 1. */
async function* readSource(
  { path, descriptor, bytes, isWorkbook }: Source,
  sheet: string | undefined,
  signal: AbortSignal,
  onProgress: (part: number) => void,
): AsyncGenerator<Uint8Array> {
  if (isWorkbook) {
    const { openWorkbook } = await import("../format/workbook.ts");
    const { readRows } = await openWorkbook(Bun.file(path));
    return yield* readRows({ sheet, onProgress });
  }
  let bytesRead = 0;
  for await (const chunk of readDescriptor(descriptor, signal)) {
    bytesRead += chunk.length;
    if (bytes) onProgress(bytesRead / bytes);
    yield chunk;
  }
}

/** Opening the rejects would empty the file that is to be read, or the store. */
function requireRejects(
  { databaseUrl }: Config,
  { rejects, url }: ImportOptions,
  format: FileFormat,
  { descriptor, isWorkbook }: Source,
): void {
  if (rejects === undefined || rejects === "-") return;
  if (isSameFile(rejects, descriptor))
    throw new UsageError(`--rejects: ${rejects} is the file to import`);
  const kind = isWorkbook ? "csv" : format.kind;
  if ((findFormat(rejects) ?? kind) !== kind)
    throw new UsageError(`--rejects: ${rejects} would hold ${kind}; choose another name`);
  if (url === undefined) requireOutsideStore("--rejects", rejects, databaseUrl);
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

function parseFormat(path: string, options: ImportOptions): FileFormat {
  const { format: kind = findFormat(path), map, delimiter, encoding, sheet } = options;
  if (kind === undefined && /\.(xls|ods)$/i.test(path))
    throw new CommandError(`${path}: save the workbook as .xlsx or as CSV, and import that file.`);
  if (kind === undefined)
    throw new UsageError(
      path === "-"
        ? "--format is needed to read standard input: ndjson, json or csv"
        : `${path}: the name does not tell the format; give --format ndjson, json, csv or xlsx`,
    );
  const isTable = kind === "csv" || kind === "xlsx";
  const misplaced = [
    sheet !== undefined && kind !== "xlsx" && "--sheet: only with a workbook (.xlsx)",
    delimiter !== undefined && kind !== "csv" && "--delimiter: only with CSV",
    encoding !== undefined && kind === "xlsx" && "--encoding: a workbook has its own",
    map !== undefined && !isTable && "--map: only with CSV, which has headings",
  ].find((fault) => fault !== false);
  if (misplaced !== undefined) throw new UsageError(misplaced);
  if (!isTable) return { kind };
  const headings = map === undefined ? {} : parseMap(map);
  if (kind === "xlsx") return { kind, headings };
  const sign = delimiter ?? (extname(path).toLowerCase() === ".tsv" ? "tab" : ",");
  return { kind, headings, delimiter: sign === "tab" ? "\t" : sign };
}

/** `id=Nr,name=Plant`: the field, and the heading of its column. */
function parseMap(text: string): Headings {
  const headings: Partial<Record<PlantField, string>> = {};
  for (const pair of text.split(",")) {
    const [, name, heading] = /^\s*([^=]*?)\s*=\s*(.*?\S)\s*$/s.exec(pair) ?? [];
    const field = plantFields.find((known) => known === name);
    if (heading === undefined)
      throw new UsageError(
        `--map: ${JSON.stringify(pair)} is not allowed; expected field=heading, as in name=Plant,tag=Type`,
      );
    if (field === undefined)
      throw new UsageError(
        `--map: ${JSON.stringify(name)} is not a field of a plant; the fields are ${plantFields.join(", ")}`,
      );
    if (headings[field] !== undefined) throw new UsageError(`--map: ${field} is given twice`);
    headings[field] = heading;
  }
  return headings;
}

/** Throws if the import failed. */
async function summarize(
  tally: Tally,
  seconds: number,
  error: unknown,
  { json: isJson = false, rejects }: ImportOptions,
): Promise<void> {
  const finished = error === undefined;
  const summary = formatSummary(tally, seconds, isJson ? { finished } : undefined);
  // Standard output belongs to the rejects if they go there.
  const print = async (line: string): Promise<void> =>
    rejects === "-" ? printError(line) : printLine(line);
  if (finished) {
    await print(summary);
    if (tally.refused > 0) process.exitCode = EXIT_DIFFERENT;
    return;
  }
  if (error instanceof UsageError || error instanceof ConfigError) throw error;
  if (error instanceof MissingColumn)
    throw new UsageError(`${error.message} Name the columns with --map id=…,name=…,tag=…`);
  if (isJson || error instanceof Interrupted) await print(summary);
  const unknown =
    tally.unknown > 0 && isUnsure(error)
      ? `No answer came for ${countOf(tally.unknown, "plant")}, which may be stored too. `
      : "";
  const again = `${unknown}Running it again is safe.`;
  if (error instanceof Interrupted) {
    printError(`interrupted. ${again}`);
    throw error;
  }
  const why =
    error instanceof WrongEncoding
      ? `${error.message} Accept that with --encoding ${error.guess}.`
      : explain(error);
  const stored = tally.created + tally.replayed;
  throw new CommandError(
    `${why}\nThe import did not finish: ${stored} plants are stored. ${again}`,
    { cause: error },
  );
}

/** Whether plants without an outcome may have been stored. */
function isUnsure(error: unknown): boolean {
  if (error instanceof ServiceError) return error.isTransient;
  return (
    error instanceof Interrupted ||
    (error instanceof Refusal && error.reason === "store_unavailable")
  );
}

function formatSummary(
  { created, replayed, refused }: Tally,
  seconds: number,
  json?: { readonly finished: boolean },
): string {
  if (json)
    return JSON.stringify({ ...json, created, replayed, refused, seconds: roundToMs(seconds) });
  if (!process.stdout.isTTY) return `created ${created}, replayed ${replayed}, refused ${refused}`;
  const [c, r, f] = [created, replayed, refused].map(formatCount);
  const rate = formatCount((created + replayed + refused) / seconds);
  return `created ${c}, replayed ${r}, refused ${f} in ${formatSeconds(seconds)} (${rate} a second)`;
}
