/** What a revert knows of a plant, from the changes in its range alone. */

import { expect, test } from "bun:test";
import { type Change, listChange } from "../../src/domain/change.ts";
import { openRange, previewRange } from "../../src/domain/revert.ts";
import type { StoreView } from "../../src/domain/store.ts";
import { rejectionOf } from "../support/expect.ts";

const named = (name: string) => ({ id: 1n, name });
const replaced = (seq: number, before: string, after: string): Change => ({
  seq,
  atMs: seq,
  type: "replaced",
  id: 1n,
  by: "till",
  batch: undefined,
  before: named(before),
  plant: named(after),
});

test("a plant that others changed between two changes of the range is left alone, whatever follows", async () => {
  // Between "b" and "c" there is a change that is not in the range.
  const changes = [replaced(1, "a", "b"), replaced(3, "c", "d"), replaced(4, "d", "e")];
  const store = {
    readChanges: async () => ({
      changes: changes.map((change) => listChange(change)),
      last: 4,
      hasMore: false,
    }),
    findPlant: async () => named("e"),
  } as unknown as StoreView;
  const { plants, changedSince } = await previewRange(
    store,
    { after: 0, newest: 4, by: "till" },
    {
      signal: new AbortController().signal,
      retry: (work) => work(),
      revertPlantsMax: 10,
      revertCharactersMax: 1_000,
    },
  );
  expect([plants, changedSince]).toEqual([1, 1]);
});

test("a search through changes that the token cannot see stops when the client leaves", async () => {
  const leaving = new AbortController();
  let pages = 0;
  const store = {
    readChanges: async () => {
      if (++pages === 3) leaving.abort();
      // The end of the journal.
      return { changes: [], last: pages, hasMore: pages < 100, newest: 100 };
    },
  } as unknown as StoreView;
  const opened = openRange(store, { batch: "spring" }, leaving.signal);
  expect(await rejectionOf(opened)).toMatchObject({ name: "AbortError" });
  expect(pages).toBe(3);
});
