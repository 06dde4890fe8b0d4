/** The client between a caller and a service that fail: what is lost, repeated and cancelled. */

import { beforeEach, describe, expect, test } from "bun:test";
import { Client, type NewPlant, ServiceError, type Settled } from "../../client/client.ts";
import { rejectionOf } from "../support/expect.ts";
import { send, startShared, TEST_TOKEN } from "../support/service.ts";

const DELAYS_MS = [1, 1, 1, 1, 1];
const rose = { id: 1n, name: "a" };

const service = await startShared();
const direct = new Client(service.url, TEST_TOKEN);

beforeEach(() => service.database.run("DELETE FROM plants"));

type Answer = (request: Request, forward: () => Promise<Response>) => Promise<Response> | Response;

/** A proxy that answers each request in its own way, and forwards those after. */
function startProxy(...answers: Answer[]) {
  const seen: string[] = [];
  const server = Bun.serve({
    port: 0,
    idleTimeout: 0,
    fetch: (request) => {
      const { pathname, search } = new URL(request.url);
      seen.push(`${request.method} ${pathname}${search}`);
      const { method, headers, body } = request;
      const forward = (): Promise<Response> =>
        fetch(`${service.url}${pathname}${search}`, { method, headers, body });
      return (answers.shift() ?? ((_, pass) => pass()))(request, forward);
    },
  });
  const client = new Client(server.url.href, TEST_TOKEN, { delaysMs: DELAYS_MS });
  return { client, seen, [Symbol.dispose]: () => void server.stop(true) };
}

/** Done by the service, and its answer lost. */
const lose =
  (...instead: ConstructorParameters<typeof Response>): Answer =>
  async (_, forward) => {
    await (await forward()).bytes();
    return new Response(...instead);
  };
const loseAnswer = lose("", { status: 502 });

const refuse =
  (status: number, body = "", headers = {}): Answer =>
  () =>
    new Response(body, { status, headers });

const asLines = (text: string): Response =>
  new Response(text, { headers: { "content-type": "application/x-ndjson" } });

/** The first bytes of the answer, and then the connection ends: at once, or when the test says so. */
const cutAfter =
  (bytes: number, isTime = Promise.resolve()): Answer =>
  async (_, forward) => {
    const answer = await forward();
    const text = await answer.text();
    const body = new ReadableStream({
      start: (controller) => controller.enqueue(text.slice(0, bytes)),
      pull: async (controller) => {
        await isTime;
        controller.error(new Error("the cut of this test"));
      },
    });
    return new Response(body, { headers: answer.headers });
  };

const many = (count: number): NewPlant[] =>
  Array.from({ length: count }, (_, index) => ({ id: BigInt(index), name: `plant ${index}` }));

async function collect<Item>(items: AsyncIterable<Item>, found: Item[] = []): Promise<Item[]> {
  for await (const item of items) found.push(item);
  return found;
}

