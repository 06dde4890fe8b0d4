/** Long tags, on both engines. */

import { expect, test } from "bun:test";
import type { Plant } from "../../src/domain/plant.ts";
import { openEnginePair } from "../support/database.ts";

const plantsOf = (tags: readonly (string | undefined)[]): Plant[] =>
  tags.map((tag, id) => ({ id: BigInt(id), name: "n", tag }));

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
