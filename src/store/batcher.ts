/** One commit, and so one sync, for all the writes that arrived while the last commit was under way. */

import { edenGC } from "bun:jsc";
import { Refusal, toRefusal } from "../domain/errors.ts";
import type { StoreLimits } from "../domain/store.ts";

type QueueLimits = Pick<
  StoreLimits,
  "queueLengthMax" | "queueSecondsMax" | "batchLengthMax" | "bodyBytesTotalMax"
>;

/** A promise is an outcome that is known later. The next commit does not wait for it; writes with its key do. */
type Result<Outcome> = Outcome | Error | Promise<Outcome>;

interface Pending<Write, Outcome> {
  readonly write: Write;
  /** How much text the write holds. */
  readonly characters: number;
  readonly deadlineMs: number;
  /** Only the first call has an effect. */
  readonly settle: (result: Result<Outcome>) => void;
}

/**
 * Commits a batch and returns one outcome a write, in order; an Error fails that write alone. Writes behind the last
 * outcome are part of the next batch. No outcome at all means that another process has locked the store: the next
 * batch begins a little later.
 * A throw means that the batch may or may not be stored, and fails every write in it.
 * The callers are refused at the deadline, by the clock of the constructor.
 */
export type Commit<Write, Outcome> = (
  writes: readonly Write[],
  deadlineMs: number,
) => Committed<Outcome> | Promise<Committed<Outcome>>;

export type Committed<Outcome> = Result<Outcome>[];

interface Options<Write> {
  /** Commits under way at one time. */
  readonly inFlightMax?: number;
  /** The least time that a commit gets, even if its first write has waited as long as it may. */
  readonly commitMsMin?: number;
  /** What a write is about. Two commits under way never hold writes about the same thing. */
  readonly keyOf?: (write: Write) => unknown;
  readonly onCommit?: StoreLimits["onCommit"];
  readonly now?: () => number;
}

const defaults = { inFlightMax: 1, commitMsMin: 0, now: () => performance.now() };

const LOCK_RETRY_MS = 5;
/** A client that has been answered sends its next write soon. */
export const WRITING_MS = 100;
/** A commit that takes longer is not waited for by writes that another lane could take. */
const LANE_MS = 5;
/** The time between two looks whether all writes are settled, when the store closes. */
const CLOSE_MS = 2;
/** The share of the time in the queue between two looks for what has waited too long. */
const WATCH_SHARE = 0.1;
const COMMIT_CHARACTERS_MAX = 4_194_304;
/** The share of the queue that blocks of writes may fill. The rest is left to single writes. */
const BLOCKS_SHARE = 0.5;

export class Batcher<Write, Outcome> {
  private readonly commit: Commit<Write, Outcome>;
  private readonly limits: QueueLimits;
  private readonly options: Options<Write> & typeof defaults;
  private queue: Pending<Write, Outcome>[] = [];
  private charactersQueued = 0;
  /** Writes of blocks that wait for room in the queue. The oldest come first. */
  private readonly overflow: Pending<Write, Outcome>[] = [];
  /** Batches under way, each with its deadline. */
  private readonly inFlight = new Map<readonly Pending<Write, Outcome>[], number>();
  private lanes = 0;
  /** When the last commit began. */
  private committedAtMs = 0;
  private busyUntilMs = 0;
  private timer: Timer | undefined;
  private closed = false;

  constructor(commit: Commit<Write, Outcome>, limits: QueueLimits, options: Options<Write> = {}) {
    this.commit = commit;
    this.limits = limits;
    this.options = { ...defaults, ...options };
  }

  /** Writes that are queued or under way. */
  get waiting(): number {
    return this.queued + this.writesInFlight;
  }

  /** Whether there are writes now, or were a moment ago. */
  get isBusy(): boolean {
    return this.waiting > 0 || this.options.now() < this.busyUntilMs;
  }

  private get queued(): number {
    return this.queue.length + this.overflow.length;
  }

