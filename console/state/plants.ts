/** The list on screen, and deletion with undo. */

import { batch, computed, effect, signal, untracked } from "@preact/signals";
import type { Change } from "../../client/client.ts";
import { type Filter, pickFilter } from "../../src/domain/filter.ts";
import type { PlantCount } from "../../src/domain/page.ts";
import { isSame, type Plant } from "../../src/domain/plant.ts";
import { formatSort } from "../../src/domain/sort.ts";
import {
  Changed,
  createPlant,
  findPlant,
  findTaken,
  type ListFilter,
  readConflict,
  removePlant,
  replacePlant,
  Taken,
  type Versioned,
} from "../api/plants.ts";
import { findLastChange } from "../api/changes.ts";
import { call, explain, isAbort, recoveries } from "../api/service.ts";
import { fill, plural, t } from "../text/text.ts";
import { arrived, gaps, untilFollowing } from "./feed.ts";
import { formatName } from "./format.ts";
import { type ListSource, PlantList, type Position, shift, toSort } from "./plant-list.ts";
import { personal, whenLeft } from "./person.ts";
import { findPlace, isWhole, linkTo, openPlant, route } from "./route.ts";
import { mayRead, token } from "./session.ts";
import { announce, toast, toastDone, type Verb } from "./toasts.ts";

/** A page in the order of the list, and where the next one begins. */
export async function readListPage(
  filter: ListFilter,
  { after, cursor }: Position,
  limit: number,
  options: { readonly signal: AbortSignal },
): Promise<Awaited<ReturnType<ListSource["readPage"]>>> {
  const query = { ...pickFilter(filter), limit, include: "changed" } as const;
  const sort = toSort(filter);
  if (sort === undefined) {
    const ordered = { ...query, after, order: filter.order };
    const { plants, next } = await call((client) => client.listPage(ordered, options));
    return { plants, next: next === undefined ? undefined : { after: next, cursor: undefined } };
  }
  const sorted = { ...query, cursor, sort: formatSort(sort) };
  const page = await call((client) => client.listSortedPage(sorted, options));
  const next = page.cursor === undefined ? undefined : { after: undefined, cursor: page.cursor };
  return { plants: page.plants, next };
}

/** The number of all plants. */
export const total = personal<PlantCount | undefined>(undefined);

/** Another token, another filter or missed changes start a new list. */
const key = computed(() => `${token.value} ${gaps.value} ${linkTo(undefined)}`);

export const list = computed(() => {
  void key.value;
  return new PlantList(route.peek().filter, {
    readPage: readListPage,
    findTaken,
    findLastChange,
    onTaken: recountLater,
  });
});

async function show(next: PlantList): Promise<void> {
  await untilFollowing();
  void readCount(next, false);
  await next.loadMore(findPlace(next.filter));
  const { phase, plants } = next;
  if (list.value !== next || phase.value === "failed") return;
  const found = plants.length === 0 ? t.plants.none : plural(t.shared.plants, plants.length);
  const text = phase.value === "end" ? t.plants.listed : t.plants.listedMore;
  announce(fill(text, { plants: found }));
}

/** Reuses the total unless `isAgain`: a search must not recount all plants at every keystroke. */
async function readCount(of: PlantList, isAgain: boolean): Promise<void> {
  const isAll = isWhole(of.filter);
  const begunAtMs = performance.now();
  try {
    if (isAll || isAgain || total.value === undefined)
      await countInto(of, total, {}, isAll ? of.count : undefined);
    if (!isAll) await countInto(of, of.count, pickFilter(of.filter));
  } catch (error) {
    // The list works without counts. They are read again.
    if (!isAbort(error)) recountLater();
    return;
  }
  if (changedAtMs > begunAtMs - STALE_MS) recountLater();
}

/** The service counts for a second at a time. Until the count is exact, the number shown does not get smaller. */
async function countInto(
  of: PlantList,
  shown: typeof total,
  filter: Filter,
  same?: typeof total,
): Promise<void> {
  let counted = 0;
  let after: bigint | undefined;
  do {
    const piece = await call((client) => client.countPlants({ ...filter, after }, of.options));
    counted += piece.count;
    after = piece.next;
    const { count = 0, exact = false } = shown.peek() ?? {};
    if (after === undefined) shown.value = { count: counted, exact: piece.exact };
    else if (!exact && counted > count) shown.value = { count: counted, exact: false };
    if (same !== undefined) same.value = shown.value;
  } while (after !== undefined);
}

/** Counting takes the service up to a second, so recounts are throttled. */
const COUNT_MS = 5_000;
/** The service's counts may be as old as this. */
const STALE_MS = 2_000;
let counting: ReturnType<typeof setTimeout> | undefined;
let changedAtMs = Number.NEGATIVE_INFINITY;
whenLeft(() => {
  clearTimeout(counting);
  counting = undefined;
});

