/** From records to stored plants: block by block, each record counted once, the refused ones kept. */

import { Refusal } from "../domain/errors.ts";
import type { Plant } from "../domain/plant.ts";
import type { PlantRecord } from "../format/plants.ts";
import type { Refused } from "../client/client.ts";
import { type ImportTarget, toRefused } from "./import-target.ts";
import type { Rejects } from "./rejects.ts";

export interface Tally {
  created: number;
  replayed: number;
  refused: number;
}

interface Import {
  readonly blocks: AsyncIterable<readonly PlantRecord[]>;
  readonly target: ImportTarget;
  readonly rejects: Rejects;
  /** Right at any time, and also where the import ends half-way. */
  readonly tally: Tally;
  readonly signal: AbortSignal;
}

export async function importRecords({
  blocks,
  target,
  rejects,
  tally,
  signal,
}: Import): Promise<void> {
  for await (const block of blocks) {
    signal.throwIfAborted();
    const refused = new Map<PlantRecord, Refused>();
    const refuse = (record: PlantRecord, why: Refused): void => {
      refused.set(record, why);
      tally.refused++;
    };
    const good: PlantRecord[] = [];
    const plants: Plant[] = [];
    for (const record of block) {
      if (record.plant instanceof Refusal) {
        refuse(record, toRefused(record.plant));
        continue;
      }
      good.push(record);
      plants.push(record.plant);
    }
    try {
      await target.create(plants, (index, outcome) => {
        if (typeof outcome === "string") tally[outcome]++;
        else refuse(good[index] as PlantRecord, outcome);
      });
    } finally {
      if (refused.size > 0) await rejects.add(inOrder(block, refused));
    }
  }
}

function inOrder(
  block: readonly PlantRecord[],
  refused: ReadonlyMap<PlantRecord, Refused>,
): (PlantRecord & Refused)[] {
  return block.flatMap((record) => {
    const why = refused.get(record);
    return why === undefined ? [] : [{ ...record, ...why }];
  });
}
