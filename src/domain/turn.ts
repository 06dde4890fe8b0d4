/**
 * The end of a turn of the event loop, also where it does not come to an end.
 *
 * Work that is better done together waits until all requests that have arrived were looked at. With more than a
 * thousand connections that are always ready, the runtime looks for further ones dozens of times before it does
 * anything else: nothing would be committed for seconds, while whoever is refused at once comes back at once.
 * So every request tells what time it is, and what has waited for too long is done before it.
 */

interface Waiting {
  readonly dueMs: number;
  readonly end: () => void;
}

/** Longer than a turn takes that comes to an end, and short for somebody who waits. */
const TURN_MS_MAX = 10;

/** Few: those who wait for the same thing wait together. */
const waiting = new Set<Waiting>();
let firstDueMs = Number.POSITIVE_INFINITY;

/** Resolves at the end of the turn, or when that has taken too long. */
export const turn = (): Promise<void> => wait(TURN_MS_MAX, setImmediate);

/** Resolves after that time, or a little later. */
export const pause = (ms: number): Promise<void> => wait(ms, (end) => setTimeout(end, ms));

/** To be told before every request; the time is that of `performance.now()`. */
export function hastenTurn(nowMs: number): void {
  if (nowMs < firstDueMs) return;
  for (const { dueMs, end } of waiting) if (dueMs <= nowMs) end();
}

function wait(ms: number, whenOver: (end: () => void) => unknown): Promise<void> {
  return new Promise((resolve) => {
    const dueMs = performance.now() + ms;
    const entry: Waiting = {
      dueMs,
      end: () => {
        if (!waiting.delete(entry)) return;
        firstDueMs = Math.min(...[...waiting].map((other) => other.dueMs));
        resolve();
      },
    };
    waiting.add(entry);
    firstDueMs = Math.min(firstDueMs, dueMs);
    whenOver(entry.end);
  });
}
