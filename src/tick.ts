/**
 * Waits that end even in a long tick: with more than 1,000 ready connections the runtime polls dozens of times before
 * it runs a timer, an immediate or a message. So every request calls `flushOverdue`.
 */

interface Wait {
  readonly dueMs: number;
  readonly ended: Promise<void>;
  readonly end: () => void;
}

/** Longer than an ordinary tick, and short enough for a client. */
const TICK_MS_MAX = 10;

/** Oldest first. */
const waits = new Set<Wait>();

let tick: Wait | undefined;

/** Resolves when every request that has been received has reached its handler. Callers in a tick share one wait. */
export function endOfTick(): Promise<void> {
  if (tick === undefined || !waits.has(tick))
    tick = beginWait(TICK_MS_MAX, (end) => setImmediate(end));
  return tick.ended;
}

/** Each read holds its page until it is answered. */
const TOGETHER_MAX = 64;

let joined = 0;

/** The same for reads, at most TOGETHER_MAX of them together. */
export function joinTick(): Promise<void> {
  const ended = endOfTick();
  if (++joined % TOGETHER_MAX === 0) tick?.end();
  return ended;
}

export const pause = (ms: number): Promise<void> =>
  beginWait(ms, (end) => setTimeout(end, ms)).ended;

/** Resolves to undefined after `msMax`, or once the signal has aborted. */
export async function within<Value>(msMax: number, result: Promise<Value>, signal?: AbortSignal) {
  const over = Promise.withResolvers<undefined>();
  const giveUp = (): void => over.resolve(undefined);
  const timer = setTimeout(giveUp, msMax);
  signal?.addEventListener("abort", giveUp);
  if (signal?.aborted) giveUp();
  try {
    return await Promise.race([result, over.promise]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", giveUp);
  }
}

/** Requests between two clock checks. The work that a check resumes may take longer than a tick should. */
export const FLUSH_REQUESTS = 64;

let requestsSinceFlush = 0;

export function flushOverdue(nowMs: number): void {
  if (++requestsSinceFlush < FLUSH_REQUESTS) return;
  requestsSinceFlush = 0;
  // Only the oldest: requests that arrive before the next call may join what it resumes.
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

/** When this thread started, by the clock of the first thread. */
let originMs = 0;

/**
 * One monotonic clock for all threads: `performance.now()` counts from the start of each. `performance.timeOrigin` does
 * not tell when that was: the wall clock may be set between two starts.
 */
export const sharedNow = (): number => toShared(performance.now());

/** The shared time of a time by this thread's `performance.now()`. */
export const toShared = (ms: number): number => originMs + ms;

/** The reverse. */
export const fromShared = (ms: number): number => ms - originMs;

const CLOCK_ROUNDS_MAX = 20;
const CLOCK_ROUND_MS = 1;

/**
 * Gives another thread this clock: `ask` resolves to what its `answerClock` returns. The error is less than one round,
 * and in one direction: the other clock is ahead, so a deadline never comes late there.
 */
export async function shareClock(ask: (order: ClockOrder) => Promise<unknown>): Promise<void> {
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < CLOCK_ROUNDS_MAX; round++) {
    const sentMs = sharedNow();
    const threadMs = (await ask({ clock: "read" })) as number;
    const receivedMs = sharedNow();
    least = Math.min(least, receivedMs - threadMs);
    if (receivedMs - sentMs < CLOCK_ROUND_MS) break;
  }
  await ask({ clock: least });
}

/** `read`, or when the thread started. */
export type ClockOrder = Readonly<{ clock: "read" | number }>;

export function answerClock({ clock }: ClockOrder): number | undefined {
  if (clock === "read") return performance.now();
  originMs = clock;
  return undefined;
}
