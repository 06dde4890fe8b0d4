/** Webhooks on every engine: managed over HTTP, and sent in order, at least once. */

import { afterAll, afterEach, describe, expect, test } from "bun:test";
import type { Socket } from "bun";
import type { Webhook } from "../../src/domain/webhook.ts";
import { createLog } from "../../src/observe/log.ts";
import type { ShownSecret, ShownSkip } from "../../src/webhooks/manage.ts";
import { createWebhookSender } from "../../src/webhooks/sender.ts";
import type { ErrorName } from "../../src/domain/errors.ts";
import { expectError } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { type Received, startReceiver, verify } from "../support/receiver.ts";
import { getJson, grantToken, send, startService, type TestService } from "../support/service.ts";
import { until } from "../support/until.ts";
import { fakeStore } from "../support/stores.ts";

type Shown = ShownSecret & ShownSkip;

/** Names that have an address in these tests alone. Even if no address were refused, loopback would be dialled. */
const addresses: Readonly<Record<string, readonly string[]>> = {
  "shop.example": ["127.0.0.1"],
  "rebound.example": ["2001:4860:4860::8888", "127.0.0.1"],
};

async function startSending(settings: Readonly<Record<string, string>>): Promise<TestService> {
  const stack = new AsyncDisposableStack();
  const service = stack.use(await startService(settings));
  const log = createLog("debug", (line) => void service.logLines.push(line));
  const resolve = async (host: string): Promise<readonly string[]> => addresses[host] ?? [];
  const sender = createWebhookSender(service.store, { ...service.config, resolve }, log);
  sender.start();
  stack.defer(() => sender.stop());
  return { ...service, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

const times = { webhookPollMs: 5, webhookLeaseSeconds: 6, webhookSecondsMax: 3 };
const soon = {
  PLANTSTORE_WEBHOOKS_PRIVATE: "true",
  ...limits({ ...times, webhookRetrySeconds: [0.05, 0.05, 0.05] }),
};

const service = await startSending(soon);
afterAll(() => service[Symbol.asyncDispose]());
afterEach(async () => {
  for (const { name } of await service.store.listWebhooks()) await call("DELETE", `/${name}`);
});

const ask = (method: string, path: string, body?: unknown, asked = service): Promise<Response> =>
  send(asked, method, `/webhooks${path}`, body === undefined ? {} : { body: JSON.stringify(body) });

type Asked = Parameters<typeof ask>;

async function call(...[method, path, ...more]: Asked): Promise<Shown> {
  const response = await ask(method, path, ...more);
  expect([path, response.ok]).toEqual([path, true]);
  return (response.status === 204 ? undefined : await response.json()) as Shown;
}

const expectRefused = async (reason: ErrorName, ...asked: Asked): Promise<string> =>
  expectError(await ask(...asked), reason);

/** Adds the webhook `shop`. */
const addShop = (url: string, more: object = {}, asked?: TestService): Promise<Shown> =>
  call("POST", "", { url, name: "shop", ...more }, asked);

/** The receiver of the webhook `shop`. */
async function startShop(answers: (Response | Promise<Response>)[] = [], more: object = {}) {
  const receiver = startReceiver();
  receiver.answers = answers;
  return Object.assign(receiver, { added: await addShop(receiver.url, more) });
}

/** To as many attempts as there are before a pause. */
const failAll = (status: number, text = ""): Response[] =>
  Array.from({ length: 4 }, () => new Response(text, { status }));

/** Resolves to what is shown when that holds. */
async function untilShop(holds: (shop: Shown) => boolean, asked?: TestService): Promise<Shown> {
  const show = () => call("GET", "/shop", undefined, asked);
  let shop = await show();
  await until("the webhook is shown as expected", async () => holds((shop = await show())));
  return shop;
}

/** Changes the record in the store as another instance would. */
async function rewrite(changes: Partial<Webhook>): Promise<void> {
  const [shop] = await service.store.listWebhooks();
  // A version that was seen before would be taken for the same record.
  const next = { ...(shop as Webhook), ...changes, version: crypto.randomUUID() };
  expect(await service.store.putWebhook(next, shop)).toBe(true);
}

let lastId = 0;
/** Creates a plant, and returns its id. */
async function create(asked = service): Promise<string> {
  const id = String(++lastId);
  expect((await asked.create(`{"id":${id},"name":"plant ${id}"}`)).status).toBe(200);
  return id;
}

const plantsOf = (received: readonly Received[]): (string | undefined)[] =>
  received.map(({ body }) => /"id":(-?\d+)/.exec(body)?.[1]);

describe("a webhook", () => {
  test("is sent every change from now on, once, in order, signed, with exact digits", async () => {
    using receiver = startReceiver();
    using removals = startReceiver();
    const id = await create();
    const { secret } = await addShop(receiver.url);
    await call("POST", "", { url: removals.url, name: "removals", types: ["removed"] });
    await call("POST", "", { url: removals.url, name: "gone" });
    await call("DELETE", "/gone");
    await service.create('{"id":-9223372036854775808,"name":"n"}');
    await send(service, "PUT", `/plants/${id}`, { body: '{"name":"tree"}' });
    await send(service, "DELETE", `/plants/${id}`);
    await receiver.until(3);
    const types = receiver.received.map(({ type }) => type);
    expect(types).toEqual(["plant.created", "plant.replaced", "plant.removed"]);
    await removals.until(1);
    expect(removals.received.map(({ type }) => type)).toEqual(["plant.removed"]);
    expect(plantsOf(receiver.received)).toEqual(["-9223372036854775808", id, id]);
    const changes = await (await send(service, "GET", "/changes")).text();
    for (const event of receiver.received) {
      verify(event, secret);
      const data = event.body.slice(event.body.indexOf('"data":') + '"data":'.length, -1);
      expect(changes).toContain(data);
      expect(data).toStartWith(`{"seq":${event.id.slice("msg_".length)},`);
    }
    const shown = await untilShop(({ attempts }) => attempts.length === 3);
    expect(shown).toMatchObject({ state: "active", reason: null, failures: 0, nextAttempt: null });
    expect(JSON.stringify(shown)).not.toContain(secret);
  });

  test("that fails is sent the same event again, then the next ones", async () => {
    const refused = new Response("no", { status: 500, headers: { "retry-after": "tomorrow" } });
    using receiver = await startShop([refused, Response.redirect("http://127.0.0.1:9/", 302)]);
    const [one, two] = [await create(), await create()];
    await receiver.until(4);
    expect(plantsOf(receiver.received)).toEqual([one, one, one, two]);
    expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(2);
    const { attempts } = await untilShop((shop) => shop.attempts.length === 4);
    expect(attempts.map(({ status }) => status)).toEqual([204, 204, 302, 500]);
    expect(attempts[3]?.answer).toBe("no");
  });

  test("that keeps failing is paused until it is resumed", async () => {
    using receiver = await startShop(failAll(503, "x".repeat(9_999)));
    const one = await create();
    const { reason, attempts } = await untilShop(({ state }) => state === "paused");
    expect(reason).toBe("4 attempts failed. The last one: The receiver answered 503.");
    expect(attempts[0]?.answer).toHaveLength(200);
    expect(service.logLines.join("")).toContain("webhook_paused");
    const two = await create();
    await call("POST", "/shop/resume");
    await receiver.until(6);
    expect(plantsOf(receiver.received).slice(4)).toEqual([one, two]);
  });

  test("skips the change that failed, once", async () => {
    using receiver = await startShop(failAll(422), { types: ["created", "removed"] });
    expect((await call("POST", "/shop/skip")).skipped).toBeNull();
    const [one, two] = [await create(), await create()];
    await untilShop(({ state }) => state === "paused");
    // It is still known what has failed.
    await call("POST", "/shop/pause");
    const skipped = await call("POST", "/shop/skip");
    const lastChange = Number(receiver.received[0]?.id.slice("msg_".length));
    const due = { state: "active", reason: null, failures: 0, lastChange, skipped: lastChange };
    expect(skipped).toMatchObject(due);
    expect((await call("POST", "/shop/skip")).skipped).toBeNull();
    await receiver.until(5);
    expect(plantsOf(receiver.received)).toEqual([one, one, one, one, two]);
  });

  test("can be tested and get a new secret while an event is in flight", async () => {
    await using patient = await startSending({
      ...soon,
      ...limits({ ...times, webhookSecondsMax: 15, webhookLeaseSeconds: 60 }),
    });
    using receiver = startReceiver();
    const held = Promise.withResolvers<Response>();
    receiver.answers = [held.promise];
    await addShop(receiver.url, {}, patient);
    const ids = [await create(patient)];
    await receiver.until(1);
    await call("POST", "/shop/test", undefined, patient);
    const { secret } = await call("POST", "/shop/rotate", undefined, patient);
    held.resolve(new Response());
    await untilShop(({ attempts }) => attempts.length === 2, patient);
    ids.push(await create(patient));
    await receiver.until(3);
    const { attempts } = await untilShop((shop) => shop.attempts.length === 3, patient);
    expect(attempts.filter(({ event }) => event.startsWith("msg_test_"))).toHaveLength(1);
    const [first, , last] = receiver.received as [Received, Received, Received];
    expect(plantsOf([first, last])).toEqual(ids);
    verify(last, secret);
  });

  test("that answers 410 is paused at once", async () => {
    using receiver = await startShop([new Response(null, { status: 410 })]);
    await create();
    const { reason } = await untilShop(({ state }) => state === "paused");
    expect(reason).toContain("410");
    expect(receiver.received).toHaveLength(1);
  });

  test.each([
    ["3600", 3_600_000],
    [String(10 ** 9), 86_400_000],
    [new Date(Date.now() + 7_200_000).toUTCString(), 7_200_000],
  ])("that says Retry-After: %s is left alone for %d ms", async (header, ms) => {
    const headers = { "retry-after": header };
    using receiver = await startShop([new Response(null, { status: 429, headers })]);
    await create();
    await receiver.until(1);
    const { nextAttempt } = await untilShop(({ failures }) => failures === 1);
    expect(Date.parse(nextAttempt ?? "") - Date.now()).toBeWithin(ms - 600_000, ms + 600_000);
  });

  test.each([
    ["by version 1.0", {}],
    ["by another instance", { waitMs: 50 }],
  ])("waits no longer than its backoff if the clock was set back: %s", async (_, wait) => {
    using receiver = await startShop();
    await rewrite({ failures: 1, nextAttemptAtMs: Date.now() + 3_600_000, ...wait });
    const one = await create();
    await receiver.until(1);
    expect(plantsOf(receiver.received)).toEqual([one]);
  });

  test("that does not answer in time has failed", async () => {
    using receiver = await startShop([new Promise<Response>(() => undefined)]);
    await create();
    const { attempts } = await untilShop((shop) => shop.attempts.length > 0);
    expect(attempts.at(-1)).toMatchObject({ status: null, error: "No answer within 3 s." });
    await receiver.until(2);
  });

  test("that answers 2xx has taken the event, although it keeps its body open", async () => {
    const closed = Promise.withResolvers<void>();
    const answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsoon\r\n";
    const data = (client: Socket) => void client.write(answer);
    const socket = { data, close: () => closed.resolve() };
    using server = Bun.listen({ hostname: "127.0.0.1", port: 0, socket });
    await addShop(`http://127.0.0.1:${server.port}/`);
    await create();
    const { attempts, failures } = await untilShop((shop) => shop.attempts.length > 0);
    expect(attempts[0]).toMatchObject({ status: 200, error: null, answer: "soon" });
    expect(failures).toBe(0);
    await closed.promise;
  });

  test("that answers nonsense has failed, without its URL in the log", async () => {
    const socket = { data: (client: Socket) => void client.write("nonsense\r\n".repeat(9)) };
    using server = Bun.listen({ hostname: "127.0.0.1", port: 0, socket });
    await addShop(`http://127.0.0.1:${server.port}/hook?key=hidden`);
    await create();
    const { attempts } = await untilShop(({ failures }) => failures > 0);
    expect(attempts[0]?.error).toContain("Malformed");
    expect(service.logLines.join()).toContain('"webhook_failed"');
    expect(service.logLines.join()).not.toContain("hidden");
  });

  test("can be sent back to a number, or on to the newest", async () => {
    using receiver = await startShop();
    const { lastChange } = receiver.added;
    const ids = [await create(), await create(), await create()];
    await receiver.until(3);
    await call("POST", "/shop/pause");
    await call("POST", "/shop/replay", { from: lastChange });
    await receiver.until(6);
    expect(plantsOf(receiver.received)).toEqual([...ids, ...ids]);
    const skipped = await call("POST", "/shop/replay", { from: "newest" });
    // On SQLite the change of a webhook has a number too.
    const third = Number(receiver.received[2]?.id?.slice("msg_".length));
    expect(skipped.lastChange).toBeGreaterThanOrEqual(third);
    type Oldest = [{ readonly id: number; readonly seq: number }];
    const [oldest] = await getJson<Oldest>(service, "/changes?limit=1");
    // A place in the journal: if the oldest change is removed before it is sent, that is noticed.
    const again = await call("POST", "/shop/replay", { from: 0 });
    expect(again.lastChange).toBe(oldest.seq - 1);
    await receiver.until(8);
    expect(plantsOf(receiver.received)[6]).toBe(String(oldest.id));
  });

  test("that has missed deleted changes is paused", async () => {
    using receiver = await startShop();
    const cursor = 1_767_225_600_000_001;
    await rewrite({ cursor });
    const { reason } = await untilShop(({ state }) => state === "paused");
    expect(reason).toContain(`The changes after ${cursor} have been deleted, so some were not`);
    expect(reason).toContain("plantstore webhook replay shop --from newest");
    await call("POST", "/shop/replay", { from: "newest" });
    const id = await create();
    await receiver.until(1);
    expect(plantsOf(receiver.received)).toEqual([id]);
  });

  test("is signed with both secrets for a day after a rotation", async () => {
    using receiver = await startShop();
    const { secret: old } = receiver.added;
    const { secret } = await call("POST", "/shop/rotate");
    expect(secret).not.toBe(old);
    await call("POST", "/shop/test");
    const [first] = receiver.received as [Received];
    for (const one of [old, secret]) expect(verify(first, one)).toMatchObject({ data: {} });
    expect(first.type).toBe("webhook.test");
    await rewrite({ oldSecret: { secret: old, untilMs: Date.now() } });
    await call("POST", "/shop/test");
    const second = receiver.received[1] as Received;
    verify(second, secret);
    expect(() => verify(second, old)).toThrow();
  });

  test("of an instance that is gone is taken over by another one", async () => {
    using receiver = await startShop();
    await rewrite({ holder: "the dead" });
    const startedAtMs = performance.now();
    const ids = [await create(), await create()];
    await receiver.until(2);
    expect(performance.now() - startedAtMs).toBeGreaterThan(400);
    expect(plantsOf(receiver.received)).toEqual(ids);
  });
});

describe("a sender that stops", () => {
  const log = createLog("error", () => undefined);

  test("does not wait for its next poll", async () => {
    const listed = Promise.withResolvers<void>();
    const listWebhooks = async () => (listed.resolve(), []);
    const never = { ...service.config, webhookPollMs: 3_600_000 };
    const sender = createWebhookSender(fakeStore({ ...service.store, listWebhooks }), never, log);
    sender.start();
    await listed.promise;
    await sender.stop();
  });

  test("sends nothing that it has not begun, and gives its lease back", async () => {
    await using idle = await startService(soon);
    using receiver = startReceiver();
    await addShop(receiver.url, {}, idle);
    const [leasing, stopping] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const store = Object.assign(Object.create(idle.store) as typeof idle.store, {
      putWebhook: async (...webhooks: Parameters<typeof idle.store.putWebhook>) => {
        leasing.resolve();
        await stopping.promise;
        return idle.store.putWebhook(...webhooks);
      },
    });
    const sender = createWebhookSender(store, idle.config, log);
    sender.start();
    await create(idle);
    await leasing.promise;
    const stopped = sender.stop();
    stopping.resolve();
    await stopped;
    expect(receiver.received).toEqual([]);
    expect((await idle.store.listWebhooks())[0]?.holder).toBeUndefined();
  });
});

describe("private addresses", () => {
  test("are refused when a webhook is added, and again at each attempt", async () => {
    await using strict = await startSending({ ...soon, PLANTSTORE_WEBHOOKS_PRIVATE: "false" });
    const literals = ["127.0.0.1", "[::1]", "127.1.2.3", "0x7f.1", "[::ffff:127.0.0.1]"];
    for (const host of literals) {
      const refused = await ask("POST", "", { url: `http://${host}/hook` }, strict);
      await expectError(refused, "invalid_body", "is not a public address");
    }
    using receiver = startReceiver();
    const url = receiver.url.replace("127.0.0.1", "rebound.example");
    await addShop(url, {}, strict);
    await create(strict);
    const { attempts } = await untilShop(({ state }) => state === "paused", strict);
    expect(attempts[0]?.error).toContain("127.0.0.1 is not a public address");
    expect(receiver.received).toEqual([]);
  });

  test("are used with the setting, under the name of the URL", async () => {
    using receiver = startReceiver();
    const url = receiver.url.replace("127.0.0.1", "shop.example");
    expect((await call("POST", "", { url })).name).toBe("shop.example");
    await create();
    await receiver.until(1);
    expect(receiver.received[0]?.headers["host"]).toBe(new URL(url).host);
  });
});

describe("is refused:", () => {
  const url = "https://shop.example/";

  test("what is not a webhook, with every fault", async () => {
    for (const [body, ...parts] of [
      [[], "body: expected an object, got an array"],
      [{}, "url: expected an http or https URL", "got nothing"],
      [{ url: "ftp://shop.example/" }, "url: expected"],
      [{ url: "https://user:word@shop.example/" }, "without a user"],
      [{ url: url + "x".repeat(2_048) }, "url: expected"],
      [{ url, name: "a b", types: [] }, "name: expected", "types: expected"],
      [{ url, types: ["created", "created"] }, "types: expected"],
      [{ url, types: ["grown"] }, "types: expected"],
      [{ url, type: "created" }, '"type"', "unknown; allowed: url, name, types"],
    ] as const)
      await expectError(await ask("POST", "", body), "invalid_body", ...parts);
    expect(await service.store.listWebhooks()).toEqual([]);
  });

  test("a name that is taken, and one more than there may be", async () => {
    for (let count = 0; count < 32; count++) await call("POST", "", { url, name: `shop-${count}` });
    await expectRefused("webhook_name_taken", "POST", "", { url, name: "shop-3" });
    await expectRefused("webhooks_full", "POST", "", { url, name: "shop-32" });
    expect(await service.store.listWebhooks()).toHaveLength(32);
  });

  test("an unknown name, and numbers that are not in the journal", async () => {
    await addShop(url);
    for (const action of ["test", "skip", "pause", "resume", "rotate"])
      await expectRefused("webhook_not_found", "POST", `/missing/${action}`);
    await expectRefused("webhook_not_found", "DELETE", "/missing");
    await expectRefused("webhook_not_found", "POST", "/missing/replay", { from: 0 });
    await expectRefused("changes_gone", "POST", "/shop/replay", { from: 1_767_225_600_000_001 });
    await expectRefused("changes_gone", "POST", "/shop/replay", { from: 9_000_000_000_000_000 });
    for (const from of [-1, 1.5, "oldest", null])
      await expectRefused("invalid_body", "POST", "/shop/replay", { from });
    await expectRefused("path_not_found", "POST", "/shop/grow");
  });

  test("a webhook where no changes are kept", async () => {
    await using unkept = await startService({ ...soon, PLANTSTORE_CHANGES_DAYS: "0" });
    const says = await expectRefused("changes_gone", "POST", "", { url }, unkept);
    expect(says).toContain("PLANTSTORE_CHANGES_DAYS");
  });

  test("a webhook of a token that lacks webhooks:manage or plants:read", async () => {
    const body = '{"url":"http://127.0.0.1:9/"}';
    for (const [granted, status] of [
      [["plants:read", "plants:write"], 403],
      [["webhooks:manage"], 403],
      [["webhooks:manage", "plants:read"], 201],
    ] as const) {
      const headers = { authorization: `Bearer ${await grantToken(service, granted)}` };
      expect((await send(service, "POST", "/webhooks", { headers, body })).status).toBe(status);
    }
  });
});
