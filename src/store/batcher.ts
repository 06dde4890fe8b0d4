/** One commit, and so one sync, for all the writes that arrived while the last commit was under way. */

import { Refusal } from "../domain/errors.ts";
import type { StoreLimits } from "../domain/store.ts";

type QueueLimits = Pick<
  StoreLimits,
  "queueLengthMax" | "queueSecondsMax" | "batchLengthMax" | "bodyBytesTotalMax"
>;

interface Pending<Write, Outcome> {
  readonly write: Write;
  readonly characters: number;
  readonly deadlineMs: number;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Commits a batch and answers with one outcome a write, in order; an Error fails that write alone.
 * A throw means that nothing of the batch is known to be stored, and fails every write in it.
 * `locked` means that nothing was tried: the batch comes again until its time in the queue is over.
 * The callers are refused at the deadline, by the clock of the constructor.
 */
export type Commit<Write, Outcome> = (
  writes: readonly Write[],
  deadlineMs: number,
) => Committed<Outcome> | Promise<Committed<Outcome>>;

/** A promise is an outcome that is known later: the next commit does not wait for it, writes with the same key do. */
export type Committed<Outcome> = (Outcome | Error | Promise<Outcome>)[] | "locked";

interface Options<Write> {
  /** Commits under way at one time. */
  readonly inFlightMax?: number;
  /** The least time that a commit gets, even where its first write has waited as long as it may. */
  readonly commitMsMin?: number;
  /** What a write is about: writes about the same thing are never under way in two commits at one time. */
  readonly keyOf?: (write: Write) => unknown;
  readonly now?: () => number;
}

const LOCK_RETRY_MS = 5;
const COMMIT_CHARACTERS_MAX = 4_194_304;

export class Batcher<Write, Outcome> {
  private readonly commit: Commit<Write, Outcome>;
  private readonly limits: QueueLimits;
  private readonly inFlightMax: number;
  private readonly commitMsMin: number;
  private readonly keyOf: ((write: Write) => unknown) | undefined;
  private readonly now: () => number;
  private queue: Pending<Write, Outcome>[] = [];
  private charactersQueued = 0;
  private lanes = 0;
  private readonly running = new Set<Promise<void>>();
  /** Each with its deadline. */
  private readonly inFlight = new Map<readonly Pending<Write, Outcome>[], number>();
  private readonly keysInFlight = new Set<unknown>();
  private timer: Timer | undefined;
  private closed = false;

  constructor(commit: Commit<Write, Outcome>, limits: QueueLimits, options: Options<Write> = {}) {
    this.commit = commit;
    this.limits = limits;
    this.inFlightMax = options.inFlightMax ?? 1;
    this.commitMsMin = options.commitMsMin ?? 0;
    this.keyOf = options.keyOf;
    this.now = options.now ?? (() => performance.now());
  }

  /** Writes that are queued or under way. */
  get waiting(): number {
    let waiting = this.queue.length;
    for (const batch of this.inFlight.keys()) waiting += batch.length;
    return waiting;
  }

  /** Settles after the commit that the write was part of. `characters` is how much text it holds. */
  submit(write: Write, characters = 0): Promise<Outcome> {
    if (this.closed) return Promise.reject(new Refusal("shutting_down"));
    const isFull =
      this.queue.length >= this.limits.queueLengthMax ||
      (this.queue.length > 0 && this.charactersQueued + characters > this.limits.bodyBytesTotalMax);
    if (isFull) return Promise.reject(new Refusal("overloaded"));
    const allowanceMs = this.limits.queueSecondsMax * 1000;
    const deadlineMs = this.now() + allowanceMs;
    return new Promise((resolve, reject) => {
      this.queue.push({ write, characters, deadlineMs, resolve, reject });
      this.charactersQueued += characters;
      this.timer ??= this.watch(allowanceMs);
      if (this.lanes < this.inFlightMax) this.start();
    });
  }

  /** Refuses new writes, and resolves when those accepted are settled. */
  async close(): Promise<void> {
    this.closed = true;
    while (this.running.size > 0) await Promise.all(this.running);
    clearTimeout(this.timer);
  }

  private start(): void {
    this.lanes++;
    const running = this.run().finally(() => this.running.delete(running));
    this.running.add(running);
  }

  /** A lane counts until the very look that finds nothing more to do: what comes later starts another. */
  private async run(): Promise<void> {
    while (this.queue.length > 0) {
      // Requests that the runtime has already received join the batch before it starts.
      await endOfTick();
      this.refuseLate();
      const batch = this.takeBatch();
      // What is left has the keys of writes under way: it is taken when they are settled.
      if (batch.length === 0) break;
      if (await this.settle(batch)) continue;
      this.queue = batch.concat(this.queue);
      this.charactersQueued += sumCharacters(batch);
      await pause(LOCK_RETRY_MS);
    }
    this.lanes--;
  }

