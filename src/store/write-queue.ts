/** The queue of writes of plants. It counts commits and, if requests are traced, tells how long their writes waited. */

import { catalogue, toRefusal } from "../domain/errors.ts";
import type { StoreLimits } from "../domain/store.ts";
import type { StoreTracing } from "../domain/trace.ts";
import {
  type AtomicWrite,
  type Done,
  findWriter,
  type PlantWrite,
  type Verdict,
} from "../domain/write.ts";
import { type Commit, Queue, runApart } from "./queue.ts";

/** What an engine knows about a commit besides its duration. It fills this in if one of the writes is traced. */
export interface CommitNotes {
  writes?: number;
  syncMs?: number;
}

export type NotedCommit<Write> = (
  ...args: [...Parameters<Commit<Write, unknown>>, notes?: CommitNotes]
) => ReturnType<Commit<Write, unknown>>;

type Options<Write> = ConstructorParameters<typeof Queue<Write, unknown>>[2];
type AnyWrite = PlantWrite | AtomicWrite | { readonly kind: "run" };

export function createWriteQueue<Write extends AnyWrite>(
  commit: NotedCommit<Write>,
  limits: StoreLimits,
  options?: Options<Write>,
): Queue<Write, unknown> {
  const { tracing, onCommit } = limits;
  const counted: Options<Write> = { ...options, ...(onCommit && { onCommit: count(onCommit) }) };
  if (tracing === undefined) return new Queue<Write, unknown>(commit, limits, counted);
  const waits: Waits = new Map();
  const apart: StoreTracing = {
    noteWait: (...facts) => runApart(() => tracing.noteWait(...facts)),
    noteCommit: (...facts) => runApart(() => tracing.noteCommit(...facts)),
  };
  return new Queue<Write, unknown>(traceCommits(commit, apart, waits), limits, {
    ...counted,
    onSubmit: (write, outcome) => void traceWait(write, outcome, apart, waits),
  });
}

/** Commits without a plant do not count. */
const count =
  (onCommit: NonNullable<StoreLimits["onCommit"]>) =>
  (durationMs: number, writes: readonly AnyWrite[], outcomes: readonly unknown[]): void => {
    // An atomic write has one outcome for each of its lines.
    const done = outcomes.flatMap((outcome, index) =>
      writes[index]?.kind === "run" ? [] : (outcome as Done | Done[]),
    );
    if (done.length > 0) onCommit(durationMs, done.length, done.filter(isChange).length);
  };

const isChange = (outcome: unknown): boolean =>
  !(outcome instanceof Error || outcome instanceof Promise) &&
  outcome !== "replayed" &&
  (outcome as Verdict).done !== "replayed";

/** Submissions of one request. */
interface Wait {
  submissions: number;
  /** Since when the oldest write waits; undefined once a commit has it. */
  sinceMs: number | undefined;
}

/** By the trace of the writer. */
type Waits = Map<string, Wait>;

/** Follows a submission until it is settled. */
async function traceWait(
  write: AnyWrite,
  outcome: Promise<unknown>,
  tracing: StoreTracing,
  waits: Waits,
): Promise<void> {
  const trace = traceOf(write);
  if (trace === undefined) return;
  const wait = waits.get(trace) ?? { submissions: 0, sinceMs: undefined };
  waits.set(trace, wait);
  wait.submissions++;
  wait.sinceMs ??= performance.now();
  const failure: unknown = await outcome.then(
    (result) => (Array.isArray(result) ? result.find(isFailure) : undefined),
    (error: unknown) => error,
  );
  // Refused before a commit had it.
  if (wait.sinceMs !== undefined && failure !== undefined) {
    tracing.noteWait(trace, wait.sinceMs, performance.now(), failure);
    wait.sinceMs = undefined;
  }
  if (--wait.submissions === 0) waits.delete(trace);
}

const traceCommits =
  <Write extends AnyWrite>(
    commit: NotedCommit<Write>,
    tracing: StoreTracing,
    waits: Waits,
  ): Commit<Write, unknown> =>
  (writes, deadlineMs) => {
    const traces = new Set(waits.size === 0 ? [] : writes.map(traceOf));
    traces.delete(undefined);
    if (traces.size === 0) return commit(writes, deadlineMs);
    return commitTraced(commit, tracing, waits, traces as Set<string>, writes, deadlineMs);
  };

async function commitTraced<Write>(
  commit: NotedCommit<Write>,
  tracing: StoreTracing,
  waits: Waits,
  traces: ReadonlySet<string>,
  ...[writes, deadlineMs]: Parameters<Commit<Write, unknown>>
) {
  const startedAtMs = performance.now();
  const notes: CommitNotes = {};
  for (const trace of traces) {
    const wait = waits.get(trace);
    if (wait?.sinceMs === undefined) continue;
    tracing.noteWait(trace, wait.sinceMs, startedAtMs);
    wait.sinceMs = undefined;
  }
  const end = (failure?: unknown): void => {
    const facts = { startedAtMs, endedAtMs: performance.now(), writes: writes.length, ...notes };
    for (const trace of traces) tracing.noteCommit(trace, facts, failure);
  };
  try {
    const outcomes = await commit(writes, deadlineMs, notes);
    end(outcomes.find(isFailure));
    return outcomes;
  } catch (error) {
    end(error);
    throw error;
  }
}

const traceOf = (write: AnyWrite): string | undefined =>
  write.kind === "run" ? undefined : findWriter(write)?.trace;

/** Ours, not one of the client's. */
const isFailure = (outcome: unknown): boolean =>
  outcome instanceof Error && catalogue[toRefusal(outcome).reason].status >= 500;
