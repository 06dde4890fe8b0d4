/** Clients that do not read their answers, or do not finish what they send, cannot take all memory. */

import { afterAll, expect, spyOn, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { catalogue } from "../../src/domain/errors.ts";
import { Exchange } from "../../src/http/exchange.ts";
import { EventReader } from "../support/events.ts";
import { expectError } from "../support/expect.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { send, startService, TEST_TOKEN } from "../support/service.ts";
import {
  batchHead,
  chunk,
  connectRaw,
  CREDENTIALS,
  getHead,
  head,
  HOST,
  sendDeaf,
} from "../support/wire.ts";
import { until } from "../support/until.ts";

const folder = makeTemporaryFolder();
afterAll(() => folder[Symbol.dispose]());

test("unread downloads of a script share one copy of it", async () => {
  const CLIENTS = 60;
  const BYTES = 8_000_000;
  mkdirSync(join(folder.path, "console"));
  writeFileSync(join(folder.path, "console/index.html"), "<!doctype html>");
  writeFileSync(join(folder.path, "console/large-0a1b2c3d.js"), Buffer.alloc(BYTES, 120));
  await using service = await startService(limits({ drainSecondsMax: 0.1 }), {
    consoleFolder: join(folder.path, "console"),
  });
  await (await fetch(`${service.url}/console/large-0a1b2c3d.js`)).bytes();
  Bun.gc(true);
  const before = process.memoryUsage.rss();
  const sockets = Array.from({ length: CLIENTS }, () =>
    sendDeaf(service.url, getHead("/console/large-0a1b2c3d.js")),
  );
  await until(
    "every client is served",
    async () => (await countServed(service, "GET", "/console/{file}")) > CLIENTS,
  );
  expect(process.memoryUsage.rss() - before).toBeLessThan((CLIENTS * BYTES) / 4);
  for (const socket of sockets) socket.destroy();
});

async function countServed(
  service: Parameters<typeof send>[0],
  method: string,
  path: string,
  status = 200,
): Promise<number> {
  const text = await (await send(service, "GET", "/metrics")).text();
  const [, behind = "0"] = text.split(`{method="${method}",path="${path}",status="${status}"} `);
  return Number.parseInt(behind, 10);
}

async function readHeld(service: Parameters<typeof send>[0]): Promise<number> {
  const metrics = await (await send(service, "GET", "/metrics")).text();
  return Number(/^plantstore_held_bytes (\d+)$/m.exec(metrics)?.[1]);
}

const LARGE_NAME = "€".repeat(300_000);

/** Has ten plants whose names take 900 kB each, and 8 MB for what is held. */
async function startWithLargePlants(more: Parameters<typeof limits>[0] = {}) {
  const service = await startService({
    PLANTSTORE_BODY_BYTES_TOTAL_MAX: "8000000",
    ...limits({ drainSecondsMax: 0.1, ...more }),
  });
  await service.store.createPlants(
    Array.from({ length: 10 }, (_, id) => ({ id: BigInt(id), name: LARGE_NAME, tag: undefined })),
  );
  return service;
}

test.each([
  ["pages", []],
  ["exports", ["Accept: application/x-ndjson"]],
])(
  "while large answers wait to be read, other %s are refused with 503 and writes are not; then all are served",
  async (_name, lines) => {
    await using service = await startWithLargePlants();
    const headers = lines.length === 0 ? {} : { accept: "application/x-ndjson" };
    const unread = Array.from({ length: 4 }, () =>
      sendDeaf(service.url, getHead("/plants?order=asc", ...lines)),
    );
    await until("a page is served", async () => (await countServed(service, "GET", "/plants")) > 0);
    let refused: Response;
    do {
      refused = await send(service, "GET", "/plants", { headers });
      if (refused.status === 200) await refused.body?.cancel();
    } while (refused.status === 200);
    await expectError(refused, "overloaded");
    expect((await service.create('{"id":100,"name":"small"}')).status).toBe(200);
    for (const socket of unread) socket.destroy();
    let served: Response;
    do served = await send(service, "GET", "/plants", { headers });
    while (served.status === 503);
    expect(await served.text()).toContain(LARGE_NAME);
  },
);

test("of an export that is not read, two pieces count: the runtime may hold the last one while it asks for the next", async () => {
  await using service = await startService(limits({ drainSecondsMax: 0.1 }));
  const name = "x".repeat(300_000);
  await service.store.createPlants(
    Array.from({ length: 80 }, (_, id) => ({ id: BigInt(id), name, tag: undefined })),
  );
  const unread = sendDeaf(service.url, getHead("/plants", "Accept: application/x-ndjson"));
  // A piece has about 2 MB.
  await until("two pieces are held", async () => (await readHeld(service)) >= 3_500_000);
  unread.destroy();
});

test("readers of events that read nothing hold little, and another one is sent large plants at once", async () => {
  const CLIENTS = 4;
  await using service = await startWithLargePlants();
  const unread = Array.from({ length: CLIENTS }, () =>
    sendDeaf(service.url, getHead("/changes", "Accept: text/event-stream")),
  );
  // By then each has been sent more than the system takes.
  await until("each holds a piece", async () => (await readHeld(service)) >= CLIENTS * 100_000);
  const authorization = `Bearer ${TEST_TOKEN}`;
  await using reader = await EventReader.open(service.url, { authorization }, "?type=created");
  const events = await reader.take(10);
  const expected = Array.from({ length: 10 }, (_, id) => ({ id, plant: { name: LARGE_NAME } }));
  expect(events.map(({ data }) => JSON.parse(data))).toMatchObject(expected);
  for (const socket of unread) socket.destroy();
});

test("readers of events that wait for the same change hold no more than their share of memory", async () => {
  const CLIENTS = 60;
  await using service = await startWithLargePlants();
  const { headers } = await send(service, "HEAD", "/changes");
  const from = {
    authorization: `Bearer ${TEST_TOKEN}`,
    "last-event-id": headers.get("last-change") ?? "",
  };
  const readers = await Promise.all(
    Array.from({ length: CLIENTS }, () => EventReader.open(service.url, from)),
  );
  let most = 0;
  const hold = Reflect.get(Exchange.prototype, "hold");
  using watched = spyOn(Exchange.prototype, "hold").mockImplementation(function (
    this: Exchange,
    ...bytes
  ) {
    hold.apply(this, bytes);
    most = Math.max(most, this.service.budget.bytesHeld);
  });
  await service.store.createPlant({ id: 100n, name: "x".repeat(200_000), tag: undefined });
  for (const reader of readers) expect(await reader.take(1)).toHaveLength(1);
  expect(watched).toHaveBeenCalled();
  // Half of the budget and one piece. All pieces together are nearly the whole budget.
  expect(most).toBeWithin(100_000, 4_300_000);
  for (const reader of readers) await reader[Symbol.asyncDispose]();
});

test.each([
  ["ASCII", "x", 1],
  ["a wide character", "€", 2],
  ["an escaped one", "\\u20ac", 2],
])("a body with %s counts until its plant is stored", async (_name, first, bytesEach) => {
  await using service = await startService();
  await using held = await service.database.holdWrites();
  const body = `{"id":1,"name":"${first}${"x".repeat(10_000)}"}`;
  const creating = service.create(body);
  await until("the write waits", () => service.store.writesWaiting === 1);
  expect(await readHeld(service)).toBe(bytesEach * body.length);
  await held.release();
  expect((await creating).status).toBe(200);
  expect(await readHeld(service)).toBe(0);
});

/** Far more than the system takes from the service for a client that does not read. */
const HUGE_NAME = "x".repeat(9_000_000);
const hugePlant = (id: number): string => JSON.stringify({ id, name: HUGE_NAME });

test.each([
  ["GET", "/plants/0", "/plants/{id}", ""],
  ["PUT", "/plants/0", "/plants/{id}", hugePlant(0)],
  ["POST", "/plants/batch", "/plants/batch", `[${'"12345",'.repeat(500_000)}1]`],
])(
  "while two clients do not read the answer to %s %s, large plants are refused with 503 and not stored, and small ones are served",
  async (method, path, route, body) => {
    await using service = await startService({
      PLANTSTORE_BODY_BYTES_TOTAL_MAX: "30000000",
      ...limits({ bodyBytesMax: 10_000_000, drainSecondsMax: 0.1 }),
    });
    await service.store.createPlant({ id: 0n, name: HUGE_NAME, tag: undefined });
    const readLarge = () => send(service, "GET", "/plants/0");
    const unread: ReturnType<typeof sendDeaf>[] = [];
    while (unread.length < 2) {
      const top = [`${method} ${path} HTTP/1.1`, HOST, ...CREDENTIALS];
      const request = head(...top, `Content-Length: ${body.length}`) + body;
      unread.push(sendDeaf(service.url, request));
      await until(
        "every client is served",
        async () => (await countServed(service, method, route)) >= unread.length,
      );
    }
    await expectError(await readLarge(), "overloaded");
    await expectError(await service.create(hugePlant(2)), "overloaded");
    expect((await send(service, "GET", "/plants/2")).status).toBe(404);
    expect((await service.create('{"id":3,"name":"small"}')).status).toBe(200);
    expect((await send(service, "GET", "/plants/3")).status).toBe(200);
    for (const socket of unread) socket.destroy();
    let served: Response;
    do served = await readLarge();
    while (served.status === 503);
    expect(await served.json()).toEqual({ id: 0, name: HUGE_NAME });
    expect((await service.create(hugePlant(2))).status).toBe(200);
  },
);

test("batches and their unfinished lines count: past the bound there is a 503, and other requests go on", async () => {
  await using service = await startService({
    ...limits({ bodyBytesMax: 1_000_000 }),
    // Half of it has room for three batches, and all of it for one long line besides.
    PLANTSTORE_BODY_BYTES_TOTAL_MAX: "9000000",
  });
  const begin = async (id: number) => {
    const connection = await connectRaw(service.url);
    connection.send(`${batchHead()}${chunk(`{"id":${id},"name":"a"}\n`)}`);
    await connection.receive(/"line":1,"status":200|"error"/);
    return connection;
  };
  const batches = [await begin(1), await begin(2), await begin(3)];
  const refused = await begin(4);
  expect(refused.received()).toStartWith("HTTP/1.1 503 ");
  expect((await send(service, "GET", "/plants/4")).status).toBe(404);
  for (const [index, connection] of batches.entries())
    connection.send(chunk(`{"id":${index + 100},"name":"${"x".repeat(900_000)}`));
  const received = await Promise.any(
    batches.map((connection) => connection.receive(/"line":2,"status":503.*\r\n0\r\n\r\n$/s)),
  );
  expect(received).toContain(`"error":${catalogue.overloaded.code}`);
  expect((await service.create('{"id":50,"name":"small"}')).status).toBe(200);
  for (const connection of [...batches, refused]) connection.abort();
  const large = JSON.stringify({ id: 51, name: "x".repeat(900_000) });
  await until("there is room again", async () => (await service.create(large)).status !== 503);
  (await begin(5)).abort();
});

test("refused bodies that clients without a token go on sending take no room from batches", async () => {
  await using service = await startService({
    PLANTSTORE_BODY_BYTES_TOTAL_MAX: "9000000",
    ...limits({ bodyBytesMax: 1_000_000, drainSecondsMax: 0.1 }),
  });
  const refused = await Promise.all(
    Array.from({ length: 8 }, async () => {
      const connection = await connectRaw(service.url);
      connection.send("POST /plants HTTP/1.1\r\nHost: a\r\nContent-Length: 200000000\r\n\r\nx");
      await connection.receive(/^HTTP\/1.1 401 .*"error"/s);
      return connection;
    }),
  );
  const batch = await connectRaw(service.url);
  batch.send(`${batchHead()}${chunk('{"id":1,"name":"a"}\n')}`);
  expect(await batch.receive(/"line":1|"error"/)).toStartWith("HTTP/1.1 200 ");
  for (const connection of [...refused, batch]) connection.abort();
});

test("of many batches, few lines are with the store at one time; the others wait, and all are stored", async () => {
  const BATCHES = 12;
  await using service = await startService({ PLANTSTORE_BODY_BYTES_TOTAL_MAX: "2097152" });
  await using held = await service.database.holdWrites();
  const sending = Array.from({ length: BATCHES }, async (_, batch) => {
    const ids = Array.from({ length: 512 }, (__, index) => batch * 512 + index);
    const body = ids.map((id) => `{"id":${id},"name":""}\n`).join("");
    const headers = { "content-type": "application/x-ndjson" };
    const response = await send(service, "POST", "/plants/batch", { body, headers });
    return (await response.text()).split('"status":200').length - 1;
  });
  await until("a block waits", () => service.store.writesWaiting >= 512);
  let most = 0;
  for (let quiet = 0; quiet < 50; quiet++) {
    await Bun.sleep(2);
    if (service.store.writesWaiting > most) quiet = 0;
    most = Math.max(most, service.store.writesWaiting);
  }
  // A quarter of the bound has room for 655 lines.
  expect(most).toBe(512);
  await held.release();
  expect(await Promise.all(sending)).toEqual(Array.from({ length: BATCHES }, () => 512));
});

test("a line that arrives in many pieces counts once, and one line fits however small the bound", async () => {
  await using service = await startService({
    ...limits({ bodyBytesMax: 1_000_000, bodyBytesTotalMax: 1_000_000 }),
  });
  const connection = await connectRaw(service.url);
  connection.send(`${batchHead()}${chunk('{"id":1,"name":"')}`);
  for (let piece = 0; piece < 40; piece++) {
    connection.send(chunk("x".repeat(16_000)));
    await new Promise(setImmediate);
  }
  connection.send(`${chunk('"}\n')}0\r\n\r\n`);
  await connection.receive(/\r\n\r\n.*{"line":1,"status":200}\n/s);
});