  private get writesInFlight(): number {
    let sum = 0;
    for (const batch of this.inFlight.keys()) sum += batch.length;
    return sum;
  }

  /** Settles after the commit that the write was part of. A full queue refuses the write at once. */
  submit(write: Write, characters = 0): Promise<Outcome> {
    if (this.closed) return Promise.reject(new Refusal("shutting_down"));
    if (!this.hasRoom(characters, 1)) return Promise.reject(new Refusal("overloaded"));
    return new Promise((resolve, reject) => {
      this.queue.push({
        write,
        characters,
        deadlineMs: this.deadline(),
        settle: (result) => {
          if (result instanceof Error) reject(result);
          else resolve(result);
        },
      });
      this.charactersQueued += characters;
      this.start();
    });
  }

  /**
   * Commits a block of writes, and resolves to their outcomes when all are settled. They are queued in order, and
   * wait for room in the queue. They have one deadline, so once one of them is late, all that follow are late too:
   * a write never overtakes an earlier one of its block.
   */
  submitAll(
    writes: readonly Write[],
    characters: readonly number[] = [],
  ): Promise<(Outcome | Refusal)[]> {
    if (this.closed) return Promise.resolve(writes.map(() => new Refusal("shutting_down")));
    if (writes.length === 0) return Promise.resolve([]);
    const deadlineMs = this.deadline();
    return new Promise((resolve) => {
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
    });
  }

  /** Refuses new writes, and resolves when those accepted are settled. */
  async close(): Promise<void> {
    this.closed = true;
    while (this.waiting > 0) await pause(CLOSE_MS);
    clearInterval(this.timer);
  }

  private deadline(): number {
    return this.options.now() + this.limits.queueSecondsMax * 1000;
  }

  private hasRoom(characters: number, share: number): boolean {
    if (this.queue.length === 0) return true;
    const { queueLengthMax, bodyBytesTotalMax } = this.limits;
    return (
      this.queue.length < queueLengthMax * share &&
      this.charactersQueued + characters <= bodyBytesTotalMax * share
    );
  }

  private start(): void {
    const { inFlightMax } = this.options;
    this.timer ??= setInterval(
      () => this.watch(),
      this.limits.queueSecondsMax * 1000 * WATCH_SHARE,
    ).unref();
    if (this.lanes === inFlightMax || (this.lanes > 0 && this.isNextBatchSmall())) return;
    this.lanes++;
    void this.run();
  }

  /**
   * A batch costs about the same for one write as for many. So none is begun beside another for fewer writes than
   * that one holds, unless it takes long: they go with the next one.
   */
  private isNextBatchSmall(): boolean {
    const isYoung = this.options.now() < this.committedAtMs + LANE_MS;
    return isYoung && this.queued < this.writesInFlight;
  }

  /** A lane ends when the queue is empty. A later write starts a new one. */
  private async run(): Promise<void> {
    while (this.queued > 0) {
      if (this.lanes > 1 && this.isNextBatchSmall()) break;
      // Requests that the runtime has already received join the batch before it starts.
      await endOfTick();
      const batch = this.takeBatch();
      // What is left has the keys of writes under way. It is taken when they are settled.
      if (batch.length === 0) break;
      await this.commitBatch(batch);
    }
    this.lanes--;
  }

