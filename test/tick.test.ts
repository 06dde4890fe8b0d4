/** The end of a tick of the event loop, even if the tick does not end. */

import { describe, expect, test } from "bun:test";
import { rejectionOf } from "./support/expect.ts";
import { endOfTick, FLUSH_REQUESTS, flushOverdue, pause, within } from "../src/tick.ts";

/** Long after any that has begun should have ended. */
const LATER_MS = 1_000;

/** That many requests arrive at this time. */
function arrive(nowMs: number, requests = FLUSH_REQUESTS): void {
  for (let request = 0; request < requests; request++) flushOverdue(nowMs);
}

/** Which of these have ended, without a tick in between. */
async function endedAmong(...waits: Promise<void>[]): Promise<boolean[]> {
  const ended = waits.map(() => false);
  for (const [index, wait] of waits.entries())
    void wait.then(() => {
      ended[index] = true;
    });
  for (let microtasks = 0; microtasks < 10; microtasks++) await Promise.resolve();
  return ended;
}

describe("a tick", () => {
  test("ends after everything that was there already", async () => {
    const order: string[] = [];
    setImmediate(() => order.push("there already"));
    const ended = endOfTick().then(() => order.push("end of the tick"));
    queueMicrotask(() => order.push("microtask"));
    await ended;
    expect(order).toEqual(["microtask", "there already", "end of the tick"]);
  });

  test("is one wait for all, and the next one is another", async () => {
    const first = endOfTick();
    expect(endOfTick()).toBe(first);
    await first;
    expect(endOfTick()).not.toBe(first);
    await endOfTick();
  });

  test("ends before, if requests find that it takes too long, the oldest wait first", async () => {
    const late = endOfTick();
    const later = pause(LATER_MS);
    arrive(performance.now());
    expect(await endedAmong(late, later)).toEqual([false, false]);
    arrive(performance.now() + 2 * LATER_MS, FLUSH_REQUESTS - 1);
    expect(await endedAmong(late, later)).toEqual([false, false]);
    arrive(performance.now() + 2 * LATER_MS, 1);
    expect(await endedAmong(late, later)).toEqual([true, false]);
    arrive(performance.now() + 2 * LATER_MS);
    expect(await endedAmong(later)).toEqual([true]);
  });
});

describe("a pause", () => {
  test("is over when its time is, however many ticks that takes", async () => {
    const startedAtMs = performance.now();
    await pause(20);
    expect(performance.now() - startedAtMs).toBeGreaterThan(19);
  });

  test("is over before its timer fires, if requests find that its time is", async () => {
    const short = pause(60_000);
    const long = pause(120_000);
    const startedAtMs = performance.now();
    arrive(startedAtMs + 61_000);
    expect(await endedAmong(short, long)).toEqual([true, false]);
    arrive(startedAtMs + 121_000);
    expect(await endedAmong(long)).toEqual([true]);
  });
});

describe("within a time", () => {
  const never = new Promise<never>(() => undefined);

  test("a result is handed on, and so is a failure", async () => {
    expect(await within(60_000, Promise.resolve(7))).toBe(7);
    expect(await rejectionOf(within(60_000, Promise.reject(new Error("no"))))).toBeInstanceOf(
      Error,
    );
  });

  test("what does not come is undefined, and so it is when the signal aborts", async () => {
    expect(await within(1, never)).toBeUndefined();
    const ending = new AbortController();
    const over = within(60_000, never, ending.signal);
    ending.abort();
    expect(await over).toBeUndefined();
  });
});