describe("a lost answer", () => {
  test("to a create: the second attempt is a replay", async () => {
    using proxy = startProxy(loseAnswer);
    expect(await proxy.client.create(rose)).toBe("replayed");
    expect(proxy.seen).toEqual(["POST /plants", "POST /plants"]);
  });

  test("to a replacement with ifMatch: it is found done", async () => {
    await direct.create(rose);
    const { etag } = await direct.get(1n);
    using losing = startProxy(loseAnswer);
    const other = { id: 1n, name: "b", tag: "t" };
    const replaced = await losing.client.replace(other, { ifMatch: etag });
    expect(replaced).toEqual(await direct.get(1n));
    expect(losing.seen).toEqual(["PUT /plants/1", "PUT /plants/1", "GET /plants/1"]);
    const late = await rejectionOf(direct.replace({ id: 1n, name: "c" }, { ifMatch: etag }));
    expect(late).toMatchObject({ status: 412, reason: "precondition_failed" });
  });

  test("to a removal: it is found done, also if it was 503 store_unavailable", async () => {
    const unavailable = lose('{"error":5003,"message":"Unavailable."}', { status: 503 });
    for (const answer of [loseAnswer, unavailable]) {
      await direct.create(rose);
      using losing = startProxy(answer);
      await losing.client.remove(1n);
      expect(losing.seen).toHaveLength(2);
    }
  });

  test("to no removal: a plant that does not exist is refused", async () => {
    expect(await rejectionOf(direct.remove(1n))).toMatchObject({ reason: "plant_not_found" });
  });

  test("to a removal: a 404 of a proxy is no proof", async () => {
    using gone = startProxy(loseAnswer, refuse(404));
    expect(await rejectionOf(gone.client.remove(1n))).toMatchObject({ status: 404, code: 0 });
  });

  test("to a removal on a reused connection that closes without a word, as HAProxy does: it is found done", async () => {
    const seen: string[] = [];
    const body = '{"error":3002,"message":"There is no plant 1."}';
    const notFound = `HTTP/1.1 404 Not Found\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    using server = Bun.listen({
      hostname: "127.0.0.1",
      port: 0,
      socket: {
        data: (socket, head) => {
          seen.push(head.toString().slice(0, head.indexOf(" ")));
          if (seen.length === 2) socket.end();
          else socket.write(notFound);
        },
      },
    });
    const url = `http://127.0.0.1:${server.port}`;
    const client = new Client(url, TEST_TOKEN, { delaysMs: DELAYS_MS });
    expect(await rejectionOf(client.get(1n))).toMatchObject({ reason: "plant_not_found" });
    await client.remove(1n);
    expect(seen).toEqual(["GET", "DELETE", "DELETE"]);
  });

  test.each([
    ["503 of a proxy", 503, ""],
    ["503 overloaded", 503, '{"error":5002,"message":"Full."}'],
    ["429 rate_limited", 429, '{"error":4010,"message":"Slow down."}'],
  ])(
    "is not what %s is: a removal that was refused first was not done",
    async (_, status, body) => {
      using proxy = startProxy(refuse(status, body));
      const refused = await rejectionOf(proxy.client.remove(1n));
      expect(refused).toMatchObject({ reason: "plant_not_found" });
      expect(proxy.seen).toHaveLength(2);
      await proxy.client.create(rose);
      using losing = startProxy(loseAnswer, refuse(status, body));
      await losing.client.remove(1n);
      expect(losing.seen).toHaveLength(3);
    },
  );

  test("to an export: it continues after the last plant, and has each once, also if it ended without a sign, as behind HTTP/1.0", async () => {
    await direct.createBatch(many(100), () => undefined);
    const cut = Promise.withResolvers<void>();
    using proxy = startProxy(cutAfter(1_000, cut.promise), cutAfter(1_000));
    const ids: bigint[] = [];
    for await (const { id } of proxy.client.export()) {
      ids.push(id);
      cut.resolve();
    }
    expect(ids).toEqual(many(100).map(({ id }) => id));
    expect(proxy.seen[1]).toMatch(/^GET \/plants\?after=\d+$/);
    const end =
      (bytes: number): Answer =>
      async (_, forward) =>
        asLines((await (await forward()).text()).slice(0, bytes));
    for (const [answer, order] of [
      [cutAfter(1_000), "desc"],
      [end(0), "asc"],
      [end(1_000), "asc"],
    ] as const) {
      using other = startProxy(answer);
      const found = (await collect(other.client.export({ order }))).map(({ id }) => id);
      expect(found).toEqual(order === "asc" ? ids : ids.toReversed());
    }
  });

  test("to an export from something that begins again is a failure", async () => {
    await direct.create(rose);
    const repeat: Answer = () =>
      send(service, "GET", "/plants", {
        headers: { accept: "application/x-ndjson", "accept-encoding": "identity" },
      });
    const cut = Promise.withResolvers<void>();
    using proxy = startProxy(cutAfter(1_000, cut.promise), repeat);
    const plants = proxy.client.export();
    expect((await plants.next()).value).toMatchObject({ id: 1n });
    cut.resolve();
    const failure = await rejectionOf(plants.next());
    expect((failure as Error).message).toEndWith("does not answer as a plant store does.");
  });

  test("to a quiet feed: it resumes after what the service has scanned, however often that happens", async () => {
    const headers = { "content-type": "text/event-stream" };
    const quiet: Answer = () => new Response("retry: 2000\n\n:\nid: 77\n\nid: 80\n", { headers });
    const change =
      '{"seq":80,"time":"2026-01-01T00:00:00.000Z","type":"removed","before":{"name":"a"},"id":1}';
    const event: Answer = () =>
      new Response(`id: 80\nevent: removed\ndata: ${change}\n\n`, { headers });
    using proxy = startProxy(...DELAYS_MS.map(() => quiet), quiet, event);
    const changes = proxy.client.changes({ follow: true, after: 5, types: ["removed"] });
    expect((await changes.next()).value).toMatchObject({ seq: 80, id: 1n });
    await changes.return();
    const again = "GET /changes?after=77&type=removed";
    expect(proxy.seen).toEqual([again.replace("77", "5"), ...DELAYS_MS.map(() => again), again]);
  });

  test("that stays away is a failure, after as many retries as were asked for", async () => {
    using proxy = startProxy(...Array.from({ length: 10 }, () => refuse(503)));
    const failure = await rejectionOf(proxy.client.create(rose));
    expect(failure).toMatchObject({ status: 503, code: 0, reason: undefined, isTransient: true });
    expect(proxy.seen).toHaveLength(DELAYS_MS.length + 1);
    // Without delays there are no retries, whatever their number.
    const once = { delaysMs: [], retriesMax: Infinity };
    expect(await rejectionOf(proxy.client.get(1n, once))).toMatchObject({ status: 503 });
    expect(proxy.seen).toHaveLength(DELAYS_MS.length + 2);
    // Clients that fail together try again apart.
    const waits: number[] = [];
    const onRetry = (_: Error, waitMs: number): unknown => waits.push(waitMs);
    await rejectionOf(proxy.client.get(1n, { delaysMs: [1, 20], onRetry }));
    expect(waits).toHaveLength(2);
    expect(waits[1]).toBeWithin(10, 21);
  });

  test("Retry-After of more than half a minute is reported, and nothing is sent before", async () => {
    const later = refuse(503, "", { "retry-after": "3600" });
    using proxy = startProxy(later, later);
    const failure = await rejectionOf(proxy.client.get(1n));
    expect(failure).toMatchObject({ status: 503, isTransient: true, retryAfterMs: 3_600_000 });
    expect(proxy.seen).toHaveLength(1);
    const headers = { "retry-after": new Date(Date.now() + 3_600_000).toUTCString() };
    using dated = startProxy(refuse(429, "", headers));
    const { retryAfterMs } = (await rejectionOf(dated.client.get(1n))) as ServiceError;
    expect(retryAfterMs).toBeWithin(3_000_000, 3_600_001);
    const controller = new AbortController();
    const waits: number[] = [];
    const patient = proxy.client.get(1n, {
      signal: controller.signal,
      retriesMax: Infinity,
      onRetry: (_, waitMs) => {
        waits.push(waitMs);
        controller.abort(new Error("enough"));
      },
    });
    expect(await rejectionOf(patient)).toMatchObject({ message: "enough" });
    expect(waits).toEqual([3_600_000]);
  });
});

