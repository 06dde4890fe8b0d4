/** The plants of one filter: what is loaded of them, in order, and how changes alter it. */

import { computed, signal } from "@preact/signals";
import type { Change } from "../../client/client.ts";
import { createFilter } from "../../src/domain/filter.ts";
import type { PlantCount, Sort } from "../../src/domain/page.ts";
import { findInt64 } from "../../src/domain/json.ts";
import { isSame, type Plant } from "../../src/domain/plant.ts";
import { comparePositions, findCursor, formatCursor, positionOf } from "../../src/domain/sort.ts";
import type { ListFilter, TimedPlant } from "../api/plants.ts";

const FIRST_PAGE_LENGTH = 100;
const PAGE_LENGTH = 500;
/** The scroll position is restored within this many rows. */
const PLACE_ROWS_MAX = 20_000;
/** Of rows that nobody has seen. */
const ROWS_BELOW_MAX = 2_000;
const GONE_MAX = 1_000;

/** Either these plants, or all that match the filter except these. */
export interface Selection {
  readonly isAll: boolean;
  readonly ids: ReadonlySet<bigint>;
  /** The plant that was selected last, by id because indexes shift. */
  readonly last?: bigint;
}

type Compare = (one: TimedPlant, other: TimedPlant) => number;

export const toSort = ({ sort: by, order }: ListFilter): Sort | undefined =>
  by && { by, isDescending: order === "desc" };

/** As the service sorts; the plant with the searched id is first. */
function createOrder(filter: ListFilter, first: bigint | undefined): Compare {
  const sort = toSort(filter);
  const sign = filter.order === "desc" ? -1 : 1;
  return (one, other) => {
    if (one.id === other.id) return 0;
    if (one.id === first || other.id === first) return one.id === first ? -1 : 1;
    if (sort !== undefined)
      return comparePositions(sort, positionOf(sort, one), positionOf(sort, other));
    return one.id < other.id ? -sign : sign;
  };
}

/** As the service sorts a whole list. */
export function sortAll(filter: ListFilter, plants: readonly TimedPlant[]): readonly TimedPlant[] {
  const sort = toSort(filter);
  if (sort === undefined) return plants;
  return plants
    .map((plant) => ({ plant, position: positionOf(sort, plant) }))
    .toSorted((one, other) => comparePositions(sort, one.position, other.position))
    .map(({ plant }) => plant);
}

export interface Position {
  readonly after: bigint | undefined;
  /** In a sorted list. */
  readonly cursor: string | undefined;
}

interface Page {
  readonly plants: readonly TimedPlant[];
  /** Where the next one begins. */
  readonly next: Position | undefined;
}

/** What the list asks the service for. */
export interface ListSource {
  readonly readPage: (
    filter: ListFilter,
    position: Position,
    limit: number,
    options: { readonly signal: AbortSignal },
  ) => Promise<Page>;
  readonly findTaken: (id: bigint, signal: AbortSignal) => Promise<TimedPlant | undefined>;
  readonly findLastChange: (id: bigint, signal: AbortSignal) => Promise<Change | undefined>;
  /** A plant is gone: counts may be wrong. */
  readonly onTaken: () => void;
}

/**
 * The plants of one filter, loaded page by page as the list is scrolled. Others add plants for as long as the page is
 * open: what lies far below all that was seen is dropped, and loaded again when it is scrolled to.
 */
export class PlantList {
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
  /** The plants of the list by id. */
  private readonly listed = new Map<bigint, TimedPlant>();
  /** Those that have left it lately, as they were last: their places are still known. */
  private readonly gone = new Map<bigint, TimedPlant>();
  /** The rows that were seen. */
  private seen = 0;
  private readonly source: ListSource;
  /** The digits of the longest id listed so far. */
  idLength = 0;
  /** The cursor of the next page, by id or by the sort. */
  private after: bigint | undefined;
  private cursor: string | undefined;
  private hasMore = true;
  /** Changes that arrived while a page was loading. They are applied again, because the page may be older. */
  private late: (() => void)[] = [];
  private readonly left = new AbortController();
  readonly options = { signal: this.left.signal };

