/** What every chart shares: its frame, its colours in light and dark, its legend. */

import type { Role } from "./results.ts";

export const WIDTH = 880;
export const MARGIN = 28;

/** A picture knows the reader's scheme, but not the page around it: so it brings its own ground. */
const style = `
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; fill: #1f2933; }
  .ground { fill: #ffffff; stroke: #d9dee4; }
  .title { font-size: 18px; font-weight: 600; }
  .heading { font-weight: 600; }
  .muted, .absent { fill: #66727f; }
  .small { font-size: 12px; }
  .absent { font-style: italic; }
  .strong { font-weight: 600; }
  .value { font-variant-numeric: tabular-nums; }
  .grid { stroke: #e7ebef; }
  .axis { stroke: #b6bfc9; }
  .leader { stroke: #b6bfc9; fill: none; }
  .whisker { stroke: #1f2933; stroke-width: 1.5; fill: none; }
  .bar.ours { fill: #1f8a5b; }
  .bar.peer { fill: #8fa3bd; }
  .bar.limit { fill: url(#hatch); stroke: #a9a08f; }
  .hatch-ground { fill: #f6f3ec; }
  .hatch-line { stroke: #d3cab8; }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
  .line.ours, .spread.ours { stroke: #1f8a5b; }
  .line.ours { stroke-width: 3.5; }
  .line.peer, .spread.peer { stroke: #7189a8; }
  .line.limit, .spread.limit { stroke: #a9a08f; }
  .line.limit { stroke-dasharray: 5 4; }
  .spread { stroke-width: 1.5; }
  .dot { stroke: #ffffff; stroke-width: 1.5; }
  .dot.ours { fill: #1f8a5b; }
  .dot.peer { fill: #7189a8; }
  .dot.limit { fill: #a9a08f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e3e8ee; }
    .ground { fill: #10151b; stroke: #2b343f; }
    .muted, .absent { fill: #93a0ae; }
    .grid { stroke: #222a33; }
    .axis, .leader { stroke: #46525f; }
    .whisker { stroke: #e3e8ee; }
    .bar.ours { fill: #35b67c; }
    .bar.peer { fill: #56708f; }
    .bar.limit { stroke: #756c58; }
    .hatch-ground { fill: #1d1c19; }
    .hatch-line { stroke: #4a4537; }
    .line.ours, .spread.ours { stroke: #35b67c; }
    .line.peer, .spread.peer { stroke: #7f9bbd; }
    .line.limit, .spread.limit { stroke: #8f8670; }
    .dot { stroke: #10151b; }
    .dot.ours { fill: #35b67c; }
    .dot.peer { fill: #7f9bbd; }
    .dot.limit { fill: #8f8670; }
  }`;

export interface Frame {
  readonly title: string;
  readonly subtitle: string;
  /** The figures in words, for those who do not see them. */
  readonly description: string;
  /** Below the head. */
  readonly bodyHeight: number;
  readonly body: string;
  readonly legend: string;
}

export const HEAD_HEIGHT = 76;
const LEGEND_HEIGHT = 46;

export function frame({ title, subtitle, description, bodyHeight, body, legend }: Frame): string {
  const height = HEAD_HEIGHT + bodyHeight + LEGEND_HEIGHT;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-labelledby="title description">
<title id="title">${escape(title)}</title>
<desc id="description">${escape(description)}</desc>
<style>${style}
</style>
<defs>
<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect class="hatch-ground" width="6" height="6"/><line class="hatch-line" x1="1" y1="0" x2="1" y2="6" stroke-width="2"/>
</pattern>
</defs>
<rect class="ground" x="0.5" y="0.5" width="${WIDTH - 1}" height="${height - 1}" rx="8"/>
${text(MARGIN, 38, title, "title")}
${text(MARGIN, 60, subtitle, "muted")}
${body}
<g transform="translate(${MARGIN} ${height - 22})">
${legend}
</g>
</svg>
`;
}

type Anchor = "start" | "middle" | "end";

export const text = (
  x: number,
  y: number,
  content: string,
  className = "",
  anchor: Anchor = "start",
): string =>
  `<text x="${round(x)}" y="${round(y)}" class="${className}" text-anchor="${anchor}">${escape(content)}</text>`;

/** A tenth of a pixel is finer than anyone sees, and keeps the files small. */
export const round = (value: number): number => Math.round(value * 10) / 10;

const escape = (content: string): string =>
  content.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);

const meanings: Readonly<Record<Role, string>> = {
  ours: "Plant Store",
  peer: "what others use",
  limit: "limits, which leave out a part of the work",
};

/** Of the roles that the chart shows, drawn as it draws them. */
export function legendOf(
  roles: readonly Role[],
  swatch: (role: Role) => string,
  spread: string,
): string {
  let x = 0;
  const entry = (symbol: string, meaning: string): string => {
    const drawn = `<g transform="translate(${x} 0)">${symbol}${text(24, 0, meaning, "muted small")}</g>`;
    x += 24 + meaning.length * 6.2 + 24;
    return drawn;
  };
  const shown = (["ours", "peer", "limit"] as const).filter((role) => roles.includes(role));
  const entries = shown.map((role) => entry(swatch(role), meanings[role]));
  return [...entries, entry(spread, "slowest to fastest round")].join("\n");
}

/** A round number not below the value: 1, 2, 2.5 or 5 of some power of ten, times a few. */
export function niceStep(max: number, steps: number): number {
  const rough = max / steps;
  const power = 10 ** Math.floor(Math.log10(rough));
  return ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
}
