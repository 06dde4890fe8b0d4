/** The merge behind plantstore copy, on any two stores: equal with --force, the union without. */

import { describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import { copyPlants, type PlantTally } from "../src/cli/copy-plants.ts";
import { Side } from "../src/cli/copy-side.ts";
import { sumUp } from "../src/cli/copy-verify.ts";
import { resolveConfig } from "../src/config.ts";
import { Refusal } from "../src/domain/errors.ts";
import { ALWAYS, type Plant } from "../src/domain/plant.ts";
import type { Store } from "../src/domain/store.ts";
import { openStore } from "../src/store/open.ts";
import { anyPlant } from "./support/arbitrary.ts";
import { rejectionOf } from "./support/expect.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { seed } from "./support/random.ts";

const { config } = resolveConfig({}, {});
const runsFactor = Number(process.env["PLANTSTORE_TEST_RUNS"] ?? 1);

interface Stores extends AsyncDisposable {
  readonly from: Store;
  readonly to: Store;
}

async function openStores(): Promise<Stores> {
  const folder = makeTemporaryFolder();
  const [from, to] = await Promise.all(
    ["from", "to"].map((name) => openStore(`sqlite:${folder.path}/${name}.db`, config)),
  );
  if (from === undefined || to === undefined) throw new Error("two were opened");
  return {
    from,
    to,
    async [Symbol.asyncDispose]() {
      await Promise.all([from.close(), to.close()]);
      folder[Symbol.dispose]();
    },
  };
}

/** The same store, but for some of what it does. */
const but = (store: Store, other: Partial<Store>): Store =>
  new Proxy(store, {
    get(target, name) {
      const found: unknown = Reflect.get(other, name) ?? Reflect.get(target, name, target);
      return typeof found === "function" ? (found.bind(target) as unknown) : found;
    },
  });

/** Pages of so many plants at most, so that few make many pages. */
const inPagesOf = (store: Store, limit: number): Store =>
  but(store, { listPlants: (query) => store.listPlants({ ...query, limit }) });

async function readAll(store: Store): Promise<readonly Plant[]> {
  const plants: Plant[] = [];
  for await (const page of toSide(store).walkPages()) plants.push(...page);
  return plants;
}

function toSide(store: Store, setbacks: string[] = [], delaysMs = [1, 1, 1]): Side {
  const { signal } = new AbortController();
  return new Side(store, { signal, onRetry: ({ message }) => setbacks.push(message), delaysMs });
}

interface Copied {
  readonly tally: PlantTally;
  readonly differences: string[];
  readonly isVerified: boolean;
}

async function copy(from: Side, to: Side, isForced = false): Promise<Copied> {
  const tally = { copied: 0, present: 0, replaced: 0, removed: 0, different: 0, extra: 0 };
  const differences: string[] = [];
  const onDifference = (id: bigint, what: string) => differences.push(`${id} ${what}`);
  const parts = { from, to, isForced, limits: config, tally, onDifference };
  const expected = await copyPlants(parts);
  const found = await sumUp(from, to, { from: 0, to: 0 });
  return { tally, differences, isVerified: Bun.deepEquals(expected, found) };
}

const plant = (id: number, name = "a"): Plant => ({ id: BigInt(id), name, tag: undefined });

/** Few ids, so that many are in both; and little text, so that some of those are the same. */
const anyPlants = fc
  .uniqueArray(
    fc.oneof(
      fc.record({
        id: fc.oneof(
          fc.bigInt({ min: -6n, max: 6n }),
          fc.constantFrom(-(2n ** 63n), 2n ** 63n - 1n, 2n ** 53n + 1n),
        ),
        name: fc.constantFrom("", "a", "A", "é", "e\u0301"),
        tag: fc.constantFrom(undefined, "", "a"),
      }),
      anyPlant.map(({ id, name, tag }) => ({ id, name, tag: tag ?? undefined })),
    ),
    { selector: ({ id }) => id, maxLength: 20 },
  )
  .map((plants) => plants.toSorted((one, other) => (one.id < other.id ? -1 : 1)));

describe("copying plants", () => {
  test.each([true, false])(
    "between any two stores, forced: %p",
    async (isForced) => {
      await using stores = await openStores();
      const reset = async (store: Store, plants: readonly Plant[]): Promise<void> => {
        const old = await readAll(store);
        await Promise.all(old.map(({ id }) => store.removePlant(id, ALWAYS)));
        await Promise.all(plants.map((one) => store.createPlant(one)));
      };
      const pageLength = fc.integer({ min: 1, max: 8 });
      await fc.assert(
        fc.asyncProperty(anyPlants, anyPlants, pageLength, pageLength, async (from, to, m, n) => {
          await Promise.all([reset(stores.from, from), reset(stores.to, to)]);
          const [ours, theirs] = [inPagesOf(stores.from, m), inPagesOf(stores.to, n)];
          const copied = await copy(toSide(ours), toSide(theirs), isForced);
          expect(copied.isVerified).toBe(true);
          expect(await readAll(stores.from)).toEqual(from);
          const fromIds = new Set(from.map(({ id }) => id));
          const toIds = new Set(to.map(({ id }) => id));
          const union = [...from.filter(({ id }) => !toIds.has(id)), ...to].toSorted(
            (one, other) => (one.id < other.id ? -1 : 1),
          );
          expect(await readAll(stores.to)).toEqual(isForced ? from : union);
          const present = from.filter((one) => to.some((other) => Bun.deepEquals(one, other)));
          const changed = from.filter(({ id }) => toIds.has(id)).length - present.length;
          const extra = to.filter(({ id }) => !fromIds.has(id)).length;
          expect(copied.tally).toEqual({
            copied: from.length - changed - present.length,
            present: present.length,
            replaced: isForced ? changed : 0,
            removed: isForced ? extra : 0,
            different: isForced ? 0 : changed,
            extra: isForced ? 0 : extra,
          });
        }),
        { seed, numRuns: 60 * runsFactor },
      );
    },
    60_000 * Math.max(1, runsFactor),
  );

  test("goes on after a store that was busy, gone or full, and after writes that were done though refused", async () => {
    await using stores = await openStores();
    const fromPlants = [plant(1), plant(2), plant(3, "new")];
    await Promise.all(fromPlants.map((one) => stores.from.createPlant(one)));
    await Promise.all([plant(3, "old"), plant(4)].map((one) => stores.to.createPlant(one)));
    let failures = 0;
    /** Each fails twice: the first time before it is done, and then after it. */
    const failing = <Args extends unknown[], Result>(
      reason: Refusal["reason"],
      use: (...args: Args) => Promise<Result>,
    ) => {
      const tries = new Map<string, number>();
      return async (...args: Args): Promise<Result> => {
        const key = Bun.inspect(args[0]);
        const tried = tries.get(key) ?? 0;
        tries.set(key, tried + 1);
        if (tried > 1) return use(...args);
        failures++;
        if (tried === 1) await use(...args);
        throw new Refusal(reason);
      };
    };
    const { from, to } = stores;
    const to2 = but(to, {
      listPlants: failing("store_unavailable", (query) => to.listPlants(query)),
      createPlant: failing("store_unavailable", (one) => to.createPlant(one)),
      replacePlant: failing("overloaded", (one, condition) => to.replacePlant(one, condition)),
      removePlant: failing("store_busy", (id, condition) => to.removePlant(id, condition)),
    });
    const setbacks: string[] = [];
    const { tally, isVerified } = await copy(toSide(from), toSide(to2, setbacks), true);
    expect(tally).toMatchObject({ copied: 2, replaced: 1, removed: 1, different: 0, extra: 0 });
    expect([isVerified, failures]).toEqual([true, 10]);
    expect(await readAll(to)).toEqual(fromPlants);
    expect(setbacks[0]).toMatch(/The store cannot write or read/);
  });

  test("gives up on a store that stays away, in words; and at once on a defect", async () => {
    await using stores = await openStores();
    await stores.from.createPlant(plant(1));
    const failingAs = (error: Error): Side => {
      const createPlant = async (): Promise<never> => {
        throw error;
      };
      return toSide(but(stores.to, { createPlant }));
    };
    const gone = failingAs(new Refusal("store_unavailable"));
    expect(await rejectionOf(copy(toSide(stores.from), gone))).toMatchObject({
      reason: "store_unavailable",
    });
    const defect = new Error("defect");
    expect(await rejectionOf(copy(toSide(stores.from), failingAs(defect)))).toBe(defect);
  });

  test.each([true, false])(
    "leaves alone what someone else changes meanwhile, forced: %p",
    async (isForced) => {
      await using stores = await openStores();
      const { from, to } = stores;
      await Promise.all([plant(1), plant(2), plant(4)].map((one) => from.createPlant(one)));
      await Promise.all([plant(2, "b"), plant(3, "c")].map((one) => to.createPlant(one)));
      let isMeddling = true;
      // After it has been read, and before anything is written.
      const meddled = but(to, {
        listPlants: async (query) => {
          const page = await to.listPlants(query);
          if (!isMeddling) return page;
          isMeddling = false;
          await to.createPlant(plant(1, "theirs"));
          await to.replacePlant(plant(2, "theirs"), ALWAYS);
          await to.replacePlant(plant(3, "theirs"), ALWAYS);
          return page;
        },
      });
      const { differences, isVerified } = await copy(toSide(from), toSide(meddled), isForced);
      expect(differences.toSorted()).toEqual(["1 different", "2 different", "3 extra"]);
      expect(isVerified).toBe(false);
      expect(await readAll(to)).toEqual([...[1, 2, 3].map((id) => plant(id, "theirs")), plant(4)]);
    },
  );
});
