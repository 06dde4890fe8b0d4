/** The import worker keeps large files off the page's thread. */

import {
  Client,
  type Outcome,
  type Refused,
  ServiceError,
  type Upsert,
  type Upserted,
} from "../../client/client.ts";
import { Refusal } from "../../src/domain/errors.ts";
import { INT64_MAX, INT64_MIN } from "../../src/domain/json.ts";
import { isSame, type Plant } from "../../src/domain/plant.ts";
import { createRejectsFormat, type PlantRecord, type Rejected } from "../../src/format/plants.ts";
import { etagOf } from "../api/etag.ts";
import {
  CANCEL,
  createAlong,
  type Difference,
  DIFFERENCES_SHOWN,
  type Import,
  type ImportRequest,
  type Preview,
  type Progress,
  type RowOutcome,
} from "./messages.ts";
import {
  explainFile,
  position,
  previewFile,
  readRecords,
  ROWS_SHOWN,
  Unreadable,
} from "./preview.ts";
import { createWording, type Wording } from "./reasons.ts";

const PROGRESS_MS = 150;
const SHOWN_MAX = 200;
const SHOWN_CHARACTERS_MAX = 120;

/**
 * Rows whose ids are known, at about 160 bytes each. A comparison ends there, and the page says so. After it, the service
 * recognises a repeated id, but does not know the rows.
 */
const FIRSTS_MAX = 1_000_000;
const MISSING_MAX = 100_000;
const PAGE_LENGTH_MAX = 1000;

const post = (change: Partial<Import>): void => postMessage(change);
const stopping = new AbortController();
/** Of the only task. */
let wording: Wording;

