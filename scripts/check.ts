/**
 * Runs all checks in parallel, and prints the output of those that fail. With --near, for the minute between two edits:
 * without dead code, and with the tests that are nearest to what differs from main.
 */

import { existsSync, readFileSync } from "node:fs";
import { basename, dirname, extname, join } from "node:path";
import { Glob } from "bun";

const root = join(import.meta.dir, "..");
const print = (line: string): boolean => process.stdout.write(`${line}\n`);

/** Undefined if it was not over in time. */
async function passes(
  what: string,
  command: readonly string[],
  msMax?: number,
): Promise<boolean | undefined> {
  // A process group, so that what a test has started ends with it.
  const child = Bun.spawn([...command], {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
    detached: msMax !== undefined,
  });
  let isLate = false;
  const end = (): void => void (isLate = process.kill(-child.pid, "SIGKILL"));
  const deadline = msMax && setTimeout(end, msMax);
  const output = await Promise.all([child.stdout.text(), child.stderr.text()]);
  const hasPassed = (await child.exited) === 0;
  clearTimeout(deadline);
  if (isLate) return undefined;
  if (!hasPassed) process.stderr.write(`${what} failed:\n${output.join("")}`);
  return hasPassed;
}

/** Of these files only, where they are given. */
const runCheck = (name: string, files: readonly string[] = []): Promise<boolean | undefined> =>
  passes(name, ["npm", "run", "--silent", `check:${name}`, "--", ...files]);

const git = (...args: readonly string[]): string[] =>
  Bun.spawnSync(["git", ...args], { cwd: root })
    .stdout.toString()
    .split("\n")
    .filter((line) => line !== "");

/** On this branch, committed or not. */
function listChanged(): string[] {
  const [base = "HEAD"] = git("merge-base", "HEAD", "main");
  const changed = git("diff", "--name-only", base);
  return [...changed, ...git("ls-files", "--others", "--exclude-standard")];
}

/** What a file needs when it runs; types are checked without it. */
const listImports = (file: string): string[] =>
  new Bun.Transpiler({ loader: file.endsWith("x") ? "tsx" : "ts" })
    .scanImports(readFileSync(join(root, file), "utf8"))
    .filter(({ path }) => path.startsWith("."))
    .map(({ path }) => join(dirname(file), path));

/** How many imports lead from each file to one that has changed. */
function measureDistances(changed: readonly string[]): ReadonlyMap<string, number> {
  const sources = new Glob("{src,client,console,reference,scripts,test}/**/*.{ts,tsx}");
  const importers = Map.groupBy(
    [...sources.scanSync(root)].flatMap((file) =>
      listImports(file).map((imported) => ({ file, imported })),
    ),
    ({ imported }) => imported,
  );
  const distances = new Map(changed.map((file) => [file, 0]));
  // A map yields what is added to it meanwhile.
  for (const [imported, distance] of distances)
    for (const { file } of importers.get(imported) ?? [])
      if (!distances.has(file)) distances.set(file, distance + 1);
  return distances;
}

const nameOf = (file: string): string => basename(file).replace(/(\.test)?\.tsx?$/, "");
/** `src/store/sqlite/writer.ts` and `test/store/disk.test.ts` are of one. A browser loads the pages, so no import shows it. */
const folderOf = (file: string): string =>
  (/^(?:(?:src|test)\/)?(\w+)\//.exec(file)?.[1] ?? "").replace(/^(browser|reference)$/, "console");

const isCode = (file: string): boolean => /\.tsx?$/.test(file);

/** Those that a change can break, the nearest first. */
function listNear(
  changed: readonly string[],
  distances: ReturnType<typeof measureDistances>,
): string[] {
  const code = changed.filter(isCode);
  // A document, by its name or as one of its folder.
  const others = changed.flatMap((file) =>
    isCode(file) ? [] : [basename(file), `"${join(dirname(file), `*${extname(file)}`)}"`],
  );
  const names = (file: string): boolean => {
    const text = others.length > 0 ? readFileSync(join(root, file), "utf8") : "";
    return others.some((other) => text.includes(other));
  };
  const rank = (file: string): number =>
    Math.min(
      distances.get(file) ?? Infinity,
      names(file) ? 0.5 : Infinity,
      code.some((one) => nameOf(one) === nameOf(file)) ? 0.5 : Infinity,
      code.some((one) => folderOf(one) === folderOf(file)) ? 1.5 : Infinity,
    );
  const tests = [...new Glob("test/**/*.test.ts").scanSync(root)].toSorted();
  return tests
    .filter((file) => rank(file) < Infinity)
    .toSorted((one, other) => rank(one) - rank(other));
}

/** They take minutes, need a build or another engine. */
const SLOW = /^test\/(browser|postgres|ship|torture)\//;
/** After it no test is begun; one that runs by then has the rest of the half minute. */
const BEGIN_MS_MAX = 20_000;
const MS_MAX = 28_000;

async function runNear(): Promise<boolean> {
  const changed = listChanged();
  const distances = measureDistances(changed);
  const near = new Set(["test/style.test.ts", ...listNear(changed, distances)]);
  // A rule about promises may be broken where what has changed is called.
  const linted = [...distances].filter(([file, distance]) => distance < 2 && isCode(file));
  const files = linted.map(([file]) => file).filter((file) => existsSync(join(root, file)));
  const checking = Promise.all([
    runCheck("types"),
    runCheck("format"),
    ...(files.length > 0 ? [runCheck("lint", files)] : []),
  ]);
  const waiting = [...near].filter((file) => !SLOW.test(file));
  const outcomes: boolean[] = [];
  const late: string[] = [];
  const work = async (): Promise<void> => {
    while (waiting.length > 0 && performance.now() < BEGIN_MS_MAX) {
      const file = waiting.shift() as string;
      const command = [process.execPath, "test", `./${file}`];
      const hasPassed = await passes(file, command, MS_MAX - performance.now());
      if (hasPassed === undefined) late.push(file);
      else outcomes.push(hasPassed);
      near.delete(file);
      print(
        `${hasPassed === undefined ? "out of time" : hasPassed ? "passed" : "FAILED"}  ${file}`,
      );
    }
  };
  await Promise.all([work(), work()]);
  const checks = await checking;
  const passed = outcomes.filter(Boolean).length;
  const left = Map.groupBy(near, (file) => dirname(file));
  const counts = Array.from(left, ([folder, { length }]) => `${length} in ${folder}`);
  print(`${passed} of ${outcomes.length} test files passed.`);
  if (late.length > 0) print(`Not known, run them by name: ${late.join(" ")}`);
  print(`Left out of those that use the change: ${counts.join(", ") || "none"}.`);
  print(
    "Left out besides: lint of files that import nothing of the change, dead code, other engines.",
  );
  return [...checks, ...outcomes].every(Boolean);
}

const isGood = process.argv.includes("--near")
  ? await runNear()
  : (await Promise.all(["types", "lint", "format", "unused"].map((name) => runCheck(name)))).every(
      Boolean,
    );
process.exitCode = isGood ? 0 : 1;
