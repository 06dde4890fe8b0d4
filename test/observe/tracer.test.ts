/** Sampling, and a collector that is slow, gone or refuses. */

import { describe, expect, test } from "bun:test";
import { findTracing, resolveConfig } from "../../src/config.ts";
import { createLog } from "../../src/observe/log.ts";
import { Metrics } from "../../src/observe/metrics.ts";
import { createTracer } from "../../src/observe/tracer.ts";
import { type Span, startCollector } from "../support/collector.ts";
import { runCommand, spawnService } from "../support/command.ts";
import { makeWorkplace } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { bearer, send, startService, TEST_TOKEN } from "../support/service.ts";
import { until } from "../support/until.ts";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const SPAN = "b7ad6b7169203331";

const patient = { spanDelayMs: 1, spanRetryMs: 1 };

/** A tracer alone. Its request ends at once. */
function openTracer(
  settings: Readonly<Record<string, string>>,
  injected: Parameters<typeof resolveConfig>[2] = {},
) {
  const given = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1", ...settings };
  const { config } = resolveConfig({}, given, { ...patient, ...injected });
  const metrics = new Metrics([]);
  const logLines: string[] = [];
  const log = createLog("debug", (line) => void logLines.push(line));
  const tracer = createTracer(findTracing(config) as never, config, metrics, log);
  const request = (headers: Record<string, string> = {}) => {
    const span = tracer.startRequest(new Headers(headers), performance.now());
    span?.describe("GET /", {}, false);
    span?.end();
    return span;
  };
  const counted = () => {
    const { spansExported, spansDropped } = Metrics.addUp([metrics]).gauges;
    return { exported: spansExported, dropped: spansDropped };
  };
  return { ...tracer, request, counted, logLines };
}

describe("a sampler", () => {
  const sampled = { traceparent: `00-${TRACE}-${SPAN}-01` };
  const unsampled = { traceparent: `00-${TRACE}-${SPAN}-00` };
  // By its id, the trace is in a share above 0.517.
  test.each([
    ["", "", [true, true, false]],
    ["always_on", "", [true, true, true]],
    ["ALWAYS_OFF", "", [false, false, false]],
    ["parentbased_always_on", "", [true, true, false]],
    ["parentbased_always_off", "", [false, true, false]],
    ["traceidratio", "", [true, true, true]],
    ["traceidratio", "0", [false, false, false]],
    ["traceidratio", "0.52", [undefined, true, true]],
    ["traceidratio", "0.51", [undefined, false, false]],
    ["parentbased_traceidratio", "0", [false, true, false]],
    ["parentbased_traceidratio", "1", [true, true, false]],
  ])(
    "%p with %p decides about a root, and about children of sampled and other spans",
    async (sampler, share, decisions) => {
      const tracer = openTracer(
        { OTEL_TRACES_SAMPLER: sampler, OTEL_TRACES_SAMPLER_ARG: share },
        { spanFlushMs: 1 },
      );
      const decided = [{}, sampled, unsampled].map(
        (headers) => tracer.request(headers) !== undefined,
      );
      expect(decided.slice(1)).toEqual(decisions.slice(1) as boolean[]);
      if (decisions[0] !== undefined) expect(decided[0]).toBe(decisions[0]);
      await tracer.close();
    },
  );

  test("of a share takes that share of new traces, and services that judge their ids agree", async () => {
    const share = 0.25;
    const settings = { OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "0.25" };
    const [one, other] = [
      openTracer(settings, { spanFlushMs: 1 }),
      openTracer(settings, { spanFlushMs: 1 }),
    ];
    const count = 20_000;
    let taken = 0;
    for (let index = 0; index < count; index++) {
      const span = one.request();
      if (span === undefined) continue;
      taken++;
      expect(other.request({ traceparent: `00-${span.traceId}-${SPAN}-00` })).toBeDefined();
    }
    // Eleven standard deviations.
    expect(Math.abs(taken / count - share)).toBeLessThan(0.034);
    await Promise.all([one.close(), other.close()]);
  });
});

