/** Runs all test scripts, three at a time because they often wait. With --long, runs the longer tests too. */

import {
  appendFileSync,
  closeSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statfsSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const isLong = process.argv.includes("--long");

/** Longest first, so none runs alone in the end. */
const waiting = [
  "test:browser",
  "test:sqlite",
  "test:postgres",
  "test:ship",
  "test:torture",
  "test:threads",
  ...(isLong ? ["test:serializable"] : []),
];
const AT_A_TIME = 3;

/** These keep their files on disk. */
const onDisk = new Set(["test:torture", "test:ship"]);

const MEMORY = "/dev/shm";
const MEMORY_BYTES_MIN = 4 * 1024 ** 3;

/**
 * Whether temporary files fit into memory, and programs can run from there. A sync costs nothing there, and
 * only the torture depends on real syncs.
 */
function hasRoomInMemory(): boolean {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    if (bavail * bsize < MEMORY_BYTES_MIN) return false;
    const folder = mkdtempSync(join(MEMORY, "plantstore-test-"));
    const program = join(folder, "program");
    writeFileSync(program, "#!/bin/sh\n", { mode: 0o755 });
    const { success } = Bun.spawnSync([program]);
    rmSync(folder, { recursive: true });
    return success;
  } catch {
    return false;
  }
}

const inMemory = hasRoomInMemory() ? { TMPDIR: MEMORY } : {};
const long = isLong ? { PLANTSTORE_TEST_LONG: "true" } : {};
const built = { PLANTSTORE_TEST_BUILT: "true" };

/** A script that hangs ends as a failure, with what it printed, before the patience of whoever runs all of them ends. */
const SCRIPT_MS_MAX = (isLong ? 60 : 30) * 60_000;

interface Finished {
  readonly script: string;
  readonly exitCode: number;
  readonly seconds: number;
  readonly failed: readonly string[];
  readonly skipped: number;
}

const outputFolder = mkdtempSync(join(tmpdir(), "plantstore-test-output-"));
const running = new Set<Bun.Subprocess>();

/** A script leads a process group, so that the programs it started end with it. */
function endGroup({ pid }: Bun.Subprocess): void {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // It has ended.
  }
}

for (const signal of ["SIGINT", "SIGTERM"])
  process.once(signal, () => {
    running.forEach(endGroup);
    process.exit(1);
  });

/**
 * Prints the output of a script when it ends, so outputs do not interleave. The output goes to a file: a program that
 * outlives its test would hold a pipe open for ever.
 */
async function run(script: string): Promise<Finished> {
  const startedAtMs = performance.now();
  const outputPath = join(outputFolder, script.replace(":", "-"));
  const outputFile = openSync(outputPath, "a");
  const child = Bun.spawn(["npm", "run", "--silent", script], {
    env: { ...process.env, ...built, ...long, ...(onDisk.has(script) ? {} : inMemory) },
    stdout: outputFile,
    stderr: outputFile,
    detached: true,
  });
  closeSync(outputFile);
  running.add(child);
  const deadline = setTimeout(() => {
    appendFileSync(outputPath, `\n${script} was ended after ${SCRIPT_MS_MAX / 60_000} minutes\n`);
    endGroup(child);
  }, SCRIPT_MS_MAX);
  const exitCode = await child.exited;
  clearTimeout(deadline);
  running.delete(child);
  endGroup(child);
  const seconds = (performance.now() - startedAtMs) / 1000;
  const output = readFileSync(outputPath, "utf8");
  process.stdout.write(`\n===== ${script} =====\n${output}`);
  // The runner prints each failure twice. A process that ended takes its file with it.
  const failed = new Set(output.split("\n").filter((line) => /^(\(fail\)|✗) /.test(line)));
  const skipped = Number(/^ *(\d+) skip$/m.exec(output)?.[1] ?? 0);
  return { script, exitCode, seconds, failed: [...failed], skipped };
}

const finished: Finished[] = [];

async function work(): Promise<void> {
  for (let script = waiting.shift(); script !== undefined; script = waiting.shift())
    finished.push(await run(script));
}

await Promise.all(Array.from({ length: AT_A_TIME }, work));
rmSync(outputFolder, { recursive: true });
process.stdout.write("\n");
for (const { script, exitCode, seconds, failed, skipped } of finished)
  process.stdout.write(
    [
      `${exitCode === 0 ? "passed" : "FAILED"}  ${script.padEnd(18)} ${seconds.toFixed(0).padStart(4)} s${skipped > 0 ? `, ${skipped} skipped` : ""}\n`,
      ...failed.map((line) => `        ${line}\n`),
    ].join(""),
  );
process.exitCode = finished.every(({ exitCode }) => exitCode === 0) ? 0 : 1;
