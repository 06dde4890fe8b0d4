/**
 * Changes many plants: those that match a filter here, those of a revert in revert.ts. Each plant is one conditional
 * write, so a plant that was changed meanwhile is left alone, and the work can be sent again. Memory holds one block.
 */

import type { Writer } from "./change.ts";
import { catalogue, describeRefusal, Refusal, toRefusal } from "./errors.ts";
import type { PlantLimits } from "./faults.ts";
import { createFilter, type Filter, filterNames, narrows } from "./filter.ts";
import { findPlainInt64 } from "./json.ts";
import type { PlantCount } from "./page.ts";
import { type Content, isSame, lengthOf, parsePlants, type Plant } from "./plant.ts";
import type { StoreView } from "./store.ts";
import { applyPatch, type Done, type Patch, type PlantWrite, refusePatch } from "./write.ts";

export interface BulkOptions {
  readonly signal: AbortSignal;
  /** The run of a job. */
  readonly run?: string;
  /** Retries while the store is busy, or memory is short. */
  readonly retry: <Result>(attempt: () => Promise<Result>) => Promise<Result>;
  /** Called with the plants in memory and their characters. Throws a Refusal if memory is short. */
  readonly reserve?: (plants: number, characters: number) => void;
}

/** A plant that was left alone, and why. */
export type Left = Readonly<{ id: bigint; refusal: Refusal }>;

export const describeLeft = ({ id, refusal }: Left) => ({ id, ...describeRefusal(refusal) });

const CHANGED = "precondition_failed";
/** Errors of a write to a plant that is not in the expected state. */
const differs: ReadonlySet<string> = new Set([CHANGED, "plant_not_found", "id_taken"]);

export const refuseChanged = (): Refusal =>
  new Refusal(CHANGED, "The plant was changed since; it was left as it is.");

/** Whether the commit has refused the work itself: its job was stopped or replaced, or its token revoked. */
export const isLeaseLost = ({ reason }: Refusal): boolean =>
  reason === "job_stopped" || reason === "token_invalid";

/** The condition that a plant is still in this state. */
export const stillIs = (plant: Plant) => ({ seen: contentOf(plant) });

/**
 * Repeats what the store could not do now, each time with later items about the same plant, so the last one wins.
 * `note` gets every outcome; an open one is repeated. Rejects when `retry` gives up.
 */
export async function writeUntilTaken<Item extends Pick<Plant, "id">, Success extends Done>(
  items: readonly Item[],
  write: (open: readonly Item[]) => Promise<readonly (Success | Refusal)[]>,
  retry: BulkOptions["retry"],
  note: (index: number, outcome: Success | Refusal, isOpen: boolean) => void,
): Promise<void> {
  let left = [...items.entries()];
  if (left.length === 0) return;
  await retry(async () => {
    const outcomes = await write(left.map(([, item]) => item));
    const openIds = new Set<bigint>();
    let failure: Refusal | undefined;
    left = left.filter(([index, { id }], at) => {
      const outcome = outcomes[at] as Success | Refusal;
      if (outcome instanceof Refusal && catalogue[outcome.reason].status >= 500) {
        openIds.add(id);
        failure ??= outcome;
      }
      const isOpen = openIds.has(id);
      note(index, outcome, isOpen);
      return isOpen;
    });
    if (failure !== undefined) throw failure;
  });
}

/** Writes that share commits. A plant that is not in the expected state is refused with `precondition_failed`. */
export async function writeBlock(
  store: StoreView,
  writes: readonly PlantWrite[],
  writer: Writer,
  { retry }: Pick<BulkOptions, "retry">,
): Promise<(Done | Refusal)[]> {
  const outcomes: (Done | Refusal)[] = [];
  const write = (open: readonly PlantWrite[]) => store.writePlants(open, writer);
  await writeUntilTaken(writes, write, retry, (index, outcome) => {
    const isChanged = outcome instanceof Refusal && differs.has(outcome.reason);
    outcomes[index] = isChanged ? refuseChanged() : outcome;
  }).catch((error: unknown) => {
    for (const index of writes.keys()) outcomes[index] ??= toRefusal(error);
  });
  return outcomes;
}

