/** The import worker: a large file does not block the page. */

import { Client, type RetryOptions, ServiceError } from "../../../client/client.ts";
import { catalogue, Refusal } from "../../domain/errors.ts";
import { INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import { isSame, type Plant } from "../../domain/plant.ts";
import { type PlantRecord, RejectsFormat } from "../../format/plants.ts";
import {
  type Comparison,
  type Difference,
  type Ending,
  type FromWorker,
  listMissing,
  type Progress,
  type Reading,
  type ToWorker,
} from "./messages.ts";
import { explainFile, previewFile, readRecords } from "./preview.ts";

const PROGRESS_MS = 150;
const REQUESTS_MAX = 2;
const SHOWN_MAX = 200;
const SHOWN_CHARACTERS_MAX = 120;

/** More than these are not compared, and the page says so. */
const ROWS_MAX = 200_000;
const DIFFERENCES_MAX = 10_000;
const PAGE_LENGTH_MAX = 1000;

const ID_TAKEN = catalogue.id_taken.code;

const cancelling = new AbortController();

const post = (message: FromWorker): void => postMessage(message);

addEventListener("message", ({ data }: MessageEvent<ToWorker>) => {
  if (data.to === "cancel") cancelling.abort();
  else if (data.to === "run") void run(data);
  else void show(data);
});

// The page's error event does not cover rejections.
addEventListener("unhandledrejection", () => post(undefined));

/** The first rows at once, and then how the file compares to the store. */
async function show({ file, reading, url, token }: ToWorker & { to: "preview" }): Promise<void> {
  const preview = await previewFile(file, reading);
  const isReadable = preview.rows.length > 0 && listMissing(preview.reading).length === 0;
  const canCompare = token !== undefined && isReadable;
  post({ preview, isReading: false, comparing: canCompare ? 0 : undefined });
  if (!canCompare) return;
  const counter = { bytesRead: 0 };
  const report = (): void => post({ comparing: counter.bytesRead / file.size });
  const timer = setInterval(report, PROGRESS_MS);
  const comparison = await compare(file, preview.reading, new Client(url, token), counter);
  clearInterval(timer);
  post({ comparison, comparing: undefined });
}

/** Reads the whole file, block by block. */
async function compare(
  file: File,
  reading: Reading,
  client: Client,
  counter: { bytesRead: number },
): Promise<Comparison> {
  const counts = { created: 0, same: 0, refused: 0 };
  const differences: Difference[] = [];
  let rows = 0;
  try {
    for await (const records of readRecords(file, reading, counter)) {
      if (rows >= ROWS_MAX || differences.length >= DIFFERENCES_MAX)
        return { ...counts, differences, end: "partial" };
      rows += records.length;
      const given = records.flatMap(({ plant }) => (plant instanceof Refusal ? [] : [plant]));
      counts.refused += records.length - given.length;
      const stored = await findStored(given, client);
      for (const plant of given) {
        const found = stored.get(plant.id);
        if (found === undefined) counts.created++;
        else if (isSame(plant, found)) counts.same++;
        else differences.push({ stored: found, given: plant });
      }
    }
    return { ...counts, differences, end: "complete" };
  } catch {
    // The import itself says what is wrong with the file or the store.
    return { ...counts, differences, end: "failed" };
  }
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

const CHANGED = "The plant was changed since it was compared. Nothing was overwritten.";

/** Reads the file, sends its plants in batches, and counts the results. */
async function run(task: ToWorker & { to: "run" }): Promise<void> {
  const { file, reading, updates, url, token } = task;
  const { signal } = cancelling;
  const client = new Client(url, token);
  const rejects = new RejectsFormat(reading);
  const compared = new Map(updates.map(({ stored }) => [stored.id, stored]));
  /** The browser may move blobs to disk. */
  const refused: Blob[] = [];
  const startedAtMs = performance.now();
  const progress = { ...task.progress };

  /** Why the plant was not updated, if it was not. */
  const update = async (plant: Plant, retrying: RetryOptions): Promise<string | undefined> => {
    try {
      const { plant: stored, etag } = await client.get(plant.id, retrying);
      const before = compared.get(plant.id);
      if (before === undefined || !isSame(stored, before)) return CHANGED;
      await client.replace(plant, { ...retrying, ifMatch: etag });
      progress.updated++;
      return undefined;
    } catch (error) {
      if (error instanceof ServiceError && [404, 412].includes(error.status)) return CHANGED;
      throw error;
    }
  };

  const send = async (records: readonly PlantRecord[], bytesRead: number): Promise<void> => {
    const good = records.filter(({ plant }) => !(plant instanceof Refusal));
    const reasons = new Map<PlantRecord, string>();
    for (const record of records)
      if (record.plant instanceof Refusal) reasons.set(record, record.plant.message);
    const taken: PlantRecord[] = [];
    const retrying = {
      signal,
      onRetry: () => {
        progress.isWaiting = true;
      },
      retriesMax: Number.POSITIVE_INFINITY,
    };
    try {
      await client.createBatch(
        good.map(({ plant }) => plant as Plant),
        (index, outcome) => {
          progress.isWaiting = false;
          const record = good[index] as PlantRecord;
          if (typeof outcome === "string") progress[outcome]++;
          else if (outcome.code === ID_TAKEN && compared.has((record.plant as Plant).id))
            taken.push(record);
          else reasons.set(record, outcome.message);
        },
        retrying,
      );
      for (const record of taken) {
        const reason = await update(record.plant as Plant, retrying);
        progress.isWaiting = false;
        if (reason !== undefined) reasons.set(record, reason);
      }
      progress.bytesDone = Math.max(progress.bytesDone, bytesRead);
    } finally {
      const rejected = records.flatMap((record) => {
        const reason = reasons.get(record);
        return reason === undefined ? [] : [{ line: record.line, text: record.text, reason }];
      });
      progress.refused += rejected.length;
      const { firstRefused } = progress;
      for (const { line, reason, text = "" } of rejected.slice(0, SHOWN_MAX - firstRefused.length))
        firstRefused.push({ line, reason, text: text.slice(0, SHOWN_CHARACTERS_MAX) });
      if (rejected.length > 0) refused.push(new Blob([rejects.add(rejected)]));
    }
  };

  const sendAll = async (): Promise<Ending> => {
    const counter = { bytesRead: 0 };
    const blocks = readRecords(file, reading, counter, rejects.onHeading);
    const sending: Promise<void>[] = [];
    try {
      for await (const records of blocks) {
        if (sending.length === REQUESTS_MAX) await sending.shift();
        signal.throwIfAborted();
        const sent = send(records, counter.bytesRead);
        sent.catch(() => undefined);
        sending.push(sent);
      }
      await Promise.all(sending);
      progress.bytesDone = file.size;
      return { kind: "done" };
    } catch (error) {
      const isCancelled = signal.aborted;
      // The other batch ends soon, and still counts what it stored.
      cancelling.abort();
      await Promise.allSettled(sending);
      return isCancelled ? { kind: "cancelled" } : toEnding(error);
    }
  };

  const report = (): Progress => ({
    ...progress,
    seconds: (performance.now() - startedAtMs) / 1000,
  });
  const timer = setInterval(() => post({ progress: report() }), PROGRESS_MS);
  const ending = await sendAll();
  clearInterval(timer);
  post({ progress: report(), ending, refused: new Blob([...refused, rejects.end()]) });
}

function toEnding(error: unknown): Ending {
  if (error instanceof ServiceError && error.status === 401)
    return { kind: "token", isExpired: error.code === catalogue.token_expired.code };
  if (error instanceof ServiceError) return { kind: "failed", message: error.detail };
  return { kind: "failed", message: explainFile(error) };
}
