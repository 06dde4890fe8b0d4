/** Who uses the cores, from /proc: a server and its children, ourselves, and everyone else. */

import { readdirSync, readFileSync } from "node:fs";

/** Of /proc on every Linux, whatever the kernel ticks at. */
const TICKS_A_SECOND = 100;

interface ProcessTime {
  readonly parent: number;
  /** Its own, and that of its children that are gone. */
  readonly seconds: number;
}

/** Parses /proc/<pid>/stat. */
export function parseStat(text: string): ProcessTime {
  // The name in parentheses may itself hold spaces and parentheses.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
  return { parent: Number(fields[1]), seconds: ticks / TICKS_A_SECOND };
}

function readProcesses(): Map<number, ProcessTime> {
  const processes = new Map<number, ProcessTime>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      processes.set(Number(name), parseStat(readFileSync(`/proc/${name}/stat`, "utf8")));
    } catch {
      // Gone meanwhile; its parent has its time.
    }
  }
  return processes;
}

/** The processes and everything that they started. */
export function listTree(
  processes: ReadonlyMap<number, { readonly parent: number }>,
  roots: readonly number[],
): number[] {
  const isIn = (pid: number): boolean => {
    if (roots.includes(pid)) return true;
    const parent = processes.get(pid)?.parent;
    return parent !== undefined && parent !== 0 && isIn(parent);
  };
  return [...processes.keys()].filter(isIn);
}

const sumSeconds = (
  processes: ReadonlyMap<number, ProcessTime>,
  roots: readonly number[],
): number =>
  listTree(processes, roots).reduce((sum, pid) => sum + (processes.get(pid)?.seconds ?? 0), 0);

export const readCpuSeconds = (roots: readonly number[]): number =>
  sumSeconds(readProcesses(), roots);

const IDLE_CHECK_MS = 100;
const IDLE_MS_MAX = 15_000;

/** Some go on with what they were asked long after everyone has left, and would do it at the expense of the next. */
export async function waitUntilIdle(roots: readonly number[]): Promise<void> {
  const untilMs = performance.now() + IDLE_MS_MAX;
  let before = readCpuSeconds(roots);
  while (performance.now() < untilMs) {
    await Bun.sleep(IDLE_CHECK_MS);
    const now = readCpuSeconds(roots);
    if (now - before <= 1 / TICKS_A_SECOND) return;
    before = now;
  }
}

export function readRssMb(roots: readonly number[]): number {
  const kilobytes = listTree(readProcesses(), roots).map((pid) => {
    try {
      return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0);
    } catch {
      return 0;
    }
  });
  return kilobytes.reduce((sum, each) => sum + each, 0) / 1024;
}

interface MachineTime {
  readonly busySeconds: number;
  readonly stealSeconds: number;
}

/** Parses the first line of /proc/stat: all cores together. */
export function parseMachineStat(text: string): MachineTime {
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = text
    .split("\n", 1)
    .join("")
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return {
    busySeconds: (user + nice + system + irq + softirq) / TICKS_A_SECOND,
    stealSeconds: steal / TICKS_A_SECOND,
  };
}

/** The kernel's own threads work for whoever writes and sends: nobody else is to be blamed for them. */
const KERNEL_THREADS = 2;

function readUse(): MachineTime & { readonly ownSeconds: number; readonly atMs: number } {
  const machine = parseMachineStat(readFileSync("/proc/stat", "utf8"));
  const ownSeconds = sumSeconds(readProcesses(), [process.pid, KERNEL_THREADS]);
  return { ...machine, ownSeconds, atMs: performance.now() };
}

/** The kernel counts in hundredths of a second: of less than this nothing can be told. */
const WATCH_SECONDS_MIN = 0.3;

/** Begins to watch; the answer tells how many cores others have used since, the host of a virtual machine included. */
export function watchOthers(): () => number {
  const before = readUse();
  return () => {
    const after = readUse();
    const others = after.busySeconds - before.busySeconds - (after.ownSeconds - before.ownSeconds);
    const stolen = after.stealSeconds - before.stealSeconds;
    const seconds = (after.atMs - before.atMs) / 1000;
    if (seconds < WATCH_SECONDS_MIN) return 0;
    return (Math.max(0, others) + stolen) / seconds;
  };
}
