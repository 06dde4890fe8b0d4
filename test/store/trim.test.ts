/** The time that a service has run, as the trim of the journal counts it. */

import { expect, spyOn, test } from "bun:test";
import type { Engine } from "../../src/store/engine.ts";
import { startTrimming } from "../../src/store/trim.ts";
import { defaults } from "../support/limits.ts";

test("a timer that is a little late each time loses no minute", async () => {
  let number = 0;
  const engine = {
    dialect: { prefix: "" },
    query: async () => [{ number: BigInt(number), change: null }],
    run: async () => (number++, []),
  } as unknown as Engine;
  using timer = spyOn(globalThis, "setInterval");
  using clock = spyOn(performance, "now");
  const stop = startTrimming(engine, defaults);
  const [round] = timer.mock.calls[0] as [() => void];
  for (const nowMs of [0, 60_010, 120_005, 180_015, 240_000]) {
    clock.mockReturnValue(nowMs);
    round();
    for (let microtasks = 0; microtasks < 20; microtasks++) await Promise.resolve();
  }
  stop();
  expect(number).toBe(4);
});
