/** Activity: what this instance did in the last hour, in bars with their values, and what failed. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { call, explain, isAbort } from "../api/service.ts";
import { formatBytes, formatCount, formatFigure, formatSeconds } from "../state/format.ts";
import { Chart, divide, type Figure, formatClock, type Sample } from "./chart.tsx";
import { Notice, Table, Terms } from "./controls.tsx";

interface Failure {
  readonly atMs: number;
  readonly status: number;
  readonly reason: string;
  readonly method: string;
  readonly path: string;
  readonly token: string | null;
  readonly requestId: string;
}

interface Activity {
  readonly intervalMs: number;
  readonly samples: readonly Sample[];
  /** Null if the service makes no backups. */
  readonly backups: {
    readonly failed: number;
    readonly last: { readonly atMs: number; readonly bytes: number } | null;
  } | null;
  readonly failures: readonly Failure[];
  readonly version: string;
  readonly startedAtMs: number;
}

const SAMPLES_MAX = 720;
const INTERVAL_MS = 5000;

const activity = signal<Activity | undefined>(undefined);
const failure = signal<unknown>(undefined);

export function forgetActivity(): void {
  activity.value = undefined;
}

/** Polls until the returned function is called. */
function followActivity(): () => void {
  const controller = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const poll = async (): Promise<void> => {
    try {
      if (document.visibilityState === "visible") await readOn(controller.signal);
    } catch (error) {
      if (isAbort(error)) return;
      failure.value = error;
    }
    if (!controller.signal.aborted)
      timer = setTimeout(() => void poll(), activity.value?.intervalMs ?? INTERVAL_MS);
  };
  void poll();
  return () => {
    controller.abort();
    clearTimeout(timer);
  };
}

async function readOn(signalOff: AbortSignal): Promise<void> {
  const known = activity.value?.samples ?? [];
  const last = known.at(-1)?.atMs;
  const path = last === undefined ? "/activity" : `/activity?since=${last}`;
  const { samples, ...rest } = await call(async (client) => {
    const response = await client.request(path, { signal: signalOff });
    return (await response.json()) as Activity;
  });
  failure.value = undefined;
  const added = samples.filter(({ atMs }) => atMs > (last ?? 0));
  activity.value = { ...rest, samples: [...known, ...added].slice(-SAMPLES_MAX) };
}

function describeBackups(backups: Activity["backups"]): string {
  if (backups === null) return "none planned";
  const { last, failed } = backups;
  const failures = failed === 0 ? "" : `, ${formatCount(failed)} failed`;
  if (last === null) return `none yet${failures}`;
  const age = formatSeconds((Date.now() - last.atMs) / 1000);
  return `${age} ago, ${formatBytes(last.bytes)}${failures}`;
}

export function ActivityView(): JSX.Element {
  useEffect(followActivity, []);
  const now = activity.value;
  return (
    <div class="single">
      <div class="section-head">
        <h1>Activity</h1>
        <p class="faint">The last hour of this instance, updated every five seconds.</p>
      </div>
      {failure.value !== undefined && (
        <Notice
          kind="warning"
          title="These figures are out of date"
          text={`${explain(failure.value)} They continue when the store answers.`}
        />
      )}
      {now === undefined ? <p class="faint">Loading…</p> : <Shown now={now} />}
    </div>
  );
}

function Shown({ now }: { readonly now: Activity }): JSX.Element {
  const slots = divide(now.samples, now.intervalMs);
  return (
    <>
      <Terms
        class="facts"
        of={[
          ["Version", now.version],
          ["Running for", formatSeconds((Date.now() - now.startedAtMs) / 1000)],
          ["Last backup", describeBackups(now.backups)],
        ]}
      />
      <div class="charts">
        {figures.map((figure) => (
          <Chart key={figure.title} figure={figure} slots={slots} />
        ))}
      </div>
      <h2>Recent failures</h2>
      {now.failures.length === 0 ? (
        <p class="faint">None since the start.</p>
      ) : (
        <Table
          label="Recent failures"
          isListing
          heads={["Time", "Status", "Request", "Token", "Request id"]}
          rows={now.failures.map((failed) => [
            `${failed.requestId} ${failed.atMs}`,
            formatClock(failed.atMs),
            <span class={failed.status < 500 ? undefined : "field-fault"}>
              {failed.status} {failed.reason.replaceAll("_", " ")}
            </span>,
            <code>
              {failed.method} {failed.path}
            </code>,
            failed.token ?? "none",
            <code>{failed.requestId}</code>,
          ])}
        />
      )}
    </>
  );
}

const latency = (title: string, unit: string, p99: keyof Sample, p50: keyof Sample): Figure => ({
  title,
  unit,
  format: (value) => `${formatFigure(value)} ms`,
  least: 5,
  series: [
    { label: "p99", color: "--edge", of: (sample) => sample[p99] },
    { label: "p50", color: "--leaf", of: (sample) => sample[p50] },
  ],
});

const figures: readonly Figure[] = [
  {
    title: "Requests",
    unit: "per second",
    least: 10,
    isCount: true,
    series: [
      {
        label: "2xx",
        color: "--leaf",
        of: ({ requests, errors, refused }) => requests - errors - refused,
      },
      { label: "4xx", color: "--sun", of: ({ refused }) => refused },
      { label: "5xx", color: "--soil", of: ({ errors }) => errors },
    ],
  },
  latency("Read latency", "until answered", "readP99Ms", "readP50Ms"),
  latency("Write latency", "until on disk", "writeP99Ms", "writeP50Ms"),
  {
    title: "Created",
    unit: "plants per second",
    least: 10,
    isCount: true,
    series: [{ label: "Created", color: "--leaf", of: ({ creates }) => creates }],
  },
  {
    title: "Write queue",
    unit: "waiting writes",
    least: 10,
    series: [{ label: "Waiting", color: "--leaf", of: ({ waiting }) => waiting }],
  },
  {
    title: "Store size",
    unit: "on disk",
    format: formatBytes,
    least: 1_000_000,
    series: [{ label: "Size", color: "--leaf", of: ({ storeBytes }) => storeBytes }],
  },
];
