/** What holds for every plant, and not only for those that someone thought of. `npm run torture -- fuzz` has any body. */

import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { anyBody, anyPlant } from "../support/arbitrary.ts";
import { engine } from "../support/database.ts";
import { runsFactor } from "../support/long.ts";
import { isReplay, type StoredPlant } from "../support/plants.ts";
import { seed } from "../support/random.ts";
import { startShared } from "../support/service.ts";

export const groups = ["sqlite", "threads", "postgres"];

const service = await startShared({ PLANTSTORE_LOG_LEVEL: "error" });

const toAnswer = ({ name, tag }: StoredPlant): unknown => (tag === null ? { name } : { name, tag });

/** So many at once share commits and looks at the database. */
const TOGETHER = 20;
/** Bodies are read before any engine is asked: the others see a share of them. */
const share = engine === "sqlite" ? 1 : 0.3;

const written = anyPlant.chain((plant) =>
  fc.record({ plant: fc.constant(plant), body: anyBody(plant), again: anyBody(plant) }),
);
const severalWritten = fc.uniqueArray(written, {
  selector: ({ plant }) => plant.id,
  minLength: 1,
  maxLength: TOGETHER,
  size: "max",
});

test("POST /plants stores any plant exactly, however it is written", () =>
  fc.assert(
    fc.asyncProperty(severalWritten, async (several) => {
      await service.database.run("DELETE FROM plants");
      for (const [form, replay] of [
        ["body", false],
        ["again", true],
      ] as const) {
        await Promise.all(
          several.map(async ({ plant, [form]: body }) => {
            const response = await service.create(body);
            expect([response.status, isReplay(response)]).toEqual([200, replay]);
            expect(await response.json()).toStrictEqual(toAnswer(plant));
          }),
        );
        const plants = several.map(({ plant }) => plant);
        expect(await service.readPlants()).toEqual(
          plants.toSorted((one, other) => (one.id < other.id ? -1 : 1)),
        );
      }
    }),
    {
      seed,
      numRuns: Math.ceil(40 * share * runsFactor),
      // The search for the smallest failure ends before the test's time does, and with it the report.
      interruptAfterTimeLimit: 240_000,
    },
  ));
