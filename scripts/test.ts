/** Runs all test scripts, four at a time because they often wait. With --long, runs the longer tests too. */

import { mkdtempSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const isLong = process.argv.includes("--long");

/** Longest first, and that which waits for the network beside them, so none runs alone in the end. */
const waiting = [
  "test:sqlite",
  "test:browser",
  "test:postgres",
  "test:ship",
  "test:torture",
  "test:threads",
  ...(isLong ? ["test:serializable"] : []),
];
const AT_A_TIME = 4;

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

interface Finished {
  readonly script: string;
  readonly exitCode: number;
  readonly seconds: number;
  readonly failed: readonly string[];
  readonly skipped: number;
}

/** Prints the output of a script when it ends, so outputs do not interleave. */
async function run(script: string): Promise<Finished> {
  const startedAtMs = performance.now();
  const env = { ...process.env, ...built, ...long, ...(onDisk.has(script) ? {} : inMemory) };
  const child = Bun.spawn(["npm", "run", "--silent", script], {
    env,
    stdout: "pipe",
    stderr: "pipe",
  });
  const [stdout, stderr, exitCode] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  const seconds = (performance.now() - startedAtMs) / 1000;
  process.stdout.write(`\n===== ${script} =====\n${stdout}${stderr}`);
  // The runner prints each failure twice.
  const failed = new Set(stderr.split("\n").filter((line) => line.startsWith("(fail)")));
  const skipped = Number(/^ *(\d+) skip$/m.exec(stderr)?.[1] ?? 0);
  return { script, exitCode, seconds, failed: [...failed], skipped };
}

const finished: Finished[] = [];

async function work(): Promise<void> {
  for (let script = waiting.shift(); script !== undefined; script = waiting.shift())
    finished.push(await run(script));
}

await Promise.all(Array.from({ length: AT_A_TIME }, work));
process.stdout.write("\n");
for (const { script, exitCode, seconds, failed, skipped } of finished)
  process.stdout.write(
    [
      `${exitCode === 0 ? "passed" : "FAILED"}  ${script.padEnd(18)} ${seconds.toFixed(0).padStart(4)} s${skipped > 0 ? `, ${skipped} skipped` : ""}\n`,
      ...failed.map((line) => `        ${line}\n`),
    ].join(""),
  );
process.exitCode = finished.every(({ exitCode }) => exitCode === 0) ? 0 : 1;
