import { expect, spyOn, test } from "bun:test";
import { Histogram, Metrics } from "../../src/observe/metrics.ts";
import { createFigure, createReporter, SAMPLES_MAX } from "../../src/observe/reporter.ts";
import { resolveConfig } from "../../src/config.ts";
import { createKindFinder, listRoutes } from "../../src/http/server.ts";
import { createRandom, tellingSeed } from "../support/random.ts";

test("a histogram tells quantiles to within 5 %, whatever the durations are", () =>
  tellingSeed(async () => {
    const random = createRandom();
    for (let round = 0; round < 50; round++) {
      const length = 1 + random.below(500);
      const durations = Array.from({ length }, () => 2 ** (random.below(20_000) / 1_000 - 4));
      durations.sort((one, other) => one - other);
      const histogram = new Histogram();
      for (const ms of durations) histogram.add(ms);
      for (const share of [0, 0.5, 0.99, 1]) {
        const rank = Math.max(1, Math.ceil(share * durations.length));
        const exact = durations[rank - 1] ?? Number.NaN;
        expect(Math.abs((histogram.quantile(share) ?? 0) / exact - 1)).toBeLessThan(0.05);
      }
    }
  }));

test("a histogram counts exactly what is up to each bound, the bound included", () => {
  const histogram = new Histogram();
  for (const ms of [0.25, 0.2500001, 1, 1.0001, 2, 3, 5_000]) histogram.add(ms);
  const counts = histogram.buckets(0.25, 4).map(({ upToMs, count }) => `${upToMs}: ${count}`);
  expect(counts).toEqual(["0.25: 1", "0.5: 2", "1: 3", "2: 5", "4: 6"]);
  expect([histogram.count, histogram.sumMs]).toEqual([7, 5_007.5001001]);
});

test("a histogram takes anything, from nothing to for ever, and has no quantile of nothing", () => {
  const histogram = new Histogram();
  expect(histogram.quantile(0.5)).toBeUndefined();
  for (const ms of [0, -1, 1e-9, 1e9]) histogram.add(ms);
  expect(histogram.count).toBe(4);
  expect(histogram.quantile(1)).toBeGreaterThan(100_000);
  const nothing = new Histogram().addAll(histogram).addAll(histogram, -1);
  expect([nothing.count, nothing.sumMs, nothing.quantile(0.5)]).toEqual([0, 0, undefined]);
});

test("every path has its counters, and one without a place is refused instead of left uncounted", () => {
  const paths = Array.from({ length: 100 }, (_, index) => `/${index}`);
  const metrics = new Metrics(paths);
  for (const path of paths) metrics.counterOf(path, ["POST"])("POST", 200, 1);
  const counted = Metrics.addUp([metrics, new Metrics(paths)]).requests;
  expect(counted.filter(([, count]) => count === 1).map(([{ path }]) => path)).toEqual(paths);
  expect(() => metrics.counterOf("/other", [])).toThrow(RangeError);
});

test("threads that do not have the same paths cannot share counters", () => {
  const memory = new SharedArrayBuffer(Metrics.bytesOf(["/plants", "/tags"]));
  expect(() => new Metrics(["/plants"], memory)).toThrow(RangeError);
});

const reporterParts = {
  store: {
    description: { engine: "none" },
    measureBytes: () => Promise.reject(new Error("no file")),
    countPlants: async () => ({ count: 5, exact: true }),
    readFigures: () => Promise.resolve({}),
    countExpiring: async () => 0,
  },
  limits: { queueLengthMax: 1, bodyBytesTotalMax: 1, sampleSeconds: 1, port: 0 },
  checkReady: async () => undefined,
  kindOf: createKindFinder(listRoutes(resolveConfig({}, {}).config)),
} as unknown as Parameters<typeof createReporter>[1];

const none = { status: undefined, path: undefined, token: undefined, limit: 1 };

test.each(["PUT", "PATCH", "DELETE"])("the latency of writes includes %s", async (method) => {
  const metrics = new Metrics(["/plants/{id}"]);
  const reporter = createReporter([metrics], reporterParts);
  metrics.counterOf("/plants/{id}", [method])(method, 200, 100);
  reporter.sample(1_000);
  const { samples } = await reporter.readActivity(0, none);
  expect(samples[0]?.writeP99Ms).toBeWithin(95, 105);
});

test("activity has the last samples alone, oldest first, each with what happened since the one before", async () => {
  const metrics = new Metrics(["/plants"]);
  const count = metrics.counterOf("/plants", ["POST"]);
  metrics.setGauge("writesWaiting", 7);
  const reporter = createReporter([metrics], reporterParts);
  for (let at = 1; at <= SAMPLES_MAX + 5; at++) {
    for (let n = 0; n < at; n++) count("POST", 200, 1);
    if (at % 2 === 0) count("POST", 503, 1);
    if (at % 3 === 0) for (const status of [400, 415]) count("POST", status, 1);
    if (at === 10) for (const ms of [1, 1, 1, 100]) metrics.countCreates(ms);
    reporter.sample(at * 1_000);
  }
  const { samples } = await reporter.readActivity(0, none);
  expect(samples.map(({ atMs }) => atMs)).toEqual(
    Array.from({ length: SAMPLES_MAX }, (_, index) => (index + 6) * 1_000),
  );
  // Durations and sizes without a measurement are undefined.
  const counts = { creates: 0, requests: 9, errors: 1, refused: 2 };
  expect(samples[0]).toEqual({ atMs: 6_000, ...counts, waiting: 7 } as never);
  expect(samples[4]).toMatchObject({ atMs: 10_000, creates: 4 });
  expect(samples[4]?.durableP50Ms).toBeWithin(0.95, 1.05);
  expect(samples[4]?.durableP99Ms).toBeWithin(95, 105);
  expect(samples[4]?.writeP99Ms).toBeWithin(95, 105);
  const lastMs = (SAMPLES_MAX + 5) * 1_000;
  expect(await reporter.readActivity(lastMs - 1, none)).toMatchObject({
    samples: [{ atMs: lastMs }],
  });
  expect(await reporter.readActivity(lastMs, none)).toMatchObject({ samples: [] });
});

test("the size of the store is asked for at most every ten seconds, however often clients ask", async () => {
  let now = 1_000_000;
  let asked = 0;
  const size = createFigure(async () => ++asked * 100);
  const clock = spyOn(performance, "now").mockImplementation(() => now);
  expect([asked, size.value]).toEqual([0, undefined]);
  await Promise.all([size.refresh(), size.refresh()]);
  expect([asked, size.value]).toEqual([1, 100]);
  for (const end = now + 60_000; now < end; now += 2_000) await size.refresh();
  expect([asked, size.value]).toEqual([6, 600]);
  now += 60_000;
  await size.refresh();
  expect([asked, size.value]).toEqual([7, 700]);
  clock.mockRestore();
});
