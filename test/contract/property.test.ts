/** What holds for every plant, every body and every number, and not only for those that someone thought of. */

import { afterAll, describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import { findInt64 } from "../../src/domain/json.ts";
import {
  anyAttempt,
  anyBody,
  anyInteger,
  anyNotation,
  anyNumberText,
  anyPlant,
} from "../support/arbitrary.ts";
import { findInt64ByOracle, findPlantByOracle } from "../support/oracle.ts";
import { isReplay, isSamePlant, type StoredPlant, toBody } from "../support/plants.ts";
import { seed } from "../support/random.ts";
import { startService } from "../support/service.ts";

const runsFactor = Number(process.env["PLANTSTORE_TEST_RUNS"] ?? 1);
const timeoutMs = 120_000 * Math.max(1, runsFactor);
const runs = (count: number): fc.Parameters<unknown> => ({
  seed,
  numRuns: count * runsFactor,
  // The search for the smallest failure ends before the runner loses its patience, and with it the report.
  interruptAfterTimeLimit: timeoutMs / 2,
  markInterruptAsFailure: true,
});

const service = await startService({ PLANTSTORE_LOG_LEVEL: "error" });
const { database } = service;

afterAll(() => service[Symbol.asyncDispose]());

const known: StoredPlant = { id: 2n ** 53n + 1n, name: "Monstera", tag: "tropical" };

const toAnswer = ({ name, tag }: StoredPlant): unknown => (tag === null ? { name } : { name, tag });

describe("POST /plants, for any plant", () => {
  test(
    "answers and stores it exactly, and knows it again however it is written",
    () =>
      fc.assert(
        fc.asyncProperty(
          anyPlant.chain((plant) => fc.tuple(fc.constant(plant), anyBody(plant), anyBody(plant))),
          async ([plant, body, again]) => {
            await database.run("DELETE FROM plants");
            for (const [text, replay] of [
              [body, false],
              [again, true],
            ] as const) {
              const response = await service.create(text);
              expect([response.status, isReplay(response)]).toEqual([200, replay]);
              expect(await response.json()).toStrictEqual(toAnswer(plant));
              expect(await database.readPlants()).toEqual([plant]);
            }
          },
        ),
        runs(2500),
      ),
    timeoutMs,
  );
});

describe("POST /plants, for any body", () => {
  test(
    "answers 200 for a plant and 4xx with an error for all else, and what it refused changed nothing",
    async () => {
      await database.run("DELETE FROM plants");
      expect((await service.create(toBody(known))).status).toBe(200);
      await fc.assert(
        fc.asyncProperty(fc.oneof(fc.constant(known), anyPlant).chain(anyAttempt), async (body) => {
          await database.run(`DELETE FROM plants WHERE id <> ${known.id}`);
          const response = await service.create(body);
          const plant = findPlantByOracle(body);
          expect(response.status).toBe(expectedStatus(plant));
          const answer = (await response.json()) as Record<string, unknown>;
          if (plant !== undefined && response.status === 200) {
            expect(answer).toStrictEqual(toAnswer(plant) as Record<string, unknown>);
            const rows = isSamePlant(plant, known) ? [known] : [known, plant];
            expect(await database.readPlants()).toEqual(
              rows.toSorted((one, other) => (one.id < other.id ? -1 : 1)),
            );
          } else {
            expect(Object.keys(answer).toSorted()).toEqual(["error", "message"]);
            expect(answer["error"]).toBe(Math.trunc(answer["error"] as number) | 0);
            expect(answer["message"]).toBeString();
            expect(await database.readPlants()).toEqual([known]);
          }
        }),
        runs(6000),
      );
    },
    timeoutMs,
  );
});

function expectedStatus(plant: StoredPlant | undefined): number {
  if (plant === undefined) return 400;
  return plant.id === known.id && !isSamePlant(plant, known) ? 409 : 200;
}

describe("findInt64", () => {
  test(
    "agrees with exact arithmetic on any JSON number",
    () =>
      fc.assert(
        fc.property(anyNumberText, (text) => {
          expect(findInt64(text)).toBe(findInt64ByOracle(text));
        }),
        runs(40_000),
      ),
    timeoutMs,
  );

  test(
    "finds any int64 in any notation, and none in an integer out of range",
    () => {
      const written = anyInteger.chain((value) => fc.tuple(fc.constant(value), anyNotation(value)));
      return fc.assert(
        fc.property(written, ([value, text]) => {
          const isInt64 = BigInt.asIntN(64, value) === value;
          expect(findInt64(text)).toBe(isInt64 ? value : undefined);
          expect(findInt64ByOracle(text)).toBe(isInt64 ? value : undefined);
        }),
        runs(20_000),
      );
    },
    timeoutMs,
  );
});
