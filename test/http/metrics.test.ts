/** GET /metrics and GET /activity: what an instance says of itself, over HTTP. */

import { describe, expect, test } from "bun:test";
import packageJson from "../../package.json";
import { REQUESTS_KEPT } from "../../src/observe/recent-requests.ts";
import { expectError } from "../support/expect.ts";
import { lines as makeLines } from "../support/folder.ts";
import { limits } from "../support/limits.ts";
import { until } from "../support/until.ts";
import {
  bearer,
  getJson,
  getText,
  grantToken,
  send,
  sendLines,
  startService,
  startShared,
  type TestService,
} from "../support/service.ts";

const SAMPLE_SECONDS = 0.2;
const service = await startShared(limits({ sampleSeconds: SAMPLE_SECONDS }));

const LABEL = String.raw`[a-zA-Z_]\w*="(?:[^"\\]|\\.)*"`;
const SAMPLE = new RegExp(String.raw`^([a-zA-Z_:][\w:]*(?:\{${LABEL}(?:,${LABEL})*\})?) (\S+)$`);

/** Every line is a comment that we know or a sample; the samples by name and labels. */
async function scrape(from: TestService): Promise<Map<string, number>> {
  const response = await send(from, "GET", "/metrics");
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
  const text = await response.text();
  expect(text).toEndWith("\n");
  const samples = new Map<string, number>();
  for (const line of text.trimEnd().split("\n")) {
    if (/^# (HELP|TYPE) [a-z_]+ (?!undefined)\S/.test(line)) continue;
    const [, name = "", value = ""] = SAMPLE.exec(line) ?? [];
    expect([line, name]).not.toEqual([line, ""]);
    expect(samples.has(name)).toBe(false);
    samples.set(name, Number(value));
  }
  return samples;
}

const requestsOf = (method: string, path: string, status: number): string =>
  `plantstore_requests_total{method="${method}",path="${path}",status="${status}"}`;

describe("metrics", () => {
  test("have the counters of failures from the start, at 0", async () => {
    await using own = await startService();
    const first = await scrape(own);
    for (const status of [500, 503]) {
      expect(first.get(requestsOf("POST", "/plants", status))).toBe(0);
      expect(first.get(requestsOf("GET", "/plants/{id}", status))).toBe(0);
      expect(first.get(`plantstore_batch_lines_total{status="${status}"}`)).toBe(0);
    }
  });

  test("count the lines of batches by status", async () => {
    await using own = await startService(limits({ queueSecondsMax: 1 }));
    const [a, b] = [makeLines(1, 1), '{"id":1,"name":"b"}\n'];
    await (await sendLines(own, `${a}${a}${b}{}\n`)).text();
    await using held = await own.database.holdWrites();
    await (await sendLines(own, makeLines(2, 2))).text();
    await held.release();
    const samples = await scrape(own);
    const lines = [200, 400, 409, 500, 503].map((status) =>
      samples.get(`plantstore_batch_lines_total{status="${status}"}`),
    );
    expect(lines).toEqual([2, 1, 1, 0, 2]);
    expect(samples.get(requestsOf("POST", "/plants/batch", 200))).toBe(2);
  });

  test("count requests by method, route and status, never by text of a client", async () => {
    await using own = await startService();
    for (const id of [1, 2, 2]) await own.create(JSON.stringify({ id, name: "a" }));
    await own.create("{}");
    for (const id of [1, 2, 3]) await send(own, "GET", `/plants/${id}`);
    await send(own, "HEAD", "/plants");
    await send(own, "PROPFIND", "/plants");
    await send(own, "OPTIONS", "/plants");
    for (const path of ["/secret-1", "/secret-2?a=1", "/plants/1/secret-3"])
      await send(own, "GET", path);
    const samples = await scrape(own);
    const counted = [...samples].filter(
      ([name, count]) => name.startsWith("plantstore_requests_total") && count > 0,
    );
    expect(Object.fromEntries(counted)).toEqual({
      [requestsOf("POST", "/plants", 200)]: 3,
      [requestsOf("POST", "/plants", 400)]: 1,
      [requestsOf("GET", "/plants/{id}", 200)]: 2,
      [requestsOf("GET", "/plants/{id}", 404)]: 1,
      [requestsOf("HEAD", "/plants", 200)]: 1,
      [requestsOf("other", "/plants", 405)]: 1,
      [requestsOf("OPTIONS", "/plants", 204)]: 1,
      [requestsOf("GET", "other", 404)]: 3,
    });
    expect((await scrape(own)).get(requestsOf("GET", "/metrics", 200))).toBe(1);
  });

  test("have the durations of new plants, alone and in batches", async () => {
    await using own = await startService();
    for (const body of [makeLines(1, 1), makeLines(1, 1), '{"id":1,"name":"b"}', "{}"])
      await own.create(body);
    await (await sendLines(own, `${makeLines(1, 2)}{}\n${makeLines(3, 1)}`)).text();
    const samples = await scrape(own);
    expect(samples.get("plantstore_create_seconds_count")).toBe(3);
    expect(samples.get("plantstore_create_seconds_sum")).toBeWithin(0.000_01, 10);
    const buckets = [...samples].filter(([name]) => name.startsWith("plantstore_create_seconds_b"));
    const bucket = (bound: string): string => `plantstore_create_seconds_bucket{le="${bound}"}`;
    const first = buckets.map(([name]) => name).slice(0, 3);
    expect(first).toEqual(["0.00025", "0.0005", "0.001"].map(bucket));
    expect(buckets.at(-1)).toEqual([bucket("+Inf"), 3]);
    const counts = buckets.map(([, count]) => count);
    expect(counts).toEqual(counts.toSorted((one, other) => one - other));
  });

  test("have the state of the process and of its store", async () => {
    const samples = await scrape(service);
    const { engine } = service.store.description;
    const info = `plantstore_info{version="${packageJson.version}",engine="${engine}"}`;
    expect(samples.get(info)).toBe(1);
    expect(samples.get("plantstore_writes_waiting")).toBe(0);
    expect(samples.get("plantstore_store_bytes")).toBeGreaterThan(4_095);
    expect(samples.get("plantstore_plants")).toBeNumber();
    expect(samples.has("plantstore_plants_max")).toBe(false);
    expect(samples.has("plantstore_disk_free_bytes")).toBe(engine === "SQLite");
    const [isServer, name] = [engine === "PostgreSQL", "plantstore_postgres"];
    expect(samples.has(`${name}_connections_in_use`)).toBe(isServer);
    expect((samples.get(`${name}_connects_total`) ?? 0) > 0).toBe(isServer);
    expect(samples.get("process_resident_memory_bytes")).toBeGreaterThan(10_000_000);
    const startedAtMs = (samples.get("process_start_time_seconds") ?? 0) * 1000;
    expect(startedAtMs).toBeWithin(Date.now() - 3_600_000, Date.now());
  });

  test("show the writes that wait", async () => {
    await using own = await startService();
    await using held = await own.database.holdWrites();
    const creating = [1, 2, 3].map((id) => own.create(makeLines(id, 1)));
    const countWaiting = async () => (await scrape(own)).get("plantstore_writes_waiting");
    // The other HTTP threads report their writes from time to time.
    await until("all of them wait", async () => (await countWaiting()) === 3);
    await held.release();
    expect((await Promise.all(creating)).map(({ status }) => status)).toEqual([200, 200, 200]);
    await until("none waits", async () => (await countWaiting()) === 0);
  });

  test.each(["/metrics", "/activity"])("%s needs a token", async (path) => {
    await expectError(await fetch(service.url + path), "token_missing");
  });
});

interface Shown {
  readonly version: string;
  readonly startedAtMs: number;
  readonly requests: readonly Readonly<Record<string, string | number | null>>[];
  readonly intervalMs: number;
  readonly samples: readonly Readonly<Record<string, number | null>>[];
}

describe("activity", () => {
  const show = (query = ""): Promise<Shown> => getJson(service, `/activity${query}`);

  test("has the samples since a time, with null for what is unknown", async () => {
    await service.create('{"id":1,"name":"a"}');
    await service.create("{}");
    let busy: Shown["samples"][number] = {};
    await until("the create is sampled", async () => {
      const { samples, intervalMs } = await show();
      expect(intervalMs).toBe(SAMPLE_SECONDS * 1000);
      busy = samples.find(({ creates }) => creates === 1) ?? {};
      return busy["creates"] === 1;
    });
    const known =
      "atMs requests refused durableP50Ms durableP99Ms writeP50Ms writeP99Ms waiting storeBytes";
    expect(busy).toEqual({
      ...Object.fromEntries(known.split(" ").map((name) => [name, expect.any(Number)])),
      creates: 1,
      errors: 0,
      readP50Ms: null,
      readP99Ms: null,
    });
    const { samples } = await show(`?since=${Number(busy["atMs"]) - 1}`);
    expect(samples[0]).toEqual(busy);
    expect((await show(`?since=${Date.now() + 60_000}`)).samples).toEqual([]);
  });

  test("has the version and the start", async () => {
    const { version, startedAtMs } = await show();
    expect(version).toBe(packageJson.version);
    expect(Date.now() - startedAtMs).toBeWithin(0, 3_600_000);
  });

  test("has the last requests without what a client hid in them", async () => {
    const secret = "pst_secret";
    await send(service, "GET", "/plants/404", { headers: { "x-request-id": "shown-1" } });
    await send(service, "GET", `/plants/${secret}`);
    await send(service, "DELETE", `/tokens/${secret}`);
    await send(service, "GET", `/${secret}?${secret}`);
    await send(service, "GET", `/plants?${secret}`, { headers: bearer(secret) });
    await send(service, "OPTIONS", `/plants/${secret}`);
    await send(service, "GET", `/plants?q=${secret}`, { headers: { "x-request-id": "shown 2" } });
    const shown = await show();
    const common = {
      atMs: expect.any(Number),
      durationMs: expect.any(Number),
      requestId: expect.any(String),
      token: "PLANTSTORE_TOKEN",
      method: "GET",
    };
    const shown1 = { requestId: "shown-1" };
    const good = { ...common, status: 200, reason: null };
    const unnamed = { token: null, requestId: null };
    expect(shown.requests.slice(0, 7)).toEqual([
      { ...good, path: "/plants" },
      { ...good, ...unnamed, status: 204, path: "/plants/{id}", method: "OPTIONS" },
      { ...common, status: 401, reason: "token_invalid", path: "/plants", token: null },
      { ...common, status: 404, reason: "path_not_found", path: "other", token: null },
      { ...common, status: 404, reason: "token_not_found", path: "/tokens/{id}", method: "DELETE" },
      { ...common, status: 400, reason: "invalid_id", path: "/plants/{id}" },
      { ...common, status: 404, reason: "plant_not_found", path: "/plants/404", ...shown1 },
    ]);
    expect(JSON.stringify(shown)).not.toContain(secret);
  });

  const find = async (query: string) => (await show(`?${query}`)).requests;

  test("has the requests that match a status, a part of the path, and a token", async () => {
    const token = await grantToken(service, undefined, { name: "till" });
    const headers = bearer(token);
    const body = '{"id":1900,"name":"a"}';
    await send(service, "POST", "/plants", { headers, body });
    await send(service, "GET", "/plants/1900", { headers });
    await send(service, "GET", "/plants/1901", { headers });
    await send(service, "GET", "/tags", { headers });
    const lines = async (query: string) =>
      (await find(query)).map(({ status, method, path }) => `${status} ${method} ${path}`);
    const all = [
      "200 GET /tags",
      "404 GET /plants/1901",
      "200 GET /plants/1900",
      "200 POST /plants",
    ];
    expect(await lines("token=till")).toEqual(all);
    expect(await lines("token=till&status=failed")).toEqual(["404 GET /plants/1901"]);
    expect(await lines("token=till&status=404")).toEqual(["404 GET /plants/1901"]);
    expect(await lines("token=till&status=4xx&path=1900")).toEqual([]);
    expect(await lines("token=till&status=2xx&path=s/19")).toEqual(["200 GET /plants/1900"]);
    expect(await lines("token=till&limit=1")).toEqual(all.slice(0, 1));
    expect(await lines("token=Till")).toEqual([]);
    const [found] = await find("token=till");
    expect(found).toMatchObject({ reason: null, requestId: null });
    expect(found?.["durationMs"]).toBeGreaterThan(0);
  });

  test("keeps a bounded number of requests of each class", async () => {
    await send(service, "GET", "/tags", { headers: { "x-request-id": "kept" } });
    for (let round = 0; round < REQUESTS_KEPT / 16; round++)
      await Promise.all(Array.from({ length: 20 }, () => send(service, "GET", "/none")));
    // Each thread keeps its own.
    const threads = Number(process.env["PLANTSTORE_TEST_WORKERS"] ?? 1);
    const kept = (await find("status=4xx&limit=1000")).length;
    expect(kept).toBeWithin(REQUESTS_KEPT, REQUESTS_KEPT * threads + 1);
    expect((await find("status=4xx")).length).toBe(50);
    expect((await find("path=/tags")).map(({ requestId }) => requestId)).toContain("kept");
  });

  test("does not have probes, files and monitoring, unless they fail", async () => {
    for (const path of ["/livez", "/readyz", "/metrics", "/activity", "/openapi.json"])
      await getText(service, path);
    await send(service, "POST", "/livez");
    const paths = (await find("limit=1000")).map(({ status, path }) => `${status} ${path}`);
    expect(paths).toContain("405 /livez");
    for (const path of ["/livez", "/readyz", "/metrics", "/activity", "/openapi.json"])
      expect(paths).not.toContain(`200 ${path}`);
  });

  test.each([
    ["?since=now", 'since: expected milliseconds since 1970, got "now"'],
    ["?since=9999999999999999", "since: "],
    [
      "?status=ok",
      'status: expected failed, 2xx, 3xx, 4xx, 5xx, or a status from 200 to 599, got "ok"',
    ],
    ["?status=600", "status: expected failed"],
    ["?status=", "status: expected failed"],
    ["?limit=0", "limit: expected an integer from 1 to 1000"],
    ["?path=%ff", "path"],
    ["?token=a&token=b", "token"],
    ["?after=1", '"after": unknown; allowed: since, status, path, token, limit'],
  ])("%s gets a 400 that names the fault", async (query, says) => {
    await expectError(await send(service, "GET", `/activity${query}`), "invalid_query", says);
  });
});
