/** Runs bulk changes to their end without their client. Their state is in the store, for every service on it. */

import { setTimeout as sleep } from "node:timers/promises";
import type { Authenticator } from "../auth/token.ts";
import { type BulkOptions, describeLeft, type Left } from "../domain/bulk.ts";
import { describeRefusal, isOutage, Refusal } from "../domain/errors.ts";
import {
  isActive,
  type Job,
  type JobKind,
  type JobReport,
  JOBS_MAX,
  JOBS_RUNNING_MAX,
  LEFT_MAX,
} from "../domain/job.ts";
import { formatJson } from "../domain/json.ts";
import type { ServedStore, WholeStore } from "../domain/store.ts";
import { type Confinement, covers } from "../domain/token.ts";
import type { Log } from "../observe/log.ts";

const BEAT_MS = 1_000;
/** An outage or a fail-over of the store may take this long. */
const PATIENCE_MS = 300_000;
const RETRY_MS = 250;
/** Compare-and-set attempts: the service that runs a job writes its record every second. */
const TRIES_MAX = 10;

interface Run {
  job: Job;
  readonly ending: AbortController;
  readonly report: JobReport;
  readonly left: string[];
  saving: Promise<void>;
}

export interface Order {
  readonly by: string | undefined;
  /** Of the token. */
  readonly confinement: Confinement;
  /** The job ends when this is no longer valid. */
  readonly authorization: string;
  readonly requestId: string;
  readonly kind: JobKind;
  /** The request. The same request again is the same job. */
  readonly request: object;
  readonly report: JobReport;
  /** Must end when the signal aborts. Yields the plants that were left alone. */
  readonly run: (options: BulkOptions) => AsyncGenerator<readonly Left[]>;
  readonly onEnd: () => void;
}

/** `isNew` is false if the same request had started the job before. */
type Started = Readonly<{ job: ListedJob; isNew: boolean }>;

export type ListedJob = Omit<Job, "state"> & { readonly state: Job["state"] | "lost" };

/** A version begins with the id of the run, so a service whose job was replaced notices. */
const runOf = ({ version }: Pick<Job, "version">): string => version.split("/")[0] as string;
const nextVersionOf = (job: Pick<Job, "version">): string => `${runOf(job)}/${crypto.randomUUID()}`;

/** No later commit stores anything of it: its service may only have been paused. */
const endLost = (job: ListedJob): Job => ({
  ...job,
  state: "ended",
  report: { ...job.report, ...describeRefusal(new Refusal("job_stopped")) },
  version: nextVersionOf(job),
});

interface Parts {
  readonly store: ServedStore;
  readonly authenticator: Pick<Authenticator, "watch">;
  readonly log: Log;
}

export class Jobs {
  private isClosed = false;
  /** Names, places and leases are those of all jobs. */
  private readonly store: WholeStore;
  private readonly authenticator: Pick<Authenticator, "watch">;
  private readonly log: Log;
  /** A record that this service has not seen change for this long has lost its writer. */
  private readonly lostMs: number;
  private readonly running = new Map<string, Readonly<{ run: Run; ended: Promise<void> }>>();
  private readonly starting = new Set<Promise<Started>>();
  /** Names of jobs that count as running, though the store may not have them yet. */
  private readonly beginning = new Set<string>();
  /** Runs whose first record may be in the store though they never began. */
  private readonly unborn = new Set<string>();
  /** When each version was first seen: the clock of another machine tells nothing. */
  private seen = new Map<string, Readonly<{ version: string; sinceMs: number }>>();

  constructor({ store, authenticator, log }: Parts, lostSeconds: number) {
    this.store = store.for("whole store");
    this.authenticator = authenticator;
    this.log = log;
    this.lostMs = lostSeconds * 1000;
  }

  /** Those that the caller may see. */
  async list(confinement: Confinement): Promise<ListedJob[]> {
    return (await this.listAll()).filter((job) => covers(confinement, job));
  }

