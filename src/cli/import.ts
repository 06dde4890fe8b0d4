/** plantstore import: plants out of a file, into the store or a running service. Running it again is safe. */

import { openSync, statSync } from "node:fs";
import { basename, extname } from "node:path";
import type { Refused, Settle } from "../../client/client.ts";
import type { Config } from "../config.ts";
import { readDescriptor, STANDARD_INPUT } from "../descriptor.ts";
import { batchRule, nameBatch } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import type { Plant } from "../domain/plant.ts";
import { type Headings, MissingColumn, type PlantField, plantFields } from "../format/csv.ts";
import { WrongEncoding } from "../format/encoding.ts";
import {
  createRejectsFormat,
  type FileFormat,
  isTable,
  type PlantRecord,
  readPlants,
  type Rejected,
} from "../format/plants.ts";
import {
  CommandError,
  EXIT_DIFFERENT,
  failHalfway,
  findClient,
  type Flags,
  Interrupted,
  plantsOf,
  type Target,
  timeUntilInterrupted,
  toRefused,
  UsageError,
  withTarget,
} from "./command.ts";
import { isSameFile, openOutput } from "./files.ts";
import { printError, printLine, showProgress } from "./terminal.ts";

/** An exported record may exceed the body limit by its id. */
const RECORD_BYTES_MORE = 64;
const BLOCK_LENGTH_MAX = 2_000;
const REFUSED_PRINTED_MAX = 10;

type Tally = Record<"created" | "replayed" | "refused", number>;

export async function importPlants(config: Config, flags: Flags, path: string): Promise<void> {
  const format = parseFormat(path, flags);
  findClient(flags, config);
  const bytes = requireSource(path, format);
  const { rejects: kept = "-" } = flags;
  if (kept !== "-" && isSameFile(kept, path))
    throw new UsageError(`--rejects: ${kept} is the file to import`);
  const batch = parseBatch(flags.batch, path);
  using rejects = openRejects(config, flags, format);
  const tally: Tally = { created: 0, replayed: 0, refused: 0 };

  const { seconds, error } = await timeUntilInterrupted(async (signal) => {
    let part: number | undefined;
    using progress = showProgress(() => {
      const { created, replayed, refused } = tally;
      return { plants: created + replayed, refused, part };
    });
    const { print } = progress;
    const onProgress = (read: number): unknown => (part = bytes && read / bytes);
    const chunks = readSource(path, format, flags.sheet, signal, onProgress);
    const blocks = readPlants(chunks, format, {
      recordBytesMax: config.bodyBytesMax + RECORD_BYTES_MORE,
      blockLengthMax: BLOCK_LENGTH_MAX,
      encoding: flags.encoding,
      onEncoding: (encoding) => print(`Reading the file as ${encoding.toUpperCase()}.`),
      onHeading: rejects.onHeading,
    });
    const writing = { signal, batch, onRetry: progress.onRetry };
    let next: IteratorResult<readonly PlantRecord[]>;
    /** Without a target, stops at the first block that has a plant to store. */
    const importBlocks = async (target?: Target): Promise<void> => {
      const create: Create = async (plants, settle) =>
        target && plantsOf(target).createBatch(plants, settle, writing);
      for (; !next.done; next = await blocks.next()) {
        const hasPlant = next.value.some(({ plant }) => !(plant instanceof Refusal));
        if (target === undefined && hasPlant) return;
        signal.throwIfAborted();
        await importBlock(next.value, create, (rejected) => rejects.add(rejected, print), tally);
      }
    };
    let isRead = false;
    try {
      next = await blocks.next();
      await importBlocks();
      // Opens the store only now: a file with nothing to store creates none.
      if (!next.done) await withTarget(config, flags, importBlocks, { isMade: true });
      isRead = true;
    } finally {
      // An unreadable file neither creates nor replaces a rejects file.
      if (isRead || tally.refused > 0) await rejects.finish(print);
    }
  });
  await summarize(tally, batch, seconds, error, flags);
}

/** The name of an earlier import adds this one to it. */
function parseBatch(given: string | undefined, path: string): string {
  if (given === undefined) return nameBatch(path === "-" ? "standard input" : basename(path));
  if (batchRule.find(given) !== undefined) return given;
  throw new UsageError(`--batch: expected ${batchRule.expected}`);
}

type Create = (plants: readonly Plant[], settle: Settle) => Promise<void>;

