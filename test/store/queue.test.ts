/** Group commit: what shares a commit, what waits for the next one, and what is refused meanwhile. */

import { describe, expect, spyOn, test } from "bun:test";
import { resolveConfig } from "../../src/config.ts";
import { Refusal } from "../../src/domain/errors.ts";
import { Queue } from "../../src/store/queue.ts";
import { createWriteQueue } from "../../src/store/write-queue.ts";
import { rejectionOf } from "../support/expect.ts";

const limits = {
  queueLengthMax: 100,
  queueSecondsMax: 5,
  commitLengthMax: 10,
};

type Options = ConstructorParameters<typeof Queue<number, number>>[2];

/** Each commit waits until the test ends it. */
function holdCommits(more: Partial<typeof limits> = {}, options: Options = {}) {
  const commits: string[] = [];
  const held = Array.from({ length: 4 }, () => ({
    begun: Promise.withResolvers<void>(),
    ended: Promise.withResolvers<void>(),
  }));
  const commit = async (writes: readonly number[]): Promise<number[]> => {
    const { begun, ended } = held[commits.push(writes.join(" ")) - 1] as (typeof held)[0];
    begun.resolve();
    await ended.promise;
    return writes.map((write) => write * 2);
  };
  return {
    commits,
    queue: new Queue(commit, { ...limits, ...more }, options),
    begun: async (index: number): Promise<void> => held[index]?.begun.promise,
    /** Also those that have not begun. */
    end: (...indexes: number[]): void => {
      for (const index of indexes) held[index]?.ended.resolve();
    },
  };
}

/** Commits take no time. */
function commitAtOnce(more: Partial<typeof limits> = {}) {
  const commits: string[] = [];
  const commit = (writes: readonly number[]): number[] => {
    commits.push(writes.join(" "));
    return [...writes];
  };
  return { commits, commit, queue: new Queue(commit, { ...limits, ...more }) };
}

/** The event loop has turned: whatever was to happen at once has happened. */
const nextTick = (): Promise<void> => new Promise(setImmediate);
const unavailable = { reason: "store_unavailable" };
const busy = { reason: "store_busy" };

