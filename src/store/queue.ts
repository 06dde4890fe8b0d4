/** The write queue, with group commit: writes that arrive during a commit share the next one, and its sync. */

import { Refusal, toRefusal } from "../domain/errors.ts";
import type { StoreLimits } from "../domain/store.ts";
import { endOfTick, pause } from "../tick.ts";

type QueueLimits = Pick<StoreLimits, "queueLengthMax" | "queueSecondsMax" | "commitLengthMax">;

/** A promise is an outcome not known yet. The next commit does not wait for it; writes with the same key do. */
type Result<Outcome> = Outcome | Error | Promise<Outcome>;

interface Pending<Write, Outcome> {
  readonly write: Write;
  readonly characters: number;
  readonly deadlineMs: number;
  /** Only the first call has an effect. */
  readonly settle: (result: Result<Outcome>) => void;
}

/**
 * Commits a group and returns one outcome per write, in order. An Error fails that write; a throw fails the group.
 * Writes without an outcome go back to the queue. Callers are refused at the deadline.
 */
export type Commit<Write, Outcome> = (
  writes: readonly Write[],
  deadlineMs: number,
) => Result<Outcome>[] | Promise<Result<Outcome>[]>;

interface Options<Write> {
  readonly inFlightMax?: number;
  /** A commit gets at least this long, even if its first write is about to time out. */
  readonly commitMsMin?: number;
  /** Two commits in flight never hold writes with the same key. */
  readonly keysOf?: (write: Write) => readonly unknown[];
  /** Called for each submission, with the first of its writes and the promise of its outcome, before it starts. */
  readonly onSubmit?: (write: Write, outcome: Promise<unknown>) => void;
  readonly onCommit?: (
    durationMs: number,
    writes: readonly Write[],
    outcomes: readonly unknown[],
  ) => void;
  readonly now?: () => number;
}

const defaults = { inFlightMax: 1, commitMsMin: 0, now: () => performance.now() };

/** A group waits this share of the last commit's duration for clients that were just answered. */
const GATHER_SHARE = 0.1;
const GATHER_MS_MAX = 10;
/** After a commit faster than this, the next group waits only for the end of the tick. */
const FAST_COMMIT_MS = 0.5;
/** Writes do not wait behind a commit slower than this if another lane is free. */
const LANE_MS = 5;
/** Poll interval of close() while the queue drains. */
const CLOSE_MS = 2;
/** Overdue writes are looked for every queueSecondsMax × this. */
const WATCH_SHARE = 0.02;
/** Also bounds memory: the text of a group is copied several times on its way to the store. */
const COMMIT_CHARACTERS_MAX = 1_048_576;
/** The share of the queue that blocks of writes may fill. The rest is for single writes. */
const BLOCKS_SHARE = 0.5;

/** For a hook: an exception there is a defect, but the writes are stored, and it must not fail them. */
export const runApart = (hook: () => void): void => queueMicrotask(hook);

export class Queue<Write, Outcome> {
  private readonly commit: Commit<Write, Outcome>;
  private readonly limits: QueueLimits;
  private readonly options: Options<Write> & typeof defaults;
  private queue: Pending<Write, Outcome>[] = [];
  /** Writes of blocks that wait for room in the queue, oldest first. */
  private readonly overflow: Pending<Write, Outcome>[] = [];
  private readonly inFlight = new Map<readonly Pending<Write, Outcome>[], number>();
  private lanes = 0;
  private committedAtMs = 0;
  /** The writes that were queued or just answered when the last commit ended. Unlimited if it was synchronous. */
  private expected = Number.POSITIVE_INFINITY;
  private gatherUntilMs = 0;
  private timer: Timer | undefined;
  private closed = false;

  constructor(commit: Commit<Write, Outcome>, limits: QueueLimits, options: Options<Write> = {}) {
    this.commit = commit;
    this.limits = limits;
    this.options = { ...defaults, ...options };
  }

  get waiting(): number {
    return this.queued + this.writesInFlight;
  }

  private get queued(): number {
    return this.queue.length + this.overflow.length;
  }

  private get writesInFlight(): number {
    let sum = 0;
    for (const group of this.inFlight.keys()) sum += group.length;
    return sum;
  }

  /** Settles after the commit that the write was part of. A full queue refuses the write at once. */
  submit(write: Write, characters = 0): Promise<Outcome> {
    const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
    const settle = (result: Result<Outcome>): void =>
      result instanceof Error ? reject(result) : resolve(result);
    this.options.onSubmit?.(write, promise);
    if (this.closed) settle(new Refusal("shutting_down"));
    else if (this.hasRoom(1)) {
      this.queue.push({ write, characters, deadlineMs: this.deadline(), settle });
      this.start();
    } else settle(new Refusal("overloaded"));
    return promise;
  }

