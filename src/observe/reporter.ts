/** What the service reports about itself: GET /activity for the console, GET /metrics for Prometheus. */

import packageJson from "../../package.json";
import { Histogram, Metrics, type Totals } from "./metrics.ts";

export const SAMPLE_MS = 2_000;
/** Ten minutes. */
export const SAMPLES_MAX = 300;

/** What happened in one interval. */
export interface Sample {
  readonly atMs: number;
  readonly creates: number;
  readonly requests: number;
  /** 5xx. */
  readonly errors: number;
  /** 4xx. */
  readonly refused: number;
  readonly durableP50Ms: number | undefined;
  readonly durableP99Ms: number | undefined;
  /** Writes that wait for a commit. */
  readonly waiting: number;
  readonly storeBytes: number | undefined;
}

export type Reports = Pick<MetricsReporter, "readActivity" | "formatMetrics">;

interface ObservedStore {
  readonly description: { readonly engine: string };
  readonly writesWaiting: number;
  readonly changesWritten: number;
  readonly measureBytes: () => Promise<number | undefined>;
}

/** The backups that the service makes while it runs. */
export interface BackupState {
  readonly everyMs: number;
  made: number;
  failed: number;
  last: { readonly atMs: number; readonly bytes: number } | undefined;
}

interface Activity {
  readonly intervalMs: number;
  readonly samples: readonly Sample[];
  readonly backups: BackupState | undefined;
}

export class MetricsReporter {
  private readonly blocks: readonly Metrics[];
  private readonly store: ObservedStore;
  private readonly backups: BackupState | undefined;
  private readonly size: StoreSize;
  private readonly samples: Sample[] = [];
  private last: Totals = {
    requests: [],
    batchLines: [],
    creates: new Histogram(),
    feedReaders: 0,
  };
  private timer: Timer | undefined;

  /** One block for each thread that counts. */
  constructor(blocks: readonly Metrics[], store: ObservedStore, backups?: BackupState) {
    this.blocks = blocks;
    this.store = store;
    this.backups = backups;
    this.size = new StoreSize(() => store.measureBytes());
  }

  start(): void {
    this.timer = setInterval(() => this.sample(Date.now()), SAMPLE_MS);
    this.timer.unref();
  }

  stop(): void {
    clearInterval(this.timer);
  }

  /** With the samples after that time, oldest first. */
  readonly readActivity = async (sinceMs: number): Promise<Activity> => {
    // Measured for the next sample. This answer does not wait for a database server.
    void this.size.refresh();
    const samples = this.samples.filter((sample) => sample.atMs > sinceMs);
    return { intervalMs: SAMPLE_MS, samples, backups: this.backups };
  };

  /** All counters in the text format of Prometheus. */
  readonly formatMetrics = async (): Promise<string> => {
    await this.size.refresh();
    const { creates, requests, batchLines, feedReaders } = Metrics.addUp(this.blocks);
    const { engine } = this.store.description;
    const storeBytes = this.size.bytes;
    return [
      family("plantstore_info", "gauge", "The version and the engine of the store, as labels.", [
        [labels({ version: packageJson.version, engine }), 1],
      ]),
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
        "plantstore_batch_lines_total",
        "counter",
        "Plants that were sent in batches, by the status of their result.",
        batchLines.map(({ status, count }) => [labels({ status }), count]),
      ),
      family(
        "plantstore_create_seconds",
        "histogram",
        "Time from the arrival of a new plant to its answer, that is, until it is on disk.",
        histogramLines(creates),
      ),
      family("plantstore_writes_waiting", "gauge", "Writes that wait for a commit.", [
        ["", this.store.writesWaiting],
      ]),
      family("plantstore_changes_total", "counter", "Changes that were written to the journal.", [
        ["", this.store.changesWritten],
      ]),
      family("plantstore_feed_readers", "gauge", "Clients that follow the changes.", [
        ["", feedReaders],
      ]),
      family(
        "plantstore_store_bytes",
        "gauge",
        "Size of the store, its log included.",
        storeBytes === undefined ? [] : [["", storeBytes]],
      ),
      ...formatBackups(this.backups),
      family("process_resident_memory_bytes", "gauge", "Memory of the process.", measureMemory()),
      family("process_start_time_seconds", "gauge", "When the process started, since 1970.", [
        ["", performance.timeOrigin / 1000],
      ]),
    ].join("");
  };

  sample(atMs: number): void {
    const now = Metrics.addUp(this.blocks);
    const creates = new Histogram().addAll(now.creates).addAll(this.last.creates, -1);
    const since = (from: number, to: number): number =>
      countBetween(now, from, to) - countBetween(this.last, from, to);
    this.samples.push({
      atMs,
      creates: creates.count,
      requests: since(0, 999),
      errors: since(500, 999),
      refused: since(400, 499),
      durableP50Ms: round(creates.quantile(0.5)),
      durableP99Ms: round(creates.quantile(0.99)),
      waiting: this.store.writesWaiting,
      storeBytes: this.size.bytes,
    });
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
    this.last = now;
  }
}

