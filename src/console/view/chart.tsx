/** Bars over time. A pointer or the arrow keys pick a moment, in all charts at once, and each shows its values. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { formatFigure } from "../state/format.ts";

const HEIGHT = 100;
const SLOTS = 60;
const STEPS: Readonly<Partial<Record<string, number>>> = {
  ArrowLeft: -1,
  ArrowRight: 1,
  Home: -SLOTS,
  End: SLOTS,
};

/** 1, 2 or 5 with zeros: the scale does not change with every value. */
function roundUp(value: number): number {
  const unit = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5].find((factor) => factor * unit >= value) ?? 10) * unit;
}

/** The slot whose values are shown, counted from the left; undefined for the newest. */
const picked = signal<number | undefined>(undefined);

const pick = (slot: number): void => {
  picked.value = Math.max(0, Math.min(SLOTS - 1, slot));
};

/** The counts are per interval. */
export interface Sample {
  readonly atMs: number;
  readonly requests: number;
  readonly errors: number;
  readonly refused: number;
  readonly creates: number;
  readonly readP50Ms: number | null;
  readonly readP99Ms: number | null;
  readonly writeP50Ms: number | null;
  readonly writeP99Ms: number | null;
  readonly waiting: number;
  readonly storeBytes: number | null;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
export const formatClock = (ms: number): string => clock.format(ms);

interface Slots {
  readonly intervalMs: number;
  /** When each slot begins. */
  readonly startMs: (slot: number) => number;
  readonly samples: readonly (readonly Sample[])[];
}

const LENGTHS = [1, 3, 12];

/** As short as all samples allow: just after the start, a bar is one sample. */
export function divide(samples: readonly Sample[], intervalMs: number): Slots {
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

export interface Figure {
  readonly title: string;
  readonly unit: string;
  readonly format?: (value: number) => string;
  /** The least that the scale shows. */
  readonly least: number;
  /** Counts are shown per second, on top of each other; otherwise the highest value counts. */
  readonly isCount?: boolean;
  readonly series: readonly Series[];
}

function pickAt({ currentTarget, clientX }: { currentTarget: Element; clientX: number }): void {
  const { left, width } = currentTarget.getBoundingClientRect();
  pick(Math.floor(((clientX - left) / width) * SLOTS));
}

interface Line {
  readonly label: string;
  readonly color: string;
  /** One for each slot. */
  readonly values: readonly (number | null)[];
}

/** Later lines are drawn over earlier ones, or on top of them. */
function drawBars(lines: readonly Line[], top: number, isStacked: boolean): [string, string][] {
  const bases = Array.from({ length: SLOTS }, () => HEIGHT);
  return lines.map(({ color, values }) => {
    const bars = values.map((value, slot) => {
      if (value === null || value === 0) return "";
      // A small value is not nothing.
      const height = Math.max(1, (value / top) * HEIGHT);
      const base = bases[slot] ?? HEIGHT;
      if (isStacked) bases[slot] = base - height;
      return `M${slot + 0.15} ${base}v${-height}h.7v${height}z`;
    });
    return [color, bars.join("")];
  });
}

const TIMES = [0, 15, 30, 45];

interface ChartProps {
  readonly figure: Figure;
  readonly slots: Slots;
}

export function Chart({ figure, slots }: ChartProps): JSX.Element {
  const { title, unit, format = formatFigure, series, least, isCount = false } = figure;
  const lines = series.map(({ label, color, of }) => {
    const values = slots.samples.map((samples): number | null => {
      const known = samples.map(of).filter((value) => value !== null);
      if (known.length === 0) return null;
      if (!isCount) return Math.max(...known);
      const sum = known.reduce((total, value) => total + value, 0);
      return (sum * 1000) / (known.length * slots.intervalMs);
    });
    return { label, color, values };
  });
  const slot = picked.value;
  const valueOf = (values: Line["values"]): string => {
    const value =
      (slot === undefined ? values.findLast((one) => one !== null) : values[slot]) ?? null;
    return value === null ? "–" : format(value);
  };
  const moment = slot === undefined ? unit : formatClock(slots.startMs(slot));
  const sums = slots.samples.map((_, at) =>
    lines.reduce((sum, { values }) => sum + (values[at] ?? 0), 0),
  );
  const all = isCount ? sums : lines.flatMap(({ values }) => values.map((value) => value ?? 0));
  const top = roundUp(Math.max(least, ...all));
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
                <svg class="line-sample" viewBox="0 0 10 10" aria-hidden="true">
                  <path d="M0 0h10v10H0z" fill={`var(${color})`} />
                </svg>
                {label}
              </dt>
              <dd>{valueOf(values)}</dd>
            </div>
          ))}
        </dl>
      </figcaption>
      <div
        class="chart"
        role="slider"
        tabIndex={0}
        aria-label={`${title}: moment`}
        aria-valuemin={1}
        aria-valuemax={SLOTS}
        aria-valuenow={(slot ?? SLOTS - 1) + 1}
        aria-valuetext={`${moment}: ${texts.join(", ")}`}
        onBlur={() => (picked.value = undefined)}
        onKeyDown={(event) => {
          const step = STEPS[event.key];
          if (step === undefined) return;
          event.preventDefault();
          pick((slot ?? SLOTS - 1) + step);
        }}
      >
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
          {drawBars(lines, top, isCount).map(([color, bars]) => (
            <path key={color} fill={`var(${color})`} d={bars} />
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
