/** One round of load by wrk, and the proof that what it counted is true. */

import { join } from "node:path";
import { idsPerThread, listIds, takeFirstId } from "./ids.ts";
import { readCpuSeconds, waitUntilIdle } from "./processes.ts";
import type { Round } from "./report/results.ts";
import { readBack } from "./read-back.ts";
import { type Server, WrongAnswer } from "./servers/server.ts";
import { ANSWER_SECONDS_MAX, CONNECTIONS, LOAD_CORE, STORED, TOKEN } from "./settings.ts";

export type Sample = Omit<Round, "foreignCores" | "isDisturbed"> & {
  /** Creates that were sent: all but those in flight at the end were acknowledged. */
  readonly created?: number;
};

export interface Load {
  readonly kind: "create" | "create-tagged" | "create-random" | "get" | "list" | "mixed";
  readonly connections?: number;
  readonly threads?: number;
  /** How many plants, from id 0 on, are there to be read. */
  readonly stored?: number;
  readonly listPath?: string;
  readonly isShared?: boolean;
  /** False for a limit that answers without storing. */
  readonly isStored?: boolean;
}

interface Counted {
  readonly requests: number;
  readonly durationUs: number;
  readonly p50Us: number;
  readonly p99Us: number;
  readonly p999Us: number;
  readonly refused: number;
  readonly cut: number;
  readonly late: number;
  readonly issued: readonly number[];
}

export async function load(server: Server, about: Load, seconds: number): Promise<Sample> {
  const first = takeFirstId();
  const cpuBefore = readCpuSeconds(server.pids);
  const { counted, loadSeconds } = await runWrk(server, about, first, seconds);
  const cpuSeconds = readCpuSeconds(server.pids) - cpuBefore;
  const rssMb = server.rssMb();
  const { requests, refused, cut, late } = counted;
  if (refused + cut + late > 0)
    throw new WrongAnswer(
      `of ${requests} requests ${refused} were refused, ${cut} cut off, ${late} unanswered after ${ANSWER_SECONDS_MAX} s`,
    );
  await waitUntilIdle(server.pids);
  const created = counted.issued.reduce((sum, each) => sum + each, 0);
  if (requests === 0) return { value: 0, created };
  if (about.isStored ?? true)
    await readBack(server, listIds(first, counted.issued, about.kind), about);
  const durationSeconds = counted.durationUs / 1e6;
  return {
    value: counted.requests / durationSeconds,
    p50Ms: counted.p50Us / 1e3,
    p99Ms: counted.p99Us / 1e3,
    p999Ms: counted.p999Us / 1e3,
    rssMb,
    cpuUs: (cpuSeconds * 1e6) / counted.requests,
    loadCores: loadSeconds / durationSeconds,
    created,
  };
}

async function runWrk(
  { url, api }: Server,
  about: Load,
  first: number,
  seconds: number,
): Promise<{ counted: Counted; loadSeconds: number }> {
  const { connections = CONNECTIONS, threads = 1, isShared = false } = about;
  const child = Bun.spawn(
    [
      ...(isShared ? [] : ["taskset", "-c", LOAD_CORE]),
      "wrk",
      `-t${threads}`,
      `-c${connections}`,
      `-d${seconds}s`,
      `--timeout=${ANSWER_SECONDS_MAX}s`,
      "-s",
      join(import.meta.dir, "requests.lua"),
      url,
    ],
    {
      env: {
        ...process.env,
        BENCH_KIND: about.kind,
        BENCH_TOKEN: TOKEN,
        BENCH_FIRST: String(first),
        BENCH_IDS_A_THREAD: String(idsPerThread(threads)),
        BENCH_STORED: String(about.stored ?? STORED),
        BENCH_CREATE_PATH: api.createPath,
        BENCH_GET_PATH: api.getPath,
        BENCH_LIST_PATH: about.listPath ?? api.listPath,
      },
      stdout: "pipe",
    },
  );
  const output = await new Response(child.stdout).text();
  await child.exited;
  const line = /^RESULT (.*)$/m.exec(output)?.[1];
  if (line === undefined) throw new Error(`wrk printed no result:\n${output}`);
  const microseconds = child.resourceUsage()?.cpuTime.total ?? 0n;
  return { counted: JSON.parse(line) as Counted, loadSeconds: Number(microseconds) / 1e6 };
}
