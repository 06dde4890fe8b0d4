/** More than the service can do, for a few seconds. The shares are those that even a busy machine keeps to. */

import { expect, test } from "bun:test";
import { runOverload } from "./overload.ts";
import { missingFigures } from "./service.ts";

test.skipIf(missingFigures() !== undefined)(
  "under ten times its load the service goes on, refuses properly, keeps what it acknowledged, and recovers",
  async () => {
    const { figures, faults } = await runOverload({
      seconds: 7,
      // With ten times as many the runtime always finds more than 1,024 sockets ready, which is as much as it takes at once.
      clients: 128,
      goodputShareMin: { crowd: 0.3, slowStore: 0.05, after: 0.3 },
      refusedMsMax: 5_000,
      tell: () => undefined,
    });
    expect(faults).toEqual([]);
    expect(figures["crowd: acknowledged plants"]).toBeGreaterThan(100);
    expect(figures["slow store: refused a second under overload"]).toBeGreaterThan(100);
  },
);
