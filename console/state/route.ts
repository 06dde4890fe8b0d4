/** The current view. It is in the URL fragment, so a link can be shared, and never contains a token. */

import { signal } from "@preact/signals";
import { type ChangeType, changeTypes } from "../../src/domain/change.ts";
import { type Filter, filterNames, filters, pickFilter } from "../../src/domain/filter.ts";
import { findPlainInt64 } from "../../src/domain/json.ts";
import { sortNames } from "../../src/domain/page.ts";
import { findTimeMs } from "../../src/domain/time.ts";
import type { ListFilter } from "../api/plants.ts";
import { whenLeft } from "./person.ts";
import { keep, recall, trail } from "./storage.ts";

export type Open = bigint | "new" | undefined;

const otherViews = ["overview", "import", "changes", "health", "tokens", "webhooks"] as const;

/** Which changes are shown. */
export interface ChangeFilter {
  readonly by?: string | undefined;
  readonly batch?: string | undefined;
  readonly id?: bigint | undefined;
  readonly type?: ChangeType | undefined;
  /** Times in ISO 8601, inclusive. */
  readonly from?: string | undefined;
  readonly to?: string | undefined;
}

interface Route {
  readonly view: "plants" | (typeof otherViews)[number];
  /** The filter of the list, even while another view is shown. */
  readonly filter: ListFilter;
  /** The panel beside the list. */
  readonly open: Open;
  readonly changes: ChangeFilter;
}

export const everything: ListFilter = { ...pickFilter({}), order: "asc" };

export const isWhole = (filter: ListFilter): boolean =>
  filterNames.every((name) => filter[name] === undefined);

export const route = signal<Route>(parseRoute(""));

export function startRoute(): void {
  route.value = parseRoute(location.hash);
  addEventListener("hashchange", () => {
    keep("sessionStorage", trail.filter, linkTo(undefined));
    route.value = parseRoute(location.hash);
  });
}

function parseRoute(hash: string): Route {
  const [, path = "", query = ""] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash) ?? [];
  const other = otherViews.find((view) => view === path);
  if (other !== undefined) {
    // The URLs of other views do not contain the filter, which is restored on return.
    const last = (recall("sessionStorage", trail.filter) ?? "") as string;
    const changes = other === "changes" ? parseChangeFilter(query) : {};
    return { ...parseRoute(last), view: other, open: undefined, changes };
  }
  const parameters = new URLSearchParams(query);
  const pairs = filterNames.map((name) => {
    const text = parameters.get(name) ?? undefined;
    const { isFlag, find } = filters[name];
    // A text is kept as it is: the service says what is wrong with it.
    return [name, isFlag ? find(text ?? "") : text];
  });
  const filter: ListFilter = {
    ...(Object.fromEntries(pairs) as Filter),
    order: parameters.get("order") === "desc" ? "desc" : "asc",
    sort: sortNames.find((sort) => sort === parameters.get("sort")),
  };
  const open = path.replace(/^plants\/?/, "");
  const opened = open === "new" ? open : findPlainInt64(open);
  return { view: "plants", filter, open: opened, changes: {} };
}

function parseChangeFilter(query: string): ChangeFilter {
  const parameters = new URLSearchParams(query);
  const find = (name: string): string | undefined => parameters.get(name) ?? undefined;
  const findTime = (name: string): string | undefined =>
    findTimeMs(find(name) ?? "") === undefined ? undefined : find(name);
  return {
    by: find("by"),
    batch: find("batch"),
    id: findPlainInt64(find("id") ?? ""),
    type: changeTypes.find((type) => type === find("type")),
    from: findTime("from"),
    to: findTime("to"),
  };
}

export function linkToChanges(filter: ChangeFilter): string {
  const pairs = Object.entries(filter).filter(([, value]) => value !== undefined);
  const query = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)]));
  return `#/changes${query.size === 0 ? "" : `?${query}`}`;
}

/** The link to a plant or a form. */
export function linkTo(open: Open, filter: ListFilter = route.value.filter): string {
  const query = new URLSearchParams();
  for (const name of filterNames)
    if (filter[name] !== undefined) query.set(name, String(filter[name]));
  if (filter.sort !== undefined) query.set("sort", filter.sort);
  if (filter.order !== "asc") query.set("order", filter.order);
  return `#/plants${open === undefined ? "" : `/${open}`}${query.size === 0 ? "" : `?${query}`}`;
}

/** Updates the route at once, before `hashchange` fires. Without `isStep`, no history entry is added. */
export function follow(hash: string, isStep = true): void {
  if (isStep && hash !== location.hash) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
  route.value = parseRoute(hash);
}

// Without the filter that another view would return to: the tab has forgotten it by now.
whenLeft(() => follow(location.hash, false));

/** Moving through the list by keyboard adds no history entries. */
export const openPlant = (open: Open, isStep = true): void => follow(linkTo(open), isStep);

/** A search adds one history entry, not one per keystroke. */
export function refine(change: Partial<ListFilter>): void {
  // From the URL, because `hashchange` for a followed link may not have fired yet.
  const { view, filter, open } = parseRoute(location.hash);
  if (view !== "plants") return;
  const refined = { ...filter, ...change };
  const isTyped = filter.q !== undefined && change.q !== undefined;
  keepPlace(refined, undefined);
  follow(linkTo(open, refined), !isTyped);
}

const keyOf = (filter: ListFilter): string => trail.place + linkTo(undefined, filter);

/** The first visible plant when this list was last shown: Back and a reload scroll there. */
export const findPlace = (filter: ListFilter): bigint | undefined =>
  findPlainInt64((recall("sessionStorage", keyOf(filter)) ?? "") as string);

/** Undefined is the top. */
export const keepPlace = (filter: ListFilter, first: bigint | undefined): void =>
  keep("sessionStorage", keyOf(filter), first?.toString());
