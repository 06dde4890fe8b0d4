/** Work that the service can finish without its client. */

import { BatchClient, type Refused } from "./batch.ts";
import { formatPairs, quoteIds, type WriteOptions } from "./connection.ts";
import { findJson, findWaitMs, isTransient, nameOf, ServiceError } from "./errors.ts";
import { retry, type RetryOptions, sleep } from "./retry.ts";

export interface Reverted {
  readonly plants: number;
  readonly reverted: number;
  readonly unchanged: number;
  readonly changedSince: number;
  readonly refused: number;
  /** The batch of these writes in the journal. */
  readonly batch: string;
}

/** A plant that was left alone: `precondition_failed` if it was changed since. */
export interface RevertLeft extends Refused {
  readonly id: bigint;
}

/** What was done to all plants that match. */
export interface Bulk {
  readonly plants: number;
  readonly replaced: number;
  readonly removed: number;
  /** Plants that were in that state already. */
  readonly unchanged: number;
  /** Plants that others changed meanwhile. They were left alone. */
  readonly changedSince: number;
  readonly refused: number;
  /** The name of the work in the journal. */
  readonly batch: string;
}

/** The counts of a batch that was a job. */
export interface UpsertedByJob extends Bulk {
  readonly created: number;
}

export interface BulkOptions<Counts> extends WriteOptions {
  /** Called for each plant that was left alone. */
  readonly onLeft?: ((plant: RevertLeft) => void) | undefined;
  /** Called about once a second with the counts so far. */
  readonly onProgress?: ((counts: Counts) => void) | undefined;
  /**
   * The service finishes the work, even without this client: an abort ends only the wait for it, and `stopJob` the work.
   * `onLeft` is called at the end, for at most 100 plants.
   */
  readonly respondAsync?: boolean | undefined;
}

/** Work that the service finishes without its client. */
export interface Job {
  /** The name of the work in the journal. */
  readonly batch: string;
  readonly kind: "change" | "remove" | "revert" | "upsert";
  /** The name of the token. */
  readonly by: string;
  /** `lost`: the service that ran it was killed, or writes no progress. Send the request again to continue. */
  readonly state: "running" | "stopping" | "ended" | "lost";
  /** ISO 8601. */
  readonly started: string;
  /** Counts as in `Bulk` or `Reverted`. If it ended early, `complete` is false, and there is an error. */
  readonly report: Partial<Omit<UpsertedByJob & Reverted, "plants" | "batch">> & {
    readonly plants: number;
    readonly complete: boolean;
    readonly status?: number;
    readonly error?: number;
    readonly message?: string;
  };
  /** The first 100 plants that were left alone. */
  readonly left: readonly RevertLeft[];
}

interface BulkLine {
  readonly id?: string;
  readonly complete?: boolean;
  readonly status?: number;
  readonly error?: number;
  readonly message?: string;
}

/** Undefined if the text is not a line of a report. */
function findBulkLine(text: string): BulkLine | undefined {
  const line = findJson(quoteIds(text));
  return typeof line === "object" && line !== null ? line : undefined;
}

/** Undefined if the text is not an array of jobs. */
function findJobs(json: string): Job[] | undefined {
  const found = findJson(quoteIds(json)) as
    (Omit<Job, "left"> & { left: BulkLine[] })[] | undefined;
  const isJob = (value: unknown): boolean => {
    const { batch, state, report, left } = (value ?? {}) as Partial<Record<keyof Job, unknown>>;
    return (
      typeof batch === "string" &&
      typeof state === "string" &&
      typeof (report as Job["report"] | undefined)?.plants === "number" &&
      Array.isArray(left)
    );
  };
  if (!Array.isArray(found) || !found.every(isJob)) return undefined;
  return found.map((job) => Object.assign({}, job, { left: job.left.map(toLeft) }));
}

/** From a line with an id. */
const toLeft = ({ id = "", error: code = 0, message = "" }: BulkLine): RevertLeft => ({
  id: BigInt(id),
  code,
  reason: nameOf(code),
  message,
});

type BulkRequest = Omit<RequestInit, "headers"> & {
  readonly headers: Readonly<Record<string, string>> & { readonly accept: string };
};

/** The service writes progress every second. Short work ends sooner. */
const FOLLOW_MS_MIN = 100;
const FOLLOW_MS_MAX = 1_000;

export class JobClient extends BatchClient {
  /** Resolves to the counts of the last attempt. */
  protected runBulk<Counts>(path: string, init: BulkRequest, options: BulkOptions<Counts>) {
    const settings = { ...this.options, ...options };
    const attempt = (): Promise<Counts> =>
      settings.respondAsync === true
        ? this.followBulk(path, init, settings)
        : this.readBulk(path, init, settings);
    return retry(attempt, settings, findWaitMs);
  }

