/** Health: charts of this instance's last hour, and its recent requests. */

import { signal, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { ask, explain } from "../api/service.ts";
import {
  formatBytes,
  formatCount,
  formatFigure,
  formatMoment,
  formatSeconds,
  formatTime,
} from "../state/format.ts";
import { locale } from "../text/text.ts";
import { Notice, Table, Terms } from "./controls.tsx";
import { usePolling } from "./form.tsx";

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
  if (backups === null) return "not configured; set PLANTSTORE_BACKUP_TO to a folder or a bucket";
  const { last, failed } = backups;
  const failures = failed === 0 ? "" : `, ${formatCount(failed)} failed`;
  if (last === null) return `none yet${failures}`;
  const age = formatSeconds((Date.now() - last.atMs) / 1000);
  return `${age} ago, ${formatBytes(last.bytes)}${failures}`;
}

/** Appended once a second: a little more is no cause for alarm. */
const LAG_SECONDS_MAX = 10;

function describeLog({ loggedAtMs }: { readonly loggedAtMs: number | null }): string {
  if (loggedAtMs === null) return "off: the service keeps no changes";
  const seconds = (Date.now() - loggedAtMs) / 1000;
  return seconds <= LAG_SECONDS_MAX ? "up to date" : `${formatSeconds(seconds)} behind`;
}

/** A backup that was never restored is only a hope. */
function describeProof({ proven }: NonNullable<Activity["backups"]>): string {
  if (proven === null) return "not proven since the start";
  const { atMs, copies, oldestAtMs } = proven;
  const since = formatTime(new Date(oldestAtMs).toISOString());
  const age = formatSeconds((Date.now() - atMs) / 1000);
  return `any moment since ${since}, ${formatCount(copies)} ${copies === 1 ? "copy" : "copies"}; restored and compared ${age} ago`;
}

/** Of requests. A member without a value is absent. */
type Filter = Readonly<Partial<Record<"status" | "path" | "token", string>>>;

async function readOn(before: Activity | undefined, filter: Filter): Promise<Activity> {
  const known = before?.samples ?? [];
  const query = new URLSearchParams({ since: String(known.at(-1)?.atMs ?? 0), ...filter });
  const now = await ask<Activity>(`/activity?${query}`);
  return { ...now, samples: [...known, ...now.samples].slice(-SAMPLES_MAX) };
}

export function HealthView(): JSX.Element {
  const filter = useSignal<Filter>({});
  const {
    answer: now,
    failure,
    poll,
  } = usePolling<Activity>((before) => readOn(before, filter.value));
  const narrow = (name: keyof Filter, value: string): void => {
    const { [name]: _, ...others } = filter.value;
    filter.value = value === "" ? others : { ...others, [name]: value };
    void poll();
  };
  return (
    <div class="single">
      <div class="section-head">
        <h1>Health</h1>
        <p class="faint">The last hour of this instance, updated every five seconds.</p>
      </div>
      {failure !== undefined && (
        <Notice
          kind="warning"
          title="These figures are out of date"
          text={`${explain(failure)} They resume when the store answers.`}
        />
      )}
      {now === undefined ? (
        <p class="faint">Loading…</p>
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
          ["Version:", now.version],
          ["Running for:", formatSeconds((Date.now() - now.startedAtMs) / 1000)],
          ["Last backup:", describeBackups(now.backups)],
          ...(now.backups === null
            ? []
            : [
                ["Changes since:", describeLog(now.backups)] as const,
                ["Can be restored:", describeProof(now.backups)] as const,
                ["Backups in:", now.backups.place] as const,
              ]),
        ]}
      />
      {typeof now.backups?.problem === "string" && (
        <Notice kind="warning" title="Backups do not arrive" text={now.backups.problem} />
      )}
      <div class="charts">
        {figures.map((figure) => (
          <Chart key={figure.title} figure={figure} slots={slots} intervalMs={now.intervalMs} />
        ))}
      </div>
    </>
  );
}

const isEmpty = (filter: Filter): boolean => Object.keys(filter).length === 0;

const statuses = [
  ["", "Any status"],
  ["failed", "Failed"],
  ["2xx", "2xx: succeeded"],
  ["3xx", "3xx: not modified"],
  ["4xx", "4xx: refused"],
  ["5xx", "5xx: failed in the service"],
] as const;

const texts = [
  ["path", "Path"],
  ["token", "Token"],
] as const;

interface RequestsProps {
  readonly requests: Activity["requests"];
  readonly isAll: boolean;
  readonly onNarrow: (name: keyof Filter, value: string) => void;
}

