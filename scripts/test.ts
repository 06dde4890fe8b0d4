/**
 * Runs the groups of tests that are named, or all of them: three at a time, because they often wait. With --long, runs
 * the longer tests too. A test file says which groups run it by `export const groups = [...]`, if they are not those of
 * its folder.
 */

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
import { Glob } from "bun";

interface Group {
  /** Processes; undefined for tests that disturb each other. */
  readonly parallel?: number;
  readonly env?: Readonly<Record<string, string>>;
  /** Its temporary files are not kept in memory. */
  readonly isOnDisk?: boolean;
  readonly isLong?: boolean;
}

/** Longest first, so none runs alone in the end. */
const groups: Readonly<Record<string, Group>> = {
  browser: { parallel: 2, env: { PLANTSTORE_TEST_PATIENCE_SECONDS: "60" } },
  sqlite: { parallel: 3, env: { PLANTSTORE_TEST_ENGINE: "sqlite" } },
  postgres: { parallel: 2, env: { PLANTSTORE_TEST_ENGINE: "postgres" } },
  ship: { parallel: 2, isOnDisk: true },
  torture: { isOnDisk: true },
  // SQLite, and a service with several HTTP threads.
  threads: {
    parallel: 2,
    env: {
      PLANTSTORE_TEST_ENGINE: "sqlite",
      PLANTSTORE_TEST_WORKERS: "2",
      PLANTSTORE_TEST_RUNS: "0.2",
    },
  },
  serializable: { env: { PLANTSTORE_TEST_ENGINE: "postgres-serializable" }, isLong: true },
};

/** By the folder in `test/`. */
const groupsOf: Readonly<Record<string, readonly string[]>> = {
  contract: ["sqlite", "threads", "postgres", "serializable"],
  http: ["sqlite", "postgres"],
  postgres: ["postgres"],
  browser: ["browser"],
  ship: ["ship"],
  torture: ["torture"],
};

const root = join(import.meta.dir, "..");
const [isLong, named] = [
  process.argv.includes("--long"),
  process.argv.slice(2).filter((argument) => argument !== "--long"),
];

function fail(message: string): never {
  process.stderr.write(`${message}\n`);
  process.exit(2);
}

function listGroups(file: string): readonly string[] {
  const [, own] =
    /^export const groups = \[(.*)\];$/m.exec(readFileSync(join(root, file), "utf8")) ?? [];
  const found =
    own === undefined
      ? (groupsOf[file.split("/")[1] ?? ""] ?? ["sqlite"])
      : [...own.matchAll(/"(\w+)"/g)].map(([, name = ""]) => name);
  if (found.length === 0 || !found.every((name) => name in groups))
    fail(`${file} runs in no group, or in one that is none of ${Object.keys(groups).join(", ")}.`);
  return found;
}

const files = [...new Glob("test/**/*.test.ts").scanSync(root)]
  .toSorted()
  .flatMap((file) => listGroups(file).map((group) => [file, group] as const));
const unknown = named.find((name) => !files.some(([, group]) => group === name));
if (unknown !== undefined)
  fail(`${unknown} is no group of tests. There are: ${Object.keys(groups).join(", ")}.`);
const waiting = Object.keys(groups).filter((name) =>
  named.length > 0 ? named.includes(name) : isLong || groups[name]?.isLong !== true,
);
const AT_A_TIME = 3;

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
// `npm test` has built before. A group alone may be run on an older build.
const built = named.length > 0 ? {} : { PLANTSTORE_TEST_BUILT: "true" };

/** A group that hangs ends as a failure, with what it printed. */
const GROUP_MS_MAX = (isLong ? 60 : 30) * 60_000;

interface Finished {
  readonly name: string;
  readonly exitCode: number;
  readonly seconds: number;
  readonly failed: readonly string[];
  readonly skipped: number;
}

const outputFolder = mkdtempSync(join(tmpdir(), "plantstore-test-output-"));
const running = new Set<Bun.Subprocess>();

/** A group of tests leads a process group, so that the programs it started end with it. */
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
 * Prints the output of a group when it ends, so outputs do not interleave. The output goes to a file: a program that
 * outlives its test would hold a pipe open for ever.
 */
async function run(name: string): Promise<Finished> {
  const startedAtMs = performance.now();
  const { parallel, env, isOnDisk = false } = groups[name] as Group;
  const outputPath = join(outputFolder, name);
  const outputFile = openSync(outputPath, "a");
  const options = parallel === undefined ? [] : [`--parallel=${parallel}`, "--no-isolate"];
  const own = files.filter(([, group]) => group === name).map(([file]) => `./${file}`);
  const child = Bun.spawn([process.execPath, "test", ...options, ...own], {
    cwd: root,
    env: { ...process.env, ...built, ...long, ...env, ...(isOnDisk ? {} : inMemory) },
    stdout: outputFile,
    stderr: outputFile,
    detached: true,
  });
  closeSync(outputFile);
  running.add(child);
  const deadline = setTimeout(() => {
    appendFileSync(outputPath, `\n${name} was ended after ${GROUP_MS_MAX / 60_000} minutes\n`);
    endGroup(child);
  }, GROUP_MS_MAX);
  const exitCode = await child.exited;
  clearTimeout(deadline);
  running.delete(child);
  endGroup(child);
  const seconds = (performance.now() - startedAtMs) / 1000;
  const output = readFileSync(outputPath, "utf8");
  process.stdout.write(`\n===== ${name} =====\n${output}`);
  // The runner prints each failure twice. A process that ended takes its file with it.
  const failed = new Set(output.split("\n").filter((line) => /^(\(fail\)|✗) /.test(line)));
  const skipped = Number(/^ *(\d+) skip$/m.exec(output)?.[1] ?? 0);
  return { name, exitCode, seconds, failed: [...failed], skipped };
}

const finished: Finished[] = [];

async function work(): Promise<void> {
  for (let name = waiting.shift(); name !== undefined; name = waiting.shift())
    finished.push(await run(name));
}

await Promise.all(Array.from({ length: AT_A_TIME }, work));
rmSync(outputFolder, { recursive: true });
process.stdout.write("\n");
for (const { name, exitCode, seconds, failed, skipped } of finished)
  process.stdout.write(
    [
      `${exitCode === 0 ? "passed" : "FAILED"}  ${name.padEnd(13)} ${seconds.toFixed(0).padStart(4)} s${skipped > 0 ? `, ${skipped} skipped` : ""}\n`,
      ...failed.map((line) => `        ${line}\n`),
    ].join(""),
  );
process.exitCode = finished.every(({ exitCode }) => exitCode === 0) ? 0 : 1;
