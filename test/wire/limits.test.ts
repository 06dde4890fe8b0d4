/** Clients that send too much, or too slowly. */

import { afterEach, describe, expect, spyOn, test } from "bun:test";
import type { PageText, PlantQuery } from "../../src/domain/page.ts";
import {
  bearer,
  grantToken,
  send,
  startService,
  startShared,
  type TestService,
} from "../support/service.ts";
import {
  batchHead,
  chunk,
  connectRaw,
  CREDENTIALS,
  createHead,
  createRequest,
  exchange,
  expectNothingStored,
  expectOwnRefusal,
  expectStored,
  head,
  HOST,
  parseAnswers,
  plantBody,
  type WireAnswer,
} from "../support/wire.ts";
import { limits } from "../support/limits.ts";

const CHUNKED = "Transfer-Encoding: chunked";
const CLOSE = "Connection: close";
const EXPECT = "Expect: 100-continue";

const BODY_BYTES_MAX = 64;
const service = await startShared(limits({ bodyBytesMax: BODY_BYTES_MAX }));

describe("a body larger than allowed", () => {
  afterEach(() => service.database.run("DELETE FROM plants"));
  const tooLong = `Content-Length: ${BODY_BYTES_MAX + 1}`;
  const padded = (bytes: number): string => plantBody(2).padEnd(bytes);

  function expectTooLarge(answers: readonly WireAnswer[]): void {
    expect(answers).toHaveLength(1);
    expectOwnRefusal(answers[0], "body_too_large");
    expect(answers[0]?.headers.get("connection")).toBe("close");
  }

  test.each([
    ["declared, before any of it is sent", createHead(CLOSE, tooLong)],
    ["declared and sent", createHead(CLOSE, tooLong) + padded(BODY_BYTES_MAX + 1)],
    ["declared twice", createHead(CLOSE, tooLong, tooLong) + padded(BODY_BYTES_MAX + 1)],
    ["declared as more than 2^32", createHead(`Content-Length: ${2 ** 32 + plantBody(2).length}`)],
    ["in one chunk", createHead(CHUNKED) + chunk(padded(BODY_BYTES_MAX + 1))],
    ["in many chunks", createHead(CHUNKED) + chunk(" ").repeat(BODY_BYTES_MAX + 1)],
  ])("is refused and the connection closed: %s", async (_name, bytes) => {
    expectTooLarge(await exchange(service.url, bytes));
    await expectNothingStored(service);
  });

  test("that is declared leaves the connection usable after all of it was sent", async () => {
    const connection = await connectRaw(service.url);
    connection.send(createHead(tooLong) + padded(BODY_BYTES_MAX));
    await connection.receive(/HTTP\/1.1 413 .*}\r\n$/s);
    connection.send(" ");
    await connection.receive(/\r\n0\r\n\r\n$/);
    connection.send(createRequest(3, CLOSE));
    const [refused, stored] = parseAnswers(await connection.closed);
    expectOwnRefusal(refused, "body_too_large");
    expect(refused?.headers.has("connection")).toBe(false);
    expect(stored?.status).toBe(200);
    await expectStored(service, [3]);
  });

  test("is refused chunk by chunk, as soon as the limit is passed, and what it holds is no request", async () => {
    const connection = await connectRaw(service.url);
    connection.send(createHead(CHUNKED, EXPECT));
    await connection.receive(/100 Continue\r\n\r\n$/);
    connection.send(chunk(padded(BODY_BYTES_MAX)));
    connection.send(chunk(createRequest(666)));
    const [interim, ...answers] = parseAnswers(await connection.closed);
    expect(interim?.status).toBe(100);
    expectTooLarge(answers);
    await expectNothingStored(service);
  });
});

const length = `Content-Length: ${plantBody(2).length}`;

