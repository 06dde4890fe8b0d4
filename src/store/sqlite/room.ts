/** Whether there is room for new plants: by the quota, and on the disk. */

import { statfsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { INT64_MIN } from "../../domain/json.ts";
import { Refusal } from "../../domain/errors.ts";
import type { StoreLimits } from "../../domain/store.ts";
import type { Statements } from "./sql.ts";

export class Room {
  /** Infinite without a quota; undefined until the plants are counted. */
  private plantsLeft: number | undefined;
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
  }

  /** Called when a transaction was rolled back. */
  forget(): void {
    this.plantsLeft = undefined;
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
    return (this.plantsLeft as number) < plants ? new Refusal("store_full") : this.refuseText();
  }

  /** Why no text can be stored. What is left of the disk is for removals: the journal keeps what was removed. */
  refuseText(): Refusal | undefined {
    const { diskFreeBytesMin = 0 } = this.limits;
    return this.freeBytes < diskFreeBytesMin ? new Refusal("disk_low") : undefined;
  }

  take(plants: number): void {
    this.plantsLeft = (this.plantsLeft as number) - plants;
  }
}
