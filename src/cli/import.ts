/**
 * plantstore import: plants out of a file, into the store or a running service. Running it again is safe. A dry run, and
 * an import that removes what the file lacks, read the whole file first, and compare it with the store.
 */

import { openSync, statSync } from "node:fs";
import { basename, extname } from "node:path";
import { isatty } from "node:tty";
import type { Content, Refused, Settle, Upsert, Upserted } from "../../client/client.ts";
import type { Config } from "../config.ts";
import { readDescriptor, STANDARD_INPUT } from "../descriptor.ts";
import { contentOf } from "../domain/bulk.ts";
import { refuseTaken } from "../domain/decide.ts";
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
  findClient,
  findSchema,
  type Flags,
  refusePairs,
  UsageError,
  withTarget,
} from "./command.ts";
import { describeCounts, dryRunPairs, edit, parseBatch, type Steps } from "./edit.ts";
import { isSameFile, openOutput } from "./files.ts";
import { type Effect, openStaging, type Staging } from "./staging.ts";
import { type Plants, plantsOf, toRefused } from "./store-client.ts";
import { countOf, formatCount, showProgress } from "./terminal.ts";

/** An exported record may exceed the body limit by its id. */
const RECORD_BYTES_MORE = 64;
const BLOCK_LENGTH_MAX = 2_000;
const REFUSED_PRINTED_MAX = 10;

type Tally = Record<Upserted | "changedSince" | "refused", number>;

export async function importPlants(config: Config, flags: Flags, path: string): Promise<void> {
  requireMode(flags);
  const format = parseFormat(path, flags);
  findClient(flags, config);
  const bytes = requireSource(path, format);
  const { rejects: kept = "-" } = flags;
  if (kept !== "-" && isSameFile(kept, path))
    throw new UsageError(`--rejects: ${kept} is the file to import`);
  const batch = parseBatch(flags.batch, path === "-" ? "standard input" : basename(path));
  using rejects = openRejects(config, flags, format);
  const tally: Tally = {
    created: 0,
    replaced: 0,
    removed: 0,
    replayed: 0,
    changedSince: 0,
    refused: 0,
  };
  const counts = () => pickCounts(tally, flags);
  const work = {
    flags,
    what: "import",
    did: "stored",
    batch,
    counts,
    describe: () => describeCounts(counts()),
    // More may be stored: plants in flight got no answer.
    state: () => {
      const removed = tally.removed > 0 ? `, and ${tally.removed} removed` : "";
      return `${plantsDone(tally)} plants are known to be stored${removed}. Running it again is safe.`;
    },
    // With `--rejects -`, standard output carries the rejects.
    isOutputTaken: flags.rejects === "-",
  };
  await edit(work, async (steps) => {
    const run: Run = { ...steps, config, flags, path, format, bytes, batch, rejects, tally };
    if (!flags.dryRun) steps.begin();
    const importAll = flags.dryRun || flags.removeMissing ? importWhole : importBlocks;
    await importAll(run).catch(explainFormat);
  });
}

/** Those that this mode of an import can have. */
function pickCounts(tally: Tally, { upsert, removeMissing }: Flags) {
  const { created, replaced, removed, replayed, changedSince, refused } = tally;
  return {
    created,
    ...(upsert || removeMissing ? { replaced } : {}),
    ...(removeMissing ? { removed } : {}),
    replayed,
    ...(removeMissing ? { changedSince } : {}),
    refused,
  };
}

function explainFormat(error: unknown): never {
  if (error instanceof MissingColumn)
    throw new UsageError(
      `${error.message} Name the columns with --map id=…,name=…,tag=…, or set the --delimiter.`,
    );
  if (error instanceof WrongEncoding)
    throw new CommandError(`${error.message} Accept that with --encoding ${error.guess}.`);
  throw error;
}

interface Run extends Steps {
  readonly config: Config;
  readonly flags: Flags;
  readonly path: string;
  readonly format: FileFormat;
  /** The size of the file, if it is known. */
  readonly bytes: number | undefined;
  readonly batch: string;
  readonly rejects: ReturnType<typeof openRejects>;
  readonly tally: Tally;
}

function requireMode(flags: Flags): void {
  const { yes, removeMissing } = flags;
  refusePairs(flags, [
    ...dryRunPairs,
    ["--dry-run", "--rejects", "a dry run writes nothing, and shows the first refused records"],
  ]);
  if (yes && !removeMissing) throw new UsageError("--yes: only with --remove-missing, which asks");
}

const plantsDone = ({ created, replaced, replayed }: Tally): number =>
  created + replaced + replayed;

