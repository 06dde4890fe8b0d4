/** The import worker keeps large files off the page's thread, and their plants out of memory. */

import {
  Client,
  type Outcome,
  type Refused,
  ServiceError,
  type Upserted,
} from "../../client/client.ts";
import { Refusal } from "../../src/domain/errors.ts";
import { isSame, type Plant } from "../../src/domain/plant.ts";
import { createRejectsFormat, type PlantRecord, type Rejected } from "../../src/format/plants.ts";
import { etagOf } from "../api/etag.ts";
import {
  createEtags,
  type Etags,
  findEtag,
  findPlace,
  type Ids,
  joinIds,
  listRepeated,
  setEtag,
} from "./kept.ts";
import {
  CANCEL,
  createAlong,
  type Difference,
  DIFFERENCES_SHOWN,
  type Import,
  type ImportRequest,
  type Preview,
  type Progress,
  type Reading,
  type RowOutcome,
} from "./messages.ts";
import { explainFile, position, previewFile, readRecords, ROWS_SHOWN } from "./preview.ts";
import { createWording, type Wording } from "./reasons.ts";

const PROGRESS_MS = 150;
const SHOWN_MAX = 200;
const SHOWN_CHARACTERS_MAX = 120;
const MISSING_MAX = 100_000;

const post = (change: Partial<Import>, moved: Transferable[] = []): void =>
  postMessage(change, { transfer: moved });
const stopping = new AbortController();
/** Of the only task. */
let wording: Wording;

addEventListener("message", ({ data }: MessageEvent<ImportRequest | typeof CANCEL>) => {
  if (data === CANCEL) stopping.abort();
  else {
    wording = createWording(data.texts);
    void (data.batch === undefined ? show(data) : run(data));
  }
});

/** Posts the first rows, then compares the file with the store. */
async function show(order: ImportRequest): Promise<void> {
  const preview = await previewFile(order, wording);
  post({ ...preview, isReading: false });
  if (order.token !== undefined && preview.rows.length > 0)
    await run({ ...order, reading: preview.reading });
}

interface Row {
  readonly line: number;
  readonly plant: Plant;
}

/** What became of a row, or what an import would make of it. */
type Fate = Exclude<RowOutcome, "refused"> | Pick<Refused, "message">;

interface Result {
  readonly plant: Plant;
  readonly fate: Fate;
}

/** The first row of an id that the file repeats. It counts: a later one is recognised if it is the same, and refused if it differs. */
interface First extends Row {
  fate?: Fate;
}

function listSound(records: readonly PlantRecord[]): Row[] {
  const rows: Row[] = [];
  for (const { line, plant } of records)
    if (!(plant instanceof Refusal)) rows.push({ line, plant });
  return rows;
}

/** The second reading says what is wrong with the file. */
async function readIds({ file, reading, limits }: ImportRequest): Promise<Ids> {
  const blocks: Ids[] = [];
  try {
    for await (const records of readRecords(file, reading as Reading, limits)) {
      stopping.signal.throwIfAborted();
      blocks.push(BigInt64Array.from(listSound(records), ({ plant }) => plant.id));
    }
  } catch {
    stopping.signal.throwIfAborted();
  }
  return joinIds(blocks);
}

