/** What the service reports about itself: GET /activity for the console, GET /metrics for Prometheus. */

import { readdirSync, readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import packageJson from "../../package.json";
import type { Config } from "../config.ts";
import type { Store, StoreDescription, StoreFigures, StoreLimits } from "../domain/store.ts";
import type { TokenRecord } from "../domain/token.ts";
import { ActivityLog, StoreFigure } from "./activity.ts";
import { Histogram, Metrics } from "./metrics.ts";

/** How often the event loop is looked at. */
const LOOP_CHECK_MS = 250;

export type Reports = Pick<MetricsReporter, "readActivity" | "formatMetrics" | "noteFailure">;

type ObservedStore = Pick<
  Store,
  "writesWaiting" | "changesWritten" | "measureBytes" | "countPlants" | "readFigures" | "listTokens"
> & { readonly description: Pick<StoreDescription, "engine"> };

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
  readonly store: ObservedStore;
  readonly limits: Pick<Config, "sampleSeconds" | "port"> &
    Pick<StoreLimits, "queueLengthMax" | "bodyBytesTotalMax" | "plantsMax" | "diskFreeBytesMin">;
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
  private readonly activity: ActivityLog;
  readonly noteFailure: ActivityLog["noteFailure"];
  private readonly timers: Timer[] = [];
  private readonly plants: StoreFigure;

  /** One block for each thread that counts. */
  constructor(blocks: readonly Metrics[], observed: Observed) {
    const { store } = observed;
    this.blocks = blocks;
    this.observed = observed;
    this.activity = new ActivityLog(blocks, new StoreFigure(() => store.measureBytes()));
    this.plants = new StoreFigure(async () => (await store.countPlants()).count);
    this.noteFailure = this.activity.noteFailure;
  }

  start(): void {
    let dueMs = performance.now() + LOOP_CHECK_MS;
    const checkLoop = (): void => {
      this.loopDelays.add(Math.max(0, performance.now() - dueMs));
      dueMs = performance.now() + LOOP_CHECK_MS;
    };
    this.timers.push(
      setInterval(() => this.sample(Date.now()), this.intervalMs).unref(),
      setInterval(checkLoop, LOOP_CHECK_MS).unref(),
    );
  }

  private get intervalMs(): number {
    return this.observed.limits.sampleSeconds * 1000;
  }

  stop(): void {
    for (const timer of this.timers) clearInterval(timer);
  }

  sample(atMs: number): void {
    this.activity.sample(atMs, this.observed.store.writesWaiting);
  }

  /** With the samples after that time, oldest first. */
  readonly readActivity = async (sinceMs: number) => {
    // Measured for the next sample. This answer does not wait for a database server.
    void this.activity.size.refresh();
    return {
      intervalMs: this.intervalMs,
      ...this.activity.read(sinceMs),
      backups: this.observed.backups,
      version: packageJson.version,
      startedAtMs: Math.round(performance.timeOrigin),
    };
  };

  /** All counters in the text format of Prometheus. */
  readonly formatMetrics = async (): Promise<string> => {
    const { store, limits, commits, backups, findReadiness } = this.observed;
    const { countDroppedLines, reportWebhooks } = this.observed;
    const isReady = findReadiness();
    const [tokens, webhooks = []] = await Promise.all([
      inTime(store.listTokens()),
      inTime(reportWebhooks?.()),
      inTime(this.plants.refresh()),
      this.activity.size.refresh(),
    ]);
    const { creates, requests, batchLines, gauges } = Metrics.addUp(this.blocks);
    const operations = Metrics.addUpDurations(this.blocks);
    const storeBytes = this.activity.size.value;
    const histogram = (name: string, help: string, values: Histogram): string =>
      family(name, "histogram", help, histogramLines(values));
    return [
      family("plantstore_info", "gauge", "The version and the engine of the store, as labels.", [
        [labels({ version: packageJson.version, engine: store.description.engine }), 1],
      ]),
      gauge(
        "plantstore_ready",
        "1 if the last probe could write; without a value until /readyz was asked.",
        isReady === undefined ? undefined : Number(isReady),
      ),
      family(
        "plantstore_requests_total",
        "counter",
        "Requests that were answered, by method, path and status.",
        requests.map(({ method, path, status, count }) => [
          labels({ method, path, status }),
          count,
        ]),
      ),
      family(
        "plantstore_request_seconds",
        "histogram",
        "Time from the head of a request to its answer, or to the beginning of a stream.",
        operations.flatMap(({ method, path, durations }) =>
          histogramLines(durations, { method, path }),
        ),
      ),
      gauge(
        "plantstore_requests_in_flight",
        "Requests that are not answered yet.",
        gauges.requestsInFlight,
      ),
      gauge(
        "plantstore_open_connections",
        "Connections of clients.",
        await countConnections(limits.port),
      ),
      family(
        "plantstore_batch_lines_total",
        "counter",
        "Plants that were sent in batches, by the status of their result.",
        batchLines.map(({ status, count }) => [labels({ status }), count]),
      ),
      histogram(
        "plantstore_create_seconds",
        "Time from the arrival of a new plant to its answer, that is, until it is on disk.",
        creates,
      ),
      ...(commits === undefined
        ? []
        : [
            histogram(
              "plantstore_commit_seconds",
              "Time that a commit of plants takes, with its sync.",
              commits.durations,
            ),
            family(
              "plantstore_commit_writes",
              "histogram",
              "Writes that share a commit.",
              histogramLines(commits.sizes, {}, COMMIT_WRITES),
            ),
          ]),
      gauge("plantstore_writes_waiting", "Writes that wait for a commit.", store.writesWaiting),
      gauge(
        "plantstore_writes_waiting_max",
        "Limit of plantstore_writes_waiting; writes beyond it are refused.",
        limits.queueLengthMax,
      ),
      gauge(
        "plantstore_held_bytes",
        "Memory for bodies that arrive and answers that are not read yet.",
        gauges.bytesHeld,
      ),
      gauge(
        "plantstore_held_bytes_max",
        "Limit of plantstore_held_bytes; requests beyond it are refused.",
        limits.bodyBytesTotalMax,
      ),
      gauge("plantstore_store_bytes", "Size of the store, its log included.", storeBytes),
      gauge("plantstore_plants", "Plants in the store.", this.plants.value),
      gauge("plantstore_plants_max", "Limit of plantstore_plants.", limits.plantsMax || undefined),
      ...formatFigures(store.readFigures(), limits.diskFreeBytesMin || undefined),
      gauge(
        "plantstore_tokens_expiring",
        "Tokens that stop working within a week.",
        tokens === undefined ? undefined : countExpiring(tokens),
      ),
      ...formatBackups(backups),
      counter(
        "plantstore_log_lines_dropped_total",
        "Log lines dropped because standard error was too slow.",
        countDroppedLines?.() ?? 0,
      ),
      counter(
        "plantstore_changes_total",
        "Changes that were written to the journal.",
        store.changesWritten,
      ),
      gauge("plantstore_feed_readers", "Clients that follow the changes.", gauges.feedReaders),
      ...formatWebhooks(webhooks),
      histogram(
        "plantstore_event_loop_delay_seconds",
        "How late the thread that writes gets to its timers.",
        this.loopDelays,
      ),
      counter("process_cpu_seconds_total", "Processor time of the process.", measureCpuSeconds()),
      gauge("process_resident_memory_bytes", "Memory of the process.", measureMemory()),
      ...formatDescriptors(),
      gauge(
        "process_start_time_seconds",
        "When the process started, since 1970.",
        performance.timeOrigin / 1000,
      ),
    ].join("");
  };
}

