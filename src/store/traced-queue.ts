/** The write queue of a service that traces requests: it tells how long their writes waited, and about their commits. */

import { catalogue, toRefusal } from "../domain/errors.ts";
import type { StoreLimits } from "../domain/store.ts";
import type { StoreTracing } from "../domain/trace.ts";
import { type AtomicWrite, findWriter, type PlantWrite } from "../domain/write.ts";
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

/** Without tracing it is a plain queue, which does nothing for it. */
export function createWriteQueue<Write extends AnyWrite>(
  commit: NotedCommit<Write>,
  limits: StoreLimits,
  options: Options<Write>,
): Queue<Write, unknown> {
  const { tracing } = limits;
  if (tracing === undefined) return new Queue<Write, unknown>(commit, limits, options);
  const apart: StoreTracing = {
    noteWait: (...facts) => runApart(() => tracing.noteWait(...facts)),
    noteCommit: (...facts) => runApart(() => tracing.noteCommit(...facts)),
  };
  return new TracedQueue<Write>(commit, limits, options, apart);
}

/** Submissions of one request. */
interface Wait {
  submissions: number;
  /** Since when the oldest write waits; undefined once a commit has it. */
  sinceMs: number | undefined;
}

/** By the trace of the writer. */
type Waits = Map<string, Wait>;

class TracedQueue<Write extends AnyWrite> extends Queue<Write, unknown> {
  private readonly tracing: StoreTracing;
  private readonly waits: Waits;

  constructor(
    commit: NotedCommit<Write>,
    limits: StoreLimits,
    options: Options<Write>,
    tracing: StoreTracing,
    waits: Waits = new Map(),
  ) {
    super(traceCommits(commit, tracing, waits), limits, options);
    this.tracing = tracing;
    this.waits = waits;
  }

  override submit(write: Write, characters?: number): Promise<unknown> {
    const trace = traceOf(write);
    const submit = (): Promise<unknown> => super.submit(write, characters);
    return trace === undefined ? submit() : this.follow(trace, submit);
  }

  override submitAll(writes: readonly Write[], characters?: readonly number[]) {
    const trace = writes[0] && traceOf(writes[0]);
    const submit = () => super.submitAll(writes, characters);
    return trace === undefined ? submit() : this.follow(trace, submit);
  }

  private async follow<Result>(trace: string, submit: () => Promise<Result>): Promise<Result> {
    const wait = this.waits.get(trace) ?? { submissions: 0, sinceMs: undefined };
    this.waits.set(trace, wait);
    wait.submissions++;
    wait.sinceMs ??= performance.now();
    let failure: unknown;
    try {
      const result = await submit();
      failure = Array.isArray(result) ? result.find(isFailure) : undefined;
      return result;
    } catch (error) {
      failure = error;
      throw error;
    } finally {
      // Refused before a commit had it.
      if (wait.sinceMs !== undefined && failure !== undefined) {
        this.tracing.noteWait(trace, wait.sinceMs, performance.now(), failure);
        wait.sinceMs = undefined;
      }
      if (--wait.submissions === 0) this.waits.delete(trace);
    }
  }
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
