/** Statements that come through when everyone has given up on them: they undo nothing that was done since. */

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { SQL } from "bun";
import type { Refusal } from "../../src/domain/errors.ts";
import { ALWAYS } from "../../src/domain/plant.ts";
import { rejectionOf } from "../support/expect.ts";
import type { StoredPlant } from "../support/plants.ts";
import { sharedPostgres } from "../support/postgres-server.ts";
import { type DisturbedService, startDisturbed } from "../support/proxy.ts";
import { sendPlant } from "../support/service.ts";
import { limits } from "../support/limits.ts";

const INSERT = "INSERT INTO plants ";
const APPLY = "WITH wanted";

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
  test("does not bring a plant back that was created by another attempt and removed since", async () => {
    const caught = disturbed.proxy.holdStatement(INSERT);
    const created = create(1n);
    const connection = await caught;
    await connection.whole;
    // The attempt is given up after a second; the next one succeeds.
    expect(await created).toBe(200);
    expect(await remove(1n)).toBe(204);
    connection.release();
    await connection.served;
    expect(await disturbed.readPlants()).toEqual([]);
  });

  test("does not make a change a second time that another attempt has made", async () => {
    await disturbed.run("INSERT INTO plants VALUES (1, 'fern', NULL)");
    const caught = disturbed.proxy.holdStatement(APPLY);
    const replaced = put(1n, "bracken");
    const connection = await caught;
    await connection.whole;
    expect(await replaced).toBe(200);
    expect(await put(1n, "fern")).toBe(200);
    connection.release();
    await connection.served;
    expect(await disturbed.readPlants()).toEqual([fern(1n)]);
  });

  test("does not bring it back even while it is valid, because its key was taken", async () => {
    const caught = disturbed.proxy.holdStatement(INSERT);
    const created = create(1n);
    const connection = await caught;
    await connection.whole;
    connection.cutClient();
    expect(await created).toBe(200);
    expect(await remove(1n)).toBe(204);
    connection.release();
    await connection.served;
    expect(await disturbed.readPlants()).toEqual([]);
  });

  test("does not change it even while it is valid, because its key was taken", async () => {
    await disturbed.run("INSERT INTO plants VALUES (1, 'fern', NULL)");
    const caught = disturbed.proxy.holdStatement(APPLY);
    const replaced = put(1n, "bracken");
    const connection = await caught;
    await connection.whole;
    connection.cutClient();
    expect(await replaced).toBe(200);
    expect(await put(1n, "fern")).toBe(200);
    connection.release();
    await connection.served;
    expect(await disturbed.readPlants()).toEqual([fern(1n)]);
  });

  test("does not bring a plant back although nobody had the time to take its key", async () => {
    await disturbed.run(
      `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$`,
    );
    await disturbed.run("CREATE TRIGGER fail BEFORE INSERT ON plants EXECUTE FUNCTION fail()");
    const startedAtMs = performance.now();
    const created = create(1n);
    // Attempts are half a second apart by now, and the next one is too late to be followed by another.
    await Bun.sleep(1_200);
    const caught = disturbed.proxy.holdStatement(INSERT);
    await disturbed.run("DROP TRIGGER fail ON plants");
    await disturbed.run("DROP FUNCTION fail");
    const connection = await caught;
    await connection.whole;
    await Bun.sleep(1_750 - (performance.now() - startedAtMs));
    connection.cutClient();
    expect(await created).toBe(503);
    expect(await create(1n)).toBe(200);
    expect(await remove(1n)).toBe(204);
    connection.release();
    await connection.served;
    expect(await disturbed.readPlants()).toEqual([]);
  });
});

/** Somebody's transaction that has touched a plant and does not end until it is let go. */
async function hold(statement: string): Promise<AsyncDisposable> {
  const db = new SQL((await sharedPostgres()).urlOf(disturbed.database), { max: 1, tls: false });
  await db.unsafe("BEGIN");
  await db.unsafe(statement);
  return {
    async [Symbol.asyncDispose]() {
      await db.unsafe("ROLLBACK");
      await db.close();
      // Those who waited for it are done when nothing is under way any more.
      while ((await countActive()) > 0) await Bun.sleep(5);
    },
  };
}

async function countActive(): Promise<number> {
  const rows = await disturbed.run(
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()",
  );
  return rows.length;
}

/** Asked for in one turn, they share a statement. */
async function refusalsOf(...writes: Promise<unknown>[]): Promise<unknown[]> {
  const refusals = await Promise.all(writes.map(rejectionOf));
  return refusals.map((refusal) => (refusal as Refusal).reason);
}

describe("a statement that has begun and waits for somebody else's transaction", () => {
  const unavailable = ["store_unavailable", "store_unavailable"];

  test("does not bring a plant back that was created by another request and removed since", async () => {
    const { store } = disturbed.service;
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
    {
      await using held = new AsyncDisposableStack();
      held.use(await hold("SELECT FROM plants WHERE id = 1 FOR UPDATE"));
      const writes = [1n, 2n].map((id) =>
        store.replacePlant({ id, name: "bracken", tag: undefined }, ALWAYS),
      );
      expect(await refusalsOf(...writes)).toEqual(unavailable);
      expect(await put(2n, "bracken")).toBe(200);
      expect(await put(2n, "fern")).toBe(200);
    }
    expect(await disturbed.readPlants()).toContainEqual(fern(2n));
  });
});
