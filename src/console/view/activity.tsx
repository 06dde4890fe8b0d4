/** Activity: what this instance did in the last hour, in bars with their values, and what failed. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { ask, explain } from "../api/service.ts";
import {
  formatBytes,
  formatCount,
  formatFigure,
  formatSeconds,
  formatTime,
} from "../state/format.ts";
import { Notice, Table, Terms } from "./controls.tsx";
import { usePolling } from "./form.tsx";

/** The counts are per interval. A figure that is not known is null. */
type Sample = Readonly<
  Record<"atMs" | "requests" | "errors" | "refused" | "creates" | "waiting", number> &
    Record<"readP50Ms" | "readP99Ms" | "writeP50Ms" | "writeP99Ms" | "storeBytes", number | null>
>;

interface Activity {
  readonly intervalMs: number;
  readonly samples: readonly Sample[];
  /** Null if the service makes no backups. */
  readonly backups: {
    readonly failed: number;
    readonly last: { readonly atMs: number; readonly bytes: number } | null;
  } | null;
  readonly failures: readonly {
    readonly atMs: number;
    readonly status: number;
    readonly reason: string;
    readonly method: string;
    readonly path: string;
    readonly token: string | null;
    readonly requestId: string;
  }[];
  readonly version: string;
  readonly startedAtMs: number;
}

const SAMPLES_MAX = 720;

function describeBackups(backups: Activity["backups"]): string {
  if (backups === null) return "none planned";
  const { last, failed } = backups;
  const failures = failed === 0 ? "" : `, ${formatCount(failed)} failed`;
  if (last === null) return `none yet${failures}`;
  const age = formatSeconds((Date.now() - last.atMs) / 1000);
  return `${age} ago, ${formatBytes(last.bytes)}${failures}`;
}

async function readOn(before: Activity | undefined): Promise<Activity> {
  const known = before?.samples ?? [];
  const now = await ask<Activity>(`/activity?since=${known.at(-1)?.atMs ?? 0}`);
  return { ...now, samples: [...known, ...now.samples].slice(-SAMPLES_MAX) };
}

