/** Writes of a block that are repeated keep their order. */

import { expect, test } from "bun:test";
import { writeBlock } from "../../src/domain/bulk.ts";
import { Refusal } from "../../src/domain/errors.ts";
import type { ServedStore } from "../../src/domain/store.ts";
import type { PlantWrite } from "../../src/domain/write.ts";

test("a write that the store could not take is repeated together with those to the same plant after it", async () => {
  const plant = { id: 7n, name: "A", tag: undefined };
  const writes: PlantWrite[] = [
    { kind: "remove", id: 6n, condition: {} },
    { kind: "upsert", id: 7n, plant, condition: {} },
    { kind: "remove", id: 7n, condition: {} },
    { kind: "remove", id: 8n, condition: {} },
  ];
  const calls: (readonly PlantWrite[])[] = [];
  const writePlants: ServedStore["writePlants"] = async (sent) => {
    calls.push(sent);
    if (calls.length > 1) return ["replaced", "removed"];
    return ["removed", new Refusal("disk_low"), "removed", "removed"];
  };
  const retry = async <Result>(attempt: () => Promise<Result>): Promise<Result> =>
    attempt().catch(attempt);
  const outcomes = await writeBlock({ writePlants } as ServedStore, writes, {}, { retry });
  expect(calls).toEqual([writes, writes.slice(1, 3)]);
  expect(outcomes).toEqual(["removed", "replaced", "removed", "removed"]);
});
