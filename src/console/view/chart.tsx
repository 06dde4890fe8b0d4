/** A small chart over time. Its lines can be told apart without their colours. */

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

export interface Line {
  readonly label: string;
  /** The custom property that holds the colour. */
  readonly color: string;
  readonly dash?: number[];
  readonly isFilled?: boolean;
  /** A single value between gaps is drawn as a dot; a line alone would not show it. */
  readonly hasGaps?: boolean;
}

interface ChartProps {
  /** The times in seconds, then the values of each line. */
  readonly data: uPlot.AlignedData;
  readonly lines: readonly Line[];
  readonly format: (value: number) => string;
  /** The least that the scale shows. */
  readonly least: number;
}

const HEIGHT = 168;
const SPAN_SECONDS_MIN = 120;
const SPAN_SECONDS_MAX = 600;
const FONT = "12px system-ui, sans-serif";
const cursor = uPlot.sync("activity");

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const clockWithSeconds = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

const formatTime = (seconds: number, step: number): string =>
  (step % 60 === 0 ? clock : clockWithSeconds).format(seconds * 1000);

const colorOf = (property: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(property).trim();

const widenGaps: uPlot.Series.GapsRefiner = (_plot, _series, _from, _to, gaps) =>
  gaps.map(([start, end]) => [start - 1, end + 1]);

function optionsOf(props: ChartProps, width: number): uPlot.Options {
  const axis = {
    stroke: colorOf("--ink-soft"),
    font: FONT,
    grid: { stroke: colorOf("--line"), width: 1 },
    ticks: { stroke: colorOf("--line"), width: 1, size: 4 },
  };
  return {
    width,
    height: HEIGHT,
    padding: [8, 28, 0, 0],
    legend: { show: false },
    cursor: {
      sync: { key: cursor.key },
      y: false,
      points: { size: 6 },
      drag: { x: false, y: false },
    },
    scales: {
      x: {
        range: (_plot, min, max) => [
          Math.min(max - SPAN_SECONDS_MIN, Math.max(min, max - SPAN_SECONDS_MAX)),
          max,
        ],
      },
      y: { range: (_plot, _min, max) => [0, Math.max(props.least, (max ?? 0) * 1.1)] },
    },
    axes: [
      {
        ...axis,
        space: 70,
        gap: 6,
        size: 28,
        values: (_plot, times, _axis, _space, step) => times.map((at) => formatTime(at, step)),
      },
      { ...axis, size: 64, gap: 6, space: 32, values: (_plot, values) => values.map(props.format) },
    ],
    series: [
      {},
      ...props.lines.map(({ label, color, dash, isFilled, hasGaps }) => ({
        label,
        stroke: colorOf(color),
        width: 1.5,
        ...(dash === undefined ? {} : { dash }),
        ...(isFilled === true ? { fill: colorOf("--leaf-soft") } : {}),
        points: hasGaps === true ? { show: true, size: 4, fill: colorOf(color) } : { show: false },
        // One pixel wider on each side; otherwise a stub of the line remains.
        gaps: widenGaps,
      })),
    ],
  };
}

export function Chart(props: ChartProps): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const latest = useRef(props);
  latest.current = props;

  useEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const draw = (): void => {
      plot.current?.destroy();
      const width = Math.max(200, element.clientWidth);
      plot.current = new uPlot(optionsOf(latest.current, width), latest.current.data, element);
    };
    draw();
    const observer = new ResizeObserver(() => {
      const width = Math.max(200, element.clientWidth);
      if (plot.current?.width !== width) plot.current?.setSize({ width, height: HEIGHT });
    });
    observer.observe(element);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", draw);
    return () => {
      theme.removeEventListener("change", draw);
      observer.disconnect();
      plot.current?.destroy();
    };
  }, []);
  useEffect(() => plot.current?.setData(props.data), [props.data]);

  return <div class="chart" ref={frame} aria-hidden="true" />;
}