describe("group commit", () => {
  test("puts everything that arrives during a commit into the next one, in order", async () => {
    const { commits, queue, begun, end } = holdCommits();
    expect(queue.waiting).toBe(0);
    const first = queue.submit(1);
    await begun(0);
    const others = [2, 3, 4].map((write) => queue.submit(write));
    await nextTick();
    // No write is settled before its commit has ended.
    expect([Bun.peek.status(first), queue.waiting]).toEqual(["pending", 4]);
    end(0);
    expect(await first).toBe(2);
    await begun(1);
    expect(queue.waiting).toBe(3);
    end(1);
    expect(await Promise.all(others)).toEqual([4, 6, 8]);
    expect([commits, queue.waiting]).toEqual([["1", "2 3 4"], 0]);
  });

  test("answers what is stored, although a hook throws", async () => {
    const apart: (() => void)[] = [];
    using microtask = spyOn(globalThis, "queueMicrotask").mockImplementation((hook) => {
      apart.push(hook);
    });
    const fail = (): never => {
      throw new Error("the hook failed");
    };
    const { commit } = commitAtOnce();
    const queue = new Queue(commit, limits, { onCommit: fail });
    expect(await queue.submit(1)).toBe(1);
    expect(await queue.submitAll([2, 3])).toEqual([2, 3]);
    const tracing = { noteWait: fail, noteCommit: fail };
    const traced = createWriteQueue(
      (writes) => writes.map(() => "created"),
      { ...resolveConfig({}, {}).config, tracing },
      {},
    );
    const plant = { id: 1n, name: "a", tag: undefined };
    const create = { kind: "create", id: 1n, plant, writer: { trace: "t" } } as const;
    expect(await traced.submit(create)).toBe("created");
    expect(microtask).toHaveBeenCalled();
    for (const hook of apart) expect(hook).toThrow("the hook failed");
    // It waited, and was committed.
    expect(apart).toHaveLength(4);
  });

  test("commits no more text at once than leaves others their turn", async () => {
    const { commits, queue } = commitAtOnce();
    await Promise.all([1, 2, 3, 4, 5].map((write) => queue.submit(write, 500_000)));
    expect(commits).toEqual(["1 2 3", "4 5"]);
  });

  test("commits next what a commit left, in order", async () => {
    const { commits, commit } = commitAtOnce();
    const queue = new Queue<number, number>((writes) => commit(writes).slice(0, 2), limits);
    const all = [1, 2, 3, 4, 5].map((write) => queue.submit(write, 10));
    expect(await Promise.all(all)).toEqual([1, 2, 3, 4, 5]);
    expect(commits).toEqual(["1 2 3 4 5", "3 4 5", "5"]);
    expect(queue.waiting).toBe(0);
  });

  test("commits a lone client's next write without waiting for the tick", async () => {
    const { commits, queue, end } = holdCommits();
    end(0, 1);
    await queue.submit(1);
    const next = queue.submit(2);
    for (let microtasks = 0; microtasks < 10; microtasks++) await Promise.resolve();
    expect(commits).toEqual(["1", "2"]);
    await next;
  });

  test("commits all writes of a tick together if the commit is synchronous, also after a lone write", async () => {
    const { commits, queue } = commitAtOnce();
    await queue.submit(1);
    await nextTick();
    await Promise.all([2, 3, 4].map((write) => queue.submit(write)));
    expect(commits).toEqual(["1", "2 3 4"]);
  });

  test("waits for the clients that were just answered, a tick and a share of a slow commit", async () => {
    let now = 0;
    const { commits, queue, begun, end } = holdCommits({}, { now: () => now });
    const first = queue.submit(1);
    await begun(0);
    const second = queue.submit(2);
    now = 4_000;
    end(0);
    await first;
    // The second write is queued, and the first client sends again.
    const third = queue.submit(3);
    await begun(1);
    expect(commits).toEqual(["1", "2 3"]);
    const fourth = queue.submit(4);
    now = 4_100;
    end(1, 2);
    // Both clients are silent from now on. The fourth write does not wait for them for good.
    await Promise.all([second, third, fourth]);
    expect(commits).toEqual(["1", "2 3", "4"]);
  });

  test("waits for clients that were just answered while each tick brings one of them", async () => {
    const { commits, queue, end } = holdCommits({}, { now: () => 0 });
    end(0, 1);
    await Promise.all([1, 2, 3, 4, 5].map((write) => queue.submit(write)));
    const writes: Promise<number>[] = [];
    for (const write of [6, 7, 8]) {
      writes.push(queue.submit(write));
      if (write > 6) await nextTick();
    }
    await Promise.all(writes);
    expect(commits).toEqual(["1 2 3 4 5", "6 7 8"]);
  });

  test("refuses writes that have waited too long, for a commit that has begun and for one that has not", async () => {
    let nowMs = 0;
    const { queue, begun, end } = holdCommits({ queueSecondsMax: 0.05 }, { now: () => nowMs });
    const late = queue.submit(1);
    nowMs = 30;
    const later = queue.submit(2);
    await begun(0);
    const queued = queue.submit(3);
    nowMs = 60;
    expect(await rejectionOf(late)).toMatchObject(unavailable);
    expect(Bun.peek.status(later)).toBe("pending");
    nowMs = 85;
    expect(await rejectionOf(queued)).toMatchObject(busy);
    expect(await rejectionOf(later)).toMatchObject(unavailable);
    end(0, 1);
    expect(await queue.submit(4)).toBe(8);
  });

  test("refuses all writes of a commit that hangs with one refusal, which captures no stack", async () => {
    let nowMs = 0;
    const { queue, begun } = holdCommits({ queueSecondsMax: 0.05 }, { now: () => nowMs });
    const hanging = [1, 2, 3].map((write) => rejectionOf(queue.submit(write)));
    await begun(0);
    nowMs = 60;
    const refusals = new Set((await Promise.all(hanging)) as Error[]);
    expect([refusals.size, [...refusals][0]?.stack]).toEqual([1, undefined]);
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
    const queue = new Queue(commit, limits, { now: () => nowMs, commitMsMin });
    const first = queue.submit(1);
    nowMs = laterMs;
    await first;
    expect(deadlines).toEqual([deadlineMs]);
  });
});

