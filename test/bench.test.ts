/** What the benchmark makes of its rounds: statistics, page, charts, and the checks that make a run fail. */

import { describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { listCharts } from "../bench/charts.ts";
import { listIds, readBack } from "../bench/load.ts";
import { type Candidate, checkStored, measureTable } from "../bench/measure.ts";
import { formatScenario, formatTargets, makePage } from "../bench/page.ts";
import { describeProfile } from "../bench/profile.ts";
import { listTree, parseMachineStat, parseStat } from "../bench/processes.ts";
import {
  atMost,
  bestPeer,
  formatNumber,
  isGood,
  median,
  mergeResults,
  ratioAtLeast,
  type Results,
  type Row,
  type ScenarioResult,
  summarize,
  type Table,
} from "../bench/results.ts";

const row = (name: string, role: Row["role"], ...values: number[]): Row => ({
  name,
  role,
  figures: summarize(values.map((value) => ({ value, p50Ms: 3, p99Ms: 6, cpuUs: 1e6 / value }))),
  rounds: values.length,
  repeats: 0,
  disturbed: 0,
});

const absent: Row = {
  name: "Express",
  role: "peer",
  notMeasured: "it did not start",
  rounds: 0,
  repeats: 0,
  disturbed: 0,
};

const table = (name: string, ...rows: Row[]): Table => ({ name, unit: "creates a second", rows });

const ratio = (a: number, b: number, bound: number): ReturnType<typeof ratioAtLeast> =>
  ratioAtLeast("a / b", row("a", "ours", a), row("b", "limit", b), bound);

const scenario = (about: Partial<ScenarioResult> = {}): ScenarioResult => ({
  name: "create",
  title: "Create a plant",
  about: "Into an empty store.",
  measuredAt: "2026-01-02T03:04:05.000Z",
  commit: "abc1234",
  architecture: "arm64",
  roundSeconds: 3,
  durationSeconds: 90,
  tables: [
    table("64 connections", row("plantstore", "ours", 300, 100, 200), row("Fastify", "peer", 20)),
  ],
  targets: [ratio(95, 100, 0.9)],
  ...about,
});

const results = (...scenarios: ScenarioResult[]): Results => ({
  machine: { processor: "A Processor, 2 cores" },
  scenarios,
});

describe("statistics", () => {
  test("the median is the middle value, or the mean of the two middle values", () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 3, 2])).toBe(2.5);
    expect(median([])).toBeNaN();
  });

  test("a row has the medians of its rounds, and the slowest and the fastest round", () => {
    const rounds = [
      { value: 300, rssMb: 50 },
      { value: 100, rssMb: 70 },
      { value: 200, rssMb: 60 },
    ];
    expect(summarize(rounds)).toEqual({ value: 200, min: 100, max: 300, rssMb: 60 });
  });

  test("the best peer is the fastest that was measured, and never a limit", () => {
    const some = table("", row("a", "peer", 5), row("b", "peer", 9), row("c", "limit", 99), absent);
    expect(bestPeer(some)?.name).toBe("b");
    expect(bestPeer(table("", absent))).toBeUndefined();
  });

  test("a target is met up to its bound, and missed where a value was not measured", () => {
    const isMet = [
      ratio(90, 100, 0.9),
      ratio(89, 100, 0.9),
      atMost("memory", 60, 60),
      atMost("memory", 60.1, 60),
      atMost("memory", Number.NaN, 60),
      ratioAtLeast("a / b", row("a", "ours", 5), absent, 0),
      ratioAtLeast("a / b", undefined, row("b", "limit", 5), 0),
    ].map((target) => target.isMet);
    expect(isMet).toEqual([true, false, true, false, false, false, false]);
  });

  test("numbers have three significant digits", () => {
    expect([29_648, 1234, 99.44, 2.34567].map(formatNumber)).toEqual([
      "29,600",
      "1,230",
      "99.4",
      "2.35",
    ]);
  });
});

describe("who uses the cores", () => {
  test("a process name may contain parentheses, and ended children count", () => {
    const text = "42 (a (b) c) S 7 42 42 0 -1 4194304 1 2 3 4 100 50 20 30 20 0 1 0 99 1 1";
    expect(parseStat(text)).toEqual({ parent: 7, seconds: 2 });
  });

  test("idle time and waiting for the disk do not count, interrupts and stolen time do", () => {
    const text = "cpu  100 10 50 9999 777 5 35 60 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
    expect(parseMachineStat(text)).toBe(2.6);
  });

  test("a tree has all descendants and no other process", () => {
    const parents = { 1: 0, 10: 1, 11: 10, 12: 11, 20: 1 };
    const processes = new Map(
      Object.entries(parents).map(([pid, parent]) => [Number(pid), { parent }]),
    );
    expect(listTree(processes, [10])).toEqual([10, 11, 12]);
  });
});

