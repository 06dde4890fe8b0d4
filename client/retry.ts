/** About 26 seconds in all: enough for a service to restart. */
const DELAYS_MS = [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000, 5_000];

/** No retry if the service asks for a longer wait: an earlier one would only add load. */
const WAIT_MS_MAX = 30_000;
/** setTimeout fires at once for a longer delay. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export interface RetryOptions {
  /** Cancels the request, or the wait before the next attempt. */
  readonly signal?: AbortSignal | undefined;
  /** Called before each wait. */
  readonly onRetry?: ((error: Error, waitMs: number) => void) | undefined;
  /** The longest wait before each retry. An empty list means no retries. */
  readonly delaysMs?: readonly number[] | undefined;
  /** The number of retries; by default the number of delays. */
  readonly retriesMax?: number | undefined;
}

/** The minimum wait before a retry; undefined if a retry cannot help. */
type FindWaitMs = (error: unknown) => number | undefined;

/** Jittered exponential backoff. */
export class Backoff {
  private readonly options: RetryOptions;
  private readonly findWaitMs: FindWaitMs;
  private retries = 0;

  constructor(options: RetryOptions, findWaitMs: FindWaitMs) {
    this.options = options;
    this.findWaitMs = findWaitMs;
  }

  /** Waits before a retry. Throws the failure if there is none, or the reason of an abort. */
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

  /** Call it after progress: the backoff starts over. */
  reset(): void {
    this.retries = 0;
  }
}

/** `attempt` must be safe to repeat: a lost answer may hide a success. */
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

export function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
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

/** The idle timeout of a stream. */
const SILENCE_MS_MAX = 60_000;
const SILENCE = new DOMException("The stream was silent for too long.", "TimeoutError");

/** Aborts a request after SILENCE_MS_MAX without data, or `graceMs` after its caller aborted it. */
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

  /** Aborts the request if it is still in flight. */
  close(): void {
    this.caller?.removeEventListener("abort", this.onAbort);
    clearTimeout(this.graceTimer);
    this.controller.abort();
  }
}

/** Whether the caller aborted, and not the guard. */
export const isAborted = (signal: AbortSignal | null | undefined): signal is AbortSignal =>
  signal?.aborted === true && signal.reason !== SILENCE;