  /**
   * Resolves when all are settled. The writes are queued in order and wait for room. They share a deadline, so once one
   * is late, the rest are too: a write never overtakes an earlier one of its block.
   */
  submitAll(
    writes: readonly Write[],
    characters: readonly number[] = [],
  ): Promise<(Outcome | Refusal)[]> {
    if (this.closed) return Promise.resolve(writes.map(() => new Refusal("shutting_down")));
    if (writes.length === 0) return Promise.resolve([]);
    const deadlineMs = this.deadline();
    const { promise, resolve } = Promise.withResolvers<(Outcome | Refusal)[]>();
    this.options.onSubmit?.(writes[0] as Write, promise);
    const outcomes: (Outcome | Refusal)[] = [];
    let open = writes.length;
    for (let index = 0; index < writes.length; index++) {
      const settle = (result: Result<Outcome>): void => {
        if (result instanceof Promise) return void result.then(settle, settle);
        if (index in outcomes) return;
        outcomes[index] = result instanceof Error ? toRefusal(result) : result;
        if (--open === 0) resolve(outcomes);
      };
      const write = writes[index] as Write;
      this.overflow.push({ write, characters: characters[index] ?? 0, deadlineMs, settle });
    }
    this.start();
    return promise;
  }

  async close(): Promise<void> {
    this.closed = true;
    while (this.waiting > 0) await pause(CLOSE_MS);
    clearInterval(this.timer);
  }

  private deadline(): number {
    return this.options.now() + this.limits.queueSecondsMax * 1000;
  }

  private hasRoom(share: number): boolean {
    return this.queue.length < this.limits.queueLengthMax * share;
  }

  private start(): void {
    const { inFlightMax } = this.options;
    const lateMs = this.limits.queueSecondsMax * 1000 * WATCH_SHARE;
    // If a commit is slow, there may be no later write to start another lane.
    const watchMs = inFlightMax > 1 ? Math.min(LANE_MS + 1, lateMs) : lateMs;
    this.timer ??= setInterval(() => this.watch(), watchMs).unref();
    if (this.lanes === inFlightMax || (this.lanes > 0 && this.isNextGroupSmall())) return;
    this.lanes++;
    void this.run();
  }

  /** A commit of one costs about as much as one of many, so a group smaller than the one in flight waits for it. */
  private isNextGroupSmall(): boolean {
    const isYoung = this.options.now() < this.committedAtMs + LANE_MS;
    return isYoung && this.queued < this.writesInFlight;
  }

  private async run(): Promise<void> {
    while (this.queued > 0) {
      if (this.queued < this.expected) await this.gather();
      if (this.lanes > 1 && this.isNextGroupSmall()) break;
      const group = this.takeGroup();
      // The rest have keys that are in flight. They are taken when those writes are settled.
      if (group.length === 0) break;
      await this.commitGroup(group);
    }
    this.lanes--;
  }

  /**
   * Clients that were just answered are about to send again. If the group starts without them, each waits for two
   * commits. The group waits while each tick brings a write: on a busy core, the clock alone would end it with half of
   * them.
   */
  private async gather(): Promise<void> {
    const endsAtMs = this.options.now() + GATHER_MS_MAX;
    let before: number;
    do {
      before = this.queued;
      await endOfTick();
      if (this.queued >= this.expected) return;
    } while (
      performance.now() < this.gatherUntilMs ||
      (Number.isFinite(this.expected) && this.queued > before && this.options.now() < endsAtMs)
    );
  }

  private async commitGroup(group: readonly Pending<Write, Outcome>[]): Promise<void> {
    const startedAtMs = this.options.now();
    const firstMs = Math.min(...group.map((pending) => pending.deadlineMs));
    const deadlineMs = Math.max(firstMs, startedAtMs + this.options.commitMsMin);
    this.inFlight.set(group, deadlineMs);
    this.committedAtMs = startedAtMs;
    try {
      const writes = group.map(({ write }) => write);
      const committed = this.commit(writes, deadlineMs);
      const isAsync = committed instanceof Promise;
      const outcomes = isAsync ? await committed : committed;
      const tookMs = this.options.now() - startedAtMs;
      if (isAsync) this.noteCommit(tookMs, outcomes.length);
      const { onCommit } = this.options;
      if (onCommit !== undefined) runApart(() => onCommit(tookMs, writes, outcomes));
      this.queue.unshift(...group.slice(outcomes.length));
      for (let index = 0; index < outcomes.length; index++)
        group[index]?.settle(outcomes[index] as Result<Outcome>);
      const late = outcomes.filter((outcome) => outcome instanceof Promise);
      if (late.length === 0) return void this.inFlight.delete(group);
      void Promise.allSettled(late).then(() => {
        this.inFlight.delete(group);
        this.start();
      });
    } catch (error) {
      for (const pending of group) pending.settle(error as Error);
      this.inFlight.delete(group);
    }
  }

