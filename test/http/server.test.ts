/** What surrounds every operation: headers, request ids, health, origins, prefixes, logs, shutting down. */

import { describe, expect, spyOn, test } from "bun:test";
import { catalogue } from "../../src/domain/errors.ts";
import { heldUp } from "../support/database.ts";
import { expectError, expectRefusal, rejectionOf } from "../support/expect.ts";
import { getJson, grantToken, send, startService, startShared } from "../support/service.ts";
import { limits } from "../support/limits.ts";
import { until } from "../support/until.ts";

const plain = await startShared();
const origin = "https://shop.example";
const open = await startShared({ PLANTSTORE_CORS_ORIGINS: `http://a.example, ${origin}` });

describe("every answer of the interface", () => {
  test.each([
    ["200", "/livez", {}],
    ["204", "/plants", { method: "OPTIONS" }],
    ["401", "/plants", { method: "POST" }],
    ["404", "/nowhere", {}],
    ["405", "/plants", { method: "PUT" }],
  ])("of status %s is neither cached nor sniffed", async (status, path, init) => {
    const response = await fetch(plain.url + path, init);
    expect(String(response.status)).toBe(status);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
    });
    for (const name of ["access-control-allow-origin", "vary", "server", "x-powered-by"])
      expect(response.headers.has(name)).toBe(false);
  });

  const idFor = async (path: string, headers = {}): Promise<string | null> =>
    (await fetch(plain.url + path, { headers })).headers.get("x-request-id");

  test.each(["/livez", "/nowhere"])("repeats a sane request id at %s", async (path) => {
    expect(await idFor(path, { "x-request-id": "trace-1:a.b_C" })).toBe("trace-1:a.b_C");
  });

  test.each(["/livez", "/nowhere"])("replaces an insane request id at %s", async (path) => {
    for (const insane of ["", "with space", 'quo"te', "x".repeat(129), "é"])
      expect(await idFor(path, { "x-request-id": insane })).toMatch(/^[a-z0-9]+-[a-z0-9]+$/);
  });

  test("gives a request id to failures alone if the client sent none", async () => {
    const [first, second] = [await idFor("/nowhere"), await idFor("/nowhere")];
    expect(first).toMatch(/^[a-z0-9]+-[a-z0-9]+$/);
    expect(second).not.toBe(first);
    expect(await idFor("/livez")).toBeNull();
  });
});

describe("cross-origin requests", () => {
  test("are allowed from a configured origin and no other", async () => {
    const unset = await fetch(`${plain.url}/livez`, { headers: { origin } });
    expect(unset.headers.has("access-control-allow-origin")).toBe(false);
    const allowed = await open.create('{"id":1,"name":"a"}', { headers: { origin } });
    expect(Object.fromEntries(allowed.headers)).toMatchObject({
      "access-control-allow-origin": origin,
      "access-control-expose-headers":
        "X-Request-Id, Link, Last-Change, Idempotent-Replayed, Preference-Applied, ETag, WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy, Accept-Post, Accept-Patch, Accept-Encoding",
      vary: "Origin",
    });
    for (const others of [{ origin: "https://evil.example" }, {}]) {
      const { headers } = await fetch(`${open.url}/livez`, { headers: others });
      expect(headers.has("access-control-allow-origin")).toBe(false);
      expect(headers.get("vary")).toBe("Origin");
    }
    expect((await send(open, "GET", "/plants")).headers.get("vary")).toBe(
      "Accept, Accept-Encoding, Origin",
    );
  });

  test("have a preflight that names methods and headers", async () => {
    const preflight = await fetch(`${open.url}/plants`, {
      method: "OPTIONS",
      headers: { origin, "access-control-request-method": "POST" },
    });
    expect(preflight.status).toBe(204);
    expect(Object.fromEntries(preflight.headers)).toMatchObject({
      "access-control-allow-origin": origin,
      "access-control-allow-methods": "GET, HEAD, POST, PATCH, DELETE, OPTIONS",
      "access-control-allow-headers":
        "Authorization, Content-Encoding, Content-Type, Mcp-Method, Mcp-Name, MCP-Protocol-Version, Traceparent, Tracestate, X-Request-Id, Prefer, If-Match, If-None-Match, Last-Event-ID",
      "access-control-max-age": "600",
    });
  });

  test("can read errors", async () => {
    const refused = await open.create("{}", { headers: { origin } });
    expect(refused.status).toBe(400);
    expect(refused.headers.get("access-control-allow-origin")).toBe(origin);
  });
});

