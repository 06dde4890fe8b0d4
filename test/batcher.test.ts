/** Group commit: what shares a commit, what waits for the next one, and what is refused meanwhile. */

import { describe, expect, test } from "bun:test";
import { Refusal } from "../src/domain/errors.ts";
import { Batcher } from "../src/store/batcher.ts";
import { rejectionOf } from "./support/expect.ts";

const limits = {
  queueLengthMax: 100,
  queueSecondsMax: 5,
  batchLengthMax: 10,
};

type Options = ConstructorParameters<typeof Batcher<number, number>>[2];

/** Each commit waits until the test ends it. */
function holdCommits(more: Partial<typeof limits> = {}, options: Options = {}) {
  const batches: string[] = [];
  const commits = Array.from({ length: 4 }, () => ({
    begun: Promise.withResolvers<void>(),
    ended: Promise.withResolvers<void>(),
  }));
  const commit = async (writes: readonly number[]): Promise<number[]> => {
    const { begun, ended } = commits[batches.push(writes.join(" ")) - 1] as (typeof commits)[0];
    begun.resolve();
    await ended.promise;
    return writes.map((write) => write * 2);
  };
  return {
    batches,
    group: new Batcher(commit, { ...limits, ...more }, options),
    begun: async (index: number): Promise<void> => commits[index]?.begun.promise,
    /** Also those that have not begun. */
    end: (...indexes: number[]): void => {
      for (const index of indexes) commits[index]?.ended.resolve();
    },
  };
}

/** Commits take no time. */
function commitAtOnce(more: Partial<typeof limits> = {}) {
  const batches: string[] = [];
  const commit = (writes: readonly number[]): number[] => {
    batches.push(writes.join(" "));
    return [...writes];
  };
  return { batches, commit, group: new Batcher(commit, { ...limits, ...more }) };
}

/** The event loop has turned: whatever was to happen at once has happened. */
const nextTick = (): Promise<void> => new Promise(setImmediate);
const unavailable = { reason: "store_unavailable" };
const busy = { reason: "store_busy" };

describe("group commit", () => {
  test("puts everything that arrives during a commit into the next one, in order", async () => {
    const { batches, group, begun, end } = holdCommits();
    expect(group.waiting).toBe(0);
    const first = group.submit(1);
    await begun(0);
    const others = [2, 3, 4].map((write) => group.submit(write));
    await nextTick();
    // No write is settled before its commit has ended.
    expect([Bun.peek.status(first), group.waiting]).toEqual(["pending", 4]);
    end(0);
    expect(await first).toBe(2);
    await begun(1);
    expect(group.waiting).toBe(3);
    end(1);
    expect(await Promise.all(others)).toEqual([4, 6, 8]);
    expect([batches, group.waiting]).toEqual([["1", "2 3 4"], 0]);
  });

  test("commits no more text at once than leaves others their turn", async () => {
    const { batches, group } = commitAtOnce();
    await Promise.all([1, 2, 3, 4, 5].map((write) => group.submit(write, 500_000)));
    expect(batches).toEqual(["1 2 3", "4 5"]);
  });

  test("commits next, and in order, what a commit left", async () => {
    const { batches, commit } = commitAtOnce();
    const group = new Batcher<number, number>((writes) => commit(writes).slice(0, 2), limits);
    const all = [1, 2, 3, 4, 5].map((write) => group.submit(write, 10));
    expect(await Promise.all(all)).toEqual([1, 2, 3, 4, 5]);
    expect(batches).toEqual(["1 2 3 4 5", "3 4 5", "5"]);
    expect(group.waiting).toBe(0);
  });

  test("commits a lone client's next write without waiting for the tick", async () => {
    const { batches, group, end } = holdCommits();
    end(0, 1);
    await group.submit(1);
    const next = group.submit(2);
    for (let microtasks = 0; microtasks < 10; microtasks++) await Promise.resolve();
    expect(batches).toEqual(["1", "2"]);
    await next;
  });

  test("commits all writes of a tick together if the commit is synchronous, also after a lone write", async () => {
    const { batches, group } = commitAtOnce();
    await group.submit(1);
    await nextTick();
    await Promise.all([2, 3, 4].map((write) => group.submit(write)));
    expect(batches).toEqual(["1", "2 3 4"]);
  });

  test("waits for the clients that were just answered, a tick and a share of a slow commit", async () => {
    let now = 0;
    const { batches, group, begun, end } = holdCommits({}, { now: () => now });
    const first = group.submit(1);
    await begun(0);
    const second = group.submit(2);
    now = 4_000;
    end(0);
    await first;
    // The second write is queued, and the first client sends again.
    const third = group.submit(3);
    await begun(1);
    expect(batches).toEqual(["1", "2 3"]);
    const fourth = group.submit(4);
    now = 4_100;
    end(1, 2);
    // Both clients are silent from now on. The fourth write does not wait for them for good.
    await Promise.all([second, third, fourth]);
    expect(batches).toEqual(["1", "2 3", "4"]);
  });

  test("waits for clients that were just answered while each tick brings one of them", async () => {
    const { batches, group, end } = holdCommits({}, { now: () => 0 });
    end(0, 1);
    await Promise.all([1, 2, 3, 4, 5].map((write) => group.submit(write)));
    const writes: Promise<number>[] = [];
    for (const write of [6, 7, 8]) {
      writes.push(group.submit(write));
      if (write > 6) await nextTick();
    }
    await Promise.all(writes);
    expect(batches).toEqual(["1 2 3 4 5", "6 7 8"]);
  });

  test("refuses writes that have waited too long, for a commit that has begun and for one that has not", async () => {
    let nowMs = 0;
    const { group, begun, end } = holdCommits({ queueSecondsMax: 0.05 }, { now: () => nowMs });
    const late = group.submit(1);
    nowMs = 30;
    const later = group.submit(2);
    await begun(0);
    const queued = group.submit(3);
    nowMs = 60;
    expect(await rejectionOf(late)).toMatchObject(unavailable);
    expect(Bun.peek.status(later)).toBe("pending");
    nowMs = 85;
    expect(await rejectionOf(queued)).toMatchObject(busy);
    expect(await rejectionOf(later)).toMatchObject(unavailable);
    end(0, 1);
    expect(await group.submit(4)).toBe(8);
  });

  test.each([
    ["how long anyone will wait for it", 2_000, 0, 6_000],
    ["its least time, although its write has waited as long as it may", 5_900, 3_000, 8_900],
  ])("tells each commit %s", async (_what, laterMs, commitMsMin, deadlineMs) => {
    const deadlines: number[] = [];
    let nowMs = 1_000;
    const commit = (writes: readonly number[], deadline: number): number[] => {
      deadlines.push(deadline);
      return [...writes];
    };
    const group = new Batcher(commit, limits, { now: () => nowMs, commitMsMin });
    const first = group.submit(1);
    nowMs = laterMs;
    await first;
    expect(deadlines).toEqual([deadlineMs]);
  });
});