/** What became of a plant: `unchanged` was in the wanted state already, `changedSince` was left alone. */
type Fate = "unchanged" | "changedSince" | "refused";

/**
 * Counts each plant once, except those that a lost lease has left undone. Returns those that were left alone. `nameOf`
 * is the count of a change.
 */
export function countBlock<Name extends string>(
  counts: Record<"plants" | Fate | Name, number>,
  ids: readonly bigint[],
  outcomes: readonly (Done | Refusal)[],
  nameOf: (done: Exclude<Done, "replayed">) => Name,
): Left[] {
  const left: Left[] = [];
  const named: Record<string, number> = counts;
  const count = (name: string): number => (named[name] = (named[name] ?? 0) + 1);
  for (const [index, id] of ids.entries()) {
    const outcome = outcomes[index] as Done | Refusal;
    if (outcome instanceof Refusal) left.push({ id, refusal: outcome });
    if (outcome instanceof Refusal && isLeaseLost(outcome)) continue;
    count("plants");
    if (!(outcome instanceof Refusal))
      count(outcome === "replayed" ? "unchanged" : nameOf(outcome));
    else count(outcome.reason === CHANGED ? "changedSince" : "refused");
  }
  return left;
}

/** `patch` is undefined to remove the plants. Those in `except` are left out. */
export interface Bulk {
  readonly filter: Filter;
  readonly except?: readonly bigint[] | undefined;
  readonly patch: Patch | undefined;
}

/** Throws a Refusal if every plant matches without `isAll`: a forgotten filter must not change the whole store. */
export function requireFilter(filter: Filter, isAll: boolean): void {
  if (narrows(filter) && isAll)
    throw new Refusal("invalid_query", "all: expected no filter with it");
  if (!narrows(filter) && !isAll)
    throw new Refusal(
      "invalid_query",
      `expected a filter: ${filterNames.join(", ")}; all=true for every plant`,
    );
}

/** Of `except`, as a query parameter and an option. */
export const idsRule = {
  expected: "ids, separated by commas",
  find: (text: string): bigint[] | undefined => {
    const ids = text.split(",").map(findPlainInt64);
    return ids.every((id) => id !== undefined) ? ids : undefined;
  },
};

const PAGE_LENGTH = 1_000;
/** Characters in the names and tags of a block, unless one plant has more. */
export const BULK_CHARACTERS_MAX = 524_288;

/** On a small budget a block has fewer characters. */
export type MatchOptions = BulkOptions & { readonly charactersMax?: number };

/**
 * Blocks of plants that match, by id. It ends at the largest id that was in the store when it began: plants that are
 * created meanwhile would keep it from ending. A block may be empty, because a search takes several pages.
 */
export async function* readMatching(
  store: StoreView,
  { filter, except = [] }: Pick<Bulk, "filter" | "except">,
  { signal, retry, reserve, charactersMax = BULK_CHARACTERS_MAX }: MatchOptions,
): AsyncGenerator<Plant[]> {
  const excepted = new Set(except);
  const read = async (query: Parameters<StoreView["readPlants"]>[0]) => {
    const { text, next } = await retry(async () => store.readPlants(query, "json"));
    return { plants: parsePlants(text), next };
  };
  const newest = await read({ order: "desc", limit: 1, after: undefined });
  const idMax = newest.plants[0]?.id;
  if (idMax === undefined) return;
  const bounds = { order: "asc", limit: PAGE_LENGTH, charactersMax } as const;
  for (let after: bigint | undefined; ;) {
    signal.throwIfAborted();
    const page = await read({ ...filter, ...bounds, after });
    const characters = page.plants.reduce((sum, plant) => sum + lengthOf(plant), 0);
    await retry(async () => reserve?.(page.plants.length, characters));
    yield page.plants.filter(({ id }) => id <= idMax && !excepted.has(id));
    if (page.next === undefined || page.next >= idMax) return;
    after = page.next;
  }
}

