/**
 * The journal as a picture: bars of time, stacked by person. Each person has a pattern besides a colour, and the same
 * figures are in a table. Dragging, or the two sliders, pick a range of time.
 */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useId, useRef } from "preact/hooks";
import type { ChangeCount } from "../../client/client.ts";
import { type ChangeType, changeTypes } from "../../src/domain/change.ts";
import { formatCount, formatTime, timeOfDay } from "../state/format.ts";
import { sumOf } from "../state/journal.ts";
import { edgesOf, type Span, startOf } from "../state/spans.ts";
import { fill, locale, plural, t } from "../text/text.ts";
import { barAt, Chart, HEIGHT, roundUp, sum } from "./chart.tsx";
import { Table } from "./controls.tsx";
import { Key, Patterns } from "./patterns.tsx";

/** Those with fewer changes are counted together. */
const PEOPLE_MAX = 4;

export interface Range {
  readonly from: string;
  readonly to: string;
}

interface PictureProps {
  readonly counts: readonly ChangeCount[];
  readonly span: Span;
  readonly type: ChangeType | undefined;
  /** Shown as picked. */
  readonly range: Range | undefined;
  /** Called while the pointer moves. */
  readonly onPick: (range: Range) => void;
  /** Called when the choice is made. */
  readonly onPicked?: (range: Range) => void;
}

interface Bar {
  readonly startMs: number;
  readonly endMs: number;
  readonly values: number[];
  readonly kinds: Record<ChangeType, number>;
}

const COMMAND_LINE = t.shared.commandLine;

/** Those with the most changes, and the others together. */
function rank(counts: readonly ChangeCount[], type: ChangeType | undefined): string[] {
  const totals = new Map<string, number>();
  for (const count of counts) {
    const who = count.by ?? COMMAND_LINE;
    totals.set(who, (totals.get(who) ?? 0) + sumOf(count, type));
  }
  const active = [...totals].filter(([, total]) => total > 0);
  const sorted = active.toSorted((one, other) => other[1] - one[1]).map(([who]) => who);
  if (sorted.length <= PEOPLE_MAX + 1) return sorted;
  const others = fill(t.changes.others, { count: sorted.length - PEOPLE_MAX });
  return [...sorted.slice(0, PEOPLE_MAX), others];
}

function divide({ counts, span, type }: PictureProps, people: readonly string[]): Bar[] {
  const edges = edgesOf(span);
  const bars = edges.slice(1).map((endMs, at): Bar => {
    const kinds = { created: 0, replaced: 0, removed: 0 };
    return { startMs: edges[at] ?? 0, endMs: endMs - 1, values: people.map(() => 0), kinds };
  });
  for (const count of counts) {
    const startMs = Date.parse(count.start ?? "");
    const bar = bars.find((each) => each.startMs <= startMs && startMs <= each.endMs);
    if (bar === undefined) continue;
    const at = people.indexOf(count.by ?? COMMAND_LINE);
    const place = at === -1 ? people.length - 1 : at;
    bar.values[place] = (bar.values[place] ?? 0) + sumOf(count, type);
    for (const kind of changeTypes) bar.kinds[kind] += count[kind];
  }
  return bars;
}

/** So that the half is a round number too. */
const FACTORS = [1, 2, 4, 6, 8];

const day = new Intl.DateTimeFormat(locale, { weekday: "short", day: "numeric" });
const compact = new Intl.NumberFormat(locale, { notation: "compact" });

const countChanges = (count: number): string => plural(t.shared.changes, count);

const nameBar = ({ startMs, endMs }: Pick<Bar, "startMs" | "endMs">): string =>
  `${formatTime(new Date(startMs).toISOString())} – ${timeOfDay.format(endMs + 1)}`;

const describe = (bar: Bar | undefined): string =>
  bar === undefined
    ? ""
    : fill(t.changes.bar, { time: nameBar(bar), changes: countChanges(sum(bar.values)) });

const toRange = (first: Bar, last: Bar): Range => ({
  from: new Date(first.startMs).toISOString(),
  to: new Date(last.endMs).toISOString(),
});

const toRow = (bar: Bar): string[] => [
  nameBar(bar),
  ...changeTypes.map((kind) => formatCount(bar.kinds[kind])),
  ...bar.values.map((value) => formatCount(value)),
];

interface StackProps {
  readonly values: readonly number[];
  readonly left: number;
  readonly width: number;
  /** The value of a bar of full height. */
  readonly top: number;
  /** The id of the patterns. */
  readonly patterns: string;
}

