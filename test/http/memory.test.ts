/** Clients that do not read their answers, or do not finish what they send, cannot take all memory. */

import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { catalogue, Refusal } from "../../src/domain/errors.ts";
import { readChunks } from "../../src/http/exchange.ts";
import { EventReader } from "../support/events.ts";
import { rejectionOf } from "../support/expect.ts";
import { makeTemporaryFolder } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { readError, send, startService, TEST_TOKEN } from "../support/service.ts";
import { batchHead, chunk, connectRaw, receive } from "../support/wire.ts";
import { until } from "../support/until.ts";

const folder = makeTemporaryFolder();
afterAll(() => folder[Symbol.dispose]());

/** Asks, and never reads the answer. */
function askWithoutReading(url: string, path: string, ...lines: readonly string[]): Socket {
  return sendWithoutReading(url, `GET ${path}`, "", ...lines);
}

function sendWithoutReading(
  url: string,
  target: string,
  body: string,
  ...lines: readonly string[]
): Socket {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port) });
  socket.on("error", () => undefined);
  const top = [`${target} HTTP/1.1`, "Host: a", `Authorization: Bearer ${TEST_TOKEN}`, ...lines];
  if (body !== "") top.push("Content-Type: application/json", `Content-Length: ${body.length}`);
  socket.write(`${top.join("\r\n")}\r\n\r\n${body}`);
  return socket;
}

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
    askWithoutReading(service.url, "/console/large-0a1b2c3d.js"),
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

const heldIn = (metrics: string): number =>
  Number(/^plantstore_held_bytes (\d+)$/m.exec(metrics)?.[1]);

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

describe("while large answers wait to be read,", () => {
  test.each([
    ["pages", []],
    ["exports", ["Accept: application/x-ndjson"]],
  ])(
    "other %s are refused with 503 and writes are not; then all are served",
    async (_name, lines) => {
      await using service = await startWithLargePlants();
      const headers = lines.length === 0 ? {} : { accept: "application/x-ndjson" };
      const unread = Array.from({ length: 4 }, () =>
        askWithoutReading(service.url, "/plants?order=asc", ...lines),
      );
      await until(
        "a page is served",
        async () => (await countServed(service, "GET", "/plants")) > 0,
      );
      let refused: Response;
      do {
        refused = await send(service, "GET", "/plants", { headers });
        if (refused.status === 200) await refused.body?.cancel();
      } while (refused.status === 200);
      expect(await readError(refused)).toMatchObject({
        status: 503,
        error: catalogue.overloaded.code,
      });
      expect((await service.create('{"id":100,"name":"small"}')).status).toBe(200);
      for (const socket of unread) socket.destroy();
      let served: Response;
      do served = await send(service, "GET", "/plants", { headers });
      while (served.status === 503);
      expect(await served.text()).toContain(LARGE_NAME);
    },
  );
});

test("of an export that is not read, two pieces count: the runtime may hold the last one while it asks for the next", async () => {
  await using service = await startService(limits({ drainSecondsMax: 0.1 }));
  const name = "x".repeat(300_000);
  await service.store.createPlants(
    Array.from({ length: 80 }, (_, id) => ({ id: BigInt(id), name, tag: undefined })),
  );
  const unread = askWithoutReading(service.url, "/plants", "Accept: application/x-ndjson");
  // A piece has about 2 MB.
  let held = 0;
  while (held < 3_500_000) held = heldIn(await (await send(service, "GET", "/metrics")).text());
  unread.destroy();
});

test("readers of events that read nothing hold little, and another one is sent large plants at once", async () => {
  const CLIENTS = 12;
  await using service = await startWithLargePlants();
  const unread = Array.from({ length: CLIENTS }, () =>
    askWithoutReading(service.url, "/changes", "Accept: text/event-stream"),
  );
  // By then each has been sent more than the system takes.
  for (let held = 0; held < CLIENTS * 200_000;)
    held = heldIn(await (await send(service, "GET", "/metrics")).text());
  const authorization = `Bearer ${TEST_TOKEN}`;
  await using reader = await EventReader.open(service.url, { authorization }, "?type=created");
  const events = await reader.take(10);
  const expected = Array.from({ length: 10 }, (_, id) => ({ id, plant: { name: LARGE_NAME } }));
  expect(events.map(({ data }) => JSON.parse(data))).toMatchObject(expected);
  for (const socket of unread) socket.destroy();
});

