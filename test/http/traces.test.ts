/** Traces, from a request to a collector. */

import { describe, expect, test } from "bun:test";
import { createLog } from "../../src/observe/log.ts";
import { createWebhookSender } from "../../src/webhooks/sender.ts";
import { type Span, startCollector } from "../support/collector.ts";
import { expectError } from "../support/expect.ts";
import { limits } from "../support/limits.ts";
import { makeWebhook, startReceiver } from "../support/receiver.ts";
import {
  bearer,
  getText,
  send,
  sendLines,
  startService,
  TEST_TOKEN,
  walkPages,
} from "../support/service.ts";
import { until } from "../support/until.ts";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT = "00f067aa0ba902b7";
const SAMPLED = `00-${TRACE}-${PARENT}-01`;
const quick = { spanDelayMs: 1, spanRetryMs: 1 };

const startTraced = (url: string, settings: Readonly<Record<string, string>> = {}) =>
  startService({ OTEL_EXPORTER_OTLP_ENDPOINT: url, ...limits(quick), ...settings });

const isRequest = ({ kind }: Span): boolean => kind === 2;

describe("a traced create", () => {
  test("is a span of its caller's trace, with its wait and its commit as children", async () => {
    using collector = startCollector();
    await using service = await startTraced(collector.url, {
      OTEL_SERVICE_NAME: "shop",
      OTEL_RESOURCE_ATTRIBUTES: "deployment.environment.name=test%20bed,service.name=other",
      OTEL_EXPORTER_OTLP_HEADERS: "x-tenant=plants,authorization=Bearer%20collector-secret",
    });
    const body = '{"id":1,"name":"Monstera"}';
    const headers = { traceparent: SAMPLED, tracestate: "vendor=a b , other=1" };
    expect((await service.create(body, { headers })).status).toBe(200);
    const request = await collector.find(isRequest);
    const { port, hostname } = new URL(service.url);
    expect(request).toMatchObject({
      traceId: TRACE,
      parentSpanId: PARENT,
      traceState: "vendor=a b,other=1",
      name: "POST /plants",
      isError: false,
      attributes: {
        "http.request.method": "POST",
        "http.route": "/plants",
        "url.path": "/plants",
        "url.scheme": "http",
        "server.address": hostname,
        "server.port": Number(port),
        "client.address": "127.0.0.1",
        "http.request.body.size": body.length,
        "http.response.status_code": 200,
      },
    });
    const isChild = (name: string) => (span: Span) =>
      span.name === name && span.parentSpanId === request.spanId && span.traceId === TRACE;
    const [queue, commit] = [
      await collector.find(isChild("queue")),
      await collector.find(isChild("commit")),
    ];
    expect(commit.attributes["plantstore.commit.writes"]).toBe(1);
    expect([queue.kind, commit.kind]).toEqual([1, 1]);
    expect(commit.traceState).toBe("vendor=a b,other=1");
    expect(queue.endNs).toBe(commit.startNs);
    expect(queue.startNs).toBeGreaterThanOrEqual(request.startNs);
    expect(commit.endNs).toBeLessThanOrEqual(request.endNs);
    const sentMs = Number(request.endNs / 1_000_000n);
    expect(Math.abs(Date.now() - sentMs)).toBeLessThan(600_000);
    const [sent] = collector.requests;
    expect(sent?.path).toBe("/v1/traces");
    expect(sent?.headers).toMatchObject({
      "x-tenant": "plants",
      authorization: "Bearer collector-secret",
    });
    expect(sent?.resource).toMatchObject({
      "service.name": "shop",
      "deployment.environment.name": "test bed",
    });
    const line = JSON.parse(service.logLines.at(-1) ?? "") as object;
    expect(line).toMatchObject({ event: "request", traceId: TRACE, spanId: request.spanId });
    const metrics = () => getText(service, "/metrics");
    await until("the spans are counted", async () =>
      /^plantstore_spans_total\{result="exported"\} [1-9]/m.test(await metrics()),
    );
    expect(await metrics()).toContain('plantstore_spans_total{result="dropped"} 0\n');
  });

  test.each([
    ["no header", undefined],
    ["upper case", SAMPLED.toUpperCase()],
    ["a version that is forbidden", SAMPLED.replace("00-", "ff-")],
    ["two headers", `${SAMPLED}, ${SAMPLED}`],
  ])("starts a trace with %s", async (_, traceparent) => {
    using collector = startCollector();
    await using service = await startTraced(collector.url);
    const headers = { tracestate: "vendor=1", ...(traceparent && { traceparent }) };
    await service.create('{"id":1,"name":"a"}', { headers });
    const request = await collector.find(isRequest);
    expect(request.traceId).not.toBe(TRACE);
    expect(request).not.toHaveProperty("parentSpanId");
    expect(request).not.toHaveProperty("traceState");
  });

  test("is not sampled if its caller did not sample it", async () => {
    using collector = startCollector();
    await using service = await startTraced(collector.url);
    const headers = { traceparent: SAMPLED.replace(/1$/, "0") };
    await service.create('{"id":1,"name":"a"}', { headers });
    await service.create('{"id":2,"name":"a"}', { headers: { traceparent: SAMPLED } });
    await collector.find((span) => isRequest(span) && span.traceId === TRACE);
    expect(collector.spans.filter(isRequest)).toHaveLength(1);
    const [first = ""] = service.logLines;
    expect(JSON.parse(first)).toMatchObject({ traceId: TRACE });
    expect(JSON.parse(first)).not.toHaveProperty("spanId");
  });
});