  /** The jobs of all services on this store, oldest first. */
  private async listAll(): Promise<ListedJob[]> {
    const jobs = await this.store.listJobs();
    const nowMs = performance.now();
    const { seen } = this;
    this.seen = new Map();
    const listed: ListedJob[] = [];
    for (const job of jobs.toSorted((one, two) => one.startedAtMs - two.startedAtMs)) {
      const { name, version, state } = job;
      const last = seen.get(name);
      const sinceMs = last?.version === version ? last.sinceMs : nowMs;
      this.seen.set(name, { version, sinceMs });
      const isSilent = nowMs - sinceMs > this.lostMs || this.unborn.has(runOf(job));
      const isLost = state !== "ended" && !this.running.has(name) && isSilent;
      listed.push(isLost ? { ...job, state: "lost" } : job);
    }
    return listed;
  }

  async find(name: string, confinement: Confinement): Promise<ListedJob> {
    const job = (await this.list(confinement)).find((one) => one.name === name);
    if (job === undefined) throw new Refusal("job_not_found");
    return job;
  }

  /**
   * Throws a Refusal while a job has the name, at any service: undoing the batch would undo the work of both. One that
   * is lost ends first.
   */
  async requireFree(name: string): Promise<void> {
    const job = await this.store.findJob(name);
    // Most names are of no job. The list tells whether it is lost.
    if (job === undefined || !isActive(job)) return;
    const listed = (await this.listAll()).find((one) => one.name === name);
    if (listed === undefined || listed.state === "ended") return;
    const isOver = listed.state === "lost" && (await this.store.putJob(endLost(listed), listed));
    if (!isOver) throw new Refusal("job_running");
  }

  /**
   * Resolves when the job is in the store. Throws a Refusal if another request runs under the name, or too many run.
   */
  async start(order: Order): Promise<Started> {
    const starting = this.startOnce(order);
    this.starting.add(starting);
    return starting.finally(() => this.starting.delete(starting));
  }