  private async commitBatch(batch: readonly Pending<Write, Outcome>[]): Promise<void> {
    const startedAtMs = this.options.now();
    const firstMs = Math.min(...batch.map((pending) => pending.deadlineMs));
    const deadlineMs = Math.max(firstMs, startedAtMs + this.options.commitMsMin);
    this.inFlight.set(batch, deadlineMs);
    this.committedAtMs = startedAtMs;
    // There may be no later write to find out that it takes long.
    if (this.options.inFlightMax > 1) setTimeout(() => this.start(), LANE_MS + 1).unref();
    try {
      const writes = batch.map(({ write }) => write);
      const committed = this.commit(writes, deadlineMs);
      const outcomes = committed instanceof Promise ? await committed : committed;
      const isLocked = outcomes.length === 0;
      if (!isLocked) this.options.onCommit?.(this.options.now() - startedAtMs, outcomes.length);
      const left = batch.slice(outcomes.length);
      this.queue.unshift(...left);
      this.charactersQueued += sumCharacters(left);
      for (let index = 0; index < outcomes.length; index++)
        batch[index]?.settle(outcomes[index] as Result<Outcome>);
      const late = outcomes.filter((outcome) => outcome instanceof Promise);
      if (late.length === 0) this.release(batch);
      else
        void Promise.allSettled(late).then(() => {
          this.release(batch);
          this.start();
        });
      if (isLocked) await pause(LOCK_RETRY_MS);
    } catch (error) {
      for (const pending of batch) pending.settle(error as Error);
      this.release(batch);
    }
  }

  private release(batch: readonly Pending<Write, Outcome>[]): void {
    this.inFlight.delete(batch);
    this.busyUntilMs = this.options.now() + WRITING_MS;
  }

  /** As many writes as a commit may have, and a bounded amount of text, so others get their turn. */
  private takeBatch(): Pending<Write, Outcome>[] {
    this.refuseLate(this.options.now());
    this.fillQueue();
    const { queue, limits } = this;
    const { keyOf } = this.options;
    const writesInFlight = keyOf && [...this.inFlight.keys()].flat();
    const keysInFlight = new Set(writesInFlight?.map(({ write }) => keyOf?.(write)));
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
      if (keysInFlight.size > 0 && keysInFlight.has(keyOf?.(pending.write))) held.push(pending);
      else {
        taken.push(pending);
        characters += pending.characters;
      }
    }
    this.queue = seen === queue.length ? held : held.concat(queue.slice(seen));
    this.charactersQueued -= characters;
    return taken;
  }

  private fillQueue(): void {
    const { overflow } = this;
    let moved = 0;
    while (moved < overflow.length) {
      const pending = overflow[moved] as Pending<Write, Outcome>;
      if (!this.hasRoom(pending.characters, BLOCKS_SHARE)) break;
      this.queue.push(pending);
      this.charactersQueued += pending.characters;
      moved++;
    }
    overflow.splice(0, moved);
  }

  /** Every wait ends, even for a commit that has begun: that one may turn out to be stored. */
  private watch(): void {
    const now = this.options.now();
    for (const [batch, deadlineMs] of this.inFlight)
      for (const pending of batch)
        if (Math.max(deadlineMs, pending.deadlineMs) <= now)
          pending.settle(new Refusal("store_unavailable"));
    this.refuseLate(now);
    if (this.waiting > 0) return;
    clearInterval(this.timer);
    this.timer = undefined;
  }

  private refuseLate(now: number): void {
    const isLate = ({ deadlineMs }: Pending<Write, Outcome>): boolean => deadlineMs <= now;
    const late = this.queue.filter(isLate);
    if (late.length > 0) this.queue = this.queue.filter((pending) => !isLate(pending));
    this.charactersQueued -= sumCharacters(late);
    const inTime = this.overflow.findIndex((pending) => !isLate(pending));
    const lateBlocks = this.overflow.splice(0, inTime === -1 ? this.overflow.length : inTime);
    // One for all: to make a million takes seconds.
    let busy: Refusal | undefined;
    for (const { settle } of late.concat(lateBlocks)) settle((busy ??= new Refusal("store_busy")));
  }
}

const sumCharacters = (writes: readonly { readonly characters: number }[]): number =>
  writes.reduce((sum, { characters }) => sum + characters, 0);

/*
 * The end of a tick of the event loop, even when the tick does not end.
 *
 * A commit waits until every request that has arrived was looked at. With more than a thousand ready connections
 * the runtime polls for further ones dozens of times before it does anything else, and nothing would be committed
 * for seconds. So every request calls `flushOverdue`, and every 64th does what has waited too long.
 */