describe("an expectation that the runtime does not answer", () => {
  const javas = "Expect: 100-Continue";

  test.each([
    ["a plant", createHead(javas, length)],
    ["a large body", createHead(javas, "Content-Length: 100000")],
    ["chunks", createHead(javas, CHUNKED)],
    ["a batch", batchHead(javas)],
    ["another value", createHead("Expect: the-unexpected", length)],
  ])("is refused at once, not when the body is too slow: %s", async (_name, bytes) => {
    await using roomy = await startService(limits({ readSecondsMax: 3_600 }));
    expectOwnRefusal((await exchange(roomy.url, bytes))[0], "expectation_failed");
    await expectNothingStored(roomy);
  });

  test("does not matter if the body comes with the head", async () => {
    const [answer] = await exchange(service.url, createHead(CLOSE, javas, length) + plantBody(2));
    expect(answer?.status).toBe(200);
    await expectStored(service, [2]);
    await service.database.run("DELETE FROM plants");
  });
});

test.each([
  ["one length", [length]],
  ["the same length twice", [length, length]],
])(
  "bodies that are together larger than allowed are not all read, also after a body with %s",
  async (_name, lengths) => {
    await using crowded = await startService(
      limits({ bodyBytesMax: 6_000, bodyBytesTotalMax: 6_000, drainSecondsMax: 0.1 }),
    );
    const before = await exchange(crowded.url, createHead(CLOSE, ...lengths) + plantBody(2));
    expect(before).toMatchObject([{ status: 200 }]);

    const body = plantBody(3).padEnd(6_000);
    const top = createHead(CLOSE, EXPECT, "Content-Length: 6000");
    const holder = await connectRaw(crowded.url);
    holder.send(top);
    await holder.receive(/100 Continue\r\n\r\n$/);
    const [, refused] = await exchange(crowded.url, top + body);
    expectOwnRefusal(refused, "overloaded");
    const chunked = createHead(CLOSE, CHUNKED) + chunk(plantBody(4));
    for (const small of [createHead(CLOSE, length) + plantBody(2), `${chunked}0\r\n\r\n`])
      expect(await exchange(crowded.url, small)).toMatchObject([{ status: 200 }]);

    holder.send(body);
    expect(parseAnswers(await holder.closed)).toMatchObject([{ status: 100 }, { status: 200 }]);
    const [, accepted] = await exchange(crowded.url, top + body);
    expect(accepted?.status).toBe(200);
    await expectStored(crowded, [2, 3, 4]);
  },
);

const READ_SECONDS_MAX = 1;
const haste = limits({ readSecondsMax: READ_SECONDS_MAX, idleSecondsMax: 6 });
const hasty = await startShared(haste);

