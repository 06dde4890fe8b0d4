/** Pages cut from rows: what a search finds, and how much work it may be. */

import { describe, expect, test } from "bun:test";
import { array, assert, constantFrom, property } from "fast-check";
import type { PlantQuery } from "../src/domain/page.ts";
import type { Plant } from "../src/domain/plant.ts";
import { readCpuMs } from "./support/expect.ts";
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

/** The shortest of some tries, of the processor's time: the machine may be busy. */
function measureMs(work: () => void): number {
  const times = Array.from({ length: 5 }, () => {
    const startedAtMs = readCpuMs();
    work();
    return readCpuMs() - startedAtMs;
  });
  return Math.min(...times);
}

const MEGABYTE = 1_000_000;
const fill = (text: string, length = MEGABYTE): string =>
  text.repeat(Math.ceil(length / text.length));

/** A name that is ten times as long takes about ten times as long; if it took the square, it were a hundred. */
function expectProportional(text: string, part: string): void {
  const [short, long] = [fill(text, MEGABYTE / 10), fill(text)];
  const shortMs = measureMs(() => finds(short, part));
  expect(measureMs(() => finds(long, part)) / shortMs).toBeLessThan(50);
}

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
    expectProportional("a", `${"a".repeat(1_000)}b${"a".repeat(1_000)}`);
  });

  test.each([
    [
      "31 marks on every letter",
      `a${"\u0301".repeat(11)}${"\u0327".repeat(10)}${"\u0334".repeat(10)}`,
    ],
    ["a mark on every letter", "a\u0316"],
    ["marks without end", "\u0301\u0316"],
  ])("takes a time in proportion to a name with %s", (_, text) => {
    expectProportional(text, "rose");
    expect(finds(`${fill(text)}Rose`, "rOSE")).toBe(true);
  });

  test("composes names of an ordinary length, and takes others as they are written", () => {
    const ordinary = "x".repeat(4_000);
    expect(finds(`${ordinary}E\u0301clair`, "éCLAIR")).toBe(true);
    const long = "x".repeat(5_000);
    expect(finds(`${long}Éclair`, "éCLAIR")).toBe(true);
    expect(finds(`${long}E\u0301clair`, "éCLAIR")).toBe(false);
  });
});