  private noteCommit(tookMs: number, answered: number): void {
    this.expected = this.queued + answered;
    const waitMs = tookMs < FAST_COMMIT_MS ? 0 : Math.min(tookMs * GATHER_SHARE, GATHER_MS_MAX);
    this.gatherUntilMs = performance.now() + waitMs;
  }

  /** Up to commitLengthMax writes and COMMIT_CHARACTERS_MAX characters, to bound the time of one commit. */
  private takeGroup(): Pending<Write, Outcome>[] {
    this.refuseLate(this.options.now());
    this.fillQueue();
    const { queue, limits } = this;
    const { keysOf = () => [] } = this.options;
    const keysInFlight = new Set<unknown>();
    if (this.options.keysOf !== undefined)
      for (const group of this.inFlight.keys())
        for (const { write } of group) for (const key of keysOf(write)) keysInFlight.add(key);
    const taken: Pending<Write, Outcome>[] = [];
    const deferred: Pending<Write, Outcome>[] = [];
    let characters = 0;
    let seen = 0;
    for (const pending of queue) {
      if (taken.length >= limits.commitLengthMax || characters >= COMMIT_CHARACTERS_MAX) break;
      seen++;
      const keys = keysInFlight.size === 0 ? [] : keysOf(pending.write);
      if (keys.some((key) => keysInFlight.has(key))) {
        deferred.push(pending);
        // Later writes with another of its keys must not overtake it.
        for (const key of keys) keysInFlight.add(key);
      } else {
        taken.push(pending);
        characters += pending.characters;
      }
    }
    this.queue = seen === queue.length ? deferred : deferred.concat(queue.slice(seen));
    return taken;
  }

  private fillQueue(): void {
    const { overflow } = this;
    let moved = 0;
    for (; moved < overflow.length && this.hasRoom(BLOCKS_SHARE); moved++)
      this.queue.push(overflow[moved] as Pending<Write, Outcome>);
    overflow.splice(0, moved);
  }

  /** Refuses overdue writes, even those in flight, which may turn out to be stored. Starts a lane if one is due. */
  private watch(): void {
    const now = this.options.now();
    // One shared Refusal: a commit that hangs is looked at many times a second.
    let unavailable: Refusal | undefined;
    for (const [group, deadlineMs] of this.inFlight)
      for (const pending of group)
        if (Math.max(deadlineMs, pending.deadlineMs) <= now)
          pending.settle((unavailable ??= new Refusal("store_unavailable")));
    this.refuseLate(now);
    if (this.waiting > 0) return this.start();
    clearInterval(this.timer);
    this.timer = undefined;
  }

  private refuseLate(now: number): void {
    const isLate = ({ deadlineMs }: Pending<Write, Outcome>): boolean => deadlineMs <= now;
    const late = this.queue.filter(isLate);
    if (late.length > 0) this.queue = this.queue.filter((pending) => !isLate(pending));
    const inTime = this.overflow.findIndex((pending) => !isLate(pending));
    const lateBlocks = this.overflow.splice(0, inTime === -1 ? this.overflow.length : inTime);
    // One shared Refusal: creating a million takes seconds.
    let busy: Refusal | undefined;
    for (const { settle } of late.concat(lateBlocks)) settle((busy ??= new Refusal("store_busy")));
  }
}

/** A long read gets at least this long, even if it was queued almost until its deadline. */
const READ_MS_MIN = 1_000;

/** A queue of long reads. Each takes a bounded time, so clients take turns. */
export const openLane = <Request, Answer>(
  read: (request: Request, deadlineMs: number) => Promise<Answer>,
  limits: QueueLimits,
  inFlightMax = 1,
): Queue<Request, Answer> =>
  new Queue<Request, Answer>(
    async ([request], deadlineMs) => [await read(request as Request, deadlineMs)],
    { ...limits, commitLengthMax: 1 },
    { inFlightMax, commitMsMin: READ_MS_MIN },
  );
