/** Makes a store hold every plant of another: both are walked in step, and only what is missing is written. */

import { isStill, type Plant } from "../domain/plant.ts";
import { Refusal } from "../domain/errors.ts";
import type { Store, StoreLimits } from "../domain/store.ts";
import { type Pair, pairUp } from "./copy-pairs.ts";
import type { Side } from "./copy-side.ts";
import { Checksum, type Sums } from "./copy-verify.ts";

export interface PlantTally {
  copied: number;
  /** They were there already. */
  present: number;
  replaced: number;
  removed: number;
  /** Another plant has the id in the target, and was left alone. */
  different: number;
  /** In the target only, and left alone. */
  extra: number;
}

type Difference = "different" | "extra";

interface PlantCopy {
  readonly from: Side;
  readonly to: Side;
  readonly isForced: boolean;
  readonly limits: Pick<StoreLimits, "queueLengthMax" | "bodyBytesTotalMax">;
  /** Right at any time, and also where the copy ends half-way. */
  readonly tally: PlantTally;
  readonly onDifference: (id: bigint, difference: Difference) => void;
}

/** Resolves to what the source was seen to hold, and to what the target must hold from now on. */
export async function copyPlants(copy: PlantCopy): Promise<Sums> {
  const { from, to, tally, onDifference } = copy;
  const sums = { from: new Checksum(), to: new Checksum() };
  const settle = (id: bigint, outcome: keyof PlantTally): void => {
    tally[outcome]++;
    if (outcome === "different" || outcome === "extra") onDifference(id, outcome);
  };
  for await (const pairs of pairUp(from, to)) {
    const writes: Write[] = [];
    for (const pair of pairs) {
      const judged = judge(pair, copy.isForced);
      if (pair.from !== undefined) sums.from.add(pair.from);
      if (judged.leaves !== undefined) sums.to.add(judged.leaves);
      if (typeof judged.outcome === "string") settle(judged.id, judged.outcome);
      else writes.push({ id: judged.id, leaves: judged.leaves, run: judged.outcome });
    }
    for (const block of cutBlocks(writes, copy.limits)) await write(to, block, settle);
  }
  return { from: sums.from.finish(), to: sums.to.finish() };
}

interface Write {
  readonly id: bigint;
  readonly leaves: Plant | undefined;
  readonly run: (store: Store) => Promise<keyof PlantTally>;
}

interface Judged {
  readonly id: bigint;
  /** What the target has under the id afterwards. */
  readonly leaves: Plant | undefined;
  /** Known at once, or by a write. */
  readonly outcome: keyof PlantTally | Write["run"];
}

function judge(pair: Pair, isForced: boolean): Judged {
  const { id } = pair;
  if (pair.from === undefined) {
    if (!isForced) return { id, leaves: pair.to, outcome: "extra" };
    return { id, leaves: undefined, outcome: (store) => remove(store, pair.to) };
  }
  const { from, to } = pair;
  if (to === undefined) return { id, leaves: from, outcome: (store) => create(store, from) };
  if (isSame(from, to)) return { id, leaves: to, outcome: "present" };
  if (!isForced) return { id, leaves: to, outcome: "different" };
  return { id, leaves: from, outcome: (store) => replace(store, to, from) };
}

// Whatever has changed since it was seen, someone else has changed: it is left alone, and told.

async function create(store: Store, plant: Plant): Promise<keyof PlantTally> {
  const isTaken = await refusedAs(["id_taken"], store.createPlant(plant));
  return isTaken ? "different" : "copied";
}

async function replace(store: Store, seen: Plant, by: Plant): Promise<keyof PlantTally> {
  // Or as we would have it: an attempt that seemed to fail may have succeeded.
  const replaced = store.replacePlant(by, isStill(seen, by));
  const isChanged = await refusedAs(["precondition_failed", "plant_not_found"], replaced);
  return isChanged ? "different" : "replaced";
}

async function remove(store: Store, seen: Plant): Promise<keyof PlantTally> {
  const removed = store.removePlant(seen.id, isStill(seen)).catch((error: unknown) => {
    if (!isRefusedAs(["plant_not_found"], error)) throw error;
  });
  return (await refusedAs(["precondition_failed"], removed)) ? "extra" : "removed";
}

async function refusedAs(
  reasons: readonly Refusal["reason"][],
  written: Promise<unknown>,
): Promise<boolean> {
  try {
    await written;
    return false;
  } catch (error) {
    if (isRefusedAs(reasons, error)) return true;
    throw error;
  }
}

const isRefusedAs = (reasons: readonly Refusal["reason"][], error: unknown): boolean =>
  error instanceof Refusal && reasons.includes(error.reason);

const isSame = (one: Plant, other: Plant): boolean =>
  one.id === other.id && one.name === other.name && one.tag === other.tag;

/** All of a block wait for one commit, or few. */
const BLOCK_LENGTH_MAX = 1_000;

/** No more at once than the queue in front of the target takes. */
function* cutBlocks(
  writes: readonly Write[],
  { queueLengthMax, bodyBytesTotalMax }: PlantCopy["limits"],
): Generator<readonly Write[]> {
  const lengthMax = Math.min(BLOCK_LENGTH_MAX, queueLengthMax);
  let block: Write[] = [];
  let characters = 0;
  for (const next of writes) {
    const { name = "", tag = "" } = next.leaves ?? {};
    const more = name.length + tag.length;
    const isFull = block.length === lengthMax || characters + more > bodyBytesTotalMax;
    if (isFull && block.length > 0) {
      yield block;
      block = [];
      characters = 0;
    }
    block.push(next);
    characters += more;
  }
  if (block.length > 0) yield block;
}

async function write(
  to: Side,
  block: readonly Write[],
  settle: (id: bigint, outcome: keyof PlantTally) => void,
): Promise<void> {
  const left = new Set(block);
  await to.attempt(async (store) => {
    const failures = await Promise.all(
      [...left].map(async (one) => {
        try {
          settle(one.id, await one.run(store));
          left.delete(one);
        } catch (error) {
          return error as Error;
        }
      }),
    );
    const failure = failures.find((error) => error !== undefined);
    if (failure !== undefined) throw failure;
  });
}
