/** Clients that read nothing of what they ask for, and a database that sends all of it: memory stays bounded. */

import { afterAll, expect, test } from "bun:test";
import { spawnService } from "../support/command.ts";
import { limits } from "../support/limits.ts";
import { createTestDatabase } from "../support/postgres-server.ts";
import { bearer, getText, sendPlant, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";
import { getHead, sendDeaf } from "../support/wire.ts";

const CLIENTS = 90;
/** Four plants make a page, and the service may hold four pages. */
const PAGE_BYTES = 2_000_000;
const HELD_BYTES_MAX = 4 * PAGE_BYTES;
/** What the service promises to need, with a larger bound for what it holds. */
const MEMORY_BYTES_MAX = 256 * 1024 ** 2;

const opened = new AsyncDisposableStack();
afterAll(() => opened.disposeAsync());
const database = opened.use(await createTestDatabase());
const service = opened.use(
  await spawnService({
    DATABASE_URL: database.url,
    PLANTSTORE_TOKEN: TEST_TOKEN,
    PLANTSTORE_BODY_BYTES_TOTAL_MAX: String(HELD_BYTES_MAX),
    ...limits({ drainSecondsMax: 0.1 }),
  }),
);
const { url } = service.started;
for (let id = 0n; id < 20n; id++) {
  const plant = { id, name: "x".repeat(PAGE_BYTES / 4), tag: null };
  expect((await sendPlant(url, plant)).status).toBe(200);
}

async function measure(path: string) {
  const text = await getText({ url }, "/metrics");
  const read = (name: string): number => Number(text.split(`\n${name} `)[1]?.split("\n")[0] ?? 0);
  const counter = `plantstore_requests_total{method="GET",path="${path}"`;
  const [served, refused] = [read(`${counter},status="200"}`), read(`${counter},status="503"}`)];
  const heldBytes = read("plantstore_held_bytes");
  return { bytes: read("process_resident_memory_bytes"), heldBytes, served, refused };
}

test.each([
  // Read two at a time, and each is small enough for the buffers of its connection.
  ["pages", "/plants", "application/json"],
  ["exports", "/plants", "application/x-ndjson"],
  ["changes", "/changes", "application/x-ndjson"],
])("of unread %s few are held, and then they are served again", async (name, path, accept) => {
  const ask = (): Promise<Response> => fetch(url + path, { headers: { ...bearer(), accept } });
  const readAll = async (): Promise<number> => {
    let response = await ask();
    for (; response.status === 503; response = await ask()) await response.bytes();
    return (await response.bytes()).length;
  };
  expect(await readAll()).toBeGreaterThanOrEqual(PAGE_BYTES);
  const before = await measure(path);
  const sockets = Array.from({ length: CLIENTS }, () =>
    sendDeaf(url, getHead(path, `Accept: ${accept}`)),
  );
  let now = before;
  let mostBytes = 0;
  await until("each is answered", async () => {
    now = await measure(path);
    mostBytes = Math.max(mostBytes, now.bytes);
    return now.served + now.refused >= before.served + before.refused + CLIENTS;
  });
  if (name !== "pages") expect(now.refused).toBeGreaterThan(before.refused);
  expect(now.heldBytes).toBeLessThan(2 * HELD_BYTES_MAX);
  expect(mostBytes).toBeLessThan(MEMORY_BYTES_MAX);
  for (const socket of sockets) socket.destroy();
  expect(await readAll()).toBeGreaterThanOrEqual(PAGE_BYTES);
});
