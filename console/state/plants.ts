/** The list on screen, and deletion with undo. */

import { batch, computed, effect, signal, untracked } from "@preact/signals";
import type { Change } from "../../client/client.ts";
import { createFilter, pickFilter } from "../../src/domain/filter.ts";
import type { PlantCount } from "../../src/domain/page.ts";
import type { Plant } from "../../src/domain/plant.ts";
import { createPlant, type ListFilter, removePlant, Taken } from "../api/plants.ts";
import type { Versioned } from "../api/plants.ts";
import { call, explain, isAbort, recoveries } from "../api/service.ts";
import { arrived, gaps, untilFollowing } from "./feed.ts";
import { formatCount, formatName } from "./format.ts";
import { findPlace, isWhole, linkTo, openPlant, route } from "./route.ts";
import { mayRead, token } from "./session.ts";
import { announce, toast } from "./toasts.ts";

const FIRST_PAGE_LENGTH = 100;
const PAGE_LENGTH = 500;
/** The scroll position is restored within this many rows. */
const PLACE_ROWS_MAX = 20_000;

/** Either these plants, or all that match the filter except these. */
interface Selection {
  readonly isAll: boolean;
  readonly ids: ReadonlySet<bigint>;
  /** The plant that was selected last, by id because indexes shift. */
  readonly last?: bigint;
}

/** The plants of one filter, loaded page by page as the list is scrolled. */
class PlantList {
  readonly filter: ListFilter;
  /** In the order of the list. The array changes in place; `version` changes with it. */
  readonly plants: Plant[] = [];
  readonly version = signal(0);
  readonly phase = signal<"loading" | "ready" | "end" | "failed">("ready");
  readonly failure = signal<unknown>(undefined);
  /** The number of matches; undefined until it is known. */
  readonly count = signal<PlantCount | undefined>(undefined);
  /** The plant with the keyboard cursor. */
  readonly active = signal<bigint | undefined>(undefined);
  readonly selection = signal<Selection>({ isAll: false, ids: new Set() });
  /** The cursor of the next page. */
  private after: bigint | undefined;
  private hasMore = true;
  /** Changes that arrived while a page was loading. They are applied again, because the page may be older. */
  private late: (() => void)[] = [];
  private readonly left = new AbortController();
  private readonly options = { signal: this.left.signal };

  constructor(filter: ListFilter) {
    this.filter = filter;
  }

  /** Loads pages until 100 more rows and this id are loaded. A search may need many pages. */
  async loadMore(until?: bigint): Promise<void> {
    if (this.phase.value === "loading" || !this.hasMore) return;
    this.phase.value = "loading";
    const wanted = this.plants.length + FIRST_PAGE_LENGTH;
    const isReached = (): boolean =>
      until === undefined || this.isLoaded(until) || this.plants.length > PLACE_ROWS_MAX;
    try {
      while (this.hasMore && !(this.plants.length >= wanted && isReached())) await this.loadPage();
      this.phase.value = this.hasMore ? "ready" : "end";
    } catch (error) {
      if (isAbort(error)) return;
      this.failure.value = error;
      this.phase.value = "failed";
    } finally {
      for (const change of this.late.splice(0)) change();
    }
  }

  private async loadPage(): Promise<void> {
    const limit = this.after === undefined ? FIRST_PAGE_LENGTH : PAGE_LENGTH;
    const query = { ...this.filter, after: this.after, limit };
    const { plants, next } = await call((client) => client.listPage(query, this.options));
    for (const plant of plants) this.plants.push(plant);
    this.after = next;
    this.hasMore = next !== undefined;
    if (plants.length > 0) this.version.value++;
  }

  /** Reuses the total unless `isAgain`: a search must not recount all plants at every keystroke. */
  async readCount(isAgain: boolean): Promise<void> {
    const isAll = isWhole(this.filter);
    try {
      if (isAll || isAgain || total.value === undefined)
        total.value = await call((client) => client.countPlants({}, this.options));
      this.count.value = isAll
        ? total.value
        : await call((client) => client.countPlants(pickFilter(this.filter), this.options));
    } catch {
      // The list works without counts.
    }
  }

  stop(): void {
    this.left.abort();
  }

  /** Shows a plant that was added or changed, if it belongs to the loaded part. */
  put(plant: Plant): void {
    if (!this.includes(plant)) return this.take(plant.id);
    if (this.phase.value === "loading") this.late.push(() => this.put(plant));
    const index = this.placeOf(plant.id);
    if (this.plants[index]?.id === plant.id) this.plants[index] = plant;
    else if (!this.isBeyond(plant.id)) this.plants.splice(index, 0, plant);
    this.version.value++;
  }

  /** The plant is gone, or no longer matches. */
  take(id: bigint): void {
    if (this.phase.value === "loading") this.late.push(() => this.take(id));
    const index = this.indexOf(id);
    if (index === -1) return;
    this.plants.splice(index, 1);
    this.version.value++;
    // An empty list has nothing to scroll, so it would load no more.
    if (this.plants.length === 0) void this.loadMore();
  }

  /** Whether the id is past the loaded pages. Compares with the cursor, because the last loaded plant may be gone. */
  private isBeyond(id: bigint): boolean {
    const { after } = this;
    if (!this.hasMore || after === undefined) return this.hasMore;
    return this.filter.order === "desc" ? id < after : id > after;
  }

  /** Whether the list is loaded as far as this id. */
  isLoaded(id: bigint): boolean {
    return this.placeOf(id) < this.plants.length;
  }

  indexOf(id: bigint): number {
    const index = this.placeOf(id);
    return this.plants[index]?.id === id ? index : -1;
  }

  /** The filter of the service. */
  private includes(plant: Plant): boolean {
    return createFilter(this.filter)(plant);
  }

  /** The index that the id has, or would have. */
  placeOf(id: bigint): number {
    const isDescending = this.filter.order === "desc";
    let low = 0;
    let high = this.plants.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const other = this.plants[middle]?.id ?? 0n;
      if (isDescending ? other > id : other < id) low = middle + 1;
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
  const shown = plants.length === 0 ? "No plants" : formatCount(plants.length, "plant");
  announce(`${shown}${phase.value === "end" ? "" : " and more"}.`);
}

/** Counting takes the service up to a second, so recounts are throttled. */
const COUNT_MS = 5_000;
let counting: ReturnType<typeof setTimeout> | undefined;

function apply({ id, plant }: Change): void {
  if (plant === undefined) list.value.take(id);
  else list.value.put({ id, name: plant.name, tag: plant.tag });
  counting ??= setTimeout(() => {
    counting = undefined;
    if (token.value !== undefined) void list.value.readCount(true);
  }, COUNT_MS);
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
  toast(`Deleted ${formatName(plant)}.`, { label: "Undo", run: () => void restore(plant) });
}

export async function restore(plant: Plant): Promise<void> {
  try {
    await createPlant(plant);
  } catch (error) {
    const again = { label: "Try again", isNeeded: true, run: () => void restore(plant) };
    if (error instanceof Taken) toast(`Not restored: another plant now has id ${plant.id}.`);
    else toast(`Couldn't restore ${formatName(plant)}. ${explain(error)}`, again);
    return;
  }
  list.value.put(plant);
  toast(`Restored ${formatName(plant)}.`);
  const isFree = route.value.view === "plants" && route.value.open === undefined;
  if (mayRead.value && isFree) openPlant(plant.id);
}
