/** Half a minute in all: enough for a service to restart. */
const DELAYS_MS = [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000, 5_000];

export interface RetryOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called before each wait. */
  readonly onRetry?: ((error: Error, waitMs: number) => void) | undefined;
  /** The longest wait before each retry. */
  readonly delaysMs?: readonly number[] | undefined;
  /** After how many retries to give up: by default, after as many as there are delays. */
  readonly retriesMax?: number | undefined;
}

/**
 * Repeats the attempt after transient failures, with growing, jittered waits. Rejects with the last failure,
 * or with the reason of an abort. `attempt` may have succeeded unseen, so it must be safe to repeat. `findWaitMs`
 * tells how long to wait at least before the next attempt; undefined ends the retries.
 */
export async function retry<Result>(
  attempt: () => Promise<Result>,
  {
    findWaitMs,
    signal,
    onRetry,
    delaysMs = DELAYS_MS,
    retriesMax = delaysMs.length,
  }: RetryOptions & { readonly findWaitMs: (error: unknown) => number | undefined },
): Promise<Result> {
  for (let retries = 0; ; retries++) {
    try {
      return await attempt();
    } catch (error) {
      const waitMsMin = findWaitMs(error);
      if (waitMsMin === undefined || retries >= retriesMax) throw error;
      signal?.throwIfAborted();
      const delayMs = delaysMs[Math.min(retries, delaysMs.length - 1)] ?? 0;
      const waitMs = Math.round(Math.max(waitMsMin, delayMs * (0.5 + Math.random() / 2)));
      onRetry?.(error as Error, waitMs);
      await wait(waitMs, signal);
    }
  }
}

function wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
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
