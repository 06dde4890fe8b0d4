/** Two instances on one database: each event is sent by one of them, and if that one dies, by the other. */

import { expect, test } from "bun:test";
import { resolveConfig } from "../../src/config.ts";
import type { Store } from "../../src/domain/store.ts";
import { openStore } from "../../src/store/open.ts";
import { webhookActions } from "../../src/webhooks/manage.ts";
import { spawnService } from "../support/command.ts";
import { limits } from "../support/limits.ts";
import { createTestDatabase, startPostgres } from "../support/postgres-server.ts";
import { startReceiver } from "../support/receiver.ts";
import { send, sendPlant, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";

const PLANTS = 40;

const settings = { PLANTSTORE_TOKEN: TEST_TOKEN, PLANTSTORE_WEBHOOKS_PRIVATE: "true" };

async function addWebhook(service: string, name: string, url: string): Promise<void> {
  const body = JSON.stringify({ url, name });
  const { status } = await send({ url: service }, "POST", "/webhooks", { body });
  expect(status).toBe(201);
}

test("each event is sent by one of two instances, and the other takes over if it is killed", async () => {
  await using database = await createTestDatabase();
  using receiver = startReceiver();
  const env = {
    ...settings,
    DATABASE_URL: database.url,
    ...limits({ webhookPollMs: 10, webhookLeaseSeconds: 1, webhookSecondsMax: 0.5 }),
  };
  await using one = await spawnService(env);
  await using other = await spawnService(env);
  await addWebhook(one.started.url, "shop", receiver.url);
  const create = (id: number, url: string): Promise<Response> =>
    sendPlant(url, { id: BigInt(id), name: "Fern", tag: null });
  for (let id = 1; id <= PLANTS; id++) await create(id, (id % 2 === 0 ? one : other).started.url);
  const listDifferent = (): string[] => [...new Set(receiver.received.map(({ id }) => id))];
  // On a slow machine, one is sent again before its answer comes.
  await until("the first events have arrived", () => listDifferent().length === PLANTS);
  // It may be sending the last event, and hold the webhook.
  await create(PLANTS + 1, one.started.url);
  one.kill("SIGKILL");
  for (let id = PLANTS + 2; id <= 2 * PLANTS; id++) await create(id, other.started.url);
  await until("every event has arrived", () => listDifferent().length === 2 * PLANTS);
  expect(listDifferent()).toEqual(listDifferent().toSorted());
});

/** Each commit takes 50 ms more. */
const slowSyncs = { commit_delay: "50000", commit_siblings: "0", shared_buffers: "16MB" };

test("instances that add webhooks at the same time pass no bound, and use all of it", async () => {
  await using server = await startPostgres({ settings: slowSyncs });
  const { config } = resolveConfig({}, { DATABASE_URL: server.url });
  const stores = await Promise.all([1, 2, 3].map(() => openStore(server.url, config)));
  await server.run(`INSERT INTO plantstore_webhooks (name, version, record)
    SELECT id, '', json_build_object('name', id::text) FROM generate_series(1, 30) AS id`);
  const add = (store: Store, name: string): Promise<unknown> =>
    webhookActions.add({ store, confinement: "whole store", config }, "", {
      url: "https://shop.example/",
      name,
    });
  const added = await Promise.allSettled(
    Array.from({ length: 6 }, (_, id) => add(stores[id % 3] as Store, `shop-${id}`)),
  );
  const listed = await stores[0]?.listWebhooks();
  await Promise.all(stores.map((store) => store.close()));
  expect(listed).toHaveLength(32);
  const refusals = added.filter(({ status }) => status === "rejected");
  expect(refusals).toHaveLength(4);
  for (const one of refusals) expect(one).toMatchObject({ reason: { reason: "webhooks_full" } });
});

test("on a server with slow syncs, 32 busy webhooks delay neither health checks nor reads", async () => {
  const { commit_delay: delay, ...quick } = slowSyncs;
  await using server = await startPostgres({ settings: quick });
  using receiver = startReceiver();
  await using service = await spawnService({ ...settings, DATABASE_URL: server.url });
  const { url } = service.started;
  for (let count = 0; count < 32; count++) await addWebhook(url, `shop-${count}`, receiver.url);
  await server.run(`ALTER SYSTEM SET commit_delay = ${delay}`);
  await server.run("SELECT pg_reload_conf()");
  const measure = async (ask: () => Promise<Response>): Promise<number> => {
    const startedAtMs = performance.now();
    await (await ask()).text();
    return performance.now() - startedAtMs;
  };
  const createMs: number[] = [];
  const readMs: number[] = [];
  const readiness: number[] = [];
  const ending = new AbortController();
  const load = (async () => {
    for (let id = 1n; !ending.signal.aborted; id++)
      createMs.push(await measure(() => sendPlant(url, { id, name: "Fern", tag: null })));
  })();
  await receiver.until(32);
  for (let round = 0; round < 3; round++) {
    // The result of a probe counts for a second.
    if (round > 0) await Bun.sleep(1_000);
    for (let count = 0; count < 20; count++)
      readMs.push(await measure(() => send({ url }, "GET", "/plants/1")));
    readiness.push((await fetch(`${url}/readyz`)).status);
  }
  ending.abort();
  await load;
  const median = (values: readonly number[]): number =>
    values.toSorted((one, other) => one - other)[values.length >> 1] as number;
  expect(readiness).toEqual(readiness.map(() => 200));
  // A read waits for no sync.
  expect(median(readMs)).toBeLessThan(median(createMs));
});
