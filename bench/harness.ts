/** Servers on one core, load on another, rounds interleaved: what every scenario is measured with. */

import { copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";

export const ROUNDS = Number(process.env["BENCH_ROUNDS"] ?? 5);
export const ROUND_SECONDS = Number(process.env["BENCH_SECONDS"] ?? 5);
export const CONNECTIONS = 64;
export const TOKEN = "bench-token-0123456789";

const root = join(import.meta.dir, "..");
const serverCore = "0";
const loadCore = String(Math.min(1, cpus().length - 1));

/** One figure of one round: how often a second, and what else is worth knowing. */
export interface Round {
  readonly perSecond: number;
  readonly p50Ms?: number;
  readonly p99Ms?: number;
  readonly rssMb?: number;
  readonly notOk: number;
}

export interface Candidate {
  readonly name: string;
  /** Measures one round; the number is different each time. */
  readonly measure: (round: number) => Promise<Round>;
}

export interface Server {
  readonly url: string;
  readonly rssMb: () => number;
  readonly stop: () => Promise<void>;
}

/** A folder that is gone when the benchmark is over, however it ends. */
const folder = mkdtempSync(join(process.env["BENCH_FOLDER"] ?? tmpdir(), "plantstore-bench-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

let stores = 0;

/** A fresh store, or a copy of one. */
export function makeStore(copyOf?: string): string {
  const path = join(folder, `store-${stores++}.db`);
  if (copyOf !== undefined) copyFileSync(copyOf, path);
  return path;
}

export const servePlants = (path: string): Promise<Server> => serveDatabase(`sqlite:${path}`);

interface ServeOptions {
  /** No core of its own, but all of them, with everyone else. */
  readonly isShared?: boolean;
}

export const serveDatabase = (
  url: string,
  { isShared = false }: ServeOptions = {},
): Promise<Server> =>
  startServer([process.execPath, join(root, "src/main.ts"), "serve"], url, isShared);

/** The limits that we are held against; see limits.ts. */
export const serveLimit = (
  limit: string,
  {
    isShared = false,
    url = `sqlite:${join(folder, "unused.db")}`,
  }: ServeOptions & { readonly url?: string } = {},
): Promise<Server> =>
  startServer([process.execPath, join(root, "bench/limits.ts"), limit], url, isShared);

async function startServer(
  command: readonly string[],
  databaseUrl: string,
  isShared: boolean,
): Promise<Server> {
  const pinned = isShared ? [] : ["taskset", "-c", serverCore];
  const child = Bun.spawn([...pinned, ...command], {
    env: {
      ...process.env,
      PORT: "0",
      DATABASE_URL: databaseUrl,
      PLANTSTORE_TOKEN: TOKEN,
      PLANTSTORE_LOG_LEVEL: "warn",
    },
    stdout: "pipe",
    stderr: "inherit",
  });
  const { value } = await child.stdout.getReader().read();
  const { url } = JSON.parse(new TextDecoder().decode(value)) as { url: string };
  return {
    url,
    rssMb: () => readRssMb(child.pid),
    stop: async () => {
      child.kill();
      await child.exited;
    },
  };
}

export interface Load {
  readonly kind: "create" | "create-tagged" | "create-random" | "get" | "list";
  readonly path: string;
  /** Where new ids begin in this round. */
  readonly first: number;
  /** How many plants, from 0 on, are in the store. */
  readonly stored: number;
  readonly connections?: number;
  readonly isShared?: boolean;
}

/** Loads a server for one round. Every answer other than 200 is counted. */
export async function load(
  server: Server,
  { kind, path, first, stored, connections = CONNECTIONS, isShared = false }: Load,
): Promise<Round> {
  const script = join(root, "bench/requests.lua");
  const child = Bun.spawn(
    [
      ...(isShared ? [] : ["taskset", "-c", loadCore]),
      "wrk",
      "-t1",
      `-c${connections}`,
      `-d${ROUND_SECONDS}s`,
      "-s",
      script,
      server.url + path,
    ],
    {
      env: {
        ...process.env,
        BENCH_KIND: kind,
        BENCH_TOKEN: TOKEN,
        BENCH_FIRST: String(first),
        BENCH_STORED: String(stored),
      },
      stdout: "pipe",
    },
  );
  const output = await new Response(child.stdout).text();
  const line = /^RESULT (.*)$/m.exec(output)?.[1];
  if (line === undefined) throw new Error(`wrk printed no result:\n${output}`);
  const result = JSON.parse(line) as Record<
    "requests" | "durationUs" | "p50Us" | "p99Us" | "notOk",
    number
  >;
  return {
    perSecond: result.requests / (result.durationUs / 1e6),
    p50Ms: result.p50Us / 1e3,
    p99Ms: result.p99Us / 1e3,
    rssMb: server.rssMb(),
    notOk: result.notOk,
  };
}

/** Runs a program on the server's core that prints how many rows a second it managed. */
export async function runLoop(...args: string[]): Promise<Round> {
  const child = Bun.spawn(
    ["taskset", "-c", serverCore, process.execPath, join(root, "bench/loops.ts"), ...args],
    { stdout: "pipe", stderr: "inherit" },
  );
  const output = await new Response(child.stdout).text();
  return { perSecond: (JSON.parse(output) as { perSecond: number }).perSecond, notOk: 0 };
}

function readRssMb(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? Number.NaN) / 1024;
}