/** Counts each record once, even if the import aborts. */
async function importBlock(
  block: readonly PlantRecord[],
  create: Create,
  reject: (rejected: readonly Rejected[]) => Promise<void>,
  tally: Tally,
): Promise<void> {
  const refused = new Map<PlantRecord, Refused>();
  const good: PlantRecord[] = [];
  for (const record of block)
    if (record.plant instanceof Refusal) refused.set(record, toRefused(record.plant));
    else good.push(record);
  try {
    await create(
      good.map(({ plant }) => plant as Plant),
      (index, outcome) => {
        if (typeof outcome === "string") tally[outcome]++;
        else refused.set(good[index] as PlantRecord, outcome);
      },
    );
  } finally {
    tally.refused += refused.size;
    const rejected = block.flatMap((record) => {
      const { message, code } = refused.get(record) ?? {};
      return code === undefined ? [] : [{ ...record, reason: `${message} (error ${code})` }];
    });
    await reject(rejected);
  }
}

/** Writes every refused record to the --rejects file, or the first 10 to the terminal. */
function openRejects(config: Config, flags: Flags, fileFormat: FileFormat) {
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

/** The size of the file; undefined for a pipe. */
function requireSource(path: string, { kind }: FileFormat): number | undefined {
  const found = path === "-" ? undefined : statSync(path);
  if (found?.isDirectory()) throw new CommandError(`${path} is a folder, not a file.`);
  if (kind === "xlsx" && !found?.isFile())
    throw new UsageError(`${path}: a workbook is read from a file, not from a pipe`);
  return found?.isFile() ? found.size : undefined;
}

async function* readSource(
  path: string,
  { kind }: FileFormat,
  sheet: string | undefined,
  signal: AbortSignal,
  onProgress: (bytes: number) => unknown,
): AsyncGenerator<Uint8Array> {
  if (kind === "xlsx") {
    const { openWorkbook } = await import("../format/workbook.ts");
    const file = Bun.file(path);
    const { readRows } = await openWorkbook(file);
    return yield* readRows(sheet, (part) => onProgress(part * file.size));
  }
  let bytes = 0;
  // Stays open until the process exits.
  const descriptor = path === "-" ? STANDARD_INPUT : openSync(path, "r");
  for await (const chunk of readDescriptor(descriptor, signal)) {
    onProgress((bytes += chunk.length));
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

function parseFormat(path: string, flags: Flags): FileFormat {
  const { format: kind = findFormat(path), map, delimiter, encoding, sheet } = flags;
  if (kind === undefined && /\.(xls|ods)$/i.test(path))
    throw new CommandError(`${path}: save the workbook as .xlsx or as CSV, and import that file.`);
  if (kind === undefined)
    throw new UsageError(
      path === "-"
        ? "--format is needed to read standard input: ndjson, json or csv"
        : `${path}: the name does not tell the format; give --format ndjson, json, csv or xlsx`,
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
    if (headings[field] !== undefined) throw new UsageError(`--map: ${field} is given twice`);
    headings[field] = heading;
  }
  return headings;
}

const quoteWord = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

async function summarize(
  { created, replayed, refused }: Tally,
  batch: string,
  seconds: number,
  error: unknown,
  { json, rejects }: Flags,
) {
  if (error instanceof UsageError) throw error;
  if (error instanceof MissingColumn)
    throw new UsageError(
      `${error.message} Name the columns with --map id=…,name=…,tag=…, or the sign between them with --delimiter.`,
    );
  const finished = error === undefined;
  const line = json
    ? JSON.stringify({ finished, created, replayed, refused, batch, seconds })
    : `created ${created}, replayed ${replayed}, refused ${refused}`;
  // With `--rejects -`, standard output carries the rejects.
  if (finished || json || error instanceof Interrupted) {
    if (rejects !== "-") await printLine(line);
    else if (json) process.stderr.write(`${line}\n`);
    else printError(line);
  }
  if (created > 0 && !json)
    printError(`to take this import back: plantstore revert --batch ${quoteWord(batch)}`);
  if (finished && refused > 0) process.exitCode = EXIT_DIFFERENT;
  if (finished) return;
  const why =
    error instanceof WrongEncoding
      ? new CommandError(`${error.message} Accept that with --encoding ${error.guess}.`)
      : error;
  // More may be stored: plants in flight got no answer.
  const known = `${created + replayed} plants are known to be stored.`;
  failHalfway("import", why, `${known} Running it again is safe.`);
}
