/** What the benchmark makes of its rounds: statistics, charts, page, and the checks that make a run fail. */

import { describe, expect, test } from "bun:test";
import { drawBars } from "../bench/report/chart-bars.ts";
import { drawLines, spreadApart } from "../bench/report/chart-lines.ts";
import { drawCharts } from "../bench/report/charts.ts";
import { findReason } from "../bench/servers/install.ts";
import { listIds } from "../bench/ids.ts";
import { findFilesystem } from "../bench/report/machine.ts";
import { type Absent, type Candidate, measureTable } from "../bench/measure.ts";
import { makePage } from "../bench/report/page.ts";
import { listTree, parseMachineStat, parseStat } from "../bench/processes.ts";
import { readBack } from "../bench/read-back.ts";
import {
  isGood,
  mergeResults,
  type Results,
  type Round,
  type Row,
  type ScenarioResult,
  type Table,
} from "../bench/report/results.ts";
import { plantsApi, type Server } from "../bench/servers/server.ts";
import {
  atLeast,
  atMost,
  bestPeer,
  median,
  spreadOf,
  valueOf,
} from "../bench/report/statistics.ts";
import { niceStep } from "../bench/report/svg.ts";
import { formatNumber, formatTarget } from "../bench/report/table.ts";
import { Tally } from "../bench/tally.ts";

const round = (value: number): Round => ({ value, foreignCores: 0, isDisturbed: false });

const row = (name: string, role: Row["role"], ...values: number[]): Row => ({
  name,
  role,
  rounds: values.map(round),
  repeats: 0,
});

const table = (name: string, ...rows: Row[]): Table => ({
  name,
  unit: "creates a second",
  isLowerBetter: false,
  rows,
});

const scenario = (about: Partial<ScenarioResult> = {}): ScenarioResult => ({
  name: "create",
  title: "Create a plant",
  about: "Into an empty store.",
  chart: "bars",
  measuredAt: "2026-01-02T03:04:05.000Z",
  commit: "abc1234",
  roundSeconds: 3,
  durationSeconds: 90,
  tables: [
    table("64 connections", row("plantstore", "ours", 300, 100, 200), row("Express", "peer", 20)),
  ],
  targets: [atLeast("durable / storing nothing", 0.95, 0.9)],
  ...about,
});

const results = (...scenarios: ScenarioResult[]): Results => ({
  machine: {
    cpu: "A Processor",
    cores: 2,
    memoryGb: 24,
    kernel: "Linux 6",
    filesystem: "ext4 on /dev/vda",
    versions: { Bun: "1.4.4" },
  },
  scenarios,
});

describe("statistics", () => {
  test("the median is the middle one, or the mean of the two in the middle", () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 3, 2])).toBe(2.5);
    expect(median([])).toBeNaN();
  });

  test("the spread goes from the slowest to the fastest round", () => {
    expect(spreadOf([300, 100, 200].map(round))).toEqual({ median: 200, min: 100, max: 300 });
  });

  test("the best peer is the fastest that was measured, and no limit", () => {
    const absent: Row = { ...row("Directus", "peer"), notMeasured: "it did not start" };
    const some = table("", row("a", "peer", 5), row("b", "peer", 9), row("c", "limit", 99), absent);
    expect(bestPeer(some)?.name).toBe("b");
    expect(bestPeer(table("", absent))).toBeUndefined();
  });

  test("what was not measured meets no target", () => {
    expect(atLeast("", valueOf(undefined), 0).isMet).toBe(false);
    expect(atMost("", valueOf(row("", "peer")), 1e9).isMet).toBe(false);
    expect(formatTarget(atLeast("a / b", Number.NaN, 2))).toBe("a / b: not measured (target ≥ 2)");
  });

  test("a target is met up to its bound", () => {
    expect([atLeast("", 0.9, 0.9), atLeast("", 0.89, 0.9)].map(({ isMet }) => isMet)).toEqual([
      true,
      false,
    ]);
    expect([atMost("", 64, 64), atMost("", 64.1, 64)].map(({ isMet }) => isMet)).toEqual([
      true,
      false,
    ]);
  });
});

describe("who uses the cores", () => {
  test("a process with a strange name is read rightly, its dead children included", () => {
    const text = "42 (a (b) c) S 7 42 42 0 -1 4194304 1 2 3 4 100 50 20 30 20 0 1 0 99 1 1";
    expect(parseStat(text)).toEqual({ parent: 7, seconds: 2 });
  });

  test("idle time and waiting for the disk are not busy, interrupts are, stolen time is apart", () => {
    const text = "cpu  100 10 50 9999 777 5 35 60 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
    expect(parseMachineStat(text)).toEqual({ busySeconds: 2, stealSeconds: 0.6 });
  });

  test("a tree has children of children, and nobody else", () => {
    const parents = { 1: 0, 10: 1, 11: 10, 12: 11, 20: 1 };
    const processes = new Map(
      Object.entries(parents).map(([pid, parent]) => [Number(pid), { parent }]),
    );
    expect(listTree(processes, [10])).toEqual([10, 11, 12]);
  });
});

