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

/** Each flush ends the oldest wait that is overdue. Other tests of the process may have left some. */
async function arriveUntil(wait: Promise<void>, nowMs: number): Promise<void> {
  for (let flushes = 0; flushes < 1_000; flushes++) {
    arrive(nowMs);
    if ((await endedAmong(wait))[0] === true) return;
  }
  throw new Error("no request has ended the wait");
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

  test("ends before, if requests find that it takes too long", async () => {
    const late = endOfTick();
    arrive(performance.now());
    expect(await endedAmong(late)).toEqual([false]);
    await arriveUntil(late, performance.now() + LATER_MS);
  });
});

describe("a pause", () => {
  test("is over when its time is, however many ticks that takes", async () => {
    const startedAtMs = performance.now();
    await pause(20);
    expect(performance.now() - startedAtMs).toBeGreaterThan(19);
  });

  test("is over before its timer fires, if requests find that its time is", async () => {
    const [short, long] = [pause(60_000), pause(120_000)];
    const startedAtMs = performance.now();
    await arriveUntil(short, startedAtMs + 61_000);
    expect(await endedAmong(long)).toEqual([false]);
    await arriveUntil(long, startedAtMs + 121_000);
  });
});

const never = new Promise<never>(() => undefined);

test("within a time, a result or a failure is handed on; what does not come is undefined, also if the signal aborts", async () => {
  expect(await within(60_000, Promise.resolve(7))).toBe(7);
  expect(await rejectionOf(within(60_000, Promise.reject(new Error("no"))))).toBeInstanceOf(Error);
  expect(await within(1, never)).toBeUndefined();
  const ending = new AbortController();
  const over = within(60_000, never, ending.signal);
  ending.abort();
  expect(await over).toBeUndefined();
});
