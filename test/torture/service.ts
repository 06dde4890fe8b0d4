/** The service under torture: a process of its own, on a store of its own, with the settings of this process. */

import { copyFileSync, readdirSync, readFileSync } from "node:fs";
import { spawnService } from "../support/command.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { TEST_TOKEN } from "../support/service.ts";

export interface TorturedService extends AsyncDisposable {
  readonly url: string;
  readonly pid: number;
  /** The path of the SQLite file. */
  readonly path: string;
  readonly isAlive: () => boolean;
  /** As an operator does. Resolves to its faults: also lines of the log about a defect, and what is not a line of it. */
  readonly stop: () => Promise<string[]>;
}

/** Descriptors that the service has for itself: files of the store, threads, pipes. */
const DESCRIPTORS_OF_ITS_OWN = 200;

/**
 * The log goes to a file, as it does in production: a torture makes more of it than this process wants to hold.
 * `connections` is how many it must be able to have at one time; `model` is a store to begin with a copy of.
 */
export async function startTorturedService(
  settings: Readonly<Record<string, string>> = {},
  connections = 1_000,
  model?: string,
): Promise<TorturedService> {
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(makeTemporaryFolder());
  const path = `${folder.path}/plants.db`;
  const logPath = `${folder.path}/log`;
  if (model !== undefined) copyFileSync(model, path);
  const env = {
    DATABASE_URL: `sqlite:${path}`,
    PLANTSTORE_TOKEN: TEST_TOKEN,
    PLANTSTORE_CONNECTIONS_MAX: String(connections),
    ...settings,
    ...ownSettings,
  };
  const script = `ulimit -n ${connections + DESCRIPTORS_OF_ITS_OWN} && exec "$@" 2>"$0"`;
  const starting = spawnService(env, ["sh", "-c", script, logPath]);
  const child = opened.use(
    await starting.catch((cause: unknown) => {
      throw new Error(`the service did not start: ${readFileSync(logPath, "utf8")}`, { cause });
    }),
  );
  let isAlive = true;
  void child.exited.then(() => (isAlive = false));
  const stack = opened.move();
  return {
    url: child.started.url,
    pid: child.pid,
    path,
    isAlive: () => isAlive,
    stop: async () => {
      const faults = isAlive ? [] : ["the process died"];
      child.kill("SIGTERM");
      const exitCode = await child.exited;
      if (exitCode !== 0) faults.push(`the service ended with ${exitCode}`);
      const lines = readFileSync(logPath, "utf8").split("\n");
      const isFault = (line: string): boolean => !/^$|"level":"(debug|info|warn)"/.test(line);
      return [...faults, ...lines.filter(isFault)];
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

/** `PLANTSTORE_WORKERS=2 npm run torture` tortures a service with two of them. */
export const ownSettings = Object.fromEntries(
  Object.entries(process.env).filter(([name]) =>
    /^PLANTSTORE_(?!TEST_|TOKEN$|CHROMIUM$)/.test(name),
  ),
) as Record<string, string>;

/** Status 0 if there was no answer. */
export async function ask(
  url: string,
  { headers, ...init }: Omit<RequestInit, "headers"> & { headers?: Record<string, string> } = {},
): Promise<{ readonly status: number; readonly text: string }> {
  try {
    const authorization = `Bearer ${TEST_TOKEN}`;
    const response = await fetch(url, { ...init, headers: { authorization, ...headers } });
    return { status: response.status, text: await response.text() };
  } catch {
    return { status: 0, text: "" };
  }
}

/** Only Linux tells how much memory and how many descriptors another process has. */
export const missingFigures = (): string | undefined =>
  process.platform === "linux" ? undefined : "figures of memory and descriptors need Linux";

/** VmHWM is the most that it has had since its start. */
export function measureMemoryBytes(pid: number, name: "VmRSS" | "VmHWM" = "VmRSS"): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(status)?.[1]) * 1024;
}

/** The CPU time of all its threads, in the kernel too. */
export function measureCpuMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // Behind the name, which may hold spaces: the state, ten more fields, and two in ticks of 10 ms.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return 10 * (Number(fields[11]) + Number(fields[12]));
}

export const countDescriptors = (pid: number): number => readdirSync(`/proc/${pid}/fd`).length;
