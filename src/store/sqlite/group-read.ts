/** One read transaction for all the plants asked for in one turn: taking and giving back its lock costs more than a look-up. */

import type { Plant } from "../../domain/plant.ts";
import { endOfTick } from "../batcher.ts";

interface Pending {
  readonly id: bigint;
  readonly resolve: (plant: Plant | undefined) => void;
  readonly reject: (error: unknown) => void;
}

/** Finds the plants of these ids in one snapshot, in order. */
export type FindAll = (ids: readonly bigint[]) => (Plant | undefined)[];

export class GroupRead {
  private readonly findAll: FindAll;
  private pending: Pending[] = [];

  constructor(findAll: FindAll) {
    this.findAll = findAll;
  }

  find(id: bigint): Promise<Plant | undefined> {
    return new Promise((resolve, reject) => {
      if (this.pending.push({ id, resolve, reject }) === 1)
        void endOfTick().then(() => this.settle());
    });
  }

  private settle(): void {
    const batch = this.pending;
    this.pending = [];
    try {
      const plants = this.findAll(batch.map(({ id }) => id));
      for (const [index, { resolve }] of batch.entries()) resolve(plants[index]);
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  }
}
