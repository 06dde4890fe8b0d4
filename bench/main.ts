/**
 * npm run bench [-- scenario …]: what the service does a second, side by side with what others do and
 * with what limits it, in one run.
 *
 * All scenarios together make RESULTS.md, its charts and results.json; a few of them are only printed,
 * unless --write puts them in the place of what is known. --render makes page and charts anew.
 *
 * Figures of different runs or machines are not for comparing; ratios within one run are.
 */

import { parseArgs } from "node:util";
import { readResults, writeResults } from "./report/files.ts";
import { print, printScenario } from "./report/print.ts";
import { isGood, mergeResults, type ScenarioResult } from "./report/results.ts";
import { measureAll } from "./run.ts";
import { scenarios } from "./scenarios/all.ts";

const names = scenarios.map(({ name }) => name);
const { values: flags, positionals: chosen } = parseArguments();

const unknown = chosen.filter((name) => !names.includes(name));
if (unknown.length > 0) fail(2, `No scenario ${unknown.join(", ")}; there are ${names.join(", ")}`);

if (flags.render) {
  const known = readResults() ?? fail(2, "There is no bench/results.json to make a page of.");
  writeResults(known);
  process.exit(0);
}

const missing = ["wrk", "taskset"].filter((tool) => Bun.which(tool) === null);
if (missing.length > 0)
  fail(
    1,
    `The benchmark needs ${missing.join(" and ")}. On Debian: apt-get install wrk util-linux nginx`,
  );

const isWhole = chosen.length === 0;
const fresh = await measureAll(
  scenarios.filter(({ name }) => isWhole || chosen.includes(name)),
  printScenario,
);
if (isWhole || flags.write)
  writeResults(mergeResults(isWhole ? undefined : readResults(), fresh, names));

const bad = fresh.scenarios.filter((scenario: ScenarioResult) => !isGood(scenario));
print(bad.length === 0 ? "\nAll targets met." : `\nNot all was well: ${list(bad)}.`);
process.exit(bad.length === 0 ? 0 : 1);

function list(some: readonly ScenarioResult[]): string {
  return some.map(({ name }) => name).join(", ");
}

function fail(code: number, message: string): never {
  process.stderr.write(`${message}\n`);
  process.exit(code);
}

function parseArguments(): {
  values: { write?: boolean; render?: boolean };
  positionals: string[];
} {
  try {
    return parseArgs({
      allowPositionals: true,
      options: { write: { type: "boolean" }, render: { type: "boolean" } },
    });
  } catch (error) {
    return fail(
      2,
      `${(error as Error).message}\nusage: npm run bench [-- scenario … --write --render]`,
    );
  }
}
