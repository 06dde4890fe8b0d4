/** A scenario as horizontal bars: the median, the spread as a whisker, the figure beside it. */

import type { Row, Table } from "./results.ts";
import { spreadOf } from "./statistics.ts";
import { frame, HEAD_HEIGHT, legendOf, MARGIN, round, text, WIDTH } from "./svg.ts";
import { formatNumber } from "./table.ts";

const LABEL_WIDTH = 236;
const VALUE_WIDTH = 76;
const ROW_HEIGHT = 30;
const BAR_HEIGHT = 18;
const HEADING_HEIGHT = 26;
const GAP = 16;
/** Between ours, the peers and the limits. */
const ROLE_GAP = 8;

const barX = MARGIN + LABEL_WIDTH + 12;
const barWidthMax = WIDTH - barX - VALUE_WIDTH - MARGIN;

export function drawBars(title: string, tables: readonly Table[]): string {
  const hasHeadings = tables.length > 1;
  const units = [...new Set(tables.map(({ unit }) => unit))];
  let y = HEAD_HEIGHT;
  const parts: string[] = [];
  for (const table of tables) {
    if (hasHeadings) {
      const heading = units.length > 1 ? `${table.name}, ${table.unit}` : table.name;
      parts.push(text(MARGIN, y + 14, heading, "heading"));
      y += HEADING_HEIGHT;
    }
    // Figures of one unit share a scale, so that panels can be compared.
    const scale = barWidthMax / highest(units.length > 1 ? [table] : tables);
    const top = y;
    for (const [index, row] of table.rows.entries()) {
      const previous = table.rows[index - 1] ?? row;
      if (row.role !== previous.role) y += ROLE_GAP;
      parts.push(drawRow(row, y, scale));
      y += ROW_HEIGHT;
    }
    parts.push(`<line class="axis" x1="${barX}" x2="${barX}" y1="${top}" y2="${y}"/>`);
    y += GAP;
  }
  const [first] = tables;
  const better = first?.isLowerBetter ? "lower is better" : "higher is better";
  return frame({
    title,
    subtitle: [
      ...(hasHeadings ? [] : [first?.name]),
      ...(units.length > 1 ? [] : units),
      better,
    ].join(" · "),
    description: describe(tables),
    bodyHeight: y - HEAD_HEIGHT,
    body: parts.join("\n"),
    legend: legendOf(
      tables.flatMap(({ rows }) => rows.map(({ role }) => role)),
      (role) => `<rect class="bar ${role}" y="-11" width="16" height="12" rx="2"/>`,
      whisker(0, 16, -5),
    ),
  });
}

const highest = (tables: readonly Table[]): number =>
  Math.max(
    ...tables.flatMap(({ rows }) => rows.flatMap(({ rounds }) => rounds.map((it) => it.value))),
  );

function drawRow({ name, role, rounds, notMeasured }: Row, y: number, scale: number): string {
  const middle = y + ROW_HEIGHT / 2;
  const label = text(
    MARGIN + LABEL_WIDTH,
    middle + 4.5,
    name,
    role === "ours" ? "strong" : "",
    "end",
  );
  if (notMeasured !== undefined)
    return `${label}\n${text(barX + 8, middle + 4.5, "not measured", "absent")}`;
  const { median, min, max } = spreadOf(rounds);
  const width = Math.max(1.5, median * scale);
  return [
    label,
    `<rect class="bar ${role}" x="${barX}" y="${middle - BAR_HEIGHT / 2}" width="${round(width)}" height="${BAR_HEIGHT}" rx="2"/>`,
    whisker(barX + min * scale, barX + max * scale, middle),
    text(
      barX + Math.max(width, max * scale) + 9,
      middle + 4.5,
      formatNumber(median),
      role === "ours" ? "value strong" : "value",
    ),
  ].join("\n");
}

const whisker = (from: number, to: number, y: number): string => {
  const [a, b] = [round(from), round(to)];
  return `<path class="whisker" d="M${a} ${y - 4}v8M${a} ${y}H${b}M${b} ${y - 4}v8"/>`;
};

function describe(tables: readonly Table[]): string {
  return tables
    .map(({ name, unit, rows }) => {
      const figures = rows.map(({ name: of, rounds, notMeasured }) =>
        notMeasured === undefined
          ? `${of} ${formatNumber(spreadOf(rounds).median)}`
          : `${of} not measured`,
      );
      return `${name}, ${unit}: ${figures.join("; ")}.`;
    })
    .join(" ");
}
