/** How much a token may ask for: by PLANTSTORE_RATE_LIMIT, or by a rate of its own. */

import { describe, expect, test } from "bun:test";
import { catalogue } from "../../src/domain/errors.ts";
import { scopes } from "../../src/domain/token.ts";
import { expectError } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import {
  bearer,
  grantToken,
  send,
  sendLines,
  startService,
  TEST_TOKEN,
  type TestService,
} from "../support/service.ts";
import { lines as makeLines, parseLines } from "../support/folder.ts";
import { batchHead, chunk, connectRaw, type RawConnection } from "../support/wire.ts";
import { until } from "../support/until.ts";

export const groups = ["sqlite", "threads", "postgres"];

const get = (service: TestService, token = TEST_TOKEN): Promise<Response> =>
  fetch(`${service.url}/token`, { headers: bearer(token) });

/** A batch that does not end, with a result of its first line or a refusal. */
async function beginBatch(service: TestService, token = TEST_TOKEN): Promise<RawConnection> {
  const connection = await connectRaw(service.url);
  connection.send(batchHead().replace(TEST_TOKEN, token) + chunk(makeLines(0, 1)));
  await connection.receive(/"line":1|"error"/);
  return connection;
}

async function countUntilRefused(service: TestService, token: string): Promise<number> {
  for (let count = 0; ; count++) if ((await get(service, token)).status === 429) return count;
}

describe("PLANTSTORE_RATE_LIMIT", () => {
  test("a token that has used up its rate gets 429 with the time to retry", async () => {
    await using service = await startService({ PLANTSTORE_RATE_LIMIT: "20/h" });
    const other = await grantToken(service);
    const sinceMs = performance.now();
    for (let count = 1; count <= 18; count++) {
      const { status, headers } = await get(service);
      expect([status, headers.has("ratelimit")]).toEqual([200, false]);
    }
    const low = await get(service);
    expect(low.headers.get("ratelimit-policy")).toBe('"token";q=20;w=3600');
    const [, seconds] = /^"token";r=1;t=(\d+)$/.exec(low.headers.get("ratelimit") ?? "") ?? [];
    const passedSeconds = (performance.now() - sinceMs) / 1000;
    expect(Number(seconds)).toBeWithin(3_420 - Math.ceil(passedSeconds), 3_421);
    expect((await get(service)).headers.get("ratelimit")).toStartWith('"token";r=0;t=');

    const refused = await service.create('{"id":1,"name":"Fern"}');
    const { code: error, meaning: message } = catalogue.rate_limited;
    expect([refused.status, await refused.json()]).toEqual([429, { error, message }]);
    expect(Number(refused.headers.get("retry-after"))).toBeWithin(1, 181);
    expect(refused.headers.get("ratelimit")).toStartWith('"token";r=0;t=');
    expect(await service.readPlants()).toEqual([]);
    expect((await get(service, other)).status).toBe(200);
    // What needs no token has no rate.
    expect((await fetch(`${service.url}/livez`)).status).toBe(200);
  });

  test("a token's own rate replaces it, also by none", async () => {
    await using service = await startService({ PLANTSTORE_RATE_LIMIT: "5/h" });
    const slow = await grantToken(service, scopes, { rate: "2/h" });
    const free = await grantToken(service, scopes, { rate: "none" });
    expect(await countUntilRefused(service, slow)).toBe(2);
    expect(await countUntilRefused(service, TEST_TOKEN)).toBe(5);
    for (let count = 0; count < 12; count++) expect((await get(service, free)).status).toBe(200);
  });

  test("a token has at most four batches in flight", async () => {
    await using service = await startService({
      PLANTSTORE_RATE_LIMIT: "100/h",
      // Each HTTP thread has four.
      PLANTSTORE_WORKERS: "1",
      ...limits({ drainSecondsMax: 0.1 }),
    });
    const together = await Promise.all(Array.from({ length: 8 }, () => beginBatch(service)));
    const open = together.filter((batch) => batch.received().includes('"line":1,"status":200'));
    expect(open).toHaveLength(4);
    const refused = await beginBatch(service);
    expect(refused.received()).toStartWith("HTTP/1.1 429 ");
    expect(refused.received()).toContain("retry-after: 1\r\n");
    expect(refused.received()).toContain(
      `"error":${catalogue.rate_limited.code},"message":"The token has 4 batches in flight, `,
    );
    const bulk = await send(service, "DELETE", "/plants?tag=t");
    await expectError(bulk, "rate_limited", "batches in flight");
    // 100, without nine requests and four lines.
    expect(refused.received()).toContain('ratelimit: "token";r=87;');
    const others = await beginBatch(service, await grantToken(service));
    expect(others.received()).toContain('"line":1,"status":200');
    for (const batch of [...open, others]) batch.abort();
    let next = await beginBatch(service);
    while (next.received().includes('"error"')) next = await beginBatch(service);
    next.abort();
  });

  test("a service that stops ends a batch that waits for its rate", async () => {
    // Longer than a test may take: the batch is not waited for.
    const drain = limits({ drainSecondsMax: 3_600 });
    const service = await startService({ PLANTSTORE_RATE_LIMIT: "5/h", ...drain });
    const text = (await sendLines(service, makeLines(0, 10))).text();
    await until("the rate is used up", async () => (await get(service)).status === 429);
    await service[Symbol.asyncDispose]();
    const results = parseLines(await text);
    expect(results.at(-1)).toMatchObject({
      line: results.length,
      status: 503,
      error: catalogue.shutting_down.code,
    });
  });
});
