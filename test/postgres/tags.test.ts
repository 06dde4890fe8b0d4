/** Both engines, asked the same, give the same tags. */

import { describe, expect, test } from "bun:test";
import type { TagPage, TagQuery } from "../../src/domain/page.ts";
import type { Plant } from "../../src/domain/plant.ts";
import type { Store } from "../../src/domain/store.ts";
import { openEnginePair } from "../support/database.ts";
import { createRandom, tellingSeed } from "../support/random.ts";

const plantsOf = (tags: readonly (string | undefined)[]): Plant[] =>
  tags.map((tag, id) => ({ id: BigInt(id), name: "n", tag }));

async function* walk(store: Store, query: TagQuery): AsyncGenerator<TagPage> {
  for (let page: TagPage | undefined; page?.next !== undefined || page === undefined;) {
    page = await store.listTags({ ...query, after: page === undefined ? query.after : page.next });
    yield page;
  }
}

/** Letters at which orders differ: by case, by accent, by unit instead of by character, at both ends. */
const letters = [
  "a",
  "A",
  "b",
  "ä",
  "z",
  " ",
  "%",
  "_",
  "\\",
  "\u0001",
  "\uffff",
  "🌵",
  "\u{10ffff}",
];

describe("tags", () => {
  test("of any text are the same, whatever is asked for, and all of those that there are", () =>
    tellingSeed(async () => {
      const random = createRandom();
      const word = (length: number): string =>
        Array.from({ length }, () => random.pick(letters)).join("");
      const tags = Array.from({ length: 1_500 }, () =>
        random.chance(20) ? undefined : word(random.pick([0, 1, 1, 2, 3, 99, 100, 101, 250])),
      );
      await using pair = await openEnginePair(plantsOf([...tags, ...tags.slice(0, 500)]));
      const known = tags.filter((tag) => tag !== undefined);
      const listed = [...new Set(known.filter((tag) => Array.from(tag).length < 100))].toSorted(
        (one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)),
      );
      for (let round = 0; round < 30; round++) {
        const query = {
          prefix: random.chance(40) ? "" : random.pick(known).slice(0, random.below(3)),
          after: random.chance(50) ? undefined : random.pick(known),
          limit: random.pick([1, 7, 100, 1_000]),
        };
        if (!query.prefix.isWellFormed()) continue;
        const [expected, found] = await Promise.all(
          [pair.sqlite, pair.postgres].map((store) => Array.fromAsync(walk(store, query))),
        );
        expect(found).toEqual(expected as TagPage[]);
        const { after, prefix } = query;
        const behind = (tag: string): boolean =>
          after === undefined || Buffer.compare(Buffer.from(tag), Buffer.from(after)) > 0;
        expect(found?.flatMap((page) => page.tags)).toEqual(
          listed.filter((tag) => tag.startsWith(prefix) && behind(tag)),
        );
      }
    }));

  test("that are too long, and many, end a page early, and lose none behind them", async () => {
    const long = (index: number): string => `m${String(index).padStart(6, "0")}${"x".repeat(100)}`;
    const tags = ["a", ...Array.from({ length: 2_500 }, (_, index) => long(index)), "z"];
    await using pair = await openEnginePair(plantsOf(tags));
    for (const store of [pair.sqlite, pair.postgres]) {
      const pages = await Array.fromAsync(
        walk(store, { prefix: "", after: undefined, limit: 1_000 }),
      );
      expect(pages).toEqual([
        { tags: ["a"], next: long(1_998).slice(0, 100) },
        { tags: ["z"], next: undefined },
      ]);
    }
  });

  test("of a megabyte, all with the same beginning, are skipped in one step", async () => {
    const long = "y".repeat(1_000_000);
    const tags = ["x", ...Array.from({ length: 8 }, (_, index) => long + index), "y", "z"];
    await using pair = await openEnginePair(plantsOf(tags));
    for (const store of [pair.sqlite, pair.postgres])
      expect(await store.listTags({ prefix: "", after: undefined, limit: 100 })).toEqual({
        tags: ["x", "y", "z"],
        next: undefined,
      });
  });
});