  /** False where the store was locked by someone else and the batch is still to be tried. */
  private async settle(batch: readonly Pending<Write, Outcome>[]): Promise<boolean> {
    const deadlineMs = Math.max(batch[0]?.deadlineMs ?? 0, this.now() + this.commitMsMin);
    this.inFlight.set(batch, deadlineMs);
    try {
      const outcomes = await this.commit(
        batch.map((pending) => pending.write),
        deadlineMs,
      );
      if (outcomes === "locked") {
        this.release(batch);
        return false;
      }
      for (const [index, pending] of batch.entries()) {
        const outcome = outcomes[index] as Outcome | Error;
        if (outcome instanceof Error) pending.reject(outcome);
        else pending.resolve(outcome);
      }
      const late = outcomes.filter((outcome) => outcome instanceof Promise);
      if (late.length > 0) this.releaseAfter(late, batch);
      else this.release(batch);
    } catch (error) {
      for (const pending of batch) pending.reject(error);
      this.release(batch);
    }
    return true;
  }

  private release(batch: readonly Pending<Write, Outcome>[]): void {
    this.inFlight.delete(batch);
    if (this.keyOf !== undefined)
      for (const { write } of batch) this.keysInFlight.delete(this.keyOf(write));
  }

  private releaseAfter(
    late: readonly Promise<Outcome>[],
    batch: readonly Pending<Write, Outcome>[],
  ): void {
    const running = Promise.allSettled(late).then(() => {
      this.release(batch);
      this.running.delete(running);
      if (this.queue.length > 0 && this.lanes < this.inFlightMax) this.start();
    });
    this.running.add(running);
  }

  /** As many writes as a commit may have, and no more text than would hold everyone else up. */
  private takeBatch(): Pending<Write, Outcome>[] {
    const { queue, limits, keyOf, keysInFlight } = this;
    const taken: Pending<Write, Outcome>[] = [];
    const held: Pending<Write, Outcome>[] = [];
    let characters = 0;
    let seen = 0;
    while (
      seen < queue.length &&
      taken.length < limits.batchLengthMax &&
      characters < COMMIT_CHARACTERS_MAX
    ) {
      const pending = queue[seen++] as Pending<Write, Outcome>;
      if (keyOf !== undefined && keysInFlight.has(keyOf(pending.write))) {
        held.push(pending);
        continue;
      }
      taken.push(pending);
      characters += pending.characters;
    }
    if (keyOf !== undefined) for (const { write } of taken) keysInFlight.add(keyOf(write));
    this.queue = seen === queue.length ? held : held.concat(queue.slice(seen));
    this.charactersQueued -= characters;
    return taken;
  }

  /** All have the same allowance of time, so that those who are late stand in front. */
  private refuseLate(): void {
    const now = this.now();
    const inTime = this.queue.findIndex((pending) => pending.deadlineMs > now);
    const late = this.queue.splice(0, inTime === -1 ? this.queue.length : inTime);
    this.charactersQueued -= sumCharacters(late);
    for (const pending of late) pending.reject(new Refusal("store_busy"));
  }

  /** Every wait ends, even for a commit that has begun: that one may turn out to be stored. */
  private watch(afterMs: number): Timer {
    const timer = setTimeout(() => {
      this.refuseLate();
      const now = this.now();
      for (const [batch, deadlineMs] of this.inFlight)
        if (deadlineMs <= now)
          for (const { reject } of batch) reject(new Refusal("store_unavailable"));
      const deadlines = [
        ...this.inFlight.values(),
        ...this.queue.slice(0, 1).map(({ deadlineMs }) => deadlineMs),
      ].filter((deadlineMs) => deadlineMs > now);
      this.timer = deadlines.length === 0 ? undefined : this.watch(Math.min(...deadlines) - now);
    }, afterMs);
    timer.unref();
    return timer;
  }
}

function sumCharacters(writes: readonly { readonly characters: number }[]): number {
  let sum = 0;
  for (const { characters } of writes) sum += characters;
  return sum;
}

/*
 * The end of a tick of the event loop, even when the tick does not end.
 *
 * Work that is better done together waits until every request that has arrived was looked at. With more than a
 * thousand ready connections the runtime polls for further ones dozens of times before it does anything else:
 * nothing would be committed for seconds. So every request calls `flushOverdue`, which does what has waited too long.
 */

interface Waiter {
  readonly dueMs: number;
  readonly end: () => void;
}

/** Longer than an ordinary tick, and short for a client. */
const TICK_MS_MAX = 10;

/** Few: work that waits for the same thing waits together. */
const waiters = new Set<Waiter>();
let firstDueMs = Number.POSITIVE_INFINITY;

/** Resolves at the end of the tick, or when the tick has taken too long. */
export const endOfTick = (): Promise<void> => wait(TICK_MS_MAX, setImmediate);

/** Resolves after that time, or a little later, even if the tick does not end. */
export const pause = (ms: number): Promise<void> => wait(ms, (end) => setTimeout(end, ms));

/** Called before every request, with `performance.now()`. */
export function flushOverdue(nowMs: number): void {
  if (nowMs < firstDueMs) return;
  for (const { dueMs, end } of waiters) if (dueMs <= nowMs) end();
}

function wait(ms: number, whenOver: (end: () => void) => unknown): Promise<void> {
  return new Promise((resolve) => {
    const dueMs = performance.now() + ms;
    const entry: Waiter = {
      dueMs,
      end: () => {
        if (!waiters.delete(entry)) return;
        firstDueMs = Math.min(...[...waiters].map((other) => other.dueMs));
        resolve();
      },
    };
    waiters.add(entry);
    firstDueMs = Math.min(firstDueMs, dueMs);
    whenOver(entry.end);
  });
}
