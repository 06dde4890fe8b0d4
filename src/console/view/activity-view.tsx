/** Activity: what the service has been doing in the last minutes, in small charts beside their figures. */

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { Activity, Sample } from "../api/activity.ts";
import { explain } from "../api/service.ts";
import { activity, activityFailure, followActivity } from "../state/activity.ts";
import { formatBytes, formatFigure } from "../state/numbers.ts";
import { Chart, type Line } from "./chart.tsx";
import { Notice } from "./notice.tsx";

const SPAN_SECONDS = 600;

interface Figure {
  readonly title: string;
  readonly unit: string;
  readonly format: (value: number) => string;
  readonly least: number;
  readonly lines: readonly Line[];
}

export function ActivityView(): JSX.Element {
  useEffect(followActivity, []);
  const now = activity.value;
  return (
    <div class="single single-wide">
      <div class="section-head">
        <h1>Activity</h1>
        <p class="faint">The last ten minutes of this instance, every two seconds.</p>
      </div>
      {activityFailure.value !== undefined && (
        <Notice kind="warning" title="The figures have stopped">
          <p>{explain(activityFailure.value)} They go on by themselves.</p>
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

const milliseconds = (value: number): string => `${formatFigure(value)} ms`;

function figuresOf({ intervalMs, samples }: Activity): Figure[] {
  const perSecond = (pick: (sample: Sample) => number): number[] =>
    samples.map((sample) => (pick(sample) * 1000) / intervalMs);
  return [
    {
      title: "Created",
      unit: "plants a second",
      format: formatFigure,
      least: 10,
      lines: [
        {
          label: "Created",
          color: "--leaf",
          isFilled: true,
          values: perSecond(({ creates }) => creates),
        },
      ],
    },
    {
      title: "Time to durable",
      unit: "until it is on disk",
      format: milliseconds,
      least: 5,
      lines: [
        {
          label: "median",
          color: "--leaf",
          hasGaps: true,
          values: samples.map(({ durableP50Ms }) => durableP50Ms),
        },
        {
          label: "99 %",
          color: "--sun",
          dash: [5, 3],
          hasGaps: true,
          values: samples.map(({ durableP99Ms }) => durableP99Ms),
        },
      ],
    },
    {
      title: "Waiting",
      unit: "writes in the queue",
      format: formatFigure,
      least: 10,
      lines: [
        {
          label: "Waiting",
          color: "--leaf",
          isFilled: true,
          values: samples.map(({ waiting }) => waiting),
        },
      ],
    },
    {
      title: "Errors",
      unit: "a second",
      format: formatFigure,
      least: 1,
      lines: [
        { label: "failed", color: "--soil", values: perSecond(({ errors }) => errors) },
        {
          label: "refused",
          color: "--sun",
          dash: [5, 3],
          values: perSecond(({ refused }) => refused),
        },
      ],
    },
    {
      title: "Store size",
      unit: "on disk",
      format: formatBytes,
      least: 1_000_000,
      lines: [
        {
          label: "Size",
          color: "--leaf",
          isFilled: true,
          values: samples.map(({ storeBytes }) => storeBytes),
        },
      ],
    },
  ];
}

interface ChartCardProps {
  readonly figure: Figure;
  readonly samples: readonly Sample[];
}

function ChartCard({ figure, samples }: ChartCardProps): JSX.Element {
  const { title, unit, format, lines, least } = figure;
  const latest = (line: Line | undefined): string => {
    const value = line?.values.findLast((each) => each !== null) ?? null;
    return value === null ? "–" : format(value);
  };
  const highest = Math.max(
    0,
    ...lines.flatMap(({ values }) => values.filter((value) => value !== null)),
  );
  return (
    <figure class="chart-card">
      <figcaption>
        <h2>{title}</h2>
        <span class="faint">{unit}</span>
        <dl class="chart-now">
          {lines.map((line) => (
            <div key={line.label}>
              {lines.length > 1 ? (
                <dt>
                  <LineSample line={line} />
                  {line.label}
                </dt>
              ) : (
                <dt class="visually-hidden">{line.label}</dt>
              )}
              <dd>{latest(line)}</dd>
            </div>
          ))}
        </dl>
        <span class="visually-hidden">The highest in ten minutes: {format(highest)}.</span>
      </figcaption>
      <Chart
        times={samples.map(({ atMs }) => atMs / 1000)}
        lines={lines}
        format={format}
        least={least}
        span={SPAN_SECONDS}
      />
    </figure>
  );
}

/** What the line looks like. */
const LineSample = ({ line }: { readonly line: Line }): JSX.Element => (
  <svg class={`line-sample line${line.color}`} viewBox="0 0 18 4" aria-hidden="true">
    <path d="M0 2h18" stroke-dasharray={line.dash?.join(" ")} />
  </svg>
);
