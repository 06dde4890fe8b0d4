/** The view that is shown, kept in the fragment of the address, so it can be shared. It never holds a token. */

import { signal } from "@preact/signals";
import { findPlainInt64 } from "../../domain/json.ts";
import type { Filter } from "../api/plants.ts";
import { keep, recall, trail } from "./storage.ts";

export type Open = bigint | "new" | "deleted" | undefined;

type Route =
  | { readonly view: "plants"; readonly filter: Filter; readonly open: Open }
  | { readonly view: OtherView };

const otherViews = ["import", "activity", "tokens", "webhooks"] as const;
type OtherView = (typeof otherViews)[number];

export const titleOf = (view: Route["view"]): string =>
  view.charAt(0).toUpperCase() + view.slice(1);

export const everything: Filter = { q: undefined, tag: undefined, order: "asc" };

export const route = signal<Route>(parseRoute(location.hash));

addEventListener("hashchange", () => {
  // Other views do not have the filter in their address, and lead back to it.
  keep("sessionStorage", trail.filter, linkTo(undefined));
  route.value = parseRoute(location.hash);
});

function parseRoute(hash: string): Route {
  const [, path = "", query = ""] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash) ?? [];
  const other = otherViews.find((view) => view === path);
  if (other !== undefined) return { view: other };
  const parameters = new URLSearchParams(query);
  const filter: Filter = {
    q: parameters.get("q") ?? undefined,
    tag: parameters.get("tag") ?? undefined,
    order: parameters.get("order") === "desc" ? "desc" : "asc",
  };
  const open = path.replace(/^plants\/?/, "");
  const isNamed = open === "new" || open === "deleted";
  return { view: "plants", filter, open: isNamed ? open : findPlainInt64(open) };
}

/** The link to a plant or a form, with the current filter, or with a change of it. */
export const linkTo = (open: Open, change: Partial<Filter> = {}): string =>
  formatPlants({ ...currentFilter(), ...change }, open);

function formatPlants({ q, tag, order }: Filter, open: Open): string {
  const query = new URLSearchParams();
  if (q !== undefined) query.set("q", q);
  if (tag !== undefined) query.set("tag", tag);
  if (order !== "asc") query.set("order", order);
  return `#/plants${open === undefined ? "" : `/${open}`}${query.size === 0 ? "" : `?${query}`}`;
}

export const isOpen = (id: bigint): boolean =>
  route.value.view === "plants" && route.value.open === id;

/** Of the list, also while another view is shown. */
export function currentFilter(): Filter {
  if (route.value.view === "plants") return route.value.filter;
  const last = parseRoute((recall("sessionStorage", trail.filter) ?? "") as string);
  return last.view === "plants" ? last.filter : everything;
}

/** At once: the browser reports later that the address has changed. Otherwise it makes no step in the history. */
export function follow(hash: string, isStep = true): void {
  if (isStep && hash !== location.hash) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
  route.value = parseRoute(hash);
}

export const openPlant = (open: Open): void => follow(linkTo(open));

/** Shows the plant that the keys of the list have come to, without a step in the history for each. */
export const walkTo = (id: bigint): void => follow(linkTo(id), false);

/** A search makes one step in the history, not one for every letter. */
export function refine(change: Partial<Filter>): void {
  const before = currentFilter();
  const open = route.value.view === "plants" ? route.value.open : undefined;
  const isTyped = before.q !== undefined && change.q !== undefined;
  keepPlace({ ...before, ...change }, undefined);
  follow(linkTo(open, change), !isTyped);
}

export const keyOf = (filter: Filter): string => formatPlants(filter, undefined);

/** The first plant in sight when this list was shown last: Back and a reload lead there again. */
export const findPlace = (filter: Filter): bigint | undefined =>
  findPlainInt64((recall("sessionStorage", trail.place + keyOf(filter)) ?? "") as string);

/** Undefined is the top. */
export const keepPlace = (filter: Filter, first: bigint | undefined): void =>
  keep("sessionStorage", trail.place + keyOf(filter), first?.toString());
