/** The entity tags that the console computes are those of the service. */

import { expect, test } from "bun:test";
import { etagOf } from "../../console/api/etag.ts";
import { entityTagOf } from "../../src/domain/entity-tag.ts";
import { INT64_MAX, INT64_MIN } from "../../src/domain/json.ts";
import { formatStoredPlant } from "../../src/domain/plant.ts";

test("the console computes the entity tag of every plant as the service does", () => {
  const names = Array.from({ length: 200 }, (_, length) => "ü".repeat(length));
  const plants = [
    ...names.map((name, index) => ({ id: BigInt(index - 100), name, tag: undefined })),
    { id: INT64_MIN, name: "", tag: "" },
    { id: INT64_MAX, name: '"\\\u0007 🌵', tag: "x".repeat(100_000) },
    { id: 9007199254740993n, name: "beyond", tag: "t" },
  ];
  for (const plant of plants) {
    const timed = { ...plant, changed: "2026-01-01T00:00:00.000Z" };
    for (const each of [plant, timed])
      expect(etagOf(each)).toBe(entityTagOf(formatStoredPlant(plant)));
  }
});
