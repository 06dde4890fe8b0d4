/** Blocks of writes: the lines of a batch. */

import { describe, expect, test } from "bun:test";
import { Refusal } from "../src/domain/errors.ts";
import { Batcher, type Commit } from "../src/store/batcher.ts";

const limits = {
  queueLengthMax: 100,
  queueSecondsMax: 5,
  batchLengthMax: 10,
  bodyBytesTotalMax: 1_000_000,
};

/** A commit that waits until it is let go, and remembers its batches. */
function heldCommit() {
  const batches: number[][] = [];
  const gates: PromiseWithResolvers<void>[] = [];
  const started: PromiseWithResolvers<void>[] = [Promise.withResolvers()];
  const commit: Commit<number, number> = async (writes) => {
    batches.push([...writes]);
    const gate = Promise.withResolvers<void>();
    gates.push(gate);
    started.at(-1)?.resolve();
    started.push(Promise.withResolvers());
    await gate.promise;
    return writes.map((write) => write * 2);
  };
  return { batches, gates, started, commit };
}

describe("a block of writes", () => {
  test("waits for room in the queue, is judged in order, and has one promise", async () => {
    const batches: number[][] = [];
    const group = new Batcher<number, number>(
      (writes) => {
        batches.push([...writes]);
        return writes.map((write) => write * 2);
      },
      { ...limits, queueLengthMax: 4 },
    );
    const outcomes = await group.submitAll([1, 2, 3, 4, 5]);
    expect(outcomes).toEqual([2, 4, 6, 8, 10]);
    expect(batches).toEqual([[1, 2], [3, 4], [5]]);
    expect(await group.submitAll([])).toEqual([]);
  });

  test("leaves room in the queue for single writes", async () => {
    const batches: number[][] = [];
    const group = new Batcher<number, number>(
      (writes) => {
        batches.push([...writes]);
        return [...writes];
      },
      { ...limits, queueLengthMax: 4 },
    );
    const block = group.submitAll([1, 2, 3, 4, 5, 6]);
    const singles = [7, 8].map((write) => group.submit(write));
    expect(group.waiting).toBe(8);
    await Promise.all([block, ...singles]);
    expect(batches).toEqual([
      [7, 8],
      [1, 2],
      [3, 4],
      [5, 6],
    ]);
  });

  test("waits for room for its text, and takes one text however long", async () => {
    const sizes: number[] = [];
    const group = new Batcher<number, number>(
      (writes) => {
        sizes.push(writes.length);
        return [...writes];
      },
      { ...limits, bodyBytesTotalMax: 100 },
    );
    await group.submitAll([1, 2, 3, 4], [500, 20, 30, 1]);
    expect(sizes).toEqual([1, 2, 1]);
  });

  test("fails one write alone, and all of one commit with their reason", async () => {
    const group = new Batcher<string, string>(
      (writes) => {
        if (writes.includes("explode")) throw new Refusal("store_unavailable");
        return writes.map((write) => (write === "taken" ? new Refusal("id_taken") : write));
      },
      { ...limits, batchLengthMax: 2 },
    );
    expect(await group.submitAll(["a", "taken", "explode", "b", "c"])).toMatchObject([
      "a",
      { reason: "id_taken" },
      { reason: "store_unavailable" },
      { reason: "store_unavailable" },
      "c",
    ]);
  });

  test("is refused at once, however many writes have waited too long", async () => {
    const group = new Batcher<number, number>(() => [], { ...limits, queueSecondsMax: 0.05 });
    const outcomes = await group.submitAll(Array.from({ length: 1_000_000 }, () => 1));
    expect(new Set(outcomes.map((outcome) => (outcome as Refusal).reason))).toEqual(
      new Set(["store_busy"]),
    );
  });

  test("fails from the first write that is late to the last, so none overtakes another", async () => {
    let now = 0;
    const batches: number[][] = [];
    const group = new Batcher<number, number>(
      (writes) => {
        batches.push([...writes]);
        now += 2_000;
        return [...writes];
      },
      { ...limits, queueLengthMax: 2 },
      { now: () => now },
    );
    const outcomes = await group.submitAll([1, 2, 3, 4, 5, 6]);
    expect(batches).toEqual([[1], [2], [3]]);
    expect(outcomes.slice(0, 3)).toEqual([1, 2, 3]);
    expect(outcomes.slice(3)).toMatchObject([4, 5, 6].map(() => ({ reason: "store_busy" })));
  });

  test("ends when its time is over, although no commit ends", async () => {
    const { started, commit, gates } = heldCommit();
    const group = new Batcher(commit, { ...limits, queueLengthMax: 2, queueSecondsMax: 0.05 });
    const outcomes = await group.submitAll([1, 2, 3]);
    expect(outcomes).toMatchObject([
      { reason: "store_unavailable" },
      { reason: "store_busy" },
      { reason: "store_busy" },
    ]);
    await started[0]?.promise;
    gates[0]?.resolve();
    await group.close();
  });

  test("waits for an outcome that is known later", async () => {
    const unknown = Promise.withResolvers<number>();
    const group = new Batcher<number, number>(
      (writes) => writes.map((write) => (write === 1 ? unknown.promise : write)),
      limits,
      { keyOf: (write) => write },
    );
    const block = group.submitAll([1, 2]);
    await new Promise(setImmediate);
    unknown.reject(new Refusal("store_unavailable"));
    expect(await block).toMatchObject([{ reason: "store_unavailable" }, 2]);
  });

  test("that was accepted is settled before the end, and a later one is refused", async () => {
    const group = new Batcher<number, number>((writes) => [...writes], {
      ...limits,
      queueLengthMax: 2,
    });
    const accepted = group.submitAll([1, 2, 3]);
    const closing = group.close();
    expect(await group.submitAll([4])).toMatchObject([{ reason: "shutting_down" }]);
    await closing;
    expect(await accepted).toEqual([1, 2, 3]);
  });
});
