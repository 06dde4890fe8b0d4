/**
 * Closing a connection with unread data makes the system send a reset, which overtakes the answer: the client would
 * see a broken connection, and a proxy would make it a 502. So the service discards what the client still sends,
 * within bounds, before it closes. This is what nginx calls lingering close.
 */

import { within } from "../tick.ts";
import { findLength, readChunks, UNREAD_BYTES_MAX, WHOLE_BYTES_MAX } from "./body.ts";
import { LINGERING_SHARE } from "./budget.ts";
import type { Exchange, Rest, Service } from "./exchange.ts";

const LINGER_BYTES_MAX = 67_108_864;
const LINGER_MS_MAX = 10_000;
/** Outlasts LINGER_MS_MAX: the runtime's idle timer may fire early and would cut off the answer. */
const LINGER_SECONDS_MAX = (2 * LINGER_MS_MAX) / 1000;
/** After an early answer a proxy may stop sending and wait for the end of the answer. It waits this long. */
const LINGER_IDLE_MS_MAX = 500;
/** For a body whose end the service cannot see. Most clients have sent theirs by then. */
const LINGER_BLIND_MS = 2_000;

export const isClosing = ({ request, service }: Exchange): boolean =>
  service.readiness.isDraining || /\bclose\b/i.test(request.headers.get("connection") ?? "");

/** The body of a refusal, which ends after the request body has arrived, and whether the connection closes. */
export function linger(exchange: Exchange, text: string) {
  const { request, service, rest: begun } = exchange;
  const length = findLength(request) ?? Number.POSITIVE_INFINITY;
  const closes = isClosing(exchange) || length > LINGER_BYTES_MAX || begun !== undefined;
  const rest = begun ?? findRest(request, length, closes);
  if (rest === undefined) return { body: text, closes: isClosing(exchange) };
  if (closes) service.limitIdle(request, LINGER_SECONDS_MAX);
  // At once: until then, the runtime buffers what arrives.
  const discarded = discard(rest, service);
  let isSent = false;
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      if (isSent) {
        await discarded;
        controller.close();
      } else controller.enqueue(new TextEncoder().encode(text));
      isSent = true;
    },
  });
  return { body, closes };
}

function findRest(request: Request, length: number, closes: boolean): Rest | undefined {
  if (request.bodyUsed || length === 0) return undefined;
  // HTTP/1.0 closes by default, and the runtime does not expose the version.
  if (!closes && /\bkeep-alive\b/i.test(request.headers.get("connection") ?? "")) return undefined;
  if (length > WHOLE_BYTES_MAX) return request.body?.getReader();
  const bytes = request.bytes();
  // Before the peek: the client may be gone already, and an unhandled rejection ends the process.
  bytes.catch(() => undefined);
  return Bun.peek(bytes) === bytes ? bytes : undefined;
}

/** Resolves when the body ends, the client disconnects, or a bound is reached. */
export async function discard(
  rest: Rest,
  { budget, readiness }: Pick<Service, "budget" | "readiness">,
): Promise<void> {
  if (rest instanceof Promise)
    return void (await within(LINGER_IDLE_MS_MAX, rest).catch(() => undefined));
  if (budget.bytesLingering > budget.bytesMax * LINGERING_SHARE) {
    // The runtime discards it without buffering, but does not report its end.
    await rest.cancel().catch(() => undefined);
    return Bun.sleep(LINGER_BLIND_MS);
  }
  budget.bytesLingering += UNREAD_BYTES_MAX;
  let deadlineMs = performance.now() + LINGER_MS_MAX;
  let bytes = 0;
  const msLeft = (): number => {
    const nowMs = performance.now();
    // A service that stops does not wait for a client that never finishes its body.
    if (readiness.isDraining) deadlineMs = Math.min(deadlineMs, nowMs + LINGER_IDLE_MS_MAX);
    return bytes > LINGER_BYTES_MAX ? 0 : Math.min(LINGER_IDLE_MS_MAX, deadlineMs - nowMs);
  };
  try {
    for await (const chunk of readChunks(rest, msLeft)) bytes += chunk.length;
  } catch {
    // The client has disconnected, or a bound is reached.
  } finally {
    budget.bytesLingering -= UNREAD_BYTES_MAX;
  }
}
