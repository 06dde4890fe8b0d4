/** Which view is shown: in the fragment of the address, so that it can be shared, and never with a token in it. */

import { signal } from "@preact/signals";
import { INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import { type Filter, formatFilter } from "../api/plants.ts";

export type Open = bigint | "new" | undefined;

export type Route =
  | { readonly view: "plants"; readonly filter: Filter; readonly open: Open }
  | { readonly view: "import" }
  | { readonly view: "activity" };

export const everything: Filter = { name: undefined, tag: undefined, order: "asc" };

export const route = signal<Route>(parseRoute(location.hash));

addEventListener("hashchange", () => {
  route.value = parseRoute(location.hash);
});

function parseRoute(hash: string): Route {
  const [path = "", query = ""] = split(hash.replace(/^#\/?/, ""));
  if (path === "import" || path === "activity") return { view: path };
  const parameters = new URLSearchParams(query);
  const filter: Filter = {
    name: parameters.get("name") ?? undefined,
    tag: parameters.get("tag") ?? undefined,
    order: parameters.get("order") === "desc" ? "desc" : "asc",
  };
  return { view: "plants", filter, open: parseOpen(path.replace(/^plants\/?/, "")) };
}

function split(text: string): string[] {
  const at = text.indexOf("?");
  return at === -1 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function parseOpen(text: string): Open {
  if (text === "new") return "new";
  if (!/^(0|-?[1-9]\d{0,18})$/.test(text)) return undefined;
  const id = BigInt(text);
  return id >= INT64_MIN && id <= INT64_MAX ? id : undefined;
}

export function formatRoute(to: Route): string {
  if (to.view !== "plants") return `#/${to.view}`;
  const query = formatFilter(to.filter).toString();
  const open = to.open === undefined ? "" : `/${to.open}`;
  return `#/plants${open}${query === "" ? "" : `?${query}`}`;
}

/** The link to a plant, or to the form for one, within the view that is shown. */
export function linkTo(open: Open): string {
  return formatRoute({ view: "plants", filter: currentFilter(), open });
}

export const isOpen = (id: bigint): boolean =>
  route.value.view === "plants" && route.value.open === id;

export function currentFilter(): Filter {
  return route.value.view === "plants" ? route.value.filter : everything;
}

export function openPlant(open: Open): void {
  location.hash = linkTo(open);
}

/** While typing: the address follows, without a step back for every letter. */
export function refine(filter: Filter): void {
  const open = route.value.view === "plants" ? route.value.open : undefined;
  const to: Route = { view: "plants", filter, open };
  history.replaceState(null, "", formatRoute(to));
  route.value = to;
}
