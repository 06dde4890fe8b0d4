/** The list that is shown, the tags in use, and deleting with undo. */

import { batch, effect, signal, untracked } from "@preact/signals";
import { takePage } from "../../domain/page.ts";
import type { Plant } from "../../domain/plant.ts";
import {
  createPlant,
  type Filter,
  readTags,
  removePlant,
  Taken,
  type Versioned,
} from "../api/plants.ts";
import { call, explain, isAbort, recoveries } from "../api/service.ts";
import { arrived, gaps, untilFollowing } from "./feed.ts";
import { formatCount, formatName } from "./format.ts";
import { everything, findPlace, keyOf, openPlant, route } from "./route.ts";
import { mayRead, token } from "./session.ts";
import { announce, toast } from "./toasts.ts";

const FIRST_PAGE_LENGTH = 100;
const PAGE_LENGTH = 500;
/** Browsers cannot draw a taller list. */
export const LOADED_MAX = 300_000;
/** As far as a place is looked for. */
const PLACE_ROWS_MAX = 20_000;

/** The plants of one filter, loaded page by page as the list is scrolled. */
class PlantList {
  readonly filter: Filter;
  /** In the order of the list. The array changes in place; `version` changes with it. */
  readonly plants: Plant[] = [];
  readonly version = signal(0);
  readonly phase = signal<"loading" | "ready" | "end" | "full" | "stopped" | "failed">("ready");
  readonly failure = signal<unknown>(undefined);
  /** How far a search has got. */
  readonly passed = signal<bigint | undefined>(undefined);
  /** The plant that the keys have come to. */
  readonly active = signal<bigint | undefined>(undefined);
  /** The id that the next page starts after. */
  private after: bigint | undefined;
  private hasMore = true;
  private loading: AbortController | undefined;

  constructor(filter: Filter) {
    this.filter = filter;
  }

  /** Reads on until there is something new to show. A search may need many pages for that. */
  async loadMore(): Promise<void> {
    if (this.loading !== undefined || !this.hasMore) return;
    if (this.plants.length >= LOADED_MAX) {
      this.phase.value = "full";
      return;
    }
    const controller = new AbortController();
    this.loading = controller;
    this.phase.value = "loading";
    const wanted = this.plants.length + FIRST_PAGE_LENGTH;
    try {
      while (this.hasMore && this.plants.length < wanted) await this.loadPage(controller.signal);
      this.phase.value = this.hasMore ? "ready" : "end";
    } catch (error) {
      if (isAbort(error)) return;
      this.failure.value = error;
      this.phase.value = "failed";
    } finally {
      if (this.loading === controller) this.loading = undefined;
    }
  }

  private async loadPage(signalOff: AbortSignal): Promise<void> {
    const limit = this.after === undefined ? FIRST_PAGE_LENGTH : PAGE_LENGTH;
    const query = { ...this.filter, after: this.after, limit };
    const { plants, next } = await call((client) => client.listPage(query, { signal: signalOff }));
    for (const plant of plants) this.plants.push(plant);
    this.after = next;
    this.hasMore = next !== undefined;
    if (this.filter.name !== undefined) this.passed.value = next;
    if (plants.length > 0) this.version.value++;
  }

  stop(): void {
    this.loading?.abort();
    this.loading = undefined;
    if (this.phase.value === "loading") this.phase.value = "stopped";
  }

  /** Reads on until this id is reached. */
  async loadUntil(id: bigint): Promise<void> {
    do await this.loadMore();
    while (
      this.phase.value === "ready" &&
      this.plants.length < PLACE_ROWS_MAX &&
      this.placeOf(id) === this.plants.length
    );
  }

  /** Shows a plant that was added or changed, if it belongs to the part that is loaded. */
  put(plant: Plant): void {
    const index = this.placeOf(plant.id);
    const isThere = this.plants[index]?.id === plant.id;
    const isBeyond = index === this.plants.length && this.hasMore;
    if (!this.includes(plant)) {
      if (isThere) this.plants.splice(index, 1);
    } else if (isThere) this.plants[index] = plant;
    else if (!isBeyond) this.plants.splice(index, 0, plant);
    this.version.value++;
  }

  take(id: bigint): void {
    const index = this.indexOf(id);
    if (index === -1) return;
    this.plants.splice(index, 1);
    this.version.value++;
  }

  indexOf(id: bigint): number {
    const index = this.placeOf(id);
    return this.plants[index]?.id === id ? index : -1;
  }

  /** As the service would filter. */
  private includes(plant: Plant): boolean {
    if (this.filter.tag !== undefined && plant.tag !== this.filter.tag) return false;
    const query = { ...this.filter, after: undefined, limit: 1 };
    return takePage([plant], query, 1).plants.length === 1;
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

export const list = signal(new PlantList(everything));

async function show(next: PlantList, place?: bigint): Promise<void> {
  list.value.stop();
  list.value = next;
  await untilFollowing();
  if (place === undefined) await next.loadMore();
  else await next.loadUntil(place);
  const { phase, plants } = next;
  if (list.value !== next || phase.value === "failed") return;
  const count = plants.length === 0 ? "No plants" : formatCount(plants.length, "plant");
  announce(`${count}${phase.value === "end" ? "" : " and more"}.`);
}

export const refresh = (): Promise<void> =>
  show(new PlantList(list.value.filter), findPlace(list.value.filter));

let shownFor = "";

/** Shows another list when the filter or the token changes. Other views leave it as it is. */
export function startLists(): void {
  effect(() => {
    const current = route.value;
    if (token.value === undefined) {
      shownFor = "";
      untracked(() => {
        list.value.stop();
        list.value = new PlantList(everything);
      });
      return;
    }
    if (!mayRead.value || current.view !== "plants") return;
    const key = token.value + keyOf(current.filter);
    if (key === shownFor) return;
    shownFor = key;
    untracked(() => void show(new PlantList(current.filter), findPlace(current.filter)));
  });
  effect(() => {
    const changes = arrived.value;
    untracked(() =>
      batch(() => {
        for (const { id, plant } of changes) {
          if (plant === undefined) list.value.take(id);
          else list.value.put({ id, name: plant.name, tag: plant.tag });
          noteTag(plant?.tag);
        }
      }),
    );
  });
  effect(() => {
    if (gaps.value > 0) untracked(() => void refresh());
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

const TAGS_AT_ONCE = 1000;
const SUGGESTIONS_MAX = 50;

/** The first tags in use; `isAll` if there are no others. */
let known: { readonly tags: readonly string[]; readonly isAll: boolean } | undefined;

export function noteTag(tag: string | undefined): void {
  if (tag === undefined || known === undefined || known.tags.includes(tag)) return;
  known = { ...known, tags: [...known.tags, tag].toSorted() };
}

export function forgetTags(): void {
  known = undefined;
}

/** Searches anywhere in a tag if all tags are known; otherwise the service searches by prefix. */
export async function suggestTags(text: string, signalOff: AbortSignal): Promise<string[]> {
  const { tags, isAll } = (known ??= await readTags("", TAGS_AT_ONCE, signalOff));
  const part = text.toUpperCase();
  const local = tags.filter((tag) => tag.toUpperCase().includes(part));
  if (isAll || text === "") return local.slice(0, SUGGESTIONS_MAX);
  const found = await readTags(text, SUGGESTIONS_MAX, signalOff);
  return [...new Set([...found.tags, ...local])].slice(0, SUGGESTIONS_MAX);
}
