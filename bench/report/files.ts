/** Where results are kept: results.json, and the page and the charts that are made of it. */

import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { drawCharts } from "./charts.ts";
import { makePage } from "./page.ts";
import type { Results } from "./results.ts";

const resultsPath = join(import.meta.dir, "../results.json");
const pagePath = join(import.meta.dir, "../RESULTS.md");
const chartsFolder = join(import.meta.dir, "../charts");

export function readResults(): Results | undefined {
  if (!existsSync(resultsPath)) return undefined;
  return JSON.parse(readFileSync(resultsPath, "utf8")) as Results;
}

export function writeResults(results: Results): void {
  writeFileSync(resultsPath, `${JSON.stringify(results, shorten, 1)}\n`);
  writeFileSync(pagePath, makePage(results));
  // A scenario that is no more leaves no chart behind.
  rmSync(chartsFolder, { recursive: true, force: true });
  mkdirSync(chartsFolder);
  for (const scenario of results.scenarios)
    for (const { file, svg } of drawCharts(scenario)) writeFileSync(join(chartsFolder, file), svg);
}

/** What nobody could have measured so finely need not be kept. */
const shorten = (_key: string, value: unknown): unknown =>
  typeof value === "number" ? Number(value.toPrecision(6)) : value;
