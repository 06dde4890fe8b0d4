/** A scan, on every page and in every field: it opens the plant, and leaves what was typed before as it was. */

import { signal } from "@preact/signals";
import { findInt64 } from "../../src/domain/json.ts";
import { findTaken } from "../api/plants.ts";
import { list } from "../state/plants.ts";
import { everything, follow, linkTo, route } from "../state/route.ts";
import { ScanReader } from "../state/scan.ts";
import { hasSelection } from "../state/selection.ts";
import { mayRead, mayWrite, token } from "../state/session.ts";
import { peekDrafts, restoreDrafts } from "../state/storage.ts";
import { toast } from "../state/toasts.ts";
import { fill, t } from "../text/text.ts";
import { takeNewId } from "./add-panel.tsx";
import { selectSearch } from "./shortcuts.tsx";

type TextField = HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement;

const isField = (target: unknown): target is TextField =>
  target instanceof HTMLInputElement ||
  target instanceof HTMLTextAreaElement ||
  target instanceof HTMLSelectElement;

/** What a scan finds in the page, before its first key changes it. */
class Before {
  readonly #values = new Map<TextField, readonly [value: string, start: number, end: number]>();
  #drafts = peekDrafts();

  start(): void {
    this.#values.clear();
    this.#drafts = peekDrafts();
  }

  /** The focus may move during a scan, so each field is kept when it gets its first key. */
  keep(field: unknown): void {
    if (!isField(field) || this.#values.has(field)) return;
    const { value } = field;
    const [start, end] =
      "selectionStart" in field ? [field.selectionStart, field.selectionEnd] : [];
    this.#values.set(field, [value, start ?? value.length, end ?? value.length]);
  }

  restore(): void {
    for (const [field, [value, start, end]] of this.#values) {
      if (!field.isConnected || field.value === value) continue;
      field.value = value;
      // Numbers and dates have no selection.
      if ("selectionStart" in field && field.selectionStart !== null)
        field.setSelectionRange(start, end);
      for (const type of ["input", "change"])
        field.dispatchEvent(new Event(type, { bubbles: true }));
    }
    this.#values.clear();
    restoreDrafts(this.#drafts);
  }
}

/** Someone scanned who is not signed in. */
export const isScannedEarly = signal(false);

export function listenForScans(): void {
  const reader = new ScanReader();
  const before = new Before();
  const follows = (reading: ReturnType<ScanReader["read"]>, event: Event): void => {
    if (reading.kind === "other") return;
    if (reading.kind === "part") {
      if (reading.isFirst) before.start();
      before.keep(event.target);
      // Digits outside of fields are typed into the search.
      return before.keep(document.querySelector("#search"));
    }
    event.preventDefault();
    event.stopImmediatePropagation();
    if (reading.kind !== "scan") return;
    before.restore();
    if (token.value === undefined) isScannedEarly.value = true;
    else void openCode(reading.code);
  };
  // On the window and while capturing: before any field, form or shortcut.
  window.addEventListener(
    "keydown",
    (event) => {
      const { key, timeStamp: atMs, repeat: isRepeat } = event;
      if (event.isComposing || key === "Process") return reader.interrupt();
      const isModified = event.ctrlKey || event.altKey || event.metaKey;
      follows(reader.read({ key, atMs, isRepeat, isModified }), event);
    },
    { capture: true },
  );
  window.addEventListener(
    "beforeinput",
    (event) => {
      const { data, inputType, timeStamp } = event;
      if (inputType === "insertText" && data !== null && data.length > 1)
        follows(reader.insert(data, timeStamp), event);
    },
    { capture: true },
  );
}

/** A slower answer is not waited for with another plant on the screen. */
const SLOW_MS = 300;
let questions = 0;

/** Opens the plant with the scanned id. For an unknown one it closes the panel, which shows another plant. */
export async function openCode(code: string): Promise<void> {
  const question = ++questions;
  if (!leaveDialogs()) return;
  const id = findInt64(code);
  if (!mayRead.value) return takeNewId(code);
  const { view, open } = route.value;
  if (view === "plants" && open === id && id !== undefined) return;
  const isAdding = view === "plants" && open === "new" && mayWrite.value;
  // A selection belongs to the list, which then stays as it is.
  const { order, sort } = route.value.filter;
  const filter = hasSelection.value
    ? route.value.filter
    : { ...everything, order, sort, q: id === undefined ? code : String(id) };
  let shown = route.value;
  const show = (next: bigint | undefined): void => {
    follow(linkTo(next, filter));
    shown = route.value;
  };
  // Without another scan since, and without anything that the user typed or opened.
  const isLast = (): boolean => question === questions && route.value === shown;
  const slow = setTimeout(() => {
    if (!isAdding && isLast()) show(undefined);
  }, SLOW_MS);
  // If the plant can't be read, its panel says so, and reads it again.
  const found = id === undefined ? undefined : await findTaken(id).catch(() => ({ id }));
  clearTimeout(slow);
  if (!isLast()) return;
  if (found === undefined && isAdding) return takeNewId(code);
  show(found?.id);
  if (found !== undefined) return;
  if (hasSelection.value) toast(fill(t.tools.unknownId, { id: code }));
  else void list.value.findRemoval();
  selectSearch();
}

/** The user has typed something else since. */
export const forgetCode = (): void => void questions++;

/** False if a dialog has to stay: it shows what is not shown again, or has text that would be lost. */
function leaveDialogs(): boolean {
  document.querySelector<HTMLElement>(":popover-open")?.hidePopover();
  for (const dialog of document.querySelectorAll<HTMLDialogElement>("dialog[open]")) {
    const closedBy = dialog.getAttribute("closedby");
    if (closedBy === "none" || (closedBy === "closerequest" && isEdited(dialog))) {
      toast(t.tools.closeFirst);
      return false;
    }
    dialog.close();
  }
  return true;
}

const isEdited = (dialog: HTMLDialogElement): boolean =>
  Array.from(dialog.querySelectorAll("input")).some(
    (field) => field.value !== field.defaultValue || field.checked !== field.defaultChecked,
  );
