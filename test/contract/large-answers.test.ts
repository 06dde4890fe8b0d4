/** Answers whose size grows with what clients store count as held memory, and are refused if others hold half of it. */

import { beforeAll, expect, test } from "bun:test";
import { mintToken, toRecord } from "../../src/auth/token.ts";
import { WEBHOOKS_MAX } from "../../src/domain/webhook.ts";
import { expectError } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { makeWebhook } from "../support/receiver.ts";
import { getJson, getText, send, startShared } from "../support/service.ts";
import { until } from "../support/until.ts";
import { batchHead, chunk, connectRaw } from "../support/wire.ts";

const LENGTH = 1_000;
const BYTES_MAX = 3_000_000;

const service = await startShared({
  PLANTSTORE_BODY_BYTES_TOTAL_MAX: String(BYTES_MAX),
  PLANTSTORE_WORKERS: "1",
  ...limits({ sampleSeconds: 0.002, drainSecondsMax: 0.1 }),
});

const large = {
  url: `https://shop.example/${"x".repeat(2_000)}`,
  paused: "Because of a long reason. ".repeat(10),
};

beforeAll(async () => {
  const { store } = service;
  const records = Array.from({ length: LENGTH }, (_, index) =>
    toRecord(mintToken(), { name: `token-${index}`, scopes: ["plants:read"], createdAtMs: index }),
  );
  await store.adoptTokens(records);
  for (let index = 0; index < WEBHOOKS_MAX; index++)
    expect(await store.putWebhook(makeWebhook(`webhook-${index}`, large), undefined)).toBe(true);
  const toPlant = (id: number) => ({ id: BigInt(id), name: "", tag: `${id}-${"x".repeat(90)}` });
  await store.createPlants(Array.from({ length: LENGTH }, (_, id) => toPlant(id)));
  await until("there are 400 samples", async () => {
    const { samples } = await getJson<{ samples: unknown[] }>(service, "/activity");
    return samples.length >= 400;
  });
});

const LARGE = 65_536;

test.each([
  ["/tokens?limit=1000", "/tokens?limit=10"],
  ["/tags?limit=1000", "/tags?limit=10"],
  ["/webhooks", "/webhooks/webhook-1"],
  ["/activity", `/activity?since=${Date.now() + 3_600_000}`],
])(
  "while others hold half of the memory, it is refused unless it is small: GET %s",
  async (path, small) => {
    expect((await getText(service, path)).length).toBeGreaterThan(LARGE);
    // An open batch counts as 1.5 MiB.
    const batch = await connectRaw(service.url);
    batch.send(`${batchHead()}${chunk("{}\n")}`);
    await batch.receive(/"line":1,/);
    await expectError(await send(service, "GET", path), "overloaded");
    expect((await send(service, "GET", small)).status).toBe(200);
    expect((await send(service, "GET", "/metrics")).status).toBe(200);
    batch.abort();
    await until("there is room", async () => (await send(service, "GET", path)).status === 200);
  },
);
