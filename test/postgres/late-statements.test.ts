/** Statements that reach the server after they were given up: they undo nothing that was done since. */

import type { Store } from "../../src/domain/store.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { SQL } from "bun";
import type { Refusal } from "../../src/domain/errors.ts";
import { rejectionOf } from "../support/expect.ts";
import type { StoredPlant } from "../support/plants.ts";
import { sharedPostgres } from "../support/postgres-server.ts";
import { type DisturbedService, startDisturbed } from "../support/proxy.ts";
import { sendPlant } from "../support/service.ts";
import { limits } from "../support/limits.ts";
import { until } from "../support/until.ts";

const INSERT = "INSERT INTO plants ";
const CHANGE = "WITH wanted";

type Caught = Awaited<ReturnType<DisturbedService["proxy"]["holdStatement"]>>;

let disturbed: DisturbedService;
beforeAll(async () => {
  disturbed = await startDisturbed({
    settings: { ...limits({ statementSecondsMax: 1, queueSecondsMax: 2 }) },
  });
});
afterAll(() => disturbed[Symbol.asyncDispose]());
beforeEach(async () => void (await disturbed.run("DELETE FROM plants")));

const fern = (id: bigint, name = "fern"): StoredPlant => ({ id, name, tag: null });

const create = async (id: bigint): Promise<number> =>
  (await sendPlant(disturbed.service.url, fern(id))).status;

const put = async (id: bigint, name: string): Promise<number> =>
  (await disturbed.send("PUT", `/plants/${id}`, { body: JSON.stringify({ name }) })).status;

const remove = async (id: bigint): Promise<number> =>
  (await disturbed.send("DELETE", `/plants/${id}`)).status;

describe("a statement that was held up on its way", () => {
  for (const [kind, loseTime] of [
    ["and given up", () => undefined],
    ["and whose connection was lost", (caught: Caught) => caught.cutClient()],
  ] as const) {
    test(`${kind}, does not bring a plant back that was created by a retry and removed since`, async () => {
      const caught = disturbed.proxy.holdStatement(INSERT);
      const created = create(1n);
      const connection = await caught;
      await connection.whole;
      loseTime(connection);
      expect(await created).toBe(503);
      expect(await create(1n)).toBe(200);
      expect(await remove(1n)).toBe(204);
      connection.release();
      await connection.served;
      expect(await disturbed.readPlants()).toEqual([]);
    });

    test(`${kind}, does not make a change that others have undone since`, async () => {
      await disturbed.run("INSERT INTO plants VALUES (1, 'fern', NULL)");
      const caught = disturbed.proxy.holdStatement(CHANGE);
      const replaced = put(1n, "bracken");
      const connection = await caught;
      await connection.whole;
      loseTime(connection);
      expect(await replaced).toBe(503);
      expect(await put(1n, "bracken")).toBe(200);
      expect(await put(1n, "fern")).toBe(200);
      connection.release();
      await connection.served;
      expect(await disturbed.readPlants()).toEqual([fern(1n)]);
    });
  }
});

/** A transaction that has touched a plant and does not end until it is released. */
async function hold(statement: string): Promise<AsyncDisposable> {
  const db = new SQL((await sharedPostgres()).urlOf(disturbed.database), { max: 1, tls: false });
  await db.unsafe("BEGIN");
  await db.unsafe(statement);
  return {
    async [Symbol.asyncDispose]() {
      await db.unsafe("ROLLBACK");
      await db.close();
      // Statements that waited for it are done when nothing is under way any more.
      await until("no statement is under way", async () => (await countActive()) === 0);
    },
  };
}

async function countActive(): Promise<number> {
  const rows = await disturbed.run(
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()",
  );
  return rows.length;
}

/** Asked for in one tick, they share a statement. */
async function refusalsOf(...writes: Promise<unknown>[]): Promise<unknown[]> {
  const refusals = await Promise.all(writes.map(rejectionOf));
  return refusals.map((refusal) => (refusal as Refusal).reason);
}

/** After a commit of two writes, the next two share a commit. */
const expectTwo = (store: Store): Promise<unknown> =>
  store.createPlants([8n, 9n].map((id) => ({ id, name: "primer", tag: undefined })));

describe("a statement that has begun and waits for another transaction", () => {
  const unavailable = ["store_unavailable", "store_unavailable"];

  test("does not bring a plant back that was created by another request and removed since", async () => {
    const { store } = disturbed.service;
    await expectTwo(store);
    {
      await using held = new AsyncDisposableStack();
      held.use(await hold("INSERT INTO plants VALUES (1, 'held', NULL)"));
      const writes = [1n, 2n].map((id) => store.createPlant({ id, name: "fern", tag: undefined }));
      expect(await refusalsOf(...writes)).toEqual(unavailable);
      expect(await create(2n)).toBe(200);
      expect(await remove(2n)).toBe(204);
    }
    expect(await disturbed.readPlants()).not.toContainEqual(fern(2n));
  });

  test("does not make a change that others have undone since", async () => {
    const { store } = disturbed.service;
    await disturbed.run("INSERT INTO plants VALUES (1, 'fern', NULL), (2, 'fern', NULL)");
    await expectTwo(store);
    {
      await using held = new AsyncDisposableStack();
      held.use(await hold("SELECT FROM plants WHERE id = 1 FOR UPDATE"));
      const writes = [1n, 2n].map((id) =>
        store.replacePlant({ id, name: "bracken", tag: undefined }, {}),
      );
      expect(await refusalsOf(...writes)).toEqual(unavailable);
      expect(await put(2n, "bracken")).toBe(200);
      expect(await put(2n, "fern")).toBe(200);
    }
    expect(await disturbed.readPlants()).toContainEqual(fern(2n));
  });
});
