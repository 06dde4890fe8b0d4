/** The list on screen, and deletion with undo. */

import { batch, computed, effect, signal, untracked } from "@preact/signals";
import type { Change } from "../../client/client.ts";
import { createFilter, type Filter, pickFilter } from "../../src/domain/filter.ts";
import type { PlantCount, Sort } from "../../src/domain/page.ts";
import { findInt64 } from "../../src/domain/json.ts";
import { isSame, type Plant } from "../../src/domain/plant.ts";
import { comparePlaces, findCursor, formatSort, placeOf } from "../../src/domain/sort.ts";
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
  type TimedPlant,
  type Versioned,
} from "../api/plants.ts";
import { findLastChange } from "../api/changes.ts";
import { call, explain, isAbort, recoveries } from "../api/service.ts";
import { fill, plural, t } from "../text/text.ts";
import { arrived, gaps, untilFollowing } from "./feed.ts";
import { formatName } from "./format.ts";
import type { Selection } from "./question.ts";
import { findPlace, isWhole, linkTo, openPlant, route } from "./route.ts";
import { mayRead, token } from "./session.ts";
import { announce, toast, toastDone, type Verb } from "./toasts.ts";

const FIRST_PAGE_LENGTH = 100;
const PAGE_LENGTH = 500;
/** The scroll position is restored within this many rows. */
const PLACE_ROWS_MAX = 20_000;

type Compare = (one: TimedPlant, other: TimedPlant) => number;

const toSort = ({ sort: by, order }: ListFilter): Sort | undefined =>
  by && { by, isDescending: order === "desc" };

/** As the service sorts; the plant with the searched id is first. */
function createOrder(filter: ListFilter, first: bigint | undefined): Compare {
  const sort = toSort(filter);
  const sign = filter.order === "desc" ? -1 : 1;
  return (one, other) => {
    if (one.id === other.id) return 0;
    if (one.id === first || other.id === first) return one.id === first ? -1 : 1;
    if (sort !== undefined) return comparePlaces(sort, placeOf(sort, one), placeOf(sort, other));
    return one.id < other.id ? -sign : sign;
  };
}

/** As the service sorts a whole list. */
export function sortAll(filter: ListFilter, plants: readonly TimedPlant[]): readonly TimedPlant[] {
  const sort = toSort(filter);
  if (sort === undefined) return plants;
  return plants
    .map((plant) => ({ plant, place: placeOf(sort, plant) }))
    .toSorted((one, other) => comparePlaces(sort, one.place, other.place))
    .map(({ plant }) => plant);
}

interface Position {
  readonly after: bigint | undefined;
  /** In a sorted list. */
  readonly cursor: string | undefined;
}