test("refusals are no errors, failures of the store are, with the commit that failed", async () => {
  using collector = startCollector();
  await using service = await startTraced(collector.url, { PLANTSTORE_BASE_PATH: "/shop" });
  await expectError(await service.create('{"id":"x"}'), "invalid_plant");
  const refused = await collector.find(isRequest);
  expect(refused).toMatchObject({ name: "POST /shop/plants", isError: false });
  expect(refused.attributes).toMatchObject({
    "http.response.status_code": 400,
    "plantstore.reason": "invalid_plant",
  });
  expect(refused.attributes).not.toHaveProperty("error.type");
  await service.database.failPlantsNamed("broken");
  const failed = await service.create(`{"id":1,"name":"broken"}`);
  expect(failed.status).toBeGreaterThanOrEqual(500);
  const span = await collector.find((each) => isRequest(each) && each.isError);
  expect(span.attributes).toHaveProperty(["error.type"], span.attributes["plantstore.reason"]);
  await collector.find(({ name, isError }) => name === "commit" && isError);
});

test("no secret leaves: neither a token, a query, a body, a header, nor what a path has in place of an id", async () => {
  using collector = startCollector();
  await using service = await startTraced(collector.url);
  const headers = {
    cookie: "cookie-secret",
    "user-agent": "agent-secret",
    "x-request-id": "id-secret",
    "x-forwarded-for": "forwarded-secret",
  };
  const token = "pst_0123456789abcdefghij0123456789";
  const paths = [
    "/plants?key=query-secret",
    "/plants/path-secret",
    "/webhooks/secret-name",
    `/nowhere/${token}?a=query-secret#x`,
    "/nowhere/eyJhbGciOiJSUzI1NiJ9.eyJqd3Qtc2VjcmV0Ijox.c2ln",
  ];
  for (const path of paths) await send(service, "GET", path, { headers });
  await service.create('{"id":1,"name":"body-secret"}', { headers });
  const created = ({ name }: Span): boolean => name === "POST /plants";
  await collector.find(created);
  await service.tracer?.close();
  const everything = collector.requests.map(({ body }) => body).join("\n");
  expect(everything).not.toMatch(/secret|Bearer|c2VjcmV0|abcdefghij/);
  expect(everything).not.toContain(TEST_TOKEN);
  expect(everything).toContain("/nowhere/pst_[redacted]");
});

test("the headers for the collector are in no log line and no metric", async () => {
  using collector = startCollector();
  collector.answers.push(
    new Response("collector-secret", { status: 401, headers: { "www-authenticate": "x" } }),
  );
  await using service = await startTraced(`${collector.url}/?key=collector-secret`, {
    OTEL_EXPORTER_OTLP_HEADERS: "authorization=Bearer%20collector-secret",
  });
  await service.create('{"id":1,"name":"a"}');
  await until("the refusal is logged", () => service.logLines.join("").includes("not_exported"));
  expect(service.logLines.join("")).not.toContain("collector-secret");
  expect(await getText(service, "/metrics")).not.toContain("collector-secret");
});

test("a batch has its commits as children", async () => {
  using collector = startCollector();
  await using service = await startTraced(collector.url);
  const lines = Array.from({ length: 700 }, (_, id) => `{"id":${id},"name":"a"}\n`).join("");
  const text = await (await sendLines(service, lines)).text();
  expect(text.split("\n")).toHaveLength(701);
  const request = await collector.find(({ name }) => name === "POST /plants/batch");
  const commits = collector.spans.filter(({ name }) => name === "commit");
  expect(commits.length).toBeGreaterThan(1);
  for (const { parentSpanId, endNs } of commits) {
    expect(parentSpanId).toBe(request.spanId);
    expect(endNs).toBeLessThanOrEqual(request.endNs);
  }
});

