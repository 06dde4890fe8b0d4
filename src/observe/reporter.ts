/** What the service reports about itself: GET /activity for the console, GET /metrics for Prometheus. */

// Not from node:fs/promises, which the runtime would load at the start. This loads it at first use.
import { promises as files } from "node:fs";
import packageJson from "../../package.json";
import { type Config, findTracing } from "../config.ts";
import { findDescriptorsMax } from "../descriptor.ts";
import { DAY_MS } from "../domain/time.ts";
import type { Store } from "../domain/store.ts";
import { within } from "../tick.ts";
import { Histogram, Metrics } from "./metrics.ts";
import { mergeRequests, type RecentRequest, type RequestQuery } from "./recent-requests.ts";

const LOOP_CHECK_MS = 250;
const SIZE_SAMPLED_MS = 30_000;

export type Reports = Pick<Reporter, "readActivity" | "formatMetrics" | "areBackupsFailing">;

/** Facts from the command that runs the service. */
export interface ServiceFacts {
  readonly backups?: BackupState | undefined;
  readonly tls?: TlsState | undefined;
  readonly countDroppedLines?: () => number;
  readonly reportWebhooks?: () => Promise<readonly WebhookFacts[]> | undefined;
}

export interface TlsState {
  /** When the certificate in use expires. */
  readonly expiresAtMs: number;
  /** The files cannot be used now, so an older pair is in use. */
  readonly hasProblem: boolean;
}

/** The number of webhooks is bounded, and so is the number of their series. */
export interface WebhookFacts extends Readonly<Record<"lagSeconds" | "sent" | "failed", number>> {
  readonly name: string;
  readonly isPaused: boolean;
}

interface Observed extends ServiceFacts {
  readonly store: Store;
  readonly limits: Config;
  /** Rejects if no write was committed within the last second. */
  readonly checkReady: () => Promise<void>;
  readonly findKeysAge?: () => number | undefined;
  /** Whether requests to the path with the method count as reads or as writes of a plant. */
  readonly kindOf: (method: string, path: string) => string | undefined;
  /** One list for each HTTP thread. */
  readonly findRequests?: (query: RequestQuery) => readonly Promise<readonly RecentRequest[]>[];
}

/** What is reported. Times of this process are monotonic; `atMs` is for people. */
export interface BackupState {
  readonly place: string;
  readonly everyMs: number;
  made: number;
  failed: number;
  last: { readonly atMs: number; readonly bytes: number; readonly sinceMs: number } | undefined;
  /** When a copy was made last, or none was needed. */
  currentSinceMs: number | undefined;
  /** When a proof succeeded last, or none was needed; the start of the process until then. */
  provenSinceMs: number;
  /** Everything committed before this time is in the place; undefined without a journal. */
  loggedAtMs: number | undefined;
  loggedSinceMs: number | undefined;
  /** Changes that this process has committed, and those when the last append began. */
  countChanges: () => number;
  loggedChanges: number;
  proven: Readonly<Record<"atMs" | "change" | "copies" | "oldestAtMs", number>> | undefined;
  proofs: number;
  proofsFailed: number;
  /** Pieces that were found to be damaged. */
  damaged: number;
  /** Why changes or copies do not arrive in the place now, or what the last proof or check failed at. */
  readonly problem: string | undefined;
}

