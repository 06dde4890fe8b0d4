/** Servers that go away and come back: nothing that was acknowledged is lost, and nobody has to restart the service. */

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { SQL } from "bun";
import { expectAlive, expectRefusal } from "../support/expect.ts";
import { Clients } from "../support/clients.ts";
import { createRandom } from "../support/random.ts";
import { makePlants, type StoredPlant } from "../support/plants.ts";
import { type PostgresServer, startPostgres } from "../support/postgres-server.ts";
import { type DisturbedService, startDisturbed } from "../support/proxy.ts";
import { sendPlant } from "../support/service.ts";
import { limits } from "../support/limits.ts";
import { until } from "../support/until.ts";

let server: PostgresServer;
let disturbed: DisturbedService;
let url: string;

beforeAll(async () => {
  server = await startPostgres({ settings: { max_connections: "20", shared_buffers: "16MB" } });
  disturbed = await startDisturbed({
    server,
    settings: { ...limits({ statementSecondsMax: 1, queueSecondsMax: 2 }) },
  });
  ({ url } = disturbed.service);
});
afterAll(async () => {
  await disturbed[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});
beforeEach(async () => void (await disturbed.run("DELETE FROM plants")));

afterEach(async () => {
  // Backends whose client is gone notice it a little later.
  const { writeConnections, readConnections } = disturbed.service.config;
  const countMax = writeConnections + readConnections + 2;
  await until(
    "lost connections are gone",
    async () => (await disturbed.countConnections()) <= countMax,
  );
});

const fern = (index: number): StoredPlant => ({ id: BigInt(index), name: `${index}`, tag: null });

const readinessIs = (status: 200 | 503): Promise<void> =>
  until(`/readyz answers ${status}`, async () => (await fetch(`${url}/readyz`)).status === status);

const startLoad = (): Clients =>
  new Clients(4, { findUrl: () => url, createsOnly: true, firstId: 1_000n }, createRandom());

async function expectRecovery(load: Clients): Promise<void> {
  await load.untilAcknowledged(50);
  await load.stop();
  const stored = await disturbed.readPlants();
  expect(load.compare(stored.filter(({ id }) => id >= 1_000n))).toEqual([]);
}

describe("a server that stops answering", () => {
  test("is given up, and used again when it answers", async () => {
    await readinessIs(200);
    await server.pause();
    const plants = makePlants(100, fern);
    const sent = Promise.all(plants.map((plant) => sendPlant(url, plant)));
    for (const response of await expectAlive(url, sent))
      await expectRefusal(response, "store_unavailable", "store_busy");
    await readinessIs(503);

    server.resume();
    await readinessIs(200);
    const again = await Promise.all(plants.map((plant) => sendPlant(url, plant)));
    expect(again.map(({ status }) => status)).toEqual(plants.map(() => 200));
    expect(await disturbed.readPlants()).toEqual(plants);
  });

  test("behind a network that swallows everything, it is the same", async () => {
    const before = disturbed.service.store.readFigures();
    disturbed.proxy.freeze(true);
    await expectRefusal(await sendPlant(url, fern(1)), "store_unavailable");
    await expectRefusal(await disturbed.send("GET", "/plants/1"), "store_unavailable");
    disturbed.proxy.freeze(false);
    await readinessIs(200);
    expect((await sendPlant(url, fern(1))).status).toBe(200);
    const { retries = 0, connects = 0 } = disturbed.service.store.readFigures();
    expect(retries).toBeGreaterThan(before.retries ?? 0);
    expect(connects).toBeGreaterThan(before.connects ?? 0);
  });

  test("but is only slow to reach: everything is done, slowly", async () => {
    disturbed.proxy.cut();
    disturbed.proxy.delay(100);
    const plants = makePlants(50, fern);
    const responses = await Promise.all(plants.map((plant) => sendPlant(url, plant)));
    disturbed.proxy.delay(0);
    expect(responses.map(({ status }) => status)).toEqual(plants.map(() => 200));
    expect(await disturbed.readPlants()).toEqual(plants);
  });
});

describe("a server that lets nobody in", () => {
  test("because its connections are used up: refused for now, until one is free", async () => {
    disturbed.proxy.cut();
    await using others = new AsyncDisposableStack();
    for (;;) {
      const other = new SQL(server.url, { max: 1, tls: false });
      const isIn = await other.unsafe("SELECT 1").then(
        () => true,
        () => false,
      );
      if (!isIn) break;
      others.defer(() => other.close());
    }
    disturbed.proxy.cut();
    await expectRefusal(await sendPlant(url, fern(1)), "store_unavailable");
    await expectRefusal(await disturbed.send("GET", "/plants/1"), "store_unavailable");
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    const load = startLoad();
    await others.disposeAsync();
    await expectRecovery(load);
  });

  test("because nobody listens: refused for now, until somebody does", async () => {
    disturbed.proxy.refuse(true);
    disturbed.proxy.cut();
    await expectRefusal(await sendPlant(url, fern(1)), "store_unavailable");
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    const load = startLoad();
    disturbed.proxy.refuse(false);
    await expectRecovery(load);
  });

  test("but takes no writes any more: refused for now, until it does", async () => {
    const { database } = disturbed;
    await server.run(`ALTER DATABASE ${database} SET default_transaction_read_only TO on`);
    disturbed.proxy.cut();
    await expectRefusal(await sendPlant(url, fern(1)), "store_unavailable");
    // What it has may be old: it was told to take no writes because another server does.
    await expectRefusal(await disturbed.send("GET", "/plants/1"), "store_unavailable");
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    await server.run(`ALTER DATABASE ${database} RESET default_transaction_read_only`);
    await expectRecovery(startLoad());
  });
});

test("a service that has stopped holds no connection", async () => {
  await disturbed.stop();
  await until("no connection is left", async () => (await disturbed.countConnections()) === 0);
  expect(disturbed.proxy.connections()).toBe(0);
});
