/** Waiting for a full queue instead of failing: for what has begun to be answered, and cannot be refused any more. */

import { Refusal } from "../domain/errors.ts";

const RETRY_MS = 20;

/** Attempts again as long as the store is overloaded, for no longer than a write may wait. */
export async function patiently<Result>(
  secondsMax: number,
  attempt: () => Promise<Result>,
): Promise<Result> {
  const deadlineMs = performance.now() + secondsMax * 1000;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      const isOverload = error instanceof Refusal && error.reason === "overloaded";
      if (!isOverload || performance.now() > deadlineMs) throw error;
      await Bun.sleep(RETRY_MS);
    }
  }
}