function formatBackups(backups: BackupState | undefined): string[] {
  if (backups === undefined) return [];
  const { everyMs, made, failed, last } = backups;
  return [
    family("plantstore_backups_total", "counter", "Backups since the start, by result.", [
      [labels({ result: "made" }), made],
      [labels({ result: "failed" }), failed],
    ]),
    family("plantstore_backup_interval_seconds", "gauge", "Time from one backup to the next.", [
      ["", everyMs / 1000],
    ]),
    family(
      "plantstore_backup_timestamp_seconds",
      "gauge",
      "When the newest backup began, since 1970.",
      last === undefined ? [] : [["", last.atMs / 1000]],
    ),
    family(
      "plantstore_backup_bytes",
      "gauge",
      "Size of the newest backup.",
      last === undefined ? [] : [["", last.bytes]],
    ),
  ];
}

/** Nothing if no file can be opened: the system tells it in a file. */
function measureMemory(): Line[] {
  try {
    return [["", process.memoryUsage.rss()]];
  } catch {
    return [];
  }
}

function countBetween({ requests }: Totals, statusMin: number, statusMax: number): number {
  let sum = 0;
  for (const { status, count } of requests)
    if (status >= statusMin && status <= statusMax) sum += count;
  return sum;
}

/** To the digits that mean something. */
const round = (ms: number | undefined): number | undefined =>
  ms === undefined ? undefined : Number(ms.toPrecision(3));

export const PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** Prometheus gets one bucket for each doubling from a quarter of a millisecond to sixteen seconds. */
const BUCKET_MS_MIN = 0.25;
const BUCKET_MS_MAX = 16_384;

type Line = readonly [suffixAndLabels: string, value: number];

function family(name: string, type: string, help: string, lines: readonly Line[]): string {
  const head = `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
  return head + lines.map(([suffix, value]) => `${name}${suffix} ${value}\n`).join("");
}

function histogramLines(histogram: Histogram): Line[] {
  const buckets = histogram
    .buckets(BUCKET_MS_MIN, BUCKET_MS_MAX)
    .map(({ upToMs, count }): Line => [`_bucket${labels({ le: upToMs / 1000 })}`, count]);
  return [
    ...buckets,
    [`_bucket${labels({ le: "+Inf" })}`, histogram.count],
    ["_sum", histogram.sumMs / 1000],
    ["_count", histogram.count],
  ];
}

function labels(values: Readonly<Record<string, string | number>>): string {
  const pairs = Object.entries(values).map(([name, value]) => `${name}="${escape(String(value))}"`);
  return `{${pairs.join(",")}}`;
}

const escape = (text: string): string => text.replace(/["\\]/g, "\\$&").replaceAll("\n", "\\n");

const SIZE_FRESH_MS = 10_000;
const SIZE_KNOWN_MS = 60_000;

/** The size of the store. Measured only when a client asks, because the answer may come from a database server. */
export class StoreSize {
  private readonly measureBytes: ObservedStore["measureBytes"];
  private readonly now: () => number;
  private measuredAtMs = Number.NEGATIVE_INFINITY;
  private measuring = Promise.resolve();
  private lastBytes: number | undefined;

  constructor(measureBytes: ObservedStore["measureBytes"], now = () => performance.now()) {
    this.measureBytes = measureBytes;
    this.now = now;
  }

  /** As last measured; undefined if no client has asked lately, or if it could not be measured. */
  get bytes(): number | undefined {
    return this.now() - this.measuredAtMs < SIZE_KNOWN_MS ? this.lastBytes : undefined;
  }

  /** Resolves when the size is known. */
  refresh(): Promise<void> {
    if (this.now() - this.measuredAtMs >= SIZE_FRESH_MS) {
      this.measuredAtMs = this.now();
      this.measuring = this.measureBytes().then((bytes) => {
        this.lastBytes = bytes;
      });
    }
    return this.measuring;
  }
}
