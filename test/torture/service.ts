/** The service under torture: a process of its own, on a store of its own, with the settings of this process. */

import { copyFileSync, readdirSync, readFileSync } from "node:fs";
import { spawnService } from "../support/command.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { quantile } from "./creators.ts";

export interface TorturedService extends AsyncDisposable {
  readonly url: string;
  readonly pid: number;
  /** Of the SQLite file. */
  readonly path: string;
  readonly isAlive: () => boolean;
  /** Stops it as an operator does. */
  readonly stop: () => Promise<Ending>;
}

interface Ending {
  readonly exitCode: number;
  /** Lines of the log that speak of a defect, and whatever is not a line of the log. */
  readonly complaints: readonly string[];
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
  const child = opened.use(
    await spawnService(
      {
        DATABASE_URL: `sqlite:${path}`,
        PLANTSTORE_TOKEN: TEST_TOKEN,
        PLANTSTORE_CONNECTIONS_MAX: String(connections),
        ...settings,
        ...ownSettings(),
      },
      [
        "sh",
        "-c",
        `ulimit -n ${connections + DESCRIPTORS_OF_ITS_OWN} && exec "$@" 2>"$0"`,
        logPath,
      ],
    ).catch((error: unknown) => {
      throw new Error(`the service did not start: ${readFileSync(logPath, "utf8")}`, {
        cause: error,
      });
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
      child.kill("SIGTERM");
      return { exitCode: await child.exited, complaints: readComplaints(logPath) };
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

/** `PLANTSTORE_WORKERS=2 npm run torture` tortures a service with two of them. */
function ownSettings(): Record<string, string> {
  const given = Object.entries(process.env).filter(([name]) =>
    /^PLANTSTORE_(?!TEST_|TOKEN$|CHROMIUM$)/.test(name),
  );
  return Object.fromEntries(given) as Record<string, string>;
}

function readComplaints(logPath: string): string[] {
  return readFileSync(logPath, "utf8")
    .split("\n")
    .filter((line) => line !== "" && !/"level":"(debug|info|warn)"/.test(line));
}

/** Status 0 if there was no answer. */
export async function ask(
  url: string,
): Promise<{ readonly status: number; readonly text: string }> {
  try {
    const response = await fetch(url, { headers: { authorization: `Bearer ${TEST_TOKEN}` } });
    return { status: response.status, text: await response.text() };
  } catch {
    return { status: 0, text: "" };
  }
}

/** Only Linux tells how much memory and how many descriptors another process has. */
export const missingFigures = (): string | undefined =>
  process.platform === "linux" ? undefined : "figures of memory and descriptors need Linux";

const readStatusBytes = (pid: number, name: string): number => {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(status)?.[1]) * 1024;
};

export const measureMemoryBytes = (pid: number): number => readStatusBytes(pid, "VmRSS");

/** The most that it has had since its start. */
export const measurePeakMemoryBytes = (pid: number): number => readStatusBytes(pid, "VmHWM");

export const countDescriptors = (pid: number): number => readdirSync(`/proc/${pid}/fd`).length;

/** Compilers and caches fill up in the beginning. */
const WARM_UP_SHARE = 0.4;

/** Between the first and the last quarter behind the warm-up, by their medians. */
export function measureGrowth(samples: readonly number[]): number {
  const warm = samples.slice(Math.floor(samples.length * WARM_UP_SHARE));
  const quarter = Math.max(1, Math.floor(warm.length / 4));
  return quantile(warm.slice(-quarter), 0.5) - quantile(warm.slice(0, quarter), 0.5);
}
