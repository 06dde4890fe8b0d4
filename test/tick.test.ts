/** The end of a tick of the event loop, even if the tick does not end. */

import { describe, expect, test } from "bun:test";
import { allArrived, endOfTick, flushOverdue, pause, TOGETHER_MAX } from "../src/store/batcher.ts";

/** Long after any that has begun should have ended. */
const LATER_MS = 1_000;

/** So many requests arrive at this time. */
function arrive(nowMs: number, requests = TOGETHER_MAX): void {
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

  test("ends after its requests have gone on together, and after what they did at once", async () => {
    const order: string[] = [];
    const requests = ["first", "second"].map(async (name) => {
      await allArrived();
      order.push(`${name} goes on`);
      await Promise.resolve();
      order.push(`${name} asks the store`);
      await endOfTick();
      order.push(`${name} is answered`);
    });
    const next = new Promise(setImmediate).then(() => new Promise(setImmediate));
    await Promise.all([...requests, next.then(() => order.push("next tick"))]);
    expect(order).toEqual([
      "first goes on",
      "second goes on",
      "first asks the store",
      "second asks the store",
      "first is answered",
      "second is answered",
      "next tick",
    ]);
  });

  test("does not end for its requests to go on, if there are many", async () => {
    const [last, ...waiting] = Array.from({ length: TOGETHER_MAX }, () => allArrived());
    const next = allArrived();
    const ended = endOfTick();
    expect(await endedAmong(last as Promise<void>, next, ended)).toEqual([true, false, false]);
    await Promise.all([...waiting, next, ended]);
  });

  test("ends before, if requests find that it takes too long, and then one step at a time", async () => {
    // Tests before this one may have left some requests on the way to the next step.
    const before = endOfTick();
    while (!(await endedAmong(before))[0]) arrive(performance.now() + LATER_MS, 1);
    const late = [allArrived(), endOfTick()];
    arrive(performance.now());
    expect(await endedAmong(...late)).toEqual([false, false]);
    arrive(performance.now() + LATER_MS, TOGETHER_MAX - 1);
    expect(await endedAmong(...late)).toEqual([false, false]);
    arrive(performance.now() + LATER_MS, 1);
    expect(await endedAmong(...late)).toEqual([true, false]);
    expect(endOfTick()).toBe(late[1] as Promise<void>);
    arrive(performance.now() + LATER_MS);
    expect(await endedAmong(...late)).toEqual([true, true]);
    const next = [allArrived(), endOfTick()];
    expect(await endedAmong(...next)).toEqual([false, false]);
    await Promise.all(next);
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
