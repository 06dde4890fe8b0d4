/** A few seconds of the process being killed: `npm run torture -- kill` goes on for longer. */

import { expect, test } from "bun:test";
import { kill } from "./kill.ts";
import { createRandom, tellingSeed } from "../support/random.ts";

const SECONDS = 4;

test("killed at any moment, the service has lost nothing, and has nothing by halves", () =>
  tellingSeed(async () => {
    const { figures, faults } = await kill.run({
      seconds: SECONDS,
      random: createRandom(),
      tell: () => {},
    });
    expect(faults).toEqual([]);
    expect(figures["kills"]).toBeGreaterThan(0);
    expect(figures["writes acknowledged"]).toBeGreaterThan(0);
    expect(figures["plants compared"]).toBeGreaterThan(0);
  }));
