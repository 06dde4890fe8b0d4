/** Bars over time. A pointer or the arrow keys pick a moment, in all charts at once, and the caller shows its values. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";

export const SLOTS = 60;
/** The slot whose values are shown, counted from the left; undefined for the newest. */
export const picked = signal<number | undefined>(undefined);

export type Values = readonly (number | null)[];

interface ChartProps {
  readonly title: string;
  /** What a screen reader says of the moment. */
  readonly valueText: string;
  /** A value for each slot. Later lines are drawn over earlier ones, or on top of them. */
  readonly lines: readonly { readonly color: string; readonly values: Values }[];
  readonly isStacked: boolean;
  readonly format: (value: number) => string;
  /** The least that the scale shows. */
  readonly least: number;
  /** From the left to the right. */
  readonly times: readonly string[];
}

const HEIGHT = 100;
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

const pick = (slot: number): void => {
  picked.value = Math.max(0, Math.min(SLOTS - 1, slot));
};

export function Chart(props: ChartProps): JSX.Element {
  const { lines, isStacked, format, least, times } = props;
  const sum = (slot: number): number =>
    lines.reduce((total, { values }) => total + (values[slot] ?? 0), 0);
  const all = isStacked
    ? Array.from({ length: SLOTS }, (_, slot) => sum(slot))
    : lines.flatMap(({ values }) => values.map((value) => value ?? 0));
  const top = roundUp(Math.max(least, ...all));
  const bases = Array.from({ length: SLOTS }, () => HEIGHT);
  const shapes = lines.map(({ color, values }) => {
    const bars = values.map((value, slot) => {
      if (value === null || value === 0) return "";
      // A small value is not nothing.
      const height = Math.max(1, (value / top) * HEIGHT);
      const base = bases[slot] ?? HEIGHT;
      if (isStacked) bases[slot] = base - height;
      return `M${slot + 0.15} ${base}v${-height}h.7v${height}z`;
    });
    return <path key={color} fill={`var(${color})`} d={bars.join("")} />;
  });
  const shown = picked.value;
  const pickAt = ({
    currentTarget,
    clientX,
  }: {
    currentTarget: Element;
    clientX: number;
  }): void => {
    const { left, width } = currentTarget.getBoundingClientRect();
    pick(Math.floor(((clientX - left) / width) * SLOTS));
  };
  return (
    <div
      class="chart"
      role="slider"
      tabIndex={0}
      aria-label={`${props.title}: moment`}
      aria-valuemin={1}
      aria-valuemax={SLOTS}
      aria-valuenow={(shown ?? SLOTS - 1) + 1}
      aria-valuetext={props.valueText}
      onBlur={() => (picked.value = undefined)}
      onKeyDown={(event) => {
        const step = STEPS[event.key];
        if (step === undefined) return;
        event.preventDefault();
        pick((shown ?? SLOTS - 1) + step);
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
        {shown !== undefined && <rect class="chart-picked" x={shown} width={1} height={HEIGHT} />}
        {shapes}
      </svg>
      <div class="chart-times" aria-hidden="true">
        {times.map((time) => (
          <span key={time}>{time}</span>
        ))}
      </div>
    </div>
  );
}
