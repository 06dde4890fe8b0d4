/** Scenarios from start to result: whatever goes wrong in one is its result, and the next one follows. */

import { describeMachine } from "./report/machine.ts";
import type { Results, ScenarioResult } from "./report/results.ts";
import type { Scenario } from "./scenario.ts";
import { ROUND_SECONDS } from "./settings.ts";
import { removePassing } from "./stores.ts";

export async function measureAll(
  scenarios: readonly Scenario[],
  onResult: (result: ScenarioResult) => void,
): Promise<Results> {
  const commit = readCommit();
  const results: ScenarioResult[] = [];
  for (const scenario of scenarios) {
    const result = await runScenario(scenario, commit);
    onResult(result);
    results.push(result);
  }
  return { machine: describeMachine(), scenarios: results };
}

const git = (...args: readonly string[]): string =>
  Bun.spawnSync(["git", "-C", import.meta.dir, ...args])
    .stdout.toString()
    .trim();

/** With a plus where the tree has changes that are in no commit. */
function readCommit(): string {
  const changed = git("status", "--porcelain", "--untracked-files=no", "--", "../src", ".");
  return `${git("rev-parse", "--short", "HEAD")}${changed === "" ? "" : "+"}`;
}

async function runScenario(scenario: Scenario, commit: string): Promise<ScenarioResult> {
  const { measure, ...about } = scenario;
  const startedMs = performance.now();
  const measuredAt = new Date().toISOString();
  const outcome = await measureSafely(measure);
  removePassing();
  const durationSeconds = Math.round((performance.now() - startedMs) / 1000);
  return { ...about, measuredAt, commit, roundSeconds: ROUND_SECONDS, durationSeconds, ...outcome };
}

async function measureSafely(
  measure: Scenario["measure"],
): Promise<Pick<ScenarioResult, "tables" | "targets" | "failure">> {
  await using stack = new AsyncDisposableStack();
  try {
    return await measure(stack);
  } catch (error) {
    const { message, stack: trace = "" } = error as Error;
    process.stderr.write(`${trace}\n`);
    return { tables: [], targets: [], failure: message };
  }
}
