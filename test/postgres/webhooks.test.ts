/** Two instances on one database: each event is sent by one of them, and if that one dies, by the other. */

import { expect, test } from "bun:test";
import { spawnService } from "../support/command.ts";
import { limits } from "../support/limits.ts";
import { createTestDatabase, sharedPostgres } from "../support/postgres-server.ts";
import { startReceiver } from "../support/receiver.ts";
import { sendPlant, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";

const PLANTS = 40;

test("each event is sent by one of two instances, and the other goes on if it is killed", async () => {
  const server = await sharedPostgres();
  await using database = await createTestDatabase(server);
  using receiver = startReceiver();
  const env = {
    DATABASE_URL: database.url,
    PLANTSTORE_TOKEN: TEST_TOKEN,
    PLANTSTORE_WEBHOOKS_PRIVATE: "true",
    ...limits({ webhookPollMs: 10, webhookLeaseSeconds: 1, webhookSecondsMax: 0.5 }),
  };
  await using one = await spawnService(env);
  await using other = await spawnService(env);
  const headers = { authorization: `Bearer ${TEST_TOKEN}`, "content-type": "application/json" };
  const body = JSON.stringify({ url: receiver.url, name: "shop" });
  await fetch(`${one.started.url}/webhooks`, { method: "POST", headers, body });
  const create = (id: number, url: string): Promise<Response> =>
    sendPlant(url, { id: BigInt(id), name: "Fern", tag: null });
  for (let id = 1; id <= PLANTS; id++) await create(id, (id % 2 === 0 ? one : other).started.url);
  await receiver.until(PLANTS);
  expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(PLANTS);
  // It may be sending the last event, and hold the webhook.
  await create(PLANTS + 1, one.started.url);
  one.kill("SIGKILL");
  for (let id = PLANTS + 2; id <= 2 * PLANTS; id++) await create(id, other.started.url);
  const countDifferent = (): number => new Set(receiver.received.map(({ id }) => id)).size;
  await until("every event has arrived", () => countDifferent() === 2 * PLANTS);
  const firsts = [...new Set(receiver.received.map(({ id }) => id))];
  expect(firsts).toEqual(firsts.toSorted());
});
