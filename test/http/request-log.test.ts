/** What a line of the log says about a request. */

import { expect, test } from "bun:test";
import { catalogue } from "../../src/domain/errors.ts";
import { findClientAddress } from "../../src/domain/address.ts";
import { readCpuMs } from "../support/expect.ts";
import { startService, TEST_TOKEN } from "../support/service.ts";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";

test("a line says who and what, and has neither token, body nor query", async () => {
  await using service = await startService({
    PLANTSTORE_LOG_LEVEL: "debug",
    PLANTSTORE_TRUSTED_PROXIES: "127.0.0.0/8",
  });
  const body = '{"id":1,"name":"Secret fern"}';
  await fetch(`${service.url}/plants`, {
    method: "POST",
    body,
    headers: {
      authorization: `Bearer ${TEST_TOKEN}`,
      "content-type": "application/json",
      "x-forwarded-for": "192.0.2.7, 203.0.113.9",
      traceparent: `00-${TRACE}-00f067aa0ba902b7-01`,
    },
  });
  const refused = await fetch(`${service.url}/plants?secret=1`);
  expect((await refused.json()) as object).toMatchObject({ error: catalogue.token_missing.code });
  const [created = "", missing = "", ...more] = service.logLines;
  expect(more).toEqual([]);
  expect(JSON.parse(created)).toMatchObject({
    level: "debug",
    event: "request",
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

test("without the setting, a success is logged at debug alone, and no header is believed", async () => {
  await using service = await startService({ PLANTSTORE_LOG_LEVEL: "info" });
  const headers = { "x-forwarded-for": "192.0.2.7", traceparent: `00-${"0".repeat(32)}-1-1` };
  await fetch(`${service.url}/livez`, { headers });
  await fetch(`${service.url}/nowhere`, { headers });
  expect(service.logLines).toHaveLength(1);
  const line = JSON.parse(service.logLines[0] ?? "") as object;
  expect(line).toMatchObject({ status: 404, client: "127.0.0.1" });
  expect(line).not.toHaveProperty("traceId");
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
    headers: { authorization: `Bearer ${TEST_TOKEN}`, accept: "application/x-ndjson" },
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

test.each([
  ["x-forwarded-for", "192.0.2.7", "192.0.2.7"],
  ["x-forwarded-for", "6.6.6.6, 192.0.2.7", "192.0.2.7"],
  ["x-forwarded-for", "6.6.6.6, 192.0.2.7, 10.1.2.3", "192.0.2.7"],
  ["x-forwarded-for", "192.0.2.7:4711", "192.0.2.7"],
  ["x-forwarded-for", "10.1.2.3", "10.1.2.3"],
  ["x-forwarded-for", "", "10.0.0.1"],
  ["x-forwarded-for", "6.6.6.6, <script>", "10.0.0.1"],
  ["forwarded", "for=192.0.2.7;proto=https", "192.0.2.7"],
  ["forwarded", 'proto=https;For="[2001:db8::17]:4711"', "2001:db8::17"],
  ["forwarded", 'for=192.0.2.7;by="x, for=7.7.7.7"', "192.0.2.7"],
  ["forwarded", "for=6.6.6.6, for=_hidden, for=10.1.2.3", "10.1.2.3"],
])("%s: %s is the client %s", (name, value, expected) => {
  const config = { trustedProxies: ["10.0.0.0/8", "::1"] };
  expect(findClientAddress(new Headers({ [name]: value }), "10.0.0.1", config)).toBe(expected);
  expect(findClientAddress(new Headers({ [name]: value }), "6.6.6.7", config)).toBe("6.6.6.7");
});

test("a crafted Forwarded header costs no time, and the proxy's own address is logged", () => {
  const headers = new Headers({ forwarded: `"${'\\"'.repeat(7_500)}, for=192.0.2.7` });
  const startedAtMs = readCpuMs();
  const found = findClientAddress(headers, "10.1.2.3", { trustedProxies: ["10.0.0.0/8"] });
  expect(found).toBe("10.1.2.3");
  expect(readCpuMs() - startedAtMs).toBeLessThan(100);
});
