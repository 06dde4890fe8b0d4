/** What runs on this machine, and a guard that ends what a test started, however the test process ends. */

import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { PATIENCE_MS, until } from "./until.ts";

/** Runs a command to its end. Until then nothing else happens in this process, not even the timeout of a test. */
export const runSync = <
  const Out extends Bun.SpawnOptions.Readable = "pipe",
  const Err extends Bun.SpawnOptions.Readable = "pipe",
>(
  command: readonly string[],
  options: Bun.SpawnOptions.SpawnSyncOptions<"ignore", Out, Err> = {},
): Bun.SyncSubprocess<Out, Err> =>
  Bun.spawnSync([...command], { timeout: PATIENCE_MS, killSignal: "SIGKILL", ...options });

export interface Process {
  readonly pid: number;
  readonly parent: number;
  /** As `ps` shows it: "Z" is a zombie, "T" is stopped. */
  readonly state: string;
  /** As it was started, unless it has given itself another title. */
  readonly command: string;
}

/** All but zombies: those have let go of everything but their number. */
function listProcesses(): Process[] {
  const rows = process.platform === "linux" ? readProc() : readPs();
  return rows.filter(({ state }) => !/^[ZX]/.test(state));
}

/** It, and everything that it has started, and so on. */
export function listTree(root: number): Process[] {
  const all = listProcesses();
  const tree = all.filter(({ pid }) => pid === root);
  // Grows while it is walked.
  for (const { pid } of tree) tree.push(...all.filter(({ parent }) => parent === pid));
  return tree;
}

export const listChildren = (pid: number): Process[] =>
  listProcesses().filter(({ parent }) => parent === pid);

/** Whether any of them still runs, or could run again. */
const isAnyAlive = (pids: readonly number[]): boolean =>
  listProcesses().some(({ pid }) => pids.includes(pid));

/** A process that is gone already has nothing left to be told. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** Resolves when all of them are stopped, until SIGCONT. */
export async function stopProcesses(...pids: readonly number[]): Promise<void> {
  for (const pid of pids) signal(pid, "SIGSTOP");
  const isRunning = ({ pid, state }: Process): boolean =>
    pids.includes(pid) && !/^[Tt]/.test(state);
  await until("the processes are stopped", () => !listProcesses().some(isRunning));
}

/** Resolves when they are gone. */
export async function killProcesses(...pids: readonly number[]): Promise<void> {
  for (const pid of pids) signal(pid, "SIGKILL");
  await until("the processes are gone", () => !isAnyAlive(pids));
}

/** A plain Debian has no `ps`. */
function readProc(): Process[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid): Process[] => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
        // The name in parentheses may itself hold spaces and parentheses.
        const [state = "", parent = ""] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
        const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
        return [{ pid: Number(pid), parent: Number(parent), state, command }];
      } catch {
        return [];
      }
    });
}

function readPs(): Process[] {
  const { stdout } = runSync(["ps", "-A", "-ww", "-o", "pid=,ppid=,state=,command="]);
  return [...stdout.toString().matchAll(/^\s*(\d+)\s+(\d+)\s+(\S+)\s+(.*)$/gm)].map(
    ([, pid, parent, state = "", command = ""]) => ({
      pid: Number(pid),
      parent: Number(parent),
      state,
      command,
    }),
  );
}

const QUIT_MS_MAX = 5000;
/** One that a broken disk holds cannot even be killed. */
const KILL_MS_MAX = 60_000;

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

function end(pids: readonly number[], how: NodeJS.Signals): void {
  for (const pid of pids) signal(pid, how);
  for (const pid of pids) signal(pid, "SIGCONT");
  const startedAtMs = performance.now();
  while (isAnyAlive(pids)) {
    const passedMs = performance.now() - startedAtMs;
    if (passedMs > KILL_MS_MAX) return;
    if (passedMs > QUIT_MS_MAX) for (const pid of pids) signal(pid, "SIGKILL");
    Bun.sleepSync(10);
  }
}

/** All that name the folder, or a file in it: a server, a browser by its profile, a manager that would restart its server. */
export function endProcesses(folder: string): void {
  const find = (isServer: boolean): Process[] =>
    listProcesses().filter(
      ({ command }) => command.includes(folder) && command.includes(" -D ") === isServer,
    );
  const pidsOf = (processes: readonly Process[]): number[] => processes.map(({ pid }) => pid);
  end(pidsOf(find(false)), "SIGKILL");
  // A server that quits returns its shared memory; one that is killed does not.
  end(pidsOf(find(true).flatMap(({ pid }) => listTree(pid))), "SIGQUIT");
}

/** For a server that has ended. A killed one has left a segment of shared memory behind. */
export function removeServerFolder(folder: string): void {
  const pidFile = join(folder, "data/postmaster.pid");
  const lines = existsSync(pidFile) ? readFileSync(pidFile, "utf8").split("\n") : [];
  const [, segment] = lines[6]?.trim().split(/\s+/) ?? [];
  if (segment !== undefined && Bun.which("ipcrm") !== null)
    runSync(["ipcrm", "-m", segment], { stdout: "ignore", stderr: "ignore" });
  rmSync(folder, { recursive: true, force: true });
}

if (import.meta.main) {
  const folders = (await Bun.stdin.text()).split("\n").filter((line) => line !== "");
  for (const folder of folders) endProcesses(folder);
  for (const folder of folders) removeServerFolder(folder);
}