/** A page in the order of the list, and where the next one begins. */
export async function readListPage(
  filter: ListFilter,
  { after, cursor }: Position,
  limit: number,
  options: { readonly signal: AbortSignal },
): Promise<{ readonly plants: readonly TimedPlant[]; readonly next: Position | undefined }> {
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

/** The plants of one filter, loaded page by page as the list is scrolled. */
class PlantList {
  readonly filter: ListFilter;
  /** The search text as an id. The plant with this id is listed first, whatever its name. */
  readonly searchedId: bigint | undefined;
  /** The plant with the searched id; null if there is none, undefined until it is known. */
  readonly holder = signal<TimedPlant | null | undefined>(undefined);
  /** The change that removed the plant with the searched id, if the journal has it. */
  readonly removal = signal<Change | undefined>(undefined);
  /** In the order of the list. The array changes in place; `version` changes with it. */
  readonly plants: TimedPlant[] = [];
  readonly version = signal(0);
  readonly phase = signal<"loading" | "ready" | "end" | "failed">("ready");
  readonly failure = signal<unknown>(undefined);
  /** The service's count of the matches; undefined until it is known. */
  readonly count = signal<PlantCount | undefined>(undefined);
  /** The plant with the keyboard cursor. */
  readonly active = signal<bigint | undefined>(undefined);
  readonly selection = signal<Selection>({ isAll: false, ids: new Set() });
  /** Whether the plant matches the service's filter. */
  private readonly accepts: (plant: Plant) => boolean;
  /** The same without the search, for the plant with the searched id. */
  private readonly acceptsHolder: (plant: Plant) => boolean;
  private readonly compare: Compare;
  /** Every plant that was listed, as it was last, so the place of one that is gone is still known. */
  private readonly listed = new Map<bigint, TimedPlant>();
  /** The digits of the longest id listed so far. */
  idLength = 0;
  /** The cursor of the next page, by id or by the sort. */
  private after: bigint | undefined;
  private cursor: string | undefined;
  private hasMore = true;
  /** Changes that arrived while a page was loading. They are applied again, because the page may be older. */
  private late: (() => void)[] = [];
  private readonly left = new AbortController();
  private readonly options = { signal: this.left.signal };

  constructor(filter: ListFilter) {
    this.filter = filter;
    this.searchedId = findInt64((filter.q ?? "").trim());
    this.accepts = createFilter(filter);
    this.acceptsHolder = createFilter({ ...filter, q: undefined });
    this.compare = createOrder(filter, this.searchedId);
  }

  /** The plant that is listed for its id alone: the service's filter does not find it. */
  get onlyById(): Plant | undefined {
    const { value } = this.holder;
    const isListed = value && this.includes(value) && !this.accepts(value);
    return isListed ? value : undefined;
  }

  /** How many plants match; undefined until something is known. A lower bound is at least what is loaded. */
  readonly matches = computed((): PlantCount | undefined => {
    void this.version.value;
    const loaded = this.plants.length;
    if (this.phase.value === "end" && !this.hasMore) return { count: loaded, exact: true };
    if (this.count.value === undefined) return undefined;
    const { count: counted, exact } = this.count.value;
    const count = Math.max(loaded, counted + (this.onlyById === undefined ? 0 : 1));
    return exact || count > 0 ? { count, exact } : undefined;
  });

  /** Loads pages until 100 more rows and this id are loaded. A search may need many pages. */
  async loadMore(until?: bigint): Promise<void> {
    if (this.phase.value === "loading" || this.phase.value === "end") return;
    this.phase.value = "loading";
    try {
      await Promise.all([this.findHolder(), this.loadRows(until)]);
      this.phase.value = this.hasMore ? "ready" : "end";
    } catch (error) {
      if (isAbort(error)) return;
      this.failure.value = error;
      this.phase.value = "failed";
    } finally {
      for (const change of this.late.splice(0)) change();
    }
  }

  /** The service finds names and tags; ids are looked up. */
  private async findHolder(): Promise<void> {
    if (this.searchedId === undefined || this.holder.value !== undefined) return;
    const found = await findTaken(this.searchedId, this.left.signal);
    if (found === undefined) this.holder.value = null;
    else this.show(found);
  }

  /** Who removed the plant with the searched id. The journal has no index on ids, so not at every keystroke. */
  async findRemoval(): Promise<void> {
    if (this.searchedId === undefined) return;
    const change = await findLastChange(this.searchedId, this.left.signal);
    if (change?.type === "removed") this.removal.value = change;
  }

  private async loadRows(until: bigint | undefined): Promise<void> {
    const wanted = this.plants.length + FIRST_PAGE_LENGTH;
    const isReached = (): boolean =>
      until === undefined || this.isLoaded(until) || this.plants.length > PLACE_ROWS_MAX;
    while (this.hasMore && !(this.plants.length >= wanted && isReached()))
      this.append(await this.readPage());
  }

  private append(plants: readonly TimedPlant[]): void {
    for (const plant of plants) {
      // `findHolder` lists it. A plant that changed between two pages of a sorted list may be on both.
      if (plant.id === this.searchedId) continue;
      if (this.filter.sort !== undefined) this.remove(plant.id);
      this.plants.push(plant);
      this.note(plant);
    }
    if (plants.length > 0) this.version.value++;
  }

  private async readPage(): Promise<readonly TimedPlant[]> {
    const { after, cursor } = this;
    const limit = after === undefined && cursor === undefined ? FIRST_PAGE_LENGTH : PAGE_LENGTH;
    const page = await readListPage(this.filter, { after, cursor }, limit, this.options);
    this.after = page.next?.after;
    this.cursor = page.next?.cursor;
    this.hasMore = page.next !== undefined;
    return page.plants;
  }

  /** Reuses the total unless `isAgain`: a search must not recount all plants at every keystroke. */
  async readCount(isAgain: boolean): Promise<void> {
    const isAll = isWhole(this.filter);
    const begunAtMs = performance.now();
    try {
      if (isAll || isAgain || total.value === undefined)
        await this.countInto(total, {}, isAll ? this.count : undefined);
      if (!isAll) await this.countInto(this.count, pickFilter(this.filter));
    } catch (error) {
      // The list works without counts. They are read again.
      if (!isAbort(error)) recountLater();
      return;
    }
    if (changedAtMs > begunAtMs - STALE_MS) recountLater();
  }

  /** The service counts for a second at a time. Until the count is exact, the number shown does not get smaller. */
  private async countInto(shown: typeof total, filter: Filter, same?: typeof total): Promise<void> {
    let counted = 0;
    let after: bigint | undefined;
    do {
      const piece = await call((client) => client.countPlants({ ...filter, after }, this.options));
      counted += piece.count;
      after = piece.next;
      const { count = 0, exact = false } = shown.peek() ?? {};
      if (after === undefined) shown.value = { count: counted, exact: piece.exact };
      else if (!exact && counted > count) shown.value = { count: counted, exact: false };
      if (same !== undefined) same.value = shown.value;
    } while (after !== undefined);
  }

  /** Keeps the count right until the service counts again. */
  adjustCount(before: Plant | undefined, after: Plant | undefined): void {
    const [was, is] = [before, after].map((plant) => plant !== undefined && this.accepts(plant));
    this.count.value = shift(this.count.value, Number(is) - Number(was));
  }

  stop(): void {
    this.left.abort();
  }

  /** A plant was added or changed: now, unless the time is known. */
  put(newer: TimedPlant): void {
    const known = this.listed.get(newer.id);
    const isKnown = known !== undefined && isSame(known, newer);
    const changed =
      newer.changed ?? (isKnown ? known.changed : undefined) ?? new Date().toISOString();
    const plant = { ...newer, changed };
    if (this.phase.value === "loading") this.late.push(() => this.show(plant));
    this.show(plant);
  }

  /** A plant is gone. */
  take(id: bigint): void {
    if (this.phase.value === "loading") this.late.push(() => this.take(id));
    if (id === this.searchedId) this.holder.value = null;
    recountLater();
    if (!this.remove(id)) return;
    this.version.value++;
    // An empty list has nothing to scroll, so it would load no more.
    if (this.plants.length === 0) void this.loadMore();
  }

  /** Lists the plant if it matches and belongs to the loaded part. */
  private show(plant: TimedPlant): void {
    if (plant.id === this.searchedId) {
      this.holder.value = plant;
      this.removal.value = undefined;
    }
    const wasListed = this.remove(plant.id);
    this.note(plant);
    const isLoaded = plant.id === this.searchedId || !this.isBeyond(plant);
    if (isLoaded && this.includes(plant)) this.plants.splice(this.placeOf(plant.id), 0, plant);
    this.version.value++;
    if (wasListed && this.plants.length === 0) void this.loadMore();
  }

  private note(plant: TimedPlant): void {
    this.listed.set(plant.id, plant);
    this.idLength = Math.max(this.idLength, String(plant.id).length);
  }

  private remove(id: bigint): boolean {
    const index = this.indexOf(id);
    if (index !== -1) this.plants.splice(index, 1);
    return index !== -1;
  }

  /** Whether the plant is past the loaded pages. Compares with the cursor, because the last loaded plant may be gone. */
  private isBeyond(plant: TimedPlant): boolean {
    const { after, cursor, filter } = this;
    const sort = toSort(filter);
    if (!this.hasMore) return false;
    if (sort !== undefined) {
      const end = cursor === undefined ? undefined : findCursor(sort, cursor);
      return end === undefined || comparePlaces(sort, placeOf(sort, plant), end) > 0;
    }
    if (after === undefined) return true;
    return filter.order === "desc" ? plant.id < after : plant.id > after;
  }

  /** Whether the list is loaded as far as this id. */
  isLoaded(id: bigint): boolean {
    // The place of an unknown plant in a sorted list is not known.
    if (this.filter.sort !== undefined && !this.listed.has(id)) return false;
    return this.placeOf(id) < this.plants.length;
  }

  indexOf(id: bigint): number {
    const index = this.placeOf(id);
    return this.plants[index]?.id === id ? index : -1;
  }

  private includes(plant: Plant): boolean {
    return plant.id === this.searchedId ? this.acceptsHolder(plant) : this.accepts(plant);
  }

  /** The index that the plant has, had, or would have. */
  placeOf(id: bigint): number {
    const plant = this.listed.get(id) ?? { id, name: "" };
    let low = 0;
    let high = this.plants.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.compare(this.plants[middle] as Plant, plant) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** The number of all plants. */
export const total = signal<PlantCount | undefined>(undefined);

/** Another token, another filter or missed changes start a new list. */
const key = computed(() => `${token.value} ${gaps.value} ${linkTo(undefined)}`);

export const list = computed(() => {
  void key.value;
  return new PlantList(route.peek().filter);
});

async function show(next: PlantList): Promise<void> {
  await untilFollowing();
  void next.readCount(false);
  await next.loadMore(findPlace(next.filter));
  const { phase, plants } = next;
  if (list.value !== next || phase.value === "failed") return;
  const found = plants.length === 0 ? t.plants.none : plural(t.shared.plants, plants.length);
  const text = phase.value === "end" ? t.plants.listed : t.plants.listedMore;
  announce(fill(text, { plants: found }));
}

const shift = (counted: PlantCount | undefined, by: number): PlantCount | undefined =>
  counted && { ...counted, count: Math.max(0, counted.count + by) };

/** Counting takes the service up to a second, so recounts are throttled. */
const COUNT_MS = 5_000;
/** The service's counts may be as old as this. */
const STALE_MS = 2_000;
let counting: ReturnType<typeof setTimeout> | undefined;
let changedAtMs = Number.NEGATIVE_INFINITY;

/** Changes adjust the counts at once. A change that a count already had is then counted twice, until this. */
function recountLater(): void {
  counting ??= setTimeout(() => {
    counting = undefined;
    if (token.value !== undefined) void list.value.readCount(true);
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
    if (!mayRead.value) return undefined;
    const next = list.value;
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
