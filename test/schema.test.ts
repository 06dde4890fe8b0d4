/** Our check of schemas agrees with a complete implementation of JSON Schema. */

import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { Compile } from "typebox/schema";
import { NewPlantSchema, PlantSchema } from "../src/domain/plant.ts";
import { compileCheck } from "../src/domain/schema.ts";

const RUNS = 5_000 * Number(process.env["PLANTSTORE_TEST_RUNS"] ?? 1);

/** Mostly members that a plant has, mostly with values that it may have. */
const value = fc.oneof(
  fc.jsonValue(),
  fc.integer(),
  fc.string(),
  fc.double(),
  fc.constantFrom(null, true, "", 0, -0, 1.5, 1e300, [], {}),
);
const candidate = fc.oneof(
  { weight: 1, arbitrary: value },
  {
    weight: 9,
    arbitrary: fc.record(
      {
        id: fc.oneof({ weight: 3, arbitrary: fc.integer() }, value),
        name: fc.oneof({ weight: 3, arbitrary: fc.string() }, value),
        tag: fc.oneof({ weight: 3, arbitrary: fc.string() }, value),
        other: value,
      },
      { requiredKeys: [] },
    ),
  },
);

for (const [name, schema] of Object.entries({ NewPlantSchema, PlantSchema })) {
  test(`${name} lets through what JSON Schema lets through, and nothing else`, () => {
    const ours = compileCheck(schema);
    const theirs = Compile(schema);
    const verdicts = new Set<boolean>();
    fc.assert(
      fc.property(candidate, (came) => {
        const verdict = ours(came);
        verdicts.add(verdict);
        expect(verdict).toBe(theirs.Check(came));
      }),
      { numRuns: RUNS },
    );
    expect(verdicts.size).toBe(2);
  });
}
