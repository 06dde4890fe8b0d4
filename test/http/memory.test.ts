/** Clients that do not read their answers, or do not finish what they send, cannot take all memory. */

import { expect, spyOn, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { catalogue } from "../../src/domain/errors.ts";
import { Exchange } from "../../src/http/exchange.ts";
import { EventReader } from "../support/events.ts";
import { expectError } from "../support/expect.ts";
import { lines as makeLines, makeTemporaryFolder, parseLines } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import {
  bearer,
  getText,
  grantToken,
  readMetric,
  send,
  sendLines,
  startService,
  storePlants,
  type TestService,
} from "../support/service.ts";
import {
  batchHead,
  chunk,
  connectRaw,
  formatRequest,
  getHead,
  type RawConnection,
  sendDeaf,
} from "../support/wire.ts";
import { until } from "../support/until.ts";

export const groups = ["sqlite", "serializable"];

test("unread downloads of a script share one copy of it", async () => {
  const CLIENTS = 60;
  const BYTES = 8_000_000;
  using folder = makeTemporaryFolder();
  writeFileSync(join(folder.path, "index.html"), "<!doctype html>");
  writeFileSync(join(folder.path, "large-0a1b2c3d.js"), Buffer.alloc(BYTES, 120));
  await using service = await startService(limits({ drainSecondsMax: 0.1 }), {
    consoleFolder: folder.path,
  });
  const script = "/console/large-0a1b2c3d.js";
  await getText(service, script);
  Bun.gc(true);
  const before = process.memoryUsage.rss();
  const sockets = Array.from({ length: CLIENTS }, () => sendDeaf(service.url, getHead(script)));
  await untilServed(service, CLIENTS + 1, "GET", "/console/{file}");
  expect(process.memoryUsage.rss() - before).toBeLessThan((CLIENTS * BYTES) / 4);
  for (const socket of sockets) socket.destroy();
});

const untilServed = (service: TestService, count: number, method: string, path: string) =>
  until(`${count} clients are served`, async () => {
    const metrics = await getText(service, "/metrics");
    const [, behind = "0"] = metrics.split(`{method="${method}",path="${path}",status="200"} `);
    return Number.parseInt(behind, 10) >= count;
  });

const readHeld = (service: TestService): Promise<number> =>
  readMetric(service, "plantstore_held_bytes");

/** The most bytes that the budget of this process has held since. */
function watchHeld() {
  let most = 0;
  const hold = Reflect.get(Exchange.prototype, "hold");
  const spy = spyOn(Exchange.prototype, "hold").mockImplementation(function (
    this: Exchange,
    ...bytes
  ) {
    hold.apply(this, bytes);
    most = Math.max(most, this.service.budget.bytesHeld);
  });
  return { readMost: () => most, spy, [Symbol.dispose]: () => spy.mockRestore() };
}

const untilHeld = (service: TestService, bytes: number): Promise<void> =>
  until(`${bytes} bytes are held`, async () => (await readHeld(service)) >= bytes);

test("a page counts while it is not read if it has more than 16 KiB", async () => {
  await using service = await startService(limits({ drainSecondsMax: 0.1 }));
  await storePlants(service, 10, "x".repeat(5_000));
  using watched = watchHeld();
  await getText(service, "/plants?limit=3");
  expect(watched.readMost()).toBe(0);
  const page = await getText(service, "/plants?limit=4");
  expect(watched.readMost()).toBeGreaterThanOrEqual(page.length);
  expect(watched.spy).toHaveBeenCalled();
  await until("it is read", async () => (await readHeld(service)) === 0);
});

test("a sorted list counts the positions that its scan keeps, until it is answered", async () => {
  await using service = await startService({ PLANTSTORE_WORKERS: "1" });
  await storePlants(service, 3);
  using watched = watchHeld();
  await getText(service, "/plants?sort=name&limit=10");
  expect(watched.readMost()).toBeWithin(2 * 10 * 400, 2 * 10 * 1_000);
  const headers = { accept: "application/x-ndjson" };
  await (await send(service, "GET", "/plants?sort=name", { headers })).text();
  expect(watched.readMost()).toBeWithin(2 * 10_000 * 400, 2 * 10_000 * 1_000);
  await until("nothing is held", async () => (await readHeld(service)) === 0);
});

const period = { to: new Date(Date.now() + 3_600_000).toISOString() };
const small: [what: string, method: "POST" | "PATCH", path: string, body: object][] = [
  ["a dry run of a revert", "POST", "/changes/revert", { ...period, dryRun: true }],
  ["a change by filter", "PATCH", "/plants?all=true", { tag: "herb" }],
  ["its dry run", "PATCH", "/plants?all=true&dry_run=true", { tag: "tree" }],
];
test.each(small)(
  "%s reserves what its plants take, not what the largest could",
  async (_what, method, path, body) => {
    await using service = await startService({ PLANTSTORE_BODY_BYTES_TOTAL_MAX: "5000000" });
    await storePlants(service, 3);
    let most = 0;
    const reserve = Reflect.get(Exchange.prototype, "reserve");
    using watched = spyOn(Exchange.prototype, "reserve").mockImplementation(function (
      this: Exchange,
      ...asked
    ) {
      reserve.apply(this, asked);
      most = Math.max(most, this.bytesKept);
    });
    const response = await send(service, method, path, { body: JSON.stringify(body) });
    expect(await response.json()).toMatchObject({ plants: 3 });
    expect(most).toBeWithin(1_000, 1_500_000);
    expect(watched).toHaveBeenCalled();
  },
);

test("slow chunked bodies count from the start", async () => {
  await using service = await startService({ PLANTSTORE_BODY_BYTES_TOTAL_MAX: "1048576" });
  const begin = async (): Promise<RawConnection> => {
    const connection = await connectRaw(service.url);
    const type = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    connection.send(
      `${formatRequest("POST", "/plants").replace(/\r\n$/, `${type}\r\n`)}${chunk('{"id":1,')}`,
    );
    return connection;
  };
  const begun: RawConnection[] = [];
  for (let count = 0; count < 3; count++) {
    begun.push(await begin());
    await untilHeld(service, (count + 1) * 262_144);
  }
  const refused = await begin();
  expect(await refused.receive(/"error"/)).toStartWith("HTTP/1.1 503 ");
  // One that arrives at once is small, and is stored.
  const whole = await connectRaw(service.url);
  whole.send(
    `${formatRequest("POST", "/plants").replace(/\r\n$/, "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")}${chunk('{"id":9,"name":"a"}')}0\r\n\r\n`,
  );
  expect(await whole.receive(/"name"/)).toStartWith("HTTP/1.1 200 ");
  begun[0]?.send(`${chunk('"name":"a"}')}0\r\n\r\n`);
  expect(await begun[0]?.receive(/"name"/)).toStartWith("HTTP/1.1 200 ");
  for (const connection of [...begun, refused, whole]) connection.abort();
});

/** Asks until there is room. */
async function getWhenServed(service: TestService, path: string, headers = {}): Promise<string> {
  let served: Response;
  do served = await send(service, "GET", path, { headers });
  while (served.status === 503);
  return served.text();
}

const LARGE_NAME = "€".repeat(300_000);

/** Has ten plants whose names take 900 kB each, and 8 MB for what is held. */
async function startWithLargePlants() {
  const service = await startService({
    PLANTSTORE_BODY_BYTES_TOTAL_MAX: "8000000",
    ...limits({ drainSecondsMax: 0.1 }),
  });
  await storePlants(service, 10, LARGE_NAME);
  return service;
}

test.each([
  ["pages", "application/json"],
  ["exports", "application/x-ndjson"],
])(
  "while large answers wait to be read, other %s are refused with 503, but no writes",
  async (_name, accept) => {
    await using service = await startWithLargePlants();
    const headers = { accept };
    const unread = Array.from({ length: 4 }, () =>
      sendDeaf(service.url, getHead("/plants?order=asc", `Accept: ${accept}`)),
    );
    await untilServed(service, 1, "GET", "/plants");
    let refused: Response;
    do {
      refused = await send(service, "GET", "/plants", { headers });
      if (refused.status === 200) await refused.body?.cancel();
    } while (refused.status === 200);
    await expectError(refused, "overloaded");
    expect((await service.create('{"id":100,"name":"small"}')).status).toBe(200);
    for (const socket of unread) socket.destroy();
    expect(await getWhenServed(service, "/plants", headers)).toContain(LARGE_NAME);
  },
);

test("a dry run that shows large plants sends them in pieces, and holds no more than one look-up", async () => {
  await using service = await startService();
  await storePlants(service, 10, LARGE_NAME);
  const lines = Array.from({ length: 10 }, (_, id) => `{"id":${id},"name":"a"}\n`);
  using watched = watchHeld();
  const headers = { "content-type": "application/x-ndjson" };
  const path = "/plants/batch?upsert=true&dry_run=true";
  const results = await (
    await send(service, "POST", path, { headers, body: lines.join("") })
  ).text();
  expect(results.split(LARGE_NAME)).toHaveLength(11);
  const shown = 10 * 2 * LARGE_NAME.length;
  // And two pieces, in UTF-8.
  expect(watched.readMost()).toBeWithin(shown, shown + 7 * LARGE_NAME.length);
  await until("nothing is held", async () => (await readHeld(service)) === 0);
});

test("a dry run of large plants forgets the oldest, however many lines it has", async () => {
  await using service = await startService();
  const name = "x".repeat(500_000);
  const line = (id: number): string => `{"id":${id},"name":"${id} ${name}"}\n`;
  const body = [...Array.from({ length: 40 }, (_, id) => line(id)), line(39), line(0)].join("");
  using watched = watchHeld();
  const headers = { "content-type": "application/x-ndjson" };
  const path = "/plants/batch?upsert=true&dry_run=true";
  const answer = await (await send(service, "POST", path, { headers, body })).text();
  const [recent, oldest] = parseLines(answer).slice(-2);
  expect([recent, oldest]).toEqual([
    { line: 41, status: 200, replayed: true },
    { line: 42, status: 200 },
  ]);
  expect(watched.readMost()).toBeLessThan(24_000_000);
});

test("a dry run whose plants exceed the budget ends beside a small batch", async () => {
  await using service = await startService({ PLANTSTORE_BODY_BYTES_TOTAL_MAX: "8000000" });
  await storePlants(service, 20, LARGE_NAME);
  const batch = await beginBatch(service, 100);
  const lines = Array.from({ length: 20 }, (_, id) => `{"id":${id},"name":"a"}\n`);
  const headers = { "content-type": "application/x-ndjson" };
  const path = "/plants/batch?upsert=true&dry_run=true";
  const answer = await send(service, "POST", path, { headers, body: lines.join("") });
  const results = parseLines(await answer.text()) as { readonly status: number }[];
  expect(results.map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => 200));
  batch.abort();
});