/** Reads the file block by block, compares or stores its plants, and counts the results. */
async function run(order: ImportRequest): Promise<void> {
  const { file, reading, updates, isWhole = false, batch, limits } = order;
  if (reading === undefined) return;
  const isComparison = batch === undefined;
  let ids: Ids = new BigInt64Array();
  let repeated: ReadonlySet<bigint> = new Set();
  let different: Etags | undefined;
  const differences: Difference[] = [];
  /** Found by a comparison, and removed by an import. */
  const missing = [...(order.missing ?? [])];
  const firsts = new Map<bigint, First>();
  const counts = {
    created: 0,
    updated: 0,
    updatedAgain: 0,
    kept: 0,
    removed: 0,
    replayed: 0,
    refused: 0,
    nameless: 0,
    counted: 0,
  };
  const firstRefused: Rejected[] = [];
  const along = createAlong();
  const rows: Preview["rows"][number][] = [];
  const format = createRejectsFormat(reading);
  /** The browser may move blobs to disk. */
  const rejects: Blob[] = [];
  let done = 0;
  let isRead = false;
  let isWaiting = false;
  const client = new Client(order.url, order.token ?? "", {
    retriesMax: Number.POSITIVE_INFINITY,
    onRetry: () => {
      isWaiting = true;
    },
  });
  const options = { batch, dryRun: isComparison || undefined, signal: stopping.signal };
  const startedAtMs = performance.now();
  const report = (): Progress & Partial<Preview> => ({
    ...counts,
    ...((isRead || rows.length === ROWS_SHOWN) && { rows }),
    done,
    seconds: (performance.now() - startedAtMs) / 1000,
    isWaiting,
    firstRefused,
    refusedAlong: along.read(),
    rejects: new Blob([...rejects, format.end()]),
  });

  /** Creates the plants, and updates those that are still as the comparison found them. */
  async function* send(plants: readonly Plant[]): AsyncGenerator<Result> {
    const creates: Plant[] = [];
    const changes: Plant[] = [];
    for (const plant of plants) {
      const ifMatch = updates && findEtag(updates, findPlace(ids, plant.id));
      if (ifMatch !== undefined) changes.push(Object.assign(plant, { ifMatch }));
      else (isComparison ? changes : creates).push(plant);
    }
    for await (const { plant, outcome } of client.createAll(count(creates), options)) {
      unanswered--;
      yield { plant, fate: toFate(outcome) };
    }
    for await (const { plant, outcome, now } of client.upsertAll(count(changes), options)) {
      unanswered--;
      if (now !== undefined) {
        const stored = { id: plant.id, ...now };
        setEtag((different ??= createEtags(ids)), findPlace(ids, plant.id), stored);
        if (differences.length < DIFFERENCES_SHOWN) differences.push({ stored, given: plant });
      }
      yield { plant, fate: toFate(outcome) };
    }
  }

  /** Sends the first row of each id, and judges the others by it. */
  async function* judge(sound: readonly Row[]): AsyncGenerator<Result> {
    const begun: Plant[] = [];
    const repeats: (Row & { readonly first: First })[] = [];
    for (const row of sound) {
      const { id } = row.plant;
      const first = firsts.get(id);
      if (first !== undefined) repeats.push({ ...row, first });
      else begun.push(row.plant);
      if (repeated.has(id) && first === undefined) firsts.set(id, { ...row });
    }
    for await (const result of send(begun)) {
      const first = firsts.get(result.plant.id);
      if (first !== undefined) first.fate = result.fate;
      yield result;
    }
    for (const { line, plant, first } of repeats) {
      const lines = { first: String(first.line), second: String(line) };
      if (!isSame(first.plant, plant))
        yield { plant, fate: { message: wording.say("twice", lines) } };
      else if (first.fate === "updated" && isComparison) yield { plant, fate: "updatedAgain" };
      else if (first.fate === "created" || first.fate === "updated")
        yield { plant, fate: "replayed" };
      else if (first.fate !== undefined) yield { plant, fate: first.fate };
    }
  }

  const settle = async (records: readonly PlantRecord[]): Promise<void> => {
    const fates = new Map<PlantRecord["plant"], Fate>();
    for (const { plant } of records)
      if (plant instanceof Refusal) {
        const isNameless = plant.faults.every(({ name }) => name === "nameMissing");
        if (plant.faults.length > 0 && isNameless) counts.nameless++;
        fates.set(plant, { message: wording.word(plant) });
      }
    try {
      for await (const { plant, fate } of judge(listSound(records))) {
        isWaiting = false;
        fates.set(plant, fate);
      }
    } finally {
      const rejected: Rejected[] = [];
      for (const { line, text, plant } of records) {
        const fate = fates.get(plant);
        if (fate === undefined) continue;
        const isRefused = typeof fate !== "string";
        counts[isRefused ? "refused" : fate]++;
        along.add(line, isRefused);
        if (isRefused) rejected.push({ line, text, reason: fate.message });
        if (rows.length < ROWS_SHOWN)
          rows.push(
            isRefused
              ? { line, plant: fate.message, outcome: "refused" }
              : { line, plant: plant as Plant, outcome: fate },
          );
      }
      for (const { line, reason, text = "" } of rejected.slice(0, SHOWN_MAX - firstRefused.length))
        firstRefused.push({ line, reason, text: text.slice(0, SHOWN_CHARACTERS_MAX) });
      if (rejected.length > 0) rejects.push(new Blob([format.add(rejected)]));
    }
  };

  /** Plants that were changed since the comparison are left alone. */
  const remove = async (): Promise<void> => {
    const removals = missing.map((plant) => ({
      id: plant.id,
      removed: true as const,
      ifMatch: etagOf(plant),
    }));
    for await (const { plant, outcome } of client.upsertAll(count(removals), options)) {
      unanswered--;
      const fate = toFate(outcome);
      if (outcome === "removed") counts.removed++;
      else if (typeof fate !== "string") {
        counts.refused++;
        firstRefused.push({ line: 0, reason: fate.message, text: String(plant.id) });
      }
    }
  };

  const timer = setInterval(() => post(report()), PROGRESS_MS);
  let failure: string | undefined;
  try {
    ids = order.ids ?? (await readIds(order));
    repeated = listRepeated(ids);
    for await (const records of readRecords(file, reading, limits, format.onHeading)) {
      stopping.signal.throwIfAborted();
      await settle(records);
      counts.counted += records.length;
      done = position.share;
    }
    if (isWhole && isComparison)
      for await (const plants of client.exportBlocks({}, { signal: stopping.signal })) {
        const lacking = plants.filter(({ id }) => findPlace(ids, id) === -1);
        counts.removed += lacking.length;
        if (counts.removed <= MISSING_MAX) missing.push(...lacking);
      }
    // A file with a fault is not the whole truth.
    if (!isComparison && counts.refused === 0) await remove();
    done = 1;
    isRead = true;
  } catch (error) {
    if (!stopping.signal.aborted)
      failure =
        error instanceof ServiceError
          ? wording.wordError(error.reason, error.detail)
          : explainFile(error, wording);
  }
  clearInterval(timer);
  const ending = isRead ? "done" : failure === undefined ? "cancelled" : "failed";
  const found = isComparison ? { differences, different, ids, missing } : {};
  const moved = isComparison ? [ids, different].flatMap((each) => each?.buffer ?? []) : [];
  post({ ...report(), ...found, ending, isUnsure: unanswered > 0, failure }, moved);
}

function toFate(outcome: Outcome<Upserted>): Fate {
  if (outcome === "created" || outcome === "replayed") return outcome;
  if (typeof outcome === "string") return "updated";
  const { reason, message } = outcome;
  // The stored plant differs, and stays as it is.
  if (reason === "id_taken") return "kept";
  const isSince = reason === "precondition_failed";
  return {
    message: isSince ? wording.say("changedMeanwhile") : wording.wordError(reason, message),
  };
}

/** The plants that were sent and have no result. */
let unanswered = 0;

function* count<Item>(items: readonly Item[]): Generator<Item> {
  for (const each of items) {
    unanswered++;
    yield each;
  }
}
