/** Content codings: who gets an answer in zstd or gzip, and which packed batches are taken. */

import { describe, expect, test } from "bun:test";
import { once } from "node:events";
import { connect } from "node:net";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { Client } from "../../client/client.ts";
import { chooseCoding } from "../../src/http/query.ts";
import { expectError } from "../support/expect.ts";
import { lines } from "../support/folder.ts";
import { bearer, removeAll, send, sendLines, startShared, TEST_TOKEN } from "../support/service.ts";

export const groups = ["sqlite", "threads"];

const codings = ["zstd", "gzip"] as const;
type Coding = (typeof codings)[number];

const unpack = (coding: string | null, bytes: Uint8Array): string => {
  const given = Buffer.from(bytes);
  if (coding === null) return given.toString();
  return Buffer.from(
    coding === "zstd" ? Bun.zstdDecompressSync(given) : Bun.gunzipSync(given),
  ).toString();
};

/** As it is sent: `fetch` would unpack it. */
async function ask(url: string, path: string, headers: Record<string, string>, method = "GET") {
  const init = { method, headers: { ...bearer(), ...headers }, decompress: false };
  const response = await fetch(url + path, init);
  const bytes = await response.bytes();
  return { response, bytes, coding: response.headers.get("content-encoding") };
}

describe("Accept-Encoding", () => {
  test.each([
    [null, undefined],
    ["", undefined],
    ["identity", undefined],
    ["br, deflate", undefined],
    ["gzip", "gzip"],
    ["X-GZIP", "gzip"],
    ["zstd", "zstd"],
    ["gzip, deflate, br, zstd", "zstd"],
    ["gzip;q=1.0, zstd;q=0.9", "gzip"],
    ["gzip;q=0.5, zstd;q=0.5", "zstd"],
    ["*", "gzip"],
    ["*;q=0.1, zstd;q=0", "gzip"],
    ["gzip;q=0, *", undefined],
    ["gzip;q=0, zstd;q=0.000", undefined],
    ["identity, gzip;q=0.5", undefined],
    ["identity;q=0.5, gzip;q=0.5", "gzip"],
    ["identity;q=0", undefined],
    ["*;q=0", undefined],
    ["gzip ; q=0.2 , zstd ; q=0.1", "gzip"],
    [";;,q=,gzip;q=x", undefined],
  ])("%p chooses %p", (header, coding) => {
    expect(chooseCoding(header)?.coding).toBe(coding as Coding);
  });

  test.each([
    ["gzip, identity;q=0", true],
    ["gzip, *;q=0", true],
    ["gzip, *;q=0, identity", false],
    ["gzip", false],
  ])("%p: whether a coding is required is %p", (header, isRequired) => {
    expect(chooseCoding(header)?.isRequired).toBe(isRequired);
  });
});

const filled = await startShared();
await (await sendLines(filled, lines(1, 5_000))).text();