function formatWebhooks(webhooks: readonly WebhookFacts[]): string[] {
  const lines = (valueOf: (webhook: WebhookFacts) => number, result?: string): Line[] =>
    webhooks.map((webhook) => [
      labels({ webhook: webhook.name, ...(result !== undefined && { result }) }),
      valueOf(webhook),
    ]);
  return [
    family(
      "plantstore_webhook_lag_seconds",
      "gauge",
      "Age of the oldest change that a webhook has not taken; 0 if it has all.",
      lines(({ lagSeconds }) => lagSeconds),
    ),
    family(
      "plantstore_webhook_paused",
      "gauge",
      "1 if nothing is sent to a webhook until a person resumes it.",
      lines(({ isPaused }) => Number(isPaused)),
    ),
    family(
      "plantstore_webhook_attempts_total",
      "counter",
      "Events that this instance sent to a webhook, by result.",
      [...lines(({ sent }) => sent, "taken"), ...lines(({ failed }) => failed, "failed")],
    ),
  ];
}

function formatFigures(figures: StoreFigures, diskFreeBytesMin: number | undefined): string[] {
  const { diskFreeBytes, connectionsInUse, callersWaiting, retries, connects } = figures;
  return [
    gauge("plantstore_disk_free_bytes", "SQLite: free space of the disk.", diskFreeBytes),
    gauge(
      "plantstore_disk_free_bytes_min",
      "SQLite: with less free space, new plants are refused.",
      diskFreeBytes === undefined ? undefined : diskFreeBytesMin,
    ),
    gauge(
      "plantstore_postgres_connections_in_use",
      "PostgreSQL: connections with a statement under way.",
      connectionsInUse,
    ),
    gauge(
      "plantstore_postgres_waiting",
      "PostgreSQL: work that waits for a connection.",
      callersWaiting,
    ),
    counter("plantstore_postgres_retries_total", "PostgreSQL: repeated attempts.", retries),
    counter(
      "plantstore_postgres_connects_total",
      "PostgreSQL: connections that were opened; more than there are, after losses.",
      connects,
    ),
  ];
}