test("a request has at most 64 spans of its writes", async () => {
  using collector = startCollector();
  const tracer = openTracer({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
  const request = tracer.startRequest(new Headers(), performance.now());
  for (let writes = 0; writes < 65; writes++)
    tracer.noteWait(request?.trace ?? "", performance.now(), performance.now(), undefined);
  request?.describe("POST /plants/batch", {}, false);
  request?.end();
  await tracer.close();
  expect(tracer.counted()).toEqual({ exported: 64 + 1, dropped: 0 });
});

describe("a collector that", () => {
  test.each([
    [
      "429 and Retry-After",
      () => new Response(null, { status: 429, headers: { "retry-after": "0" } }),
    ],
    ["503", () => new Response("busy", { status: 503 })],
    ["502", () => new Response(null, { status: 502 })],
  ])("answers %s gets the spans again", async (_, refuse) => {
    using collector = startCollector();
    collector.answers.push(refuse(), refuse());
    const tracer = openTracer({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
    const span = tracer.request();
    expect((await collector.find(() => true)).spanId).toBe(span?.spanId as string);
    await tracer.close();
    expect(tracer.counted()).toEqual({ exported: 1, dropped: 0 });
    expect(tracer.logLines).toHaveLength(2);
  });

  test("asks for the spans again at once gets them after the backoff", async () => {
    const refuse = () => new Response(null, { status: 503, headers: { "retry-after": "0" } });
    using collector = startCollector();
    using other = startCollector();
    for (const { answers } of [collector, other])
      answers.push(...Array.from({ length: 5 }, refuse));
    const slow = { spanRetryMs: 60_000 };
    const tracer = openTracer({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url }, slow);
    const quick = openTracer({ OTEL_EXPORTER_OTLP_ENDPOINT: other.url });
    tracer.request();
    await until("it refuses", () => tracer.logLines.length === 1);
    quick.request();
    await until("all attempts are made", () => quick.counted().dropped === 1);
    expect(collector.requests).toHaveLength(1);
    await Promise.all([tracer.close(), quick.close()]);
  });

  test("asks for a wait of years gets the spans after the longest wait, and the log says how many were lost", async () => {
    using collector = startCollector();
    const refuse = () =>
      new Response(null, { status: 503, headers: { "retry-after": "99999999" } });
    const second = Promise.withResolvers<Response>();
    collector.answers.push(refuse(), second.promise);
    const tracer = openTracer(
      { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url },
      { spansMax: 2, spanRetryMsMax: 1 },
    );
    tracer.request();
    await collector.untilRequests(2);
    for (let count = 0; count < 5; count++) tracer.request();
    second.resolve(refuse());
    await until("the rest is exported", () => tracer.counted().exported === 3);
    await tracer.close();
    expect(tracer.logLines.map((line) => JSON.parse(line) as object)).toMatchObject([
      { event: "traces_not_exported", problem: "It answered 503." },
      { event: "traces_exported_again", dropped: 3 },
    ]);
  });

  test.each([400, 401, 404, 413, 500, 302])("answers %d costs the spans, once", async (status) => {
    using collector = startCollector();
    const location = { location: `${collector.url}/elsewhere` };
    collector.answers.push(new Response("no", { status, headers: location }));
    const tracer = openTracer({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
    tracer.request();
    await until("it is dropped", () => tracer.counted().dropped === 1);
    tracer.request();
    await collector.find(() => true);
    await tracer.close();
    expect(tracer.counted()).toEqual({ exported: 1, dropped: 1 });
    expect(collector.requests.map(({ path }) => path)).toEqual(["/v1/traces", "/v1/traces"]);
    expect(tracer.logLines.map((line) => JSON.parse(line) as object)).toMatchObject([
      { event: "traces_not_exported", problem: `It answered ${status}.` },
      { event: "traces_exported_again", dropped: 1 },
    ]);
  });

  test("takes a part rejects the rest", async () => {
    using collector = startCollector();
    collector.answers.push(Response.json({ partialSuccess: { rejectedSpans: "2" } }));
    const tracer = openTracer(
      { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url },
      { spanDelayMs: 60_000 },
    );
    for (let count = 0; count < 3; count++) tracer.request();
    await tracer.close();
    expect(tracer.counted()).toEqual({ exported: 1, dropped: 2 });
  });

  test("is gone costs the spans after five attempts, and one line of the log", async () => {
    const tracer = openTracer({});
    tracer.request();
    await until("they are dropped", () => tracer.counted().dropped === 1);
    tracer.request();
    await until("they are dropped", () => tracer.counted().dropped === 2);
    expect(tracer.logLines).toHaveLength(1);
    expect(tracer.logLines[0]).toContain("Not reached");
    await tracer.close();
  });

  test("hangs is left after the timeout", async () => {
    using collector = startCollector();
    collector.answers.push(new Promise(() => undefined));
    const tracer = openTracer({
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_TIMEOUT: "600000",
      OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: "500",
    });
    const span = tracer.request();
    expect((await collector.find(() => true)).spanId).toBe(span?.spanId as string);
    expect(tracer.logLines[0]).toContain("No answer within 500 ms");
    await tracer.close();
  });

  test("hangs holds a bounded number of spans, and does not hold up the end", async () => {
    using collector = startCollector();
    collector.answers.push(new Promise(() => undefined));
    const tracer = openTracer(
      { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url },
      { spansMax: 10, spanFlushMs: 1 },
    );
    tracer.request();
    await collector.untilRequests(1);
    for (let count = 0; count < 100; count++) tracer.request();
    expect(tracer.counted()).toEqual({ exported: 0, dropped: 90 });
    await tracer.close();
    expect(tracer.counted()).toEqual({ exported: 0, dropped: 101 });
    tracer.request();
    expect(tracer.counted().dropped).toBe(102);
  });

  test("is quick gets at most 512 spans at a time, and all that wait at the end", async () => {
    using collector = startCollector();
    const tracer = openTracer(
      { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${collector.url}/own/path?key=1` },
      { spanDelayMs: 600_000, spanFlushMs: 600_000 },
    );
    for (let count = 0; count < 1_100; count++) tracer.request();
    await tracer.close();
    expect(tracer.counted()).toEqual({ exported: 1_100, dropped: 0 });
    expect(collector.spans).toHaveLength(1_100);
    expect(collector.requests.map(({ path }) => path)).toEqual(Array(3).fill("/own/path?key=1"));
  });
});

test("a delivery to a webhook is sampled by the share alone if the sampler does not follow the parent", async () => {
  const settings = { OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "0" };
  const tracer = openTracer(settings);
  expect(tracer.startDelivery({ cause: `${TRACE}-${SPAN}` }).context).toBeUndefined();
  expect(tracer.startDelivery({}).headers["traceparent"]).toMatch(/-00$/);
  await tracer.close();
});

test("SQLite: a commit has the time of its sync and all writes that shared it", async () => {
  using collector = startCollector();
  await using service = await startService({
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    PLANTSTORE_WORKERS: "1",
    ...limits(patient),
  });
  const ids = [1, 2, 3];
  await Promise.all(ids.map((id) => service.create(`{"id":${id},"name":"a"}`)));
  const isCommit = ({ name }: Span): boolean => name === "commit";
  await until("all are exported", () => collector.spans.filter(isCommit).length === ids.length);
  for (const { attributes, startNs, endNs } of collector.spans.filter(isCommit)) {
    const syncUs = Number(attributes["plantstore.commit.sync_us"]);
    expect(syncUs).toBeGreaterThanOrEqual(0);
    expect(syncUs).toBeLessThanOrEqual(Number(endNs - startNs) / 1000 + 1);
    expect(attributes["plantstore.commit.writes"]).toBeWithin(1, ids.length + 1);
  }
});

describe("plantstore serve", () => {
  test("sends the last spans when it is stopped, also of its other threads", async () => {
    using at = makeWorkplace();
    using collector = startCollector();
    const service = await spawnService({
      ...at.env,
      PLANTSTORE_TOKEN: TEST_TOKEN,
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      PLANTSTORE_WORKERS: process.platform === "linux" ? "2" : "1",
      ...limits({ spanDelayMs: 600_000, spanFlushMs: 60_000 }),
    });
    await using _ = service;
    const count = 20;
    for (let id = 0; id < count; id++)
      await send(service.started, "POST", "/plants", {
        body: `{"id":${id},"name":"a"}`,
        headers: { connection: "close", ...bearer() },
      });
    expect(collector.requests).toEqual([]);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
    expect(collector.spans.filter(({ kind }) => kind === 2)).toHaveLength(count);
  });

  test("is stopped while its collector hangs", async () => {
    using at = makeWorkplace();
    using collector = startCollector();
    collector.answers.push(
      ...Array.from({ length: 10 }, () => new Promise<never>(() => undefined)),
    );
    const service = await spawnService({
      ...at.env,
      PLANTSTORE_TOKEN: TEST_TOKEN,
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_TIMEOUT: "600000",
    });
    await using _ = service;
    const sent = { body: '{"id":1,"name":"a"}', headers: bearer() };
    expect((await send(service.started, "POST", "/plants", sent)).status).toBe(200);
    await collector.untilRequests(1);
    service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
  });

  test("refuses wrong settings with a sentence and code 2, without their secrets, and config masks those", async () => {
    using at = makeWorkplace();
    const env = {
      ...at.env,
      OTEL_EXPORTER_OTLP_ENDPOINT: "ftp://me:top-secret@collector.example?key=top-secret",
      OTEL_EXPORTER_OTLP_HEADERS: "top-secret",
      OTEL_TRACES_SAMPLER: "sometimes",
    };
    const refused = await runCommand(["serve"], env);
    expect(refused.exitCode).toBe(2);
    for (const [name] of Object.entries(env).filter(([key]) => key.startsWith("OTEL_")))
      expect(refused.stderr).toContain(`${name}: `);
    expect(refused.stderr).not.toContain("top-secret");
    const shown = await runCommand(["config"], {
      ...at.env,
      OTEL_EXPORTER_OTLP_ENDPOINT: "https://collector.example/otlp?key=top-secret",
      OTEL_EXPORTER_OTLP_HEADERS: "authorization=top-secret",
      OTEL_BSP_SCHEDULE_DELAY: "5",
    });
    expect(shown.exitCode).toBe(0);
    expect(shown.stdout).toContain("https://collector.example/otlp?********");
    expect(shown.stdout + shown.stderr).not.toContain("top-secret");
    expect(shown.stderr).toContain("OTEL_BSP_SCHEDULE_DELAY is not a setting and has no effect.");
  });
});
