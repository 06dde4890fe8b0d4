/**
 * npm run torture [-- scenario … --seconds N --seed N]: the promises, under everything that can go wrong.
 *
 * Fails where a promise was broken, and says how to replay it. The seed replays every choice that is
 * made here: which plants, what is done to whom, and when. How the processes interleave is not replayed.
 */

import { parseArgs } from "node:util";
import { createRandom } from "../support/random.ts";
import { cluster, clusterCheat } from "./cluster.ts";
import { contest, contestCheat } from "./contest.ts";
import { diskFaults } from "./disk-faults.ts";
import { diskHang, diskHangCheat } from "./disk-hang.ts";
import { diskLost, diskLostCheat } from "./disk-lost.ts";
import { failOver, failOverCheat } from "./fail-over.ts";
import { freeze, freezeCheat } from "./freeze.ts";
import { fuzz } from "./fuzz.ts";
import { memory } from "./memory.ts";
import { openTab } from "./open-tab.ts";
import { overload, overloadCheat } from "./overload.ts";
import { postgres, postgresCheat } from "./postgres.ts";
import { powerLoss, powerLossCheat } from "./power-loss.ts";
import type { Finding, Scenario } from "./scenario.ts";
import { soak } from "./soak.ts";
import { worstDay, worstDayCheat } from "./worst-day.ts";

export const scenarios: Readonly<Record<string, Scenario>> = {
  contest,
  "contest-cheat": contestCheat,
  "power-loss": powerLoss,
  "power-loss-cheat": powerLossCheat,
  "disk-faults": diskFaults,
  "disk-hang": diskHang,
  "disk-hang-cheat": diskHangCheat,
  "disk-lost": diskLost,
  "disk-lost-cheat": diskLostCheat,
  "worst-day": worstDay,
  "worst-day-cheat": worstDayCheat,
  postgres,
  "postgres-cheat": postgresCheat,
  "fail-over": failOver,
  "fail-over-cheat": failOverCheat,
  freeze,
  "freeze-cheat": freezeCheat,
  cluster,
  "cluster-cheat": clusterCheat,
  overload,
  "overload-cheat": overloadCheat,
  memory,
  soak,
  "open-tab": openTab,
  fuzz,
};

const FAULTS_SHOWN_MAX = 20;

const print = (line: string): boolean => process.stdout.write(`${line}\n`);

const options = {
  seconds: { type: "string", default: "60" },
  seed: { type: "string", default: String(Math.trunc(Math.random() * 2 ** 31)) },
} as const;

function parseArguments(): { names: string[]; seconds: number; seed: number } {
  const { values, positionals } = parseArgs({ allowPositionals: true, options });
  const names = positionals.length > 0 ? positionals : Object.keys(scenarios);
  const [seconds, seed] = [Number(values.seconds), Number(values.seed)];
  if (names.every((name) => name in scenarios) && seconds > 0 && Number.isSafeInteger(seed))
    return { names, seconds, seed };
  process.stderr.write(
    "usage: npm run torture [-- scenario … --seconds N --seed N]\n" +
      `scenarios: ${Object.keys(scenarios).join(", ")}\n`,
  );
  process.exit(2);
}

function report({ figures, faults }: Finding, replay: string): void {
  const width = Math.max(0, ...Object.keys(figures).map((name) => name.length));
  for (const [name, figure] of Object.entries(figures))
    print(`  ${name.padEnd(width)}  ${typeof figure === "number" ? round(figure) : figure}`);
  for (const fault of faults.slice(0, FAULTS_SHOWN_MAX)) print(`  BROKEN  ${fault}`);
  if (faults.length > FAULTS_SHOWN_MAX) print(`  … and ${faults.length - FAULTS_SHOWN_MAX} more`);
  if (faults.length > 0) print(`  to replay: ${replay}`);
}

const round = (figure: number): string =>
  (Number.isInteger(figure) ? figure : Number(figure.toPrecision(3))).toLocaleString("en");

async function main(): Promise<number> {
  const { names, seconds, seed } = parseArguments();
  print(`Torture: ${names.join(", ")}, ${seconds} s each, seed ${seed}`);
  let [broken, skipped] = [0, 0];
  for (const name of names) {
    const { title, missing, install, run } = scenarios[name] as Scenario;
    print(`\n${name}: ${title}`);
    if (missing?.() !== undefined) install?.();
    const lacking = missing?.();
    if (lacking !== undefined) {
      print(`  skipped: ${lacking}`);
      skipped++;
      continue;
    }
    const tell = (line: string): boolean => print(`  ${line}`);
    const finding = await run({ seconds, random: createRandom(seed), tell });
    report(finding, `npm run torture -- ${name} --seconds ${seconds} --seed ${seed}`);
    if (finding.faults.length > 0) broken++;
  }
  if (skipped > 0) print(`\n${skipped} of ${names.length} could not be run.`);
  print(
    `\n${broken === 0 ? "Nothing was broken" : `${broken} of ${names.length} broke a promise`}.`,
  );
  return broken === 0 ? 0 : 1;
}

if (import.meta.main) process.exit(await main());
