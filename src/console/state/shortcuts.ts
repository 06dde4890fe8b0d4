/** Keys that work anywhere, unless somebody is typing. */

import { signal } from "@preact/signals";
import { openPlant, route } from "./route.ts";
import { mayRead, mayWrite, token } from "./session.ts";
import { act, latestAction } from "./toasts.ts";

export const isKeysHelpOpen = signal(false);
/** Set by the panel that is open: what `e` and Delete do to its plant. */
export const panelKeys = signal<Readonly<Partial<Record<string, () => void>>>>({});

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement &&
  (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

export function listenForKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (token.value === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    if (document.querySelector("dialog[open]") !== null) return;
    if (event.key === "Escape" ? leave() : !isTyping(event.target) && press(event.key))
      event.preventDefault();
  });
}

function press(key: string): boolean {
  const undo = key === "u" ? latestAction() : undefined;
  if (undo !== undefined) act(undo);
  else if (key === "?") isKeysHelpOpen.value = true;
  else if (key === "/" && mayRead.value) focusSearch();
  else if (key === "n" && mayWrite.value) openPlant("new");
  else if (panelKeys.value[key] !== undefined) panelKeys.value[key]();
  else return false;
  return true;
}

function focusSearch(): void {
  const search = document.querySelector<HTMLInputElement>("#search");
  search?.focus();
  search?.select();
  if (search !== null || route.value.view === "plants") return;
  // The view has to be there first.
  addEventListener("hashchange", () => requestAnimationFrame(focusSearch), { once: true });
  location.hash = "#/plants";
}

/** One step back: from editing, else from the panel, else from the search to the list. */
function leave(): boolean {
  const back = panelKeys.value["Escape"];
  if (back !== undefined) back();
  else if (document.activeElement?.id === "search") focusList();
  else return false;
  return true;
}

export function focusList(): void {
  document.querySelector<HTMLElement>("#plants")?.focus();
}
