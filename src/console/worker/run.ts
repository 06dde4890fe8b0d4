/** An import from its first byte to its last, with at most two requests on their way. */

import { Refusal } from "../../domain/errors.ts";
import type { Plant } from "../../domain/plant.ts";
import { MalformedFile, MissingColumn } from "../../format/malformed.ts";
import type { PlantRecord } from "../../format/read-plants.ts";
import { readChunks } from "./chunks.ts";
import { type Ending, type Progress, type Reading, UNREADABLE } from "./messages.ts";
import { BLOCK_LENGTH_MAX, readRecords } from "./records.ts";
import { RefusedLines } from "./refused-lines.ts";
import { type Outcome, SendingFailed, sendPlants, TokenRefused } from "./send.ts";

const REQUESTS_MAX = 2;
/** Of texts in one request: long names make shorter blocks. */
const BLOCK_CHARACTERS_MAX = 1_000_000;

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
  private readonly refusedLines = new RefusedLines();
  private created = 0;
  private replayed = 0;
  private bytesDone = 0;
  private heldUp = 0;

  constructor(job: Job) {
    this.job = job;
  }

  get progress(): Progress {
    return {
      created: this.created,
      replayed: this.replayed,
      refused: this.refusedLines.count,
      bytesDone: this.bytesDone,
      seconds: (performance.now() - this.startedAtMs) / 1000,
      isHeldUp: this.heldUp > 0,
      firstRefused: this.refusedLines.first,
    };
  }

  get refused(): Blob {
    return this.refusedLines.toBlob();
  }

  async perform(): Promise<Ending> {
    const stopper = new AbortController();
    const signal = AbortSignal.any([this.job.signal, stopper.signal]);
    const onTheWay = new Set<Promise<void>>();
    let failure: { readonly error: unknown } | undefined;
    const settle = async (isOver: () => boolean): Promise<void> => {
      while (!isOver()) await Promise.race(onTheWay);
      if (failure !== undefined) throw failure.error;
    };
    try {
      for await (const batch of this.readBatches(signal)) {
        const sent = this.send(batch, signal)
          .catch((error: unknown) => {
            failure ??= { error };
          })
          .finally(() => onTheWay.delete(sent));
        onTheWay.add(sent);
        await settle(() => onTheWay.size < REQUESTS_MAX);
      }
      await settle(() => onTheWay.size === 0);
      this.bytesDone = this.job.file.size;
      return { kind: "done" };
    } catch (error) {
      // What was read before a fault of the file is stored nonetheless.
      if (!isSendingFault(error)) await Promise.all(onTheWay);
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
        if (records.length < BLOCK_LENGTH_MAX && characters < BLOCK_CHARACTERS_MAX) continue;
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
        onHeldUp: (isHeldUp) => {
          this.heldUp += isHeldUp ? 1 : -1;
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
    else this.refusedLines.add(record, outcome?.reason ?? (record.plant as Refusal).message);
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