/** Changes adjust the counts at once. A change that a count already had is then counted twice, until this. */
function recountLater(): void {
  counting ??= setTimeout(() => {
    counting = undefined;
    if (token.value !== undefined) void readCount(list.value, true);
  }, COUNT_MS);
}

function apply({ id, type, plant, before, time }: Change): void {
  const after = plant && { ...plant, id, changed: time };
  if (after === undefined) list.value.take(id);
  else list.value.put(after);
  list.value.adjustCount(before && { ...before, id }, after);
  if (isWhole(list.value.filter)) total.value = list.value.count.value;
  else if (type !== "replaced") total.value = shift(total.value, type === "created" ? 1 : -1);
  changedAtMs = performance.now();
  recountLater();
}

export function startLists(): void {
  effect(() => {
    if (token.value === undefined) total.value = undefined;
    // Also without a person: the next one has another list, even by the same token.
    const next = list.value;
    if (!mayRead.value) return undefined;
    untracked(() => void show(next));
    return () => next.stop();
  });
  effect(() => {
    const changes = arrived.value;
    if (changes.length > 0) untracked(() => batch(() => changes.forEach(apply)));
  });
  effect(() => {
    if (recoveries.value === 0) return;
    untracked(() => {
      if (list.value.phase.value === "failed") void list.value.loadMore();
    });
  });
}

/** Throws Changed if the plant is no longer as it was read. */
export async function removeWithUndo({ plant, etag }: Versioned): Promise<void> {
  await removePlant(plant.id, etag);
  list.value.take(plant.id);
  toastDone("deleted", plant, (isOnly) => restore(plant, isOnly));
}

/** Counts plants that were changed outside of their panel. */
export const rewrites = signal(0);

/** `before` is the plant as it was. */
export const toastChanged = (verb: Verb, before: Plant, saved: Versioned): void =>
  toastDone(verb, saved.plant, () =>
    changeBack(before, saved, verb === "changedBack" ? "changed" : "changedBack"),
  );

async function changeBack(before: Plant, now: Versioned, verb: Verb): Promise<void> {
  try {
    const saved = await replacePlant(before, now.etag);
    list.value.put(saved.plant);
    rewrites.value++;
    toastChanged(verb, now.plant, saved);
  } catch (error) {
    const run = (): void => void changeBack(before, now, verb);
    const again = { label: t.shared.tryAgain, isNeeded: true, run };
    const isFinal = error instanceof Changed;
    const failed = fill(t.plants.notChangedBack, {
      plant: formatName(now.plant),
      why: explain(error),
    });
    toast(failed, isFinal ? undefined : again);
  }
}

/** `isAgain`: an earlier attempt may have added it. Throws Taken. */
export async function addWithUndo(plant: Plant, isAgain = false): Promise<void> {
  const outcome = await createPlant(plant);
  list.value.put(plant);
  recountLater();
  const open = { label: t.shared.open, run: () => openPlant(plant.id) };
  if (outcome === "replayed" && !isAgain)
    toast(
      fill(t.plants.alreadyThere, { plant: formatName(plant) }),
      mayRead.value ? open : undefined,
    );
  // Without reading it, a change by someone else would be lost.
  else if (!mayRead.value) toast(fill(t.plants.done.added, { what: formatName(plant) }));
  else toastDone("added", plant, () => takeBack(plant));
}

export async function takeBack(plant: Plant): Promise<void> {
  try {
    const found = await findPlant(plant.id);
    if (found === undefined) return;
    if (!isSame(found.plant, plant)) throw await readConflict(plant.id);
    await removeWithUndo(found);
  } catch (error) {
    const again = { label: t.shared.tryAgain, isNeeded: true, run: () => void takeBack(plant) };
    const isFinal = error instanceof Changed;
    const failed = fill(t.plants.deletionFailed, { plant: formatName(plant), why: explain(error) });
    toast(failed, isFinal ? undefined : again);
    return;
  }
  if (route.value.open === plant.id) openPlant(undefined);
}

export async function restore(plant: Plant, isOpened = true): Promise<void> {
  try {
    await createPlant(plant);
  } catch (error) {
    const again = { label: t.shared.tryAgain, isNeeded: true, run: () => void restore(plant) };
    if (error instanceof Taken) toast(fill(t.plants.notRestored, { id: String(plant.id) }));
    else
      toast(fill(t.plants.restoreFailed, { plant: formatName(plant), why: explain(error) }), again);
    return;
  }
  list.value.put(plant);
  recountLater();
  if (mayRead.value) toastDone("restored", plant, () => takeBack(plant));
  else toast(fill(t.plants.done.restored, { what: formatName(plant) }));
  const isFree = route.value.view === "plants" && route.value.open === undefined;
  if (isOpened && mayRead.value && isFree) openPlant(plant.id);
}