test("a job has its commits as children", async () => {
  using collector = startCollector();
  await using service = await startTraced(collector.url);
  await service.create('{"id":1,"name":"a"}');
  const accepted = await send(service, "DELETE", "/plants?q=a", {
    headers: { prefer: "respond-async", traceparent: SAMPLED },
  });
  expect(accepted.status).toBe(202);
  const request = await collector.find(({ name }) => name === "DELETE /plants");
  const isOwn = ({ name, parentSpanId }: Span): boolean =>
    name === "commit" && parentSpanId === request.spanId;
  const commit = await collector.find(isOwn);
  expect(commit.endNs).toBeLessThanOrEqual(request.endNs);
  expect(await service.readPlants()).toEqual([]);
});

test("every HTTP thread traces its requests", async () => {
  using collector = startCollector();
  await using service = await startTraced(collector.url, {
    PLANTSTORE_WORKERS: process.platform === "linux" ? "3" : "1",
  });
  const count = 40;
  const connection = { connection: "close" };
  await Promise.all(
    Array.from({ length: count }, (_, id) =>
      service.create(`{"id":${id},"name":"a"}`, { headers: connection }),
    ),
  );
  await until("all are exported", () => collector.spans.filter(isRequest).length === count);
  const commits = collector.spans.filter(({ name }) => name === "commit");
  expect(new Set(commits.map(({ parentSpanId }) => parentSpanId)).size).toBe(count);
});

describe("a delivery to a webhook", () => {
  test("is a trace with a link to the request that made the change", async () => {
    using collector = startCollector();
    using receiver = startReceiver();
    await using service = await startTraced(collector.url, {
      PLANTSTORE_WEBHOOKS_PRIVATE: "true",
    });
    receiver.answers.push(new Response(null, { status: 500 }));
    const webhook = makeWebhook("hook", { url: `${receiver.url}/url-secret?q=url-secret` });
    await service.store.putWebhook(webhook, undefined);
    await service.create('{"id":1,"name":"a"}', { headers: { traceparent: SAMPLED } });
    const options = { ...service.config, webhookRetrySeconds: [0.001], webhookPollMs: 1 };
    const logLines: string[] = [];
    const log = createLog("warn", (line) => void logLines.push(line));
    const sender = createWebhookSender(service.store, options, log, service.tracer);
    sender.start();
    await receiver.until(2);
    const request = await collector.find(isRequest);
    const isDelivery = ({ kind }: Span): boolean => kind === 3;
    const failed = await collector.find((span) => isDelivery(span) && span.isError);
    const sent = await collector.find((span) => isDelivery(span) && !span.isError);
    await sender.stop();
    const { port } = new URL(receiver.url);
    const [change] = (await service.store.readChanges({ after: 0, limit: 1 })).changes;
    expect(failed.attributes).toMatchObject({
      "http.response.status_code": 500,
      "error.type": "500",
    });
    expect(sent.attributes).toEqual({
      "http.request.method": "POST",
      "http.request.resend_count": 1,
      "http.response.status_code": 204,
      "url.scheme": "http",
      "server.address": "127.0.0.1",
      "server.port": Number(port),
      "plantstore.webhook": "hook",
      "plantstore.change": change?.seq as number,
    });
    expect(sent.name).toBe("POST hook");
    for (const [index, span] of [failed, sent].entries()) {
      expect(span.traceId).not.toBe(TRACE);
      expect(span.links).toMatchObject([{ traceId: TRACE, spanId: request.spanId }]);
      const { traceparent } = receiver.received[index]?.headers ?? {};
      expect(traceparent).toBe(`00-${span.traceId}-${span.spanId}-01`);
    }
    expect(JSON.parse(logLines[0] ?? "")).toMatchObject({
      event: "webhook_failed",
      traceId: failed.traceId,
      spanId: failed.spanId,
    });
    expect(collector.requests.map(({ body }) => body).join("")).not.toContain("url-secret");
    const shown = await send(service, "GET", "/changes", { headers: bearer() });
    expect(await shown.text()).not.toContain(request.spanId);
  });

  test("has no link to a request that was not sampled", async () => {
    using collector = startCollector();
    using receiver = startReceiver();
    await using service = await startTraced(collector.url, {
      PLANTSTORE_WEBHOOKS_PRIVATE: "true",
      OTEL_TRACES_SAMPLER: "parentbased_always_off",
    });
    await service.store.putWebhook(makeWebhook("hook", { url: receiver.url }), undefined);
    await service.create('{"id":1,"name":"a"}');
    await service.create('{"id":2,"name":"a"}', { headers: { traceparent: SAMPLED } });
    const options = { ...service.config, webhookPollMs: 1 };
    const log = createLog("warn", () => undefined);
    const sender = createWebhookSender(service.store, options, log, service.tracer);
    sender.start();
    await receiver.until(2);
    const linked = await collector.find(({ kind }) => kind === 3);
    await sender.stop();
    expect(linked.links).toHaveLength(1);
    expect(collector.spans.filter(({ kind }) => kind === 3)).toHaveLength(1);
    const [first, second] = receiver.received.map(({ headers }) => headers["traceparent"] ?? "");
    expect(first).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/);
    expect(second).toMatch(/-01$/);
  });
});

