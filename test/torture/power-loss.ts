/** The power goes at any moment, and what was not synced is gone, there, or torn: nothing acknowledged is missed. */

import { lackOfShim, type Trouble } from "../support/disk-shim.ts";
import { isSamePlant, type StoredPlant } from "../support/plants.ts";
import type { Random } from "../support/random.ts";
import { choosePieces, Disk, type Files, Kind } from "./disk-model.ts";
import { MixedLoad } from "./mixed-load.ts";
import type { Budget, Finding, Scenario } from "./scenario.ts";
import {
  compareAnswers,
  compareModel,
  examineFiles,
  readAnswers,
  ShimmedDisk,
  STORE_NAME,
} from "./shimmed-disk.ts";

const ROUND_MS_MAX = 5_000;
const ROUNDS_MAX = 15;
const STORE_BYTES_MAX = 50_000_000;
/** Of one loss: what it leaves is a matter of chance. */
const IMAGES = 4;
/** However little time there is: some happen before anything is acknowledged. */
const LOSSES_MIN = 4;
/** How often a new process shows its plants before the power goes. */
const LOOK_PERCENT = 50;
/** For clients that were answered in the last moment to notice. */
const HEAR_MS = 25;

class PowerLosses {
  readonly faults: string[] = [];
  readonly figures = {
    losses: 0,
    "losses before the service listened": 0,
    "losses within a sync": 0,
    "losses within a checkpoint": 0,
    "losses after a crash and a look": 0,
    "checkpoints finished": 0,
    "stores begun": 0,
    "images of the disk examined": 0,
    "operations kept": 0,
    "operations dropped": 0,
    "operations torn": 0,
    "writes acknowledged": 0,
    "writes cut off": 0,
    "plants compared": 0,
  };
  private readonly random: Random;
  /** How the same disk would be without what it promises. */
  private readonly cheat: Trouble;
  private readonly disk = new ShimmedDisk();

  constructor(random: Random, cheat: Trouble = {}) {
    this.random = random;
    this.cheat = cheat;
  }

  /** From a store that is not there yet, until it is large or something is wrong with it. */
  async wearOut(isOver: () => boolean): Promise<void> {
    const { random, figures } = this;
    const nameLengthMax = random.pick([0, 300, 300, 40_000]);
    const load = new MixedLoad(random, { nameLengthMax });
    let files: Files = new Map();
    let rows: readonly StoredPlant[] = [];
    const faultsBefore = this.faults.length;
    figures["stores begun"]++;
    try {
      for (let round = 0; round < ROUNDS_MAX && !isOver(); round++) {
        const moment = this.chooseMoment(round, nameLengthMax);
        const lost = await this.losePower(files, moment, load, rows);
        const shown = random.chance(LOOK_PERCENT) ? await this.lookAgain(lost) : [];
        const when = `loss ${figures.losses}, ${tell(moment)}`;
        ({ files, rows } = this.examine(lost, load, shown, when));
        if (this.faults.length > faultsBefore || sizeOf(files) > STORE_BYTES_MAX) break;
      }
    } finally {
      await load[Symbol.asyncDispose]();
      figures["writes acknowledged"] += load.acknowledged;
      figures["writes cut off"] += load.unsettled;
    }
  }

  [Symbol.dispose](): void {
    this.disk[Symbol.dispose]();
  }

  /** Soon after the start, at any time, within a sync on either side of its effect, or when the log is folded in. */
  private chooseMoment(round: number, nameLengthMax: number): Trouble {
    const { random } = this;
    // Not twice running, or nothing would be acknowledged for long.
    if (round % 2 === 0 && random.chance(80))
      return { dieAfter: 1 + random.below(random.pick([6, 30, 100])) };
    // Long names fill the log soon, with few plants to compare.
    if (nameLengthMax > 10_000) return { dieAfter: 1 + random.below(28_000) };
    const dieIn = random.pick([0, 0, Kind.syncBegun, Kind.synced]);
    return { dieAfter: 1 + random.below(2_500), dieIn };
  }