export const startBulkCounts = () => ({
  plants: 0,
  replaced: 0,
  removed: 0,
  unchanged: 0,
  changedSince: 0,
  refused: 0,
});

type BulkCounts = ReturnType<typeof startBulkCounts>;

/** Upserts and lenient removals: sent again after a lost answer, they find their own work done. */
function toWrite(plant: Plant, patch: Patch | undefined): PlantWrite {
  const { id } = plant;
  const condition = stillIs(plant);
  if (patch === undefined) return { kind: "remove", id, condition, isLenient: true };
  return { kind: "upsert", id, plant: applyPatch(plant, patch), condition };
}

/** Returns the plants that were left alone. */
export async function changeBlock(
  store: StoreView,
  block: readonly Plant[],
  { patch }: Bulk,
  writer: Writer,
  counts: BulkCounts,
  options: Pick<BulkOptions, "retry">,
): Promise<Left[]> {
  const writes = block.map((plant) => toWrite(plant, patch));
  const outcomes = await writeBlock(store, writes, writer, options);
  const ids = block.map(({ id }) => id);
  return countBlock(counts, ids, outcomes, (done) => (done === "removed" ? done : "replaced"));
}

/** Plants that a dry run shows. */
export const SAMPLE_LENGTH = 20;
const SAMPLE_MS_MAX = 1_000;
/** A dry run may take longer than a page that counts: its purpose is an exact number. */
const COUNT_MS_MAX = 10_000;
/** Look-ups in flight: the store reads together those that are sent together. */
const LOOK_UPS_MAX = 256;

export interface BulkPreview extends Omit<PlantCount, "count"> {
  /** How many match. */
  readonly plants: number;
  readonly sample: readonly Readonly<{ id: bigint; now: Content; after: Content | undefined }>[];
}

/** Read-only. The sample has plants that would be changed: what they are, and what they would be. */
export async function previewBulk(
  store: StoreView,
  bulk: Bulk,
  options: MatchOptions & { readonly limits: PlantLimits },
): Promise<BulkPreview> {
  const { filter, except = [], patch } = bulk;
  const refusal = patch && refusePatch(patch, options.limits);
  if (refusal !== undefined) throw refusal;
  const { count, exact } = await options.retry(() => store.countPlants(filter, COUNT_MS_MAX));
  const matches = createFilter(filter);
  const isExcepted = async (id: bigint): Promise<boolean> => {
    const plant = await options.retry(() => store.findPlant(id));
    return plant !== undefined && matches(plant);
  };
  const ids = [...new Set(except)];
  let excepted = 0;
  for (let at = 0; at < ids.length; at += LOOK_UPS_MAX) {
    const found = await Promise.all(ids.slice(at, at + LOOK_UPS_MAX).map(isExcepted));
    excepted += found.filter(Boolean).length;
  }
  const sample: BulkPreview["sample"][number][] = [];
  const endsAtMs = performance.now() + SAMPLE_MS_MAX;
  for await (const block of readMatching(store, bulk, options)) {
    for (const plant of block) {
      const after = patch && applyPatch(plant, patch);
      if (sample.length < SAMPLE_LENGTH && !(after && isSame(plant, after)))
        sample.push({ id: plant.id, now: contentOf(plant), after: after && contentOf(after) });
    }
    if (sample.length === SAMPLE_LENGTH || performance.now() > endsAtMs) break;
  }
  await refuseForAll(store, bulk, sample, options);
  return { plants: Math.max(0, count - excepted), exact, sample };
}

/** Throws the refusal of a change that no plant may get, such as a tag that the caller may not give. */
async function refuseForAll(
  store: StoreView,
  { patch }: Pick<Bulk, "patch">,
  sample: BulkPreview["sample"],
  { retry }: Pick<BulkOptions, "retry">,
): Promise<void> {
  if (patch === undefined) return;
  const writes = sample.map(({ id, now }) => toWrite({ id, ...now }, patch));
  for (const { outcome } of await retry(() => store.rehearse(writes)))
    if (outcome instanceof Refusal && !differs.has(outcome.reason)) throw outcome;
}

export const contentOf = ({ name, tag }: Content): Content => ({ name, tag });