interface Wait {
  readonly dueMs: number;
  readonly ended: Promise<void>;
  readonly end: () => void;
}

/** Longer than an ordinary tick, and short for a client. */
const TICK_MS_MAX = 10;

/** Those that have not ended, the oldest first. */
const waits = new Set<Wait>();

/** Resolves at the end of the tick, or when the tick has taken too long. */
export const endOfTick = shareWait();

/** More would not be faster together, and would fill the queue in front of the store in one go. */
export const TOGETHER_MAX = 64;

const arrival = shareWait(TOGETHER_MAX);

/**
 * Resolves when the requests of this tick have arrived, or so many of them. They then go on together, step by step, and
 * what a step uses is in the processor's caches for all but the first.
 */
export function allArrived(): Promise<void> {
  const arrived = arrival();
  // Asked for now, so what these requests hand to a store is committed in this tick too.
  void endOfTick();
  requestsUnanswered++;
  return arrived;
}

/** The collector comes by itself after some 3,000. Still fewer take more time, and no less memory. */
const COLLECT_REQUESTS = 512;
const UNANSWERED_MAX = 8;

let requestsUnanswered = 0;
let requestsSinceCollection = 0;

/**
 * Called when a request that waited for all has its answer. Now and then it collects garbage, when the requests of a tick
 * are answered and those of the next have not come. A collection keeps what is alive until a longer one comes; in the
 * middle of a tick that is every request under way.
 */
export function noteAnswer(): void {
  requestsUnanswered--;
  if (++requestsSinceCollection < COLLECT_REQUESTS || requestsUnanswered > UNANSWERED_MAX) return;
  requestsSinceCollection = 0;
  // After all that goes on at the end of the tick.
  process.nextTick(edenGC);
}

/** All that wait in one tick share one promise. It resolves at once for the last of so many. */
function shareWait(waitingMax = Number.POSITIVE_INFINITY): () => Promise<void> {
  let wait: Wait | undefined;
  let waiting = 0;
  return () => {
    if (wait === undefined || !waits.has(wait)) {
      wait = beginWait(TICK_MS_MAX, (end) => setImmediate(end));
      waiting = 0;
    }
    if (++waiting === waitingMax) wait.end();
    return wait.ended;
  };
}

/** Resolves after that time, or a little later, even if the tick does not end. */
export const pause = (ms: number): Promise<void> =>
  beginWait(ms, (end) => setTimeout(end, ms)).ended;

/** Resolves to undefined after that time, or when the signal aborts. */
export async function within<Value>(
  msMax: number,
  result: Promise<Value>,
  signal?: AbortSignal,
): Promise<Value | undefined> {
  const over = Promise.withResolvers<undefined>();
  const giveUp = (): void => over.resolve(undefined);
  const timer = setTimeout(giveUp, msMax);
  signal?.addEventListener("abort", giveUp);
  try {
    return await Promise.race([result, over.promise]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", giveUp);
  }
}

let requestsSinceFlush = 0;

/** Called before every request, with `performance.now()`. */
export function flushOverdue(nowMs: number): void {
  // What goes on may take longer than a tick should. Between two such steps others get their turn.
  if (++requestsSinceFlush < TOGETHER_MAX) return;
  requestsSinceFlush = 0;
  // The oldest alone: requests that go on now still reach the end of their tick, which the next call finds overdue.
  for (const { dueMs, end } of waits) if (dueMs <= nowMs) return end();
}

function beginWait(ms: number, schedule: (end: () => void) => unknown): Wait {
  const { promise: ended, resolve } = Promise.withResolvers<void>();
  const end = (): void => {
    waits.delete(wait);
    resolve();
  };
  const wait = { dueMs: performance.now() + ms, ended, end };
  waits.add(wait);
  schedule(end);
  return wait;
}
