/**
 * npm run bench [-- scenario …]: compares the service with its peers and with upper limits, in one run.
 *
 * A full run writes RESULTS.md, its charts and results.json. Named scenarios are only printed, unless --write merges
 * them into results.json. --render regenerates the page and the charts. --quick takes about three minutes: creates,
 * reads, import and export on SQLite. --baseline names a folder with another build of the
 * service, and compares creates with it.
 */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { writeCharts } from "./charts.ts";
import { readCommit, type Scenario } from "./measure.ts";
import { formatScenario, formatTargets, makePage, readMachine } from "./page.ts";
import { isGood, mergeResults, type Results, type ScenarioResult } from "./results.ts";
import { scenarios } from "./scenarios.ts";
import { install } from "./servers.ts";
import { ROUND_SECONDS } from "./settings.ts";
import { removeTemporaryPaths } from "./stores.ts";

const USAGE = "usage: npm run bench [-- scenario … --quick --write --render --baseline DIR]";
const resultsPath = join(import.meta.dir, "results.json");
const names = scenarios.map(({ name }) => name);

const { values: flags, positionals: chosen } = parseArguments();
const unknown = chosen.filter((name) => !names.includes(name));
if (unknown.length > 0)
  fail(2, `Unknown scenario: ${unknown.join(", ")}. Choose from ${names.join(", ")}.`);
const { baseline } = flags;
if (baseline !== undefined && !existsSync(join(baseline, "dist/service/main.js")))
  fail(2, `--baseline: there is no build of plantstore in ${baseline}: run npm ci there.`);
if (flags.quick && flags.write) fail(2, `--quick results are not written.\n${USAGE}`);

const missing = ["wrk", "taskset"].filter((tool) => Bun.which(tool) === null);
if (missing.length > 0 && !flags.render)
  fail(
    1,
    `The benchmark needs ${missing.join(" and ")}. On Debian: apt-get install wrk util-linux`,
  );
await install().catch((error: Error) => fail(1, error.message));
if (flags.render) {
  await writeResults(readResults() ?? fail(2, "There is no bench/results.json yet."));
  process.exit(0);
}

const measured: ScenarioResult[] = [];
for (const scenario of scenarios) {
  const isChosen = chosen.length === 0 || chosen.includes(scenario.name);
  if (!isChosen || (flags.quick && !scenario.isQuick)) continue;
  const result = await measureScenario(scenario);
  process.stdout.write(`${formatScenario(result)}\n`);
  measured.push(result);
}
process.stdout.write(`\nTargets\n\n${formatTargets(measured)}\n`);

if (measured.some(({ tables }) => tables.some(({ rows }) => rows.some((row) => row.disturbed > 0))))
  process.stdout.write(
    "\nOther processes disturbed some rounds. Compare the CPU µs of their rows instead.\n",
  );

const isWhole = chosen.length === 0 && !flags.quick;
if (isWhole || flags.write) {
  const fresh = { machine: readMachine(), scenarios: measured };
  await writeResults(mergeResults(isWhole ? undefined : readResults(), fresh, names));
}
process.exit(measured.every(isGood) ? 0 : 1);

/** A failure is recorded as the result, and the run continues. */
async function measureScenario(scenario: Scenario): Promise<ScenarioResult> {
  const { measure, profile, isQuick: _isQuick, ...described } = scenario;
  const startedMs = performance.now();
  const measuredAt = new Date().toISOString();
  const stack = new AsyncDisposableStack();
  const run = {
    stack,
    isQuick: flags.quick ?? false,
    ...(baseline === undefined ? {} : { baseline }),
  };
  const outcome = await measure(run).catch((error: Error) => {
    process.stderr.write(`${error.stack ?? ""}\n`);
    return { tables: [], targets: [], failure: error.message };
  });
  const isMissed = outcome.targets.some(({ isMet }) => !isMet);
  const profiled =
    isMissed && profile !== undefined
      ? { profile: await profile(run).catch((error: Error) => `none, because ${error.message}`) }
      : {};
  await stack.disposeAsync();
  removeTemporaryPaths();
  return {
    ...described,
    measuredAt,
    commit: readCommit(import.meta.dir),
    architecture: process.arch,
    roundSeconds: ROUND_SECONDS,
    durationSeconds: Math.round((performance.now() - startedMs) / 1000),
    ...outcome,
    ...profiled,
  };
}

function readResults(): Results | undefined {
  if (!existsSync(resultsPath)) return undefined;
  return JSON.parse(readFileSync(resultsPath, "utf8")) as Results;
}

async function writeResults(results: Results): Promise<void> {
  const text = JSON.stringify(
    results,
    (_key, value: unknown) => (typeof value === "number" ? Number(value.toPrecision(6)) : value),
    1,
  );
  writeFileSync(resultsPath, `${text}\n`);
  writeFileSync(join(import.meta.dir, "RESULTS.md"), makePage(results));
  await writeCharts(results.scenarios);
}

function fail(code: number, message: string): never {
  process.stderr.write(`${message}\n`);
  process.exit(code);
}

function parseArguments() {
  const flag = { type: "boolean" } as const;
  try {
    const options = {
      quick: flag,
      write: flag,
      render: flag,
      baseline: { type: "string" },
    } as const;
    return parseArgs({ allowPositionals: true, options });
  } catch (error) {
    return fail(2, `${(error as Error).message}\n${USAGE}`);
  }
}