export function ActivityView(): JSX.Element {
  const { answer: now, failure } = usePolling(readOn);
  return (
    <div class="single">
      <div class="section-head">
        <h1>Activity</h1>
        <p class="faint">The last hour of this instance, updated every five seconds.</p>
      </div>
      {failure !== undefined && (
        <Notice
          kind="warning"
          title="These figures are out of date"
          text={`${explain(failure)} They continue when the store answers.`}
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
          ["Version:", now.version],
          ["Running for:", formatSeconds((Date.now() - now.startedAtMs) / 1000)],
          ["Last backup:", describeBackups(now.backups)],
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
            formatTime(new Date(failed.atMs).toISOString()),
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

const HEIGHT = 100;
const SLOTS = 60;

/** 1, 2 or 5 with zeros: the scale does not change with every value. */
function roundUp(value: number): number {
  const unit = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5].find((factor) => factor * unit >= value) ?? 10) * unit;
}

/** The slot whose values are shown, counted from the left; undefined for the newest. */
const picked = signal<number | undefined>(undefined);

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const formatClock = (ms: number): string => clock.format(ms);

interface Slots {
  readonly intervalMs: number;
  /** When each slot begins. */
  readonly startMs: (slot: number) => number;
  readonly samples: readonly (readonly Sample[])[];
}

const LENGTHS = [1, 3, 12];

/** As short as all samples allow: just after the start, a bar is one sample. */
function divide(samples: readonly Sample[], intervalMs: number): Slots {
  const lastMs = samples.at(-1)?.atMs ?? Date.now();
  const spanMs = lastMs - (samples[0]?.atMs ?? lastMs);
  const length = LENGTHS.find((each) => spanMs < (SLOTS - 1) * each * intervalMs) ?? 12;
  const slotMs = length * intervalMs;
  const first = Math.floor(lastMs / slotMs) - SLOTS + 1;
  const divided: Sample[][] = Array.from({ length: SLOTS }, () => []);
  for (const sample of samples) divided[Math.floor(sample.atMs / slotMs) - first]?.push(sample);
  return { intervalMs, startMs: (slot) => (first + slot) * slotMs, samples: divided };
}

interface Series {
  readonly label: string;
  readonly color: string;
  readonly of: (sample: Sample) => number | null;
}

interface Figure {
  readonly title: string;
  readonly unit: string;
  readonly format?: (value: number) => string;
  /** Counts are shown per second, on top of each other; otherwise the highest value counts. */
  readonly isCount?: boolean;
  readonly series: readonly Series[];
}

function pickAt({ currentTarget, clientX }: { currentTarget: Element; clientX: number }): void {
  const { left, width } = currentTarget.getBoundingClientRect();
  const slot = Math.floor(((clientX - left) / width) * SLOTS);
  picked.value = Math.max(0, Math.min(SLOTS - 1, slot));
}

/** One for each slot. */
type Values = readonly (number | null)[];

function summarize({ samples, intervalMs }: Slots, { of }: Series, isCount: boolean): Values {
  return samples.map((each) => {
    const known = each.map(of).filter((value) => value !== null);
    if (known.length === 0) return null;
    if (!isCount) return Math.max(...known);
    const sum = known.reduce((total, value) => total + value, 0);
    return (sum * 1000) / (known.length * intervalMs);
  });
}

/** As the `d` of a path. The bars stand on these bases, and raise them if they are stacked. */
function drawBars(values: Values, top: number, bases: number[], isStacked: boolean): string {
  const bars = values.map((value, slot) => {
    if (value === null || value === 0) return "";
    // A small value is not nothing.
    const height = Math.max(1, (value / top) * HEIGHT);
    const base = bases[slot] ?? HEIGHT;
    if (isStacked) bases[slot] = base - height;
    return `M${slot + 0.15} ${base}v${-height}h.7v${height}z`;
  });
  return bars.join("");
}

const TIMES = [0, 15, 30, 45];

interface ChartProps {
  readonly figure: Figure;
  readonly slots: Slots;
}

function Chart({ figure, slots }: ChartProps): JSX.Element {
  const { title, unit, format = formatFigure, series, isCount = false } = figure;
  const lines = series.map((one) => {
    const { label, color } = one;
    return { label, color, values: summarize(slots, one, isCount) };
  });
  const slot = picked.value;
  const valueOf = (values: Values): string => {
    const value =
      (slot === undefined ? values.findLast((one) => one !== null) : values[slot]) ?? null;
    return value === null ? "–" : format(value);
  };
  const moment = slot === undefined ? unit : formatClock(slots.startMs(slot));
  const heights = slots.samples.map((_, at) => {
    const values = lines.map(({ values: all }) => all[at] ?? 0);
    return isCount ? values.reduce((sum, value) => sum + value, 0) : Math.max(...values);
  });
  const top = roundUp(Math.max(1, ...heights));
  const bases = Array.from({ length: SLOTS }, () => HEIGHT);
  const texts = lines.map(({ label, values }) => `${label} ${valueOf(values)}`);
  return (
    <figure class="chart-card">
      <figcaption>
        <h2>{title}</h2>
        <span class="faint">{moment}</span>
        <dl class="chart-now">
          {/* The largest is drawn first, and read last. */}
          {(isCount ? lines : lines.toReversed()).map(({ label, color, values }) => (
            <div key={label}>
              <dt class={lines.length > 1 ? undefined : "visually-hidden"}>
                <i class="swatch" style={{ background: `var(${color})` }} />
                {label}
              </dt>
              <dd>{valueOf(values)}</dd>
            </div>
          ))}
        </dl>
      </figcaption>
      <div class="chart">
        <input
          class="visually-hidden"
          type="range"
          min={1}
          max={SLOTS}
          value={(slot ?? SLOTS - 1) + 1}
          aria-label={`${title}: moment`}
          aria-valuetext={`${moment}: ${texts.join(", ")}`}
          onInput={(event) => (picked.value = event.currentTarget.valueAsNumber - 1)}
          onBlur={() => (picked.value = undefined)}
        />
        <div class="chart-values" aria-hidden="true">
          {[top, top / 2, 0].map((value) => (
            <span key={value}>{format(value)}</span>
          ))}
        </div>
        <svg
          viewBox={`0 0 ${SLOTS} ${HEIGHT}`}
          preserveAspectRatio="none"
          aria-hidden="true"
          onPointerMove={pickAt}
          onPointerDown={pickAt}
          onPointerLeave={(event) => {
            // A finger leaves when it is lifted.
            if (event.pointerType === "mouse") picked.value = undefined;
          }}
        >
          <path
            class="chart-grid"
            d={`M0 0H${SLOTS}M0 ${HEIGHT / 2}H${SLOTS}M0 ${HEIGHT}H${SLOTS}`}
          />
          {slot !== undefined && <rect class="chart-picked" x={slot} width={1} height={HEIGHT} />}
          {/* Later ones are drawn over earlier ones, or on top of them. */}
          {lines.map(({ color, values }) => (
            <path key={color} fill={`var(${color})`} d={drawBars(values, top, bases, isCount)} />
          ))}
        </svg>
        <div class="chart-times" aria-hidden="true">
          {TIMES.map((each) => (
            <span key={each}>{formatClock(slots.startMs(each))}</span>
          ))}
        </div>
      </div>
    </figure>
  );
}

const latency = (title: string, unit: string, p99: keyof Sample, p50: keyof Sample): Figure => ({
  title,
  unit,
  format: (value) => `${formatFigure(value)} ms`,
  series: [
    { label: "p99", color: "--edge", of: (sample) => sample[p99] },
    { label: "p50", color: "--leaf", of: (sample) => sample[p50] },
  ],
});

const figures: readonly Figure[] = [
  {
    title: "Requests",
    unit: "per second",
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
    isCount: true,
    series: [{ label: "Created", color: "--leaf", of: ({ creates }) => creates }],
  },
  {
    title: "Write queue",
    unit: "waiting writes",
    series: [{ label: "Waiting", color: "--leaf", of: ({ waiting }) => waiting }],
  },
  {
    title: "Store size",
    unit: "on disk",
    format: formatBytes,
    series: [{ label: "Size", color: "--leaf", of: ({ storeBytes }) => storeBytes }],
  },
];
