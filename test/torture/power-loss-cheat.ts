/** Shows that the loss of power is one: a service that does not sync, or a disk that lies about it, is found out. */

import { fileURLToPath } from "node:url";
import { PowerLosses } from "./power-loss.ts";
import type { Budget, Finding, Scenario } from "./scenario.ts";
import { lackOfShim } from "./shimmed-service.ts";

/** So many have to be tried before it counts that none was found: some happen before anything is acknowledged. */
const LOSSES_MIN = 20;

const unsynced = fileURLToPath(new URL("./power-loss-unsynced.ts", import.meta.url));

const cheats = {
  "a store with synchronous=OFF": { settings: { BUN_OPTIONS: `--preload ${unsynced}` } },
  "a disk that lies about syncs": { trouble: { syncsAreLies: 1 } },
};

/** What a service that keeps its promises never shows. */
const isLossOfWrites = (fault: string): boolean =>
  /lost after|back after|not as it was|integrity:|cannot be read/.test(fault);

async function run({ seconds, random }: Budget): Promise<Finding> {
  const figures: Record<string, number> = {};
  const faults: string[] = [];
  for (const [name, cheat] of Object.entries(cheats)) {
    using losses = new PowerLosses(random, cheat);
    const endsAtMs = performance.now() + (seconds * 1000) / 2;
    let found = 0;
    const isOver = (): boolean =>
      performance.now() > endsAtMs && (found > 0 || losses.figures.losses >= LOSSES_MIN);
    while (!isOver()) {
      await losses.wearOut(isOver);
      const reported = losses.faults.splice(0);
      if (reported.some(isLossOfWrites)) found++;
      // The model of the disk has to be right about those, too.
      faults.push(...reported.filter((fault) => !isLossOfWrites(fault)));
    }
    figures[`${name}: losses of power`] = losses.figures.losses;
    figures[`${name}: found out`] = found;
    if (found === 0) faults.push(`${name} has lost nothing that was noticed`);
  }
  return { figures, faults };
}

export const powerLossCheat: Scenario = {
  title: "without syncs, acknowledged writes are lost, and that is noticed",
  missing: lackOfShim,
  run,
};
