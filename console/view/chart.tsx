/** The frame of every chart: values on the left, times below, a grid, and what was picked. */

import type { ComponentChildren, JSX, SVGAttributes, TargetedPointerEvent } from "preact";

/** Of the drawing, whatever its width. */
export const HEIGHT = 100;

export const sum = (values: readonly number[]): number =>
  values.reduce((all, value) => all + value, 0);

/** Rounds to one of these factors times a power of ten. */
export function roundUp(value: number, factors: readonly number[]): number {
  const unit = 10 ** Math.floor(Math.log10(value));
  return (factors.find((factor) => factor * unit >= value) ?? 10) * unit;
}

/** The index of the bar at the pointer, or of the nearest one. */
export function barAt(event: TargetedPointerEvent<SVGSVGElement>, count: number): number {
  const { left, width } = event.currentTarget.getBoundingClientRect();
  const at = Math.floor(((event.clientX - left) / width) * count);
  return Math.max(0, Math.min(count - 1, at));
}

interface ChartProps extends Omit<SVGAttributes<SVGSVGElement>, "format"> {
  /** The value of a bar of full height. */
  readonly top: number;
  readonly format: (value: number) => string;
  /** Of the quarters. */
  readonly times: readonly string[];
  /** In percent of the width. */
  readonly picked?: readonly [left: number, width: number] | undefined;
  /** Moves what is picked by keys. */
  readonly slider?: JSX.Element;
  readonly children: ComponentChildren;
}

export const Chart = ({
  top,
  format,
  times,
  picked,
  slider,
  children,
  ...svg
}: ChartProps): JSX.Element => (
  <div class="chart">
    {slider}
    <div class="chart-values" aria-hidden="true">
      {[top, top / 2, 0].map((value) => (
        <span key={value}>{format(value)}</span>
      ))}
    </div>
    <svg {...svg}>
      {["0%", "50%", "100%"].map((y) => (
        <line key={y} class="chart-grid" x2="100%" y1={y} y2={y} />
      ))}
      {picked !== undefined && (
        <rect class="chart-picked" x={`${picked[0]}%`} width={`${picked[1]}%`} height="100%" />
      )}
      {children}
    </svg>
    <div class="chart-times" aria-hidden="true">
      {times.map((time, at) => (
        <span key={at}>{time}</span>
      ))}
    </div>
  </div>
);