  private async startOnce(order: Order): Promise<Started> {
    const { by, confinement, kind, request, report } = order;
    const tags = confinement === "whole store" ? undefined : confinement;
    const { batch: name } = report;
    const digest = new Bun.CryptoHasher("sha256")
      .update(formatJson([by, kind, request, ...(tags === undefined ? [] : [tags])]))
      .digest("hex");
    const id = crypto.randomUUID();
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      if (this.isClosed) throw new Refusal("shutting_down");
      const jobs = await this.listAll();
      const last = jobs.find((job) => job.name === name);
      const open = jobs.filter(isActive);
      if (last !== undefined && open.includes(last)) {
        if (last.digest === digest && last.state === "running") return { job: last, isNew: false };
        throw new Refusal("job_running");
      }
      const others = new Set([
        ...open.map((job) => job.name),
        ...this.running.keys(),
        ...this.beginning,
      ]);
      others.delete(name);
      if (others.size >= JOBS_RUNNING_MAX) throw new Refusal("jobs_full");
      this.beginning.add(name);
      try {
        const oldest = jobs.find((job) => !open.includes(job));
        if (last === undefined && jobs.length >= JOBS_MAX)
          await this.store.putJob(undefined, oldest);
        const startedAtMs = Date.now();
        const first = { report: { ...report }, left: [], version: `${id}/0` };
        const job: Job = { name, kind, by, tags, digest, startedAtMs, state: "running", ...first };
        // If this rejects, the record may be stored. Then nobody runs it.
        this.unborn.add(id);
        const isStored = await this.store.putJob(job, last);
        this.unborn.delete(id);
        if (!isStored) continue;
        const ending = new AbortController();
        const run = { job, ending, report, left: [], saving: Promise.resolve() };
        const ended = this.runToEnd(run, order).finally(() => this.running.delete(name));
        this.running.set(name, { run, ended });
        return { job, isNew: true };
      } finally {
        this.beginning.delete(name);
      }
    }
    throw new Refusal("store_busy");
  }

  /**
   * From then on no commit stores anything of it. One that is lost ends here. One that has ended stays as it is.
   */
  async stop(name: string, confinement: Confinement): Promise<ListedJob> {
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const job = await this.find(name, confinement);
      if (job.state !== "running" && job.state !== "lost") return job;
      const next: Job =
        job.state === "lost"
          ? endLost(job)
          : { ...job, state: "stopping", version: nextVersionOf(job) };
      if (!(await this.store.putJob(next, job))) continue;
      this.running.get(name)?.run.ending.abort(new Refusal("job_stopped"));
      return next;
    }
    throw new Refusal("store_busy");
  }

  /** Ends all after their commits in flight. Resolves when the store has their last state. */
  async close(): Promise<void> {
    this.isClosed = true;
    await Promise.allSettled(this.starting);
    const jobs = [...this.running.values()];
    for (const { run } of jobs) run.ending.abort(new Refusal("shutting_down"));
    await Promise.all(jobs.map(({ ended }) => ended));
  }

  private async runToEnd(run: Run, order: Order): Promise<void> {
    const { ending, left, job } = run;
    const onInvalid = (refusal: Refusal): void => ending.abort(refusal);
    const unwatch = this.authenticator.watch({ header: order.authorization, onInvalid });
    // If the store cannot write it now, the next beat may.
    const beating = setInterval(() => void this.save(run).catch(() => undefined), BEAT_MS);
    const { signal } = ending;
    try {
      const retry: BulkOptions["retry"] = (attempt) => retryPatiently(attempt, signal);
      for await (const block of order.run({ signal, retry, run: runOf(job) }))
        left.push(
          ...block
            .slice(0, LEFT_MAX - left.length)
            .map(describeLeft)
            .map((each) => formatJson(each)),
        );
    } finally {
      clearInterval(beating);
      unwatch();
      order.onEnd();
      await this.saveEnd(run).catch((cause: unknown) => {
        this.log.warn("job_not_recorded", { requestId: order.requestId, batch: job.name, cause });
      });
    }
  }

  private async saveEnd(run: Run): Promise<void> {
    for (let tries = 1; run.job.state !== "ended"; tries++)
      try {
        await this.save(run, "ended");
      } catch (error) {
        if (tries === TRIES_MAX) throw error;
        await Bun.sleep(RETRY_MS);
      }
  }

  /** One at a time. If the record was changed meanwhile, it is read, and the next call writes it. */
  private async save(run: Run, state?: "ended"): Promise<void> {
    const { saving } = run;
    const saved = Promise.withResolvers<void>();
    run.saving = saved.promise;
    await saving;
    try {
      const { job, report, left, ending } = run;
      const version = nextVersionOf(job);
      const next = { ...job, state: state ?? job.state, report: { ...report }, left, version };
      if (await this.store.putJob(next, job)) return void (run.job = next);
      const found = await this.store.findJob(job.name);
      const isOwn = found !== undefined && runOf(found) === runOf(job);
      run.job = isOwn ? found : { ...job, state: "ended" };
      // Another request has its name now, or made room by removing it: that happens only to jobs that seem lost.
      if (!isOwn || found.state !== "running") ending.abort(new Refusal("job_stopped"));
    } finally {
      saved.resolve();
    }
  }
}

/** Nobody else would send it again. A write is conditional or an upsert, so one whose answer was lost is safe to repeat. */
async function retryPatiently<Result>(
  attempt: () => Promise<Result>,
  signal: AbortSignal,
): Promise<Result> {
  const deadlineMs = performance.now() + PATIENCE_MS;
  for (;;)
    try {
      return await attempt();
    } catch (error) {
      if (!isOutage(error) || performance.now() > deadlineMs) throw error;
      signal.throwIfAborted();
      await sleep(RETRY_MS, undefined, { signal }).catch(() => undefined);
      signal.throwIfAborted();
    }
}