describe("an answer", () => {
  const { url } = filled;
  const resources: [what: string, path: string, headers: Record<string, string>][] = [
    ["a small page", "/plants?limit=100", {}],
    ["a large page", "/plants?limit=1000", {}],
    ["an export as NDJSON", "/plants", { accept: "application/x-ndjson" }],
    ["an export as CSV", "/plants", { accept: "text/csv" }],
    ["a page of changes", "/changes?limit=1000", {}],
    ["changes as lines", "/changes", { accept: "application/x-ndjson" }],
  ];
  for (const coding of codings)
    test.each(resources)(
      `in ${coding}: %s is the same plants, and smaller`,
      async (_, path, more) => {
        const plain = await ask(url, path, { ...more, "accept-encoding": "identity" });
        const packed = await ask(url, path, { ...more, "accept-encoding": coding });
        expect([plain.coding, packed.coding]).toEqual([null, coding]);
        expect(unpack(coding, packed.bytes)).toBe(unpack(null, plain.bytes));
        expect(packed.bytes.length).toBeLessThan(plain.bytes.length / 2);
        for (const { response } of [plain, packed])
          expect(response.headers.get("vary")).toBe("Accept, Accept-Encoding");
        const head = await ask(url, path, { ...more, "accept-encoding": coding }, "HEAD");
        expect(head.response.headers.get("vary")).toBe("Accept, Accept-Encoding");
        // The coding of a page of changes depends on its size, which HEAD does not read.
        if (path === "/changes?limit=1000") return;
        expect(head.coding).toBe(coding);
        const length = packed.response.headers.get("content-length");
        expect(head.response.headers.get("content-length")).toBe(length);
      },
    );

  test("that fits into a packet is packed only for a client that refuses it otherwise", async () => {
    const small = await ask(url, "/plants?limit=1", { "accept-encoding": "gzip" });
    expect([small.coding, unpack(null, small.bytes)]).toEqual([null, '[{"id":1,"name":"p"}]']);
    const packed = await ask(url, "/plants?limit=1", { "accept-encoding": "gzip, identity;q=0" });
    expect([packed.coding, unpack("gzip", packed.bytes)]).toEqual([
      "gzip",
      '[{"id":1,"name":"p"}]',
    ]);
    const none = await ask(url, "/plants?limit=1", { "accept-encoding": "identity;q=0" });
    expect([none.response.status, none.coding]).toEqual([200, null]);
  });

  test("with a secret, an entity tag or events is never packed", async () => {
    const wants = { "accept-encoding": "gzip;q=1, identity;q=0" };
    for (const path of ["/tokens", "/webhooks", "/token", "/metrics", "/plants/1", "/plants/count"])
      expect((await ask(url, path, wants)).coding).toBeNull();
    const events = await fetch(`${url}/changes`, {
      headers: { ...bearer(), ...wants, accept: "text/event-stream" },
    });
    expect(events.headers.get("content-encoding")).toBeNull();
    await events.body?.cancel();
    const { response } = await ask(url, "/plants/1", wants);
    const etag = response.headers.get("etag") ?? "";
    const again = await ask(url, "/plants/1", { ...wants, "if-none-match": etag });
    expect([again.response.status, again.response.headers.get("etag")]).toEqual([304, etag]);
  });

  test.each(codings)("as a stream in %s can be unpacked as it arrives", async (coding) => {
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    const headers = `Accept: text/csv\r\nAccept-Encoding: ${coding}\r\nAuthorization: ${bearer().authorization}`;
    socket.write(`GET /plants HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n\r\n`);
    // The first chunk is complete when the second one has begun. Nothing after it is used.
    let received = Buffer.alloc(0);
    let chunk: Buffer | undefined;
    while (chunk === undefined) {
      const [data] = (await once(socket, "data")) as [Buffer];
      received = Buffer.concat([received, data]);
      const start = received.indexOf("\r\n\r\n") + 4;
      const end = received.indexOf("\r\n", start);
      const length = Number.parseInt(received.subarray(start, end).toString(), 16);
      if (end > 0 && received.length >= end + 2 + length)
        chunk = received.subarray(end + 2, end + 2 + length);
    }
    socket.destroy();
    const unpacker = coding === "zstd" ? createZstdDecompress() : createGunzip();
    unpacker.on("error", () => undefined);
    const first = once(unpacker, "data");
    unpacker.write(chunk);
    expect(String((await first)[0])).toStartWith("id,name,tag\r\n");
    unpacker.destroy();
  });
});

test.each(codings)("an export in %s that is cut off is continued by the client", async (coding) => {
  const seen: string[] = [];
  using proxy = Bun.serve({
    port: 0,
    fetch: async ({ url, headers }) => {
      const { pathname, search } = new URL(url);
      seen.push(search);
      const sent = { authorization: headers.get("authorization") ?? "", "accept-encoding": coding };
      const answer = await fetch(`${filled.url}${pathname}${search}`, {
        headers: { ...sent, accept: headers.get("accept") ?? "" },
        decompress: false,
      } as RequestInit);
      const bytes = await answer.bytes();
      const kept = Object.fromEntries(
        [...answer.headers].filter(([name]) => /^content-(type|encoding)$|^link$/.test(name)),
      );
      if (seen.length > 1) return new Response(bytes, { headers: kept });
      const cut = new ReadableStream({
        start: (controller) => controller.enqueue(bytes.subarray(0, bytes.length / 2)),
        pull: (controller) => controller.error(new Error("the cut of this test")),
      });
      return new Response(cut, { headers: kept });
    },
    error: () => new Response(null, { status: 500 }),
  });
  const client = new Client(proxy.url.href, TEST_TOKEN, { compress: true, delaysMs: [1, 1, 1] });
  const plants = await Array.fromAsync(client.export());
  expect(plants.map(({ id }) => id)).toEqual(
    Array.from({ length: 5_000 }, (_, at) => BigInt(at + 1)),
  );
  expect(seen.length).toBeGreaterThan(1);
});

const service = await startShared();

