/** Health: charts of this instance's last hour, and its recent requests. */

import { signal, useSignal } from "@preact/signals";
import type { JSX, TargetedPointerEvent } from "preact";
import { explain, readActivity } from "../api/service.ts";
import {
  formatBytes,
  formatFigure,
  formatMoment,
  formatSeconds,
  formatTime,
  timeOfDay,
} from "../state/format.ts";
import { fill, plural, t } from "../text/text.ts";
import { barAt, Chart, HEIGHT, roundUp, sum } from "./chart.tsx";
import { Notice, Table, Terms } from "./controls.tsx";
import { POLL, useRead } from "./read.ts";

/** Counts are per interval. An unknown figure is null. */
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
    readonly loggedAtMs: number | null;
    readonly place: string;
    readonly proven: Readonly<Record<"atMs" | "copies" | "oldestAtMs", number>> | null;
    readonly problem: string | null;
  } | null;
  readonly requests: readonly Readonly<
    Record<"atMs" | "durationMs" | "status", number> &
      Record<"method" | "path", string> &
      Record<"reason" | "token" | "requestId", string | null>
  >[];
  readonly version: string;
  readonly startedAtMs: number;
}

const SAMPLES_MAX = 720;

function describeBackups(backups: Activity["backups"]): string {
  if (backups === null) return t.operators.health.noBackups;
  const { last, failed } = backups;
  if (last === null)
    return failed === 0
      ? t.operators.health.noBackup
      : fill(t.operators.health.noBackupFailed, { failed });
  const age = formatSeconds((Date.now() - last.atMs) / 1000);
  const size = formatBytes(last.bytes);
  return failed === 0
    ? fill(t.operators.health.backup, { age, size })
    : fill(t.operators.health.backupFailed, { age, size, failed });
}

/** Appended once a second: a little more is not alarming. */
const LAG_SECONDS_MAX = 10;

function describeLog({ loggedAtMs }: { readonly loggedAtMs: number | null }): string {
  if (loggedAtMs === null) return t.operators.health.logOff;
  const seconds = (Date.now() - loggedAtMs) / 1000;
  return seconds <= LAG_SECONDS_MAX
    ? t.operators.health.logCurrent
    : fill(t.operators.health.logBehind, { age: formatSeconds(seconds) });
}

/** A backup that was never restored is only a hope. */
function describeProof({ proven }: NonNullable<Activity["backups"]>): string {
  if (proven === null) return t.operators.health.notProven;
  const { atMs, copies, oldestAtMs } = proven;
  const since = formatTime(new Date(oldestAtMs).toISOString());
  const age = formatSeconds((Date.now() - atMs) / 1000);
  return plural(t.operators.health.proven, copies, { since, age });
}

/** Of requests. A member without a value is absent. */
type Filter = Readonly<Partial<Record<"status" | "path" | "token", string>>>;

async function readOn(before: Activity | undefined, filter: Filter): Promise<Activity> {
  const known = before?.samples ?? [];
  const query = new URLSearchParams({ since: String(known.at(-1)?.atMs ?? 0), ...filter });
  const now = await readActivity<Activity>(query);
  return { ...now, samples: [...known, ...now.samples].slice(-SAMPLES_MAX) };
}

export function HealthView(): JSX.Element {
  const filter = useSignal<Filter>({});
  const { answer: now, failure } = useRead<Activity>(
    (_ended, before) => readOn(before, filter.value),
    [filter.value],
    POLL,
  );
  const narrow = (name: keyof Filter, value: string): void => {
    const { [name]: _, ...others } = filter.value;
    filter.value = value === "" ? others : { ...others, [name]: value };
  };
  return (
    <div class="single">
      <div class="section-head">
        <h1>{t.shell.views.health}</h1>
        <p class="faint">{t.operators.health.intro}</p>
      </div>
      {failure !== undefined && (
        <Notice
          kind="warning"
          title={t.operators.health.stale}
          text={fill(t.operators.health.staleBecause, { reason: explain(failure) })}
        />
      )}
      {now === undefined ? (
        <p class="faint">{t.shared.loading}</p>
      ) : (
        <>
          <Shown now={now} />
          <Requests requests={now.requests} isAll={isEmpty(filter.value)} onNarrow={narrow} />
        </>
      )}
    </div>
  );
}

