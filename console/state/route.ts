/** The view that is shown, kept in the fragment of the address, so it can be shared. It never holds a token. */

import { signal } from "@preact/signals";
import { type Filter as PlantFilter, filterNames, pickFilter } from "../../src/domain/filter.ts";
import { findPlainInt64 } from "../../src/domain/plant.ts";
import type { Filter } from "../api/plants.ts";
import { keep, recall, trail } from "./storage.ts";

export type Open = bigint | "new" | "deleted" | undefined;

const otherViews = ["import", "activity", "tokens", "webhooks"] as const;

interface Route {
  readonly view: "plants" | (typeof otherViews)[number];
  /** Of the list, also while another view is shown. */
  readonly filter: Filter;
  /** Beside the list. */
  readonly open: Open;
}

export const titleOf = (view: Route["view"]): string =>
  view.charAt(0).toUpperCase() + view.slice(1);

export const everything: Filter = { ...pickFilter({}), order: "asc" };

export const isWhole = (filter: Filter): boolean =>
  filterNames.every((name) => filter[name] === undefined);

export const route = signal<Route>(parseRoute(location.hash));

addEventListener("hashchange", () => {
  keep("sessionStorage", trail.filter, linkTo(undefined));
  route.value = parseRoute(location.hash);
});

function parseRoute(hash: string): Route {
  const [, path = "", query = ""] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash) ?? [];
  const other = otherViews.find((view) => view === path);
  if (other !== undefined) {
    // Other views do not have the filter in their address, and lead back to it.
    const last = (recall("sessionStorage", trail.filter) ?? "") as string;
    return { ...parseRoute(last), view: other, open: undefined };
  }
  const parameters = new URLSearchParams(query);
  const given = filterNames.map((name) => [name, parameters.get(name) ?? undefined]);
  const filter: Filter = {
    ...(Object.fromEntries(given) as PlantFilter),
    order: parameters.get("order") === "desc" ? "desc" : "asc",
  };
  const open = path.replace(/^plants\/?/, "");
  const isNamed = open === "new" || open === "deleted";
  return { view: "plants", filter, open: isNamed ? open : findPlainInt64(open) };
}

/** The link to a plant or a form. */
export function linkTo(open: Open, filter: Filter = route.value.filter): string {
  const query = new URLSearchParams();
  for (const name of filterNames) if (filter[name] !== undefined) query.set(name, filter[name]);
  if (filter.order !== "asc") query.set("order", filter.order);
  return `#/plants${open === undefined ? "" : `/${open}`}${query.size === 0 ? "" : `?${query}`}`;
}

/** At once: the browser reports later that the address has changed. Otherwise it makes no step in the history. */
export function follow(hash: string, isStep = true): void {
  if (isStep && hash !== location.hash) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
  route.value = parseRoute(hash);
}

/** The keys of the list make no step in the history for each plant that they come to. */
export const openPlant = (open: Open, isStep = true): void => follow(linkTo(open), isStep);

/** A search makes one step in the history, not one for every letter. */
export function refine(change: Partial<Filter>): void {
  // As the address has it: the browser may not have reported yet that a link was followed.
  const { view, filter, open } = parseRoute(location.hash);
  if (view !== "plants") return;
  const refined = { ...filter, ...change };
  const isTyped = filter.q !== undefined && change.q !== undefined;
  keepPlace(refined, undefined);
  follow(linkTo(open, refined), !isTyped);
}

const keyOf = (filter: Filter): string => trail.place + linkTo(undefined, filter);

/** The first plant in sight when this list was shown last: Back and a reload lead there again. */
export const findPlace = (filter: Filter): bigint | undefined =>
  findPlainInt64((recall("sessionStorage", keyOf(filter)) ?? "") as string);

/** Undefined is the top. */
export const keepPlace = (filter: Filter, first: bigint | undefined): void =>
  keep("sessionStorage", keyOf(filter), first?.toString());
