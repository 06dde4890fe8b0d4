/**
 * plantstore import: plants out of a file, into the store or a running service. Running it again is safe. A dry run, and
 * an import that removes what the file lacks, read the whole file first, and compare it with the store.
 */

import { basename } from "node:path";
import { isatty } from "node:tty";
import type { Content, Refused, Settle, Upsert, Upserted } from "../../client/client.ts";
import type { Config } from "../config.ts";
import { STANDARD_INPUT } from "../descriptor.ts";
import { contentOf } from "../domain/bulk.ts";
import { refuseTaken } from "../domain/decide.ts";
import { Refusal } from "../domain/errors.ts";
import type { Plant } from "../domain/plant.ts";
import { MissingColumn } from "../format/csv.ts";
import { WrongEncoding } from "../format/encoding.ts";
import { type FileFormat, type PlantRecord, readPlants } from "../format/plants.ts";
import { recordBytesMaxOf } from "../format/records.ts";
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
import { isSameFile } from "./files.ts";
import {
  type FormatFlags,
  openRejects,
  parseFormat,
  readSource,
  requireSource,
} from "./plant-file.ts";
import { type Effect, openStaging, type Staging } from "./staging.ts";
import { type Plants, plantsOf, toRefused } from "./store-client.ts";
import { countOf, formatCount, REFUSED_PRINTED_MAX, showProgress } from "./terminal.ts";

const BLOCK_LENGTH_MAX = 2_000;

type Tally = Record<Upserted | "changedSince" | "refused", number>;

type ImportFlags = FormatFlags & Flags<"rejects", "removeMissing" | "upsert">;

export async function importPlants(
  config: Config,
  flags: ImportFlags,
  path: string,
): Promise<void> {
  requireMode(flags);
  const format = parseFormat(path, flags);
  findClient(flags, config);
  requireSource(path, format);
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
    const run: Run = { ...steps, config, flags, path, format, batch, rejects, tally };
    if (!flags.dryRun) steps.begin();
    const importAll = flags.dryRun || flags.removeMissing ? importWhole : importBlocks;
    await importAll(run).catch(explainFormat);
  });
}

/** Those that this mode of an import can have. */
function pickCounts(tally: Tally, { upsert, removeMissing }: ImportFlags) {
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
  readonly flags: ImportFlags;
  readonly path: string;
  readonly format: FileFormat;
  readonly batch: string;
  readonly rejects: ReturnType<typeof openRejects>;
  readonly tally: Tally;
}

function requireMode(flags: ImportFlags): void {
  const { yes, removeMissing } = flags;
  refusePairs(flags, [
    ...dryRunPairs,
    ["--dry-run", "--rejects", "a dry run writes nothing, and shows the first refused records"],
  ]);
  if (yes && !removeMissing) throw new UsageError("--yes: only with --remove-missing, which asks");
}

const plantsDone = ({ created, replaced, replayed }: Tally): number =>
  created + replaced + replayed;

interface Reading {
  readonly blocks: AsyncGenerator<readonly PlantRecord[]>;
  readonly progress: ReturnType<typeof showProgress>;
  /** Counts and keeps the records that are malformed, and those that are refused. */
  readonly reject: (block: Block, refused: ReadonlyMap<PlantRecord, Refused>) => Promise<void>;
}

type Block = readonly PlantRecord[];

async function readFile(
  { config, flags, path, format, rejects, tally, signal }: Run,
  read: () => { readonly stage?: string; readonly plants: number },
  use: (reading: Reading) => Promise<void>,
): Promise<void> {
  let part: number | undefined;
  let isRead = false;
  using progress = showProgress(() => ({ ...read(), refused: tally.refused, part }));
  const { print } = progress;
  const blocks = async function* (): AsyncGenerator<Block> {
    const chunks = readSource(path, format, flags.sheet, signal, (now) => (part = now));
    const records = readPlants(chunks, format, {
      recordBytesMax: recordBytesMaxOf(config),
      limits: flags.url === undefined ? config : undefined,
      blockLengthMax: BLOCK_LENGTH_MAX,
      encoding: flags.encoding,
      onEncoding: (encoding) => print(`Reading the file as ${encoding.toUpperCase()}.`),
      onHeading: rejects.onHeading,
    });
    for await (const block of records) {
      signal.throwIfAborted();
      yield block;
    }
    isRead = true;
  };
  const reject: Reading["reject"] = async (block, refused) => {
    const rejected = block.flatMap((record) => {
      const { plant } = record;
      const found = plant instanceof Refusal ? toRefused(plant) : refused.get(record);
      if (found === undefined) return [];
      return [{ ...record, reason: `${found.message} (error ${found.code})` }];
    });
    tally.refused += rejected.length;
    await rejects.add(rejected, print);
  };
  try {
    await use({ blocks: blocks(), progress, reject });
  } finally {
    // An unreadable file neither creates nor replaces a rejects file.
    if (isRead || tally.refused > 0) await rejects.finish(print);
  }
}

const hasPlant = (record: PlantRecord): record is PlantRecord & { readonly plant: Plant } =>
  !(record.plant instanceof Refusal);

/** Every block is stored as soon as it is read. */
const importBlocks = (run: Run): Promise<void> =>
  readFile(
    run,
    () => ({ plants: plantsDone(run.tally) }),
    async ({ blocks, progress, reject }) => {
      const { config, flags, batch, tally, signal } = run;
      const writing = { signal, batch, onRetry: progress.onRetry };
      let next = await blocks.next();
      /** Without a target, stops at the first block that has a plant to store. */
      const storeBlocks = async (target?: Plants): Promise<void> => {
        for (; !next.done; next = await blocks.next()) {
          const block = next.value;
          const good = block.filter(hasPlant);
          if (target === undefined && good.length > 0) return;
          const plants = good.map(({ plant }) => plant);
          const refused = new Map<PlantRecord, Refused>();
          const settle: Settle<Upserted> = (index, outcome) => {
            if (typeof outcome === "string") tally[outcome]++;
            else refused.set(good[index] as PlantRecord, outcome);
          };
          try {
            await (flags.upsert
              ? target?.upsertBatch(plants, settle, writing)
              : target?.createBatch(plants, settle, writing));
          } finally {
            // Each record is counted once, even if the import aborts.
            await reject(block, refused);
          }
        }
      };
      await storeBlocks();
      // Opens the store only now: a file with nothing to store creates none.
      const options = { canCreate: true, batch: flags.batch };
      if (!next.done) await withTarget(config, flags, plantsOf, storeBlocks, options);
    },
  );

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

/** If two different plants have one id, an upsert stores the last. Otherwise the second is refused. */
async function stage(run: Run, staging: Staging): Promise<void> {
  const isStrict = run.flags.removeMissing || !run.flags.upsert;
  let plants = 0;
  await readFile(
    run,
    () => ({ stage: "reading", plants }),
    async ({ blocks, reject }) => {
      for await (const block of blocks) {
        const good = block.filter(hasPlant);
        plants += good.length;
        const twice = isStrict ? staging.add(good) : [];
        if (!isStrict) staging.put(good);
        await reject(block, new Map(twice.map((record) => [record, refuseTwice(record.plant)])));
      }
    },
  );
}

const refuseTwice = ({ id }: Plant): Refused =>
  toRefused(
    new Refusal(
      "id_taken",
      `An earlier record of the file has a different plant with the id ${id}.`,
    ),
  );

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
function findQuestion({ changed, removed, same }: Effects, { dryRun, yes }: ImportFlags) {
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