function Shown({ now }: { readonly now: Activity }): JSX.Element {
  const slots = divide(now);
  return (
    <>
      <Terms
        class="facts"
        of={[
          [t.operators.health.version, now.version],
          [t.operators.health.runningFor, formatSeconds((Date.now() - now.startedAtMs) / 1000)],
          [t.operators.health.lastBackup, describeBackups(now.backups)],
          ...(now.backups === null
            ? []
            : [
                [t.operators.health.changesSince, describeLog(now.backups)] as const,
                [t.operators.health.restorable, describeProof(now.backups)] as const,
                [t.operators.health.backupsIn, now.backups.place] as const,
              ]),
        ]}
      />
      {typeof now.backups?.problem === "string" && (
        <Notice kind="warning" title={t.operators.health.backupsFail} text={now.backups.problem} />
      )}
      <div class="charts">
        {figures.map((figure) => (
          <FigureChart
            key={figure.title}
            figure={figure}
            slots={slots}
            intervalMs={now.intervalMs}
          />
        ))}
      </div>
    </>
  );
}

const isEmpty = (filter: Filter): boolean => Object.keys(filter).length === 0;

const statuses = [
  ["", t.operators.health.anyStatus],
  ...Object.entries(t.operators.health.statuses),
] as const;

const fields = [
  ["path", t.operators.health.path, t.operators.health.anyPath],
  ["token", t.operators.health.token, t.operators.health.anyToken],
] as const;

interface RequestsProps {
  readonly requests: Activity["requests"];
  readonly isAll: boolean;
  readonly onNarrow: (name: keyof Filter, value: string) => void;
}

