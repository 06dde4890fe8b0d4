/** The types of changes that a client asks for, when an event about one has arrived, and how long changes are counted. */

import { expect, test } from "bun:test";
import { type ChangeCount, type ChangeQuery, findChangeTypes } from "../../src/domain/change.ts";
import { countChanges } from "../../src/domain/change-count.ts";
import { hasSucceeded } from "../../src/domain/webhook.ts";

test("types are a list of known ones, at least one, each once", () => {
  const good = [["created"], ["removed", "created", "replaced"]];
  const bad = [[], ["created", "created"], ["created", "eaten"], "created", undefined];
  expect([...good, ...bad].map(findChangeTypes).filter(Boolean) as unknown).toEqual(good);
});

test("an event has arrived if the answer was 2xx", () => {
  const attempt = { event: "msg_1", time: "", durationMs: 0, error: null, answer: null };
  const isSuccess = (status: number | null) => hasSucceeded({ ...attempt, status });
  expect([null, 199, 200, 204, 299, 300, 500].filter(isSuccess)).toEqual([200, 204, 299]);
});

test("a long count ends after about a second, and says where it continues", async () => {
  const groupOf = (by: string, seq: number): ChangeCount => ({
    startMs: undefined,
    by,
    batch: undefined,
    created: 1,
    replaced: 0,
    removed: 0,
    first: seq,
    firstMs: seq,
    last: seq,
    lastMs: seq,
  });
  const pieces = [groupOf("Anna", 9), groupOf("Ben", 8), groupOf("Ben", 7)];
  const asked: unknown[] = [];
  let nowMs = 0;
  const store = {
    readChanges: async ({ after, limit }: ChangeQuery) => {
      asked.push([after, limit]);
      nowMs += 600;
      const piece = pieces[asked.length - 1] as ChangeCount;
      return { changes: [], counts: [piece], last: piece.first, hasMore: true, newest: 9 };
    },
  };
  const query = { count: { group: ["by"], everyMs: undefined }, after: 0, limit: 100 } as const;
  const { counts, next } = await countChanges(store, query, () => nowMs);
  expect(counts).toEqual(pieces.slice(0, 2));
  expect(next).toBe(8);
  expect(asked).toEqual([
    [0, 100],
    [9, 99],
  ]);
});