export function createReporter(blocks: readonly Metrics[], observed: Observed) {
  const { limits, backups } = observed;
  const intervalMs = limits.sampleSeconds * 1000;
  const loopDelays = new Histogram();
  const figures = createFigures(observed.store);
  const { size } = figures;
  const samples: (ReturnType<typeof compare> & Readonly<{ atMs: number }>)[] = [];
  if (backups !== undefined) backups.countChanges = () => Metrics.addUp(blocks).changes;
  let last = summarize([], observed.kindOf);
  let timers: Timer[] = [];

  const sample = (atMs: number): void => {
    const now = summarize(blocks, observed.kindOf);
    samples.push({ atMs, ...compare(last, now, size.value) });
    last = now;
    if (samples.length > SAMPLES_MAX) samples.shift();
    // Sampled in the background, so the size chart has the last hour as soon as it opens.
    void size.refresh(SIZE_SAMPLED_MS);
  };

  const start = (): void => {
    let dueMs = performance.now() + LOOP_CHECK_MS;
    const checkLoop = (): void => {
      loopDelays.add(Math.max(0, performance.now() - dueMs));
      dueMs = performance.now() + LOOP_CHECK_MS;
    };
    timers = [
      setInterval(() => sample(Date.now()), intervalMs).unref(),
      setInterval(checkLoop, LOOP_CHECK_MS).unref(),
    ];
  };

  const stop = (): void => timers.forEach(clearInterval);

  /** A thread that is too busy to answer is left out. */
  const findRequests = async (query: RequestQuery) => {
    const lists = observed.findRequests?.(query) ?? [];
    const found = await Promise.all(lists.map(inTime));
    return mergeRequests(
      found.map((list) => list ?? []),
      query.limit,
    );
  };

  /**
   * Returns the samples after that time, oldest first, and the requests, newest first. The clock may have been set back
   * since: then those after the sample of that time count.
   */
  const readActivity = async (sinceMs: number, query: RequestQuery) => {
    const requests = await findRequests(query);
    // Refreshed for the next sample: this answer does not wait for a database server.
    void size.refresh();
    const known = samples.findLastIndex(({ atMs }) => atMs === sinceMs);
    return {
      intervalMs,
      samples: samples.filter(({ atMs }, at) => (known === -1 ? atMs > sinceMs : at > known)),
      requests,
      backups: backups && describeState(backups),
      version: packageJson.version,
      // By the clock as it is now, which may have been set since.
      startedAtMs: Math.round(Date.now() - performance.now()),
    };
  };

  const formatMetrics = (): Promise<string> => formatPage(blocks, observed, figures, loopDelays);

  const areBackupsFailing = async (): Promise<boolean> => backups?.problem !== undefined;

  return { start, stop, sample, readActivity, formatMetrics, areBackupsFailing };
}

const secondsSince = (sinceMs: number | undefined): number | undefined =>
  sinceMs === undefined ? undefined : (performance.now() - sinceMs) / 1000;

/** Without what only this process understands. */
function describeState(state: BackupState) {
  const { loggedSinceMs: _, currentSinceMs: _current, provenSinceMs: _proven, ...told } = state;
  const { countChanges, loggedChanges, last, damaged: _damaged, ...shown } = told;
  const { sinceMs: _copied, ...copy } = last ?? {};
  return {
    ...shown,
    lagChanges: shown.loggedAtMs === undefined ? undefined : countChanges() - loggedChanges,
    last: last && copy,
  };
}

export type Reporter = ReturnType<typeof createReporter>;

type Labels = Readonly<Record<string, string | number | undefined>>;
type Figure = number | boolean | Histogram | undefined;
type Series = readonly (readonly [Labels, Figure])[];
/** By name: its meaning, and one figure, or one for each set of labels. docs/operations.md has the table. */
type Families = Readonly<Record<string, readonly [string, Figure | Series]>>;

const byResult = (counts: Readonly<Record<string, number>>, labels: Labels = {}): Series =>
  Object.entries(counts).map(([result, count]) => [{ ...labels, result }, count]);