function Requests({ requests, isAll, onNarrow }: RequestsProps): JSX.Element {
  return (
    <>
      <h2>{t.operators.health.requests}</h2>
      <search class="filters">
        <select
          class="narrow"
          aria-label={t.operators.health.status}
          onChange={({ currentTarget }) => onNarrow("status", currentTarget.value)}
        >
          {statuses.map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
        {fields.map(([name, label, any]) => (
          <input
            key={name}
            class="narrow"
            aria-label={label}
            placeholder={any}
            autocomplete="off"
            onChange={({ currentTarget }) => onNarrow(name, currentTarget.value.trim())}
          />
        ))}
      </search>
      {requests.length === 0 ? (
        <p class="faint" role="status">
          {isAll ? t.operators.health.noRequests : t.operators.health.noMatch}
        </p>
      ) : (
        <Table
          label={t.operators.health.requests}
          isListing
          heads={[
            t.operators.health.time,
            t.operators.health.status,
            t.operators.health.request,
            t.operators.health.took,
            t.operators.health.token,
            t.operators.health.requestId,
          ]}
          rows={requests.map(({ atMs, durationMs, status, reason, token, requestId, ...sent }) => [
            formatMoment(atMs),
            <span class={status < 500 ? undefined : "field-fault"}>
              {status} {reason?.replaceAll("_", " ")}
            </span>,
            <code>
              {sent.method} {sent.path}
            </code>,
            `${formatFigure(durationMs)} ms`,
            token ?? t.operators.health.none,
            requestId !== null && <code>{requestId}</code>,
          ])}
        />
      )}
    </>
  );
}

const SLOTS = 60;
/** In samples. */
const SLOT_LENGTHS = [1, 3, 12];

/** So that the scale rarely changes. */
const FACTORS = [1, 2, 5];

/** The index of the slot whose values are shown; undefined for the newest. */
const picked = signal<number | undefined>(undefined);

const pickAt = (event: TargetedPointerEvent<SVGSVGElement>): void => {
  picked.value = barAt(event, SLOTS);
};

interface Slot {
  readonly time: string;
  readonly samples: Sample[];
}

/** The shortest slots that hold all samples. Just after the start, a bar is one sample. */
function divide({ samples, intervalMs }: Activity): readonly Slot[] {
  const lastMs = samples.at(-1)?.atMs ?? Date.now();
  const spanMs = lastMs - (samples[0]?.atMs ?? lastMs);
  const length = SLOT_LENGTHS.find((each) => spanMs < (SLOTS - 1) * each * intervalMs) ?? 12;
  const slotMs = length * intervalMs;
  const first = Math.floor(lastMs / slotMs) - SLOTS + 1;
  const slots = Array.from({ length: SLOTS }, (_, at): Slot => {
    return { time: timeOfDay.format((first + at) * slotMs), samples: [] };
  });
  for (const sample of samples)
    slots[Math.floor(sample.atMs / slotMs) - first]?.samples.push(sample);
  return slots;
}

type Series = readonly [label: string, color: string, of: (sample: Sample) => number | null];

interface Figure {
  readonly title: string;
  readonly unit: string;
  readonly format?: (value: number) => string;
  /** Counts are shown per second and stacked. Other figures show the highest value. */
  readonly isCount?: boolean;
  readonly series: readonly Series[];
}

interface FigureProps {
  readonly figure: Figure;
  readonly slots: readonly Slot[];
  readonly intervalMs: number;
}

function FigureChart({ figure, slots, intervalMs }: FigureProps): JSX.Element {
  const { title, unit, format = formatFigure, series, isCount = false } = figure;
  const lines = series.map(([label, color, of]) => {
    const values = slots.map(({ samples }) => {
      const known = samples.map(of).filter((value) => value !== null);
      if (known.length === 0) return null;
      return isCount ? (sum(known) * 1000) / (known.length * intervalMs) : Math.max(...known);
    });
    const shown =
      picked.value === undefined ? values.findLast((one) => one !== null) : values[picked.value];
    return { label, color, values, text: typeof shown === "number" ? format(shown) : "–" };
  });
  const heights = slots.map((_, at) => {
    const values = lines.map(({ values: all }) => all[at] ?? 0);
    return isCount ? sum(values) : Math.max(...values);
  });
  const top = roundUp(Math.max(1, ...heights), FACTORS);
  /** The y of the next stacked bar, by slot. */
  const bases = slots.map(() => HEIGHT);
  const drawBar = (value: number | null, at: number): string => {
    if (value === null || value === 0) return "";
    // A small value is still visible.
    const height = Math.max(1, (value / top) * HEIGHT);
    const base = bases[at] ?? HEIGHT;
    if (isCount) bases[at] = base - height;
    return `M${at + 0.15} ${base}v${-height}h.7v${height}z`;
  };
  const slot = picked.value ?? SLOTS - 1;
  const moment = picked.value === undefined ? unit : (slots[slot]?.time ?? unit);
  return (
    <figure class="chart-card">
      <figcaption>
        <h2>{title}</h2>
        <span class="faint">{moment}</span>
        {/* The largest series is drawn first and listed last. */}
        <Terms
          class="chart-now"
          of={(isCount ? lines : lines.toReversed()).map(({ label, color, text }) => [
            <span class="swatch" style={{ borderColor: `var(${color})` }}>
              {label}
            </span>,
            text,
          ])}
        />
      </figcaption>
      <Chart
        viewBox={`0 0 ${SLOTS} ${HEIGHT}`}
        preserveAspectRatio="none"
        aria-hidden="true"
        top={top}
        format={format}
        times={[0, 15, 30, 45].map((at) => slots[at]?.time ?? "")}
        picked={picked.value === undefined ? undefined : [(slot * 100) / SLOTS, 100 / SLOTS]}
        slider={
          <input
            class="visually-hidden"
            type="range"
            min={1}
            max={SLOTS}
            value={slot + 1}
            aria-label={fill(t.operators.health.moment, { chart: title })}
            aria-valuetext={fill(t.operators.health.momentValues, {
              moment,
              values: lines.map(({ label, text }) => `${label} ${text}`).join(", "),
            })}
            onInput={(event) => (picked.value = event.currentTarget.valueAsNumber - 1)}
            onBlur={() => (picked.value = undefined)}
          />
        }
        onPointerMove={pickAt}
        onPointerDown={pickAt}
        onPointerLeave={(event) => {
          // The values stay when the finger is lifted.
          if (event.pointerType === "mouse") picked.value = undefined;
        }}
      >
        {/* Later series are drawn over earlier ones, or stacked on them. */}
        {lines.map(({ color, values }) => (
          <path key={color} fill={`var(${color})`} d={values.map(drawBar).join("")} />
        ))}
      </Chart>
    </figure>
  );
}

const latency = (kind: "reads" | "writes", p99: keyof Sample, p50: keyof Sample): Figure => ({
  title: t.operators.health.charts[kind],
  unit: t.operators.health.units[kind],
  format: (value) => `${formatFigure(value)} ms`,
  series: [
    ["p99", "--edge", (sample) => sample[p99]],
    ["p50", "--leaf", (sample) => sample[p50]],
  ],
});

const figures: readonly Figure[] = [
  {
    title: t.operators.health.charts.requests,
    unit: t.operators.health.units.requests,
    isCount: true,
    series: [
      ["2xx", "--leaf", ({ requests, errors, refused }) => requests - errors - refused],
      ["4xx", "--sun", ({ refused }) => refused],
      ["5xx", "--soil", ({ errors }) => errors],
    ],
  },
  latency("reads", "readP99Ms", "readP50Ms"),
  latency("writes", "writeP99Ms", "writeP50Ms"),
  {
    title: t.operators.health.charts.added,
    unit: t.operators.health.units.added,
    isCount: true,
    series: [[t.operators.health.series.plants, "--leaf", ({ creates }) => creates]],
  },
  {
    title: t.operators.health.charts.queue,
    unit: t.operators.health.units.queue,
    series: [[t.operators.health.series.waiting, "--leaf", ({ waiting }) => waiting]],
  },
  {
    title: t.operators.health.charts.size,
    unit: t.operators.health.units.size,
    format: formatBytes,
    series: [[t.operators.health.series.size, "--leaf", ({ storeBytes }) => storeBytes]],
  },
];
