/** The bars of charts, on the days when the clock changes. */

import { afterAll, beforeAll, expect, test } from "bun:test";
import { edgesOf } from "../../console/state/spans.ts";

const { TZ: before } = process.env;
beforeAll(() => void (process.env["TZ"] = "Europe/Berlin"));
afterAll(() => {
  process.env["TZ"] = before ?? "UTC";
});

const HOUR_MS = 3_600_000;

test("a quarter of a day begins at 0, 6, 12 or 18 o'clock, before and after the clock changes", () => {
  for (const now of ["2026-03-31T10:20:00+02:00", "2026-10-27T10:20:00+01:00"]) {
    const edges = edgesOf("week", new Date(now));
    expect(edges).toHaveLength(29);
    expect(edges.map((ms) => new Date(ms).getHours() % 6)).toEqual(edges.map(() => 0));
    expect(new Date(edges[28] ?? 0).getHours()).toBe(12);
    expect((edges[28] ?? 0) - (edges[0] ?? 0)).not.toBe(28 * 6 * HOUR_MS);
  }
});

test("the hour that occurs twice is two bars, and the last one has the present", () => {
  const now = new Date("2026-10-25T02:30:00+01:00");
  const edges = edgesOf("day", now);
  expect(edges.at(-1)).toBe(new Date("2026-10-25T03:00:00+01:00").getTime());
  expect(edges.slice(1).map((ms, at) => ms - (edges[at] ?? 0))).toEqual(Array(24).fill(HOUR_MS));
});
