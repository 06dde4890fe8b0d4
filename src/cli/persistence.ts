/** Trying again: how often, how long between, and what for. */

import { CommandError } from "./failure.ts";
import { orAborted } from "./interrupt.ts";

/** Half a minute in all: enough for a service to be started anew. */
const DELAYS_MS = [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000, 5_000];

/** It did not work this time. */
export class Setback extends Error {
  override readonly name = "Setback";
  /** What the other side asks us to wait. */
  readonly waitMs: number;

  constructor(message: string, waitMs = 0, cause?: unknown) {
    super(message, { cause });
    this.waitMs = waitMs;
  }
}

export interface Persistence {
  readonly signal: AbortSignal;
  readonly onSetback: (message: string) => void;
  readonly delaysMs?: readonly number[];
}

/** Attempts again after each Setback, a bounded number of times. Whatever else is thrown ends it at once. */
export async function persist<Result>(
  attempt: () => Promise<Result>,
  { signal, onSetback, delaysMs = DELAYS_MS }: Persistence,
): Promise<Result> {
  for (let tries = 0; ; tries++) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof Setback)) throw error;
      const delayMs = delaysMs[tries];
      if (delayMs === undefined) throw new CommandError(error.message, { cause: error });
      const waitMs = Math.max(delayMs, error.waitMs);
      onSetback(`${error.message} Trying again in ${waitMs / 1000} s.`);
      await orAborted(Bun.sleep(waitMs), signal);
    }
  }
}
