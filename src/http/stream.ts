/** Answers that are made while they are sent. */

import { Refusal } from "../domain/errors.ts";

interface StreamHooks {
  /** The service makes a piece, or waits for what it is made of. */
  readonly onMake: () => void;
  /** A piece is on its way to the client. */
  readonly onSend: () => void;
}

/**
 * A body of these pieces. The next piece is made when the last one has left for the client, so a slow client
 * holds up the maker and does not fill our memory. When the client goes away, the maker ends.
 */
export function toStream(
  pieces: AsyncGenerator<string>,
  hooks?: StreamHooks,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      hooks?.onMake();
      const { done, value } = await pieces.next();
      hooks?.onSend();
      if (done) controller.close();
      else controller.enqueue(encoder.encode(value));
    },
    async cancel() {
      await pieces.return(undefined);
    },
  });
}

const RETRY_MS = 20;

/** For an answer that has begun, and can no longer be refused. Gives up when a write would. */
export async function retryWhileOverloaded<Result>(
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