describe("while two clients do not read the answer to", () => {
  /** Far more than the system takes from the service for a client that does not read. */
  const name = "x".repeat(9_000_000);
  const large = (id: number): string => JSON.stringify({ id, name });

  test.each([
    ["GET", "/plants/0", "/plants/{id}", ""],
    ["POST", "/plants", "/plants", large(0)],
    ["PUT", "/plants/0", "/plants/{id}", large(0)],
    ["POST", "/plants/batch", "/plants/batch", `[${'"12345",'.repeat(500_000)}1]`],
  ])(
    "%s %s, large plants are refused with 503 and not stored, and small ones are served",
    async (method, path, route, body) => {
      await using service = await startService({
        PLANTSTORE_BODY_BYTES_TOTAL_MAX: "30000000",
        ...limits({ bodyBytesMax: 10_000_000, drainSecondsMax: 0.1 }),
      });
      await service.store.createPlant({ id: 0n, name, tag: undefined });
      const readLarge = () => send(service, "GET", "/plants/0");
      const unread: Socket[] = [];
      while (unread.length < 2) {
        unread.push(sendWithoutReading(service.url, `${method} ${path}`, body));
        await until(
          "every client is served",
          async () => (await countServed(service, method, route)) >= unread.length,
        );
      }
      const overloaded = { status: 503, error: catalogue.overloaded.code };
      expect(await readError(await readLarge())).toMatchObject(overloaded);
      expect(await readError(await service.create(large(2)))).toMatchObject(overloaded);
      expect((await send(service, "GET", "/plants/2")).status).toBe(404);
      expect((await service.create('{"id":3,"name":"small"}')).status).toBe(200);
      expect((await send(service, "GET", "/plants/3")).status).toBe(200);
      for (const socket of unread) socket.destroy();
      let served: Response;
      do served = await readLarge();
      while (served.status === 503);
      expect(await served.json()).toEqual({ id: 0, name });
      expect((await service.create(large(2))).status).toBe(200);
    },
  );
});

test("batches and their unfinished lines count: past the bound there is a 503, and other requests go on", async () => {
  await using service = await startService({
    ...limits({ bodyBytesMax: 1_000_000 }),
    // Half of it has room for three batches, and all of it for one long line besides.
    PLANTSTORE_BODY_BYTES_TOTAL_MAX: "9000000",
  });
  const begin = async (id: number) => {
    const connection = await connectRaw(service.url);
    connection.send(`${batchHead()}${chunk(`{"id":${id},"name":"a"}\n`)}`);
    await receive(connection, /"line":1,"status":200|"error"/);
    return connection;
  };
  const batches = [await begin(1), await begin(2), await begin(3)];
  const refused = await begin(4);
  expect(refused.received()).toStartWith("HTTP/1.1 503 ");
  expect((await send(service, "GET", "/plants/4")).status).toBe(404);
  for (const [index, connection] of batches.entries())
    connection.send(chunk(`{"id":${index + 100},"name":"${"x".repeat(900_000)}`));
  const received = await Promise.any(
    batches.map((connection) => receive(connection, /"line":2,"status":503.*\r\n0\r\n\r\n$/s)),
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
      await receive(connection, /^HTTP\/1.1 401 .*"error"/s);
      return connection;
    }),
  );
  const batch = await connectRaw(service.url);
  batch.send(`${batchHead()}${chunk('{"id":1,"name":"a"}\n')}`);
  expect(await receive(batch, /"line":1|"error"/)).toStartWith("HTTP/1.1 200 ");
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

test("the chunks of a body end at the deadline, however fast they come, and when the token is no longer good", async () => {
  const endless = { read: async () => ({ done: false as const, value: new Uint8Array(1) }) };
  const silent = { read: () => new Promise<never>(() => undefined) };
  const cancel = (): Promise<void> => Promise.resolve();
  const late = readChunks({ ...endless, cancel }, () => 0);
  expect(await rejectionOf(late.next())).toMatchObject({ reason: "body_too_slow" });
  const revoked = AbortSignal.abort(new Refusal("token_invalid"));
  const ended = readChunks({ ...silent, cancel }, () => 60_000, revoked);
  expect(await rejectionOf(ended.next())).toMatchObject({ reason: "token_invalid" });
});

test("a line that arrives in many pieces counts once, and one line fits however small the bound", async () => {
  await using service = await startService({
    ...limits({ bodyBytesMax: 1_000_000, bodyBytesTotalMax: 1_000_000 }),
  });
  const connection = await connectRaw(service.url);
  connection.send(`${batchHead()}${chunk('{"id":1,"name":"')}`);
  for (let piece = 0; piece < 40; piece++) {
    connection.send(chunk("x".repeat(16_000)));
    await Bun.sleep(2);
  }
  connection.send(`${chunk('"}\n')}0\r\n\r\n`);
  await receive(connection, /\r\n\r\n.*{"line":1,"status":200}\n/s);
});
