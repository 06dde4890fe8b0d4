/** Stores that are worn out: each lives through rounds of load that end badly, and is compared after every one. */

import type { StoredPlant } from "../support/plants.ts";
import type { Random } from "../support/random.ts";
import { Disk, type Files } from "./disk-model.ts";
import { type MixedLoad, startMixedLoad } from "./mixed-load.ts";
import { Findings } from "./scenario.ts";
import { examineFiles, ShimmedDisk } from "./shimmed-disk.ts";

/** For clients that were answered in the last moment to notice. */
const HEAR_MS = 25;

/** A store before a round. */
export interface Worn {
  /** As the round before left them; none at first. */
  readonly files: Files;
  readonly rows: readonly StoredPlant[];
  readonly load: MixedLoad;
  readonly round: number;
  readonly nameLengthMax: number;
}

/** How a round ended. No request is under way then. */
export interface End {
  /** All that the files may be afterwards. Each is examined, and the last one is gone on with. */
  readonly images: Iterable<Files>;
  /** Plants that a service has shown, and that have to be there. */
  readonly shown?: readonly StoredPlant[];
  /** Added to each fault. */
  readonly when: string;
}

export abstract class Wear extends Findings implements Disposable {
  readonly random: Random;
  readonly disk = new ShimmedDisk();
  /** One of the lengths is chosen for each store. Long names fill the log soon, with few plants to compare. */
  protected abstract readonly terms: { nameLengths: number[]; roundsMax: number; bytesMax: number };

  constructor(random: Random) {
    super();
    this.random = random;
  }

  /** One round. */
  protected abstract live(worn: Worn, isOver: () => boolean): Promise<End>;

  /** From a store that is not there yet, until it is large or something is wrong with it. */
  async wearOut(isOver: () => boolean): Promise<void> {
    const { roundsMax, bytesMax, nameLengths } = this.terms;
    const nameLengthMax = this.random.pick(nameLengths);
    const load = startMixedLoad(this.random, nameLengthMax);
    const faultsBefore = this.faults.length;
    let files: Files = new Map();
    let rows: readonly StoredPlant[] = [];
    this.count("stores begun");
    try {
      for (let round = 0; round < roundsMax && !isOver(); round++) {
        const end = await this.live({ files, rows, load, round, nameLengthMax }, isOver);
        ({ files, rows } = this.#examine(end, load));
        const bytes = files.values().reduce((sum, content) => sum + content.length, 0);
        if (this.faults.length > faultsBefore || bytes > bytesMax) break;
      }
    } finally {
      await load[Symbol.asyncDispose]();
      this.count("writes acknowledged", load.clients.acknowledged);
      this.count("writes cut off", load.clients.unsettled);
    }
  }

  /** What the service has made of the disk, once it is gone. `isWhole` says that its log has all that it did. */
  async findLost({ files, load }: Worn, isWhole: boolean): Promise<Disk> {
    load.pause();
    await Bun.sleep(HEAR_MS);
    const lost = new Disk(files, this.random);
    this.disk.replay(lost);
    if (isWhole) this.faults.push(...this.disk.compare(lost));
    return lost;
  }

  [Symbol.dispose](): void {
    this.disk[Symbol.dispose]();
  }

  #examine({ images, shown = [], when }: End, load: MixedLoad): Pick<Worn, "files" | "rows"> {
    let files: Files = new Map();
    let rows: readonly StoredPlant[] = [];
    for (const image of images) {
      const examined = examineFiles(image, load, shown);
      files = image;
      rows = examined.rows;
      this.count("images of the disk examined");
      this.count("plants compared", load.clients.ledger.size);
      this.faults.push(...examined.faults.map((fault) => `${fault} (${when})`));
      if (examined.faults.length > 0) break;
    }
    return { files, rows };
  }
}
