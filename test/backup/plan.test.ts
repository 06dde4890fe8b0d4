/** Which copy and which segments a restore uses: a table, and a model of all ways. */

import { describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import type { Timeline } from "../../src/backup/names.ts";
import {
  choosePlan,
  findFurthest,
  isCopyDue,
  type KnownCopy,
  type KnownSegment,
  listReachable,
  listSuperfluous,
  NEWEST,
  type Plan,
  type Run,
} from "../../src/backup/plan.ts";

const piece = { label: "plants", store: "store", bytes: 1 };

type CopyFacts = Partial<KnownCopy> & Pick<KnownCopy, "change">;

const copy = ({ change, ...facts }: CopyFacts): KnownCopy => ({
  ...piece,
  kind: "copy",
  name: `copy ${facts.timeline ?? 1} ${change} ${facts.serial ?? 1}`,
  timeline: 1,
  serial: 1,
  change,
  atMs: 0,
  digest: "0",
  ...facts,
});

type SegmentFacts = Partial<KnownSegment> & { readonly runs: readonly Run[] };

const segment = ({ runs, ...facts }: SegmentFacts): KnownSegment => {
  const after = facts.after ?? runs[0]?.after ?? 0;
  const end = facts.end ?? runs.at(-1)?.last ?? after;
  const name = `segment ${facts.timeline ?? 1} ${after}-${end} ${facts.serial ?? 1}`;
  return {
    ...piece,
    kind: "segment",
    name,
    timeline: 1,
    serial: 1,
    last: end,
    span: { fromMs: 0, toMs: 0 },
    ...facts,
    after,
    runs,
    end,
  };
};

const run = (after: number, last: number): Run => ({ after, last });
/** A segment with one unbroken run. */
const whole = (after: number, last: number, facts: Partial<KnownSegment> = {}): KnownSegment =>
  segment({ runs: after === last ? [] : [run(after, last)], after, ...facts });

const first: Timeline = { number: 1, id: "a", after: 0 };
/** The second leaves the first after change 20. */
const second: Timeline = { number: 2, id: "b", after: 20 };

interface Case {
  readonly copies: readonly KnownCopy[];
  readonly segments: readonly KnownSegment[];
  readonly history?: readonly Timeline[];
  readonly target?: number;
  /** The change of the copy, and where each step ends. Undefined if there is no plan. */
  readonly plan: readonly [copy: number, ...steps: number[]] | undefined;
  readonly furthest: number;
  readonly reachable: readonly Run[];
}

const cases: Readonly<Record<string, Case>> = {
  "a copy and the segments after it": {
    copies: [copy({ change: 10 })],
    segments: [whole(10, 15), whole(15, 20, { serial: 2 })],
    plan: [10, 15, 20],
    furthest: 20,
    reachable: [run(10, 20)],
  },
  "a gap ends the way, and the end is still known": {
    copies: [copy({ change: 10 })],
    segments: [whole(10, 15), whole(18, 30, { serial: 3 })],
    plan: [10, 15],
    furthest: 30,
    reachable: [run(10, 15)],
  },
  "a copy after a gap leads further": {
    copies: [copy({ change: 10 }), copy({ change: 18, serial: 3 })],
    segments: [whole(10, 15), whole(18, 30, { serial: 3 })],
    plan: [18, 30],
    furthest: 30,
    reachable: [run(10, 15), run(18, 30)],
  },
  "a target in a gap is reached as far as possible": {
    copies: [copy({ change: 10 }), copy({ change: 18, serial: 3 })],
    segments: [whole(10, 15), whole(18, 30, { serial: 3 })],
    target: 17,
    plan: [10, 15],
    furthest: 30,
    reachable: [run(10, 15), run(18, 30)],
  },
  "damage inside a segment splits it": {
    copies: [copy({ change: 10 })],
    segments: [segment({ runs: [run(10, 12), run(14, 20)] })],
    plan: [10, 12],
    furthest: 20,
    reachable: [run(10, 12)],
  },
  "of segments that overlap, the one that leads furthest is taken": {
    copies: [copy({ change: 10 })],
    segments: [whole(10, 15), whole(12, 25, { serial: 2 }), whole(10, 14, { serial: 3 })],
    plan: [10, 15, 25],
    furthest: 25,
    reachable: [run(10, 25)],
  },
  "a target inside a segment is its end": {
    copies: [copy({ change: 10 })],
    segments: [whole(10, 30)],
    target: 17,
    plan: [10, 17],
    furthest: 30,
    reachable: [run(10, 30)],
  },
  "for the change of a copy the copy is taken": {
    copies: [copy({ change: 10 }), copy({ change: 15, serial: 2 })],
    segments: [whole(10, 15), whole(15, 20, { serial: 2 })],
    target: 15,
    plan: [15],
    furthest: 20,
    reachable: [run(10, 20)],
  },
  "a damaged copy is left out": {
    copies: [copy({ change: 10 }), copy({ change: 15, serial: 2, fault: "flipped" })],
    segments: [whole(10, 15), whole(15, 20, { serial: 2 })],
    plan: [10, 15, 20],
    furthest: 20,
    reachable: [run(10, 20)],
  },
  "no copy is old enough": {
    copies: [copy({ change: 10 })],
    segments: [],
    target: 9,
    plan: undefined,
    furthest: 10,
    reachable: [run(10, 10)],
  },
  "of two copies of one change the later is taken": {
    copies: [copy({ change: 10, serial: 4 }), copy({ change: 10, serial: 2 })],
    segments: [],
    plan: [10],
    furthest: 10,
    reachable: [run(10, 10)],
  },
  "an abandoned timeline is not followed": {
    copies: [copy({ change: 10 }), copy({ change: 28 })],
    segments: [whole(10, 30), whole(20, 25, { timeline: 2, serial: 2 })],
    history: [first, second],
    plan: [10, 20, 25],
    furthest: 25,
    reachable: [run(10, 25)],
  },
  "a later timeline may hold changes that it shares with the first": {
    copies: [copy({ change: 10 })],
    segments: [whole(10, 12), whole(12, 25, { timeline: 2, serial: 2 })],
    history: [first, second],
    plan: [10, 12, 25],
    furthest: 25,
    reachable: [run(10, 25)],
  },
  "a timeline that left at an earlier change than the one before it": {
    copies: [copy({ change: 10 })],
    segments: [whole(10, 20), whole(15, 16, { timeline: 3, serial: 2 })],
    history: [first, second, { number: 3, id: "c", after: 15 }],
    plan: [10, 15, 16],
    furthest: 16,
    reachable: [run(10, 16)],
  },
  "of two timelines with one number the id decides": {
    copies: [copy({ change: 10, timelineId: "a" })],
    segments: [
      whole(20, 40, { timeline: 2, timelineId: "other", serial: 2 }),
      whole(10, 20, { timelineId: "a" }),
      whole(20, 25, { timeline: 2, timelineId: "b", serial: 3 }),
    ],
    history: [first, second],
    plan: [10, 20, 25],
    furthest: 25,
    reachable: [run(10, 25)],
  },
  "a segment of another schema is not replayed on a copy": {
    copies: [copy({ change: 10, schema: 1 })],
    segments: [whole(10, 20, { schema: 1 }), whole(20, 30, { schema: 2, serial: 2 })],
    plan: [10, 20],
    furthest: 30,
    reachable: [run(10, 20)],
  },
};

const outlineOf = (plan: Plan | undefined): readonly number[] | undefined =>
  plan && [plan.copy.change, ...plan.steps.map(({ until }) => until)];

describe("a plan:", () => {
  for (const [
    name,
    { copies, segments, history = [first], target = NEWEST, ...due },
  ] of Object.entries(cases))
    test(name, () => {
      const plan = choosePlan(copies, segments, history, target);
      expect({
        plan: outlineOf(plan),
        furthest: findFurthest(copies, segments, history),
        reachable: listReachable(copies, segments, history),
      }).toEqual(due);
      // The order of a listing means nothing.
      const [turned, reversed] = [copies.toReversed(), segments.toReversed()];
      expect(outlineOf(choosePlan(turned, reversed, history, target))).toEqual(due.plan);
    });

  test("of two copies of one change has the one with the higher serial", () => {
    const copies = [copy({ change: 10, serial: 4 }), copy({ change: 10, serial: 2 })];
    expect(choosePlan(copies, [], [first], NEWEST)?.copy.serial).toBe(4);
  });
});

const silent = { hasJournal: false };

/** The machine's speed is no test: what is counted is how often a segment is looked at. */
test("100,000 pieces are planned in one sweep, however many of them are copies", () => {
  const PIECES = 100_000;
  let looks = 0;
  const segments = Array.from({ length: PIECES }, (_, nth) =>
    Object.defineProperty(
      whole(nth, nth + 1, { serial: nth + 1, name: `segment ${nth}` }),
      "schema",
      { get: () => void looks++ },
    ),
  );
  const copies = Array.from({ length: 1_000 }, (_, nth) => copy({ change: nth * 90, serial: nth }));
  const plan = choosePlan(copies, segments, [first], NEWEST);
  expect([plan?.copy.change, plan?.reached]).toEqual([89_910, PIECES]);
  expect(listReachable(copies, segments, [first])).toEqual([run(0, PIECES)]);
  expect(findFurthest(copies, segments, [first])).toBe(PIECES);
  expect(looks).toBeWithin(PIECES, 4 * PIECES);
});

describe("a copy is due", () => {
  const newest = { change: 10, atMs: 0, bytes: 5_000 };
  const place = { change: 20, isCovered: true, newest, logBytes: 4_999 };
  const rule = { hasJournal: true, ageMs: 999, ageMsMax: 1_000, logBytesMin: 100 };

  test.each([
    ["not while the log is smaller and the copy young", {}, {}, false],
    ["if the log has outgrown it", { logBytes: 5_000 }, {}, true],
    ["not for a log of a few bytes, however small it is", {}, { logBytesMin: 6_000 }, false],
    ["if it is a day old", {}, { ageMs: 1_000 }, true],
    ["never if nothing has changed", { change: 10, logBytes: 9_999 }, { ageMs: 1_000 }, false],
    ["if there is none", { newest: undefined, change: 10 }, {}, true],
    ["if no way leads from it to the end", { isCovered: false }, {}, true],
    ["without a journal at each interval in which something changed", {}, silent, true],
    ["without a journal, not if nothing has", { change: 10, isCovered: false }, silent, false],
  ])("%s", (_, standing, rules, isDue) => {
    expect(isCopyDue({ ...place, ...standing }, { ...rule, ...rules })).toBe(isDue);
  });
});

describe("retention", () => {
  const DAY_MS = 86_400_000;
  const START_MS = Date.UTC(2026, 0, 1);
  /** At noon of each day, or `shiftMs` later. */
  const dayCopy = (day: number, shiftMs = 0, change = 10 * day) =>
    copy({ change, serial: day, atMs: START_MS + (day + 0.5) * DAY_MS + shiftMs });
  const days = (count: number, shiftOf: (day: number) => number = () => 0) =>
    Array.from({ length: count }, (_, nth) => dayCopy(nth + 1, shiftOf(nth + 1)));
  const logOf = (count: number) =>
    Array.from({ length: count }, (_, nth) =>
      whole(10 * nth, 10 * nth + 10, { serial: nth + 1, name: `segment ${nth}` }),
    );
  const keep = (copies: readonly KnownCopy[], momentsMs: number, count: number) => {
    const removed = listSuperfluous(copies, logOf(20), [first], { momentsMs, days: count });
    const left = copies.filter((one) => !removed.includes(one)).map(({ change }) => change);
    const oldest = logOf(20).find(({ name }) => removed.every((one) => one.name !== name));
    return { copies: left, from: oldest?.after };
  };

  test("keeps any moment of a time, and one state of each day before it", () => {
    expect(keep(days(20), 3 * DAY_MS, 2)).toEqual({
      copies: [150, 160, 170, 180, 190, 200],
      from: 160,
    });
    // Several copies of a day: the last one stays.
    const often = days(6).flatMap((one) => [dayCopy(one.serial, -3_600_000, one.change - 5), one]);
    expect(keep(often, DAY_MS, 2).copies).toEqual([30, 40, 50, 55, 60]);
  });

  test("keeps two copies under any setting, and everything if nothing is old enough", () => {
    expect(keep(days(3), 0, 0).copies).toEqual([20, 30]);
    expect(keep(days(1), 0, 0)).toEqual({ copies: [10], from: 0 });
    expect(keep(days(5), 9 * DAY_MS, 0)).toEqual({ copies: [10, 20, 30, 40, 50], from: 0 });
  });

  test("a clock that jumps by years makes copies older by a day at most", () => {
    const jump = 10 * 365 * DAY_MS;
    const ahead = days(8, (day) => (day > 4 ? jump : 0));
    expect(keep(ahead, 7 * DAY_MS, 0).copies).toHaveLength(8);
    const back = days(8, (day) => (day > 4 ? -jump : 0));
    expect(keep(back, 6 * DAY_MS, 0).copies).toHaveLength(8);
  });

  test("removes the oldest first, copies before segments, and nothing of the future", () => {
    const removed = listSuperfluous(days(5), logOf(8), [first], { momentsMs: DAY_MS, days: 0 });
    expect(removed.map(({ name }) => name)).toEqual([
      "copy 1 10 1",
      "copy 1 20 2",
      "copy 1 30 3",
      "segment 0",
      "segment 1",
      "segment 2",
    ]);
  });
});

/** Small numbers, so that pieces meet. Timeline 2 shares the changes up to its start with timeline 1. */
const CHANGES = 12;
const change = fc.integer({ min: 1, max: CHANGES });
const timeline = fc.constantFrom(1, 2);
const facts = fc.record({
  fork: change,
  target: fc.option(change, { nil: NEWEST }),
  copies: fc.array(fc.record({ timeline, change, isWhole: fc.boolean() }), { maxLength: 4 }),
  segments: fc.array(fc.record({ timeline, after: change, length: change }), { maxLength: 6 }),
});

test("a plan gets as far as any way through whole pieces, and no further", () => {
  fc.assert(
    fc.property(facts, ({ fork, target, ...pieces }) => {
      const history = [first, { ...second, after: fork }];
      const isShared = (number: number, at: number): boolean => number === 2 || at <= fork;
      const copies = pieces.copies.map(({ isWhole, ...one }, serial) =>
        copy({ ...one, serial, fault: isWhole ? undefined : "flipped" }),
      );
      const segments = pieces.segments.map(({ after, length, ...one }, serial) =>
        whole(after, Math.min(CHANGES, after + length), { ...one, serial }),
      );
      // Every change that a way leads to: from each copy, one change at a time.
      const ways = copies
        .filter((one) => one.fault === undefined && isShared(one.timeline, one.change))
        .map((one) => {
          const reached = [one.change];
          const leads = (from: number): boolean =>
            segments.some(
              ({ timeline: number, after, end }) =>
                after <= from && from < end && isShared(number, from + 1),
            );
          while (leads(reached.at(-1) as number)) reached.push((reached.at(-1) as number) + 1);
          return reached;
        });
      const all = [...new Set(ways.flat())].toSorted((one, other) => one - other);
      const plan = choosePlan(copies, segments, history, target);
      expect(plan?.reached).toBe(all.findLast((one) => one <= target));
      const ranges = listReachable(copies, segments, history);
      const listed = ranges.flatMap(({ after, last }) =>
        Array.from({ length: last - after + 1 }, (_, nth) => after + nth),
      );
      expect(listed).toEqual(all);
      expect(findFurthest(copies, segments, history)).toBeGreaterThanOrEqual(all.at(-1) ?? 0);
      // Each step continues the one before.
      let reached = plan?.copy.change ?? 0;
      for (const { segment: one, until } of plan?.steps ?? []) {
        expect(one.after).toBeLessThanOrEqual(reached);
        expect(until).toBeGreaterThanOrEqual(reached);
        expect(until).toBeLessThanOrEqual(Math.max(one.end, reached));
        reached = until;
      }
    }),
    { numRuns: 1_000 },
  );
});
