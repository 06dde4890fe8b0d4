/** What runs on this machine: who started it, what it is, and whether it is stopped. */

import { readdirSync, readFileSync } from "node:fs";

export interface Process {
  readonly pid: number;
  readonly parent: number;
  readonly stopped: boolean;
  /** As it was started, unless it has given itself another title. */
  readonly command: string;
}

/** All but zombies: those have let go of everything but their number. */
export function listProcesses(): Process[] {
  const rows = process.platform === "linux" ? readProc() : readPs();
  return rows.filter(({ state }) => !/^[ZX]/.test(state)).map(toProcess);
}

export const listChildren = (pid: number): Process[] =>
  listProcesses().filter(({ parent }) => parent === pid);

/** Whether any of them still runs, or could run again. */
export const isAnyAlive = (pids: readonly number[]): boolean =>
  listProcesses().some(({ pid }) => pids.includes(pid));

/** A process that is gone already has nothing left to be told. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** Resolves when none of them does anything any more, until SIGCONT. */
export async function stopProcesses(...pids: readonly number[]): Promise<void> {
  for (const pid of pids) signal(pid, "SIGSTOP");
  const isRunning = ({ pid, stopped }: Process): boolean => pids.includes(pid) && !stopped;
  while (listProcesses().some(isRunning)) await Bun.sleep(1);
}

/** Resolves when they are gone. */
export async function killProcesses(...pids: readonly number[]): Promise<void> {
  for (const pid of pids) signal(pid, "SIGKILL");
  while (isAnyAlive(pids)) await Bun.sleep(1);
}

interface Row {
  readonly pid: number;
  readonly parent: number;
  readonly state: string;
  readonly command: string;
}

const toProcess = ({ pid, parent, state, command }: Row): Process => ({
  pid,
  parent,
  stopped: /^[Tt]/.test(state),
  command,
});

/** A plain Debian has no `ps`. */
function readProc(): Row[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid): Row[] => {
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

function readPs(): Row[] {
  const { stdout } = Bun.spawnSync(["ps", "-A", "-ww", "-o", "pid=,ppid=,state=,command="]);
  return [...stdout.toString().matchAll(/^\s*(\d+)\s+(\d+)\s+(\S+)\s+(.*)$/gm)].map(
    ([, pid, parent, state = "", command = ""]) => ({
      pid: Number(pid),
      parent: Number(parent),
      state,
      command,
    }),
  );
}