function formatBackups(backups: BackupState | undefined): string[] {
  if (backups === undefined) return [];
  const { everyMs, made, failed, last } = backups;
  return [
    family("plantstore_backups_total", "counter", "Backups since the start, by result.", [
      [labels({ result: "made" }), made],
      [labels({ result: "failed" }), failed],
    ]),
    gauge(
      "plantstore_backup_interval_seconds",
      "Time from one backup to the next.",
      everyMs / 1000,
    ),
    gauge(
      "plantstore_backup_timestamp_seconds",
      "When the newest backup began, since 1970.",
      last && last.atMs / 1000,
    ),
    gauge("plantstore_backup_bytes", "Size of the newest backup.", last?.bytes),
  ];
}

const ANSWER_MS_MAX = 1_000;

/** A database that does not answer must not hold up the other figures. */
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

function measureCpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** Only Linux tells. Nothing if no file can be opened. */
function formatDescriptors(): string[] {
  try {
    const open = readdirSync("/proc/self/fd").length;
    const [, max] = /^Max open files +(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
    return [
      gauge("process_open_fds", "Open descriptors.", open),
      gauge("process_max_fds", "Descriptors that may be open.", Number(max)),
    ];
  } catch {
    return [];
  }
}

/** Those of a port that are established. Only Linux tells; the port has to be known. */
async function countConnections(port: number): Promise<number | undefined> {
  if (port === 0) return undefined;
  try {
    const lists = ["tcp", "tcp6"].map((name) => readFile(`/proc/self/net/${name}`, "latin1"));
    const hex = port.toString(16).toUpperCase().padStart(4, "0");
    const established = new RegExp(`^ *\\d+: [0-9A-F]+:${hex} [0-9A-F:]+ 01 `, "gm");
    return (await Promise.all(lists)).join("").match(established)?.length ?? 0;
  } catch {
    return undefined;
  }
}

/** Nothing if no file can be opened: the system tells it in a file. */
function measureMemory(): number | undefined {
  try {
    return process.memoryUsage.rss();
  } catch {
    return undefined;
  }
}

export const PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** Prometheus gets one bucket for each doubling from a quarter of a millisecond to sixteen seconds. */
const BUCKET_MS_MIN = 0.25;
const BUCKET_MS_MAX = 16_384;

type Line = readonly [suffixAndLabels: string, value: number];

function family(name: string, type: string, help: string, lines: readonly Line[]): string {
  const head = `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
  return head + lines.map(([suffix, value]) => `${name}${suffix} ${value}\n`).join("");
}

interface Scale {
  readonly from: number;
  readonly to: number;
  /** How many of the histogram's units make one of the metric's. */
  readonly unit: number;
}

const SECONDS: Scale = { from: BUCKET_MS_MIN, to: BUCKET_MS_MAX, unit: 1_000 };
const COMMIT_WRITES: Scale = { from: 1, to: 1_024, unit: 1 };

const single =
  (type: string) =>
  (name: string, help: string, value: number | undefined): string =>
    family(name, type, help, value === undefined ? [] : [["", value]]);
const gauge = single("gauge");
const counter = single("counter");

function histogramLines(
  histogram: Histogram,
  more: Labels = {},
  { from, to, unit }: Scale = SECONDS,
): Line[] {
  const buckets = histogram
    .buckets(from, to)
    .map(({ upToMs, count }): Line => [`_bucket${labels({ ...more, le: upToMs / unit })}`, count]);
  return [
    ...buckets,
    [`_bucket${labels({ ...more, le: "+Inf" })}`, histogram.count],
    [`_sum${labels(more)}`, histogram.sumMs / unit],
    [`_count${labels(more)}`, histogram.count],
  ];
}

type Labels = Readonly<Record<string, string | number>>;

function labels(values: Labels): string {
  const pairs = Object.entries(values).map(([name, value]) => `${name}="${escape(String(value))}"`);
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}

const escape = (text: string): string => text.replace(/["\\]/g, "\\$&").replaceAll("\n", "\\n");
