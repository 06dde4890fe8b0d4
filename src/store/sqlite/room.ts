/** Whether there is room for new plants: by the quota, and on the disk. */

import { statfsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { INT64_MIN } from "../../domain/json.ts";
import { lengthOf, type Plant } from "../../domain/plant.ts";
import { Refusal } from "../../domain/errors.ts";
import type { StoreLimits } from "../../domain/store.ts";
import type { Statements } from "./sql.ts";

/** The text that a replacement may add on a disk that is nearly full. */
const GROWTH_MAX = 4_096;

export class Room {
  /** Infinite without a quota; undefined until the plants are counted. */
  private plantsLeft: number | undefined;
  private plantsLeftBefore: number | undefined;
  private readonly limits: StoreLimits;
  private readonly folder: string;
  private freeBytes = Number.POSITIVE_INFINITY;

  constructor(limits: StoreLimits, path: string) {
    this.limits = limits;
    this.folder = dirname(resolve(path));
  }

  /** Called at the beginning of every transaction that writes. */
  prepare({ asc }: Statements): void {
    const { plantsMax = 0, diskFreeBytesMin = 0 } = this.limits;
    // Each time: a second of large plants can fill what is left, and then not even a removal is possible.
    if (diskFreeBytesMin > 0) this.freeBytes = this.measureDisk() ?? Number.POSITIVE_INFINITY;
    this.plantsLeft ??=
      plantsMax === 0
        ? Number.POSITIVE_INFINITY
        : plantsMax - Number(asc.count.get(null, INT64_MIN)?.count);
    this.plantsLeftBefore = this.plantsLeft;
  }

  rollBack(): void {
    this.plantsLeft = this.plantsLeftBefore;
  }

  /** Free bytes; undefined if the system does not tell. Asking takes some microseconds. */
  measureDisk(): number | undefined {
    try {
      const { bavail, bsize } = statfsSync(this.folder);
      return bavail * bsize;
    } catch {
      return undefined;
    }
  }

  /** Why so many new plants cannot be stored. */
  refuseNew(plants = 1): Refusal | undefined {
    if ((this.plantsLeft as number) < plants) return new Refusal("store_full");
    return this.isDiskBelow(1) ? new Refusal("disk_low") : undefined;
  }

  refuseReplacement(plant: Plant, before: Plant): Refusal | undefined {
    const isLarge = lengthOf(plant) - lengthOf(before) > GROWTH_MAX;
    // The journal keeps every version. What is left then is for removals.
    return this.isDiskBelow(isLarge ? 1 : 1 / 2) ? new Refusal("disk_low") : undefined;
  }

  private isDiskBelow(share: number): boolean {
    return this.freeBytes < (this.limits.diskFreeBytesMin ?? 0) * share;
  }

  take(plants: number): void {
    this.plantsLeft = (this.plantsLeft as number) - plants;
  }
}