/** The page of GET /metrics. A figure that fails or times out is missing from it. */
async function formatPage(
  blocks: readonly Metrics[],
  observed: Observed,
  { plants, size, expiring }: ReturnType<typeof createFigures>,
  loopDelays: Histogram,
) {
  const { store, limits, backups, tls } = observed;
  const [isReady = false, webhooks = [], connections, open, rss, figures = {}] = await Promise.all([
    inTime(observed.checkReady().then(() => true)),
    inTime(observed.reportWebhooks?.()),
    inTime(countConnections(limits.port)),
    inTime(files.readdir("/proc/self/fd")),
    inTime(Promise.try(() => process.memoryUsage.rss())),
    inTime(store.readFigures()),
    inTime(plants.refresh()),
    inTime(expiring.refresh()),
    inTime(size.refresh()),
  ]);
  const { creates, changes, commits, requests, batchLines, durations, gauges } =
    Metrics.addUp(blocks);
  const { diskFreeBytes } = figures;
  const diskMin = (diskFreeBytes !== undefined && limits.diskFreeBytesMin) || undefined;
  const proofs = backups && byResult({ proven: backups.proofs, failed: backups.proofsFailed });
  const info = { version: packageJson.version, engine: store.description.engine };
  const cpu = process.cpuUsage();
  const copies = backups && byResult({ made: backups.made, failed: backups.failed });
  const attempts = webhooks.flatMap(({ name, sent: taken, failed }) =>
    byResult({ taken, failed }, { webhook: name }),
  );
  const dropped = observed.countDroppedLines?.() ?? 0;
  const { spansExported, spansDropped } = gauges;
  const spans = findTracing(limits)
    ? byResult({ exported: spansExported, dropped: spansDropped })
    : [];
  const byWebhook = (key: "lagSeconds" | "isPaused"): Series =>
    webhooks.map((webhook) => [{ webhook: webhook.name }, webhook[key]]);
  return formatFamilies({
    gauge: {
      info: ["The version and the engine of the store, as labels.", [[info, 1]]],
      ready: ["1 if a write was committed and synced within the last second.", isReady],
      requests_in_flight: ["Requests that are not answered yet.", gauges.requestsInFlight],
      open_connections: ["Client connections (Linux, with a fixed port).", connections],
      writes_waiting: ["Writes that wait for a commit.", gauges.writesWaiting],
      writes_waiting_max: ["Length limit of the write queue.", limits.queueLengthMax],
      held_bytes: ["Memory for bodies in flight and unread answers.", gauges.bytesHeld],
      held_bytes_max: ["Memory budget for bodies and answers.", limits.bodyBytesTotalMax],
      store_bytes: ["Size of the store with its WAL; at most 10 s old.", size.value],
      store_log_bytes: ["SQLite: size of the WAL.", figures.logBytes],
      plants: ["Plants in the store; at most 10 s old.", plants.value?.count],
      plants_max: ["Plants beyond this are refused.", limits.plantsMax || undefined],
      disk_free_bytes: ["SQLite: free space of the disk.", diskFreeBytes],
      disk_free_bytes_min: ["SQLite: free space below which new plants are refused.", diskMin],
      postgres_connections_in_use: ["PostgreSQL: connections in use.", figures.connectionsInUse],
      postgres_waiting: ["PostgreSQL: callers waiting for a connection.", figures.callersWaiting],
      tokens_expiring: ["Tokens that expire within a week.", expiring.value],
      jwt_keys_age_seconds: [
        "Time since the issuer's keys were fetched, or since the start.",
        observed.findKeysAge?.(),
      ],
      tls_expiry_seconds: [
        "Time until the certificate in use expires, by the wall clock; negative after that.",
        tls && (tls.expiresAtMs - Date.now()) / 1000,
      ],
      tls_problem: ["1 if the files of the certificate and key cannot be used.", tls?.hasProblem],
      ...listBackupGauges(backups, changes),
      feed_readers: ["Open change streams.", gauges.feedReaders],
      webhook_lag_seconds: [
        "Age of the oldest undelivered change, by webhook.",
        byWebhook("lagSeconds"),
      ],
      webhook_paused: ["1 if the webhook is paused, by webhook.", byWebhook("isPaused")],
      process_resident_memory_bytes: ["Resident memory.", rss],
      process_open_fds: ["Open file descriptors (Linux).", open?.length],
      process_max_fds: ["Limit of file descriptors (Linux).", findDescriptorsMax()],
      process_start_time_seconds: ["When the process started.", performance.timeOrigin / 1000],
    },
    counter: {
      requests_total: ["Answered requests, by method, path and status.", requests],
      batch_lines_total: ["Batch lines, by the status of their result.", batchLines],
      postgres_retries_total: ["PostgreSQL: retries.", figures.retries],
      postgres_connects_total: ["PostgreSQL: connections opened.", figures.connects],
      backups_total: ["Backups, by result: made or failed.", copies],
      backup_proofs_total: ["Proofs of the backups, by result: proven or failed.", proofs],
      backup_damaged_total: ["Pieces of the backups that were found damaged.", backups?.damaged],
      log_lines_dropped_total: ["Log lines that were dropped.", dropped],
      spans_total: ["Spans of traces, by result: exported or dropped.", spans],
      changes_total: ["Journal entries that this instance wrote.", changes],
      webhook_attempts_total: ["Events sent by this instance, by webhook and result.", attempts],
      process_cpu_seconds_total: ["CPU time.", (cpu.user + cpu.system) / 1e6],
    },
    histogram: {
      request_seconds: ["Time from request head to answer, by method and path.", durations],
      create_seconds: ["Time from the arrival of a new plant to its commit.", creates],
      commit_seconds: ["Duration of a commit of plants, sync included.", commits.durations],
      commit_writes: ["Writes that shared a commit.", commits.sizes],
      event_loop_delay_seconds: ["Event-loop delay of the first HTTP thread.", loopDelays],
    },
  });
}