  private async losePower(
    files: Files,
    moment: Trouble,
    load: MixedLoad,
    rows: readonly StoredPlant[],
  ): Promise<Disk> {
    const { disk, figures, random } = this;
    disk.put(files);
    disk.control.set({ ...moment, ...this.cheat });
    const workers = random.pick(["1", "2"]);
    const service = await disk.start({ PLANTSTORE_WORKERS: workers });
    let isWhole = true;
    if (service === undefined) figures["losses before the service listened"]++;
    else {
      await using _ = service;
      const { url } = service.started;
      const differences = await compareAnswers(url, rows).catch(() => []);
      this.faults.push(...differences);
      load.resume(url);
      const isLost = await Promise.race([service.exited, Bun.sleep(ROUND_MS_MAX)]);
      isWhole = isLost !== undefined;
    }
    load.pause();
    await Bun.sleep(HEAR_MS);
    figures.losses++;
    if (moment.dieIn !== undefined && moment.dieIn !== 0) figures["losses within a sync"]++;
    const lost = new Disk(files, random);
    for (const record of disk.readLog()) {
      lost.apply(record);
      if (record.kind === Kind.synced && record.name === STORE_NAME)
        figures["checkpoints finished"]++;
    }
    if (lost.countPending(STORE_NAME) > 0) figures["losses within a checkpoint"]++;
    // Killed from outside, it may have been between an operation and its record.
    if (isWhole) this.faults.push(...compareModel(lost, disk.readFiles()));
    return lost;
  }

  /**
   * The process was killed, and the power stays: a new one is started on the files as they are, is asked for its
   * plants, and only then the power goes. What it has shown must be there afterwards.
   */
  private async lookAgain(lost: Disk): Promise<readonly StoredPlant[]> {
    const { disk, figures, random } = this;
    disk.put(lost.show());
    disk.control.set(this.cheat);
    const workers = random.pick(["1", "2"]);
    const service = await disk.start({ PLANTSTORE_WORKERS: workers });
    if (service === undefined) return [];
    await using _ = service;
    const shown = await readAnswers(service.started.url);
    service.kill("SIGKILL");
    await service.exited;
    lost.startAgain();
    for (const record of disk.readLog()) lost.apply(record);
    figures["losses after a crash and a look"]++;
    if (typeof shown !== "number") return shown;
    this.faults.push(`after a crash the list was answered ${shown}`);
    return [];
  }

  /** The last of several possibilities is the one to go on with. */
  private examine(
    lost: Disk,
    load: MixedLoad,
    shown: readonly StoredPlant[],
    when: string,
  ): { files: Files; rows: readonly StoredPlant[] } {
    const { figures, random } = this;
    for (let image = 1; ; image++) {
      const fates = choosePieces(random);
      const files = lost.lose(fates);
      const { rows, faults: wrong } = examineFiles(files, load);
      const faults = [...wrong, ...findMissing(shown, rows)];
      figures["images of the disk examined"]++;
      figures["operations kept"] += fates.kept;
      figures["operations dropped"] += fates.dropped;
      figures["operations torn"] += fates.torn;
      figures["plants compared"] += load.plants;
      this.faults.push(...faults.map((fault) => `${fault} (${when})`));
      if (image === IMAGES || faults.length > 0) return { files, rows };
    }
  }
}

/** Plants that a service has shown, and that are no longer there. */
function findMissing(shown: readonly StoredPlant[], rows: readonly StoredPlant[]): string[] {
  const found = new Map(rows.map((row) => [row.id, row]));
  return shown
    .filter((plant) => {
      const row = found.get(plant.id);
      return row === undefined || !isSamePlant(row, plant);
    })
    .map(({ id }) => `${id}: lost after it was shown`);
}

const sizeOf = (files: Files): number =>
  files.values().reduce((sum, content) => sum + content.length, 0);

function tell({ dieAfter, dieIn }: Trouble): string {
  const moments: Record<number, string> = {
    [Kind.syncBegun]: "before the effect of a sync",
    [Kind.synced]: "after the effect of a sync",
  };
  return `${moments[dieIn ?? 0] ?? "at any operation"} from the ${dieAfter}th on`;
}

async function run({ seconds, random }: Budget): Promise<Finding> {
  using losses = new PowerLosses(random);
  const endsAtMs = performance.now() + seconds * 1000;
  const isOver = (): boolean => performance.now() > endsAtMs && losses.figures.losses >= LOSSES_MIN;
  while (!isOver()) await losses.wearOut(isOver);
  return losses;
}

export const powerLoss: Scenario = {
  title: "the power goes, and whatever was not synced is gone, there or torn",
  missing: lackOfShim,
  run,
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

async function runCheats({ seconds, random }: Budget): Promise<Finding> {
  const figures: Record<string, number> = {};
  const faults: string[] = [];
  for (const [name, cheat] of Object.entries(cheats)) {
    using losses = new PowerLosses(random, cheat);
    const endsAtMs = performance.now() + (seconds * 1000) / 2;
    let found = 0;
    const isOver = (): boolean =>
      performance.now() > endsAtMs && (found > 0 || losses.figures.losses >= CHEATED_LOSSES_MIN);
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
  run: runCheats,
};
