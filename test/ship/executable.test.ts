/** The executable: built for this machine, and used. Those for other machines are only checked for their format. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, chownSync, cpSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";
import packageJson from "../../package.json";
import {
  findFormatFault,
  findOwnTarget,
  type TargetName,
  targets,
} from "../../scripts/build-executable.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { listChildren, runSync, signal } from "../support/processes.ts";
import { copySources, fail, run, serve, useEverything } from "../support/shipped.ts";

const sources = copySources();
const folder = join(sources.path, "release");
const name = `plantstore-${packageJson.version}-${findOwnTarget()}`;
const executable = join(folder, name);

beforeAll(() => run(["npm", "run", "build:executable"], { cwd: sources.path }));
afterAll(() => sources[Symbol.dispose]());

describe("the executable for this machine", () => {
  test("serves, searches and backs up, with workers and both pages, whatever lies in the folder", () =>
    useEverything([executable]));

  test("has the format of its target, and of no other", () => {
    const matching = (Object.keys(targets) as TargetName[]).filter(
      (target) => findFormatFault(executable, target) === undefined,
    );
    expect(matching).toEqual([findOwnTarget()]);
  });
});

test("the sources ask only for their folder: a build answers that, and nothing else, by where it is", () => {
  const asking = [...new Glob("src/**/*.ts").scanSync(sources.path)].filter((file) =>
    /import\.meta\.(?!dir\b)/.test(readFileSync(join(sources.path, file), "utf8")),
  );
  expect(asking).toEqual([]);
});

/** With its own view of processes and mounts, as a container has. */
const box = `
set -eu
mount --bind "$1" "$1"
mount --bind "$1/data" "$1/data"
mount --bind /dev "$1/dev"
mount -t proc proc "$1/proc"
mount -o remount,ro,bind "$1"
exec chroot --userspec=65532:65532 "$1" /plantstore serve`;
/** Whether the machine lets this process do it. */
const can = (...command: string[]): boolean =>
  Bun.which(command[0] as string) !== null && runSync(command).success;
const canUnshare = can("unshare", "-m", "-p", "-f", "mount", "-t", "proc", "proc", "/proc");
if (!canUnshare)
  process.stderr.write("unshare is not allowed: the box of a container is not tried.\n");

test.skipIf(!canUnshare)(
  "in the box of a container (process 1, another user, nothing to write to but /data) it serves and stops",
  async () => {
    using place = makeTemporaryFolder();
    for (const mount of ["data", "dev", "proc"]) mkdirSync(join(place.path, mount));
    chmodSync(place.path, 0o755);
    chownSync(join(place.path, "data"), 65_532, 65_532);
    cpSync(executable, join(place.path, "plantstore"));
    const libraries = await run(["ldd", executable], { cwd: place.path });
    for (const [library] of libraries.matchAll(/\/\S+/g))
      cpSync(library, join(place.path, library), { dereference: true });
    const command = ["unshare", "-m", "-p", "-f", "sh", "-c", box, "sh", place.path];
    const env = { DATABASE_URL: "sqlite:/data/plants.db" };
    const { child, stderr, url } = await serve(command, { cwd: "/", env });
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    const [service] = listChildren(child.pid);
    signal(service?.pid ?? 0, "SIGTERM");
    expect([await child.exited, await stderr]).toEqual([0, expect.stringContaining("stopped")]);
  },
);

const canTrace = can("strace", "true") && can("systemd-analyze", "--version");
if (!canTrace) process.stderr.write("strace does not run: system calls are not compared.\n");

test.skipIf(!canTrace)("it makes no system call that the systemd unit forbids", async () => {
  using place = makeTemporaryFolder();
  const trace = join(place.path, "trace");
  await useEverything(["strace", "-f", "-c", "-o", trace, executable]);
  const counted = readFileSync(trace, "utf8").matchAll(/^ *[\d.]+ .* ([a-z]\w+)$/gm);
  // SQLite makes this one as root only, and the unit has a user of its own.
  const others = new Set(["total", "fchown"]);
  const used = [...counted].map(([, call = ""]) => call).filter((call) => !others.has(call));
  expect(used.length).toBeGreaterThan(20);
  const allowed = new Set(await listCalls("@system-service"));
  for (const group of ["@privileged", "@resources"])
    for (const call of await listCalls(group)) allowed.delete(call);
  expect(used.filter((call) => !allowed.has(call))).toEqual([]);
});

/** A group of system calls, with the groups in it. */
async function listCalls(group: string): Promise<string[]> {
  const list = ["systemd-analyze", "syscall-filter", "--no-pager", group];
  const [, ...lines] = (await run(list, { cwd: folder })).split("\n").map((line) => line.trim());
  const calls: string[] = [];
  for (const line of lines.filter((text) => text !== "" && !text.startsWith("#")))
    calls.push(...(line.startsWith("@") ? await listCalls(line) : [line]));
  return calls;
}

test("an unknown target is refused, and the known ones are named", async () => {
  using empty = makeTemporaryFolder();
  const script = join(sources.path, "scripts/build-executable.ts");
  const build = [process.execPath, script, "--target", "windows-x64"];
  const failure = await fail(build, { cwd: empty.path });
  expect(failure).toMatch(/exited with 2:\n--target windows-x64: expected all, linux-x64/);
});