describe("several commits at one time", () => {
  const options = { inFlightMax: 2, keyOf: (write: number) => write % 10 };

  test("are as many as may be, and take what has come meanwhile; the end waits for all", async () => {
    const { batches, group, begun, end } = holdCommits({}, options);
    const first = group.submit(1);
    await begun(0);
    const second = group.submit(2);
    await begun(1);
    const others = [3, 4].map((write) => group.submit(write));
    await nextTick();
    expect(batches).toEqual(["1", "2"]);
    end(1);
    expect(await second).toBe(4);
    await begun(2);
    const closing = group.close();
    end(2);
    expect(await Promise.all(others)).toEqual([6, 8]);
    await nextTick();
    expect(Bun.peek.status(closing)).toBe("pending");
    end(0);
    await closing;
    expect(await first).toBe(2);
    expect(batches).toEqual(["1", "2", "3 4"]);
  });

  test("are not begun for fewer writes than the one under way has, unless that one takes long", async () => {
    let nowMs = 0;
    const { batches, group, begun, end } = holdCommits({}, { ...options, now: () => nowMs });
    const writes = [1, 2].map((write) => group.submit(write));
    await begun(0);
    writes.push(group.submit(3));
    await nextTick();
    expect(batches).toEqual(["1 2"]);
    writes.push(group.submit(4));
    await begun(1);
    end(1);
    await writes[3];
    writes.push(group.submit(5));
    await nextTick();
    expect(batches).toEqual(["1 2", "3 4"]);
    nowMs = 10;
    writes.push(group.submit(6));
    await begun(2);
    expect(batches.at(-1)).toBe("5 6");
    end(0, 2);
    expect(await Promise.all(writes)).toEqual([2, 4, 6, 8, 10, 12]);
  });

  test("are begun for a single write once the one under way takes long, also if no other write comes", async () => {
    const { batches, group, begun, end } = holdCommits({}, options);
    const writes = [1, 2].map((write) => group.submit(write));
    await begun(0);
    writes.push(group.submit(3));
    await begun(1);
    expect(batches).toEqual(["1 2", "3"]);
    end(0, 1);
    expect(await Promise.all(writes)).toEqual([2, 4, 6]);
  });

  test("are never about the same thing, and what is held back keeps its order", async () => {
    const { batches, group, begun, end } = holdCommits({}, options);
    const first = group.submit(1);
    await begun(0);
    const others = [11, 2, 21, 12].map((write) => group.submit(write));
    await begun(1);
    expect(batches).toEqual(["1", "2 12"]);
    end(1, 2);
    await others[1];
    await nextTick();
    expect(batches).toHaveLength(2);
    end(0);
    await Promise.all([first, ...others]);
    expect(batches).toEqual(["1", "2 12", "11 21"]);
  });

  test("go on without an outcome that is known later, except for writes about the same thing", async () => {
    const batches: string[] = [];
    const unknown = Promise.withResolvers<number>();
    const commit = (writes: readonly number[]) => {
      batches.push(writes.join(" "));
      return writes.map((write) => (write === 1 ? unknown.promise : write));
    };
    const group = new Batcher(commit, limits, { ...options, inFlightMax: 1 });
    const first = rejectionOf(group.submit(1));
    expect(await group.submit(2)).toBe(2);
    const same = group.submit(11);
    expect(await group.submit(3)).toBe(3);
    expect(batches).toEqual(["1 2", "3"]);
    const closing = group.close();
    await nextTick();
    expect(Bun.peek.status(closing)).toBe("pending");
    unknown.reject(new Refusal("store_unavailable"));
    expect(await first).toMatchObject(unavailable);
    expect(await same).toBe(11);
    await closing;
    expect(batches).toEqual(["1 2", "3", "11"]);
  });
});

