/**
 * Trims the journal by time that services have seen pass: the wall clock may be set to any time. A mark counts an
 * interval, and holds the newest change at its end. Each service adds one after it has seen the newest mark for a whole
 * interval by its monotonic clock, so several services count the same time once, and time without any does not count.
 */

import type { StoreLimits } from "../domain/store.ts";
import { pause } from "../tick.ts";
import type { Engine, Statement } from "./engine.ts";

/** Bounds for one DELETE, which then takes a few milliseconds. */
const TRIM_BLOCKS = 1_000;
const TRIM_BYTES = 4_194_304;
const TRIM_MORE_MS = 100;

/** Marks of the last hour are kept, and every 60th before that. */
const FINE_MARKS = 60;
const MINUTES_PER_DAY = 1_440;

function trimStatements(prefix: string) {
  const [changes, marks] = [`${prefix}changes`, `${prefix}journal_marks`];
  return {
    /** The newest mark, and the last change that is older than $1 intervals; null without one. */
    readMarks: `SELECT max(number) AS number, (
        SELECT max(change) FROM ${marks}
        WHERE number <= (SELECT max(number) FROM ${marks}) - CAST($1 AS bigint)
      ) AS change FROM ${marks}`,

    addMark: `INSERT INTO ${marks} (number, change)
      SELECT CAST($1 AS bigint), max(last) FROM ${changes} WHERE true ON CONFLICT (number) DO NOTHING`,

    /** Takes the number of the newest mark, and how many intervals are kept. */
    dropMarks: `DELETE FROM ${marks} WHERE (number < CAST($1 AS bigint) - ${FINE_MARKS} AND number % ${FINE_MARKS} <> 0)
      OR number < (SELECT max(number) FROM ${marks} WHERE number <= CAST($1 AS bigint) - CAST($2 AS bigint))`,

    /** Deletes some of the blocks up to the change $1. The newest block stays: numbering continues from it. */
    trimBlocks: `WITH oldest AS (
        SELECT last, octet_length(entries) AS bytes FROM ${changes}
        WHERE last <= CAST($1 AS bigint) ORDER BY last LIMIT ${TRIM_BLOCKS}
      ), sized AS (
        SELECT last, sum(bytes) OVER (ORDER BY last) - bytes AS bytes_before FROM oldest
      )
      DELETE FROM ${changes} WHERE last IN (SELECT last FROM sized WHERE bytes_before <= ${TRIM_BYTES})
        AND last < (SELECT max(last) FROM ${changes})
      RETURNING last`,
  };
}

/** Returns how to stop it. */
export function startTrimming(engine: Engine, limits: StoreLimits): () => void {
  const { readMarks, addMark, dropMarks, trimBlocks } = trimStatements(engine.dialect.prefix);
  const kept = Math.ceil(limits.changesDays * MINUTES_PER_DAY);
  /** The newest mark of the journal, and when this store first saw it. */
  let mark = { number: -1, sinceMs: 0 };
  let isTrimming = false;

  const write = async (...statements: Statement[]): Promise<readonly unknown[]> => {
    await engine.numberChanges?.();
    return engine.run(...statements);
  };

  /** Adds a mark if the newest one has been the same for an interval. */
  async function countTime(number: number): Promise<void> {
    const nowMs = performance.now();
    const intervalMs = limits.markSeconds * 1000;
    if (number !== mark.number) mark = { number, sinceMs: nowMs };
    const passedMs = nowMs - mark.sinceMs;
    if (passedMs < intervalMs) return;
    await write([addMark, number + 1], [dropMarks, number + 1, kept]);
    // The rest counts towards the next one: the timer may be a little late each time.
    mark = { number: number + 1, sinceMs: nowMs - (passedMs % intervalMs) };
  }

  /** Trims in pieces. The end is fixed at the start, so every round ends. */
  async function trim(): Promise<void> {
    type Marks = Record<"number" | "change", bigint | null>;
    const [marks] = await engine.query<Marks>([readMarks, kept]);
    await countTime(Number(marks?.number ?? 0));
    if (typeof marks?.change !== "bigint") return;
    const end = Number(marks.change);
    while ((await write([trimBlocks, end])).length > 0) await pause(TRIM_MORE_MS);
  }

  const trimOnce = async (): Promise<void> => {
    if (isTrimming) return;
    isTrimming = true;
    // If the store cannot write now, the next round trims it.
    await trim().catch(() => undefined);
    isTrimming = false;
  };
  const timer = setInterval(() => void trimOnce(), limits.trimSeconds * 1000).unref();
  return () => clearInterval(timer);
}
