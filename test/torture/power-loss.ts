/** The power goes at any moment, and what was not synced is gone, there, or torn: nothing acknowledged is missed. */

import type { ServiceProcess } from "../support/command.ts";
import { lackOfShim, type Trouble } from "../support/disk-shim.ts";
import type { StoredPlant } from "../support/plants.ts";
import { type Disk, type Files, Kind } from "./disk-model.ts";
import { endsAfter, runEach, type Scenario, within } from "./scenario.ts";
import { compareAnswers, readAnswers, STORE_NAME } from "./shimmed-disk.ts";
import { type End, Wear, type Worn } from "./wear.ts";

const ROUND_MS_MAX = 5_000;
/** However little time there is: some happen before anything is acknowledged. */
const LOSSES_MIN = 4;
/** How often a new process shows its plants before the power goes. */
const LOOK_PERCENT = 50;

class PowerLosses extends Wear {
  losses = 0;
  /** How the same disk would be without what it promises. */
  cheat: Trouble = {};
  readonly terms = { nameLengths: [0, 300, 300, 40_000], roundsMax: 15, bytesMax: 50_000_000 };

  async live(worn: Worn): Promise<End> {
    const moment = this.#chooseMoment(worn);
    const lost = await this.#losePower(moment, worn);
    const shown = this.random.chance(LOOK_PERCENT) ? await this.#lookAgain(lost) : [];
    const when = `loss ${this.losses}, ${JSON.stringify(moment)}`;
    return { images: lost.lose(), shown, when };
  }

  /** Soon after the start, at any time, within a sync on either side of its effect, or when the log is folded in. */
  #chooseMoment({ round, nameLengthMax }: Worn): Trouble {
    const { random } = this;
    // Not twice running, or nothing would be acknowledged for long.
    if (round % 2 === 0 && random.chance(80))
      return { dieAfter: 1 + random.below(random.pick([6, 30, 100])) };
    if (nameLengthMax > 10_000) return { dieAfter: 1 + random.below(28_000) };
    const dieIn = random.pick([0, 0, Kind.syncBegun, Kind.synced]);
    return { dieAfter: 1 + random.below(2_500), dieIn };
  }

  async #losePower(moment: Trouble, worn: Worn): Promise<Disk> {
    const service = await this.#start(worn.files, { ...moment, ...this.cheat });
    let exitCode: number | undefined = 0;
    if (service === undefined) this.count("losses before the service listened");
    else {
      await using _ = service;
      const { url } = service.started;
      this.faults.push(...(await compareAnswers(url, worn.rows).catch(() => [])));
      worn.load.resume(url);
      exitCode = await within(ROUND_MS_MAX, service.exited);
    }
    this.losses++;
    this.count("losses");
    // Killed from outside, it may have been between an operation and its record.
    const lost = await this.findLost(worn, exitCode !== undefined);
    if (lost.countPending(STORE_NAME) > 0) this.count("losses within a checkpoint");
    return lost;
  }

  /**
   * The process was killed, and the power stays: a new one is started on the files as they are, is asked for its
   * plants, and only then the power goes. What it has shown must be there afterwards.
   */
  async #lookAgain(lost: Disk): Promise<readonly StoredPlant[]> {
    const service = await this.#start(lost.show(), this.cheat);
    if (service === undefined) return [];
    await using _ = service;
    const shown = await readAnswers(service.started.url);
    service.kill("SIGKILL");
    await service.exited;
    lost.startAgain();
    this.disk.replay(lost);
    this.count("losses after a crash and a look");
    if (typeof shown !== "number") return shown;
    this.faults.push(`after a crash the list was answered ${shown}`);
    return [];
  }

  #start(files: Files, trouble: Trouble): Promise<ServiceProcess | undefined> {
    return this.disk.start({ PLANTSTORE_WORKERS: this.random.pick(["1", "2"]) }, files, trouble);
  }
}

export const powerLoss: Scenario = {
  title: "the power goes, unsynced writes are gone, there or torn, and no acknowledged one is lost",
  missing: lackOfShim,
  run: async ({ seconds, random }) => {
    using losses = new PowerLosses(random);
    const isTimeOver = endsAfter(seconds);
    const isOver = (): boolean => isTimeOver() && losses.losses >= LOSSES_MIN;
    while (!isOver()) await losses.wearOut(isOver);
    return losses;
  },
};

/** So many have to be tried before it counts that none was found: some happen before anything is acknowledged. */
const CHEATED_LOSSES_MIN = 20;

/** In the library, and not in the service: no thread of it can sync in another way. */
const cheats: Readonly<Record<string, Trouble>> = {
  "a log that is not synced": { syncsAreLies: 2 },
  "a disk that lies about syncs": { syncsAreLies: 1 },
};

/** What a service that keeps its promises never shows. */
const isLossOfWrites = (fault: string): boolean =>
  /lost after|stored although|not as it was|no order of|integrity:|cannot be read/.test(fault);

export const powerLossCheat: Scenario = {
  title: "without syncs, acknowledged writes are lost, and that is noticed",
  missing: lackOfShim,
  run: (budget) =>
    runEach(Object.keys(cheats), budget, async (name, { seconds, random }) => {
      using losses = new PowerLosses(random);
      losses.cheat = cheats[name] ?? {};
      const faults: string[] = [];
      const isTimeOver = endsAfter(seconds);
      let found = 0;
      const isOver = (): boolean =>
        isTimeOver() && (found > 0 || losses.losses >= CHEATED_LOSSES_MIN);
      while (!isOver()) {
        await losses.wearOut(isOver);
        const reported = losses.faults.splice(0);
        if (reported.some(isLossOfWrites)) found++;
        // The model of the disk has to be right about those, too.
        faults.push(...reported.filter((fault) => !isLossOfWrites(fault)));
      }
      if (found === 0) faults.push("nothing was lost that was noticed");
      return { figures: { "losses of power": losses.losses, "found out": found }, faults };
    }),
};
