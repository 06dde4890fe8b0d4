/** A scenario over its levels: a line for each candidate, named where it ends. */

import type { Role, Table } from "./results.ts";
import { spreadOf } from "./statistics.ts";
import { frame, HEAD_HEIGHT, legendOf, MARGIN, niceStep, round, text, WIDTH } from "./svg.ts";
import { formatNumber } from "./table.ts";

const PLOT_HEIGHT = 330;
const AXIS_WIDTH = 52;
const NAMES_WIDTH = 248;
const NAME_HEIGHT = 18;
const LEVELS_HEIGHT = 34;

const left = MARGIN + AXIS_WIDTH;
const right = WIDTH - MARGIN - NAMES_WIDTH;
const top = HEAD_HEIGHT + 8;
const bottom = top + PLOT_HEIGHT;

interface Point {
  readonly x: number;
  readonly y: number;
  readonly low: number;
  readonly high: number;
  readonly figure: string;
}

interface Series {
  readonly name: string;
  readonly role: Role;
  readonly points: readonly Point[];
}

/** Those that were measured at every level; the others are in the tables. */
export function drawLines(title: string, tables: readonly Table[]): string {
  const highest = Math.max(
    ...tables.flatMap(({ rows }) => rows.flatMap(({ rounds }) => rounds.map((it) => it.value))),
  );
  const step = niceStep(highest, 5);
  const ceiling = Math.ceil(highest / step) * step;
  const toY = (value: number): number => bottom - (value / ceiling) * PLOT_HEIGHT;
  const toX = (level: number): number =>
    left + 24 + (level * (right - left - 48)) / Math.max(1, tables.length - 1);
  const series = collect(tables, toX, toY);
  const [first] = tables;
  return frame({
    title,
    subtitle: `${first?.unit ?? ""} by number of connections · higher is better`,
    description: series
      .map(({ name, points }) => `${name}: ${points.map(({ figure }) => figure).join(", ")}.`)
      .join(" "),
    bodyHeight: bottom + LEVELS_HEIGHT - HEAD_HEIGHT + 10,
    body: [
      ...drawGrid(ceiling, step, toY),
      ...tables.map(({ name }, level) =>
        text(toX(level), bottom + 22, name.replace(/ connections?$/, ""), "muted small", "middle"),
      ),
      // Ours on top of the others.
      ...series.toReversed().map(drawSeries),
      ...drawNames(series),
    ].join("\n"),
    legend: legendOf(
      series.map(({ role }) => role),
      (role) => `<path class="line ${role}" d="M0 -5H18"/>`,
      `<path class="whisker" d="M9 -12V2"/>`,
    ),
  });
}

function collect(
  tables: readonly Table[],
  toX: (level: number) => number,
  toY: (value: number) => number,
): Series[] {
  return (tables[0]?.rows ?? []).flatMap(({ name, role }): Series[] => {
    const points = tables.flatMap((table, level): Point[] => {
      const rounds = table.rows.find((row) => row.name === name)?.rounds ?? [];
      if (rounds.length === 0) return [];
      const { median, min, max } = spreadOf(rounds);
      return [
        {
          x: toX(level),
          y: toY(median),
          low: toY(min),
          high: toY(max),
          figure: formatNumber(median),
        },
      ];
    });
    return points.length === tables.length ? [{ name, role, points }] : [];
  });
}

function drawGrid(ceiling: number, step: number, toY: (value: number) => number): string[] {
  const lines: string[] = [];
  for (let value = 0; value <= ceiling; value += step) {
    const y = round(toY(value));
    const className = value === 0 ? "axis" : "grid";
    lines.push(`<line class="${className}" x1="${left}" x2="${right}" y1="${y}" y2="${y}"/>`);
    lines.push(text(left - 10, y + 4, value.toLocaleString("en"), "muted small value", "end"));
  }
  return lines;
}

function drawSeries({ role, points }: Series): string {
  const path = points.map(({ x, y }, index) => `${index === 0 ? "M" : "L"}${round(x)} ${round(y)}`);
  return [
    `<path class="line ${role}" d="${path.join("")}"/>`,
    ...points.map(
      ({ x, y, low, high }) =>
        `<line class="spread ${role}" x1="${round(x)}" x2="${round(x)}" y1="${round(low)}" y2="${round(high)}"/>` +
        `<circle class="dot ${role}" cx="${round(x)}" cy="${round(y)}" r="${role === "ours" ? 5 : 4}"/>`,
    ),
  ].join("\n");
}

/** At the height of the last point, or as near to it as the neighbours allow. */
function drawNames(series: readonly Series[]): string[] {
  const ends = series
    .flatMap(({ name, role, points }) => {
      const end = points.at(-1);
      return end === undefined ? [] : [{ name, role, end }];
    })
    .toSorted((a, b) => a.end.y - b.end.y);
  const heights = spreadApart(
    ends.map(({ end }) => end.y),
    NAME_HEIGHT,
    bottom,
  );
  return ends.map(({ name, role, end }, index) => {
    const y = heights[index] ?? end.y;
    const leader = `<path class="leader" d="M${round(end.x + 7)} ${round(end.y)}L${right + 4} ${round(y)}"/>`;
    const className = role === "ours" ? "small strong" : "small";
    return `${leader}${text(right + 10, y + 4, `${name} · ${end.figure}`, className)}`;
  });
}

/** Moves ascending positions as little up as it takes to leave room between them, the last one not beyond the end. */
export function spreadApart(positions: readonly number[], room: number, end: number): number[] {
  const moved: number[] = [];
  let limit = end;
  for (const position of positions.toReversed()) {
    const at = Math.min(position, limit);
    moved.push(at);
    limit = at - room;
  }
  return moved.toReversed();
}