// Together, because each waits for a deadline.
describe.concurrent("what takes long:", () => {
  /** Sends the rest piece by piece, until it is all sent or the service has closed the connection. */
  async function trickle({ url }: TestService, first: string, rest: Iterable<string>) {
    const startedAtMs = performance.now();
    const connection = await connectRaw(url);
    connection.send(first);
    for (const piece of rest) {
      await Bun.sleep(20);
      if (!connection.isOpen()) break;
      connection.send(piece);
    }
    const answers = parseAnswers(await connection.closed);
    return { answers, seconds: (performance.now() - startedAtMs) / 1000 };
  }

  const bytes = plantBody(2).padEnd(1000);
  test.each([
    ["a declared body, byte by byte,", createHead("Content-Length: 1000"), bytes],
    ["a body in chunks of a byte", createHead(CHUNKED), Array.from(bytes, chunk)],
    ["the size of a chunk, digit by digit,", createHead(CHUNKED), "0".repeat(1000)],
    ["a body that never comes", createHead("Content-Length: 1000"), []],
  ])("%s is cut off with 408", async (_name, top, rest) => {
    const { answers, seconds } = await trickle(hasty, top, rest);
    expect(answers).toHaveLength(1);
    expectOwnRefusal(answers[0], "body_too_slow");
    expect(answers[0]?.headers.get("connection")).toBe("close");
    expect(seconds).toBeGreaterThanOrEqual(READ_SECONDS_MAX);
    await expectNothingStored(hasty);
  });

  test("a body that trickles in within the time is stored", async () => {
    await using patient = await startService(limits({ readSecondsMax: 240, idleSecondsMax: 255 }));
    const top = createHead(CLOSE, length);
    const { answers } = await trickle(patient, top, plantBody(2).match(/.{1,6}/g) ?? []);
    expect(answers).toMatchObject([{ status: 200 }]);
    await expectStored(patient, [2]);
  });

  test("a connection that is idle after an answer is closed after the idle time, an unread body or not", async () => {
    const asked = head("GET /livez HTTP/1.1", HOST);
    const unread = head("POST /plants HTTP/1.1", HOST, "Content-Length: 1000");
    const dryRun = head("DELETE /plants?tag=x&dry_run=true HTTP/1.1", HOST, ...CREDENTIALS);
    const idle = await Promise.all([
      trickle(hasty, asked, []),
      trickle(hasty, dryRun, []),
      trickle(hasty, asked + asked.slice(0, 10), []),
      trickle(hasty, unread, []),
      trickle(hasty, unread, bytes),
    ]);
    expect(idle).toMatchObject(
      [200, 200, 200, 401, 401].map((status) => ({ answers: [{ status }] })),
    );
    for (const { seconds } of idle) expect(seconds).toBeGreaterThan(3.9);
    await expectNothingStored(hasty);
  });

  test("a connection is closed after the idle time after a HEAD of what a GET streams, too", async () => {
    const paths = ["/plants", "/plants?sort=name", "/changes"];
    const answers = paths.map(async (path) => {
      const connection = await connectRaw(hasty.url);
      const lines = [HOST, ...CREDENTIALS, "Accept: application/x-ndjson"];
      const answer = await connection.ask(head(`HEAD ${path} HTTP/1.1`, ...lines));
      await connection.closed;
      return answer?.status;
    });
    expect(await Promise.all(answers)).toEqual([200, 200, 200]);
  });

  // The runtime closes an idle connection up to four seconds early or late.
  test("a batch may take longer than the idle time, as long as something comes now and then", async () => {
    await using patient = await startService(
      // Only the idle time can end it: a busy machine may be late by minutes.
      limits({ readSecondsMax: 240, idleSecondsMax: 7 }),
    );
    const connection = await connectRaw(patient.url);
    connection.send(batchHead());
    for (let line = 1; line <= 6; line++) {
      connection.send(chunk(`{"id":${line},"name":"a"}\n`));
      await connection.receive(new RegExp(`"line":${line},`));
      await Bun.sleep(1_700);
    }
    connection.send("0\r\n\r\n");
    await connection.receive(/\r\n0\r\n\r\n$/);
    connection.abort();
    expect(await patient.readPlants()).toHaveLength(6);
  });

  test("writes that wait for their rate longer than the idle time are answered", async () => {
    await using slow = await startService(haste);
    const plants = Array.from({ length: 130 }, (_, id) => ({ id: String(id), name: "a" }));
    const lines = plants.map(({ id, name }) => `{"id":${id},"name":"${name}"}`);
    const params = { name: "write_plants", arguments: { writes: plants, dryRun: false } };
    const atomic = "/plants/batch?atomic=true";
    const answers = [
      ["/plants/batch", "application/x-ndjson", lines.join("\n")],
      [atomic, "application/x-ndjson", lines.join("\n")],
      [atomic, "application/json", `[${lines.join()}]`],
      [
        "/mcp",
        "application/json",
        JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params }),
      ],
    ].map(async ([path = "", type = "", body = ""]) => {
      const token = await grantToken(slow, ["plants:read", "plants:write"], { rate: "10/s" });
      const headers = { ...bearer(token), "content-type": type };
      // No second attempt by the client's runtime on a connection that was cut off.
      const response = await send(slow, "POST", path, { body, headers, keepalive: false });
      return [response.status, (await response.text()).includes('"status":200')];
    });
    expect(await Promise.all(answers)).toEqual(answers.map(() => [200, true]));
    expect(await slow.readPlants()).toHaveLength(plants.length);
  });

  test("an export that finds nothing for longer than the idle time is not cut off", async () => {
    // Its own: the store is patched, and other tests run meanwhile.
    await using slow = await startService(haste);
    const found = '{"id":99,"name":"found"}\n';
    spyOn(slow.store, "readPlants").mockImplementation(
      async ({ after = 0n }: PlantQuery): Promise<PageText> => {
        if (after > 0n) await Bun.sleep(1_000);
        return after === 12n ? { text: found, next: undefined } : { text: "", next: after + 1n };
      },
    );
    const headers = { accept: "application/x-ndjson" };
    const response = await send(slow, "GET", "/plants?name=found", { headers });
    expect(await response.text()).toBe(found);
  });
});
