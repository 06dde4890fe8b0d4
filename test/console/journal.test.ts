/** The journal as the page shows it, without a page: lines of many changes, and counts that stay true. */

import { describe, expect, test } from "bun:test";
import type { Change } from "../../client/client.ts";
import {
  addArrived,
  addNewer,
  addOlder,
  foldOf,
  isShown,
  type Line,
} from "../../console/state/journal.ts";
import { describeBatch, isImport, nameShown, nameUndo } from "../../console/state/undo.ts";

const SECOND = 1_000_000;
const start = Date.parse("2026-03-01T10:00:00Z");

/** The number of a change is its time in microseconds. */
function change(seconds: number, more: Partial<Change> = {}): Change {
  const time = new Date(start + seconds * 1000).toISOString();
  const seq = start * 1000 + seconds * SECOND;
  return { seq, time, id: BigInt(seconds), type: "created", by: "Anna", ...more } as Change;
}

const show = ({ change: { by, batch, id }, counts }: Line): string =>
  `${by} ${batch ?? id}${counts === undefined ? "" : ` ${counts.created}`}`;

describe("lines", () => {
  test("of a batch are one, though others changed plants meanwhile; of a run only without them", () => {
    const older = [
      change(9, { batch: "import" }),
      change(8, { by: "Bernd", type: "removed" }),
      change(7, { batch: "import" }),
      change(6),
      change(5, { by: "Bernd", type: "removed" }),
      change(4),
      change(3),
    ];
    expect(addOlder([], older, "run").map(show)).toEqual([
      "Anna import 2",
      "Bernd 8",
      "Anna 6 1",
      "Bernd 5",
      "Anna 4 2",
    ]);
  });

  test("of a run end at a pause, so plants added by hand are not part of a program's", () => {
    const older = [change(100), change(60), change(59), change(58)];
    expect(addOlder([], older, "run").map(show)).toEqual(["Anna 100 1", "Anna 60 3"]);
  });

  test("are continued by older changes of the next page, and by newer ones that arrive", () => {
    const [first, ...rest] = [change(5), change(4), change(3)] as const;
    const page = addOlder([], [first], "run");
    expect(addOlder(page, rest, "run", first).map(show)).toEqual(["Anna 5 3"]);
    const newer = [change(6), change(7, { batch: "import" })];
    expect(addNewer(page, newer, "run").map(show)).toEqual(["Anna import 1", "Anna 6 2"]);
    const both = addNewer(addNewer(page, newer, "run"), [change(8, { batch: "import" })], "run");
    expect(both.map(show)).toEqual(["Anna import 2", "Anna 6 2"]);
  });

  test("of one plant or of one batch are each change", () => {
    expect(foldOf({ id: 1n })).toBe("batch");
    expect(foldOf({ batch: "import" })).toBeUndefined();
    expect(addOlder([], [change(2), change(1)], undefined).map(show)).toEqual(["Anna 2", "Anna 1"]);
  });
});

test("a filter shows what the service would: by person, kind and time, both ends included", () => {
  const one = change(10);
  expect(isShown({ from: one.time, to: one.time, by: "Anna", type: "created" }, one)).toBe(true);
  expect(isShown({ by: "Bernd" }, one)).toBe(false);
  expect(isShown({ type: "removed" }, one)).toBe(false);
  expect(isShown({ to: change(9).time }, one)).toBe(false);
  expect(isShown({ from: change(11).time }, one)).toBe(false);
});

describe("counts", () => {
  const hours = { group: ["by"], every: "1h" } as const;
  const counted = addArrived([], [change(0), change(1)], {}, hours);

  test("are by hour and person", () => {
    const later = [change(3_600), change(3_601, { by: "Bernd", type: "removed" })];
    const all = addArrived(counted, later, {}, hours);
    expect(all.map(({ start: at, by, created, removed }) => [at, by, created, removed])).toEqual([
      ["2026-03-01T10:00:00.000Z", "Anna", 2, 0],
      ["2026-03-01T11:00:00.000Z", "Anna", 1, 0],
      ["2026-03-01T11:00:00.000Z", "Bernd", 0, 1],
    ]);
  });

  test("have each change once, and none that the filter hides", () => {
    expect(addArrived(counted, [change(0), change(1)], {}, hours)).toBe(counted);
    expect(addArrived(counted, [change(2, { by: "Bernd" })], { by: "Anna" }, hours)).toBe(counted);
  });
});

test("names in the journal are English, and are shown in the language of the page", () => {
  const time = " 2026-03-01T10:00:00.000Z";
  expect(describeBatch(`Delete 1,234 plants${time}`)).toBe("Delete 1,234 plants");
  // As a Swiss browser of an earlier version wrote it.
  expect(describeBatch(`Delete 1’234 plants${time}`)).toBe("Delete 1,234 plants");
  expect(describeBatch(nameUndo(`Tag 2 plants as shrub${time}`))).toBe(
    "Undo: Tag 2 plants as shrub",
  );
  expect(describeBatch(nameShown({ by: "Bernd", type: "removed" }))).toBe("Deleted · Bernd");
  expect(isImport(`stock.csv${time}`)).toBe(true);
  expect(isImport(`Added 3 plants${time}`)).toBe(false);
});
