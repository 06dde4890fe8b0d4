/** The import worker: a large file does not block the page. To cancel it, the page terminates it. */

import { Client, ServiceError } from "../../../client/client.ts";
import { Refusal } from "../../domain/errors.ts";
import { INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import { isSame, type Plant } from "../../domain/plant.ts";
import { createRejectsFormat, type PlantRecord } from "../../format/plants.ts";
import {
  type Comparison,
  type Difference,
  type Ending,
  type Import,
  type Order,
  type Progress,
  type Reading,
} from "./messages.ts";
import { explainFile, position, previewFile, readRecords } from "./preview.ts";

const PROGRESS_MS = 150;
const SHOWN_MAX = 200;
const SHOWN_CHARACTERS_MAX = 120;

/** More than these are not compared, and the page says so. */
const ROWS_MAX = 200_000;
const DIFFERENCES_MAX = 10_000;
const PAGE_LENGTH_MAX = 1000;

const post = (change: Partial<Import>): void => postMessage(change);

addEventListener("message", ({ data }: MessageEvent<Order>) => {
  void (data.updates === undefined ? show(data) : run(data));
});

/** The first rows at once, and then how the file compares to the store. */
async function show({ file, reading, url, token }: Order): Promise<void> {
  const preview = await previewFile(file, reading);
  const canCompare = token !== undefined && preview.rows.length > 0;
  post({ preview, isReading: false, comparing: canCompare ? 0 : undefined });
  if (!canCompare) return;
  const timer = setInterval(() => post({ comparing: position.share }), PROGRESS_MS);
  const comparison = await compare(file, preview.reading, new Client(url, token));
  clearInterval(timer);
  post({ comparison, comparing: undefined });
}

/** Reads the whole file, block by block. */
async function compare(file: File, reading: Reading, client: Client): Promise<Comparison> {
  const differences: Difference[] = [];
  const result = { rows: 0, created: 0, same: 0, refused: 0, differences, isComplete: false };
  try {
    for await (const records of readRecords(file, reading)) {
      if (result.rows >= ROWS_MAX || differences.length >= DIFFERENCES_MAX) return result;
      const given = records.flatMap(({ plant }) => (plant instanceof Refusal ? [] : [plant]));
      const stored = await findStored(given, client);
      result.rows += records.length;
      result.refused += records.length - given.length;
      for (const plant of given) {
        const found = stored.get(plant.id);
        if (found === undefined) result.created++;
        else if (isSame(plant, found)) result.same++;
        else differences.push({ stored: found, given: plant });
      }
    }
    result.isComplete = true;
  } catch {
    // The import itself says what is wrong with the file or the store.
  }
  return result;
}

/** Walks over the ids in pages: where ids are dense they share large ones, and where they are sparse each has a small one. */
async function findStored(
  given: readonly Plant[],
  client: Client,
): Promise<ReadonlyMap<bigint, Plant>> {
  const ids = given.map(({ id }) => id).toSorted((one, other) => (one < other ? -1 : 1));
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

/** Reads the file, sends its plants block by block, and counts the results. */
async function run({ file, reading, updates = [], url, token = "" }: Order): Promise<void> {
  if (reading === undefined) return;
  const compared = new Map(updates.map(({ stored }) => [stored.id, stored]));
  const counts = { created: 0, updated: 0, replayed: 0, refused: 0 };
  const firstRefused: Progress["firstRefused"][number][] = [];
  const format = createRejectsFormat(reading);
  /** The browser may move blobs to disk. */
  const rejects: Blob[] = [];
  let done = 0;
  let isWaiting = false;
  const client = new Client(url, token, {
    retriesMax: Number.POSITIVE_INFINITY,
    onRetry: () => {
      isWaiting = true;
    },
  });
  const startedAtMs = performance.now();
  const report = (): Progress => ({
    ...counts,
    done,
    seconds: (performance.now() - startedAtMs) / 1000,
    isWaiting,
    firstRefused,
    rejects: new Blob([...rejects, format.end()]),
  });

  const send = async (records: readonly PlantRecord[]): Promise<void> => {
    const reasons = new Map<PlantRecord["plant"], string>();
    const plants: Plant[] = [];
    try {
      for (const { plant } of records) {
        if (plant instanceof Refusal) reasons.set(plant, plant.message);
        else if (await update(client, compared.get(plant.id), plant)) {
          counts.updated++;
          isWaiting = false;
          // A further row of the file is not taken for what the person has seen.
          compared.delete(plant.id);
        } else plants.push(plant);
      }
      for await (const { plant, outcome } of client.createAll(plants)) {
        isWaiting = false;
        if (typeof outcome === "string") counts[outcome]++;
        else {
          const hasChanged = outcome.reason === "id_taken" && compared.has(plant.id);
          reasons.set(plant, hasChanged ? CHANGED : outcome.message);
        }
      }
    } finally {
      const rejected = records.flatMap((record) => {
        const reason = reasons.get(record.plant);
        return reason === undefined ? [] : [{ ...record, reason }];
      });
      counts.refused += rejected.length;
      for (const { line, reason, text = "" } of rejected.slice(0, SHOWN_MAX - firstRefused.length))
        firstRefused.push({ line, reason, text: text.slice(0, SHOWN_CHARACTERS_MAX) });
      if (rejected.length > 0) rejects.push(new Blob([format.add(rejected)]));
    }
  };

  const timer = setInterval(() => post({ progress: report() }), PROGRESS_MS);
  let ending: Ending = { kind: "done" };
  try {
    for await (const records of readRecords(file, reading, format.onHeading)) {
      await send(records);
      done = position.share;
    }
    done = 1;
  } catch (error) {
    ending = toEnding(error);
  }
  clearInterval(timer);
  post({ progress: report(), ending });
}

const CHANGED = "The plant was changed since it was compared. Nothing was overwritten.";

/** Whether the plant was as expected, and is replaced. */
async function update(client: Client, expected: Plant | undefined, plant: Plant): Promise<boolean> {
  try {
    if (expected === undefined) return false;
    const { plant: stored, etag } = await client.get(plant.id);
    if (!isSame(stored, expected)) return false;
    await client.replace(plant, { ifMatch: etag });
    return true;
  } catch (error) {
    if (error instanceof ServiceError && [404, 412].includes(error.status)) return false;
    throw error;
  }
}

function toEnding(error: unknown): Ending {
  if (!(error instanceof ServiceError)) return { kind: "failed", message: explainFile(error) };
  if (error.status !== 401) return { kind: "failed", message: error.detail };
  return { kind: error.reason === "token_expired" ? "expired" : "refused" };
}