test("while memory is short, metrics, health and small batches are served", async () => {
  await using service = await startService({
    PLANTSTORE_BODY_BYTES_TOTAL_MAX: "8000000",
    ...limits({ drainSecondsMax: 0.1 }),
  });
  const token = await grantToken(service);
  // Far more than the system takes from the service for a client that does not read.
  const name = "x".repeat(30_000_000);
  await service.store.createPlant({ id: 0n, name, tag: undefined });
  const unread = sendDeaf(service.url, getHead("/plants/0"));
  await untilHeld(service, name.length);
  await expectError(await send(service, "GET", "/plants/0"), "overloaded");
  // The first request of a token is not answered from the cache.
  const metrics = await send(service, "GET", "/metrics", { headers: bearer(token) });
  expect([metrics.status, (await metrics.text()).length > 10_000]).toEqual([200, true]);
  for (const path of ["/livez", "/readyz"]) await getText(service, path);
  const results = await sendLines(service, '{"id":70,"name":"a"}\n');
  expect(await results.text()).toContain('"status":200');
  unread.destroy();
});

test("of an export that is not read, two pieces count: the runtime may hold the last one while it asks for the next", async () => {
  await using service = await startService(limits({ drainSecondsMax: 0.1 }));
  await storePlants(service, 80, "x".repeat(300_000));
  const unread = sendDeaf(service.url, getHead("/plants", "Accept: application/x-ndjson"));
  // A piece has about 2 MB.
  await untilHeld(service, 3_500_000);
  unread.destroy();
});

