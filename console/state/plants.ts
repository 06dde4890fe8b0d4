/** The list that is shown, and deleting with undo. */

import { batch, computed, effect, signal, untracked } from "@preact/signals";
import type { Change } from "../../client/client.ts";
import { createFilter, type PlantCount } from "../../src/domain/page.ts";
import type { Plant } from "../../src/domain/plant.ts";
import { createPlant, type Filter, removePlant, Taken } from "../api/plants.ts";
import type { Versioned } from "../api/plants.ts";
import { call, explain, isAbort, recoveries } from "../api/service.ts";
import { arrived, gaps, untilFollowing } from "./feed.ts";
import { formatCount, formatName } from "./format.ts";
import { findPlace, linkTo, openPlant, route } from "./route.ts";
import { mayRead, token } from "./session.ts";
import { announce, toast } from "./toasts.ts";

const FIRST_PAGE_LENGTH = 100;
const PAGE_LENGTH = 500;
/** As far as a place is looked for. */
const PLACE_ROWS_MAX = 20_000;

/** Either these plants, or all that match the filter but these. */
interface Selection {
  readonly isAll: boolean;
  readonly ids: ReadonlySet<bigint>;
  /** The plant that was selected last. Its index changes with the list. */
  readonly last?: bigint;
}

/** The plants of one filter, loaded page by page as the list is scrolled. */
class PlantList {
  readonly filter: Filter;
  /** In the order of the list. The array changes in place; `version` changes with it. */
  readonly plants: Plant[] = [];
  readonly version = signal(0);
  readonly phase = signal<"loading" | "ready" | "end" | "failed">("ready");
  readonly failure = signal<unknown>(undefined);
  /** How many match; undefined until they are counted. */
  readonly count = signal<PlantCount | undefined>(undefined);
  /** The plant that the keys have come to. */
  readonly active = signal<bigint | undefined>(undefined);
  readonly selection = signal<Selection>({ isAll: false, ids: new Set() });
  /** The id that the next page starts after. */
  private after: bigint | undefined;
  private hasMore = true;
  /** Changes that came while a page was loading: the page may be older. */
  private late: (() => void)[] = [];
  private readonly left = new AbortController();
  private readonly options = { signal: this.left.signal };

  constructor(filter: Filter) {
    this.filter = filter;
  }

  /** Reads on until there is something new to show, and this id. A search may need many pages for that. */
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

  /** A search does not count all plants with every letter. */
  async readCount(isAgain: boolean): Promise<void> {
    const { q, tag } = this.filter;
    const isWhole = q === undefined && tag === undefined;
    try {
      if (isWhole || isAgain || total.value === undefined)
        total.value = await call((client) => client.countPlants({}, this.options));
      this.count.value = isWhole
        ? total.value
        : await call((client) => client.countPlants({ q, tag }, this.options));
    } catch {
      // The list does without.
    }
  }

  stop(): void {
    this.left.abort();
  }

  /** Shows a plant that was added or changed, if it belongs to the part that is loaded. */
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
    // A list without rows asks for no more of them.
    if (this.plants.length === 0) void this.loadMore();
  }

  /** Whether a later page will have this id. Plants at the end of the last page may be gone by now. */
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

  /** As the service would filter. */
  private includes(plant: Plant): boolean {
    if (this.filter.tag !== undefined && plant.tag !== this.filter.tag) return false;
    return createFilter({ q: this.filter.q })(plant);
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

/** How many plants there are. */
export const total = signal<PlantCount | undefined>(undefined);

/** Another token, another filter or missed changes begin another list. */
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

/** To count takes the service up to a second, so it is not asked for every change. */
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
