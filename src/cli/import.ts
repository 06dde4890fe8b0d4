/** plantstore import: plants out of a file, into the store or a running service. Running it again is safe. */

import { closeSync, fstatSync, openSync } from "node:fs";
import { extname } from "node:path";
import { type Refused, type RetryOptions, ServiceError, type Settle } from "../../client/client.ts";
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
  createPlants,
  EXIT_DIFFERENT,
  explain,
  findClient,
  Interrupted,
  type TargetOptions,
  timeUntilInterrupted,
  toRefused,
  UsageError,
  withStoreOrNew,
} from "./command.ts";
import {
  isOpenAs,
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

export interface ImportOptions extends TargetOptions {
  readonly format?: FormatName;
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
  path: string,
  options: ImportOptions,
): Promise<void> {
  const format = parseFormat(path, options);
  const client = findClient(options, config);
  if (options.rejects !== undefined && options.rejects !== "-") {
    const isSource =
      path === "-" ? isOpenAs(options.rejects, STANDARD_INPUT) : isSameFile(options.rejects, path);
    // Opening the rejects would empty the file before its first line is read.
    if (isSource) throw new UsageError(`--rejects: ${options.rejects} is the file to import`);
    const rejectsKind = findFormat(options.rejects) ?? format.kind;
    if (rejectsKind !== format.kind)
      throw new UsageError(
        `--rejects: ${options.rejects} would hold ${format.kind}; choose another name`,
      );
    if (client === undefined) requireOutsideStore("--rejects", options.rejects, config.databaseUrl);
  }
  const { descriptor, bytesTotal } = openSource(path);
  const isWorkbook = format.kind === "csv" && format.countsRows === true;
  if (isWorkbook && bytesTotal === undefined)
    throw new UsageError(`${path}: a workbook is read from a file, not from a pipe`);
  let bytesRead = 0;
  const tally: Tally = { created: 0, replayed: 0, refused: 0, unknown: 0 };

  const run = async (signal: AbortSignal): Promise<void> => {
    const progress = new Progress(options.quiet === true, () => ({
      plants: tally.created + tally.replayed,
      refused: tally.refused,
      part: bytesTotal && bytesRead / bytesTotal,
    }));
    const print = (line: string): void => progress.print(line);
    const retrying: RetryOptions = { signal, onRetry: progress.onRetry };
    const readSource = async function* (): AsyncGenerator<Uint8Array> {
      if (isWorkbook) {
        const { openWorkbook } = await import("../format/workbook.ts");
        const { readRows } = await openWorkbook(Bun.file(path));
        const onProgress = (share: number): void => {
          bytesRead = share * (bytesTotal ?? 0);
        };
        return yield* readRows({ sheet: options.sheet, onProgress });
      }
      for await (const chunk of readDescriptor(descriptor, signal)) {
        bytesRead += chunk.length;
        yield chunk;
      }
    };
    const importInto = async (create: Create): Promise<void> => {
      const rejectsFormat = new RejectsFormat(format);
      const rejects =
        options.rejects === undefined
          ? printRejects(print)
          : openRejects(options.rejects, options.force === true, rejectsFormat);
      const blocks = readPlants(readSource(), format, {
        recordBytesMax: config.bodyBytesMax + RECORD_BYTES_MORE,
        blockLengthMax: BLOCK_LENGTH_MAX,
        encoding: options.encoding,
        onEncoding: (encoding) => print(`Reading the file as ${encoding.toUpperCase()}.`),
        onHeading: rejectsFormat.onHeading,
      });
      try {
        for await (const block of blocks) {
          signal.throwIfAborted();
          await importBlock(block, create, rejects, tally);
        }
      } finally {
        await rejects.close();
      }
    };
    try {
      await (client === undefined
        ? withStoreOrNew(config, (store) =>
            importInto((plants, settle) => createPlants(store, plants, settle, retrying)),
          )
        : importInto((plants, settle) => client.createBatch(plants, settle, retrying)));
    } finally {
      progress.close();
    }
  };

  const { seconds, failure } = await timeUntilInterrupted(run);
  // Standard output belongs to the rejects if they go there.
  const print = options.rejects === "-" ? printError : printLine;
  await summarize({ ...tally, seconds, failure, isJson: options.json === true, print });
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
  readonly add: (rejected: readonly Rejected[]) => Promise<void>;
  readonly close: () => Promise<void>;
}

/** All refused records, in the format of the import. */
function openRejects(path: string, force: boolean, format: RejectsFormat): Rejects {
  if (path !== "-") requireFree(path, force);
  const descriptor = path === "-" ? STANDARD_OUTPUT : openSync(path, force ? "w" : "wx");
  return {
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

/** Open until the process ends. A pipe has no size. */
function openSource(path: string): { descriptor: number; bytesTotal: number | undefined } {
  if (path === "-") return { descriptor: STANDARD_INPUT, bytesTotal: undefined };
  const descriptor = openSync(path, "r");
  const found = fstatSync(descriptor);
  if (found.isDirectory()) throw new CommandError(`${path} is a folder, not a file.`);
  return { descriptor, bytesTotal: found.isFile() ? found.size : undefined };
}

export type FormatName = FileFormat["kind"] | "xlsx";

const formatsByExtension: Readonly<Record<string, FormatName>> = {
  ".ndjson": "ndjson",
  ".jsonl": "ndjson",
  ".json": "json",
  ".csv": "csv",
  ".tsv": "csv",
  ".xlsx": "xlsx",
};

export const findFormat = (path: string): FormatName | undefined =>
  formatsByExtension[extname(path).toLowerCase()];

function parseFormat(path: string, options: ImportOptions): FileFormat {
  const kind = options.format ?? findFormat(path);
  if (kind === undefined && /\.(xls|ods)$/i.test(path))
    throw new CommandError(`${path}: save the workbook as .xlsx or as CSV, and import that file.`);
  if (kind === undefined)
    throw new UsageError(
      path === "-"
        ? "--format is needed to read standard input: ndjson, json or csv"
        : `${path}: the name does not tell the format; give --format ndjson, json, csv or xlsx`,
    );
  const headings = options.map === undefined ? {} : parseMap(options.map);
  if (options.sheet !== undefined && kind !== "xlsx")
    throw new UsageError("--sheet: only with a workbook (.xlsx)");
  if (options.delimiter !== undefined && kind !== "csv")
    throw new UsageError("--delimiter: only with CSV");
  if (kind === "xlsx") {
    if (options.encoding !== undefined) throw new UsageError("--encoding: a workbook has its own");
    return { kind: "csv", headings, delimiter: ",", countsRows: true };
  }
  if (kind !== "csv") {
    if (options.map !== undefined) throw new UsageError("--map: only with CSV, which has headings");
    return { kind };
  }
  const delimiter = options.delimiter ?? (extname(path).toLowerCase() === ".tsv" ? "tab" : ",");
  return {
    kind,
    headings,
    delimiter: delimiter === "tab" ? "\t" : delimiter,
  };
}

/** `id=Nr,name=Plant`: the field, and the heading of its column. */
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
        `--map: ${JSON.stringify(name)} is not a field of a plant; the fields are ${plantFields.join(", ")}`,
      );
    if (headings[field] !== undefined) throw new UsageError(`--map: ${field} is given twice`);
    headings[field] = heading;
  }
  return headings;
}

