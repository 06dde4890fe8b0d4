/** What the service reports about itself: GET /activity for the console, GET /metrics for Prometheus. */

import { readdirSync, readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import packageJson from "../../package.json";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import type { TokenRecord } from "../domain/token.ts";
import { compare, type FailedRequest, SAMPLES_MAX, StoreFigure, summarize } from "./activity.ts";
import { Histogram, Metrics } from "./metrics.ts";

/** How often the event loop is looked at. */
const LOOP_CHECK_MS = 250;
const SIZE_SAMPLED_MS = 30_000;
const FAILURES_MAX = 20;

export type Reports = Pick<MetricsReporter, "readActivity" | "formatMetrics" | "noteFailure">;

/** The commits of plants. */
export class Commits {
  readonly durations = new Histogram();
  readonly sizes = new Histogram();

  readonly count = (durationMs: number, writes: number): void => {
    this.durations.add(durationMs);
    this.sizes.add(writes);
  };
}

/** What the command that runs the service knows. */
export interface ServiceFacts {
  readonly backups?: BackupState | undefined;
  readonly commits?: Commits;
  readonly countDroppedLines?: () => number;
  readonly reportWebhooks?: () => Promise<readonly WebhookFacts[]> | undefined;
}

/** The number of webhooks is bounded, so that of their series is too. */
export interface WebhookFacts {
  readonly name: string;
  readonly isPaused: boolean;
  readonly lagSeconds: number;
  /** Attempts of this instance. */
  readonly sent: number;
  readonly failed: number;
}

interface Observed extends ServiceFacts {
  readonly store: Store;
  readonly limits: Config;
  /** Undefined if no client has asked for it. */
  readonly findReadiness: () => boolean | undefined;
}

/** The backups that the service makes while it runs. */
export interface BackupState {
  readonly everyMs: number;
  made: number;
  failed: number;
  last: { readonly atMs: number; readonly bytes: number } | undefined;
}

export class MetricsReporter {
  private readonly blocks: readonly Metrics[];
  private readonly observed: Observed;
  private readonly loopDelays = new Histogram();
  private readonly timers: Timer[] = [];
  private readonly plants: StoreFigure;
  private readonly size: StoreFigure;
  private readonly samples: ReturnType<MetricsReporter["compare"]>[] = [];
  private last = summarize([]);
  /** Status 4xx and 5xx apart, so many refusals do not push out the failures. */
  private readonly failures: readonly [FailedRequest[], FailedRequest[]] = [[], []];

  /** One block for each thread that counts. */
  constructor(blocks: readonly Metrics[], observed: Observed) {
    const { store } = observed;
    this.blocks = blocks;
    this.observed = observed;
    this.size = new StoreFigure(() => store.measureBytes());
    this.plants = new StoreFigure(async () => (await store.countPlants()).count);
  }

  start(): void {
    const intervalMs = this.observed.limits.sampleSeconds * 1000;
    let dueMs = performance.now() + LOOP_CHECK_MS;
    const checkLoop = (): void => {
      this.loopDelays.add(Math.max(0, performance.now() - dueMs));
      dueMs = performance.now() + LOOP_CHECK_MS;
    };
    this.timers.push(
      setInterval(() => this.sample(Date.now()), intervalMs).unref(),
      setInterval(checkLoop, LOOP_CHECK_MS).unref(),
    );
  }

  stop(): void {
    for (const timer of this.timers) clearInterval(timer);
  }

  readonly noteFailure = (failure: FailedRequest): void => {
    const kept = this.failures[failure.status < 500 ? 0 : 1];
    if (kept.push(failure) > FAILURES_MAX) kept.shift();
  };

  sample(atMs: number): void {
    this.samples.push(this.compare(atMs));
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
    // The chart of the size shows the hour before a person opens it.
    void this.size.refresh(SIZE_SAMPLED_MS);
  }

  private compare(atMs: number) {
    const { last } = this;
    this.last = summarize(this.blocks);
    const [waiting, storeBytes] = [this.observed.store.writesWaiting, this.size.value];
    return { atMs, ...compare(last, this.last), waiting, storeBytes };
  }

  /** With the samples after that time, oldest first, and the failures, newest first. */
  readonly readActivity = async (sinceMs: number) => {
    // Measured for the next sample. This answer does not wait for a database server.
    void this.size.refresh();
    const failures = this.failures.flat().toReversed();
    return {
      intervalMs: this.observed.limits.sampleSeconds * 1000,
      samples: this.samples.filter(({ atMs }) => atMs > sinceMs),
      failures: failures.toSorted((one, other) => other.atMs - one.atMs),
      backups: this.observed.backups,
      version: packageJson.version,
      startedAtMs: Math.round(performance.timeOrigin),
    };
  };

  /** All counters in the text format of Prometheus. */
  readonly formatMetrics = async (): Promise<string> => {
    const { store, limits, commits, backups, findReadiness, reportWebhooks } = this.observed;
    const isReady = findReadiness();
    const [tokens, webhooks = [], connections] = await Promise.all([
      inTime(store.listTokens()),
      inTime(reportWebhooks?.()),
      inTime(countConnections(limits.port)),
      inTime(this.plants.refresh()),
      this.size.refresh(),
    ]);
    const { creates, requests, batchLines, durations, gauges } = Metrics.addUp(this.blocks);
    const figures = store.readFigures();
    const { diskFreeBytes } = figures;
    const { version } = packageJson;
    const cpu = process.cpuUsage();
    const byWebhook = (read: (webhook: WebhookFacts) => number): Value =>
      webhooks.map((webhook) => [{ webhook: webhook.name }, read(webhook)]);
    const families: Readonly<Record<string, Readonly<Record<string, Value>>>> = {
      gauge: {
        plantstore_info: [[{ version, engine: store.description.engine }, 1]],
        plantstore_ready: isReady === undefined ? undefined : Number(isReady),
        plantstore_requests_in_flight: gauges.requestsInFlight,
        plantstore_open_connections: connections,
        plantstore_writes_waiting: store.writesWaiting,
        plantstore_writes_waiting_max: limits.queueLengthMax,
        plantstore_held_bytes: gauges.bytesHeld,
        plantstore_held_bytes_max: limits.bodyBytesTotalMax,
        plantstore_store_bytes: this.size.value,
        plantstore_plants: this.plants.value,
        plantstore_plants_max: limits.plantsMax || undefined,
        plantstore_disk_free_bytes: diskFreeBytes,
        plantstore_disk_free_bytes_min:
          diskFreeBytes === undefined ? undefined : limits.diskFreeBytesMin || undefined,
        plantstore_postgres_connections_in_use: figures.connectionsInUse,
        plantstore_postgres_waiting: figures.callersWaiting,
        plantstore_tokens_expiring: tokens && countExpiring(tokens),
        plantstore_backup_interval_seconds: backups && backups.everyMs / 1000,
        plantstore_backup_timestamp_seconds: backups?.last && backups.last.atMs / 1000,
        plantstore_backup_bytes: backups?.last?.bytes,
        plantstore_feed_readers: gauges.feedReaders,
        plantstore_webhook_lag_seconds: byWebhook(({ lagSeconds }) => lagSeconds),
        plantstore_webhook_paused: byWebhook(({ isPaused }) => Number(isPaused)),
        process_resident_memory_bytes: orNothing(() => process.memoryUsage.rss()),
        process_open_fds: orNothing(() => readdirSync("/proc/self/fd").length),
        process_max_fds: orNothing(readDescriptorsMax),
        process_start_time_seconds: performance.timeOrigin / 1000,
      },
      counter: {
        plantstore_requests_total: requests.map(({ count, ...labels }) => [labels, count]),
        plantstore_batch_lines_total: batchLines.map(({ status, count }) => [{ status }, count]),
        plantstore_postgres_retries_total: figures.retries,
        plantstore_postgres_connects_total: figures.connects,
        plantstore_backups_total: backups && [
          [{ result: "made" }, backups.made],
          [{ result: "failed" }, backups.failed],
        ],
        plantstore_log_lines_dropped_total: this.observed.countDroppedLines?.() ?? 0,
        plantstore_changes_total: store.changesWritten,
        plantstore_webhook_attempts_total: webhooks.flatMap(({ name, sent, failed }) => [
          [{ webhook: name, result: "taken" }, sent],
          [{ webhook: name, result: "failed" }, failed],
        ]),
        process_cpu_seconds_total: (cpu.user + cpu.system) / 1e6,
      },
      histogram: {
        plantstore_request_seconds: durations.map(({ times, ...labels }) => [labels, times]),
        plantstore_create_seconds: creates,
        plantstore_commit_seconds: commits?.durations,
        plantstore_commit_writes: commits?.sizes,
        plantstore_event_loop_delay_seconds: this.loopDelays,
      },
    };
    return Object.entries(families)
      .flatMap(([type, ofType]) =>
        Object.entries(ofType).map(
          ([name, value]) =>
            `# HELP ${name} ${meanings[name]}\n# TYPE ${name} ${type}\n${formatValue(name, value)}`,
        ),
      )
      .join("");
  };
}

/** For HELP. docs/operations.md says more. */
const meanings: Readonly<Record<string, string>> = {
  plantstore_info: "The version and the engine of the store, as labels.",
  plantstore_ready: "1 if the last probe could write; without a value until /readyz was asked.",
  plantstore_requests_in_flight: "Requests that are not answered yet.",
  plantstore_open_connections: "Connections of clients.",
  plantstore_writes_waiting: "Writes that wait for a commit.",
  plantstore_writes_waiting_max: "Writes beyond this are refused.",
  plantstore_held_bytes: "Memory for bodies that arrive and answers that are not read yet.",
  plantstore_held_bytes_max: "Requests that would hold more are refused.",
  plantstore_store_bytes: "Size of the store, its log included.",
  plantstore_plants: "Plants in the store.",
  plantstore_plants_max: "Plants beyond this are refused.",
  plantstore_disk_free_bytes: "SQLite: free space of the disk.",
  plantstore_disk_free_bytes_min: "SQLite: with less free space, new plants are refused.",
  plantstore_postgres_connections_in_use: "PostgreSQL: connections with a statement under way.",
  plantstore_postgres_waiting: "PostgreSQL: work that waits for a connection.",
  plantstore_tokens_expiring: "Tokens that stop working within a week.",
  plantstore_backup_interval_seconds: "Time from one backup to the next.",
  plantstore_backup_timestamp_seconds: "When the newest backup began, since 1970.",
  plantstore_backup_bytes: "Size of the newest backup.",
  plantstore_feed_readers: "Clients that follow the changes.",
  plantstore_webhook_lag_seconds: "Age of the oldest change that a webhook has not taken.",
  plantstore_webhook_paused: "1 if nothing is sent to a webhook until a person resumes it.",
  process_resident_memory_bytes: "Memory of the process.",
  process_open_fds: "Open descriptors.",
  process_max_fds: "Descriptors that may be open.",
  process_start_time_seconds: "When the process started, since 1970.",
  plantstore_requests_total: "Requests that were answered, by method, path and status.",
  plantstore_batch_lines_total: "Plants sent in batches, by the status of their result.",
  plantstore_postgres_retries_total: "PostgreSQL: repeated attempts.",
  plantstore_postgres_connects_total: "PostgreSQL: connections that were opened.",
  plantstore_backups_total: "Backups since the start, by result.",
  plantstore_log_lines_dropped_total: "Log lines that could not be written.",
  plantstore_changes_total: "Changes that were written to the journal.",
  plantstore_webhook_attempts_total: "Events that this instance sent to a webhook, by result.",
  process_cpu_seconds_total: "Processor time of the process.",
  plantstore_request_seconds: "Time from the head of a request to its answer.",
  plantstore_create_seconds: "Time from the arrival of a new plant until it is on disk.",
  plantstore_commit_seconds: "Time that a commit of plants takes, with its sync.",
  plantstore_commit_writes: "Writes that share a commit.",
  plantstore_event_loop_delay_seconds: "How late the thread that writes gets to its timers.",
};

type Labels = Readonly<Record<string, string | number | undefined>>;
/** One value, or one for each set of labels. */
type Value = number | Histogram | undefined | readonly (readonly [Labels, number | Histogram])[];

function formatValue(name: string, value: Value): string {
  if (value === undefined) return "";
  const series = Array.isArray(value) ? value : [[{}, value]];
  return series
    .flatMap(([labels, one]) =>
      one instanceof Histogram ? formatHistogram(name, labels, one) : formatLine(name, labels, one),
    )
    .join("");
}

/** Seconds have one bucket for each doubling from a quarter of a millisecond to sixteen seconds. */
function formatHistogram(name: string, labels: Labels, histogram: Histogram): string[] {
  const [from, to, unit] = name.endsWith("_seconds") ? [0.25, 16_384, 1_000] : [1, 1_024, 1];
  const bucket = (le: number | string, count: number): string =>
    formatLine(`${name}_bucket`, { ...labels, le }, count);
  return [
    ...histogram.buckets(from, to).map(({ upToMs, count }) => bucket(upToMs / unit, count)),
    bucket("+Inf", histogram.count),
    formatLine(`${name}_sum`, labels, histogram.sumMs / unit),
    formatLine(`${name}_count`, labels, histogram.count),
  ];
}

function formatLine(name: string, labels: Labels, value: number): string {
  const pairs = Object.entries(labels).map(([key, text]) => `${key}="${escape(String(text))}"`);
  return `${name}${pairs.length === 0 ? "" : `{${pairs.join(",")}}`} ${value}\n`;
}

const escape = (text: string): string => text.replace(/["\\]/g, "\\$&").replaceAll("\n", "\\n");

export const PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

const ANSWER_MS_MAX = 1_000;

/** A figure that fails or does not come, as from a database that does not answer, must not hold up the others. */
const inTime = <Answer>(answer: Promise<Answer> | undefined): Promise<Answer | undefined> =>
  Promise.race([answer?.catch(() => undefined), Bun.sleep(ANSWER_MS_MAX).then(() => undefined)]);

const WEEK_MS = 7 * 86_400_000;

function countExpiring(tokens: readonly TokenRecord[]): number {
  const now = Date.now();
  return tokens.filter(
    ({ expiresAtMs = Infinity, revokedAtMs }) =>
      revokedAtMs === undefined && expiresAtMs > now && expiresAtMs < now + WEEK_MS,
  ).length;
}

/** Some figures are in files that only Linux has, and none can be read if no file can be opened. */
function orNothing(read: () => number): number | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

function readDescriptorsMax(): number {
  const limits = readFileSync("/proc/self/limits", "utf8");
  return Number(/^Max open files +(\d+)/m.exec(limits)?.[1]);
}

/** Those of a port that are established. Rejects where the system does not tell; the port has to be known. */
async function countConnections(port: number): Promise<number | undefined> {
  if (port === 0) return undefined;
  const lists = ["tcp", "tcp6"].map((name) => readFile(`/proc/self/net/${name}`, "latin1"));
  const hex = port.toString(16).toUpperCase().padStart(4, "0");
  const established = new RegExp(`^ *\\d+: [0-9A-F]+:${hex} [0-9A-F:]+ 01 `, "gm");
  return (await Promise.all(lists)).join("").match(established)?.length ?? 0;
}
