/** The import worker keeps large files off the page's thread, and their plants out of memory. */

import {
  Client,
  type Outcome,
  type Removal,
  ServiceError,
  type Upserted,
} from "../../client/client.ts";
import { Refusal } from "../../src/domain/errors.ts";
import { isSame, type Plant } from "../../src/domain/plant.ts";
import type { PlantRecord } from "../../src/format/plants.ts";
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
  type Difference,
  DIFFERENCES_SHOWN,
  type Import,
  type ImportRequest,
  type Reading,
} from "./messages.ts";
import { explainFile, position, previewFile, readRecords } from "./preview.ts";
import { createWording, type Wording } from "./reasons.ts";
import { createTally, type Fate, type Fates } from "./tally.ts";

const PROGRESS_MS = 150;
/** The share of the progress for reading the ids. */
const IDS_SHARE = 0.1;
const MISSING_MAX = 100_000;

const post = (change: Partial<Import>): void => postMessage(change);
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

interface Row extends PlantRecord {
  readonly plant: Plant;
}

const isRow = (record: PlantRecord): record is Row => !(record.plant instanceof Refusal);

/** The first row of an id that the file repeats. It counts: a later one is recognised if it is the same, and refused if it differs. */
interface First extends Pick<Row, "line" | "plant"> {
  fate?: Fate;
}

/** What the file as a whole is at fault of, the second reading says. */
async function readIds(
  { file, reading, limits }: ImportRequest,
  onShare: (share: number) => void,
): Promise<Ids> {
  const blocks: Ids[] = [];
  try {
    for await (const records of readRecords(file, reading as Reading, limits)) {
      stopping.signal.throwIfAborted();
      blocks.push(BigInt64Array.from(records.filter(isRow), ({ plant }) => plant.id));
      onShare(position.share);
    }
  } catch {
    stopping.signal.throwIfAborted();
  }
  return joinIds(blocks);
}

/**
 * Not every browser notices that a file was changed since it was chosen. Plants that another reading lacked may be in it
 * now, and would be removed.
 */
class OtherFile extends Error {}

/** What a comparison finds in the store. */
interface Found {
  readonly differences: Difference[];
  different?: Etags;
}

/** Reads the file block by block, compares or stores its plants, and counts the results. */
async function run(order: ImportRequest): Promise<void> {
  const { file, reading, isWhole = false, missing: removed = [], batch, limits } = order;
  if (reading === undefined) return;
  const isComparison = batch === undefined;
  const tally = createTally(reading, wording);
  const { counts } = tally;
  const found: Found = { differences: [] };
  const missing: Plant[] = [];
  let ids: Ids = new BigInt64Array();
  let done = 0;
  let isRead = false;
  let isWaiting = false;
  const client = new Client(order.url, order.token ?? "", {
    retriesMax: Number.POSITIVE_INFINITY,
    onRetry: () => {
      isWaiting = true;
    },
  });
  const startedAtMs = performance.now();
  const report = (): Partial<Import> => ({
    ...tally.read(isRead),
    done,
    seconds: (performance.now() - startedAtMs) / 1000,
    isWaiting,
  });
  const timer = setInterval(() => post(report()), PROGRESS_MS);
  let failure: string | undefined;
  try {
    ids = order.ids ?? (await readIds(order, (share) => (done = share * IDS_SHARE)));
    const send = createSend(order, client, ids, found);
    const judge = createJudge(ids, send);
    const begun = done;
    let read = 0;
    for await (const records of readRecords(file, reading, limits, tally.onHeading)) {
      stopping.signal.throwIfAborted();
      const rows = records.filter(isRow);
      read += rows.length;
      if (rows.some(({ plant }) => findPlace(ids, plant.id) === -1)) throw new OtherFile();
      const fates: Fates = new Map();
      try {
        await judge(rows, (plant, fate) => {
          isWaiting = false;
          fates.set(plant, fate);
        });
      } finally {
        tally.add(records, fates);
      }
      counts.counted += records.length;
      done = begun + (1 - begun) * position.share;
    }
    if (read !== ids.length) throw new OtherFile();
    if (isWhole && isComparison)
      for await (const plants of client.exportBlocks({}, { signal: stopping.signal })) {
        const lacking = plants.filter(({ id }) => findPlace(ids, id) === -1);
        counts.removed += lacking.length;
        if (counts.removed <= MISSING_MAX) missing.push(...lacking);
      }
    const removals = removed.map((plant) => ({
      id: plant.id,
      removed: true as const,
      ifMatch: etagOf(plant),
    }));
    // A file with a fault is not the whole truth.
    if (!isComparison && counts.refused === 0) await send(removals, tally.addRemoval);
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
  const compared = isComparison ? { ...found, ids, missing } : {};
  post({ ...report(), ...compared, ending, isUnsure: unanswered > 0, failure });
}

type Settle = (plant: Pick<Plant, "id">, fate: Fate) => void;
type Send = (writes: readonly (Plant | Removal)[], settle: Settle) => Promise<void>;

/** Compares plants; or creates them, and changes and removes those that are still as the comparison found them. */
const createSend =
  ({ updates, batch }: ImportRequest, client: Client, ids: Ids, found: Found): Send =>
  async (writes, settle) => {
    const isComparison = batch === undefined;
    const options = { batch, dryRun: isComparison || undefined, signal: stopping.signal };
    const creates: Plant[] = [];
    const changes: (Plant | Removal)[] = [];
    for (const plant of writes) {
      const ifMatch = updates && findEtag(updates, findPlace(ids, plant.id));
      if ("removed" in plant || isComparison) changes.push(plant);
      else if (ifMatch === undefined) creates.push(plant);
      else changes.push(Object.assign(plant, { ifMatch }));
    }
    for await (const { plant, outcome } of client.createAll(count(creates), options)) {
      unanswered--;
      settle(plant, toFate(outcome));
    }
    for await (const { plant, outcome, now } of client.upsertAll(count(changes), options)) {
      unanswered--;
      if (now !== undefined) {
        const stored = { id: plant.id, ...now };
        setEtag((found.different ??= createEtags(ids)), findPlace(ids, plant.id), stored);
        if (found.differences.length < DIFFERENCES_SHOWN)
          found.differences.push({ stored, given: plant as Plant });
      }
      settle(plant, toFate(outcome));
    }
  };

/** Sends the first row of each id, and judges the others by it. */
function createJudge(ids: Ids, send: Send) {
  const repeated = listRepeated(ids);
  const firsts = new Map<bigint, First>();
  const judgeAgain = ({ line, plant }: Row, first: First): Fate | undefined => {
    const lines = { first: String(first.line), second: String(line) };
    if (!isSame(first.plant, plant)) return { message: wording.say("twice", lines) };
    if (first.fate === "updated") return "updatedAgain";
    return first.fate === "created" ? "replayed" : first.fate;
  };
  return async (rows: readonly Row[], settle: Settle): Promise<void> => {
    const begun: Plant[] = [];
    const repeats: (readonly [Row, First])[] = [];
    for (const row of rows) {
      const { line, plant } = row;
      const first = firsts.get(plant.id);
      if (first !== undefined) repeats.push([row, first]);
      else begun.push(plant);
      if (repeated.has(plant.id) && first === undefined) firsts.set(plant.id, { line, plant });
    }
    await send(begun, (plant, fate) => {
      const first = firsts.get(plant.id);
      if (first !== undefined) first.fate = fate;
      settle(plant, fate);
    });
    for (const [row, first] of repeats) {
      const fate = judgeAgain(row, first);
      if (fate !== undefined) settle(row.plant, fate);
    }
  };
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
