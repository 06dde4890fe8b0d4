/** Settings from the environment, and constants that all scenarios share. */

import { cpus } from "node:os";

export const ROUNDS = parseSetting("BENCH_ROUNDS", 5);
export const ROUND_SECONDS = parseSetting("BENCH_SECONDS", 2);
/** Long enough for the JIT compilers of Bun and Node.js. */
export const WARM_UP_SECONDS = parseSetting("BENCH_WARM_UP", 6);
/** For --quick, many connections, and starts. */
export const FEW_ROUNDS = Math.min(3, ROUNDS);

export const CONNECTIONS = 64;
export const MANY_CONNECTIONS = 256;

export const READERS = 1_000;

export const STORED = 1_000_000;
export const STORED_MANY = 10_000_000;
export const BULK_ROWS = 300_000;
export const CHANGED_ROWS = 100_000;

export const TOKEN = "bench-token-0123456789";

export const CORES = cpus().length;
export const SERVER_CORE = "0";
export const LOAD_CORE = String(Math.min(1, CORES - 1));

/** A disk may stall for a second or two. That is slow, not wrong. */
export const ANSWER_SECONDS_MAX = 10;

/** A round during which other processes used more of a core than this is repeated. */
export const FOREIGN_CORES_MAX = 0.2;
/** Repeats of one round, and of all rounds of a run. */
export const REPEATS_MAX = 3;
export const REPEATS_TOTAL_MAX = parseSetting("BENCH_REPEATS", 80, 0);

function parseSetting(name: string, fallback: number, least = 1): number {
  const text = process.env[name] ?? String(fallback);
  if (/^\d{1,6}$/.test(text) && Number(text) >= least) return Number(text);
  process.stderr.write(`${name}: expected a whole number, at least ${least}, not “${text}”.\n`);
  process.exit(2);
}
