/** One import: reads the file, sends its plants in batches, and counts the results. */

import { Client, type Outcome, ServiceError } from "../../../client/client.ts";
import { catalogue, Refusal } from "../../domain/errors.ts";
import type { Plant } from "../../domain/plant.ts";
import type { PlantRecord } from "../../format/plants.ts";
import { MalformedFile } from "../../format/records.ts";
import { type Rejected, RejectsFormat } from "../../format/rejects.ts";
import { type Ending, type Progress, type Reading, type Refused, UNREADABLE } from "./messages.ts";
import { BLOCK_LENGTH_MAX, formatOf, readChunks, readRecords } from "./records.ts";

const REQUESTS_MAX = 2;
/** Long names make shorter batches. */
const BATCH_CHARACTERS_MAX = 1_000_000;

interface Job {
  readonly file: File;
  readonly reading: Reading;
  readonly url: string;
  readonly token: string;
  readonly signal: AbortSignal;
}

interface Batch {
  readonly records: PlantRecord[];
  readonly bytesRead: number;
}

export class ImportRun {
  private readonly job: Job;
  private readonly counter = { bytesRead: 0 };
  private readonly startedAtMs = performance.now();
  private readonly refusedRows: RefusedRows;
  private created = 0;
  private replayed = 0;
  private bytesDone = 0;
  /** The batches that wait because the store is busy or does not answer. */
  private readonly waiting = new Set<Batch>();

  constructor(job: Job) {
    this.job = job;
    this.refusedRows = new RefusedRows(new RejectsFormat(formatOf(job.reading)));
  }

  get progress(): Progress {
    return {
      created: this.created,
      replayed: this.replayed,
      refused: this.refusedRows.count,
      bytesDone: this.bytesDone,
      seconds: (performance.now() - this.startedAtMs) / 1000,
      isWaiting: this.waiting.size > 0,
      firstRefused: this.refusedRows.first,
    };
  }

  get refused(): Blob {
    return this.refusedRows.toBlob();
  }

  async perform(): Promise<Ending> {
    const stopper = new AbortController();
    const signal = AbortSignal.any([this.job.signal, stopper.signal]);
    const client = new Client(this.job.url, this.job.token);
    const pending = new Set<Promise<void>>();
    let failure: { readonly error: unknown } | undefined;
    const settle = async (isOver: () => boolean): Promise<void> => {
      while (!isOver()) await Promise.race(pending);
      if (failure !== undefined) throw failure.error;
    };
    try {
      for await (const batch of this.readBatches(signal)) {
        const sent = this.send(client, batch, signal)
          .catch((error: unknown) => {
            failure ??= { error };
            stopper.abort();
          })
          .finally(() => pending.delete(sent));
        pending.add(sent);
        await settle(() => pending.size < REQUESTS_MAX);
      }
      await settle(() => pending.size === 0);
      this.bytesDone = this.job.file.size;
      return { kind: "done" };
    } catch (error) {
      // The batches under way still report what they stored.
      await Promise.all(pending);
      return this.job.signal.aborted ? { kind: "cancelled" } : toEnding(failure?.error ?? error);
    }
  }

  private async *readBatches(signal: AbortSignal): AsyncGenerator<Batch> {
    const { file, reading } = this.job;
    let records: PlantRecord[] = [];
    let characters = 0;
    const chunks = readChunks(file, this.counter, signal);
    for await (const block of readRecords(chunks, reading, this.refusedRows.format.onHeading))
      for (const record of block) {
        records.push(record);
        characters += record.text?.length ?? 0;
        if (records.length < BLOCK_LENGTH_MAX && characters < BATCH_CHARACTERS_MAX) continue;
        yield { records, bytesRead: this.counter.bytesRead };
        records = [];
        characters = 0;
      }
    if (records.length > 0) yield { records, bytesRead: this.counter.bytesRead };
  }

  private async send(client: Client, batch: Batch, signal: AbortSignal): Promise<void> {
    const good = batch.records.filter(({ plant }) => !(plant instanceof Refusal));
    const reasons = new Map<PlantRecord, string>();
    const settle = (index: number, outcome: Outcome): void => {
      this.waiting.delete(batch);
      if (outcome === "created") this.created++;
      else if (outcome === "replayed") this.replayed++;
      else reasons.set(good[index] as PlantRecord, outcome.message);
    };
    try {
      await client.createBatch(
        good.map(({ plant }) => plant as Plant),
        settle,
        { signal, onRetry: () => this.waiting.add(batch), retriesMax: Number.POSITIVE_INFINITY },
      );
    } finally {
      this.refusedRows.add(
        batch.records.flatMap((record) => {
          const { line, text, plant } = record;
          const reason = plant instanceof Refusal ? plant.message : reasons.get(record);
          return reason === undefined ? [] : [{ line, text, reason }];
        }),
      );
    }
    this.bytesDone = Math.max(this.bytesDone, batch.bytesRead);
  }
}

function toEnding(error: unknown): Ending {
  if (error instanceof ServiceError && error.status === 401)
    return { kind: "token", isExpired: error.code === catalogue.token_expired.code };
  if (error instanceof ServiceError) return { kind: "failed", message: error.detail };
  return { kind: "failed", message: error instanceof MalformedFile ? error.message : UNREADABLE };
}

const SHOWN_MAX = 200;
const SHOWN_CHARACTERS_MAX = 120;

/** Keeps the first refused rows for the page, and all of them for a download. */
class RefusedRows {
  count = 0;
  readonly first: Refused[] = [];
  readonly format: RejectsFormat;
  /** The browser may move blobs to disk. */
  private readonly pieces: Blob[] = [];

  constructor(format: RejectsFormat) {
    this.format = format;
  }

  add(rejected: readonly Rejected[]): void {
    this.count += rejected.length;
    for (const { line, reason, text = "" } of rejected.slice(0, SHOWN_MAX - this.first.length))
      this.first.push({ line, reason, text: text.slice(0, SHOWN_CHARACTERS_MAX) });
    if (rejected.length > 0) this.pieces.push(new Blob([this.format.add(rejected)]));
  }

  toBlob(): Blob {
    return new Blob([...this.pieces, this.format.end()]);
  }
}
