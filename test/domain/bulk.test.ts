/** Writes of a block that are repeated keep their order. */

import { expect, test } from "bun:test";
import type { Outcome, Upserted } from "../../client/client.ts";
import { plantsOf } from "../../src/cli/store-client.ts";
import { previewBulk, writeBlock } from "../../src/domain/bulk.ts";
import { Refusal } from "../../src/domain/errors.ts";
import type { Plant } from "../../src/domain/plant.ts";
import type { Store, StoreView } from "../../src/domain/store.ts";
import type { PlantWrite } from "../../src/domain/write.ts";
import { defaults } from "../support/limits.ts";

const plant: Plant = { id: 7n, name: "A", tag: undefined };

/** The second write of four fails the first time. */
function makeStore() {
  const calls: bigint[][] = [];
  const writePlants: Store["writePlants"] = async (sent) => {
    calls.push(sent.map(({ id }) => id));
    if (calls.length > 1) return ["replaced", "removed"];
    return ["removed", new Refusal("store_busy"), "removed", "removed"];
  };
  return { store: { writePlants } as Store, calls };
}

test("a write that the store could not take is repeated together with those to the same plant after it", async () => {
  const { store, calls } = makeStore();
  const writes: PlantWrite[] = [
    { kind: "remove", id: 6n, condition: {} },
    { kind: "upsert", id: 7n, plant, condition: {} },
    { kind: "remove", id: 7n, condition: {} },
    { kind: "remove", id: 8n, condition: {} },
  ];
  const retry = async <Result>(attempt: () => Promise<Result>): Promise<Result> =>
    attempt().catch(attempt);
  expect(await writeBlock(store, writes, {}, { retry })).toEqual([
    "removed",
    "replaced",
    "removed",
    "removed",
  ]);
  expect(calls).toEqual([
    [6n, 7n, 7n, 8n],
    [7n, 7n],
  ]);
});

test("so are those of a command, which settles each once", async () => {
  const { store, calls } = makeStore();
  const removed = true;
  const writes = [{ id: 6n, removed }, plant, { id: 7n, removed }, { id: 8n, removed }] as const;
  const settled: [number, Outcome<Upserted>][] = [];
  const settle = (...one: (typeof settled)[number]): void => void settled.push(one);
  await plantsOf(store).upsertBatch(writes, settle, { delaysMs: [1] });
  expect(calls.at(-1)).toEqual([7n, 7n]);
  expect(settled).toEqual([
    [0, "removed"],
    [3, "removed"],
    [1, "replaced"],
    [2, "removed"],
  ]);
});

test("a preview looks up excepted plants together, up to a bound, and each once", async () => {
  const seen: bigint[] = [];
  let [open, most] = [0, 0];
  const store = {
    countPlants: async () => ({ count: 5_000, exact: true }),
    readPlants: () => ({ text: "[]", next: undefined }),
    findPlant: async (id: bigint) => {
      seen.push(id);
      most = Math.max(most, ++open);
      await new Promise(setImmediate);
      open--;
      // Some do not match, and some are not there.
      return id % 4n === 0n ? undefined : { id, name: id % 2n === 0n ? "fern" : "rose", tag: "t" };
    },
  } as unknown as StoreView;
  const ids = Array.from({ length: 2_000 }, (_, id) => BigInt(id));
  const options = {
    signal: new AbortController().signal,
    retry: <Result>(attempt: () => Promise<Result>) => attempt(),
    limits: defaults,
  };
  const bulk = { filter: { name: "rose" }, except: [...ids, ...ids], patch: undefined };
  expect(await previewBulk(store, bulk, options)).toMatchObject({ plants: 4_000 });
  expect(seen).toEqual(ids);
  expect([most > 100, most < 1_000]).toEqual([true, true]);
});