function listBackupGauges(backups: BackupState | undefined, changes: number): Families {
  const newest = backups?.last;
  const lag = secondsSince(backups?.loggedSinceMs);
  return {
    backup_problem: [
      "1 if changes or copies do not arrive in the backups, or the last proof failed.",
      backups && backups.problem !== undefined,
    ],
    backup_interval_seconds: [
      "Time after which a new backup is considered.",
      backups && backups.everyMs / 1000,
    ],
    backup_timestamp_seconds: ["When the newest backup began.", newest && newest.atMs / 1000],
    backup_bytes: ["Size of the newest backup.", newest?.bytes],
    backup_age_seconds: [
      "Time since a backup was made, or found not to be needed, by a monotonic clock.",
      secondsSince(backups?.currentSinceMs),
    ],
    backup_lag_seconds: ["Age of the oldest change that may not be in the backups.", lag],
    backup_lag_changes: [
      "Changes of this instance that may not be in the backups.",
      lag === undefined ? undefined : changes - (backups?.loggedChanges ?? 0),
    ],
    backup_unproven_seconds: [
      "Time since a new backup was restored and compared with the store, or nothing was new, or since the start.",
      secondsSince(backups?.provenSinceMs),
    ],
  };
}

const formatFamilies = (byType: Readonly<Record<string, Families>>): string =>
  Object.entries(byType)
    .flatMap(([type, families]) =>
      Object.entries(families).map(([key, [meaning, value]]) => {
        const name = key.startsWith("process_") ? key : `plantstore_${key}`;
        const series = (Array.isArray(value) ? value : [[{}, value]]) as Series;
        const lines = series.map(([labels, figure]) => formatFigure(name, labels, figure));
        return `# HELP ${name} ${meaning}\n# TYPE ${name} ${type}\n${lines.join("")}`;
      }),
    )
    .join("");

/** Histograms of seconds have a bucket for each doubling from 0.25 ms to 16 s. */
function formatFigure(name: string, labels: Labels, figure: Figure): string {
  if (figure === undefined) return "";
  if (figure instanceof Histogram) {
    const [from, to, unit] = name.endsWith("_seconds") ? [0.25, 16_384, 1_000] : [1, 1_024, 1];
    const bucket = (le: number | string, count: number): string =>
      formatFigure(`${name}_bucket`, { ...labels, le }, count);
    return [
      ...figure.buckets(from, to).map(({ upToMs, count }) => bucket(upToMs / unit, count)),
      bucket("+Inf", figure.count),
      formatFigure(`${name}_sum`, labels, figure.sumMs / unit),
      formatFigure(`${name}_count`, labels, figure.count),
    ].join("");
  }
  const pairs = Object.entries(labels).map(
    ([key, text]) => `${key}="${String(text).replace(/["\\]/g, "\\$&").replaceAll("\n", "\\n")}"`,
  );
  return `${name}${pairs.length === 0 ? "" : `{${pairs.join(",")}}`} ${Number(figure)}\n`;
}

