/** Browser storage: of this tab, such as drafts and scroll positions, or of the device, such as its settings. */

import { signal } from "@preact/signals";
import { urlOf } from "../api/page.ts";
import { personal, whenLeft } from "./person.ts";

type Area = "sessionStorage" | "localStorage";

/** All services of a host share one storage, so the key has the path. */
const endOfKeys = (): string => ` ${new URL(urlOf()).pathname}`;
export const keyOf = (name: string): string => `plantstore.${name}${endOfKeys()}`;

/** As of version 1.0, without a path. */
const OLD_KEY = /^plantstore\.([^ ]+)$/;

/** Undefined removes the value. If the browser forbids storage, the value is lost with the page. */
export function keep(area: Area, name: string, value: unknown): void {
  try {
    if (value === undefined) globalThis[area].removeItem(keyOf(name));
    else globalThis[area].setItem(keyOf(name), JSON.stringify(value));
  } catch {
    // Storage is optional.
  }
}

export function recall(area: Area, name: string): unknown {
  const find = (key: string): string | null => globalThis[area].getItem(key);
  try {
    // Each service of the host takes the device's old settings over.
    const old = area === "localStorage" ? find(`plantstore.${name}`) : null;
    return JSON.parse(find(keyOf(name)) ?? old ?? "null") ?? undefined;
  } catch {
    return undefined;
  }
}

/** What the tab has under old keys is moved once. */
function moveOld(): void {
  try {
    for (const [key, value] of Object.entries(sessionStorage)) {
      const [, name] = OLD_KEY.exec(key) ?? [];
      if (name === undefined) continue;
      sessionStorage.removeItem(key);
      sessionStorage.setItem(keyOf(name), String(value));
    }
  } catch {
    // Storage is optional.
  }
}

const SHORTCUTS = "shortcuts";

/** Single-key shortcuts get in the way of speech input, so they can be turned off (WCAG 2.1.4). */
export const hasShortcuts = signal(true);

export function setShortcuts(isOn: boolean): void {
  hasShortcuts.value = isOn;
  keep("localStorage", SHORTCUTS, isOn ? "on" : "off");
}

export const themes = ["light", "dark"] as const;
type Theme = (typeof themes)[number];

const THEME = "theme";

/** Undefined is that of the system. */
export const theme = signal<Theme | undefined>(undefined);

export function setTheme(next: Theme | undefined): void {
  theme.value = next;
  keep("localStorage", THEME, next);
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

const DRAFTS = "drafts";

/** By the id of the plant, or "new". Drafts survive a reload and the expiry of the token. */
const drafts = personal<Drafts>({});

export const findDraft = (of: bigint | "new"): Draft | undefined => drafts.value[String(of)];

/** Undefined removes the draft. */
export function keepDraft(of: bigint | "new", draft: Draft | undefined): void {
  drafts.value = { ...drafts.peek(), [String(of)]: draft };
  keep("sessionStorage", DRAFTS, drafts.value);
}

export const listDrafts = (): (readonly [of: bigint | "new", draft: Draft])[] =>
  Object.entries(drafts.value).flatMap(([of, draft]) =>
    draft ? [[of === "new" ? of : BigInt(of), draft]] : [],
  );

export const peekDrafts = (): Drafts => drafts.peek();

/** As they were before a scan was typed into a form. */
export function restoreDrafts(earlier: Drafts): void {
  if (drafts.peek() === earlier) return;
  drafts.value = earlier;
  keep("sessionStorage", DRAFTS, earlier);
}

/** Names in the storage of the tab: the filter of the list, the scroll position in each list, the last added plant, the bulk action. */
export const trail = {
  filter: "filter",
  place: "place ",
  added: "added",
  job: "job",
} as const;

/** The tab forgets all that it kept of the person. */
whenLeft(() => {
  try {
    for (const key of Object.keys(sessionStorage))
      if (key.endsWith(endOfKeys())) sessionStorage.removeItem(key);
  } catch {
    // The browser forbids storage, so there is nothing to clear.
  }
});

export function startStorage(): void {
  moveOld();
  hasShortcuts.value = recall("localStorage", SHORTCUTS) !== "off";
  theme.value = themes.find((each) => each === recall("localStorage", THEME));
  drafts.value = (recall("sessionStorage", DRAFTS) ?? {}) as Drafts;
}
