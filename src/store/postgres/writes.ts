/** A batch of writes: those about one plant in their order, all others at once. */

import type { Refusal } from "../../domain/errors.ts";
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
  const outcomes: (Outcome | Error)[] = Array.from({ length: writes.length });
  /** What this very batch has found or put there: a further create is judged by it. */
  const stored = new Map<bigint, Plant>();
  let open: readonly number[] = [...writes.keys()];
  while (open.length > 0) {
    const round = new Map<bigint, number>();
    const later: number[] = [];
    const plants: Plant[] = [];
    const changes: Change[] = [];
    for (const index of open) {
      const write = writes[index] as Write;
      const known = stored.size === 0 ? undefined : stored.get(write.id);
      if (round.has(write.id)) later.push(index);
      else if (write.kind === "create" && known !== undefined)
        outcomes[index] = judgeCreate(write.plant, known);
      else {
        round.set(write.id, index);
        if (write.kind === "create") plants.push(write.plant);
        else changes.push(write);
      }
    }
    const settled = await performRound(lanes, plants, changes, deadlineMs);
    for (const [id, index] of round) {
      const result = settled.get(id);
      if (result === undefined) throw new Error(`no outcome for the id ${id}`);
      outcomes[index] = result instanceof Error ? result : result.outcome;
      if (later.length > 0) remember(stored, id, result);
    }
    open = later;
  }
  return outcomes;
}

function remember(stored: Map<bigint, Plant>, id: bigint, result: Settled | Error): void {
  const known = result instanceof Error ? undefined : result.stored;
  if (known === undefined) stored.delete(id);
  else stored.set(id, known);
}

type Results = ReadonlyMap<bigint, Settled | Error>;

async function performRound(
  lanes: Lanes,
  plants: readonly Plant[],
  changes: readonly Change[],
  deadlineMs: number,
): Promise<Results> {
  const created = await settleAll(plants, (some) => createPlants(lanes, some, deadlineMs));
  if (changes.length === 0) return created;
  const change = (isRemoval: boolean): Promise<Results> =>
    settleAll(
      changes.filter(({ plant }) => (plant === undefined) === isRemoval),
      (some) => changePlants(lanes, some, deadlineMs),
    );
  return new Map([...created, ...(await change(false)), ...(await change(true))]);
}

/** One row that PostgreSQL will not have fails the whole statement: halved until it is alone. */
async function settleAll<Item extends { readonly id: bigint }>(
  items: readonly Item[],
  settle: (items: readonly Item[]) => Promise<ReadonlyMap<bigint, Settled>>,
): Promise<Results> {
  const [only] = items;
  if (only === undefined) return new Map();
  try {
    return await settle(items);
  } catch (error) {
    if (judge(error) !== "row") throw error;
    const middle = Math.floor(items.length / 2);
    if (middle === 0) return new Map([[only.id, translate(error)]]);
    const first = await settleAll(items.slice(0, middle), settle);
    return new Map([...first, ...(await settleAll(items.slice(middle), settle))]);
  }
}