/** The values of one bar, from the bottom up. */
function Stack({ values, left, width, top, patterns }: StackProps): JSX.Element {
  let base = HEIGHT;
  return (
    <>
      {values.map((value, who) => {
        if (value === 0) return null;
        // A small value is still visible.
        const height = Math.max(1.5, (value / top) * HEIGHT);
        base -= height;
        return (
          <rect
            key={who}
            class="stack-bar"
            x={`${left + width / 10}%`}
            y={`${base}%`}
            width={`${width * 0.8}%`}
            height={`${height}%`}
            fill={`url(#${patterns}-${who})`}
          />
        );
      })}
    </>
  );
}

export function Picture(props: PictureProps): JSX.Element {
  const { counts, span, type, range, onPick, onPicked } = props;
  const id = useId();
  const within = counts.filter(({ start = "" }) => Date.parse(start) >= startOf(span));
  const people = rank(within, type);
  const bars = divide(props, people);
  const top = roundUp(Math.max(2, ...bars.map(({ values }) => sum(values))), FACTORS);
  /** The bar where the pointer went down. */
  const anchor = useRef<number | undefined>(undefined);
  const [low, high] = [useSignal(0), useSignal(bars.length - 1)];
  const pick = (one: number, other: number, isChosen = false): void => {
    const [first, last] = [bars[Math.min(one, other)], bars[Math.max(one, other)]];
    if (first === undefined || last === undefined) return;
    [low.value, high.value] = [Math.min(one, other), Math.max(one, other)];
    onPick(toRange(first, last));
    if (isChosen) onPicked?.(toRange(first, last));
  };
  const isPicked = (bar: Bar): boolean =>
    range !== undefined &&
    bar.endMs >= Date.parse(range.from) &&
    bar.startMs <= Date.parse(range.to);
  const [first, last] = [bars.findIndex(isPicked), bars.findLastIndex(isPicked)];
  const width = 100 / bars.length;
  const total = sum(bars.map(({ values }) => sum(values)));
  const isBusy = bars.filter(({ values }) => sum(values) > 0);
  return (
    <figure class="picture">
      <figcaption class="chart-now">
        {people.map((who, at) => (
          <span key={who} class="key">
            <Key at={at} />
            {who}{" "}
            <span class="faint">{formatCount(sum(bars.map(({ values }) => values[at] ?? 0)))}</span>
          </span>
        ))}
        {people.length === 0 && <span class="faint">{t.changes.nothingThen}</span>}
      </figcaption>
      <Chart
        class="brush"
        role="img"
        aria-label={fill(t.changes.picture[span], { changes: countChanges(total) })}
        top={top}
        format={(value) => compact.format(value)}
        times={[0, 1, 2, 3].map((quarter) => {
          const { startMs = 0 } = bars[(quarter * bars.length) / 4] ?? {};
          return (span === "day" ? timeOfDay : day).format(startMs);
        })}
        picked={first === -1 ? undefined : [first * width, (last - first + 1) * width]}
        onPointerDown={(event) => {
          anchor.current = barAt(event, bars.length);
          event.currentTarget.setPointerCapture(event.pointerId);
          pick(anchor.current, anchor.current);
        }}
        onPointerMove={(event) => {
          if (anchor.current !== undefined) pick(anchor.current, barAt(event, bars.length));
        }}
        onPointerUp={(event) => {
          if (anchor.current !== undefined) pick(anchor.current, barAt(event, bars.length), true);
          anchor.current = undefined;
        }}
        onPointerCancel={() => (anchor.current = undefined)}
      >
        <Patterns id={id} />
        {bars.map((bar, at) => (
          <g key={bar.startMs}>
            <Stack values={bar.values} left={at * width} width={width} top={top} patterns={id} />
            <title>{describe(bar)}</title>
          </g>
        ))}
      </Chart>
      <div class="sliders">
        {(["from", "to"] as const).map((end) => (
          <input
            key={end}
            class="visually-hidden"
            type="range"
            min={1}
            max={bars.length}
            value={(end === "from" ? low : high).value + 1}
            aria-label={t.changes.bars[end]}
            aria-valuetext={describe(bars[(end === "from" ? low : high).value])}
            onInput={({ currentTarget }) => {
              const at = currentTarget.valueAsNumber - 1;
              if (end === "from") pick(at, Math.max(at, high.value));
              else pick(Math.min(at, low.value), at);
            }}
            onChange={() => pick(low.value, high.value, true)}
          />
        ))}
      </div>
      <details>
        <summary>{t.changes.asTable}</summary>
        <Table
          label={t.changes.byTime}
          heads={[t.changes.time, ...changeTypes.map((kind) => t.changes.verbs[kind]), ...people]}
          rows={isBusy.toReversed().map((bar) => toRow(bar))}
        />
      </details>
    </figure>
  );
}
