/** Browser storage: drafts and scroll positions of this tab, and whether single-key shortcuts are on. */

import { signal } from "@preact/signals";

type Area = "sessionStorage" | "localStorage";

/** Undefined removes the value. If the browser forbids storage, the value is lost with the page. */
export function keep(area: Area, key: string, value: unknown): void {
  try {
    if (value === undefined) globalThis[area].removeItem(key);
    else globalThis[area].setItem(key, JSON.stringify(value));
  } catch {
    // Storage is optional.
  }
}

export function recall(area: Area, key: string): unknown {
  try {
    return JSON.parse(globalThis[area].getItem(key) ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

/** All services of a host share one storage, so the key contains the path. The reference reads it too. */
export const KEPT_SESSION = `plantstore.session ${new URL(".", document.baseURI).pathname}`;

const SHORTCUTS = "plantstore.shortcuts";

/** Single-key shortcuts get in the way of speech input, so they can be turned off (WCAG 2.1.4). */
export const hasShortcuts = signal(recall("localStorage", SHORTCUTS) !== "off");

export function setShortcuts(isOn: boolean): void {
  hasShortcuts.value = isOn;
  keep("localStorage", SHORTCUTS, isOn ? undefined : "off");
}

export interface Draft {
  readonly name: string;
  readonly tag: string | undefined;
  /** The id of a new plant, as typed. */
  readonly id?: string | undefined;
  /** The version that was edited. */
  readonly etag?: string;
}

type Drafts = Readonly<Record<string, Draft | undefined>>;

const DRAFTS = "plantstore.drafts";

/** By the id of the plant, or "new". Drafts survive a reload and the expiry of the token. */
const drafts = signal((recall("sessionStorage", DRAFTS) ?? {}) as Drafts);

export const findDraft = (of: bigint | "new"): Draft | undefined => drafts.value[String(of)];

/** Undefined removes the draft. */
export function keepDraft(of: bigint | "new", draft: Draft | undefined): void {
  drafts.value = { ...drafts.peek(), [String(of)]: draft };
  keep("sessionStorage", DRAFTS, drafts.value);
}

export const listDrafts = (): (readonly [of: string, draft: Draft])[] =>
  Object.entries(drafts.value).flatMap(([of, draft]) => (draft ? [[of, draft]] : []));

export const peekDrafts = (): Drafts => drafts.peek();

/** As they were before a scan was typed into a form. */
export function restoreDrafts(earlier: Drafts): void {
  if (drafts.peek() === earlier) return;
  drafts.value = earlier;
  keep("sessionStorage", DRAFTS, earlier);
}

/** Storage keys: the filter of the list, the scroll position in each list, the last added plant, the bulk action. */
export const trail = {
  filter: "plantstore.filter",
  place: "plantstore.place ",
  added: "plantstore.added",
  job: "plantstore.job",
} as const;

export function forgetTrail(): void {
  drafts.value = {};
  try {
    sessionStorage.clear();
  } catch {
    // The browser forbids storage, so there is nothing to clear.
  }
}
