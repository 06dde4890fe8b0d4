/** The end of a tick of the event loop, even if the tick does not end. */

import { expect, test } from "bun:test";
import { rejectionOf } from "./support/expect.ts";
import {
  endOfTick,
  FLUSH_REQUESTS,
  flushOverdue,
  pause,
  shareClock,
  sharedNow,
  within,
} from "../src/tick.ts";

/** As many requests arrive at this time as make a flush. */
function arrive(nowMs: number): void {
  for (let request = 0; request < FLUSH_REQUESTS; request++) flushOverdue(nowMs);
}

/** Whether it has ended, without a tick in between. */
async function hasEnded(wait: Promise<void>): Promise<boolean> {
  for (let microtasks = 0; microtasks < 10; microtasks++) await Promise.resolve();
  return Bun.peek.status(wait) === "fulfilled";
}

/** Each flush ends the oldest wait that is overdue. Other tests of the process may have left some. */
async function arriveUntil(wait: Promise<void>, nowMs: number): Promise<void> {
  for (let flushes = 0; flushes < 1_000; flushes++) {
    arrive(nowMs);
    if (await hasEnded(wait)) return;
  }
  throw new Error("no request has ended the wait");
}

test("a tick ends after everything that was there already", async () => {
  const order: string[] = [];
  setImmediate(() => order.push("there already"));
  const ended = endOfTick().then(() => order.push("end of the tick"));
  queueMicrotask(() => order.push("microtask"));
  await ended;
  expect(order).toEqual(["microtask", "there already", "end of the tick"]);
});

test("a tick is one wait for all, and the next one is another", async () => {
  const first = endOfTick();
  expect(endOfTick()).toBe(first);
  await first;
  expect(endOfTick()).not.toBe(first);
  await endOfTick();
});

test("a tick ends before, if requests find that it takes too long", async () => {
  const late = endOfTick();
  arrive(performance.now());
  expect(await hasEnded(late)).toBe(false);
  await arriveUntil(late, performance.now() + 1_000);
});

test("a pause is over when its time is, however many ticks that takes", async () => {
  const startedAtMs = performance.now();
  await pause(20);
  expect(performance.now() - startedAtMs).toBeGreaterThan(19);
});

test("a pause is over before its timer fires, if requests find that its time is", async () => {
  const [short, long] = [pause(60_000), pause(120_000)];
  const startedAtMs = performance.now();
  await arriveUntil(short, startedAtMs + 61_000);
  expect(await hasEnded(long)).toBe(false);
  await arriveUntil(long, startedAtMs + 121_000);
});

const never = new Promise<never>(() => undefined);

test("within a time, a result or a failure is handed on", async () => {
  expect(await within(60_000, Promise.resolve(7))).toBe(7);
  expect(await rejectionOf(within(60_000, Promise.reject(new Error("no"))))).toBeInstanceOf(Error);
});

test("within a time that ends, or with a signal that aborts, there is no result", async () => {
  expect(await within(1, never)).toBeUndefined();
  const ending = new AbortController();
  const over = within(60_000, never, ending.signal);
  ending.abort();
  expect(await over).toBeUndefined();
  // It had aborted before.
  expect(await within(3_600_000, never, ending.signal)).toBeUndefined();
});

test("the clock of another thread is as near as the shortest round to it", async () => {
  const SLOW_MS = 50;
  const startedAtMs = performance.now();
  let rounds = 0;
  let origin: unknown;
  await shareClock(async ({ clock }) => {
    if (clock !== "read") return (origin = clock);
    const threadMs = performance.now() - startedAtMs;
    if (rounds++ === 0) await pause(SLOW_MS);
    return threadMs;
  });
  expect(rounds).toBeGreaterThan(1);
  const aheadMs = Number(origin) + (performance.now() - startedAtMs) - sharedNow();
  // The first round would put it ahead by its wait.
  expect(aheadMs).toBeWithin(-1, SLOW_MS);
});
