/** What a line of the log says about a request. */

import { expect, test } from "bun:test";
import { expectError } from "../support/expect.ts";
import { bearer, startService } from "../support/service.ts";

export const groups = ["sqlite"];

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";

test("a line names the caller and the operation, but no secret, body or query", async () => {
  await using service = await startService({
    PLANTSTORE_LOG_LEVEL: "debug",
    PLANTSTORE_TRUSTED_PROXIES: "127.0.0.0/8",
  });
  const body = '{"id":1,"name":"Secret fern"}';
  await service.create(body, {
    headers: {
      "x-forwarded-for": "192.0.2.7, 203.0.113.9",
      traceparent: `00-${TRACE}-00f067aa0ba902b7-01`,
    },
  });
  await expectError(await fetch(`${service.url}/plants?secret=1`), "token_missing");
  const [created = "", missing = "", ...more] = service.logLines;
  expect(more).toEqual([]);
  expect(JSON.parse(created)).toMatchObject({
    time: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
    level: "debug",
    event: "request",
    durationMs: expect.any(Number),
    method: "POST",
    path: "/plants",
    status: 200,
    token: "PLANTSTORE_TOKEN",
    client: "203.0.113.9",
    bytes: body.length,
    traceId: TRACE,
  });
  expect(JSON.parse(missing)).toMatchObject({ status: 401, client: "127.0.0.1" });
  expect(JSON.parse(missing)).not.toHaveProperty("token");
  expect(service.logLines.join("")).not.toMatch(/ecret|Bearer/);
});

test("at level info only refusals are logged", async () => {
  await using service = await startService({ PLANTSTORE_LOG_LEVEL: "info" });
  await fetch(`${service.url}/livez`);
  await fetch(`${service.url}/nowhere?secret-query=1#x`);
  await service.create('{"id":"secret-body"}', { headers: { "x-request-id": "r2" } });
  const [missing = "", invalid = "", ...more] = service.logLines;
  expect(more).toEqual([]);
  expect(JSON.parse(missing)).toMatchObject({
    level: "info",
    path: "/nowhere",
    reason: "path_not_found",
  });
  expect(JSON.parse(invalid)).toMatchObject({ requestId: "r2", reason: "invalid_plant" });
  expect(service.logLines.join("")).not.toContain("secret");
});

test("headers of an untrusted client are not logged", async () => {
  await using service = await startService({ PLANTSTORE_LOG_LEVEL: "info" });
  const headers = { "x-forwarded-for": "192.0.2.7", traceparent: `00-${"0".repeat(32)}-1-1` };
  await fetch(`${service.url}/nowhere`, { headers });
  const [line = ""] = service.logLines;
  expect(JSON.parse(line)).toMatchObject({ client: "127.0.0.1" });
  expect(JSON.parse(line)).not.toHaveProperty("traceId");
});

test("a client that leaves an export while a page is read is no failure of the service", async () => {
  await using service = await startService({ PLANTSTORE_LOG_LEVEL: "info" });
  const secondRead = Promise.withResolvers<void>();
  service.store.readPlants = async ({ after }) => {
    if (after !== undefined) await secondRead.promise;
    return { text: '{"id":1,"name":"a"}\n', next: 1n };
  };
  const leaving = new AbortController();
  const response = await fetch(`${service.url}/plants`, {
    headers: { ...bearer(), accept: "application/x-ndjson" },
    signal: leaving.signal,
  });
  await response.body?.getReader().read();
  leaving.abort();
  while (service.logLines.length === 0) await new Promise(setImmediate);
  secondRead.resolve();
  for (let tick = 0; tick < 10; tick++) await new Promise(setImmediate);
  const events = service.logLines.map((line) => (JSON.parse(line) as { event: string }).event);
  expect(events).toEqual(["answer_cut_off"]);
});