interface Summary extends Readonly<Tally> {
  readonly seconds: number;
  readonly failure: { readonly error: unknown } | undefined;
  readonly isJson: boolean;
  readonly print: (line: string) => Promise<void> | void;
}

/** Throws if the import failed. */
async function summarize(summary: Summary): Promise<void> {
  const { failure, isJson, refused, print } = summary;
  if (failure === undefined) {
    await print(formatSummary(summary));
    if (refused > 0) process.exitCode = EXIT_DIFFERENT;
    return;
  }
  const { error } = failure;
  const again =
    summary.unknown > 0 && isUnsure(error)
      ? `No answer came for ${countOf(summary.unknown, "plant")}, which may be stored too. Running it again is safe.`
      : "Running it again is safe.";
  if (error instanceof UsageError || error instanceof ConfigError) throw error;
  if (error instanceof MissingColumn)
    throw new UsageError(`${error.message} Name the columns with --map id=…,name=…,tag=…`);
  if (error instanceof Interrupted) {
    await print(formatSummary(summary));
    printError(`interrupted. ${again}`);
    // A read that waits for its pipe would keep the process alive.
    process.exit(error.exitCode);
  }
  if (isJson) await print(formatSummary(summary));
  const stored = summary.created + summary.replayed;
  const why =
    error instanceof WrongEncoding
      ? `${error.message} Accept that with --encoding ${error.guess}.`
      : explain(error);
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

function formatSummary({ created, replayed, refused, seconds, failure, isJson }: Summary): string {
  if (isJson) {
    const finished = failure === undefined;
    return JSON.stringify({ finished, created, replayed, refused, seconds: roundToMs(seconds) });
  }
  if (!process.stdout.isTTY) return `created ${created}, replayed ${replayed}, refused ${refused}`;
  const [c, r, f] = [created, replayed, refused].map(formatCount);
  const rate = formatCount((created + replayed + refused) / seconds);
  return `created ${c}, replayed ${r}, refused ${f} in ${formatSeconds(seconds)} (${rate} a second)`;
}