describe("a block of writes", () => {
  test("waits for room in the queue, and has its outcomes in order", async () => {
    const { batches, group } = commitAtOnce({ queueLengthMax: 4 });
    expect(await group.submitAll([1, 2, 3, 4, 5])).toEqual([1, 2, 3, 4, 5]);
    expect(batches).toEqual(["1 2", "3 4", "5"]);
    expect(await group.submitAll([])).toEqual([]);
  });

  test("leaves room in the queue for single writes", async () => {
    const { batches, group } = commitAtOnce({ queueLengthMax: 4 });
    const block = group.submitAll([1, 2, 3, 4, 5, 6]);
    const singles = [7, 8].map((write) => group.submit(write));
    expect(group.waiting).toBe(8);
    await Promise.all([block, ...singles]);
    expect(batches).toEqual(["7 8", "1 2", "3 4", "5 6"]);
  });

  test("fails one write alone, and all of one commit with their reason", async () => {
    const judge = (writes: readonly string[]): (string | Refusal)[] => {
      if (writes.includes("explode")) throw new Refusal("store_unavailable");
      return writes.map((write) => (write === "taken" ? new Refusal("id_taken") : write));
    };
    const group = new Batcher<string, string>(judge, { ...limits, batchLengthMax: 2 });
    const outcomes = await group.submitAll(["a", "taken", "explode", "b", "c"]);
    const taken = { reason: "id_taken" };
    expect(outcomes).toMatchObject(["a", taken, unavailable, unavailable, "c"]);
  });

  test("is refused at once, however many writes have waited too long", async () => {
    const group = new Batcher<number, number>(() => [], { ...limits, queueSecondsMax: 0.05 });
    const outcomes = await group.submitAll(Array.from({ length: 1_000_000 }, () => 1));
    const reasons = new Set(outcomes.map((outcome) => (outcome as Refusal).reason));
    expect([...reasons]).toEqual(["store_busy"]);
  });

  test("fails from the first write that is late to the last, so none overtakes another", async () => {
    const { batches, commit } = commitAtOnce();
    let now = 0;
    const commitSlowly = (writes: readonly number[]): number[] => {
      now += 2_000;
      return commit(writes);
    };
    const group = new Batcher(commitSlowly, { ...limits, queueLengthMax: 2 }, { now: () => now });
    const outcomes = await group.submitAll([1, 2, 3, 4, 5, 6]);
    expect(batches).toEqual(["1", "2", "3"]);
    expect(outcomes).toMatchObject([1, 2, 3, busy, busy, busy]);
  });

  test("ends when its time is over, although no commit ends", async () => {
    let nowMs = 0;
    const short = { queueLengthMax: 2, queueSecondsMax: 0.05 };
    const { group, begun } = holdCommits(short, { now: () => nowMs });
    const outcomes = group.submitAll([1, 2, 3]);
    await begun(0);
    nowMs = 60;
    expect(await outcomes).toMatchObject([unavailable, busy, busy]);
  });

  test("waits for an outcome that is known later", async () => {
    const unknown = Promise.withResolvers<number>();
    const commit = ([_first, ...rest]: readonly number[]) => [unknown.promise, ...rest];
    const group = new Batcher(commit, limits, { keyOf: (write) => write });
    const block = group.submitAll([1, 2]);
    await nextTick();
    unknown.reject(new Refusal("store_unavailable"));
    expect(await block).toMatchObject([unavailable, 2]);
  });

  test("that was accepted is settled before the end, and a later one is refused", async () => {
    const { group } = commitAtOnce({ queueLengthMax: 2 });
    const accepted = group.submitAll([1, 2, 3]);
    const closing = group.close();
    expect(await group.submitAll([4])).toMatchObject([{ reason: "shutting_down" }]);
    await closing;
    expect(await accepted).toEqual([1, 2, 3]);
  });
});