describe("rounds", () => {
  const good: Candidate = {
    name: "ours",
    role: "ours",
    measure: () => Promise.resolve({ value: 5 }),
  };
  const broken = (role: Row["role"]): Candidate => ({
    name: "broken",
    role,
    measure: () => Promise.reject(new Error("it answered wrongly")),
  });
  const take = (...candidates: (Candidate | Absent)[]): Promise<Table> =>
    measureTable({ name: "t", unit: "u", rounds: 2, candidates });

  test("are taken of all candidates in turn", async () => {
    const order: string[] = [];
    const noting = (name: string): Candidate => ({
      ...good,
      name,
      measure: async () => {
        order.push(name);
        return { value: 1 };
      },
    });
    await measureTable({
      name: "t",
      unit: "u",
      rounds: 2,
      hasWarmUp: false,
      candidates: [noting("a"), noting("b")],
    });
    expect(order.filter((name, index) => name !== order[index - 1]).slice(0, 4)).toEqual([
      "a",
      "b",
      "a",
      "b",
    ]);
  });

  test("of a peer that answers wrongly do not count, and the others go on", async () => {
    const { rows } = await take(good, broken("peer"), {
      name: "gone",
      role: "peer",
      notMeasured: "why",
    });
    expect(rows.map(({ rounds, notMeasured }) => [rounds.length, notMeasured])).toEqual([
      [2, undefined],
      [0, "it answered wrongly"],
      [0, "why"],
    ]);
  });

  test("of our own service that answers wrongly fail the scenario", () => {
    expect(take(broken("ours"))).rejects.toThrow("it answered wrongly");
  });
});

describe("the tally of what was sent and what is stored", () => {
  const verify = (sent: number, stored: number): (() => void) => {
    const tally = new Tally(64);
    tally.begin(1000);
    tally.add(sent);
    return () => tally.verify(1000 + stored);
  };

  test("allows for one request a connection that was in flight", () => {
    expect(verify(5000, 5000)).not.toThrow();
    expect(verify(5000, 5000 - 64)).not.toThrow();
  });

  test("notices a plant that was lost, and one that nobody sent", () => {
    expect(verify(5000, 5000 - 65)).toThrow("5000 creates were sent, and 4935 plants were stored");
    expect(verify(5000, 5001)).toThrow();
  });
});