function Requests({ requests, isAll, onNarrow }: RequestsProps): JSX.Element {
  return (
    <>
      <h2>Recent requests</h2>
      <search class="filters">
        <select
          class="narrow"
          aria-label="Status"
          onChange={({ currentTarget }) => onNarrow("status", currentTarget.value)}
        >
          {statuses.map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
        {texts.map(([name, label]) => (
          <input
            key={name}
            class="narrow"
            aria-label={label}
            placeholder={`Any ${label.toLowerCase()}`}
            autocomplete="off"
            onChange={({ currentTarget }) => onNarrow(name, currentTarget.value.trim())}
          />
        ))}
      </search>
      {requests.length === 0 ? (
        <p class="faint" role="status">
          {isAll ? "None since the start." : "None of the recent requests matches."}
        </p>
      ) : (
        <Table
          label="Recent requests"
          isListing
          heads={["Time", "Status", "Request", "Took", "Token", "Request id"]}
          rows={requests.map(({ atMs, durationMs, status, reason, token, requestId, ...sent }) => [
            formatMoment(atMs),
            <span class={status < 500 ? undefined : "field-fault"}>
              {status} {reason?.replaceAll("_", " ")}
            </span>,
            <code>
              {sent.method} {sent.path}
            </code>,
            `${formatFigure(durationMs)} ms`,
            token ?? "none",
            requestId === null ? "none" : <code>{requestId}</code>,
          ])}
        />
      )}
    </>
  );
}

const HEIGHT = 100;
const SLOTS = 60;
/** In samples. */
const SLOT_LENGTHS = [1, 3, 12];

/** Rounds to 1, 2 or 5 times a power of ten, so the scale rarely changes. */
function roundUp(value: number): number {
  const unit = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5].find((factor) => factor * unit >= value) ?? 10) * unit;
}

/** The index of the slot whose values are shown; undefined for the newest. */
const picked = signal<number | undefined>(undefined);

function pickAt({ currentTarget, clientX }: { currentTarget: Element; clientX: number }): void {
  const { left, width } = currentTarget.getBoundingClientRect();
  const slot = Math.floor(((clientX - left) / width) * SLOTS);
  picked.value = Math.max(0, Math.min(SLOTS - 1, slot));
}

const clock = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit" });

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
    return { time: clock.format((first + at) * slotMs), samples: [] };
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

const sum = (values: readonly number[]): number => values.reduce((all, value) => all + value, 0);

interface ChartProps {
  readonly figure: Figure;
  readonly slots: readonly Slot[];
  readonly intervalMs: number;
}

function Chart({ figure, slots, intervalMs }: ChartProps): JSX.Element {
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
  const top = roundUp(Math.max(1, ...heights));
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
  const moment = picked.value === undefined ? unit : slots[slot]?.time;
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
      <div class="chart">
        <input
          class="visually-hidden"
          type="range"
          min={1}
          max={SLOTS}
          value={slot + 1}
          aria-label={`${title}: moment`}
          aria-valuetext={`${moment}: ${lines.map(({ label, text }) => `${label} ${text}`).join(", ")}`}
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
            // Lifting a finger is no reason to clear the values.
            if (event.pointerType === "mouse") picked.value = undefined;
          }}
        >
          <path class="chart-grid" d={`M0 0H${SLOTS}m0 ${HEIGHT / 2}H0m0 ${HEIGHT / 2}H${SLOTS}`} />
          {picked.value !== undefined && (
            <rect class="chart-picked" x={slot} width={1} height={HEIGHT} />
          )}
          {/* Later series are drawn over earlier ones, or stacked on them. */}
          {lines.map(({ color, values }) => (
            <path key={color} fill={`var(${color})`} d={values.map(drawBar).join("")} />
          ))}
        </svg>
        <div class="chart-times" aria-hidden="true">
          {[0, 15, 30, 45].map((at) => (
            <span key={at}>{slots[at]?.time}</span>
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
    ["p99", "--edge", (sample) => sample[p99]],
    ["p50", "--leaf", (sample) => sample[p50]],
  ],
});

const figures: readonly Figure[] = [
  {
    title: "Requests",
    unit: "per second",
    isCount: true,
    series: [
      ["2xx", "--leaf", ({ requests, errors, refused }) => requests - errors - refused],
      ["4xx", "--sun", ({ refused }) => refused],
      ["5xx", "--soil", ({ errors }) => errors],
    ],
  },
  latency("Read latency", "until answered", "readP99Ms", "readP50Ms"),
  latency("Write latency", "until on disk", "writeP99Ms", "writeP50Ms"),
  {
    title: "Added",
    unit: "plants per second",
    isCount: true,
    series: [["Plants", "--leaf", ({ creates }) => creates]],
  },
  {
    title: "Write queue",
    unit: "waiting writes",
    series: [["Waiting", "--leaf", ({ waiting }) => waiting]],
  },
  {
    title: "Store size",
    unit: "on disk",
    format: formatBytes,
    series: [["Size", "--leaf", ({ storeBytes }) => storeBytes]],
  },
];