describe("createAll", () => {
  test("a summary instead of the last results: those plants are sent again", async () => {
    const summarize: Answer = async (_, forward) => {
      const [first] = (await (await forward()).text()).split("\n");
      return asLines(`${first}\n{"created":5,"replayed":0,"refused":0,"complete":true}\n`);
    };
    using proxy = startProxy(summarize);
    const settled = await collect(proxy.client.createAll(many(5)));
    expect(settled).toMatchObject([
      { index: 0, outcome: "created" },
      ...[1, 2, 3, 4].map((index) => ({ index, outcome: "replayed" })),
    ]);
    expect(proxy.seen).toHaveLength(2);
  });

  test("settles every plant once, past lost connections and a busy store", async () => {
    const busy: Answer = () => asLines('{"line":1,"status":503,"error":5004,"message":"Busy."}\n');
    using proxy = startProxy(cutAfter(100), busy, cutAfter(0), cutAfter(5_000));
    const plants = many(3_000);
    const settled = await collect(proxy.client.createAll(plants));
    for (const { index, plant } of settled) expect(plants[index]).toBe(plant);
    expect(new Set(settled.map(({ index }) => index)).size).toBe(3_000);
    expect(settled).toHaveLength(3_000);
    expect(await service.readPlants()).toHaveLength(3_000);
  });

  test("a write that is sent again keeps its place before a later one to the same plant", async () => {
    const last = { ...rose, name: "last" };
    const refuseFirst: Answer = async () => {
      await direct.create(last);
      return asLines(
        '{"line":1,"status":503,"error":5004,"message":"Busy."}\n{"line":2,"status":200}\n',
      );
    };
    using proxy = startProxy(refuseFirst);
    const outcomes: unknown[] = [];
    await proxy.client.upsertBatch([rose, last], (...settled) => void outcomes.push(settled));
    expect(outcomes).toEqual([
      [0, "replaced"],
      [1, "replaced"],
    ]);
    expect((await direct.get(1n)).plant).toEqual(last);
  });

  test("yields a result while the source waits for it", async () => {
    let seen = Promise.withResolvers<void>();
    async function* source(): AsyncGenerator<NewPlant> {
      for (const plant of many(5)) {
        seen = Promise.withResolvers();
        yield plant;
        await seen.promise;
      }
    }
    const outcomes: unknown[] = [];
    for await (const { outcome } of direct.createAll(source())) {
      outcomes.push(outcome);
      seen.resolve();
    }
    expect(outcomes).toEqual(many(5).map(() => "created"));
  });

  test("rejects with the failure of the source, after the results of what it gave", async () => {
    const failure = new Error("no more");
    function* atOnce(): Generator<NewPlant> {
      yield* many(3);
      throw failure;
    }
    async function* later(): AsyncGenerator<NewPlant> {
      yield* atOnce();
    }
    for (const source of [later(), atOnce()]) {
      const settled: Settled[] = [];
      expect(await rejectionOf(collect(direct.createAll(source), settled))).toBe(failure);
      expect(settled).toHaveLength(3);
    }
  });

  test("refuses an id that is not a bigint, because it may have lost digits", async () => {
    const wrong = { id: 2 as unknown as bigint, name: "b" };
    const settled: Settled[] = [];
    const failure = await rejectionOf(collect(direct.createAll([rose, wrong]), settled));
    expect(failure).toBeInstanceOf(TypeError);
    expect((failure as Error).message).toBe("id: expected a bigint, got number");
    expect(settled).toHaveLength(1);
    expect(await rejectionOf(direct.create(wrong))).toBeInstanceOf(TypeError);
    expect(await rejectionOf(direct.get(wrong.id))).toBeInstanceOf(TypeError);
  });

  test("ends the source where the caller has seen enough", async () => {
    const ended = Promise.withResolvers<undefined>();
    async function* endless(): AsyncGenerator<NewPlant> {
      try {
        for (let id = 0n; ; id++) yield { id, name: "a" };
      } finally {
        ended.resolve(undefined);
      }
    }
    for await (const { index } of direct.createAll(endless())) if (index === 10) break;
    await ended.promise;
    // The client can still be used.
    expect(await direct.create({ id: 0n, name: "a" })).toBe("replayed");
  });

  test("takes no more plants from the source than are answered for, but for a few", async () => {
    const name = "x".repeat(1_000);
    const received = Promise.withResolvers<undefined>();
    /** Reads all it can get, and answers nothing. */
    const readOnly: Answer = async ({ body }) => {
      let bytes = 0;
      for await (const chunk of body as ReadableStream<Uint8Array>) {
        bytes += chunk.length;
        if (bytes > 900_000) received.resolve(undefined);
      }
      return asLines("");
    };
    using proxy = startProxy(readOnly);
    let taken = 0;
    function* endless(): Generator<NewPlant> {
      for (let id = 0n; ; id++, taken++) yield { id, name };
    }
    const controller = new AbortController();
    const { signal } = controller;
    const reading = rejectionOf(collect(proxy.client.createAll(endless(), { signal })));
    await received.promise;
    for (let turn = 0; turn < 100; turn++) await new Promise(setImmediate);
    expect(taken).toBeWithin(900, 1_500);
    controller.abort(new Error("enough"));
    expect(await reading).toMatchObject({ message: "enough" });
  });

  test("an abort ends it, with the results of what was sent", async () => {
    const controller = new AbortController();
    async function* endless(): AsyncGenerator<NewPlant> {
      for (let id = 0n; ; id++) {
        yield { id, name: "a" };
        if (id === 5n) controller.abort(new Error("enough"));
        if (id > 5n) await new Promise(() => undefined);
      }
    }
    const settled: Settled[] = [];
    const { signal } = controller;
    const reading = collect(direct.createAll(endless(), { signal }), settled);
    expect(await rejectionOf(reading)).toMatchObject({ message: "enough" });
    expect(settled.length).toBe((await service.readPlants()).length);
    expect(settled.length).toBeGreaterThan(5);
  });
});

