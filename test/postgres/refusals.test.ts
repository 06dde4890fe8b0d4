/** What is refused, and what is not, when PostgreSQL itself refuses something. */

import { describe, expect, spyOn, test } from "bun:test";
import { SQL } from "bun";
import { translate } from "../../src/store/postgres/connection.ts";
import { createQuota } from "../../src/store/postgres/write.ts";
import { expectError, expectRefusal } from "../support/expect.ts";
import { makePlants, readRefusal, type StoredPlant } from "../support/plants.ts";
import { sharedPostgres } from "../support/postgres-server.ts";
import { type DisturbedService, startDisturbed } from "../support/proxy.ts";
import { sendPlant } from "../support/service.ts";
import { limits } from "../support/limits.ts";
import { until } from "../support/until.ts";

const INSERT = "INSERT INTO plants ";
/** Longer than a test may take: who waits that long runs into its time-out. */
const patience = { queueSecondsMax: 240, statementSecondsMax: 240, idleSecondsMax: 255 };

const fern = (index: number): StoredPlant => ({ id: BigInt(index), name: `${index}`, tag: null });

describe("a row that only PostgreSQL refuses", () => {
  /** Some alone and some side by side, at both ends too. */
  const refused = [0, 7, 20, 21, 22, 39];
  const plants = makePlants(40, fern);

  test.each(["created", "replaced"])("fails alone when it is %s with others", async (change) => {
    await using disturbed = await startDisturbed();
    const { store, url } = disturbed.service;
    const isNew = change === "created";
    if (!isNew)
      await disturbed.run("INSERT INTO plants SELECT id, 'before' FROM generate_series(0, 39) id");
    await disturbed.run(`ALTER TABLE plants ADD CHECK (name NOT IN ('${refused.join("','")}'))`);
    // Asked for in one tick, they share a statement.
    const writes = plants.map(({ id, name }) =>
      isNew ? store.createPlant({ id, name }) : store.replacePlant({ id, name }, {}),
    );
    const outcomes = (await Promise.allSettled(writes)).map(({ status }) => status);
    const failed = outcomes.flatMap((outcome, index) => (outcome === "rejected" ? index : []));
    expect(failed).toEqual(refused);
    expect(await disturbed.readPlants()).toEqual(
      plants.flatMap((plant, index) => {
        if (!refused.includes(index)) return plant;
        return isNew ? [] : { id: plant.id, name: "before", tag: null };
      }),
    );
    const sent = { body: JSON.stringify({ name: "0" }) };
    const again = isNew ? sendPlant(url, fern(0)) : disturbed.send("PUT", "/plants/0", sent);
    expect(await readRefusal(await again)).toBe("internal");
    expect(await readRefusal(await sendPlant(url, fern(1)))).toBe(200);
  });
});

describe("a create that the server fails", () => {
  /** Fails its first insert with each of these codes. A sequence counts the attempts: it is not rolled back. */
  async function failFirst(
    codes: readonly string[],
    expectFailure: (disturbed: DisturbedService, plant: StoredPlant) => Promise<void>,
    settings = limits({ statementSecondsMax: 0.2 }),
  ): Promise<void> {
    await using disturbed = await startDisturbed({ settings });
    await disturbed.run("CREATE SEQUENCE attempts");
    for (const [index, code] of codes.entries()) {
      await disturbed.run(`ALTER SEQUENCE attempts RESTART;
        CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('attempts') = 1 THEN RAISE EXCEPTION 'failed by a test' USING ERRCODE = '${code}'; END IF;
        RETURN NULL; END $$;
        CREATE OR REPLACE TRIGGER fail AFTER INSERT ON plants EXECUTE FUNCTION fail()`);
      await expectFailure(disturbed, { ...fern(index), name: code });
    }
  }
  const countAttempts = async ({ run }: DisturbedService): Promise<unknown> =>
    (await run("SELECT last_value FROM attempts"))[0]?.["last_value"];

  test("with a code that says that nothing was done is tried again", () =>
    failFirst(["40001", "40P01", "55P03", "57014", "53200", "25006"], async (disturbed, plant) => {
      const { status } = await sendPlant(disturbed.service.url, plant);
      expect([plant, status, await countAttempts(disturbed)]).toEqual([plant, 200, 2n]);
    }));

  test("with a code after which it may be stored is refused for now and not sent again", () =>
    failFirst(
      ["40003", "08006", "57P01", "58030", "XX000"],
      async (disturbed, plant) => {
        const { url } = disturbed.service;
        await expectRefusal(await sendPlant(url, plant), "store_unavailable");
        expect([plant, await countAttempts(disturbed)]).toEqual([plant, 1n]);
        expect((await sendPlant(url, plant)).status).toBe(200);
      },
      // The retry opens a connection first, on a busy machine too.
      limits({ statementSecondsMax: 1 }),
    ));

  test("because its disk is full is refused at once, and not sent again", () =>
    failFirst(
      ["53100"],
      async (disturbed, plant) => {
        const { url, logLines } = disturbed.service;
        await expectRefusal(await sendPlant(url, plant), "disk_low");
        expect([plant, await countAttempts(disturbed)]).toEqual([plant, 1n]);
        const { cause } = JSON.parse(logLines.findLast((line) => line.includes("disk_low")) ?? "");
        expect(cause).toMatchObject({ message: "failed by a test", errno: "53100" });
        expect((await sendPlant(url, plant)).status).toBe(200);
      },
      limits(patience),
    ));

  test("for want of disk space, and then dies, is refused for now: it may be stored", async () => {
    const settings = limits({ statementSecondsMax: 2 });
    await using disturbed = await startDisturbed({ settings });
    await disturbed.run(`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      RAISE EXCEPTION 'failed by a test' USING ERRCODE = '53100'; END $$;
      CREATE TRIGGER fail AFTER INSERT ON plants EXECUTE FUNCTION fail()`);
    const catching = disturbed.proxy.holdStatement("SELECT 1");
    const response = sendPlant(disturbed.service.url, fern(1));
    (await catching).cut();
    await expectRefusal(await response, "store_unavailable");
  });
});

