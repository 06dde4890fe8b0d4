/** Long tags, on both engines. */

import { expect, test } from "bun:test";
import type { Plant } from "../../src/domain/plant.ts";
import { openEnginePair } from "../support/database.ts";

const plantsOf = (tags: readonly (string | undefined)[]): Plant[] =>
  tags.map((tag, id) => ({ id: BigInt(id), name: "n", tag }));

test("tags that are too long, and many, end a page early, and lose none behind them", async () => {
  const long = (index: number): string => `m${String(index).padStart(6, "0")}${"x".repeat(100)}`;
  const tags = ["a", ...Array.from({ length: 2_500 }, (_, index) => long(index)), "z"];
  await using pair = await openEnginePair(plantsOf(tags));
  for (const store of [pair.sqlite, pair.postgres]) {
    const query = { prefix: "", after: undefined, limit: 1_000 };
    const first = await store.listTags(query);
    expect(first).toEqual({ tags: ["a"], next: long(1_998).slice(0, 100) });
    expect(await store.listTags({ ...query, after: first.next })).toEqual({
      tags: ["z"],
      next: undefined,
    });
  }
});

test("tags of a megabyte, all with the same beginning, are skipped in one step", async () => {
  const long = "y".repeat(1_000_000);
  const tags = ["x", ...Array.from({ length: 8 }, (_, index) => long + index), "y", "z"];
  await using pair = await openEnginePair(plantsOf(tags));
  for (const store of [pair.sqlite, pair.postgres])
    expect(await store.listTags({ prefix: "", after: undefined, limit: 100 })).toEqual({
      tags: ["x", "y", "z"],
      next: undefined,
    });
});