test("readers of events that read nothing leave room for large plants", async () => {
  const CLIENTS = 4;
  await using service = await startWithLargePlants();
  const unread = Array.from({ length: CLIENTS }, () =>
    sendDeaf(service.url, getHead("/changes", "Accept: text/event-stream")),
  );
  // By then each has been sent more than the system takes.
  await untilHeld(service, CLIENTS * 100_000);
  await using reader = await EventReader.open(service.url, bearer(), "?type=created");
  const events = await reader.take(10);
  const expected = Array.from({ length: 10 }, (_, id) => ({ id, plant: { name: LARGE_NAME } }));
  const seen = events.map(({ data }) => JSON.parse(data) as { id: number });
  // PostgreSQL stores plants as large as these in several transactions at once.
  expect(seen.toSorted((one, other) => one.id - other.id)).toMatchObject(expected);
  for (const socket of unread) socket.destroy();
});

test("readers of events that wait for the same change hold no more than their share of memory", async () => {
  const CLIENTS = 60;
  await using service = await startWithLargePlants();
  const { headers } = await send(service, "HEAD", "/changes");
  const from = { ...bearer(), "last-event-id": headers.get("last-change") ?? "" };
  const readers = await Promise.all(
    Array.from({ length: CLIENTS }, () => EventReader.open(service.url, from)),
  );
  using watched = watchHeld();
  await service.store.createPlant({ id: 100n, name: "x".repeat(200_000), tag: undefined });
  for (const reader of readers) expect(await reader.take(1)).toHaveLength(1);
  expect(watched.spy).toHaveBeenCalled();
  // Half of the budget and one piece. All pieces together are nearly the whole budget.
  expect(watched.readMost()).toBeWithin(100_000, 4_300_000);
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
  "while two clients do not read the answer to %s %s, only small plants are accepted",
  async (method, path, route, body) => {
    await using service = await startService({
      PLANTSTORE_BODY_BYTES_TOTAL_MAX: "30000000",
      ...limits({ bodyBytesMax: 10_000_000, drainSecondsMax: 0.1 }),
    });
    await service.store.createPlant({ id: 0n, name: HUGE_NAME, tag: undefined });
    const unread: ReturnType<typeof sendDeaf>[] = [];
    while (unread.length < 2) {
      unread.push(sendDeaf(service.url, formatRequest(method, path, body)));
      await untilServed(service, unread.length, method, route);
    }
    await expectError(await send(service, "GET", "/plants/0"), "overloaded");
    await expectError(await service.create(hugePlant(2)), "overloaded");
    expect((await send(service, "GET", "/plants/2")).status).toBe(404);
    expect((await service.create('{"id":3,"name":"small"}')).status).toBe(200);
    expect((await send(service, "GET", "/plants/3")).status).toBe(200);
    for (const socket of unread) socket.destroy();
    expect(await getWhenServed(service, "/plants/0")).toBe(hugePlant(0));
    expect((await service.create(hugePlant(2))).status).toBe(200);
  },
);

/** A batch that does not end, with a result of its first line or a refusal. */
async function beginBatch({ url }: TestService, id: number): Promise<RawConnection> {
  const connection = await connectRaw(url);
  connection.send(`${batchHead()}${chunk(`{"id":${id},"name":"a"}\n`)}`);
  await connection.receive(/"line":1,"status":200|"error"/);
  return connection;
}

test("batches count with their unfinished lines", async () => {
  await using service = await startService({
    ...limits({ bodyBytesMax: 1_000_000 }),
    // Half of it has room for three batches, and all of it for one long line besides.
    PLANTSTORE_BODY_BYTES_TOTAL_MAX: "9000000",
  });
  const batches: RawConnection[] = [];
  while (batches.length < 3) batches.push(await beginBatch(service, batches.length + 1));
  const refused = await beginBatch(service, 4);
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
  (await beginBatch(service, 5)).abort();
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
  const batch = await beginBatch(service, 1);
  expect(batch.received()).toStartWith("HTTP/1.1 200 ");
  for (const connection of [...refused, batch]) connection.abort();
});

test("of many batches, few lines are with the store at one time", async () => {
  const BATCHES = 12;
  await using service = await startService({ PLANTSTORE_BODY_BYTES_TOTAL_MAX: "2097152" });
  await using held = await service.database.holdWrites();
  const sending = Array.from({ length: BATCHES }, async (_, batch) => {
    const response = await sendLines(service, makeLines(batch * 512, 512));
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

test("a line counts once, in however many pieces it arrives", async () => {
  await using service = await startService(
    limits({ bodyBytesMax: 1_000_000, bodyBytesTotalMax: 1_000_000 }),
  );
  const connection = await connectRaw(service.url);
  connection.send(`${batchHead()}${chunk('{"id":1,"name":"')}`);
  for (let piece = 0; piece < 40; piece++) {
    connection.send(chunk("x".repeat(16_000)));
    await new Promise(setImmediate);
  }
  connection.send(`${chunk('"}\n')}0\r\n\r\n`);
  await connection.receive(/\r\n\r\n.*{"line":1,"status":200}\n/s);
});
