/** The view that is shown, kept in the fragment of the address, so it can be shared. It never holds a token. */

import { signal } from "@preact/signals";
import { findPlainInt64 } from "../../domain/json.ts";
import type { Filter } from "../api/plants.ts";

export type Open = bigint | "new" | undefined;

type Route =
  | { readonly view: "plants"; readonly filter: Filter; readonly open: Open }
  | { readonly view: "import" }
  | { readonly view: "activity" };

export const everything: Filter = { name: undefined, tag: undefined, order: "asc" };

export const route = signal<Route>(parseRoute(location.hash));

addEventListener("hashchange", () => {
  route.value = parseRoute(location.hash);
});

function parseRoute(hash: string): Route {
  const [, path = "", query = ""] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash) ?? [];
  if (path === "import" || path === "activity") return { view: path };
  const parameters = new URLSearchParams(query);
  const filter: Filter = {
    name: parameters.get("name") ?? undefined,
    tag: parameters.get("tag") ?? undefined,
    order: parameters.get("order") === "desc" ? "desc" : "asc",
  };
  const open = path.replace(/^plants\/?/, "");
  return { view: "plants", filter, open: open === "new" ? "new" : findPlainInt64(open) };
}

/** The link to a plant, or to the form for a new one, with the current filter. */
export const linkTo = (open: Open): string => formatPlants(currentFilter(), open);

function formatPlants({ name, tag, order }: Filter, open: Open): string {
  const query = new URLSearchParams();
  if (name !== undefined) query.set("name", name);
  if (tag !== undefined) query.set("tag", tag);
  if (order !== "asc") query.set("order", order);
  return `#/plants${open === undefined ? "" : `/${open}`}${query.size === 0 ? "" : `?${query}`}`;
}

export const isOpen = (id: bigint): boolean =>
  route.value.view === "plants" && route.value.open === id;

export const currentFilter = (): Filter =>
  route.value.view === "plants" ? route.value.filter : everything;

export function openPlant(open: Open): void {
  location.hash = linkTo(open);
}

/** Changes the filter without a step in the history: a search would add one for every letter. */
export function refine(change: Partial<Filter>): void {
  const filter = { ...currentFilter(), ...change };
  const open = route.value.view === "plants" ? route.value.open : undefined;
  history.replaceState(null, "", formatPlants(filter, open));
  route.value = { view: "plants", filter, open };
}
