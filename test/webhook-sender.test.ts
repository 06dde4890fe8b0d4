/** What sends webhooks, alone: a store that counts, and receivers on loopback. */

import { expect, test } from "bun:test";
import { heapStats } from "bun:jsc";
import { createLog } from "../src/observe/log.ts";
import { createTestEvent, sendEvent } from "../src/webhooks/send.ts";
import { createWebhookSender } from "../src/webhooks/sender.ts";
import { makeWebhook, startReceiver } from "./support/receiver.ts";

const silent = createLog("error", () => undefined);
const limits = {
  webhooksPrivate: true,
  webhookSecondsMax: 15,
  webhookRetrySeconds: [1],
  webhookLeaseSeconds: 60,
  webhookPollMs: 5,
  drainSecondsMax: 10,
};
const CURSOR = 1_767_225_605_000_000;

const makeShop = (name: string, url = "http://127.0.0.1:9/") =>
  makeWebhook(name, { cursor: CURSOR, url });

type Store = Parameters<typeof createWebhookSender>[0];

function startSender(store: Pick<Store, "listWebhooks" | "readChanges">) {
  const sender = createWebhookSender({ ...store, putWebhook: async () => true }, limits, silent);
  sender.start();
  return sender;
}

test("32 idle webhooks share one look at the journal", async () => {
  const webhooks = Array.from({ length: 32 }, (_, id) => makeShop(`shop-${id}`));
  let looks = 0;
  let lists = 0;
  const listedTwice = Promise.withResolvers<void>();
  const sender = startSender({
    listWebhooks: async () => {
      if (++lists === 2) listedTwice.resolve();
      return webhooks;
    },
    readChanges: async () => {
      looks++;
      return { changes: [], last: CURSOR, hasMore: false, newest: CURSOR };
    },
  });
  // Between two reads of the list the journal is looked at ten times.
  await listedTwice.promise;
  expect(looks).toBeWithin(1, 12);
  await sender.stop();
});

test("a webhook that wants none of many changes leaves others their turn while it looks", async () => {
  const LOOKS = 100_000;
  let looks = 0;
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const sender = startSender({
    listWebhooks: async () => [makeShop("shop")],
    readChanges: async ({ after }: { readonly after: number }) => {
      begin();
      return { changes: [], last: after + 1, hasMore: ++looks < LOOKS, newest: after + 1 };
    },
  });
  await begun;
  await new Promise(setImmediate);
  expect(looks).toBeLessThan(LOOKS);
  await sender.stop();
});

test("a large event is sent when no other is: each takes memory", async () => {
  using receiver = startReceiver();
  using other = startReceiver();
  const held = Promise.withResolvers<Response>();
  receiver.answers = [held.promise];
  const json = JSON.stringify("x".repeat(300_000));
  const common = { atMs: 0, type: "created" as const, json };
  const changes = [1, 2].map((more) => ({ seq: CURSOR + more, ...common }));
  const webhooks = [1, 2, 3].map((id) => makeShop(`shop-${id}`, receiver.url));
  const sender = startSender({
    listWebhooks: async () => webhooks,
    readChanges: async ({ after }: { readonly after: number }) => {
      const rest = changes.filter(({ seq }) => seq > after);
      return { changes: rest, last: CURSOR + 2, hasMore: false, newest: CURSOR + 2 };
    },
  });
  await receiver.until(1);
  // Small ones find their way meanwhile.
  for (let sent = 0; sent < 20; sent++)
    await sendEvent(makeShop("other", other.url), createTestEvent(), limits);
  expect(receiver.received).toHaveLength(1);
  held.resolve(new Response());
  await receiver.until(6);
  await sender.stop();
  expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(2);
});

test("events that are taken at once leave no timers in memory", async () => {
  using receiver = startReceiver();
  const { signal } = new AbortController();
  for (let sent = 0; sent < 200; sent++)
    await sendEvent(makeShop("shop", receiver.url), createTestEvent(), limits, signal);
  Bun.gc(true);
  expect(heapStats().objectTypeCounts["AbortSignal"] ?? 0).toBeLessThan(100);
});