test("a test event is a child of the request that sends it", async () => {
  using collector = startCollector();
  using receiver = startReceiver();
  await using service = await startTraced(collector.url, { PLANTSTORE_WEBHOOKS_PRIVATE: "true" });
  await service.store.putWebhook(makeWebhook("hook", { url: receiver.url }), undefined);
  const path = "/webhooks/hook/test";
  const tracestate = "vendor=1";
  await send(service, "POST", path, { headers: { traceparent: SAMPLED, tracestate } });
  const request = await collector.find(isRequest);
  const sent = await collector.find(({ kind }) => kind === 3);
  expect(request).toMatchObject({ name: "POST /webhooks/{name}/test", parentSpanId: PARENT });
  expect(request.attributes["url.path"]).toBe("/webhooks/{name}/test");
  expect(sent).toMatchObject({ traceId: TRACE, parentSpanId: request.spanId, links: [] });
  expect(sent.attributes).not.toHaveProperty("plantstore.change");
  const traceparent = `00-${TRACE}-${sent.spanId}-01`;
  expect(receiver.received[0]?.headers).toMatchObject({ traceparent, tracestate });
  const unsampled = { traceparent: SAMPLED.replace(/1$/, "0"), tracestate };
  await send(service, "POST", path, { headers: unsampled });
  expect(receiver.received[1]?.headers).toMatchObject({
    traceparent: expect.stringMatching(new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`)),
    tracestate,
  });
});

test("a traced change is listed like any other", async () => {
  using collector = startCollector();
  await using service = await startTraced(collector.url, {
    OTEL_TRACES_SAMPLER: "parentbased_always_off",
  });
  const create = (id: number, batch: string, traceparent = "") =>
    send(service, "POST", `/plants?batch=${batch}`, {
      body: `{"id":${id},"name":"a"}`,
      headers: { traceparent },
    });
  await create(1, "spring", SAMPLED);
  await create(2, "spring");
  await create(3, "spring-2", SAMPLED);
  await service.create('{"id":4,"name":"a"}', { headers: { traceparent: SAMPLED } });
  type Listed = Readonly<Record<string, unknown>>;
  const list = async (query: string): Promise<Listed[]> =>
    (await walkPages(service, `/changes?${query}`)).items as Listed[];
  const spring = await list("batch=spring");
  expect(spring.map(({ id }) => id)).toEqual([1, 2]);
  expect(Object.keys(spring[0] ?? {})).toEqual(Object.keys(spring[1] ?? {}));
  expect((await list("batch=spring-2")).map(({ id }) => id)).toEqual([3]);
  const all = await list("by=PLANTSTORE_TOKEN");
  expect(all.map(({ id }) => id)).toEqual([1, 2, 3, 4]);
  expect(all[3]).not.toHaveProperty("batch");
});

describe("without a collector", () => {
  test.each([
    ["no endpoint", {}],
    [
      "OTEL_SDK_DISABLED",
      { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1", OTEL_SDK_DISABLED: "TRUE" },
    ],
    [
      "OTEL_TRACES_EXPORTER=none",
      { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1", OTEL_TRACES_EXPORTER: "none" },
    ],
  ])("(%s) nothing is traced", async (_, settings) => {
    await using service = await startService(settings);
    expect(service.tracer).toBeUndefined();
    await service.create('{"id":1,"name":"a"}', { headers: { traceparent: SAMPLED } });
    const { changes } = await service.store.readChanges({ after: 0, limit: 1 });
    expect(changes[0]).not.toHaveProperty("trace");
    expect(await getText(service, "/metrics")).not.toMatch(/^plantstore_spans_total/m);
    const line = JSON.parse(service.logLines[0] ?? "") as object;
    expect(line).toMatchObject({ traceId: TRACE });
    expect(line).not.toHaveProperty("spanId");
  });
});
