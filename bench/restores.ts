/** How long a restore takes, and how much memory, beside unpacking its copy and importing the changes behind it. */

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { importInto, makeLines } from "./load.ts";
import { type Candidate, measureTable, OURS, type Run } from "./measure.ts";
import { readRssMb } from "./processes.ts";
import type { Sample, Table } from "./results.ts";
import { ask, servePlants, WrongAnswer } from "./servers.ts";
import { CHANGED_ROWS, FEW_ROUNDS, SERVER_CORE, STORED } from "./settings.ts";
import { copyFilledStore, countRows, makePath, plantstore } from "./stores.ts";

const BACK_UP_MS_MAX = 300_000;
const WATCH_MS = 50;

async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  const untilMs = performance.now() + BACK_UP_MS_MAX;
  while (!(await isSo())) {
    if (performance.now() > untilMs) throw new WrongAnswer(`${what}: not so`);
    await Bun.sleep(50);
  }
}

const isCopy = (name: string): boolean => name.endsWith(".db.zst");

/** A folder with a copy of a million plants, and the changes behind it. */
async function makeBackups(lines: Buffer): Promise<string> {
  const folder = makePath("backups");
  mkdirSync(folder);
  const server = await servePlants(`sqlite:${copyFilledStore(STORED)}`, {
    env: { PLANTSTORE_BACKUP_TO: folder, PLANTSTORE_BACKUP_EVERY: "1h" },
  });
  try {
    await until("a copy is there", () => readdirSync(folder).some(isCopy));
    await importInto(server, lines, "", CHANGED_ROWS);
    await until("every change is in the backups", async () =>
      /^plantstore_backup_lag_changes 0$/m.test(await (await ask(`${server.url}/metrics`)).text()),
    );
  } finally {
    await server.stop();
  }
  return folder;
}

/** One command on one core: its seconds with what comes before it, and the most memory that it had. */
async function time(path: string, args: readonly string[], prepare?: () => void): Promise<Sample> {
  const startedMs = performance.now();
  prepare?.();
  const child = Bun.spawn(["taskset", "-c", SERVER_CORE, ...plantstore, ...args], {
    env: { ...process.env, DATABASE_URL: `sqlite:${path}` },
    stdout: "ignore",
    stderr: "pipe",
  });
  // The kernel's account at its end would count our own memory too, which a process has until it runs its program.
  let rssMb = 0;
  const watch = setInterval(() => {
    rssMb = Math.max(rssMb, readRssMb([child.pid], "VmHWM"));
  }, WATCH_MS);
  const errors = await new Response(child.stderr).text();
  clearInterval(watch);
  if ((await child.exited) !== 0) throw new WrongAnswer(`${args[0]} failed: ${errors}`);
  const value = (performance.now() - startedMs) / 1_000;
  // Plus the create of the start-up check.
  const [rows, expected] = [countRows(path), STORED + CHANGED_ROWS + 1];
  if (rows !== expected) throw new WrongAnswer(`${rows} of ${expected} plants were restored`);
  return { value, rssMb };
}

export async function measureRestores({ isQuick }: Run): Promise<Table> {
  const lines = makeLines(STORED, CHANGED_ROWS);
  const folder = await makeBackups(lines);
  const copy = join(folder, readdirSync(folder).find(isCopy) ?? "");
  const changes = makePath("changes.ndjson");
  writeFileSync(changes, lines);
  const candidates: readonly Candidate[] = [
    { name: OURS, role: "ours", measure: () => time(makePath(), ["restore", folder]) },
    {
      name: "unpacking the copy, and importing the changes",
      role: "limit",
      measure: () => {
        const path = makePath();
        return time(path, ["import", changes], () =>
          writeFileSync(path, Bun.zstdDecompressSync(readFileSync(copy))),
        );
      },
    },
  ];
  const name = `restore of ${STORED.toLocaleString("en")} plants with ${CHANGED_ROWS.toLocaleString("en")} changes behind them`;
  return measureTable(isQuick, { name, unit: "seconds", rounds: FEW_ROUNDS, candidates });
}
