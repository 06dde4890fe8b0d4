/** Pages cut from rows: what a search finds, and how much work it may be. */

import { describe, expect, test } from "bun:test";
import { array, assert, constantFrom, property } from "fast-check";
import { findHint, needsScan } from "../../src/domain/filter.ts";
import {
  createPage,
  SEARCH_ROWS_MIN,
  firstIdOf,
  type PlantQuery,
  TAG_PREFIXES_MAX,
  takeTags,
} from "../../src/domain/page.ts";
import type { Plant } from "../../src/domain/plant.ts";
import { measureCpuMs } from "../support/expect.ts";
import { takePage, toExact } from "../support/plants.ts";

const query: PlantQuery = { after: undefined, limit: 100, order: "asc" };

const toPlants = (names: readonly string[]): Plant[] =>
  names.map((name, index) => ({ id: BigInt(index + 1), name, tag: undefined }));

const finds = (name: string, part: string): boolean =>
  takePage(toPlants([name]), { ...query, name: part }, 1).plants.length === 1;

describe("a search", () => {
  test("ends its page when its time is over, and continues after the last plant that it scanned", () => {
    const plants = toPlants(Array.from({ length: 2_001 }, (_, at) => (at % 2 ? "fern" : "rose")));
    const seen: bigint[][] = [];
    for (let rest: readonly Plant[] = plants; rest.length > 0;) {
      let now = 0;
      const tick = (): number => (now += 20);
      const page = takePage(rest, { ...query, limit: 2_001, name: "ROSE" }, 1e6, 50, tick);
      seen.push(toExact(page.plants).map(({ id }) => id));
      rest = page.next === undefined ? [] : rest.filter(({ id }) => id > (page.next ?? 0n));
    }
    expect(seen.length).toBeGreaterThan(1);
    expect(seen.flat()).toEqual(plants.flatMap(({ id, name }) => (name === "rose" ? id : [])));
  });

  test("looks at some plants, however late the database sends them", () => {
    let now = 0;
    const tick = (): number => (now += 1e6);
    const plants = toPlants(Array.from({ length: SEARCH_ROWS_MIN + 1 }, () => "fern"));
    const page = takePage(plants, { ...query, name: "x" }, 1_000, 50, tick);
    expect(page).toEqual({ plants: [], next: BigInt(SEARCH_ROWS_MIN) });
  });

  test.each([
    ["Große EICHE", ["große eiche", "GROSSE", "oSSe E"]],
    ["Ωmega ΟΔΟΣ", ["οδοσ", "οδος"]],
    ["Éclair", ["éCLAIR", "e\u0301clair"]],
    ["E\u0301clair", ["éCLAIR", "e\u0301clair"]],
    ["ЖИВОТ", ["живот"]],
    ["ılgaz", ["ILGAZ"]],
    ["ﬁcus", ["ficus"]],
  ])("finds parts of %s in any case, composed or not", (name, parts) => {
    expect([...parts, "zzz", "%", "_"].filter((part) => finds(name, part))).toEqual(parts);
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

  test("takes about as long for a long part as for a short one, whatever the name is", async () => {
    const name = "a".repeat(1_000_000);
    const part = `${"a".repeat(1_000)}b${"a".repeat(1_000)}`;
    const shortMs = await measureCpuMs(() => finds(name, "b"));
    // String.includes takes a thousand times as long.
    expect(await measureCpuMs(() => finds(name, part))).toBeLessThan(50 * Math.max(shortMs, 1));
  });

  test("composes a letter with up to 31 marks: with more, it would take a square of their number", () => {
    const marks = (length: number): string => "\u0316".repeat(length - 1) + "\u0301";
    expect(finds(`e${marks(31)}`, "\u00e9")).toBe(true);
    expect(finds(`e${marks(32)}`, "\u00e9")).toBe(false);
    expect(finds(`e${marks(32)}Rose`, "rOSE")).toBe(true);
  });

  test("composes names of an ordinary length, and takes others as they are written", () => {
    const ordinary = "x".repeat(4_096 - "E\u0301clair".length);
    expect(finds(`${ordinary}E\u0301clair`, "éCLAIR")).toBe(true);
    const long = `${ordinary}x`;
    expect(finds(`${long}Éclair`, "éCLAIR")).toBe(true);
    expect(finds(`${long}E\u0301clair`, "éCLAIR")).toBe(false);
  });
});

describe("a page", () => {
  const plants = toPlants(["aaaa", "bb", "cccc", "dd"]);
  const idsOf = (asked: Partial<PlantQuery>, rowsMax = 100, msMax?: number): unknown[] => {
    const page = takePage(plants, { ...query, ...asked }, rowsMax, msMax, () => 0);
    return [page.plants.map(({ id }) => Number(id)), page.next];
  };

  test.each<[string, unknown[], unknown[]]>([
    ["its limit", idsOf({ limit: 3 }), [[1, 2, 3], 3n]],
    ["its last plant", idsOf({ limit: 4 }), [[1, 2, 3, 4], undefined]],
    ["the rows that it looks at", idsOf({}, 2), [[1, 2], 2n]],
    ["the first plant that has more text than it may", idsOf({ charactersMax: 3 }), [[1], 1n]],
    ["the plant that follows as much as it may have", idsOf({ charactersMax: 4 }), [[1, 2], 2n]],
    ["the rows that a search looks at", idsOf({ q: "d" }, 3), [[], 3n]],
    ["a search within its time", idsOf({ q: "d" }, 100, 0), [[4], undefined]],
  ])("ends at %s", (_name, found, expected) => expect(found).toEqual(expected));

  test("of another kind than a search has all the time", () => {
    let now = 0;
    expect(takePage(plants, query, 100, 50, () => (now += 1_000)).plants).toHaveLength(4);
  });

  test("counts the rows that the database passed over", () => {
    const page = createPage({ ...query, q: "x" }, 10);
    expect([page.lastId, page.rowsLeft(100), page.rowsLeft(3)]).toEqual([undefined, 10, 3]);
    page.skip(4);
    expect(page.rowsLeft(100)).toBe(6);
    page.skip(6);
    expect(page.rowsLeft(100)).toBe(1);
    expect(page.add(plants[0] as Plant)).toBe(false);
  });

  test("without a cursor begins at the end of int64 that its order has", () => {
    expect(firstIdOf(query)).toBe(-(2n ** 63n));
    expect(firstIdOf({ ...query, order: "desc" })).toBe(2n ** 63n - 1n);
  });

  test.each<[{ name?: string; q?: string }, string | undefined]>([
    [{}, undefined],
    [{ name: "" }, undefined],
    [{ name: "rose" }, "ROSE"],
    [{ name: "Rosé" }, undefined],
    [{ q: "Rosé" }, "ROSE"],
    [{ q: "a rose of" }, "ROSE"],
    [{ q: "ab", name: "abc" }, "ABC"],
    [{ name: "monstera deliciosa" }, "MONSTERA"],
    [{ q: "花 ab" }, "AB"],
    [{ q: "\u0301 ab" }, "AB"],
  ])("%j has the hint %p", (asked, hint) => {
    expect(findHint(asked)).toBe(hint);
    expect(needsScan(asked)).toBe(Object.values(asked).some((text) => text !== ""));
  });

  test.each<[name: string, tag: string | undefined, found: string[], missed: string[]]>([
    ["Fern", "Greèn", ["green fern", "  FERN\tGreén ", "", "   "], ["fern blue", "ferngreen"]],
    ["Éclair de Lune", "rosé", ["lune éclair", "clair une", "eclair lune de rosé"], ["strasse"]],
    ["E\u0301clair", "Lune", ["lune ECLAIR"], ["eclair rose"]],
    ["Straße 100%", "a_b\\c", ["STRASSE", "0%", "a_b\\", "_"], ["eclair strasse"]],
    ["Ёлка", "дерево", ["елка", "Ёлка ДЕРЕВО"], ["_"]],
    // Marks distinguish words in Thai.
    ["แอปเปิ้ล", undefined, ["แอปเปิ้ล"], ["แอปเปล"]],
  ])("%s, %s has the words %j in its name or tag, and not %j", (name, tag, found, missed) => {
    const hasWords = (q: string, more = {}): boolean =>
      takePage([{ id: 1n, name, tag }], { ...query, q, ...more }, 1).plants.length === 1;
    expect([...found, ...missed].filter((q) => hasWords(q))).toEqual(found);
    expect(found.filter((q) => hasWords(q, { name: "x" }))).toEqual([]);
  });
});

describe("a page of tags", () => {
  const toHeads = (heads: string[], bytes = 1) => heads.map((head) => ({ head, bytes }));
  const count = (length: number): string[] => Array.from({ length }, (_, index) => `${index}`);

  test("ends at its limit, and then leads on", () => {
    expect(takeTags(toHeads(["a", "b"]), 2)).toEqual({ tags: ["a", "b"], next: undefined });
    expect(takeTags(toHeads(["a", "b", "c"]), 2)).toEqual({ tags: ["a", "b"], next: "b" });
    expect(takeTags([], 1)).toEqual({ tags: [], next: undefined });
  });

  test("ends after 2,000 prefixes", () => {
    const many = count(TAG_PREFIXES_MAX + 1);
    const all = takeTags(toHeads(many.slice(0, -1)), 10_000);
    expect([all.tags.length, all.next]).toEqual([2_000, undefined]);
    const some = takeTags(toHeads(many), 10_000);
    expect([some.tags.length, some.next]).toEqual([2_000, "1999"]);
  });

  test("ends after 4 MB", () => {
    const large = takeTags(toHeads(count(7), 1_048_576), 10_000);
    expect([large.tags.length, large.next]).toEqual([5, "4"]);
  });

  test("has no tag of 100 characters or more, whatever units they have", () => {
    const [short, long] = ["x".repeat(99), "x".repeat(100)];
    const [shortEmoji, longEmoji] = ["🌵".repeat(99), "🌵".repeat(100)];
    const page = takeTags(toHeads([short, long, shortEmoji, longEmoji]), 10);
    expect(page).toEqual({ tags: [short, shortEmoji], next: undefined });
  });
});
