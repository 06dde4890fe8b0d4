/** Servers that go away and come back: nothing that was acknowledged is lost, and nobody has to restart the service. */

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { SQL } from "bun";
import { expectRefusal } from "../support/expect.ts";
import { Clients } from "../support/clients.ts";
import { createRandom } from "../support/random.ts";
import { makePlants, type StoredPlant } from "../support/plants.ts";
import { type PostgresServer, startPostgres } from "../support/postgres-server.ts";
import { type DisturbedService, startDisturbed } from "../support/proxy.ts";
import { sendPlant } from "../support/service.ts";
import { limits } from "../support/limits.ts";

const QUEUE_MS = 2_000;
/** For what a busy machine adds to a time that is promised. */
const MARGIN_MS = 1_500;
/** From the moment that the server answers again; retries are at most half a second apart. */
const RECOVERY_MS_MAX = 3_000;
/** Of a probe that is believed for a second, and one that may take one and a half. */
const READY_MS_MAX = 2_500;
const LIVE_MS_MAX = 500;

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
  while ((await disturbed.countConnections()) > writeConnections + readConnections + 2)
    await Bun.sleep(20);
});

const fern = (index: number): StoredPlant => ({ id: BigInt(index), name: `${index}`, tag: null });

/** How long it takes until the path answers so. Asks all the time. */
async function until(path: string, status: number): Promise<number> {
  const startedAtMs = performance.now();
  while ((await fetch(url + path)).status !== status) await Bun.sleep(20);
  return performance.now() - startedAtMs;
}

const startLoad = (): Clients =>
  new Clients(4, { findUrl: () => url, createsOnly: true, firstId: 1_000n }, createRandom());

async function expectRecovery(load: Clients): Promise<void> {
  expect(await load.untilAcknowledged(50)).toBeLessThan(RECOVERY_MS_MAX);
  await load.stop();
  const stored = await disturbed.readPlants();
  expect(load.compare(stored.filter(({ id }) => id >= 1_000n))).toEqual([]);
  expect(load.answerMsMax).toBeLessThan(QUEUE_MS + MARGIN_MS);
}

describe("a server that stops answering", () => {
  test("is given up in time, and used again when it answers", async () => {
    await until("/readyz", 200);
    const living = { isWatched: true, msMax: 0 };
    const watchLive = async (): Promise<void> => {
      for (; living.isWatched; await Bun.sleep(10)) {
        const askedAtMs = performance.now();
        expect((await fetch(`${url}/livez`)).status).toBe(200);
        living.msMax = Math.max(living.msMax, performance.now() - askedAtMs);
      }
    };
    const watching = watchLive();

    await server.pause();
    const unready = until("/readyz", 503);
    const sentAtMs = performance.now();
    const plants = makePlants(100, fern);
    const responses = await Promise.all(plants.map((plant) => sendPlant(url, plant)));
    expect(performance.now() - sentAtMs).toBeLessThan(QUEUE_MS + MARGIN_MS);
    for (const response of responses)
      await expectRefusal(response, "store_unavailable", "store_busy");
    expect(await unready).toBeLessThan(READY_MS_MAX + MARGIN_MS);

    server.resume();
    expect(await until("/readyz", 200)).toBeLessThan(READY_MS_MAX + MARGIN_MS);
    const again = await Promise.all(plants.map((plant) => sendPlant(url, plant)));
    expect(again.map(({ status }) => status)).toEqual(plants.map(() => 200));
    expect(await disturbed.readPlants()).toEqual(plants);
    living.isWatched = false;
    await watching;
    expect(living.msMax).toBeLessThan(LIVE_MS_MAX);
  });

  test("behind a network that swallows everything, it is the same", async () => {
    const before = disturbed.service.store.readFigures();
    disturbed.proxy.freeze(true);
    const sentAtMs = performance.now();
    await expectRefusal(await sendPlant(url, fern(1)), "store_unavailable");
    expect(performance.now() - sentAtMs).toBeLessThan(QUEUE_MS + MARGIN_MS);
    await expectRefusal(await disturbed.send("GET", "/plants/1"), "store_unavailable");
    disturbed.proxy.freeze(false);
    await until("/readyz", 200);
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
  while ((await disturbed.countConnections()) > 0) await Bun.sleep(20);
  expect(disturbed.proxy.connections()).toBe(0);
});