addEventListener("message", ({ data }: MessageEvent<ImportRequest | typeof CANCEL>) => {
  if (data === CANCEL) stopping.abort();
  else {
    wording = createWording(data.texts);
    void (data.updates === undefined ? show(data) : run(data));
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

/** The outcome for a plant, or the one that an import would have. */
interface Result {
  readonly plant: Plant;
  readonly outcome: Exclude<RowOutcome, "refused"> | Pick<Refused, "message">;
}

/** The first row with an id counts. A later one is recognised if it is the same, and refused if it differs. */
interface First {
  readonly line: number;
  /** The entity tag. Known to a comparison, and to an import if the stored plant differs from it. */
  content?: string;
  isUpdated?: boolean;
  isRefused?: boolean;
}

const refuseTwice = (first: First, { line }: Row): Pick<Refused, "message"> => ({
  message: wording.say("twice", { first: String(first.line), second: String(line) }),
});

/** Reads the file block by block, compares or stores its plants, and counts the results. */
async function run({
  file,
  reading,
  updates,
  isWhole = false,
  missing: removals = [],
  batch,
  url,
  token = "",
  limits,
}: ImportRequest): Promise<void> {
  if (reading === undefined) return;
  const differences: Difference[] = [];
  const different = new Map<bigint, string>();
  const missing: Plant[] = [];
  let isTooMuch = false;
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
  const client = new Client(url, token, {
    retriesMax: Number.POSITIVE_INFINITY,
    onRetry: () => {
      isWaiting = true;
    },
  });
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

  const settle = async (records: readonly PlantRecord[]): Promise<void> => {
    const outcomes = new Map<PlantRecord["plant"], Result["outcome"]>();
    const sound: Row[] = [];
    for (const { line, plant } of records)
      if (plant instanceof Refusal) {
        const isNameless = plant.faults.every(({ name }) => name === "nameMissing");
        if (plant.faults.length > 0 && isNameless) counts.nameless++;
        outcomes.set(plant, { message: wording.word(plant) });
      } else sound.push({ line, plant });
    const results =
      updates === undefined
        ? compare(client, sound, firsts, (difference) => {
            const { stored } = difference;
            different.set(stored.id, etagOf(stored));
            if (differences.length < DIFFERENCES_SHOWN) differences.push(difference);
          })
        : store(client, sound, firsts, updates, batch);
    try {
      for await (const { plant, outcome } of results) {
        isWaiting = false;
        outcomes.set(plant, outcome);
        if (typeof outcome === "string") counts[outcome]++;
      }
    } finally {
      const rejected: Rejected[] = [];
      for (const { line, text, plant } of records) {
        const outcome = outcomes.get(plant);
        if (outcome === undefined) continue;
        const isRefused = typeof outcome !== "string";
        along.add(line, isRefused);
        if (isRefused) rejected.push({ line, text, reason: outcome.message });
        if (rows.length < ROWS_SHOWN)
          rows.push(
            isRefused
              ? { line, plant: outcome.message, outcome: "refused" }
              : { line, plant: plant as Plant, outcome },
          );
      }
      counts.refused += rejected.length;
      for (const { line, reason, text = "" } of rejected.slice(0, SHOWN_MAX - firstRefused.length))
        firstRefused.push({ line, reason, text: text.slice(0, SHOWN_CHARACTERS_MAX) });
      if (rejected.length > 0) rejects.push(new Blob([format.add(rejected)]));
    }
  };

  const timer = setInterval(() => post(report()), PROGRESS_MS);
  let failure: string | undefined;
  try {
    for await (const records of readRecords(file, reading, limits, format.onHeading)) {
      if (firsts.size >= FIRSTS_MAX && updates === undefined)
        throw new Unreadable(wording.say("comparisonLimit"));
      stopping.signal.throwIfAborted();
      await settle(records);
      counts.counted += records.length;
      done = position.share;
    }
    if (isWhole && updates === undefined)
      for await (const plants of client.exportBlocks({}, { signal: stopping.signal })) {
        const lacking = plants.filter(({ id }) => !firsts.has(id));
        counts.removed += lacking.length;
        isTooMuch = counts.removed > MISSING_MAX;
        if (!isTooMuch) missing.push(...lacking);
      }
    // A file with a fault is not the whole truth.
    if (counts.refused === 0)
      for await (const { plant, outcome } of remove(client, removals, batch)) {
        if (outcome === "removed") counts.removed++;
        else if (typeof outcome !== "string") {
          counts.refused++;
          firstRefused.push({ line: 0, reason: outcome.message, text: String(plant.id) });
        }
      }
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
  const found = updates === undefined ? { differences, different, missing, isTooMuch } : {};
  post({ ...report(), ...found, ending, isUnsure: unanswered > 0, failure });
}

async function* compare(
  client: Client,
  rows: readonly Row[],
  firsts: Map<bigint, First>,
  onDifference: (difference: Difference) => void,
): AsyncGenerator<Result> {
  const found = await findStored(rows, client);
  for (const row of rows) {
    const { plant, line } = row;
    const first = firsts.get(plant.id);
    const content = etagOf(plant);
    if (first?.content !== undefined) {
      const again = first.isUpdated === true ? "updatedAgain" : "replayed";
      yield { plant, outcome: first.content === content ? again : refuseTwice(first, row) };
      continue;
    }
    const stored = found.get(plant.id);
    const isUpdated = stored !== undefined && !isSame(plant, stored);
    if (isUpdated) onDifference({ stored, given: plant });
    firsts.set(plant.id, { line, content, isUpdated });
    yield { plant, outcome: stored === undefined ? "created" : isUpdated ? "updated" : "replayed" };
  }
}

/** Reads the stored plants in pages, large where the ids are dense and small where they are sparse. */
async function findStored(
  rows: readonly Row[],
  client: Client,
): Promise<ReadonlyMap<bigint, Plant>> {
  const ids = rows.map(({ plant }) => plant.id).toSorted((one, other) => (one < other ? -1 : 1));
  const found = new Map<bigint, Plant>();
  let limit = 100;
  for (let at = 0; at < ids.length;) {
    const first = ids[at] as bigint;
    const after = first === INT64_MIN ? undefined : first - 1n;
    const { plants, next } = await client.listPage({ after, limit });
    for (const plant of plants) found.set(plant.id, plant);
    const last = next ?? INT64_MAX;
    const end = ids.findIndex((id, index) => index >= at && id > last);
    const passed = (end === -1 ? ids.length : end) - at;
    at += passed;
    limit = Math.max(1, Math.min(PAGE_LENGTH_MAX, passed > limit / 4 ? limit * 4 : limit >> 2));
  }
  return found;
}

/** Creates the plants, and updates those that are still as the comparison found them. Then it judges the repeated ids. */
async function* store(
  client: Client,
  rows: readonly Row[],
  firsts: Map<bigint, First>,
  updates: ReadonlyMap<bigint, string>,
  batch: string | undefined,
): AsyncGenerator<Result> {
  const plants: Plant[] = [];
  const changes: (Plant & { readonly ifMatch: string })[] = [];
  const repeats: Row[] = [];
  for (const row of rows) {
    const { plant, line } = row;
    const ifMatch = updates.get(plant.id);
    if (firsts.has(plant.id)) repeats.push(row);
    else {
      if (ifMatch === undefined) plants.push(plant);
      else changes.push(Object.assign(plant, { ifMatch }));
      if (firsts.size < FIRSTS_MAX) firsts.set(plant.id, { line });
    }
  }
  const note = (plant: Plant, outcome: Result["outcome"]): Result => {
    const first = firsts.get(plant.id);
    if (first !== undefined) {
      first.isRefused = typeof outcome !== "string" || outcome === "kept";
      if (outcome === "kept") first.content = etagOf(plant);
    }
    return { plant, outcome };
  };
  for await (const { plant, outcome } of create(client, plants, batch))
    yield note(plant, orKept(outcome));
  for await (const { plant, outcome } of upsert(client, changes, batch))
    yield note(plant, toResult(outcome));
  const again = repeats.map(({ plant }) => plant);
  for await (const { index, plant, outcome } of create(client, again, batch)) {
    const first = firsts.get(plant.id) as First;
    // The store has this plant, and the first row differs from it; or the other way round.
    const isContrary =
      outcome !== "created" &&
      ((outcome === "replayed") === first.isRefused ||
        (first.content !== undefined && first.content !== etagOf(plant)));
    yield {
      plant,
      outcome: isContrary ? refuseTwice(first, repeats[index] as Row) : orKept(outcome),
    };
  }
}

/** The stored plant differs, and stays as it is. */
const orKept = (outcome: Outcome): Result["outcome"] =>
  typeof outcome === "string" ? outcome : outcome.reason === "id_taken" ? "kept" : refuse(outcome);

const refuse = ({ reason, message }: Refused): Pick<Refused, "message"> => ({
  message: wording.wordError(reason, message),
});

function toResult(outcome: Outcome<Upserted>): Result["outcome"] {
  if (typeof outcome !== "string")
    return outcome.reason === "precondition_failed"
      ? { message: wording.say("changedMeanwhile") }
      : refuse(outcome);
  return outcome === "created" || outcome === "replayed" ? outcome : "updated";
}

/** The plants that were sent and have no result. */
let unanswered = 0;

/** A cancelled import waits for the request in flight, because its plants may be stored. */
async function* track<Item, Settled>(
  items: readonly Item[],
  send: (items: Iterable<Item>) => AsyncIterable<Settled>,
): AsyncGenerator<Settled> {
  const count = function* (): Generator<Item> {
    for (const each of items) {
      unanswered++;
      yield each;
    }
  };
  for await (const settled of send(count())) {
    unanswered--;
    yield settled;
  }
}

const create = (client: Client, plants: readonly Plant[], batch: string | undefined) =>
  track(plants, (items) => client.createAll(items, { batch, signal: stopping.signal }));

const upsert = <Item extends Upsert>(
  client: Client,
  writes: readonly Item[],
  batch: string | undefined,
) => track(writes, (items) => client.upsertAll(items, { batch, signal: stopping.signal }));

/** Plants that were changed since the comparison are left alone. */
async function* remove(client: Client, plants: readonly Plant[], batch: string | undefined) {
  const removals = plants.map((plant) => ({
    id: plant.id,
    removed: true as const,
    ifMatch: etagOf(plant),
  }));
  for await (const { plant, outcome } of upsert(client, removals, batch))
    yield { plant, outcome: outcome === "removed" ? outcome : toResult(outcome) };
}