describe("health", () => {
  test("/livez and /readyz answer only their status, without a token", async () => {
    expect(await (await fetch(`${plain.url}/livez`)).json()).toEqual({ status: "alive" });
    expect(await (await fetch(`${plain.url}/readyz`)).json()).toEqual({ status: "ready" });
  });

  test("/readyz is 503 for as long as the store cannot be written", async () => {
    await using service = await startService(limits({ queueSecondsMax: 1 }));
    await using held = await service.database.holdWrites();
    const blocked = await fetch(`${service.url}/readyz`);
    // On a busy machine the commit may have begun by then.
    await expectRefusal(blocked, heldUp, "store_unavailable");
    await held.release();
    // A probe counts for a second.
    while ((await fetch(`${service.url}/readyz`)).status !== 200) await Bun.sleep(20);
  });

  test("/readyz asked a thousand times makes one commit a second, not a thousand", async () => {
    await using service = await startService();
    const probe = spyOn(service.store, "probe");
    const askedAtMs = performance.now();
    await Promise.all(Array.from({ length: 1000 }, () => fetch(`${service.url}/readyz`)));
    const seconds = (performance.now() - askedAtMs) / 1000;
    expect(probe.mock.calls.length).toBeWithin(1, 2 + Math.floor(seconds));
  });

  test("/readyz turns 503 while draining", async () => {
    const sampled = limits({ sampleSeconds: 0.1 });
    const service = await startService({ PLANTSTORE_DRAIN_DELAY_SECONDS: "60", ...sampled });
    expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
    const drained = Promise.withResolvers<void>();
    const { sleep } = Bun;
    using delay = spyOn(Bun, "sleep").mockImplementation((ms) =>
      ms === 60_000 ? drained.promise : sleep(ms),
    );
    const stopping = service[Symbol.asyncDispose]();
    const response = await fetch(`${service.url}/readyz`);
    await expectError(response, "shutting_down");
    expect(response.headers.get("connection")).toBe("close");
    expect((await service.create('{"id":1,"name":"a"}')).status).toBe(200);
    // What it still does is observed.
    const since = `/activity?since=${Date.now()}`;
    const readActivity = () => getJson<{ samples: unknown[] }>(service, since);
    await until("a sample is taken", async () => (await readActivity()).samples.length > 0);
    expect(delay).toHaveBeenCalledWith(60_000);
    drained.resolve();
    await stopping;
    expect(await rejectionOf(fetch(`${service.url}/livez`))).toBeInstanceOf(Error);
  });
});

test("the log has the cause of a failure of ours, which the caller is not told", async () => {
  await using own = await startService();
  await own.database.failPlantsNamed("boom");
  const headers = { "x-request-id": "r3" };
  const response = await own.create('{"id":1,"name":"boom"}', { headers });
  const { code: error, meaning: message } = catalogue.internal;
  expect([response.status, await response.json()]).toEqual([500, { error, message }]);
  expect(own.logLines.map((line) => JSON.parse(line) as object)).toMatchObject([
    {
      level: "error",
      requestId: "r3",
      reason: "internal",
      cause: {
        message: expect.stringContaining("failed by a test"),
        stack: expect.stringContaining("failed by a test"),
      },
    },
  ]);
});

test.each([
  ["of a declared length", (text: string) => text],
  ["in chunks", (text: string) => new Response(text).body as ReadableStream<Uint8Array>],
])(
  "the largest body %s fits, even if it is the bound of all and its token is looked up",
  async (_, toBody) => {
    await using service = await startService(
      limits({ bodyBytesMax: 2_000_000, bodyBytesTotalMax: 2_000_000, readSecondsMax: 600 }),
    );
    const body = JSON.stringify({ id: 1, name: "x".repeat(2_000_000 - 18) });
    expect(body).toHaveLength(2_000_000);
    const headers = { authorization: `Bearer ${await grantToken(service)}` };
    expect((await service.create(toBody(body), { headers })).status).toBe(200);
  },
);

test("a request that is being served when the service stops is finished", async () => {
  const service = await startService();
  await using held = await service.database.holdWrites();
  const creating = service.create('{"id":1,"name":"a"}');
  while (service.store.writesWaiting === 0) await Bun.sleep(1);
  const stopping = service[Symbol.asyncDispose]();
  await held.release();
  expect((await creating).status).toBe(200);
  await stopping;
});
