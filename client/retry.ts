/** Half a minute in all: enough for a service to restart. */
const DELAYS_MS = [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000, 5_000];

/** A service that asks for a longer wait is not asked again: too early an attempt would only add to its load. */
const WAIT_MS_MAX = 30_000;
/** With a longer delay, setTimeout does not wait at all. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export interface RetryOptions {
  /** Cancels the request, or the wait before the next attempt. */
  readonly signal?: AbortSignal | undefined;
  /** Called before each wait. */
  readonly onRetry?: ((error: Error, waitMs: number) => void) | undefined;
  /** The longest wait before each retry. An empty list means no retries. */
  readonly delaysMs?: readonly number[] | undefined;
  /** After how many retries to give up: by default, after as many as there are delays. */
  readonly retriesMax?: number | undefined;
}

/** How long to wait at least before the next attempt; undefined if it would fail again. */
type FindWaitMs = (error: unknown) => number | undefined;

/** Growing, jittered waits between attempts. */
export class Backoff {
  private readonly options: RetryOptions;
  private readonly findWaitMs: FindWaitMs;
  private retries = 0;

  constructor(options: RetryOptions, findWaitMs: FindWaitMs) {
    this.options = options;
    this.findWaitMs = findWaitMs;
  }

  /** Throws the failure if there is no next attempt, or the reason of an abort. */
  async wait(failure: unknown): Promise<void> {
    const { signal, onRetry, delaysMs = DELAYS_MS, retriesMax = delaysMs.length } = this.options;
    const waitMsMin = this.findWaitMs(failure);
    const delayMs = delaysMs[Math.min(this.retries, delaysMs.length - 1)];
    if (waitMsMin === undefined || delayMs === undefined || this.retries++ >= retriesMax)
      throw failure;
    if (waitMsMin > (retriesMax === Infinity ? TIMER_MS_MAX : WAIT_MS_MAX)) throw failure;
    signal?.throwIfAborted();
    const waitMs = Math.round(Math.max(waitMsMin, delayMs * (0.5 + Math.random() / 2)));
    onRetry?.(failure as Error, waitMs);
    await sleep(waitMs, signal);
  }

  /** After progress: the next failure is the first of its kind. */
  reset(): void {
    this.retries = 0;
  }
}

/** `attempt` may have succeeded unseen, so it must be safe to repeat. */
export async function retry<Result>(
  attempt: () => Promise<Result>,
  options: RetryOptions,
  findWaitMs: FindWaitMs,
): Promise<Result> {
  const backoff = new Backoff(options, findWaitMs);
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      await backoff.wait(error);
    }
  }
}

function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      if (signal?.aborted) reject(signal.reason as Error);
      else resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
}

/** How long a stream may be silent. */
const SILENCE_MS_MAX = 60_000;
const SILENCE = new DOMException("The stream was silent for too long.", "TimeoutError");

/** Ends a request whose answer is silent for too long, or, after a time of grace, one that its caller aborted. */
export class SilenceGuard {
  private readonly controller = new AbortController();
  private readonly caller: AbortSignal | undefined;
  private readonly onAbort: () => void;
  private graceTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(caller: AbortSignal | undefined, graceMs: number) {
    this.caller = caller;
    this.onAbort = () => {
      this.graceTimer = setTimeout(() => this.controller.abort(caller?.reason), graceMs);
    };
    caller?.addEventListener("abort", this.onAbort);
    if (caller?.aborted) this.onAbort();
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  async watch<Result>(promise: Promise<Result>): Promise<Result> {
    const timer = setTimeout(() => this.controller.abort(SILENCE), SILENCE_MS_MAX);
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Ends the request if it is still under way. */
  close(): void {
    this.caller?.removeEventListener("abort", this.onAbort);
    clearTimeout(this.graceTimer);
    this.controller.abort();
  }
}

/** Whether the caller has given up, and not the guard. */
export const isAborted = (signal: AbortSignal | null | undefined): signal is AbortSignal =>
  signal?.aborted === true && signal.reason !== SILENCE;