test("what is thrown and is no error is a refusal: a batch would take it for an outcome", () =>
  expect(translate("no error")).toMatchObject({ reason: "store_unavailable", cause: "no error" }));

test("a table that is missing is refused for now, at once, until it is there", async () => {
  await using disturbed = await startDisturbed({ settings: limits(patience) });
  const { url } = disturbed.service;
  await disturbed.run("ALTER TABLE plants RENAME TO elsewhere");
  await expectRefusal(await sendPlant(url, fern(1)), "store_refused");
  await expectRefusal(await disturbed.send("GET", "/plants/1"), "store_refused");
  await expectRefusal(await disturbed.send("GET", "/plants"), "store_refused");
  await expectRefusal(await disturbed.send("DELETE", "/plants/1"), "store_refused");
  await disturbed.run("ALTER TABLE elsewhere RENAME TO plants");
  expect((await sendPlant(url, fern(1))).status).toBe(200);
  expect(await disturbed.readPlants()).toEqual([fern(1)]);
});

test("a table that is locked is refused for now: nothing was stored, and no session of ours waits on the server", async () => {
  const settings = limits({ statementSecondsMax: 2, queueSecondsMax: 2.5 });
  await using disturbed = await startDisturbed({ settings });
  const { url } = disturbed.service;
  const server = await sharedPostgres();
  await using other = new SQL(server.urlOf(disturbed.database), { max: 1, tls: false });
  await other.unsafe("BEGIN; LOCK TABLE plants");
  await expectError(await sendPlant(url, fern(1)), "store_down", "nothing was stored");
  await expectRefusal(await disturbed.send("GET", "/plants/1"), "store_down");
  const waiting = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
  await until("no session waits", async () => (await disturbed.run(waiting)).length === 0);
  await other.unsafe("ROLLBACK");
  expect((await sendPlant(url, fern(1))).status).toBe(200);
  expect(await disturbed.readPlants()).toEqual([fern(1)]);
});

test("a database that was dropped is refused for now, and its name alone is not enough", async () => {
  await using disturbed = await startDisturbed();
  const { url } = disturbed.service;
  expect((await sendPlant(url, fern(1))).status).toBe(200);
  const server = await sharedPostgres();
  await server.run(`DROP DATABASE ${disturbed.database} WITH (FORCE)`);
  await expectRefusal(await sendPlant(url, fern(2)), "store_refused");
  await expectRefusal(await disturbed.send("GET", "/plants/1"), "store_refused");
  await expectRefusal(await fetch(`${url}/readyz`), "store_refused");
  await server.run(`CREATE DATABASE ${disturbed.database} TEMPLATE template0`);
  await expectRefusal(await sendPlant(url, fern(2)), "store_refused");
});

test("a queue that fills while the server is away refuses further writes at once", async () => {
  const settings = limits({ ...patience, queueLengthMax: 10 });
  await using disturbed = await startDisturbed({ settings });
  const { url } = disturbed.service;
  const waiting: Promise<Response>[] = [];
  const held = [];
  // Both connections that write are busy now, for as long as we like.
  for (const index of [1, 2]) {
    const caught = disturbed.proxy.holdStatement(INSERT);
    waiting.push(sendPlant(url, fern(index)));
    held.push(await caught);
  }
  let refused = 0;
  const answers = makePlants(30, (index) => fern(10 + index)).map(async (plant) => {
    const answer = await readRefusal(await sendPlant(url, plant));
    if (answer === "overloaded") refused++;
    return answer;
  });
  // The others are still held.
  await until("20 writes are refused", () => refused === 20);
  for (const connection of held) connection.release();
  for (const response of await Promise.all(waiting)) expect(response.status).toBe(200);
  expect((await Promise.all(answers)).filter((answer) => answer === 200)).toHaveLength(10);
});

test.each([
  ["others have created some", 0, 90, 10],
  ["others have removed some", 0, 60, 40],
  ["one alone has created some that the count missed", 4, 80, 16],
  ["one alone has created some that the count has", 4, 84, 16],
  ["one alone has removed some that the count missed", -4, 80, 24],
  ["one alone has removed some that the count has", -4, 76, 24],
])(
  "a count of plants that ends after %s leaves the room that there is",
  async (_, own, counted, left) => {
    let nowMs = 0;
    using clock = spyOn(performance, "now").mockImplementation(() => nowMs);
    const second = Promise.withResolvers<number>();
    const counts = [Promise.resolve(80), second.promise].values();
    const quota = createQuota(100, async () => ({
      count: await (counts.next().value as Promise<number>),
      exact: true,
    }));
    quota.settle(await quota.reserve(1), 0);
    nowMs += 60_000;
    quota.settle(await quota.reserve(1), 0);
    quota.settle(await quota.reserve(Math.max(0, own)), own);
    second.resolve(counted);
    await Bun.sleep(0);
    expect(await quota.reserve(1_000)).toBe(left);
    expect(clock).toHaveBeenCalled();
  },
);