describe("an abort", () => {
  test.each([
    ["a request", (client: Client, signal: AbortSignal) => client.get(1n, { signal })],
    ["an export", (client: Client, signal: AbortSignal) => collect(client.export({}, { signal }))],
    ["a list", (client: Client, signal: AbortSignal) => collect(client.list({}, { signal }))],
  ])("ends %s with its reason", async (_, use) => {
    const controller = new AbortController();
    const hang: Answer = () => {
      controller.abort(new Error("cancelled"));
      return new Promise(() => undefined);
    };
    using proxy = startProxy(hang);
    const failure = await rejectionOf(use(proxy.client, controller.signal));
    expect(failure).toMatchObject({ message: "cancelled" });
    expect(proxy.seen).toHaveLength(1);
  });

  test("by the signal of the constructor ends every operation", async () => {
    const signal = AbortSignal.abort(new Error("closed"));
    const client = new Client(service.url, TEST_TOKEN, { signal });
    for (const operate of [
      () => client.get(1n),
      () => client.create(rose),
      () => collect(client.export()),
      () => collect(client.createAll(many(1))),
    ])
      expect(await rejectionOf(operate())).toMatchObject({ message: "closed" });
    expect(await service.readPlants()).toEqual([]);
  });

  test("by AbortSignal.timeout is not taken for a failure that passes", async () => {
    using proxy = startProxy(() => new Promise(() => undefined));
    const failure = await rejectionOf(proxy.client.get(1n, { signal: AbortSignal.timeout(50) }));
    expect((failure as Error).name).toBe("TimeoutError");
    expect(proxy.seen).toHaveLength(1);
  });
});

test("in a page of another origin, a service that never answered is said to be gone or not to allow the origin", async () => {
  let asked = 0;
  const fetchInVain = (): Promise<never> => {
    asked++;
    // All that a browser tells.
    return Promise.reject(new TypeError("Failed to fetch"));
  };
  const page = { origin: "https://shop.example" };
  Object.defineProperty(globalThis, "location", { value: page, configurable: true });
  const options = { delaysMs: DELAYS_MS, fetch: fetchInVain };
  const asking = new Client("https://plants.example", TEST_TOKEN, options).get(1n);
  const error = await rejectionOf(asking).finally(() => {
    Reflect.deleteProperty(globalThis, "location");
  });
  expect(error).toBeInstanceOf(ServiceError);
  expect((error as Error).message).toBe(
    "https://plants.example cannot be reached from this page: it is not running, or PLANTSTORE_CORS_ORIGINS does not have https://shop.example.",
  );
  expect(asked).toBe(1);
});
