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
const opened = new AsyncDisposableStack();

beforeAll(async () => {
  const small = { max_connections: "20", shared_buffers: "16MB" };
  server = opened.use(await startPostgres({ settings: small }));
  const settings = limits({ statementSecondsMax: 1, queueSecondsMax: 2 });
  disturbed = opened.use(await startDisturbed({ server, settings }));
  ({ url } = disturbed.service);
});
afterAll(() => opened.disposeAsync());
beforeEach(async () => void (await disturbed.run("DELETE FROM plants")));

afterEach(async () => {
  // Backends whose client is gone notice it a little later.
  const { writeConnections, readConnections } = disturbed.service.config;
  const countMax = writeConnections + readConnections + 2;
  await until("lost connections are gone", async () => (await countConnections()) <= countMax);
});

const countConnections = async (): Promise<number> => {
  const rows = await disturbed.run(
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'plantstore'",
  );
  return rows.length;
};

const fern = (index: number): StoredPlant => ({ id: BigInt(index), name: `${index}`, tag: null });

const readinessIs = (status: 200 | 503): Promise<void> =>
  until(`/readyz answers ${status}`, async () => (await fetch(`${url}/readyz`)).status === status);

/** Everything is refused for now, until it is mended. */
async function expectRefusedUntil(mend: () => unknown): Promise<void> {
  disturbed.proxy.cut();
  // When not even a connection is left, nothing was stored.
  await until("the cut is noticed", async () => {
    const refused = await expectRefusal(
      await sendPlant(url, fern(1)),
      "store_down",
      "store_unavailable",
    );
    return refused === "store_down";
  });
  const read = await disturbed.send("GET", "/plants/1");
  await expectRefusal(read, "store_down", "store_unavailable");
  expect((await fetch(`${url}/readyz`)).status).toBe(503);
  const creates = { findUrl: () => url, createsOnly: true, firstId: 1_000n };
  await using load = new Clients(4, creates, createRandom());
  await mend();
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
      await expectRefusal(response, "store_unavailable", "store_down", "store_busy");
    await readinessIs(503);

    server.resume();
    await readinessIs(200);
    const again = await Promise.all(plants.map((plant) => sendPlant(url, plant)));
    expect(again.map(({ status }) => status)).toEqual(plants.map(() => 200));
    expect(await disturbed.readPlants()).toEqual(plants);
  });

  test("behind a network that swallows everything, it is the same", async () => {
    const before = await disturbed.service.store.readFigures();
    disturbed.proxy.freeze(true);
    // Known to be not stored if the settings of the server were to be checked first.
    await expectRefusal(await sendPlant(url, fern(1)), "store_unavailable", "store_down");
    const read = await disturbed.send("GET", "/plants/1");
    await expectRefusal(read, "store_unavailable", "store_down");
    disturbed.proxy.freeze(false);
    await readinessIs(200);
    expect((await sendPlant(url, fern(1))).status).toBe(200);
    const { retries = 0, connects = 0 } = await disturbed.service.store.readFigures();
    expect(retries).toBeGreaterThan(before.retries ?? 0);
    expect(connects).toBeGreaterThan(before.connects ?? 0);
  });

  test("but is only slow to reach: everything is done, slowly", async () => {
    disturbed.proxy.cut();
    disturbed.proxy.delayMs = 100;
    const plants = makePlants(50, fern);
    // A busy machine may need longer than a queued write has. It is refused then, and sent again.
    const create = async (plant: StoredPlant): Promise<number> => {
      const { status } = await sendPlant(url, plant);
      return status === 503 ? create(plant) : status;
    };
    const statuses = await Promise.all(plants.map(create));
    disturbed.proxy.delayMs = 0;
    expect(statuses).toEqual(plants.map(() => 200));
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
    await expectRefusedUntil(() => others.disposeAsync());
  });

  test("because nobody listens: refused for now, until somebody does", async () => {
    disturbed.proxy.isRefusing = true;
    try {
      await expectRefusedUntil(() => (disturbed.proxy.isRefusing = false));
    } finally {
      disturbed.proxy.isRefusing = false;
    }
  });

  test("but no longer accepts writes: writes are refused until it does", async () => {
    const alter = `ALTER DATABASE ${disturbed.database}`;
    await server.run(`${alter} SET default_transaction_read_only TO on`);
    // Reads too: what it has may be old, and another server takes the writes.
    await expectRefusedUntil(() => server.run(`${alter} RESET default_transaction_read_only`));
  });
});

test("a service that has stopped holds no connection", async () => {
  await disturbed.service[Symbol.asyncDispose]();
  await until("no connection is left", async () => (await countConnections()) === 0);
  await until("the proxy has none either", () => disturbed.proxy.connections() === 0);
});
