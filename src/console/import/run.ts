/** One import: reads the file, sends its plants in batches, and counts the results. */

import { Refusal } from "../../domain/errors.ts";
import type { Plant } from "../../domain/plant.ts";
import { MissingColumn } from "../../format/csv.ts";
import type { PlantRecord } from "../../format/plants.ts";
import { MalformedFile } from "../../format/records.ts";
import { type Ending, type Progress, type Reading, type Refused, UNREADABLE } from "./messages.ts";
import { BLOCK_LENGTH_MAX, readChunks, readRecords } from "./records.ts";
import { type Outcome, SendingFailed, sendPlants, TokenRefused } from "./send.ts";

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
  private waiting = 0;

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
      isWaiting: this.waiting > 0,
      firstRefused: this.refusedRows.first,
    };
  }

  get refused(): Blob {
    return this.refusedRows.toBlob();
  }

  async perform(): Promise<Ending> {
    const stopper = new AbortController();
    const signal = AbortSignal.any([this.job.signal, stopper.signal]);
    const pending = new Set<Promise<void>>();
    let failure: { readonly error: unknown } | undefined;
    const settle = async (isOver: () => boolean): Promise<void> => {
      while (!isOver()) await Promise.race(pending);
      if (failure !== undefined) throw failure.error;
    };
    try {
      for await (const batch of this.readBatches(signal)) {
        const sent = this.send(batch, signal)
          .catch((error: unknown) => {
            failure ??= { error };
          })
          .finally(() => pending.delete(sent));
        pending.add(sent);
        await settle(() => pending.size < REQUESTS_MAX);
      }
      await settle(() => pending.size === 0);
      this.bytesDone = this.job.file.size;
      return { kind: "done" };
    } catch (error) {
      // A fault in the file does not stop the batches before it.
      if (!isSendingFault(error)) await Promise.all(pending);
      stopper.abort();
      return this.job.signal.aborted ? { kind: "cancelled" } : toEnding(error);
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

  private async send({ records, bytesRead }: Batch, signal: AbortSignal): Promise<void> {
    const good = records.filter(({ plant }) => !(plant instanceof Refusal));
    const outcomes = await sendPlants(
      good.map(({ plant }) => plant as Plant),
      {
        ...this.job,
        signal,
        onWaiting: (isWaiting) => {
          this.waiting += isWaiting ? 1 : -1;
        },
      },
    );
    const byRecord = new Map<PlantRecord, Outcome>();
    for (const [index, record] of good.entries()) byRecord.set(record, outcomes[index] as Outcome);
    for (const record of records) this.note(record, byRecord.get(record));
    this.bytesDone = Math.max(this.bytesDone, bytesRead);
  }

  private note(record: PlantRecord, outcome: Outcome | undefined): void {
    if (outcome === "created") this.created++;
    else if (outcome === "replayed") this.replayed++;
    else this.refusedRows.add(record, outcome?.reason ?? (record.plant as Refusal).message);
  }
}

const isSendingFault = (error: unknown): boolean =>
  error instanceof TokenRefused || error instanceof SendingFailed;

function toEnding(error: unknown): Ending {
  if (error instanceof TokenRefused) return { kind: "token", isExpired: error.isExpired };
  const isKnown =
    error instanceof SendingFailed ||
    error instanceof MalformedFile ||
    error instanceof MissingColumn;
  return { kind: "failed", message: isKnown ? error.message : UNREADABLE };
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