describe("several commits at one time", () => {
  const options = { inFlightMax: 2, keysOf: (write: number) => [write % 10] };

  test("are as many as may be", async () => {
    const { commits, queue, begun, end } = holdCommits({}, options);
    const first = queue.submit(1);
    await begun(0);
    const second = queue.submit(2);
    await begun(1);
    const others = [3, 4].map((write) => queue.submit(write));
    await nextTick();
    expect(commits).toEqual(["1", "2"]);
    end(1);
    expect(await second).toBe(4);
    await begun(2);
    const closing = queue.close();
    end(2);
    expect(await Promise.all(others)).toEqual([6, 8]);
    await nextTick();
    expect(Bun.peek.status(closing)).toBe("pending");
    end(0);
    await closing;
    expect(await first).toBe(2);
    expect(commits).toEqual(["1", "2", "3 4"]);
  });

  test("are not begun for fewer writes than the one under way has, unless that one takes long", async () => {
    let nowMs = 0;
    const { commits, queue, begun, end } = holdCommits({}, { ...options, now: () => nowMs });
    const writes = [1, 2].map((write) => queue.submit(write));
    await begun(0);
    writes.push(queue.submit(3));
    await nextTick();
    expect(commits).toEqual(["1 2"]);
    writes.push(queue.submit(4));
    await begun(1);
    end(1);
    await writes[3];
    writes.push(queue.submit(5));
    await nextTick();
    expect(commits).toEqual(["1 2", "3 4"]);
    nowMs = 10;
    writes.push(queue.submit(6));
    await begun(2);
    expect(commits.at(-1)).toBe("5 6");
    end(0, 2);
    expect(await Promise.all(writes)).toEqual([2, 4, 6, 8, 10, 12]);
  });

  test("are begun for a single write once the one under way takes long, also if no other write comes", async () => {
    const { commits, queue, begun, end } = holdCommits({}, options);
    const writes = [1, 2].map((write) => queue.submit(write));
    await begun(0);
    writes.push(queue.submit(3));
    await begun(1);
    expect(commits).toEqual(["1 2", "3"]);
    end(0, 1);
    expect(await Promise.all(writes)).toEqual([2, 4, 6]);
  });

  test("are never about the same thing", async () => {
    const { commits, queue, begun, end } = holdCommits({}, options);
    const first = queue.submit(1);
    await begun(0);
    const others = [11, 2, 21, 12].map((write) => queue.submit(write));
    await begun(1);
    expect(commits).toEqual(["1", "2 12"]);
    end(1, 2);
    await others[1];
    await nextTick();
    expect(commits).toHaveLength(2);
    end(0);
    await Promise.all([first, ...others]);
    expect(commits).toEqual(["1", "2 12", "11 21"]);
  });

  test("go on without an outcome that is known later, except for writes about the same thing", async () => {
    const commits: string[] = [];
    const unknown = Promise.withResolvers<number>();
    const commit = (writes: readonly number[]) => {
      commits.push(writes.join(" "));
      return writes.map((write) => (write === 1 ? unknown.promise : write));
    };
    const queue = new Queue(commit, limits, { ...options, inFlightMax: 1 });
    const first = rejectionOf(queue.submit(1));
    expect(await queue.submit(2)).toBe(2);
    const same = queue.submit(11);
    expect(await queue.submit(3)).toBe(3);
    expect(commits).toEqual(["1 2", "3"]);
    const closing = queue.close();
    await nextTick();
    expect(Bun.peek.status(closing)).toBe("pending");
    unknown.reject(new Refusal("store_unavailable"));
    expect(await first).toMatchObject(unavailable);
    expect(await same).toBe(11);
    await closing;
    expect(commits).toEqual(["1 2", "3", "11"]);
  });

  test("keep the order of a waiting write with several keys, and of the writes after it", async () => {
    const keysOf = (write: number): number[] => String(write).split("").map(Number);
    const { commits, queue, begun, end } = holdCommits(
      {},
      { inFlightMax: 2, keysOf, now: () => 0 },
    );
    const first = queue.submit(1);
    await begun(0);
    const others = [12, 2, 3].map((write) => queue.submit(write));
    await begun(1);
    expect(commits).toEqual(["1", "3"]);
    end(0, 1, 2, 3);
    await Promise.all([first, ...others]);
    expect(commits).toEqual(["1", "3", "12 2"]);
  });
});

