/** No server and no browser outlives the process that started it, and no folder either, however that process ends. */

import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { isAnyAlive, listChildren, listProcesses, type Process, signal } from "./processes.ts";

const QUIT_MS_MAX = 5000;

let guard: Bun.Subprocess<"pipe"> | undefined;

/**
 * Ends whatever runs in the folder, and removes it, when this process is gone. A process of its own does that:
 * it survives a SIGKILL of this one, and `bun test` emits no `exit`.
 */
export function guardFolder(path: string): void {
  guard ??= Bun.spawn([process.execPath, import.meta.path], {
    stdin: "pipe",
    stdout: "ignore",
    stderr: "ignore",
    detached: true,
  });
  guard.unref();
  void guard.stdin.write(`${path}\n`);
  void guard.stdin.flush();
}

/** A server that is told to quit gives its shared memory back; one that is killed does not. */
function endServer(folder: string): void {
  const postmaster = listProcesses().find(({ command }) => command.includes(` -D ${folder}/`))?.pid;
  if (postmaster === undefined) return;
  const pids = [postmaster, ...listChildren(postmaster).map(({ pid }) => pid)];
  for (const pid of pids) signal(pid, "SIGQUIT");
  for (const pid of pids) signal(pid, "SIGCONT");
  const quitAtMs = performance.now();
  while (isAnyAlive(pids)) {
    if (performance.now() - quitAtMs > QUIT_MS_MAX) for (const pid of pids) signal(pid, "SIGKILL");
    Bun.sleepSync(10);
  }
}

/** It ends by itself without the process that drives it, but writes to its profile until then. */
function endBrowser(profile: string): void {
  const isOf = ({ command }: Process): boolean => command.includes(`--user-data-dir=${profile}`);
  const pids = listProcesses()
    .filter(isOf)
    .map(({ pid }) => pid);
  for (const pid of pids) signal(pid, "SIGKILL");
  while (isAnyAlive(pids)) Bun.sleepSync(10);
}

/** Of a server that does not run any more. One that was killed has left a segment of shared memory behind. */
export function removeServerFolder(folder: string): void {
  const pidFile = join(folder, "data/postmaster.pid");
  const lines = existsSync(pidFile) ? readFileSync(pidFile, "utf8").split("\n") : [];
  const [, segment] = lines[6]?.trim().split(/\s+/) ?? [];
  if (segment !== undefined && Bun.which("ipcrm") !== null)
    Bun.spawnSync(["ipcrm", "-m", segment], { stdout: "ignore", stderr: "ignore" });
  rmSync(folder, { recursive: true, force: true });
}

if (import.meta.main) {
  const folders = (await Bun.stdin.text()).split("\n").filter((line) => line !== "");
  for (const folder of folders) endServer(folder);
  for (const folder of folders) endBrowser(folder);
  for (const folder of folders) removeServerFolder(folder);
}
