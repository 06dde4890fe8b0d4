/** How plantstore copy treats plants, between any two stores and past their failures. */

import { describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import {
  copyPlants,
  copyWebhooks,
  createReport,
  type Report,
  StoresDiffer,
} from "../../src/cli/copy.ts";
import { resolveConfig } from "../../src/config.ts";
import { Refusal } from "../../src/domain/errors.ts";
import type { Plant } from "../../src/domain/plant.ts";
import type { Store } from "../../src/domain/store.ts";
import { webhookActions } from "../../src/webhooks/manage.ts";
import { anyPlant } from "../support/arbitrary.ts";
import { openStoreAt } from "../support/database.ts";
import { rejectionOf } from "../support/expect.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { seed } from "../support/random.ts";
import { everything, toExact } from "../support/plants.ts";
import { runsFactor } from "../support/long.ts";

const { config } = resolveConfig({}, {});

async function openStores() {
  const stack = new AsyncDisposableStack();
  const { path } = stack.use(makeTemporaryFolder());
  const from = stack.use(await openStoreAt(`sqlite:${path}/from.db`));
  const to = stack.use(await openStoreAt(`sqlite:${path}/to.db`));
  return { from, to, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

/** The same store, but for some of what it does. */
const but = (store: Store, other: Partial<Store>): Store =>
  new Proxy(store, {
    get(target, name) {
      const found: unknown = Reflect.get(other, name) ?? Reflect.get(target, name, target);
      return typeof found === "function" ? (found.bind(target) as unknown) : found;
    },
  });

/** Small pages, so few plants make many of them. */
const inPagesOf = (store: Store, limit: number): Store =>
  but(store, { listPlants: (query) => store.listPlants({ ...query, limit }) });

const readAll = async (store: Store): Promise<readonly Plant[]> =>
  toExact((await store.listPlants(everything)).plants);

async function copy(from: Store, to: Store): Promise<Report> {
  const report = createReport();
  const { signal } = new AbortController();
  await copyPlants(from, to, report, { signal, delaysMs: [1, 1, 1] });
  return report;
}

const plant = (id: number, name = "a"): Plant => ({ id: BigInt(id), name, tag: undefined });

/** Few ids and little text, so many plants are in both stores, and some of them are the same. */
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
  test("between any two stores", async () => {
    await using stores = await openStores();
    const reset = async (store: Store, plants: readonly Plant[]): Promise<void> => {
      const old = await readAll(store);
      await Promise.all(old.map(({ id }) => store.removePlant(id, {})));
      await Promise.all(plants.map((one) => store.createPlant(one)));
    };
    const pageLength = fc.integer({ min: 1, max: 8 });
    await fc.assert(
      fc.asyncProperty(anyPlants, anyPlants, pageLength, pageLength, async (from, to, m, n) => {
        await Promise.all([reset(stores.from, from), reset(stores.to, to)]);
        const copying = copy(inPagesOf(stores.from, m), inPagesOf(stores.to, n));
        const outcome = await copying.catch((error: unknown) => error);
        const found = new Map(to.map((one) => [one.id, one]));
        const first = from.find((one) => {
          const other = found.get(one.id);
          return other !== undefined && !Bun.deepEquals(one, other);
        });
        expect(await readAll(stores.from)).toEqual(from);
        const after = await readAll(stores.to);
        // Whatever happens, the target keeps what it held.
        for (const one of to) expect(after).toContainEqual(one);
        if (first !== undefined) {
          expect(outcome).toBeInstanceOf(StoresDiffer);
          expect((outcome as Error).message).toContain(`under the id ${first.id}`);
          return;
        }
        const union = [...from.filter(({ id }) => !found.has(id)), ...to];
        expect(after).toEqual(union.toSorted((one, other) => (one.id < other.id ? -1 : 1)));
        const present = from.filter(({ id }) => found.has(id)).length;
        expect(outcome).toMatchObject({
          plants: { copied: from.length - present, present },
          verification: {
            equal: union.length === from.length,
            from: { count: from.length },
            to: { count: union.length },
          },
        });
      }),
      { seed, numRuns: 30 * runsFactor },
    );
  });

  test("continues after a store was busy, gone or full, and after writes that were done and answered as refused", async () => {
    await using stores = await openStores();
    const { from, to } = stores;
    const plants = [plant(1), plant(2), plant(3)];
    await Promise.all(plants.map((one) => from.createPlant(one)));
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
    const troubled = but(to, {
      listPlants: failing("store_unavailable", (query) => to.listPlants(query)),
      createPlants: failing("overloaded", (some) => to.createPlants(some)),
    });
    const busy = but(from, {
      listPlants: failing("store_busy", (query) => from.listPlants(query)),
    });
    const { plants: tally, verification } = await copy(busy, troubled);
    // The answers that were lost come back as replays.
    expect(tally).toEqual({ copied: 0, present: 3 });
    expect(verification?.equal).toBe(true);
    expect(failures).toBe(6);
    expect(await readAll(to)).toEqual(plants);
  });

  test("gives up after four tries at a store that stays away, and after one at a defect", async () => {
    await using stores = await openStores();
    await stores.from.createPlant(plant(1));
    for (const error of [new Refusal("store_unavailable"), new Error("defect")]) {
      let tries = 0;
      const createPlants = async (): Promise<never> => {
        tries++;
        throw error;
      };
      expect(await rejectionOf(copy(stores.from, but(stores.to, { createPlants })))).toBe(error);
      expect(tries).toBe(error instanceof Refusal ? 4 : 1);
    }
  });

  test("notices a plant that was removed from the target, or added to the source, meanwhile", async () => {
    await using stores = await openStores();
    const { from, to } = stores;
    await Promise.all([plant(1), plant(2)].map((one) => from.createPlant(one)));
    const meddledWith = (store: Store, meddle: () => Promise<unknown>): Store =>
      but(store, {
        listPlants: async (query) => {
          await meddle();
          return store.listPlants(query);
        },
      });
    const target = meddledWith(to, () => to.removePlant(1n, {}).catch(() => undefined));
    expect(copy(from, target)).rejects.toThrow("to.db was written to during the copy");
    // Lower ids than all others: the copy has passed them when it sees them.
    let id = 0;
    const source = inPagesOf(
      meddledWith(from, () => from.createPlant(plant(--id))),
      1,
    );
    expect(copy(source, to)).rejects.toThrow("from.db was written to during the copy");
  });
});

test("a webhook is copied although another instance adds one at the same moment", async () => {
  await using stores = await openStores();
  const { from, to } = stores;
  await webhookActions.add({ store: from, confinement: "whole store", config }, "", {
    url: "https://shop.example/",
  });
  let refusals = 2;
  const contended = but(to, {
    addWebhook: async (webhook) => {
      if (refusals-- > 0) throw new Refusal("store_busy");
      return to.addWebhook(webhook);
    },
  });
  const report = createReport();
  await copyWebhooks(from, contended, report);
  expect(report.webhooks).toEqual({ copied: 1, present: 0 });
  await copyWebhooks(from, to, report);
  expect(report.webhooks).toEqual({ copied: 0, present: 1 });
  expect((await to.listWebhooks()).map(({ name }) => name)).toEqual(["shop.example"]);
});
