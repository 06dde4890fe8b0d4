/** Pages cut from rows: what a search finds, and how much work it may be. */

import { describe, expect, test } from "bun:test";
import { array, assert, constantFrom, property } from "fast-check";
import type { PlantQuery } from "../src/domain/page.ts";
import type { Plant } from "../src/domain/plant.ts";
import { takePage, toExact } from "./support/plants.ts";

const query: PlantQuery = {
  after: undefined,
  limit: 100,
  tag: undefined,
  name: undefined,
  order: "asc",
};

const toPlants = (names: readonly string[]): Plant[] =>
  names.map((name, index) => ({ id: BigInt(index + 1), name, tag: undefined }));

const finds = (name: string, part: string): boolean =>
  takePage(toPlants([name]), { ...query, name: part }, 1).plants.length === 1;

/** The shortest of some tries: the machine may be busy. */
function measureMs(work: () => void): number {
  const times = Array.from({ length: 5 }, () => {
    const startedAtMs = performance.now();
    work();
    return performance.now() - startedAtMs;
  });
  return Math.min(...times);
}

const MEGABYTE = 1_000_000;
const fill = (text: string): string => text.repeat(Math.ceil(MEGABYTE / text.length));

describe("a search", () => {
  test("ends its page when its time is over, and goes on behind the last plant that it looked at", () => {
    const plants = toPlants(["rose", "fern", "rose", "fern", "rose"]);
    let now = 0;
    const tick = (): number => (now += 20);
    const seen: bigint[][] = [];
    for (let rest: readonly Plant[] = plants; rest.length > 0;) {
      const page = takePage(rest, { ...query, name: "ROSE" }, 1_000, 50, tick);
      seen.push(toExact(page.plants).map(({ id }) => id));
      rest = page.next === undefined ? [] : rest.filter(({ id }) => id > (page.next ?? 0n));
    }
    expect(seen.length).toBeGreaterThan(1);
    expect(seen.flat()).toEqual([1n, 3n, 5n]);
  });

  test("looks at one plant at least, however little time there is", () => {
    let now = 0;
    const page = takePage(
      toPlants(["fern", "rose"]),
      { ...query, name: "x" },
      1_000,
      50,
      () => (now += 1e6),
    );
    expect(page).toEqual({ plants: [], next: 1n });
  });

  test("finds a long part wherever it is, and nowhere else", () => {
    const letters = array(constantFrom("a", "b"), { maxLength: 60 }).map((all) => all.join(""));
    assert(
      property(letters, letters, (name, part) => {
        expect(finds(name, part)).toBe(name.includes(part));
        expect(finds(`${name}${part}${name}`, part)).toBe(true);
      }),
    );
  });

  test("takes a time in proportion to the name, whatever the part is", () => {
    const name = fill("a");
    const part = `${"a".repeat(1_000)}b${"a".repeat(1_000)}`;
    expect(measureMs(() => finds(name, part))).toBeLessThan(200);
  });

  test.each([
    [
      "31 marks on every letter",
      `a${"\u0301".repeat(11)}${"\u0327".repeat(10)}${"\u0334".repeat(10)}`,
    ],
    ["a mark on every letter", "a\u0316"],
    ["marks without end", "\u0301\u0316"],
  ])("takes little time for a long name with %s", (_, text) => {
    const name = fill(text);
    expect(measureMs(() => finds(name, "rose"))).toBeLessThan(60);
    expect(finds(`${name}Rose`, "rOSE")).toBe(true);
  });

  test("composes names of an ordinary length, and takes others as they are written", () => {
    const ordinary = "x".repeat(4_000);
    expect(finds(`${ordinary}E\u0301clair`, "éCLAIR")).toBe(true);
    const long = "x".repeat(5_000);
    expect(finds(`${long}Éclair`, "éCLAIR")).toBe(true);
    expect(finds(`${long}E\u0301clair`, "éCLAIR")).toBe(false);
  });
});
