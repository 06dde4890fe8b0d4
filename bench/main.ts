/**
 * npm run bench [-- scenario …]: what the service does a second, side by side with what limits it, in one run.
 *
 * Figures of different runs or machines are not for comparing; ratios within one run are.
 */

import { print, printHead } from "./report.ts";
import { scenarios } from "./scenarios.ts";

const missing = ["wrk", "taskset"].filter((tool) => Bun.which(tool) === null);
if (missing.length > 0) {
  process.stderr.write(
    `The benchmark needs ${missing.join(" and ")}. On Debian: apt-get install wrk util-linux\n`,
  );
  process.exit(1);
}

const chosen = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(scenarios);
const unknown = chosen.filter((name) => scenarios[name] === undefined);
if (unknown.length > 0) {
  process.stderr.write(
    `No scenario ${unknown.join(", ")}; there are ${Object.keys(scenarios).join(", ")}\n`,
  );
  process.exit(2);
}

printHead();
let allMet = true;
for (const name of chosen) allMet = ((await scenarios[name]?.()) ?? false) && allMet;
print(allMet ? "\nAll targets met." : "\nNot all targets were met.");
process.exit(allMet ? 0 : 1);