/** Every block is stored as soon as it is read. */
async function importBlocks(run: Run): Promise<void> {
  const { config, flags, batch, rejects, tally, signal } = run;
  let part: number | undefined;
  using progress = showProgress(() => ({
    plants: plantsDone(tally),
    refused: tally.refused,
    part,
  }));
  const { print } = progress;
  const blocks = readBlocks(run, print, (read) => (part = read));
  const writing = { signal, batch, onRetry: progress.onRetry };
  let next: IteratorResult<readonly PlantRecord[]>;
  /** Without a target, stops at the first block that has a plant to store. */
  const storeBlocks = async (target?: Plants): Promise<void> => {
    const store: Write = async (plants, settle) => {
      if (target === undefined) return;
      await (flags.upsert
        ? target.upsertBatch(plants, settle, writing)
        : target.createBatch(plants, settle, writing));
    };
    for (; !next.done; next = await blocks.next()) {
      const hasPlant = next.value.some(({ plant }) => !(plant instanceof Refusal));
      if (target === undefined && hasPlant) return;
      signal.throwIfAborted();
      await storeBlock(next.value, store, (rejected) => rejects.add(rejected, print), tally);
    }
  };
  let isRead = false;
  try {
    next = await blocks.next();
    await storeBlocks();
    // Opens the store only now: a file with nothing to store creates none.
    if (!next.done)
      await withTarget(config, flags, plantsOf, storeBlocks, {
        canCreate: true,
        batch: flags.batch,
      });
    isRead = true;
  } finally {
    // An unreadable file neither creates nor replaces a rejects file.
    if (isRead || tally.refused > 0) await rejects.finish(print);
  }
}

function readBlocks(
  { config, flags, path, format, bytes, rejects, signal }: Run,
  print: (line: string) => void,
  onPart: (part: number | undefined) => unknown,
) {
  const onProgress = (read: number): unknown => onPart(bytes && read / bytes);
  const chunks = readSource(path, format, flags.sheet, signal, onProgress);
  return readPlants(chunks, format, {
    recordBytesMax: config.bodyBytesMax + RECORD_BYTES_MORE,
    blockLengthMax: BLOCK_LENGTH_MAX,
    encoding: flags.encoding,
    onEncoding: (encoding) => print(`Reading the file as ${encoding.toUpperCase()}.`),
    onHeading: rejects.onHeading,
  });
}

/** Nothing is written before the whole file is known to be good, and its effect. */
async function importWhole(run: Run): Promise<void> {
  const { config, flags, tally } = run;
  const startedAtMs = performance.now();
  using staging = openStaging();
  await stage(run, staging);
  if (tally.refused > 0 && !flags.dryRun)
    throw new CommandError(
      `--remove-missing needs a file without faults, and ${countOf(tally.refused, "record")} ${tally.refused === 1 ? "is" : "are"} refused. Nothing was changed.`,
    );
  /** Resolves to the effect if it may be done. */
  const findConsent = async (target: Pick<Plants, "listPage">): Promise<Effects | undefined> => {
    const effects = await compare(run, staging, target);
    const seconds = Math.round(performance.now() - startedAtMs) / 1000;
    const question = findQuestion(effects, flags);
    if (await run.consent(describeEffects(effects, seconds), question)) return effects;
    if (effects.refused > 0) process.exitCode = EXIT_DIFFERENT;
    return undefined;
  };
  const isThere = flags.url !== undefined || (await findSchema(config)).version !== undefined;
  // A dry run does not create the store.
  if (flags.dryRun && !isThere)
    return void (await findConsent({ listPage: async () => ({ plants: [], next: undefined }) }));
  await withTarget(
    config,
    flags,
    plantsOf,
    async (target) => {
      const effects = await findConsent(target);
      if (effects !== undefined) await makeEqual(run, staging, target, effects);
    },
    { canCreate: true, batch: flags.batch },
  );
}

async function stage(run: Run, staging: Staging): Promise<void> {
  const { flags, rejects, tally, signal } = run;
  let [plants, part]: [number, number | undefined] = [0, undefined];
  using progress = showProgress(() => ({ stage: "reading", plants, refused: tally.refused, part }));
  const { print } = progress;
  const reject = async (records: readonly PlantRecord[]): Promise<void> => {
    tally.refused += records.length;
    await rejects.add(records.map(toRejected), print);
  };
  let isRead = false;
  try {
    for await (const block of readBlocks(run, print, (read) => (part = read))) {
      signal.throwIfAborted();
      const good = block.filter(hasPlant);
      plants += good.length;
      const isStrict = flags.removeMissing || !flags.upsert;
      // If two different plants have one id, an upsert stores the last. Otherwise the second is refused.
      const refused = new Map<PlantRecord, Refusal>();
      if (isStrict)
        for (const record of staging.add(good)) refused.set(record, refuseTwice(record.plant));
      else staging.put(good);
      const bad = block.flatMap((record) => {
        const plant = refused.get(record) ?? record.plant;
        return plant instanceof Refusal ? [{ ...record, plant }] : [];
      });
      await reject(bad);
    }
    isRead = true;
  } finally {
    if (isRead || tally.refused > 0) await rejects.finish(print);
  }
}

const hasPlant = (record: PlantRecord): record is PlantRecord & { readonly plant: Plant } =>
  !(record.plant instanceof Refusal);

const refuseTwice = ({ id }: Plant): Refusal =>
  new Refusal("id_taken", `An earlier record of the file has a different plant with the id ${id}.`);