describe("a block of writes", () => {
  test("waits for room in the queue", async () => {
    const { commits, queue } = commitAtOnce({ queueLengthMax: 4 });
    expect(await queue.submitAll([1, 2, 3, 4, 5])).toEqual([1, 2, 3, 4, 5]);
    expect(commits).toEqual(["1 2", "3 4", "5"]);
    expect(await queue.submitAll([])).toEqual([]);
  });

  test("leaves room in the queue for single writes", async () => {
    const { commits, queue } = commitAtOnce({ queueLengthMax: 4 });
    const block = queue.submitAll([1, 2, 3, 4, 5, 6]);
    const singles = [7, 8].map((write) => queue.submit(write));
    expect(queue.waiting).toBe(8);
    await Promise.all([block, ...singles]);
    expect(commits).toEqual(["7 8", "1 2", "3 4", "5 6"]);
  });

  test("fails one write alone, and all of one commit with their reason", async () => {
    const judge = (writes: readonly string[]): (string | Refusal)[] => {
      if (writes.includes("explode")) throw new Refusal("store_unavailable");
      return writes.map((write) => (write === "taken" ? new Refusal("id_taken") : write));
    };
    const queue = new Queue<string, string>(judge, { ...limits, commitLengthMax: 2 });
    const outcomes = await queue.submitAll(["a", "taken", "explode", "b", "c"]);
    const taken = { reason: "id_taken" };
    expect(outcomes).toMatchObject(["a", taken, unavailable, unavailable, "c"]);
  });

  test("is refused at once, however many writes have waited too long", async () => {
    const queue = new Queue<number, number>(() => [], { ...limits, queueSecondsMax: 0.05 });
    const outcomes = await queue.submitAll(Array.from({ length: 1_000_000 }, () => 1));
    const reasons = new Set(outcomes.map((outcome) => (outcome as Refusal).reason));
    expect([...reasons]).toEqual(["store_busy"]);
  });

  test("fails from the first write that is late to the last, so none overtakes another", async () => {
    const { commits, commit } = commitAtOnce();
    let now = 0;
    const commitSlowly = (writes: readonly number[]): number[] => {
      now += 2_000;
      return commit(writes);
    };
    const queue = new Queue(commitSlowly, { ...limits, queueLengthMax: 2 }, { now: () => now });
    const outcomes = await queue.submitAll([1, 2, 3, 4, 5, 6]);
    expect(commits).toEqual(["1", "2", "3"]);
    expect(outcomes).toMatchObject([1, 2, 3, busy, busy, busy]);
  });

  test("ends when its time is over, although no commit ends", async () => {
    let nowMs = 0;
    const short = { queueLengthMax: 2, queueSecondsMax: 0.05 };
    const { queue, begun } = holdCommits(short, { now: () => nowMs });
    const outcomes = queue.submitAll([1, 2, 3]);
    await begun(0);
    nowMs = 60;
    expect(await outcomes).toMatchObject([unavailable, busy, busy]);
  });

  test("waits for an outcome that is known later", async () => {
    const unknown = Promise.withResolvers<number>();
    const commit = ([_first, ...rest]: readonly number[]) => [unknown.promise, ...rest];
    const queue = new Queue(commit, limits, { keysOf: (write) => [write] });
    const block = queue.submitAll([1, 2]);
    await nextTick();
    unknown.reject(new Refusal("store_unavailable"));
    expect(await block).toMatchObject([unavailable, 2]);
  });

  test("that was accepted is settled before the end", async () => {
    const { queue } = commitAtOnce({ queueLengthMax: 2 });
    const accepted = queue.submitAll([1, 2, 3]);
    const closing = queue.close();
    expect(await queue.submitAll([4])).toMatchObject([{ reason: "shutting_down" }]);
    await closing;
    expect(await accepted).toEqual([1, 2, 3]);
  });
});