describe("rounds", () => {
  const broken = (role: Row["role"]): Candidate => ({
    name: "broken",
    role,
    measure: () => Promise.reject(new Error("it answered wrongly")),
  });
  const take = (...candidates: Candidate[]): Promise<Table> =>
    measureTable(false, { name: "t", unit: "u", rounds: 2, candidates });

  test("are taken of all candidates in turn", async () => {
    const order: string[] = [];
    const candidates = ["a", "b"].map((name): Candidate => ({
      name,
      role: "ours",
      measure: () => {
        order.push(name);
        return Promise.resolve({ value: 1 });
      },
    }));
    await take(...candidates);
    expect(order).toEqual(["a", "b", "a", "b", "a", "b"]);
  });

  test("of a peer that answers wrongly do not count, and the others go on", async () => {
    const good: Candidate = {
      name: "ours",
      role: "ours",
      measure: () => Promise.resolve({ value: 5 }),
    };
    const { rows } = await take(good, broken("peer"));
    expect(rows.map(({ figures, notMeasured }) => [figures?.value, notMeasured])).toEqual([
      [5, undefined],
      [undefined, "it answered wrongly"],
    ]);
  });

  test("of our own service that answers wrongly fail the scenario", () => {
    expect(take(broken("ours"))).rejects.toThrow("it answered wrongly");
  });
});

describe("what was sent and what is stored", () => {
  test("may differ by the requests in flight when rounds ended", () => {
    expect(() => checkStored(5000, 5000, 64)).not.toThrow();
    expect(() => checkStored(5000, 5000 - 64, 64)).not.toThrow();
  });

  test("fails for a lost plant, and for one that was never sent", () => {
    const message = "5000 creates were sent, but 4935 plants were stored";
    expect(() => checkStored(5000, 5000 - 65, 64)).toThrow(message);
    expect(() => checkStored(5000, 5001, 64)).toThrow();
  });
});

describe("reading back", () => {
  const ids = Array.from({ length: 500 }, (_, index) => index);

  async function readFrom(answer: (id: number) => Response): Promise<void> {
    const http = Bun.serve({
      port: 0,
      fetch: ({ url }) => answer(Number(url.slice(url.lastIndexOf("/") + 1))),
    });
    try {
      await readBack({ url: `http://127.0.0.1:${http.port}` }, ids, "create");
    } finally {
      await http.stop(true);
    }
  }

  const found = (tag = "tropical"): Response => Response.json({ name: "Monstera deliciosa", tag });
  const missing = (): Response => Response.json({}, { status: 404 });

  test("accepts plants that were in flight, and those that are as they were sent", async () => {
    await readFrom(() => found());
    await readFrom((id) => (id % 2 === 0 ? found() : missing()));
  });

  test("fails where nothing is found, a plant is changed, or the server fails", () => {
    expect(readFrom(missing)).rejects.toThrow("none of 20 plants");
    expect(readFrom(() => found("desert"))).rejects.toThrow("a plant came back as");
    expect(readFrom(() => Response.json({}, { status: 500 }))).rejects.toThrow("answers 500");
  });

  test("knows the ids of every thread", () => {
    expect(listIds(100_000_000, [2, 1], "create")).toEqual([100_000_000, 100_000_001, 150_000_000]);
    const random = listIds(100_000_000, [1000], "create-random");
    expect(new Set(random).size).toBe(1000);
    expect(random.every(Number.isSafeInteger)).toBe(true);
    expect(random).not.toEqual(random.toSorted((a, b) => a - b));
  });
});

describe("results", () => {
  test("of some scenarios replace the known ones, in the usual order", () => {
    const old = { commit: "old" };
    const known = results(scenario({ name: "a", ...old }), scenario({ name: "b", ...old }));
    const fresh = results(scenario({ name: "a", commit: "new" }));
    const merged = mergeResults(known, fresh, ["a", "b", "c"]);
    expect(merged.scenarios.map(({ name, commit }) => [name, commit])).toEqual([
      ["a", "new"],
      ["b", "old"],
    ]);
  });

  test("are good only where all targets are met and nothing failed", () => {
    expect(isGood(scenario())).toBe(true);
    expect(isGood(scenario({ failure: "a plant was lost" }))).toBe(false);
    expect(isGood(scenario({ targets: [ratio(5, 10, 0.9)] }))).toBe(false);
  });
});

