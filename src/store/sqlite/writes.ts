/** What a transaction does for each write in it. */

import { statfsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { INT64_MIN } from "../../domain/json.ts";
import {
  type Condition,
  judgeChange,
  judgeCreate,
  lengthOf,
  type Plant,
} from "../../domain/plant.ts";
import { Refusal } from "../../domain/errors.ts";
import type { Created, StoreLimits } from "../../domain/store.ts";
import type { Entries } from "../journal.ts";
import { toPlant } from "../rows.ts";
import type { Statements } from "./sql.ts";

/** A transaction that has begun. */
export interface Transaction {
  readonly statements: Statements;
  readonly room: Room;
  /** What was changed, for the journal; undefined without one. */
  readonly entries: Entries | undefined;
}

/** The text that a replacement may add on a disk that is nearly full. */
const GROWTH_MAX = 4_096;

/** Whether there is room for new plants: by the quota, and on the disk. */
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

  /** Why a new plant cannot be stored. */
  refuseNew(): Refusal | undefined {
    if ((this.plantsLeft as number) <= 0) return new Refusal("store_full");
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

export function createPlant(
  { statements, room, entries }: Transaction,
  plant: Plant,
  by: string | undefined,
): Created | Refusal {
  const { id, name, tag = null } = plant;
  const refusal = room.refuseNew();
  if (refusal === undefined && statements.insertPlant.run(id, name, tag).changes === 1) {
    room.take(1);
    entries?.add(id, by, plant);
    return "created";
  }
  const row = statements.findPlant.get(id);
  // It is missing only if it was not tried.
  return row === null ? (refusal as Refusal) : judgeCreate(plant, toPlant(row));
}

/** Without a plant, the stored one is removed. */
export function changePlant(
  { statements, room, entries }: Transaction,
  id: bigint,
  plant: Plant | undefined,
  condition: Condition,
  by: string | undefined,
): Refusal | undefined {
  const row = statements.findPlant.get(id);
  const before = judgeChange(row === null ? undefined : toPlant(row), condition);
  if (before instanceof Refusal) return before;
  const refusal = plant === undefined ? undefined : room.refuseReplacement(plant, before);
  if (refusal !== undefined) return refusal;
  if (plant === undefined) {
    statements.deletePlant.run(id);
    room.take(-1);
  } else statements.updatePlant.run(plant.name, plant.tag ?? null, id);
  entries?.add(id, by, plant, before);
  return undefined;
}
