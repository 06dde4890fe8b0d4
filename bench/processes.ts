/** CPU time from /proc: of a server and its children, of the benchmark, and of all other processes. */

import { readdirSync, readFileSync } from "node:fs";

/** USER_HZ, the unit of /proc on every Linux. */
const TICKS_PER_SECOND = 100;

interface ProcessTime {
  readonly parent: number;
  /** The CPU time of the process and of its exited children. */
  readonly seconds: number;
}

/** Parses /proc/<pid>/stat. */
function parseStat(text: string): ProcessTime {
  // The process name in parentheses may contain spaces and parentheses.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
  return { parent: Number(fields[1]), seconds: ticks / TICKS_PER_SECOND };
}

function readProcesses(): Map<number, ProcessTime> {
  const processes = new Map<number, ProcessTime>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      processes.set(Number(name), parseStat(readFileSync(`/proc/${name}/stat`, "utf8")));
    } catch {
      // The process has exited; its parent has its CPU time.
    }
  }
  return processes;
}

/** The processes and all their descendants. */
function listTree(
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

export function readCpuSeconds(roots: readonly number[]): number {
  const processes = readProcesses();
  return listTree(processes, roots).reduce(
    (sum, pid) => sum + (processes.get(pid)?.seconds ?? 0),
    0,
  );
}

const IDLE_CHECK_MS = 100;
const IDLE_MS_MAX = 15_000;

/** Some servers keep working after the load has ended. The next candidate must not pay for it. */
export async function waitUntilIdle(roots: readonly number[]): Promise<void> {
  const untilMs = performance.now() + IDLE_MS_MAX;
  let before = readCpuSeconds(roots);
  while (performance.now() < untilMs) {
    await Bun.sleep(IDLE_CHECK_MS);
    const now = readCpuSeconds(roots);
    if (now - before <= 1 / TICKS_PER_SECOND) return;
    before = now;
  }
}

/**
 * VmRSS is all resident memory; VmHWM is its peak; RssFile is its file-backed part, such as the runtime's executable.
 */
export function readRssMb(
  roots: readonly number[],
  kind: "VmRSS" | "VmHWM" | "RssFile" = "VmRSS",
): number {
  const kilobytes = listTree(readProcesses(), roots).map((pid) => {
    try {
      const status = readFileSync(`/proc/${pid}/status`, "utf8");
      return Number(status.match(`${kind}:\\s+(\\d+)`)?.[1] ?? 0);
    } catch {
      return 0;
    }
  });
  return kilobytes.reduce((sum, each) => sum + each, 0) / 1024;
}

/** Parses the first line of /proc/stat: seconds that all cores were busy or stolen by other virtual machines. */
function parseMachineStat(text: string): number {
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = text
    .split("\n", 1)
    .join("")
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND;
}

/** The parent of kernel threads. They write and send for the measured processes, so they count as ours. */
const KERNEL_THREADS = 2;

/** The kernel counts in 10 ms ticks, too coarse for shorter times. */
const WATCH_SECONDS_MIN = 0.3;

/** Returns a function that returns the cores used since by other processes and other virtual machines. */
export function watchOthers(): () => number {
  const before = readForeignSeconds();
  const startedMs = performance.now();
  return () => {
    const seconds = (performance.now() - startedMs) / 1000;
    if (seconds < WATCH_SECONDS_MIN) return 0;
    return Math.max(0, readForeignSeconds() - before) / seconds;
  };
}

const readForeignSeconds = (): number =>
  parseMachineStat(readFileSync("/proc/stat", "utf8")) -
  readCpuSeconds([process.pid, KERNEL_THREADS]);