describe("reading back", () => {
  const ids = Array.from({ length: 500 }, (_, index) => index);

  /** Answers 404 for the ids that it has lost. */
  async function readFrom(isLost: (id: number) => boolean, tag = "tropical"): Promise<void> {
    const http = Bun.serve({
      port: 0,
      fetch: ({ url }) => {
        const id = Number(url.slice(url.lastIndexOf("/") + 1));
        if (isLost(id)) return Response.json({}, { status: 404 });
        return Response.json({ name: "Monstera deliciosa", tag });
      },
    });
    const server = { url: `http://127.0.0.1:${http.port}`, api: plantsApi } as Server;
    try {
      await readBack(server, ids, { kind: "create", connections: 16 });
    } finally {
      await http.stop(true);
    }
  }

  test("finds everything where nothing is lost", async () => {
    await readFrom(() => false);
  });

  test("lets those pass that may have been in flight", async () => {
    await readFrom((id) => id % 32 === 0);
  });

  test("fails where more are missing", () => {
    expect(readFrom((id) => id % 2 === 0)).rejects.toThrow("more than 16 of 500 plants");
  });

  test("fails where they come back as others", () => {
    expect(readFrom(() => false, "desert")).rejects.toThrow("a plant came back as");
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
  test("of some scenarios take the place of what was known, in the usual order", () => {
    const known = results(
      scenario({ name: "a", commit: "old" }),
      scenario({ name: "b", commit: "old" }),
    );
    const merged = mergeResults(known, results(scenario({ name: "a", commit: "new" })), [
      "a",
      "b",
      "c",
    ]);
    expect(merged.scenarios.map(({ name, commit }) => [name, commit])).toEqual([
      ["a", "new"],
      ["b", "old"],
    ]);
  });

  test("are good only where all targets are met and nothing failed", () => {
    expect(isGood(scenario())).toBe(true);
    expect(isGood(scenario({ failure: "a plant was lost" }))).toBe(false);
    expect(isGood(scenario({ targets: [atLeast("", 0.5, 0.9)] }))).toBe(false);
  });
});

describe("the page", () => {
  test("says what was met, missed and not measured, and counts what was repeated", () => {
    const disturbed: Row = { ...row("slow <peer>", "peer", 7), repeats: 3 };
    const absent: Row = { ...row("Directus", "peer"), notMeasured: "npm ci failed" };
    const page = makePage(
      results(
        scenario({
          tables: [table("64 connections", row("plantstore", "ours", 31_234), disturbed, absent)],
          targets: [atLeast("a / b", 0.95, 0.9), atMost("memory, MB", 70, 64)],
        }),
      ),
    );
    expect(page).toContain("| **plantstore** | 31,200 | 31,200–31,200 |");
    expect(page).toContain("- met: a / b: 0.95 (target ≥ 0.9)");
    expect(page).toContain("- **MISSED**: memory, MB: 70.00 (target ≤ 64)");
    expect(page).toContain("- Directus: not measured: npm ci failed");
    expect(page).toContain("in 3 rounds, which were repeated");
    expect(page).toContain("![Create a plant](charts/create.svg)");
  });

  test("shows a failure, and no chart of it", () => {
    const page = makePage(
      results(scenario({ tables: [], targets: [], failure: "a plant was lost" })),
    );
    expect(page).toContain("**FAILED**: a plant was lost");
    expect(page).not.toContain("charts/");
  });
});

describe("a chart", () => {
  const tables = [1, 16, 64].map((connections) =>
    table(
      connections === 1 ? "1 connection" : `${connections} connections`,
      row("plantstore", "ours", 100 * connections, 90 * connections),
      row("Fish & <Chips>", "peer", 10),
      row("nothing", "limit", 120 * connections),
    ),
  );

  /** Well formed, as far as a picture of ours can be otherwise. */
  const checkMarkup = (svg: string): void => {
    const open: string[] = [];
    for (const [, slash, name = "", rest = ""] of svg.matchAll(/<(\/?)([a-z]+)([^<>]*)>/gi)) {
      if (slash === "/") expect(open.pop()).toBe(name);
      else if (!rest.endsWith("/")) open.push(name);
    }
    expect(open).toEqual([]);
    expect(svg).not.toMatch(/NaN|Infinity|undefined/);
    expect(svg).toContain("prefers-color-scheme: dark");
    expect(svg).toMatch(/<title id="title">[^<]+<\/title>\n<desc id="description">[^<]+<\/desc>/);
  };

  test("of bars has the longest for the highest median, and says the figures in words", () => {
    const svg = drawBars("Create", tables.slice(2));
    checkMarkup(svg);
    const width = (role: string): number =>
      Number(
        new RegExp(`class="bar ${role}" x="[\\d.]+" y="[\\d.]+" width="([\\d.]+)"`).exec(svg)?.[1],
      );
    expect(width("limit") / width("ours")).toBeCloseTo(120 / 95, 2);
    expect(svg).toContain("plantstore 6,080; Fish &#38; &#60;Chips&#62; 10.0; nothing 7,680.");
  });

  test("of lines leaves out what was not measured at every level", () => {
    const [first, ...others] = tables;
    const svg = drawLines("Create", [
      { ...first, rows: [...(first?.rows ?? []), row("once", "peer", 5)] } as Table,
      ...others,
    ]);
    checkMarkup(svg);
    expect(svg.match(/class="line \w+" d="M[\d.]+ [\d.]+L/g)?.length).toBe(3);
    expect(svg).not.toContain("once");
  });

  test("says of a row that it was not measured", () => {
    const absent: Row = { ...row("Directus", "peer"), notMeasured: "why" };
    const svg = drawBars("Create", [table("64 connections", row("plantstore", "ours", 5), absent)]);
    checkMarkup(svg);
    expect(svg).toContain(">not measured</text>");
  });

  test("over levels comes with bars of the usual one", () => {
    const files = drawCharts(scenario({ chart: "lines", tables })).map(({ file }) => file);
    expect(files).toEqual(["create.svg", "create-connections.svg"]);
  });

  test("keeps names apart, in their order and above the axis", () => {
    expect(spreadApart([10, 100, 101, 102], 18, 104)).toEqual([10, 66, 84, 102]);
    expect(spreadApart([10, 200], 18, 104)).toEqual([10, 104]);
  });

  test("has grid lines at round numbers", () => {
    expect([31_000, 480, 7].map((max) => niceStep(max, 5))).toEqual([10_000, 100, 2]);
  });
});

describe("words", () => {
  test("numbers have three digits that count", () => {
    expect([29_648, 1234, 99.44, 2.34567].map(formatNumber)).toEqual([
      "29,600",
      "1,230",
      "99.4",
      "2.35",
    ]);
  });

  test("the filesystem is that of the mount nearest to the folder", () => {
    const mounts = "/dev/a / ext4 rw 0 0\n/dev/b /tmp xfs rw 0 0\ntmpfs /tmp/x tmpfs rw 0 0\n";
    expect(findFilesystem(mounts, "/tmp/bench")).toBe("xfs on /dev/b");
    expect(findFilesystem(mounts, "/tmpfolder")).toBe("ext4 on /dev/a");
  });

  test("of what npm says the reason is kept", () => {
    const errors =
      "npm warn x\nnpm error code ETARGET\nnpm error notarget No matching version found for a@1.\n";
    expect(findReason(errors)).toBe("notarget No matching version found for a@1.");
  });
});
