/** Keyboard shortcuts, and the dialog that lists them. */

import type { JSX } from "preact";
import { Modal } from "../state/dialog.ts";
import { hasShortcuts, setShortcuts } from "../state/storage.ts";
import { follow, linkTo, route } from "../state/route.ts";
import { mayRead, token } from "../state/session.ts";
import { t } from "../text/text.ts";
import { Check, Terms } from "./controls.tsx";
import { selectField } from "./form.tsx";
import { Dialog } from "./manage.tsx";

export const shortcutList = new Modal<object>();

/** Into a text field. */
export const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement &&
  (target.isContentEditable ||
    target.matches("input:not([type=checkbox], [type=range]), textarea"));

export function listenForKeys(): void {
  document.addEventListener("keydown", (event) => {
    const { key } = event;
    if (token.value === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    // The key belongs to the input method (IME).
    if (event.isComposing) return;
    if (document.querySelector("dialog[open]") !== null) return;
    if (key !== "Escape" && isTyping(event.target)) return;
    if (/^[-\d]$/.test(key) && hasShortcuts.value && mayRead.value) return search();
    // Letters choose an option.
    if (key !== "Escape" && event.target instanceof HTMLSelectElement) return;
    if (document.querySelector(":popover-open") !== null) return;
    if ((key.length > 1 || hasShortcuts.value) && press(key)) event.preventDefault();
  });
}

/** Browsers move the focus to the body if its element is removed or disabled. The next key would be lost there. */
export function keepFocus(): void {
  let last: HTMLElement | undefined;
  let isInPanel = false;
  /** Since it had the focus. */
  let wasDisabled = false;
  document.addEventListener("focusin", ({ target }) => {
    last = target as HTMLElement;
    isInPanel = last.closest(".panel") !== null;
    wasDisabled = false;
  });
  new MutationObserver(() => {
    const isDisabled = last?.matches(":disabled") === true;
    wasDisabled ||= isDisabled;
    if (document.activeElement !== document.body || last === undefined) return;
    if (last.isConnected && !isDisabled) {
      if (wasDisabled) last.focus();
      return;
    }
    // A dialog makes the rest of the page inert.
    const dialogTitle = document.querySelector<HTMLElement>("#dialog-title");
    const title =
      dialogTitle ?? (isInPanel ? document.querySelector<HTMLElement>("#panel-title") : null);
    if (title === null) focusList();
    else title.focus({ preventScroll: true });
  }).observe(document.body, { childList: true, subtree: true, attributeFilter: ["disabled"] });
}

/** Activates the element that has this shortcut. The last one wins: the panel, the newest toast. */
function press(key: string): boolean {
  const all = [...document.querySelectorAll<HTMLElement>("[aria-keyshortcuts]")];
  const part = all.findLast((each) => each.getAttribute("aria-keyshortcuts") === key);
  if (part === undefined) return false;
  if (part instanceof HTMLInputElement) selectField(part);
  // At once, because the next key may come before `hashchange` fires.
  else if (part instanceof HTMLAnchorElement) follow(part.hash);
  else {
    // Tab leads from its button into a menu.
    if (part.hasAttribute("popovertarget")) part.focus();
    part.click();
  }
  if (key === "/") selectSearch();
  return true;
}

/** The search box is rendered by then, and the key that was pressed goes into it. */
export const selectSearch = (): void =>
  queueMicrotask(() => selectField(document.querySelector("#search")));

/** A scanner types an id, wherever the focus is. */
function search(): void {
  document.querySelector<HTMLElement>(":popover-open")?.hidePopover();
  // On a phone the panel covers the search box.
  const isCovered = matchMedia("(width < 60rem)").matches;
  if (isCovered || route.value.view !== "plants") follow(linkTo(undefined));
  selectSearch();
}

/** An empty list has no grid. */
export function focusList(): void {
  document.querySelector<HTMLElement>("#plants, #main:not(:has(#plants))")?.focus();
}

const shortcuts: readonly (readonly [keys: string, does: string])[] = [
  ["/", t.shell.keys.search],
  ["0 … 9", t.shell.keys.digits],
  ["↑ ↓", t.shell.keys.arrows],
  ["Page-↑ Page-↓", t.shell.keys.page],
  ["Home End", t.shell.keys.ends],
  ["Enter", t.shell.keys.enter],
  ["Space", t.shell.keys.space],
  ["Ctrl A", t.shell.keys.all],
  ["n", t.shell.keys.add],
  ["e", t.shell.keys.edit],
  ["Delete", t.shell.keys.delete],
  ["u", t.shell.keys.undo],
  ["Esc", t.shell.keys.escape],
  ["o i c h t w", t.shell.keys.views],
  ["m", t.shell.keys.menu],
  ["?", t.shell.keys.help],
];

export function Shortcuts(): JSX.Element | null {
  if (shortcutList.value === undefined) return null;
  return (
    <Dialog title={t.shell.shortcuts} onClose={() => shortcutList.close()}>
      <Terms
        class="facts"
        of={shortcuts.map(([keys, does]) => [
          keys.split(" ").map((key) => <kbd key={key}>{key}</kbd>),
          does,
        ])}
      />
      <Check
        checked={hasShortcuts.value}
        onChange={(event) => setShortcuts(event.currentTarget.checked)}
      >
        {t.shell.useShortcuts}
      </Check>
    </Dialog>
  );
}
