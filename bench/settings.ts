/** What a run can be told, and the constants that all scenarios share. */

import { cpus } from "node:os";

/** Three rounds where a scenario has many levels. */
export const ROUNDS = parseSetting("BENCH_ROUNDS", 5);
export const LEVEL_ROUNDS = Math.min(3, ROUNDS);
export const ROUND_SECONDS = parseSetting("BENCH_SECONDS", 2);
export const WARM_UP_SECONDS = Math.min(1, ROUND_SECONDS);

export const CONNECTIONS = 64;
export const MANY_CONNECTIONS = 256;
export const CONNECTION_LEVELS = [1, 16, CONNECTIONS, MANY_CONNECTIONS] as const;

export const STORED = 1_000_000;
export const STORED_MANY = 10_000_000;
export const BULK_ROWS = 300_000;

export const TOKEN = "bench-token-0123456789";

export const CORES = cpus().length;
export const SERVER_CORE = "0";
export const LOAD_CORE = String(Math.min(1, CORES - 1));

/** A disk may stall for a second or two; that is slow, and not wrong. */
export const ANSWER_SECONDS_MAX = 10;

/** A round in which others took more than this of a core is repeated, so often at most, and in the whole run so often. */
export const FOREIGN_CORES_MAX = 0.2;
export const REPEATS_MAX = 3;
export const REPEATS_TOTAL_MAX = parseSetting("BENCH_REPEATS", 80, 0);

function parseSetting(name: string, fallback: number, least = 1): number {
  const text = process.env[name] ?? String(fallback);
  if (/^\d{1,6}$/.test(text) && Number(text) >= least) return Number(text);
  process.stderr.write(`${name} takes a whole number from ${least} on, and not “${text}”.\n`);
  process.exit(2);
}
