/** The charts of RESULTS.md, drawn by Vega-Lite in a light and a dark theme. */

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { nameConnections } from "./measure.ts";
import { formatNumber, type Row, type ScenarioResult, type Table } from "./results.ts";
import { CONNECTIONS } from "./settings.ts";

interface Chart {
  readonly file: string;
  readonly alt: string;
  /** A Vega-Lite specification without the theme. */
  readonly spec: object;
}

interface Panel {
  readonly title: string;
  readonly rows: readonly Row[];
}

const BAR_HEIGHT = 16;
const NAMES_WIDTH = 280;
const roles = ["ours", "peer", "limit"];

const themes = {
  light: { text: "#1f2933", roles: ["#1f8a5b", "#8fa3bd", "#d8cfbd"] },
  dark: { text: "#e6edf3", roles: ["#3fb97f", "#5f7899", "#7a7263"] },
} as const;

/** The charts whose scenarios were measured. */
export function listCharts(scenarios: readonly ScenarioResult[]): Chart[] {
  const tablesOf = (name: string): readonly Table[] =>
    scenarios.find((scenario) => scenario.name === name)?.tables ?? [];
  const usual = nameConnections(CONNECTIONS);
  const atUsual = (name: string, title = ""): Panel[] =>
    tablesOf(name).flatMap((table) => (table.name === usual ? [{ title, rows: table.rows }] : []));
  const reads = [...atUsual("get", "one plant"), ...atUsual("list", "a page of 100")];
  const levels = tablesOf("postgres-create").map(({ name, rows }) => ({ title: name, rows }));
  return [
    makeChart("create", `Creates a second, ${usual}`, atUsual("create")),
    makeChart("read", `Reads a second from a million plants, ${usual}`, reads),
    makeChart("postgres", "Creates a second on PostgreSQL", levels),
  ].flat();
}

function makeChart(file: string, title: string, panels: readonly Panel[]): Chart[] {
  const vconcat = panels
    .filter(({ rows }) => rows.some(({ figures }) => figures !== undefined))
    .map(({ title: text, rows }) => ({
      title: { text, ...atStart, fontSize: 12, offset: 4 },
      width: 440,
      height: { step: 26 },
      encoding: {
        y: {
          field: "name",
          type: "nominal",
          sort: null,
          axis: { title: null, domain: false, ticks: false, labelPadding: 8, ...namesExtent },
        },
        color: { field: "role", type: "nominal", scale: { domain: roles }, legend: null },
      },
      data: { values: rows.flatMap(toBar) },
      layer,
    }));
  if (vconcat.length === 0) return [];
  const spec = { title: { text: title, ...atStart, fontSize: 15, offset: 12 }, vconcat };
  return [{ file, alt: title, spec }];
}

const atStart = { anchor: "start", frame: "group" };
/** Equal in all panels, so they align. */
const namesExtent = { labelLimit: NAMES_WIDTH, minExtent: NAMES_WIDTH, maxExtent: NAMES_WIDTH };
const onX = (field: string): object => ({ field, type: "quantitative", axis: null });
const label = { type: "text", align: "left", dx: 8, color: { expr: "textColor" } };

/** Empty for a row that was not measured. */
const toBar = ({ name, role, figures }: Row): object[] =>
  figures === undefined ? [] : [{ name, role, ...figures, label: formatNumber(figures.value) }];

/** The median as a bar, and the slowest and the fastest round as a line on it. */
const layer = [
  { mark: { type: "bar", height: BAR_HEIGHT, cornerRadiusEnd: 2 }, encoding: { x: onX("value") } },
  {
    mark: { type: "rule", color: { expr: "textColor" } },
    encoding: { x: onX("min"), x2: { field: "max" }, color: null },
  },
  { mark: label, encoding: { x: onX("max"), text: { field: "label" }, color: null } },
];

/** The parts of the two libraries that we use. `npm run bench` installs them; `npm ci` does not. */
interface VegaLite {
  readonly compile: (spec: object) => { readonly spec: object };
}
interface Vega {
  readonly textMetrics: { width: (item: { readonly fontSize: number }, text: string) => number };
  readonly parse: (spec: object) => unknown;
  readonly View: new (
    runtime: unknown,
    options: { readonly renderer: "none" },
  ) => { readonly toSVG: () => Promise<string> };
}

const importLibrary = (name: string): Promise<unknown> =>
  import(Bun.resolveSync(name, import.meta.dir));

export async function writeCharts(scenarios: readonly ScenarioResult[]): Promise<void> {
  const { compile } = (await importLibrary("vega-lite")) as VegaLite;
  const { parse, View, textMetrics } = (await importLibrary("vega")) as Vega;
  // Without a canvas Vega guesses 0.8 of the font size per character, which leaves wide margins.
  textMetrics.width = ({ fontSize }, text) => 0.56 * fontSize * text.length;
  const folder = join(import.meta.dir, "charts");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  for (const { file, spec } of listCharts(scenarios))
    for (const [name, { text, roles: range }] of Object.entries(themes)) {
      const config = {
        aria: false,
        background: "transparent",
        font: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
        view: { stroke: null },
        concat: { spacing: 14 },
        title: { color: text },
        axis: { labelColor: text, labelFontSize: 12 },
        text: { fontSize: 12 },
        range: { category: range },
      };
      const params = [{ name: "textColor", value: text }];
      const { spec: compiled } = compile({ ...spec, params, config });
      const svg = await new View(parse(compiled), { renderer: "none" }).toSVG();
      writeFileSync(join(folder, `${file}-${name}.svg`), `${svg}\n`);
    }
}
