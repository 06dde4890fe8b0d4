/** A batch of writes: those about one plant in their order, all others at once. */

import type { Refusal } from "../../domain/error.ts";
import type { Plant } from "../../domain/plant.ts";
import { type Change, changePlants } from "./change-plants.ts";
import { createPlants, judgeCreate } from "./create-plants.ts";
import { judge, translate } from "./failure.ts";
import type { Lanes } from "./lanes.ts";

export type Write =
  | { readonly kind: "create"; readonly id: bigint; readonly plant: Plant }
  | ({ readonly kind: "change" } & Change);

export type Outcome = "created" | "replayed" | "done";

interface Settled {
  readonly outcome: Outcome | Refusal;
  readonly stored: Plant | undefined;
}

export async function commitWrites(
  lanes: Lanes,
  writes: readonly Write[],
  deadlineMs: number,
): Promise<(Outcome | Error)[]> {
  const outcomes: (Outcome | Error)[] = [];
  /** What this very batch has found or put there: a further create is judged by it. */
  const stored = new Map<bigint, Plant>();
  let open = [...writes.entries()];
  while (open.length > 0) {
    const round = new Map<bigint, readonly [index: number, write: Write]>();
    const later: typeof open = [];
    for (const [index, write] of open) {
      const known = stored.get(write.id);
      if (round.has(write.id)) later.push([index, write]);
      else if (write.kind === "create" && known !== undefined)
        outcomes[index] = judgeCreate(write.plant, known);
      else round.set(write.id, [index, write]);
    }
    const settled = await performRound(
      lanes,
      [...round.values()].map(([, write]) => write),
      deadlineMs,
    );
    for (const [id, [index]] of round) {
      const result = settled.get(id);
      if (result === undefined) throw new Error(`no outcome for the id ${id}`);
      outcomes[index] = result instanceof Error ? result : result.outcome;
      const known = result instanceof Error ? undefined : result.stored;
      if (known === undefined) stored.delete(id);
      else stored.set(id, known);
    }
    open = later;
  }
  return outcomes;
}

type Results = Map<bigint, Settled | Error>;

async function performRound(
  lanes: Lanes,
  writes: readonly Write[],
  deadlineMs: number,
): Promise<Results> {
  const results: Results = new Map();
  const plants = writes.flatMap((write) => (write.kind === "create" ? [write.plant] : []));
  const changes = writes.filter((write) => write.kind === "change");
  await settleAll(plants, results, (some) => createPlants(lanes, some, deadlineMs));
  for (const isRemoval of [false, true])
    await settleAll(
      changes.filter(({ plant }) => (plant === undefined) === isRemoval),
      results,
      (some) => changePlants(lanes, some, deadlineMs),
    );
  return results;
}

/** One row that PostgreSQL will not have fails the whole statement: halved until it is alone. */
async function settleAll<Item extends { readonly id: bigint }>(
  items: readonly Item[],
  results: Results,
  settle: (items: readonly Item[]) => Promise<ReadonlyMap<bigint, Settled>>,
): Promise<void> {
  if (items.length === 0) return;
  try {
    for (const [id, result] of await settle(items)) results.set(id, result);
  } catch (error) {
    const [only] = items;
    const middle = Math.floor(items.length / 2);
    if (judge(error) === "row" && middle > 0) {
      await settleAll(items.slice(0, middle), results, settle);
      await settleAll(items.slice(middle), results, settle);
    } else if (judge(error) === "row" && only !== undefined) results.set(only.id, translate(error));
    else throw error;
  }
}
