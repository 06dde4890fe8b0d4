/** Connections that break at the worst of moments: every change is made once, and told as it was made. */

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { Load } from "../support/load.ts";
import { makePlants, type StoredPlant } from "../support/plants.ts";
import { type DisturbedService, startDisturbed } from "../support/proxy.ts";
import { sendPlant } from "../support/service.ts";

const INSERT = "INSERT INTO plants ";
const APPLY = "WITH wanted";
const RESOLVE = "made_at = excluded.made_at";

const CUTS = 40;

let disturbed: DisturbedService;
beforeAll(async () => {
  disturbed = await startDisturbed();
});
afterAll(() => disturbed[Symbol.asyncDispose]());
beforeEach(async () => void (await disturbed.run("DELETE FROM plants")));

const fern = (id: bigint, name = "fern"): StoredPlant => ({ id, name, tag: null });

async function put(id: bigint, name: string, ifMatch?: string): Promise<number> {
  const response = await disturbed.send("PUT", `/plants/${id}`, {
    body: JSON.stringify({ name }),
    headers: ifMatch === undefined ? {} : { "if-match": ifMatch },
  });
  return response.status;
}

const remove = async (id: bigint): Promise<number> =>
  (await disturbed.send("DELETE", `/plants/${id}`)).status;

async function entityTag(id: bigint): Promise<string> {
  return (await disturbed.send("GET", `/plants/${id}`)).headers.get("etag") ?? "";
}

describe("POST /plants", () => {
  const plants = makePlants(60, (index) => fern(BigInt(index), `fern ${index}`));
  const createAll = async (): Promise<number[]> => {
    const responses = plants.map((plant) => sendPlant(disturbed.service.url, plant));
    return (await Promise.all(responses)).map(({ status }) => status);
  };

  test("a batch that was cut off on its way there is stored by another attempt", async () => {
    const caught = disturbed.proxy.holdStatement(INSERT);
    const statuses = createAll();
    const connection = await caught;
    await connection.whole;
    connection.cut();
    expect(await statuses).toEqual(plants.map(() => 200));
    expect(await disturbed.readPlants()).toEqual(plants);
  });

  test("a batch whose answer was cut off is acknowledged by another attempt", async () => {
    const caught = disturbed.proxy.holdAnswer(INSERT);
    const statuses = createAll();
    const connection = await caught;
    await connection.whole;
    expect((await disturbed.readPlants()).length).toBeGreaterThan(0);
    expect(connection.bytes()).toBeGreaterThan(0);
    connection.cut();
    expect(await statuses).toEqual(plants.map(() => 200));
    expect(await disturbed.readPlants()).toEqual(plants);
  });

  test("connections cut again and again under load lose nothing and make nothing up", async () => {
    const load = new Load(disturbed.service.url, 24);
    for (let cuts = 0; cuts < CUTS; cuts++) {
      await load.flow(20);
      disturbed.proxy.cut();
    }
    await load.flow();
    await load.stop();
    expect(load.findFaults(await disturbed.readPlants())).toEqual([]);
    // Each was tried again inside, well within the time that a request may wait.
    expect(load.refused).toEqual([]);
  });
});

describe("PUT /plants/{id}", () => {
  beforeEach(async () => {
    await disturbed.run("INSERT INTO plants VALUES (1, 'fern', NULL), (2, 'moss', NULL)");
  });

  test("with an If-Match that its own lost attempt has made untrue, it is done", async () => {
    const caught = disturbed.proxy.holdAnswer(APPLY);
    const status = put(1n, "bracken", await entityTag(1n));
    const connection = await caught;
    await connection.whole;
    expect(await disturbed.readPlants()).toContainEqual(fern(1n, "bracken"));
    connection.cut();
    expect(await status).toBe(200);
    expect(await disturbed.readPlants()).toContainEqual(fern(1n, "bracken"));
  });

  test("whose answer was cut off, it is not done again over what others made of it", async () => {
    const caught = disturbed.proxy.holdAnswer(APPLY);
    const status = put(1n, "bracken");
    const connection = await caught;
    await connection.whole;
    await disturbed.run("UPDATE plants SET name = 'fern' WHERE id = 1");
    connection.cut();
    expect(await status).toBe(200);
    expect(await disturbed.readPlants()).toContainEqual(fern(1n));
  });

  test("where the question what became of it is lost as well, the answer is the same", async () => {
    const lost = disturbed.proxy.holdAnswer(APPLY);
    const lostToo = disturbed.proxy.holdAnswer(RESOLVE);
    const status = put(1n, "bracken", await entityTag(1n));
    const connection = await lost;
    await connection.whole;
    connection.cut();
    const other = await lostToo;
    await other.whole;
    other.cut();
    expect(await status).toBe(200);
    expect(await disturbed.readPlants()).toContainEqual(fern(1n, "bracken"));
  });

  test("cut off on its way there, it is done by another attempt, under the same condition", async () => {
    const caught = disturbed.proxy.holdStatement(APPLY);
    const status = put(1n, "bracken", await entityTag(1n));
    const connection = await caught;
    await connection.whole;
    await disturbed.run("UPDATE plants SET name = 'seen by nobody' WHERE id = 1");
    connection.cut();
    expect(await status).toBe(412);
    expect(await disturbed.readPlants()).toContainEqual(fern(1n, "seen by nobody"));
  });

  test("of a batch whose answer was cut off, each is told its own outcome", async () => {
    const caught = disturbed.proxy.holdAnswer(APPLY);
    const statuses = Promise.all([
      put(1n, "bracken", await entityTag(1n)),
      put(2n, "lichen", '"not-its-tag"'),
      put(3n, "nothing"),
      remove(2n),
      remove(3n),
    ]);
    const connection = await caught;
    await connection.whole;
    connection.cut();
    expect(await statuses).toEqual([200, 412, 404, 204, 404]);
    expect(await disturbed.readPlants()).toEqual([fern(1n, "bracken")]);
  });
});

describe("DELETE /plants/{id}", () => {
  beforeEach(async () => void (await disturbed.run("INSERT INTO plants VALUES (1, 'fern', NULL)")));

  test("that its own lost attempt has removed already, it is done", async () => {
    const caught = disturbed.proxy.holdAnswer(APPLY);
    const status = remove(1n);
    const connection = await caught;
    await connection.whole;
    expect(await disturbed.readPlants()).toEqual([]);
    connection.cut();
    expect(await status).toBe(204);
  });

  test("whose answer was cut off, it does not remove what others have created since", async () => {
    const caught = disturbed.proxy.holdAnswer(APPLY);
    const status = remove(1n);
    const connection = await caught;
    await connection.whole;
    await disturbed.run("INSERT INTO plants VALUES (1, 'fern', NULL)");
    connection.cut();
    expect(await status).toBe(204);
    expect(await disturbed.readPlants()).toEqual([fern(1n)]);
  });
});
