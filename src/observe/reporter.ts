/** What the service reports about itself: GET /activity for the console, GET /metrics for Prometheus. */

import { readdir, readFile } from "node:fs/promises";
import packageJson from "../../package.json";
import type { Config } from "../config.ts";
import type { Store } from "../domain/store.ts";
import { compare, createFigure, type FailedRequest, SAMPLES_MAX, summarize } from "./activity.ts";
import { Histogram, Metrics } from "./metrics.ts";

/** How often the event loop is looked at. */
const LOOP_CHECK_MS = 250;
const SIZE_SAMPLED_MS = 30_000;
const FAILURES_MAX = 20;

export type Reports = Pick<Reporter, "readActivity" | "formatMetrics" | "noteFailure">;

/** What the command that runs the service knows. */
export interface ServiceFacts {
  readonly backups?: BackupState | undefined;
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
  readonly isReady: () => Promise<boolean>;
}

/** The backups that the service makes while it runs. */
export interface BackupState {
  readonly everyMs: number;
  made: number;
  failed: number;
  last: { readonly atMs: number; readonly bytes: number } | undefined;
  /** Everything committed before this time is in the newest backup or its change log; undefined without a journal. */
  loggedAtMs: number | undefined;
}

/** Of one block for each thread that counts. */
export function createReporter(blocks: readonly Metrics[], observed: Observed) {
  const { store, limits, backups } = observed;
  const intervalMs = limits.sampleSeconds * 1000;
  const loopDelays = new Histogram();
  const plants = createFigure(() => store.countPlants());
  const size = createFigure(() => store.measureBytes());
  const expiring = createFigure(() => store.countExpiring(Date.now(), Date.now() + WEEK_MS));
  const samples: ReturnType<typeof compareWithLast>[] = [];
  /** Status 4xx and 5xx apart, so many refusals do not push out the failures. */
  const failures: readonly [FailedRequest[], FailedRequest[]] = [[], []];
  let last = summarize([]);
  let timers: Timer[] = [];

  const compareWithLast = (atMs: number) => {
    const before = last;
    last = summarize(blocks);
    return { atMs, ...compare(before, last), waiting: last.waiting, storeBytes: size.value };
  };

  const sample = (atMs: number): void => {
    samples.push(compareWithLast(atMs));
    if (samples.length > SAMPLES_MAX) samples.shift();
    // The chart of the size shows the hour before a person opens it.
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

  const noteFailure = (failure: FailedRequest): void => {
    const kept = failures[failure.status < 500 ? 0 : 1];
    if (kept.push(failure) > FAILURES_MAX) kept.shift();
  };

  /** With the samples after that time, oldest first, and the failures, newest first. */
  const readActivity = async (sinceMs: number) => {
    // Measured for the next sample. This answer does not wait for a database server.
    void size.refresh();
    return {
      intervalMs,
      samples: samples.filter(({ atMs }) => atMs > sinceMs),
      failures: failures
        .flat()
        .toReversed()
        .toSorted((one, other) => other.atMs - one.atMs),
      backups,
      version: packageJson.version,
      startedAtMs: Math.round(performance.timeOrigin),
    };
  };

  /** All counters in the text format of Prometheus. */
  const formatMetrics = async (): Promise<string> => {
    const newest = backups?.last;
    const [isReady = false, webhooks = [], connections, open, openMax, rss] = await Promise.all([
      inTime(observed.isReady()),
      inTime(observed.reportWebhooks?.()),
      inTime(countConnections(limits.port)),
      inTime(readdir("/proc/self/fd")),
      inTime(readDescriptorsMax()),
      inTime(Promise.try(() => process.memoryUsage.rss())),
      inTime(plants.refresh()),
      inTime(expiring.refresh()),
      size.refresh(),
    ]);
    const { creates, changes, commits, requests, batchLines, durations, gauges } =
      Metrics.addUp(blocks);
    const figures = store.readFigures();
    const { diskFreeBytes } = figures;
    const diskMin = diskFreeBytes === undefined ? undefined : limits.diskFreeBytesMin;
    const info = { version: packageJson.version, engine: store.description.engine };
    const cpu = process.cpuUsage();
    const made = backups && byResult({ made: backups.made, failed: backups.failed });
    const attempts = webhooks.flatMap(({ name, sent: taken, failed }) =>
      byResult({ taken, failed }, { webhook: name }),
    );
    const dropped = observed.countDroppedLines?.() ?? 0;
    const byWebhook = (key: "lagSeconds" | "isPaused"): Series =>
      webhooks.map((webhook) => [{ webhook: webhook.name }, webhook[key]]);
    return formatFamilies({
      gauge: {
        info: ["The version and the engine of the store, as labels.", [[info, 1]]],
        ready: ["1 if a write was committed and synced within the last second.", isReady],
        requests_in_flight: ["Requests that are not answered yet.", gauges.requestsInFlight],
        open_connections: ["Client connections (Linux, with a fixed port).", connections],
        writes_waiting: ["Writes that wait for a commit.", gauges.writesWaiting],
        writes_waiting_max: ["Writes beyond this are refused.", limits.queueLengthMax],
        held_bytes: ["Memory for bodies in flight and unread answers.", gauges.bytesHeld],
        held_bytes_max: ["Requests that would hold more are refused.", limits.bodyBytesTotalMax],
        store_bytes: ["Size of the store, its log included; at most 10 s old.", size.value],
        store_log_bytes: ["SQLite: size of the WAL, which checkpoints empty.", figures.logBytes],
        plants: ["Plants in the store; at most 10 s old.", plants.value?.count],
        plants_max: ["Plants beyond this are refused.", limits.plantsMax || undefined],
        disk_free_bytes: ["SQLite: free space of the disk.", diskFreeBytes],
        disk_free_bytes_min: ["SQLite: with less, new plants are refused.", diskMin || undefined],
        postgres_connections_in_use: ["PostgreSQL: connections in use.", figures.connectionsInUse],
        postgres_waiting: ["PostgreSQL: callers that wait for one.", figures.callersWaiting],
        tokens_expiring: ["Tokens that expire within a week.", expiring.value],
        backup_interval_seconds: ["Time between two backups.", backups && backups.everyMs / 1000],
        backup_timestamp_seconds: ["When the newest backup began.", newest && newest.atMs / 1000],
        backup_bytes: ["Size of the newest backup.", newest?.bytes],
        backup_lag_seconds: [
          "Age of the oldest change that may not be in the backups.",
          backups?.loggedAtMs && (Date.now() - backups.loggedAtMs) / 1000,
        ],
        feed_readers: ["Clients that follow the changes.", gauges.feedReaders],
        webhook_lag_seconds: [
          "Age of the oldest change not delivered, by webhook.",
          byWebhook("lagSeconds"),
        ],
        webhook_paused: ["1 if the webhook is paused, by webhook.", byWebhook("isPaused")],
        process_resident_memory_bytes: ["Resident memory.", rss],
        process_open_fds: ["Open file descriptors (Linux).", open?.length],
        process_max_fds: ["Limit of file descriptors (Linux).", openMax],
        process_start_time_seconds: ["When the process started.", performance.timeOrigin / 1000],
      },
      counter: {
        requests_total: ["Answered requests, by method, path and status.", requests],
        batch_lines_total: ["Batch lines, by the status of their result.", batchLines],
        postgres_retries_total: ["PostgreSQL: retries.", figures.retries],
        postgres_connects_total: ["PostgreSQL: connections opened.", figures.connects],
        backups_total: ["Backups, by result: made or failed.", made],
        log_lines_dropped_total: ["Log lines that were dropped.", dropped],
        changes_total: ["Journal entries that this instance wrote.", changes],
        webhook_attempts_total: ["Events sent by this instance, by webhook and result.", attempts],
        process_cpu_seconds_total: ["CPU time.", (cpu.user + cpu.system) / 1e6],
      },
      histogram: {
        request_seconds: ["Time from request head to answer, by method and path.", durations],
        create_seconds: ["Time from the arrival of a new plant to its commit.", creates],
        commit_seconds: ["Duration of a commit of plants, sync included.", commits.durations],
        commit_writes: ["Writes that shared a commit.", commits.sizes],
        event_loop_delay_seconds: ["How late timers fire in the first HTTP thread.", loopDelays],
      },
    });
  };

  return { start, stop, sample, noteFailure, readActivity, formatMetrics };
}

export type Reporter = ReturnType<typeof createReporter>;

type Labels = Readonly<Record<string, string | number | undefined>>;
type Figure = number | boolean | Histogram | undefined;
type Series = readonly (readonly [Labels, Figure])[];
/** By name: what it means, and one figure, or one for each set of labels. docs/operations.md has the table. */
type Families = Readonly<Record<string, readonly [string, Figure | Series]>>;

const byResult = (counts: Readonly<Record<string, number>>, labels: Labels = {}): Series =>
  Object.entries(counts).map(([result, count]) => [{ ...labels, result }, count]);

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

/** Seconds have one bucket for each doubling from a quarter of a millisecond to sixteen seconds. */
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
  const pairs = Object.entries(labels).map(([key, text]) => `${key}="${escape(String(text))}"`);
  return `${name}${pairs.length === 0 ? "" : `{${pairs.join(",")}}`} ${Number(figure)}\n`;
}

const escape = (text: string): string => text.replace(/["\\]/g, "\\$&").replaceAll("\n", "\\n");

export const PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

const ANSWER_MS_MAX = 1_000;

/**
 * A figure that fails or does not come, as from a database that does not answer, must not hold up the others. Some are
 * in files that only Linux has, and none can be read if no file can be opened.
 */
const inTime = <Answer>(answer: Promise<Answer> | undefined): Promise<Answer | undefined> =>
  Promise.race([answer?.catch(() => undefined), Bun.sleep(ANSWER_MS_MAX).then(() => undefined)]);

const WEEK_MS = 7 * 86_400_000;

async function readDescriptorsMax(): Promise<number> {
  const limits = await readFile("/proc/self/limits", "utf8");
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