export const PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

const ANSWER_MS_MAX = 1_000;

const inTime = async <Answer>(answer: Promise<Answer> | undefined): Promise<Answer | undefined> =>
  answer && within(ANSWER_MS_MAX, answer).catch(() => undefined);

/** Established connections to a port. Rejects where the system does not tell. */
async function countConnections(port: number): Promise<number | undefined> {
  if (port === 0) return undefined;
  const lists = ["tcp", "tcp6"].map((name) => files.readFile(`/proc/self/net/${name}`, "latin1"));
  const hex = port.toString(16).toUpperCase().padStart(4, "0");
  const established = new RegExp(`^ *\\d+: [0-9A-F]+:${hex} [0-9A-F:]+ 01 `, "gm");
  return (await Promise.all(lists)).join("").match(established)?.length ?? 0;
}

/** One hour at the default interval. */
export const SAMPLES_MAX = 720;

/** The difference of two summaries. The description of GET /activity explains each figure. */
function compare(last: Summary, now: Summary, storeBytes: number | undefined) {
  const creates = between(last.creates, now.creates);
  const reads = between(last.reads, now.reads);
  const writes = between(last.writes, now.writes);
  return {
    creates: creates.count,
    requests: now.requests - last.requests,
    errors: now.errors - last.errors,
    refused: now.refused - last.refused,
    durableP50Ms: round(creates.quantile(0.5)),
    durableP99Ms: round(creates.quantile(0.99)),
    readP50Ms: round(reads.quantile(0.5)),
    readP99Ms: round(reads.quantile(0.99)),
    writeP50Ms: round(writes.quantile(0.5)),
    writeP99Ms: round(writes.quantile(0.99)),
    waiting: now.waiting,
    storeBytes,
  };
}

const between = (from: Histogram, to: Histogram): Histogram =>
  new Histogram().addAll(to).addAll(from, -1);

type Summary = ReturnType<typeof summarize>;

function summarize(blocks: readonly Metrics[], kindOf: Observed["kindOf"]) {
  const { creates, requests, durations, gauges } = Metrics.addUp(blocks);
  const count = (from: number, to: number): number =>
    requests.reduce(
      (sum, [{ status }, more]) => sum + (status >= from && status <= to ? more : 0),
      0,
    );
  // Batches and feeds last as long as their clients want.
  const [reads, writes] = [new Histogram(), new Histogram().addAll(creates)];
  for (const [{ method, path }, times] of durations) {
    const kind = kindOf(method, path);
    if (kind === "read") reads.addAll(times);
    else if (kind === "write") writes.addAll(times);
  }
  return {
    creates,
    reads,
    writes,
    requests: count(0, 999),
    refused: count(400, 499),
    errors: count(500, 999),
    waiting: gauges.writesWaiting,
  };
}

const round = (ms: number | undefined): number | undefined =>
  ms === undefined ? undefined : Number(ms.toPrecision(3));

const createFigures = (store: Store) => ({
  plants: createFigure(() => store.countPlants()),
  size: createFigure(() => store.measureBytes()),
  expiring: createFigure(() => store.countExpiring(Date.now(), Date.now() + 7 * DAY_MS)),
});

const SIZE_FRESH_MS = 10_000;

/** A cached figure of the store: measuring it may need a database server. */
export function createFigure<Value>(measure: () => Promise<Value>) {
  let measuredAtMs = Number.NEGATIVE_INFINITY;
  let measuring = Promise.resolve();
  const figure = {
    value: undefined as Value | undefined,
    refresh: (freshMs = SIZE_FRESH_MS): Promise<void> => {
      if (performance.now() - measuredAtMs < freshMs) return measuring;
      measuredAtMs = performance.now();
      const known = measure().catch(() => undefined);
      return (measuring = known.then((value) => void (figure.value = value)));
    },
  };
  return figure;
}
