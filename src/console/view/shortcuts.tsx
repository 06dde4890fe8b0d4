/** Keyboard shortcuts, and the dialog that lists them. */

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { hasShortcuts, setShortcuts } from "../state/storage.ts";
import { everything, openPlant, refine, route } from "../state/route.ts";
import { hasSelection, selectAll } from "../state/selection.ts";
import { mayRead, mayWrite, token } from "../state/session.ts";
import { act, toasts } from "../state/toasts.ts";
import { Check, Terms } from "./controls.tsx";
import { Dialog } from "./manage.tsx";

export const isShortcutsOpen = signal(false);
/** What keys do in the open panel. */
export const panelKeys = signal<Readonly<Partial<Record<string, () => void>>>>({});

export const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement &&
  (target.isContentEditable || target.matches("input:not([type=checkbox]), textarea, select"));

export function listenForKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (token.value === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    // The key is for the input method.
    if (event.isComposing) return;
    if (document.querySelector("dialog[open], :popover-open") !== null) return;
    if (event.key === "Escape" ? leave() : !isTyping(event.target) && press(event.key))
      event.preventDefault();
  });
}

function press(key: string): boolean {
  if (key.length === 1 && !hasShortcuts.value) return false;
  const undo =
    key === "u" ? toasts.value.findLast(({ action }) => action !== undefined) : undefined;
  if (undo !== undefined) act(undo);
  else if (key === "?") isShortcutsOpen.value = true;
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
  refine(everything);
  // The list is drawn by then.
  queueMicrotask(focusSearch);
}

/** One step back: from editing, from the panel, or from the search to the list. */
function leave(): boolean {
  const back = panelKeys.value["Escape"];
  if (back !== undefined) back();
  else if (document.activeElement?.id === "search") focusList();
  else if (hasSelection.value) selectAll(false);
  else return false;
  return true;
}

export function focusList(): void {
  document.querySelector<HTMLElement>("#plants")?.focus();
}

const editing = [mayRead, mayWrite];

const shortcuts: readonly (readonly [keys: string[], does: string, needs: typeof editing])[] = [
  [["/"], "Search", [mayRead]],
  [["↑", "↓"], "Move in the list", [mayRead]],
  [["Page ↑", "Page ↓"], "Move one screen", [mayRead]],
  [["Home", "End"], "First or last loaded plant", [mayRead]],
  [["Enter"], "Open the plant", [mayRead]],
  [["Space"], "Select the plant, with Shift all up to it", [mayRead]],
  [["n"], "Add a plant", [mayWrite]],
  [["e"], "Edit the open plant", editing],
  [["Delete"], "Delete the open plant", editing],
  [["u"], "Undo", editing],
  [["Esc"], "Close, or go back one step", []],
  [["?"], "Show this help", []],
];

export function Shortcuts(): JSX.Element | null {
  if (!isShortcutsOpen.value) return null;
  return (
    <Dialog title="Keyboard shortcuts" onClose={() => (isShortcutsOpen.value = false)}>
      <Terms
        class="facts"
        of={shortcuts
          .filter(([, , needs]) => needs.every(({ value }) => value))
          .map(([keys, does]) => [keys.map((key) => <kbd key={key}>{key}</kbd>), does])}
      />
      <Check isOn={hasShortcuts.value} onChange={setShortcuts}>
        Use single-key shortcuts
      </Check>
    </Dialog>
  );
}
