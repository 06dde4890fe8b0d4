/** Activity: what this instance did in the last ten minutes, in small charts with their current values. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { call, explain, isAbort } from "../api/service.ts";
import { formatBytes, formatCount, formatFigure, formatSeconds } from "../state/format.ts";
import { Chart, type Line } from "./chart.tsx";
import { Notice } from "./controls.tsx";

/** The counts are per interval. */
interface Sample {
  readonly atMs: number;
  readonly creates: number;
  readonly errors: number;
  readonly refused: number;
  readonly durableP50Ms: number | null;
  readonly durableP99Ms: number | null;
  readonly waiting: number;
  readonly storeBytes: number | null;
}

interface Activity {
  readonly intervalMs: number;
  readonly samples: readonly Sample[];
  /** Null if the service makes no backups. */
  readonly backups: {
    readonly failed: number;
    readonly last: { readonly atMs: number; readonly bytes: number } | null;
  } | null;
}

const SAMPLES_MAX = 300;
const INTERVAL_MS = 2000;

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

function describeBackups({ last, failed }: NonNullable<Activity["backups"]>): string {
  const failures = failed === 0 ? "" : ` ${formatCount(failed, "backup")} failed.`;
  if (last === null) return `No backup yet.${failures}`;
  const age = formatSeconds((Date.now() - last.atMs) / 1000);
  return `Last backup: ${age} ago, ${formatBytes(last.bytes)}.${failures}`;
}

export function ActivityView(): JSX.Element {
  useEffect(followActivity, []);
  const now = activity.value;
  return (
    <div class="single">
      <div class="section-head">
        <h1>Activity</h1>
        <p class="faint">
          The last ten minutes of this instance, updated every two seconds.
          {now?.backups && ` ${describeBackups(now.backups)}`}
        </p>
      </div>
      {failure.value !== undefined && (
        <Notice
          kind="warning"
          title="These figures are out of date"
          text={`${explain(failure.value)} They continue when the store answers.`}
        />
      )}
      {now === undefined ? (
        <p class="faint">Loading…</p>
      ) : (
        <div class="charts">
          {figures.map((figure) => (
            <ChartCard key={figure.title} figure={figure} now={now} />
          ))}
        </div>
      )}
    </div>
  );
}

type Values = (number | null)[];

interface Series extends Line {
  readonly of: Exclude<keyof Sample, "atMs">;
  /** A count, to be shown per second. */
  readonly isRate?: boolean;
}

interface Figure {
  readonly title: string;
  readonly unit: string;
  readonly format?: (value: number) => string;
  /** The least that the scale shows. */
  readonly least: number;
  readonly lines: readonly Series[];
}

const dash = [5, 3];

const figures: readonly Figure[] = [
  {
    title: "Created",
    unit: "plants per second",
    least: 10,
    lines: [{ label: "Created", of: "creates", isRate: true, color: "--leaf", isFilled: true }],
  },
  {
    title: "Write latency",
    unit: "until on disk",
    format: (value) => `${formatFigure(value)} ms`,
    least: 5,
    lines: [
      { label: "p50", of: "durableP50Ms", color: "--leaf", hasGaps: true },
      { label: "p99", of: "durableP99Ms", color: "--sun", dash, hasGaps: true },
    ],
  },
  {
    title: "Write queue",
    unit: "waiting writes",
    least: 10,
    lines: [{ label: "Waiting", of: "waiting", color: "--leaf", isFilled: true }],
  },
  {
    title: "Errors",
    unit: "per second",
    least: 1,
    lines: [
      { label: "failed", of: "errors", isRate: true, color: "--soil" },
      { label: "refused", of: "refused", isRate: true, color: "--sun", dash },
    ],
  },
  {
    title: "Store size",
    unit: "on disk",
    format: formatBytes,
    least: 1_000_000,
    lines: [{ label: "Size", of: "storeBytes", color: "--leaf", isFilled: true }],
  },
];

interface ChartCardProps {
  readonly figure: Figure;
  readonly now: Activity;
}

function ChartCard({ figure, now }: ChartCardProps): JSX.Element {
  const { title, unit, format = formatFigure, lines, least } = figure;
  const columns = lines.map(({ of, isRate }): Values => {
    const factor = isRate === true ? 1000 / now.intervalMs : 1;
    return now.samples.map(({ [of]: value }) => (value === null ? null : value * factor));
  });
  const latest = (values: Values = []): string => {
    const value = values.findLast((one) => one !== null) ?? null;
    return value === null ? "–" : format(value);
  };
  const highest = Math.max(0, ...columns.flat().map((value) => value ?? 0));
  return (
    <figure class="chart-card">
      <figcaption>
        <h2>{title}</h2>
        <span class="faint">{unit}</span>
        <dl class="chart-now">
          {lines.map((line, index) => (
            <div key={line.label}>
              <dt class={lines.length > 1 ? undefined : "visually-hidden"}>
                <svg class="line-sample" viewBox="0 0 18 4" aria-hidden="true">
                  <path
                    d="M0 2h18"
                    stroke={`var(${line.color})`}
                    stroke-width="2"
                    stroke-dasharray={line.dash?.join(" ")}
                  />
                </svg>
                {line.label}
              </dt>
              <dd>{latest(columns[index])}</dd>
            </div>
          ))}
        </dl>
        <span class="visually-hidden">Highest in ten minutes: {format(highest)}.</span>
      </figcaption>
      <Chart
        data={[now.samples.map(({ atMs }) => atMs / 1000), ...columns]}
        lines={lines}
        format={format}
        least={least}
      />
    </figure>
  );
}
