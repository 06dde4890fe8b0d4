/** Activity: what this instance did in the last ten minutes, in small charts with their current values. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { ask, explain, isAbort, receive } from "../api/service.ts";
import { formatBytes, formatFigure } from "../state/format.ts";
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
  const path = last === undefined ? "activity" : `activity?since=${last}`;
  const response = await ask(path, { signal: signalOff });
  const { intervalMs, samples } = (await receive(() => response.json())) as Activity;
  failure.value = undefined;
  const added = samples.filter(({ atMs }) => atMs > (last ?? 0));
  activity.value = { intervalMs, samples: [...known, ...added].slice(-SAMPLES_MAX) };
}

export function ActivityView(): JSX.Element {
  useEffect(followActivity, []);
  const now = activity.value;
  return (
    <div class="single single-wide">
      <div class="section-head">
        <h1>Activity</h1>
        <p class="faint">The last ten minutes of this instance, updated every two seconds.</p>
      </div>
      {failure.value !== undefined && (
        <Notice kind="warning" title="The figures are not up to date">
          <p>{explain(failure.value)} They continue when the store answers.</p>
        </Notice>
      )}
      {now === undefined ? (
        <p class="faint">Loading…</p>
      ) : (
        <div class="charts">
          {figuresOf(now).map((figure) => (
            <ChartCard key={figure.title} figure={figure} samples={now.samples} />
          ))}
        </div>
      )}
    </div>
  );
}

interface Figure {
  readonly title: string;
  readonly unit: string;
  readonly format: (value: number) => string;
  /** The least that the scale shows. */
  readonly least: number;
  readonly lines: readonly Line[];
}

function figuresOf({ intervalMs, samples }: Activity): Figure[] {
  type Values = (number | null)[];
  const each = (pick: (sample: Sample) => number | null): Values => samples.map(pick);
  const perSecond = (pick: (sample: Sample) => number): Values =>
    samples.map((sample) => (pick(sample) * 1000) / intervalMs);
  const area = (label: string, values: Values): Line[] => [
    { label, color: "--leaf", isFilled: true, values },
  ];
  const dash = [5, 3];
  return [
    {
      title: "Created",
      unit: "plants per second",
      format: formatFigure,
      least: 10,
      lines: area(
        "Created",
        perSecond(({ creates }) => creates),
      ),
    },
    {
      title: "Write latency",
      unit: "until on disk",
      format: (value) => `${formatFigure(value)} ms`,
      least: 5,
      lines: [
        { label: "p50", color: "--leaf", hasGaps: true, values: each((one) => one.durableP50Ms) },
        {
          label: "p99",
          color: "--sun",
          dash,
          hasGaps: true,
          values: each((one) => one.durableP99Ms),
        },
      ],
    },
    {
      title: "Write queue",
      unit: "waiting writes",
      format: formatFigure,
      least: 10,
      lines: area(
        "Waiting",
        each(({ waiting }) => waiting),
      ),
    },
    {
      title: "Errors",
      unit: "per second",
      format: formatFigure,
      least: 1,
      lines: [
        { label: "failed", color: "--soil", values: perSecond(({ errors }) => errors) },
        { label: "refused", color: "--sun", dash, values: perSecond(({ refused }) => refused) },
      ],
    },
    {
      title: "Store size",
      unit: "on disk",
      format: formatBytes,
      least: 1_000_000,
      lines: area(
        "Size",
        each(({ storeBytes }) => storeBytes),
      ),
    },
  ];
}

interface ChartCardProps {
  readonly figure: Figure;
  readonly samples: readonly Sample[];
}

function ChartCard({ figure, samples }: ChartCardProps): JSX.Element {
  const { title, unit, format, lines, least } = figure;
  const latest = ({ values }: Line): string => {
    const value = values.findLast((one) => one !== null) ?? null;
    return value === null ? "–" : format(value);
  };
  const highest = Math.max(0, ...lines.flatMap(({ values }) => values.map((one) => one ?? 0)));
  return (
    <figure class="chart-card">
      <figcaption>
        <h2>{title}</h2>
        <span class="faint">{unit}</span>
        <dl class="chart-now">
          {lines.map((line) => (
            <div key={line.label}>
              <dt class={lines.length > 1 ? undefined : "visually-hidden"}>
                <svg class={`line-sample line${line.color}`} viewBox="0 0 18 4" aria-hidden="true">
                  <path d="M0 2h18" stroke-dasharray={line.dash?.join(" ")} />
                </svg>
                {line.label}
              </dt>
              <dd>{latest(line)}</dd>
            </div>
          ))}
        </dl>
        <span class="visually-hidden">Highest in ten minutes: {format(highest)}.</span>
      </figcaption>
      <Chart
        times={samples.map(({ atMs }) => atMs / 1000)}
        lines={lines}
        format={format}
        least={least}
      />
    </figure>
  );
}