describe("a packed batch", () => {
  const arrayOf = (text: string): string => `[${text.trim().replaceAll("\n", ",")}]`;
  const sendPacked = (
    body: Uint8Array,
    { isArray = false, query = "", encoding = "gzip" } = {},
  ): Promise<Response> =>
    send(service, "POST", `/plants/batch${query}`, {
      body,
      headers: {
        "content-encoding": encoding,
        "content-type": isArray ? "application/json" : "application/x-ndjson",
      },
    });
  const countStored = async (): Promise<number> => (await service.readPlants()).length;

  test("is taken as lines, as an array and as a transaction", async () => {
    await removeAll(service);
    const streamed = await sendPacked(Bun.gzipSync(lines(1, 3_000)));
    const results = (await streamed.text()).trim().split("\n");
    expect(results).toHaveLength(3_000);
    expect(results.at(-1)).toBe('{"line":3000,"status":200}');
    const array = await sendPacked(Bun.gzipSync(arrayOf(lines(5_001, 10))), { isArray: true });
    expect(await array.json()).toHaveLength(10);
    const atomic = await sendPacked(Bun.gzipSync(lines(6_001, 10)), { query: "?atomic=true" });
    expect(atomic.status).toBe(200);
    expect(await countStored()).toBe(3_020);
  });

  test("has several members, or the coding's other name", async () => {
    await removeAll(service);
    const parts = [Bun.gzipSync(lines(1, 2)), Bun.gzipSync(lines(3, 3))];
    await (await sendPacked(Buffer.concat(parts))).text();
    expect(await countStored()).toBe(5);
    expect((await sendPacked(Bun.gzipSync(""), { encoding: "X-GZip" })).status).toBe(200);
  });

  const text = lines(1, 2_000);
  const random = Buffer.from(crypto.getRandomValues(new Uint8Array(3_000))).toString("base64");
  const packedText = Bun.gzipSync(text);
  const flipped = Buffer.from(Bun.gzipSync(`{"id":1,"name":"${random}"}\n`));
  flipped.fill(0xff, 2_000, 2_010);

  test.each<[what: string, body: Uint8Array]>([
    ["not packed at all", Buffer.from(text)],
    ["cut off", packedText.subarray(0, packedText.length - 1)],
    ["cut in half", packedText.subarray(0, packedText.length / 2)],
    ["followed by something else", Buffer.concat([packedText, Buffer.from("plants")])],
    ["damaged", flipped],
  ])("that is %s is refused", async (_, body) => {
    await removeAll(service);
    const atomic = await sendPacked(body, { query: "?atomic=true" });
    await expectError(atomic, "invalid_encoding");
    const array = await sendPacked(body, { isArray: true });
    await expectError(array, "invalid_encoding");
    expect(await countStored()).toBe(0);
    const streamed = await sendPacked(body);
    const results = (await streamed.text())
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(results.at(-1)).toMatchObject({ status: 400, error: 1008 });
    // What was acknowledged is stored, and nothing else.
    expect(await countStored()).toBe(results.filter(({ status }) => status === 200).length);
  });

  test("that is a bomb is refused without being unpacked", async () => {
    await removeAll(service);
    const bomb = Bun.gzipSync(Buffer.alloc(300_000_000, "\n"));
    expect(bomb.length).toBeLessThan(1_048_576);
    const rss = process.memoryUsage.rss();
    const atomic = await sendPacked(bomb, { query: "?atomic=true" });
    await expectError(atomic, "body_too_large");
    const array = await sendPacked(bomb, { isArray: true });
    await expectError(array, "body_too_large");
    const streamed = await sendPacked(bomb);
    expect(await streamed.text()).toContain('"error":4007');
    expect(process.memoryUsage.rss() - rss).toBeLessThan(100_000_000);
    expect(await countStored()).toBe(0);
  });

  test("in two codings, or in an unknown one, is refused with those that are taken", async () => {
    const several = ["gzip, zstd", "gzip, gzip", ","];
    const unknown = ["br", "deflate", "zstd", "x", "constructor", "__proto__"];
    for (const encoding of [...several, ...unknown]) {
      const response = await sendPacked(Bun.gzipSync(lines(1, 1)), { encoding });
      expect(response.headers.get("accept-encoding")).toBe("gzip, identity");
      await expectError(response, "unsupported_encoding");
    }
  });

  test("is what the client sends unless the service refuses it", async () => {
    await removeAll(service);
    const sent: (string | null)[] = [];
    const clientOf = (compress: boolean | undefined, isOld = false): Client =>
      new Client(service.url, TEST_TOKEN, {
        compress,
        fetch: async (address, init) => {
          const encoding = new Headers(init.headers).get("content-encoding");
          sent.push(encoding);
          const message = {
            error: 4006,
            message: "The body must be sent without a content encoding.",
          };
          if (isOld && encoding !== null) return Response.json(message, { status: 415 });
          return fetch(address, init);
        },
      });
    const store = async (client: Client, first: number): Promise<void> => {
      const plants = Array.from({ length: 3_000 }, (_, at) => ({
        id: BigInt(first + at),
        name: "p",
      }));
      let settled = 0;
      await client.createBatch(plants, () => settled++);
      expect(settled).toBe(3_000);
    };
    await store(clientOf(true), 1);
    expect(sent.splice(0)).toEqual(["gzip", "gzip"]);
    await store(clientOf(true, true), 10_001);
    expect(sent.splice(0)).toEqual(["gzip", null, null]);
    await store(clientOf(undefined), 20_001);
    expect(sent.splice(0)).toEqual([null, null]);
    expect(await countStored()).toBe(9_000);
  });
});
