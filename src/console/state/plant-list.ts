/** The plants of one filter, loaded page by page as they are looked at. */

import { signal } from "@preact/signals";
import { takePage } from "../../domain/page.ts";
import type { Plant } from "../../domain/plant.ts";
import { type Filter, firstPage, readPage } from "../api/plants.ts";
import { isAbort } from "../api/service.ts";

const FIRST_PAGE_LENGTH = 100;
const PAGE_LENGTH = 500;
/** Browsers cannot draw a taller list; nobody scrolls that far. */
export const LOADED_MAX = 300_000;

export type Phase = "loading" | "ready" | "end" | "full" | "stopped" | "failed";

export class PlantList {
  readonly filter: Filter;
  /** In key order. Grows in place: `version` tells when. */
  readonly plants: Plant[] = [];
  readonly version = signal(0);
  readonly phase = signal<Phase>("ready");
  readonly failure = signal<unknown>(undefined);
  /** How far a search has got that finds little. */
  readonly passed = signal<bigint | undefined>(undefined);
  readonly active = signal(-1);
  private next: string | undefined;
  private loading: AbortController | undefined;

  constructor(filter: Filter) {
    this.filter = filter;
    this.next = firstPage(filter, FIRST_PAGE_LENGTH);
  }

  /** Reads on until there is something new to see. A search may have to look at many pages for that. */
  async loadMore(): Promise<void> {
    if (this.loading !== undefined || this.next === undefined) return;
    if (this.plants.length >= LOADED_MAX) {
      this.phase.value = "full";
      return;
    }
    const controller = new AbortController();
    this.loading = controller;
    this.phase.value = "loading";
    const wanted = this.plants.length + FIRST_PAGE_LENGTH;
    try {
      while (this.next !== undefined && this.plants.length < wanted)
        await this.loadPage(this.next, controller.signal);
      this.phase.value = this.next === undefined ? "end" : "ready";
      if (this.next === undefined) this.passed.value = undefined;
    } catch (error) {
      if (isAbort(error)) return;
      this.failure.value = error;
      this.phase.value = "failed";
    } finally {
      if (this.loading === controller) this.loading = undefined;
    }
  }

  private async loadPage(path: string, signalOff: AbortSignal): Promise<void> {
    const page = await readPage(path, signalOff);
    for (const plant of page.plants) this.plants.push(plant);
    this.next = page.next?.replace(/([?&])limit=\d+/, `$1limit=${PAGE_LENGTH}`);
    if (this.filter.name !== undefined) this.passed.value = page.passed;
    if (page.plants.length > 0) this.version.value++;
  }

  /** Whatever is on its way is not waited for any longer. */
  stop(): void {
    this.loading?.abort();
    this.loading = undefined;
    if (this.phase.value === "loading") this.phase.value = "stopped";
  }

  /** A plant that was added or changed takes its place, if it is part of what has been loaded. */
  put(plant: Plant): void {
    const index = this.placeOf(plant.id);
    const isThere = this.plants[index]?.id === plant.id;
    const isBeyond = index === this.plants.length && this.next !== undefined;
    if (!this.includes(plant)) {
      if (isThere) this.plants.splice(index, 1);
    } else if (isThere) this.plants[index] = plant;
    else if (!isBeyond) {
      this.plants.splice(index, 0, plant);
      if (this.active.value >= index) this.active.value++;
    }
    this.version.value++;
  }

  take(id: bigint): void {
    const index = this.placeOf(id);
    if (this.plants[index]?.id !== id) return;
    this.plants.splice(index, 1);
    if (this.active.value >= this.plants.length) this.active.value = this.plants.length - 1;
    this.version.value++;
  }

  indexOf(id: bigint): number {
    const index = this.placeOf(id);
    return this.plants[index]?.id === id ? index : -1;
  }

  private includes(plant: Plant): boolean {
    const { name, tag, order } = this.filter;
    if (tag !== undefined && plant.tag !== tag) return false;
    // The service's own way of comparing names.
    const query = { name, tag, order, after: undefined, limit: 1 };
    return takePage([plant], query, 1).plants.length === 1;
  }

  /** The index that the id has, or would have. */
  private placeOf(id: bigint): number {
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
