/** A mixed load for a few seconds, and how growth is told from noise. */

import { describe, expect, test } from "bun:test";
import { createRandom, seed, tellingSeed } from "../support/random.ts";
import { measureGrowth } from "./growth.ts";
import { missingFigures } from "./service.ts";
import { runSoak } from "./soak.ts";

test.skipIf(missingFigures() !== undefined)(
  "under everything at once the answers are right, the log has no complaint, and memory stays",
  () =>
    tellingSeed(async () => {
      const { figures, faults } = await runSoak({
        seconds: 5,
        random: createRandom(seed),
        tell: () => undefined,
      });
      expect(faults).toEqual([]);
      expect(figures["requests"]).toBeGreaterThan(500);
    }),
);

describe("growth", () => {
  const random = createRandom(seed);
  /** A thousand requests between two samples, and a collector that is done with its garbage now and then. */
  const sampleMemory = (leakBytes: number): { requests: number; bytes: number }[] =>
    Array.from({ length: 300 }, (_, nth) => ({
      requests: nth * 1_000,
      bytes: 60e6 + Math.min(nth, 60) * 1e6 + random.below(20e6) + nth * 1_000 * leakBytes,
    }));

  test("is told from a warm-up and from ups and downs", () => {
    expect(Math.abs(measureGrowth(sampleMemory(0)).bytesPerRequest)).toBeLessThan(100);
  });

  test("of two hundred bytes a request is seen", () => {
    const { bytes, bytesPerRequest } = measureGrowth(sampleMemory(200));
    expect(bytesPerRequest).toBeWithin(100, 300);
    expect(bytes).toBeGreaterThan(10e6);
  });
});