function toRejected(record: PlantRecord): Rejected {
  const { message, code } = toRefused(record.plant as Refusal);
  return { ...record, reason: `${message} (error ${code})` };
}

/** The sample has some plants of each effect. */
interface Effects extends Record<Effect | "refused", number> {
  readonly sample: { id: bigint; now: Content | undefined; after: Content | undefined }[];
}

const SAMPLE_LENGTH = 5;

async function compare(
  { flags, tally, signal }: Run,
  staging: Staging,
  target: Pick<Plants, "listPage">,
): Promise<Effects> {
  const { removeMissing = false, upsert = removeMissing } = flags;
  const effects: Effects = {
    created: 0,
    changed: 0,
    removed: 0,
    same: 0,
    refused: tally.refused,
    sample: [],
  };
  let plants = 0;
  using progress = showProgress(() => ({ stage: "comparing", plants }));
  const { print, onRetry } = progress;
  const listPage: Parameters<Staging["compare"]>[0] = (query) =>
    target.listPage(query, { signal, onRetry });
  await staging.compare(listPage, removeMissing, ({ effect, id, line, now, after }) => {
    signal.throwIfAborted();
    plants++;
    // Without --upsert no stored plant is changed.
    if (effect === "changed" && !upsert) {
      const { message } = refuseTaken(id);
      if (++effects.refused <= REFUSED_PRINTED_MAX) print(`line ${line}: ${message}`);
      return;
    }
    if (++effects[effect] <= SAMPLE_LENGTH && effect !== "same")
      effects.sample.push({ id, now: now && contentOf(now), after: after && contentOf(after) });
  });
  return effects;
}

function describeEffects({ sample: unsorted, ...counts }: Effects, seconds: number) {
  const sample = unsorted.toSorted((one, other) => (one.id < other.id ? -1 : 1));
  return {
    sample,
    more: counts.created + counts.changed + counts.removed - sample.length,
    summary: describeCounts(counts),
    facts: { dryRun: true, ...counts, sample, seconds },
  };
}

/** A share of the store that may go without a question. */
const REMOVED_PART_MAX = 0.1;

/** A list that was cut off, or belongs to another store, must not empty this one. */
function findQuestion({ changed, removed, same }: Effects, { dryRun, yes }: Flags) {
  const stored = changed + removed + same;
  if (dryRun || yes || removed <= stored * REMOVED_PART_MAX) return undefined;
  const what = `${formatCount(removed)} of ${countOf(stored, "plant")}`;
  if (!isatty(STANDARD_INPUT))
    throw new CommandError(
      `The file lacks ${what}, more than a tenth of the store. Nothing was changed. --yes removes them; --dry-run shows some.`,
    );
  return `plantstore: the file lacks ${what}.\nRemove them?`;
}

/** Removes last: if a plant of the file cannot be stored, nothing is removed. */
async function makeEqual(
  { batch, tally, signal }: Run,
  staging: Staging,
  target: Plants,
  { created, changed, removed, same }: Effects,
): Promise<void> {
  tally.replayed = same;
  const total = created + changed + removed;
  let done = 0;
  using progress = showProgress(() => ({
    stage: tally.removed + tally.changedSince > 0 ? "removing" : "storing",
    plants: done,
    part: total && done / total,
  }));
  const writing = { signal, batch, onRetry: progress.onRetry };
  const write = async <Item extends Upsert>(
    block: readonly Item[],
    onRefused: (item: Item, refused: Refused) => void,
  ): Promise<void> => {
    signal.throwIfAborted();
    const settle: Settle<Upserted> = (index, outcome) => {
      done++;
      if (typeof outcome === "string") tally[outcome]++;
      else onRefused(block[index] as Item, outcome);
    };
    await target.upsertBatch(block, settle, writing);
  };
  for (const block of staging.upserts()) {
    await write(block, ({ line }, { message, code }) => {
      if (++tally.refused <= REFUSED_PRINTED_MAX)
        progress.print(`line ${line}: ${message} (error ${code})`);
    });
    if (tally.refused > 0)
      throw new CommandError(
        `${countOf(tally.refused, "plant")} could not be stored, so nothing was removed.`,
      );
  }
  for (const block of staging.removals())
    await write(block, ({ id }, { message, reason }) => {
      const isSince = reason === "precondition_failed";
      if (++tally[isSince ? "changedSince" : "refused"] > REFUSED_PRINTED_MAX) return;
      const why = isSince ? "It was changed meanwhile, and left as it is." : message;
      progress.print(`plant ${id}: ${why}`);
    });
}

type Write = (plants: readonly Plant[], settle: Settle<Upserted>) => Promise<void>;

/** Counts each record once, even if the import aborts. */
async function storeBlock(
  block: readonly PlantRecord[],
  write: Write,
  reject: (rejected: readonly Rejected[]) => Promise<void>,
  tally: Tally,
): Promise<void> {
  const refused = new Map<PlantRecord, Refused>();
  const good: PlantRecord[] = [];
  for (const record of block)
    if (record.plant instanceof Refusal) refused.set(record, toRefused(record.plant));
    else good.push(record);
  try {
    await write(
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
