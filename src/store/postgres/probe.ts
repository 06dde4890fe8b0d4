/** Whether a plant could be created now: by the writes of the last second, else by a write that leaves no trace. */

import { Refusal } from "../../domain/errors.ts";
import { asNotStored, IS_SYNCED } from "./connection.ts";
import type { ConnectionPool } from "./pool.ts";
import { insertOne } from "./write.ts";

/** A health check must answer fast: one attempt on the open connection, one on a new one. */
const PROBE_MS_MAX = 1_000;
const PROBE_ATTEMPTS_MAX = 2;
/** Longer than an ordinary lock. Without it, each probe of a locked table would leave a session that waits. */
const LOCK_MS_MAX = 400;
/** How long a write proves that the next one is possible, or not. */
const EVIDENCE_MS = 1_000;
/** Trial inserts leave dead rows and temporary files for the server to clean up, so most probes do without. */
const TRIAL_MS = 10_000;

/** Until the end of the transaction. Engines that lack the setting ignore it. */
const setLocal = (name: string, value: string): string =>
  `CASE WHEN current_setting('${name}', true) IS NOT NULL THEN set_config('${name}', '${value}', true) END`;

const PREPARE = `SELECT ${setLocal("lock_timeout", `${LOCK_MS_MAX}ms`)}, ${IS_SYNCED}`;

/** Who may create a plant has to be found, too. */
const FIND_NOBODY = "SELECT scopes FROM plantstore_tokens WHERE hash = ''";

/** A commit that waits for the disk and the standby. */
const mark =
  (): string => `INSERT INTO plantstore_marks (name, at_ms) VALUES ('probe', ${Date.now()})
  ON CONFLICT (name) DO UPDATE SET at_ms = excluded.at_ms`;

/**
 * A plant may need a new page, and a page may need room on the disk. A sort with little memory writes a file where the
 * database is, about 300 kB, and removes it.
 */
const SPILL = `SELECT ${setLocal("work_mem", "64kB")}, ${setLocal("temp_tablespaces", "")};
  SELECT max(length(line)) FROM (
    SELECT repeat(chr(65 + number % 26), 8000) AS line FROM generate_series(1, 40) AS number ORDER BY line
  ) AS lines`;

/** The smallest id: if a plant has it, the insert stops where it finds that out. */
const TRIAL_ID = "-9223372036854775808";
const YEAR_9999 = "253370764800";

/** Runs on the connections of the writers: if those are open, writes work, even if the server accepts no more connections. */
export function createProbe(writers: ConnectionPool, hasJournal: boolean) {
  // Past its deadline the statement changes nothing, but needs the same tables, columns, privileges and locks.
  const expired = insertOne(hasJournal, ["0", TRIAL_ID, "", null, "[]"]);
  const trial = insertOne(hasJournal, [YEAR_9999, TRIAL_ID, "probe", null, "[]"]);
  let createdAtMs = Number.NEGATIVE_INFINITY;
  let triedAtMs = Number.NEGATIVE_INFINITY;
  let failure: { readonly error: Refusal; readonly atMs: number } | undefined;

  const run = (statements: string): Promise<unknown> =>
    writers.run(
      async (connection) => {
        try {
          await connection.query(statements);
        } catch (error) {
          // A failed transaction stays open.
          if (!connection.isLost)
            await connection.query("ROLLBACK").catch(() => connection.close());
          throw error;
        }
      },
      performance.now() + PROBE_MS_MAX,
      PROBE_ATTEMPTS_MAX,
    );

  return {
    /** Takes the outcomes of a commit as evidence. A lost server is none: the next write may find another. */
    note: (outcomes: readonly unknown[]): void => {
      const atMs = performance.now();
      if (outcomes.includes("created")) {
        createdAtMs = atMs;
        failure = undefined;
      } else {
        const error = outcomes.find(isLasting);
        if (error !== undefined) failure = { error, atMs };
      }
    },

    /** Rejects with the reason why no plant can be created. */
    check: async (): Promise<void> => {
      const nowMs = performance.now();
      if (failure !== undefined && nowMs < failure.atMs + EVIDENCE_MS) throw failure.error;
      if (failure === undefined && nowMs < createdAtMs + EVIDENCE_MS) return;
      const isTrial = failure !== undefined || nowMs >= triedAtMs + TRIAL_MS;
      const statements = isTrial
        ? `BEGIN; ${PREPARE}; ${trial}; ${SPILL}; ROLLBACK; ${PREPARE}; ${FIND_NOBODY}; ${mark()}`
        : `${PREPARE}; ${expired}; ${FIND_NOBODY}; ${mark()}`;
      await run(statements).catch((error: unknown) => {
        if (error instanceof Refusal) throw asNotStored(error);
        // A constraint or a trigger of somebody else's refuses every plant.
        throw new Refusal("store_refused", undefined, error);
      });
      if (isTrial) triedAtMs = nowMs;
      if (failure !== undefined && failure.atMs <= nowMs) failure = undefined;
    },
  };
}

const isLasting = (outcome: unknown): outcome is Refusal =>
  outcome instanceof Refusal && /^(store_refused|disk_low)$/.test(outcome.reason);