  private async readBulk<Counts>(
    path: string,
    init: BulkRequest,
    { onLeft, onProgress, signal }: BulkOptions<Counts>,
  ): Promise<Counts> {
    for await (const lines of this.readLines(path, init, signal))
      for (const text of lines) {
        const line = findBulkLine(text);
        if (line === undefined) throw this.notAPlantStore();
        const { complete, status = 0, error = 0, message = "", ...counts } = line;
        if (line.id !== undefined) onLeft?.(toLeft(line));
        else if (complete === true) return counts as Counts;
        else if (status === 0) onProgress?.(counts as Counts);
        else throw this.explainEnd(status, error, message);
      }
    throw this.explainLoss(new Error("the stream ended"), signal);
  }

  private async followBulk<Counts>(
    path: string,
    { headers, ...init }: BulkRequest,
    options: BulkOptions<Counts>,
  ): Promise<Counts> {
    const { signal } = options;
    const request = {
      ...init,
      headers: { ...headers, prefer: "respond-async" },
      signal: signal ?? null,
    };
    const response = await this.request(path, request);
    const text = await response.text().catch((error: unknown) => {
      throw this.explainLoss(error, signal);
    });
    const [job] = findJobs(`[${text}]`) ?? [];
    if (job === undefined) throw this.notAPlantStore();
    return this.followJob<Counts>(job.batch, options);
  }

  /**
   * Waits for a job, and resolves to its counts. Rejects if it ended early, with `job_stopped` if it was stopped.
   *
   * @operation patchPlants, removePlants, createPlants, revertChanges, listJobs
   * @example
   * const { removed } = await client.followJob<Bulk>("tidy up", {
   *   onProgress: ({ plants }) => console.log(plants), // 0
   * });
   * console.log(removed); // 0
   */
  async followJob<Counts = Bulk | Reverted>(
    batch: string,
    { onLeft, onProgress, ...options }: Omit<BulkOptions<Counts>, "batch" | "respondAsync"> = {},
  ): Promise<Counts> {
    const { signal } = { ...this.options, ...options };
    for (let waitMs = FOLLOW_MS_MIN; ; waitMs = Math.min(2 * waitMs, FOLLOW_MS_MAX)) {
      await sleep(waitMs, signal);
      const job = await this.findJob(batch, options);
      const { complete, status = 0, error = 0, message = "", ...counts } = job?.report ?? {};
      if (job !== undefined) onProgress?.(counts as Counts);
      if (job?.state === "running" || job?.state === "stopping") continue;
      if (job?.state !== "ended")
        throw new ServiceError({
          message: `${this.url}: The service that did the work ended.`,
          isTransient: true,
        });
      for (const plant of job.left) onLeft?.(plant);
      if (complete === true) return counts as Counts;
      throw this.explainEnd(status, error, message);
    }
  }

  private explainEnd(status: number, code: number, detail: string): ServiceError {
    const facts = { status, code, detail, isTransient: isTransient(status, code) };
    return new ServiceError({ message: `${this.url}: ${detail}`, ...facts });
  }

  /**
   * The work that runs, by any token, and what ended before: at most 32, the oldest first.
   *
   * @operation listJobs
   * @example
   * const newest = (await client.listJobs()).at(-1);
   * console.log(newest?.batch, newest?.kind, newest?.state); // tidy up remove ended
   */
  async listJobs(options?: RetryOptions): Promise<readonly Job[]> {
    return this.findJobs("/jobs", options);
  }

  /**
   * The job of this batch; undefined if there is none.
   *
   * @operation listJobs
   * @example
   * console.log((await client.findJob("tidy up"))?.report.complete); // true
   */
  async findJob(batch: string, options?: RetryOptions): Promise<Job | undefined> {
    return (await this.findJobs(`/jobs${formatPairs({ batch })}`, options))[0];
  }

  /**
   * Stops a job, which changes nothing after the answer. Rejects with `job_not_found`.
   *
   * @operation stopJob
   * @example
   * await client.stopJob("tidy up");
   * console.log((await client.findJob("tidy up"))?.state); // ended
   */
  async stopJob(batch: string, options?: RetryOptions): Promise<void> {
    const init = { method: "DELETE", keepalive: false };
    await this.ask(`/jobs${formatPairs({ batch })}`, init, options);
  }

  private async findJobs(path: string, options: RetryOptions | undefined) {
    const jobs = findJobs((await this.ask(path, {}, options)).text);
    if (jobs === undefined) throw this.notAPlantStore();
    return jobs;
  }
}

export const nameBatch = (name: string): string => `${name} ${new Date().toISOString()}`;