describe("the page", () => {
  test("has every target with its value, and the reason for a missed one", () => {
    const text = formatTargets([
      scenario({
        targets: [ratio(95, 100, 0.9), ratio(50, 100, 0.9), atMost("ms", Number.NaN, 9)],
      }),
    ]);
    const lines = text.split("\n").map((line) => line.replaceAll(/ +/g, " "));
    expect(lines).toContain("| create | a / b | 0.95 | ≥ 0.9 | met |");
    expect(lines).toContain("| create | a / b | 0.50 | ≥ 0.9 | **missed** |");
    expect(lines).toContain("| create | ms | not measured | ≤ 9 | **missed** |");
    expect(lines.filter((line) => line.startsWith("- "))).toEqual([
      "- a / b: Processor time for one: 20,000 µs, against 10,000 µs.",
    ]);
  });

  test("says on which kind of machine it was measured, and what was measured on another", () => {
    const page = makePage(results(scenario(), scenario({ name: "get", architecture: "x64" })));
    expect(page).toContain("These are of arm64 and x64.");
    expect(page).toContain("Into an empty store. Measured on 2026-01-02, on x64, commit abc1234.");
    expect(page).not.toContain("on arm64, commit");
  });

  test("has what a scenario says about a row", () => {
    const remark = "0.17 of its reads alone";
    const tables = [table("reads", { ...row("plantstore", "ours", 5), remark })];
    expect(makePage(results(scenario({ tables })))).toContain(`- plantstore: ${remark}`);
  });

  test("says what was not measured and what was disturbed", () => {
    const busy: Row = { ...row("slow", "peer", 7), repeats: 3, disturbed: 1 };
    const tables = [table("64 connections", row("plantstore", "ours", 31_234), busy, absent)];
    const page = makePage(results(scenario({ tables })));
    expect(page).toMatch(/\| \*\*plantstore\*\* +\| +31,200 \| +31,200–31,200 \|/);
    expect(page).toContain("- Express: not measured: it did not start");
    expect(page).toContain("- slow: 1 of its 1 rounds were disturbed by other processes");
    expect(page).toContain("That happened 3 times. Of the 2 rounds that count, 1 were still");
  });

  test("shows a failure, and no chart of it", () => {
    const failed = scenario({ tables: [], targets: [], failure: "a plant was lost" });
    expect(makePage(results(failed))).toContain("**FAILED**: a plant was lost");
    expect(makePage(results(failed))).not.toContain("charts/");
    expect(formatScenario(failed)).toContain("FAILED: a plant was lost");
  });

  test("in the repository refers only to charts that are there", () => {
    const folder = `${import.meta.dir}/../bench`;
    const page = readFileSync(`${folder}/RESULTS.md`, "utf8");
    const files = [...page.matchAll(/charts\/[a-z-]+\.svg/g)].map(([file]) => file);
    expect(files.length).toBeGreaterThan(0);
    expect(files.filter((file) => !existsSync(`${folder}/${file}`))).toEqual([]);
  });
});

test("a profile counts what is built in for its caller, and leaves out the start", () => {
  const frame = (id: number, url: string, functionName: string, ...children: number[]) => ({
    id,
    callFrame: { url, functionName },
    children,
  });
  const nodes = [
    frame(1, "", "(root)", 2, 4),
    frame(2, "file:///x/src/store/sqlite/read.ts", "find", 3),
    frame(3, "", "get"),
    frame(4, "file:///x/src/http/handle.ts", "", 5),
    frame(5, "", "Response"),
  ];
  const profile = { nodes, samples: [2, 3, 3, 5, 1], timeDeltas: [1000, 1000, 1000, 1000, 1000] };
  expect(describeProfile(profile, 1)).toBe(
    "SQLite and its sync 50 %, requests and answers 25 %, the runtime outside our code (network and HTTP) 25 %",
  );
});

describe("npm run bench", () => {
  const run = (args: string[], env: Record<string, string> = {}): [number, string] => {
    const { exitCode, stderr } = Bun.spawnSync(
      [process.execPath, `${import.meta.dir}/../bench/main.ts`, ...args],
      { env: { ...process.env, ...env } },
    );
    return [exitCode, stderr.toString()];
  };

  test.each([
    [["nonsense"], {}, "Unknown scenario: nonsense. Choose from create, get, "],
    [["--fast"], {}, "usage: npm run bench"],
    [["--quick", "--write"], {}, "--quick results are not written"],
    [["--baseline", "/nowhere"], {}, "there is no build of plantstore in /nowhere"],
    [["create"], { BENCH_ROUNDS: "0" }, "BENCH_ROUNDS: expected a whole number, at least 1"],
    [["create"], { BENCH_SECONDS: "2s" }, "BENCH_SECONDS: expected a whole number"],
  ])("%j %j is refused before anything is measured", (args, env, message) => {
    const [exitCode, errors] = run(args, env);
    expect(errors).toContain(message);
    expect(exitCode).toBe(2);
  });

  test("says which tools it needs", () => {
    const [exitCode, errors] = run(["create"], { PATH: "/nowhere" });
    expect(errors).toContain("The benchmark needs wrk and taskset.");
    expect(exitCode).toBe(1);
  });
});

describe("charts", () => {
  test("show the rows that were measured, at 64 connections, with their medians as text", () => {
    const ours = row("plantstore", "ours", 100, 90);
    const charts = listCharts([
      scenario({ tables: [table("1 connection", ours), table("64 connections", ours, absent)] }),
    ]);
    expect(charts.map(({ file }) => file)).toEqual(["create"]);
    const [create] = charts.map(({ spec }) => JSON.stringify(spec));
    expect(create).toContain(`"name":"plantstore","role":"ours","value":95,"min":90,"max":100`);
    expect(create).toContain(`"label":"95.0"`);
    expect(create).not.toContain("Express");
  });

  test("of PostgreSQL have a panel for each number of connections", () => {
    const tables = [1, 64, 256].map((level) => table(`${level}`, row("ours", "ours", level)));
    const [chart] = listCharts([scenario({ name: "postgres-create", tables })]);
    expect(chart?.spec).toMatchObject({ vconcat: [{}, {}, {}] });
  });
});
