/** A few seconds of a bad disk, on Linux with a C compiler: `npm run torture -- disk-faults` goes on for longer. */

import { expect, test } from "bun:test";
import { diskFaults } from "./disk-faults.ts";
import { createRandom, tellingSeed } from "../support/random.ts";

const SECONDS = 4;
const lacks = diskFaults.missing?.() !== undefined;

test.skipIf(lacks)(
  "a disk that fails has writes refused, and none that was acknowledged lost",
  () =>
    tellingSeed(async () => {
      const { figures, faults } = await diskFaults.run({
        seconds: SECONDS,
        random: createRandom(),
        tell: () => {},
      });
      expect(faults).toEqual([]);
      expect(figures["ends by a kill or a loss of power"]).toBeGreaterThan(0);
      expect(figures["writes acknowledged"]).toBeGreaterThan(0);
      expect(figures["plants compared"]).toBeGreaterThan(0);
    }),
);
