/** Killed at any moment, under load: what was acknowledged is there, exactly, and nothing else is. */

import { expect, test } from "bun:test";
import { type ServiceProcess, spawnService } from "../support/command.ts";
import { engine, openTestDatabase } from "../support/database.ts";
import { createRandom, tellingSeed } from "../support/random.ts";
import { TEST_TOKEN } from "../support/service.ts";
import { checkIntegrity } from "../support/stores.ts";
import { MixedLoad } from "../torture/mixed-load.ts";
import { compareAnswers } from "../torture/shimmed-disk.ts";
import { runsFactor } from "../support/long.ts";

const rounds = 5 * runsFactor;
const KILL_AFTER_MS_MAX = 300;
/** In every other round, however slow the machine is. Otherwise nothing would be shown. */
const ACKNOWLEDGED_MIN = 20;
/** For clients that were answered in the last moment to notice. */
const HEAR_MS = 25;

test(`a service killed under load ${rounds} times has lost, changed and invented nothing`, () =>
  tellingSeed(async () => {
    await using database = await openTestDatabase();
    const random = createRandom();
    await using load = new MixedLoad(random, { nameLengthMax: 300 });
    const spawnAndCheck = async (): Promise<ServiceProcess> => {
      const child = await spawnService({
        PLANTSTORE_TOKEN: TEST_TOKEN,
        DATABASE_URL: database.url,
      });
      if (engine === "sqlite") expect(checkIntegrity(database.path)).toBe("ok");
      const rows = await database.readPlants();
      expect(load.compare(rows).slice(0, 10)).toEqual([]);
      expect((await compareAnswers(child.started.url, rows)).slice(0, 10)).toEqual([]);
      return child;
    };
    for (let round = 0; round < rounds; round++) {
      await using child = await spawnAndCheck();
      load.resume(child.started.url);
      if (round % 2 === 0) await load.untilAcknowledged(ACKNOWLEDGED_MIN);
      await Bun.sleep(random.below(KILL_AFTER_MS_MAX));
      child.kill("SIGKILL");
      expect(await child.exited).toBe(137);
      load.pause();
      await Bun.sleep(HEAR_MS);
    }
    await using _ = await spawnAndCheck();
    // Otherwise nothing was under way at any kill.
    expect(load.unsettled).toBeGreaterThan(rounds);
  }));
