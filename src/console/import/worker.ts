/** The import worker: a large file does not block the page. */

import { Client, type RetryOptions, ServiceError } from "../../../client/client.ts";
import { catalogue, Refusal } from "../../domain/errors.ts";
import type { Plant } from "../../domain/plant.ts";
import { type PlantRecord, RejectsFormat } from "../../format/plants.ts";
import { MalformedFile } from "../../format/records.ts";
import { compare, isSame } from "./compare.ts";
import {
  type Ending,
  type FromWorker,
  type Job,
  listMissing,
  nothingYet,
  type Progress,
  toFormat,
  type ToWorker,
  UNREADABLE,
} from "./messages.ts";
import { previewFile, readRecords } from "./preview.ts";

const PROGRESS_MS = 150;
const REQUESTS_MAX = 2;
const SHOWN_MAX = 200;
const SHOWN_CHARACTERS_MAX = 120;

const ID_TAKEN = catalogue.id_taken.code;

const cancelling = new AbortController();

const post = (message: FromWorker): void => postMessage(message);

addEventListener("message", ({ data }: MessageEvent<ToWorker>) => {
  if (data.to === "cancel") cancelling.abort();
  else if (data.to === "run") void run(data);
  else void show(data);
});

// The page's error event does not cover rejections.
addEventListener("unhandledrejection", () => post({ is: "broken" }));

/** The first rows at once, and then how the file compares to the store. */
async function show({ file, reading, url, token }: ToWorker & { to: "preview" }): Promise<void> {
  const preview = await previewFile(file, reading);
  post({ is: "preview", preview });
  const isReadable = preview.rows.length > 0 && listMissing(preview.reading).length === 0;
  if (token === undefined || !isReadable) return;
  let postedAtMs = 0;
  for await (const comparison of compare(file, preview.reading, new Client(url, token))) {
    if (comparison.end === undefined && performance.now() - postedAtMs < PROGRESS_MS) continue;
    postedAtMs = performance.now();
    post({ is: "comparison", comparison });
  }
}

const CHANGED = "The plant was changed since it was compared. Nothing was overwritten.";

/** Reads the file, sends its plants in batches, and counts the results. */
async function run({ file, reading, updates, url, token }: Job): Promise<void> {
  const { signal } = cancelling;
  const client = new Client(url, token);
  const rejects = new RejectsFormat(toFormat(reading));
  const compared = new Map(updates.map(({ stored }) => [stored.id, stored]));
  /** The browser may move blobs to disk. */
  const refused: Blob[] = [];
  /** The batches that wait because the store is busy or does not answer. */
  const waiting = new Set<readonly PlantRecord[]>();
  const startedAtMs = performance.now();
  const progress = { ...nothingYet, firstRefused: [] as Progress["firstRefused"] };

  /** Why the plant was not updated, if it was not. */
  const update = async (plant: Plant, retrying: RetryOptions): Promise<string | undefined> => {
    try {
      const { plant: stored, etag } = await client.get(plant.id, retrying);
      if (!isSame(stored, compared.get(plant.id))) return CHANGED;
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
      onRetry: () => waiting.add(records),
      retriesMax: Number.POSITIVE_INFINITY,
    };
    try {
      await client.createBatch(
        good.map(({ plant }) => plant as Plant),
        (index, outcome) => {
          waiting.delete(records);
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
        waiting.delete(records);
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
    isWaiting: waiting.size > 0,
    seconds: (performance.now() - startedAtMs) / 1000,
  });
  const timer = setInterval(() => post({ is: "progress", progress: report() }), PROGRESS_MS);
  const ending = await sendAll();
  clearInterval(timer);
  post({ is: "end", progress: report(), ending, refused: new Blob([...refused, rejects.end()]) });
}

function toEnding(error: unknown): Ending {
  if (error instanceof ServiceError && error.status === 401)
    return { kind: "token", isExpired: error.code === catalogue.token_expired.code };
  if (error instanceof ServiceError) return { kind: "failed", message: error.detail };
  return { kind: "failed", message: error instanceof MalformedFile ? error.message : UNREADABLE };
}