  constructor(filter: ListFilter, source: ListSource) {
    this.filter = filter;
    this.source = source;
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
      if (this.left.signal.aborted) return;
      this.failure.value = error;
      this.phase.value = "failed";
    } finally {
      for (const change of this.late.splice(0)) change();
    }
  }

  /** The service finds names and tags; ids are looked up. */
  private async findHolder(): Promise<void> {
    if (this.searchedId === undefined || this.holder.value !== undefined) return;
    const found = await this.source.findTaken(this.searchedId, this.left.signal);
    if (found === undefined) this.holder.value = null;
    else this.show(found);
  }

  /** Who removed the plant with the searched id. The journal has no index on ids, so not at every keystroke. */
  async findRemoval(): Promise<void> {
    if (this.searchedId === undefined) return;
    const change = await this.source.findLastChange(this.searchedId, this.left.signal);
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
    const page = await this.source.readPage(this.filter, { after, cursor }, limit, this.options);
    this.after = page.next?.after;
    this.cursor = page.next?.cursor;
    this.hasMore = page.next !== undefined;
    return page.plants;
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
    const known = this.find(newer.id);
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
    this.source.onTaken();
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
    const isLoaded = plant.id === this.searchedId || !this.isBeyond(plant);
    if (isLoaded && this.includes(plant)) {
      this.note(plant);
      this.plants.splice(this.placeOf(plant.id), 0, plant);
      this.trim();
    } else if (wasListed) this.gone.set(plant.id, plant);
    this.version.value++;
    if (wasListed && this.plants.length === 0) void this.loadMore();
  }

  private find(id: bigint): TimedPlant | undefined {
    return this.listed.get(id) ?? this.gone.get(id);
  }

  private note(plant: TimedPlant): void {
    this.gone.delete(plant.id);
    this.listed.set(plant.id, plant);
    this.idLength = Math.max(this.idLength, String(plant.id).length);
  }

  private remove(id: bigint): boolean {
    const index = this.indexOf(id);
    if (index === -1) return false;
    const [plant] = this.plants.splice(index, 1);
    this.listed.delete(id);
    if (plant !== undefined) this.gone.set(id, plant);
    const [oldest] = this.gone.size > GONE_MAX ? this.gone.keys() : [];
    if (oldest !== undefined) this.gone.delete(oldest);
    return true;
  }

  /** The view shows rows up to this one. */
  see(rows: number): void {
    this.seen = Math.max(this.seen, rows);
  }

  /** Drops what arrived far below all that was seen or is selected. */
  private trim(): void {
    if (this.plants.length <= this.seen + 2 * ROWS_BELOW_MAX || this.phase.value === "loading")
      return;
    const { ids } = this.selection.value;
    const selected = ids.size === 0 ? -1 : this.plants.findLastIndex(({ id }) => ids.has(id));
    const length = Math.max(this.seen, selected + 1) + ROWS_BELOW_MAX;
    const last = this.plants[length - 1];
    const sort = toSort(this.filter);
    // The plant with the searched id is no place to continue from.
    if (last === undefined || last.id === this.searchedId) return;
    for (const { id } of this.plants.splice(length)) this.listed.delete(id);
    this.after = sort === undefined ? last.id : undefined;
    this.cursor = sort && formatCursor(sort, positionOf(sort, last));
    this.hasMore = true;
    this.phase.value = "ready";
  }

  /** For tests of its memory. */
  get held(): number {
    return this.plants.length + this.listed.size + this.gone.size;
  }

  /** Whether the plant is past the loaded pages. Compares with the cursor, because the last loaded plant may be gone. */
  private isBeyond(plant: TimedPlant): boolean {
    const { after, cursor, filter } = this;
    const sort = toSort(filter);
    if (!this.hasMore) return false;
    if (sort !== undefined) {
      const end = cursor === undefined ? undefined : findCursor(sort, cursor);
      return end === undefined || comparePositions(sort, positionOf(sort, plant), end) > 0;
    }
    if (after === undefined) return true;
    return filter.order === "desc" ? plant.id < after : plant.id > after;
  }

  /** Whether the list is loaded as far as this id. */
  isLoaded(id: bigint): boolean {
    // The place of an unknown plant in a sorted list is not known.
    if (this.filter.sort !== undefined && this.find(id) === undefined) return false;
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
    const plant = this.find(id) ?? { id, name: "" };
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

export const shift = (counted: PlantCount | undefined, by: number): PlantCount | undefined =>
  counted && { ...counted, count: Math.max(0, counted.count + by) };
