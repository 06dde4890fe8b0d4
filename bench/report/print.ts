/** What a person sees on the terminal while it runs. */

import { type ScenarioResult, type Table, isGood } from "./results.ts";
import { cellsOf, columns, formatTarget } from "./table.ts";

export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

export function printScenario(scenario: ScenarioResult): void {
  print(`\n${scenario.name}: ${scenario.title}`);
  for (const table of scenario.tables) printTable(table);
  print("");
  for (const target of scenario.targets)
    print(`  ${target.isMet ? "met   " : "MISSED"}  ${formatTarget(target)}`);
  if (scenario.failure !== undefined) print(`  FAILED  ${scenario.failure}`);
  else if (isGood(scenario) && scenario.targets.length > 0) print("  all targets met");
}

function printTable(table: Table): void {
  print(`\n  ${table.name}, ${table.unit}`);
  print(line(columns));
  for (const row of table.rows) {
    if (row.notMeasured === undefined)
      print(`${line([row.name, ...cellsOf(row)])}  ${row.durability ?? ""}`.trimEnd());
    else print(`  ${row.name.padEnd(widths[0])} not measured: ${row.notMeasured}`);
  }
}

const widths = [38, 10, 20, 9, 9, 10, 9, 9] as const;

const line = (cells: readonly string[]): string =>
  `  ${cells
    .map((cell, column) => {
      const width = widths[column] ?? 10;
      return column === 0 ? cell.padEnd(width) : cell.padStart(width);
    })
    .join("")}`;
