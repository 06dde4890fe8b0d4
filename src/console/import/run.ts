/** One import: reads the file, sends its plants in batches, and counts the results. */

import { Client, type Outcome, ServiceError } from "../../client/client.ts";
import { catalogue, Refusal } from "../../domain/errors.ts";
import type { Plant } from "../../domain/plant.ts";
import type { PlantRecord } from "../../format/plants.ts";
import { MalformedFile } from "../../format/records.ts";
import { type Ending, type Progress, type Reading, type Refused, UNREADABLE } from "./messages.ts";
import { BLOCK_LENGTH_MAX, readChunks, readRecords } from "./records.ts";

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
  private readonly refusedRows = new RefusedRows();
  private created = 0;
  private replayed = 0;
  private bytesDone = 0;
  /** The batches that wait because the store is busy or does not answer. */
  private readonly waiting = new Set<Batch>();

  constructor(job: Job) {
    this.job = job;
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
    for await (const block of readRecords(readChunks(file, this.counter, signal), reading))
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
      await client.createPlants(
        good.map(({ plant }) => plant as Plant),
        settle,
        { signal, onRetry: () => this.waiting.add(batch), retriesMax: Number.POSITIVE_INFINITY },
      );
    } finally {
      for (const record of batch.records) {
        const { plant } = record;
        const reason = plant instanceof Refusal ? plant.message : reasons.get(record);
        if (reason !== undefined) this.refusedRows.add(record, reason);
      }
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
const PIECE_LENGTH = 1000;

/** Keeps the first refused rows for the page, and all of them for a download. */
class RefusedRows {
  count = 0;
  readonly first: Refused[] = [];
  /** The browser may move blobs to disk. */
  private readonly pieces: Blob[] = [];
  private lines: string[] = [];

  add({ line, text = "" }: PlantRecord, reason: string): void {
    this.count++;
    if (this.first.length < SHOWN_MAX)
      this.first.push({ line, reason, text: text.slice(0, SHOWN_CHARACTERS_MAX) });
    this.lines.push(`${line},${quote(reason)},${quote(text)}\r\n`);
    if (this.lines.length < PIECE_LENGTH) return;
    this.pieces.push(new Blob(this.lines));
    this.lines = [];
  }

  toBlob(): Blob {
    return new Blob(["line,reason,text\r\n", ...this.pieces, ...this.lines], { type: "text/csv" });
  }
}

/** As in an export, a text that a spreadsheet would run as a formula gets an apostrophe. */
function quote(text: string): string {
  const harmless = /^'*[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return `"${harmless.replaceAll('"', '""')}"`;
}
