/** RESULTS.md: everything that was measured, how, and on what. */

import { drawCharts } from "./charts.ts";
import type { Results, Row, ScenarioResult, Table } from "./results.ts";
import { FOREIGN_CORES_MAX, REPEATS_MAX } from "../settings.ts";
import { medianOf } from "./statistics.ts";
import { cellsOf, columns, formatTarget } from "./table.ts";

export function makePage(results: Results): string {
  return `${[
    "# What the service does a second",
    "Made by `npm run bench`; do not edit. Figures of different machines or runs are not for comparing; ratios within one scenario are, because its rounds were taken in turn.",
    describeTargets(results),
    "## How it was measured",
    describeMachine(results),
    describeMethod(results),
    ...results.scenarios.flatMap((scenario) => describeScenario(scenario, results)),
  ].join("\n\n")}\n`;
}

function describeTargets({ scenarios }: Results): string {
  const rows = scenarios.flatMap(({ name, title, targets, failure }) => [
    ...(failure === undefined ? [] : [[link(name, title), failure, "**FAILED**"]]),
    ...targets.map((target) => [
      link(name, title),
      formatTarget(target),
      target.isMet ? "met" : "**MISSED**",
    ]),
  ]);
  return tableOf(["scenario", "target", ""], rows);
}

const link = (name: string, title: string): string => `[${title}](#${name})`;

function describeMachine({ machine, scenarios }: Results): string {
  const { cpu, cores, memoryGb, kernel, filesystem, versions } = machine;
  const [first] = scenarios;
  const seconds = scenarios.reduce((sum, { durationSeconds }) => sum + durationSeconds, 0);
  return tableOf(
    ["", ""],
    [
      ["processor", `${cpu}, ${cores} cores`],
      ["memory", `${memoryGb} GB`],
      ["system", kernel],
      ["stores on", filesystem],
      ["date, commit", `${first?.measuredAt.slice(0, 10) ?? ""}, ${first?.commit ?? ""}`],
      ["duration", `${Math.ceil(seconds / 60)} minutes`],
      [
        "versions",
        Object.entries(versions)
          .map((entry) => entry.join(" "))
          .join(", "),
      ],
    ],
  );
}

function describeMethod({ scenarios }: Results): string {
  const rows = scenarios.flatMap(({ tables }) => tables.flatMap((table) => table.rows));
  const repeats = rows.reduce((sum, row) => sum + row.repeats, 0);
  const disturbed = rows.reduce(
    (sum, { rounds }) => sum + rounds.filter(({ isDisturbed }) => isDisturbed).length,
    0,
  );
  const total = rows.reduce((sum, { rounds }) => sum + rounds.length, 0);
  const roundSeconds = [...new Set(scenarios.map((scenario) => scenario.roundSeconds))];
  return [
    `- The server has a core of its own and the load (\`wrk\`) another, unless a scenario says otherwise. Rounds of ${roundSeconds.join(" or ")} s are taken of all candidates in turn, after one that warms up; the figure is the median, the spread goes from the slowest to the fastest round.`,
    `- Processes of others took more than ${FOREIGN_CORES_MAX * 100} % of a core in ${repeats} rounds, which were repeated (at most ${REPEATS_MAX} times each); ${disturbed} of the ${total} rounds that count were still disturbed.`,
    "- The first answer of every server, the status of all answers, and a sample of what was created, read back by the server's own GET, were right; every store held as many plants as were acknowledged, and up to one more a connection that was cut off in flight. Anything else fails the run; of a peer, it leaves no figure but the reason.",
    "- `wrk` sends the next request when it has the answer to the last: while a server stalls it asks nothing, so the high percentiles are kinder than what clients who come at their own pace would see (coordinated omission). That holds for all candidates alike.",
    "- CPU is user and system time of all processes of the server, per request; RSS their memory. The limits are no rivals: each leaves out a part of the work, and shows what it costs.",
  ].join("\n");
}

function describeScenario(scenario: ScenarioResult, { scenarios }: Results): string[] {
  const { name, title, about, tables, targets, failure } = scenario;
  const isOlder = scenario.commit !== scenarios[0]?.commit;
  return [
    `<a id="${name}"></a>`,
    `## ${title}`,
    about +
      (isOlder
        ? ` Measured on ${scenario.measuredAt.slice(0, 10)}, commit ${scenario.commit}.`
        : ""),
    ...(failure === undefined ? [] : [`**FAILED**: ${failure}`]),
    ...drawCharts(scenario).map(({ file, alt }) => `![${alt}](charts/${file})`),
    ...tables.flatMap((table) => describeTable(table, tables.length > 1)),
    ...(targets.length === 0
      ? []
      : [
          targets
            .map((target) => `- ${target.isMet ? "met" : "**MISSED**"}: ${formatTarget(target)}`)
            .join("\n"),
        ]),
  ];
}

function describeTable({ name, unit, rows }: Table, hasHeading: boolean): string[] {
  const hasDurability = rows.some(({ durability = "" }) => durability !== "");
  const head = [unit, ...columns.slice(1), ...(hasDurability ? ["durability"] : [])];
  const body = rows.map((row) => {
    const cells =
      row.notMeasured === undefined
        ? cellsOf(row)
        : ["not measured", ...columns.slice(2).map(() => "")];
    const label = row.role === "ours" ? `**${row.name}**` : row.name;
    return [label, ...cells, ...(hasDurability ? [row.durability ?? ""] : [])];
  });
  const notes = rows.flatMap(notesOf);
  return [
    ...(hasHeading ? [`### ${name}`] : []),
    tableOf(head, body),
    ...(notes.length === 0 ? [] : [notes.map((note) => `- ${note}`).join("\n")]),
  ];
}

/** From here on the load generator may be what limits the figure. */
const LOAD_CORES_MAX = 0.9;

function notesOf({ name, note, notMeasured, rounds }: Row): string[] {
  const loadCores = medianOf(rounds, "loadCores") ?? 0;
  const disturbed = rounds.filter(({ isDisturbed }) => isDisturbed).length;
  return [
    ...(notMeasured === undefined ? [] : [`not measured: ${notMeasured}`]),
    ...(note === undefined ? [] : [note]),
    ...(loadCores > LOAD_CORES_MAX
      ? [
          `\`wrk\` itself was busy ${Math.round(loadCores * 100)} % of the time: the server may be capable of more`,
        ]
      : []),
    ...(disturbed > 0
      ? [`${disturbed} of its ${rounds.length} rounds were disturbed by others`]
      : []),
  ].map((remark) => `${name}: ${remark}`);
}

const tableOf = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map((_, index) => (index === 0 || head.length < 4 ? "---" : "--:")), ...rows]
    .map((cells) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`)
    .join("\n");
