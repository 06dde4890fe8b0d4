/**
 * npm run bench: creates over loopback, side by side with what limits them, in one run.
 *
 * Rounds of the candidates are interleaved, so that a busy neighbour meets all of them, and the
 * median counts. Figures of different runs or machines are not for comparing; ratios of one run are.
 */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";

const CONNECTIONS = 64;
const ROUNDS = Number(process.env["BENCH_ROUNDS"] ?? 5);
const ROUND_SECONDS = Number(process.env["BENCH_SECONDS"] ?? 5);
const TOKEN = "bench-token-0123456789";
const TARGETS = { ratioMin: 0.9, rssMbMax: 64 };

interface Candidate {
  readonly name: string;
  readonly command: readonly string[];
}

interface Round {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

interface Running {
  readonly candidate: Candidate;
  readonly url: string;
  readonly pid: number;
  readonly stop: () => Promise<void>;
  readonly rounds: Round[];
  rssMb: number;
  notOk: number;
}

const bun = process.execPath;
const root = join(import.meta.dir, "..");
const folder = mkdtempSync(join(tmpdir(), "plantstore-bench-"));

const candidates: Candidate[] = [
  { name: "plantstore, SQLite", command: [bun, join(root, "src/main.ts"), "serve"] },
  {
    name: "plantstore, storing nothing",
    command: [bun, join(root, "bench/limits.ts"), "storing-nothing"],
  },
  { name: "bare runtime, checking nothing", command: [bun, join(root, "bench/limits.ts"), "bare"] },
];

requireTools("wrk", "taskset");
const running = await Promise.all(candidates.map(start));
let failed = false;
try {
  for (let round = -1; round < ROUNDS; round++) {
    for (const one of running) {
      // The first round warms up and is not counted.
      const result = await load(one, round === -1 ? 2 : ROUND_SECONDS, round + 1);
      if (round >= 0) one.rounds.push(result);
      one.rssMb = Math.max(one.rssMb, readRssMb(one.pid));
    }
  }
  failed = !report(running);
} finally {
  await Promise.all(running.map((one) => one.stop()));
  rmSync(folder, { recursive: true });
}
process.exit(failed ? 1 : 0);

function requireTools(...tools: string[]): void {
  const missing = tools.filter((tool) => Bun.which(tool) === null);
  if (missing.length === 0) return;
  process.stderr.write(
    `The benchmark needs ${missing.join(" and ")}. On Debian: apt-get install wrk util-linux\n`,
  );
  process.exit(1);
}

/** Each server has the first core to itself while it is measured; the load generator has the second. */
async function start(candidate: Candidate): Promise<Running> {
  const child = Bun.spawn(["taskset", "-c", "0", ...candidate.command], {
    env: {
      ...process.env,
      PORT: "0",
      DATABASE_URL: `sqlite:${join(folder, "plants.db")}`,
      PLANTSTORE_TOKEN: TOKEN,
    },
    stdout: "pipe",
    stderr: "inherit",
  });
  const { value } = await child.stdout.getReader().read();
  const { url } = JSON.parse(new TextDecoder().decode(value)) as { url: string };
  const stop = async () => {
    child.kill();
    await child.exited;
  };
  return { candidate, url, pid: child.pid, stop, rounds: [], rssMb: 0, notOk: 0 };
}

async function load(one: Running, seconds: number, round: number): Promise<Round> {
  const core = String(Math.min(1, cpus().length - 1));
  const child = Bun.spawn(
    [
      "taskset",
      "-c",
      core,
      "wrk",
      "-t1",
      `-c${CONNECTIONS}`,
      `-d${seconds}s`,
      "-s",
      join(root, "bench/create.lua"),
      `${one.url}/plants`,
    ],
    {
      env: { ...process.env, BENCH_TOKEN: TOKEN, BENCH_FIRST_ID: String(round * 1_000_000_000) },
      stdout: "pipe",
    },
  );
  const output = await new Response(child.stdout).text();
  const line = /^RESULT (.*)$/m.exec(output)?.[1];
  if (line === undefined) throw new Error(`wrk printed no result:\n${output}`);
  const result = JSON.parse(line) as Record<
    "requests" | "durationUs" | "p50Us" | "p99Us" | "notOk" | "socketErrors",
    number
  >;
  one.notOk += result.notOk + result.socketErrors;
  return {
    perSecond: result.requests / (result.durationUs / 1e6),
    p50Ms: result.p50Us / 1e3,
    p99Ms: result.p99Us / 1e3,
  };
}

/** Prints the table, and tells whether every target was met. */
function report(all: readonly Running[]): boolean {
  const medians = all.map((one) => median(one.rounds.map((round) => round.perSecond)));
  const [ours = 0, storingNothing = 0] = medians;
  print(
    `\n${CONNECTIONS} connections, ${ROUNDS} interleaved rounds of ${ROUND_SECONDS} s, medians; ${cpus()[0]?.model ?? "unknown CPU"}, Bun ${Bun.version}\n`,
  );
  print(row(["", "creates/s", "spread", "ratio", "p50 ms", "p99 ms", "RSS MB", "not 200"]));
  for (const [index, one] of all.entries()) {
    const rates = one.rounds.map((round) => round.perSecond);
    const middle = medians[index] ?? 0;
    print(
      row([
        one.candidate.name,
        middle.toFixed(0),
        `±${(((Math.max(...rates) - Math.min(...rates)) / 2 / middle) * 100).toFixed(0)} %`,
        (middle / ours).toFixed(2),
        median(one.rounds.map((round) => round.p50Ms)).toFixed(2),
        median(one.rounds.map((round) => round.p99Ms)).toFixed(2),
        one.rssMb.toFixed(0),
        String(one.notOk),
      ]),
    );
  }
  print("");
  const rssMb = all[0]?.rssMb ?? 0;
  return [
    check(
      `storing durably / storing nothing: ${(ours / storingNothing).toFixed(2)}`,
      `≥ ${TARGETS.ratioMin}`,
      ours / storingNothing >= TARGETS.ratioMin,
    ),
    check(
      `memory of the service: ${rssMb.toFixed(0)} MB`,
      `≤ ${TARGETS.rssMbMax} MB`,
      rssMb <= TARGETS.rssMbMax,
    ),
    check(
      `answers other than 200: ${all.reduce((sum, one) => sum + one.notOk, 0)}`,
      "0",
      all.every((one) => one.notOk === 0),
    ),
  ].every(Boolean);
}

function check(measured: string, target: string, met: boolean): boolean {
  print(`${met ? "met   " : "MISSED"}  ${measured} (target ${target})`);
  return met;
}

function row([first = "", ...rest]: readonly string[]): string {
  return first.padEnd(32) + rest.map((cell) => cell.padStart(11)).join("");
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

function readRssMb(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? Number.NaN) / 1024;
}
