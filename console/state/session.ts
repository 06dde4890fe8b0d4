/** The token in use, and its scopes. It is stored for the tab, or for the device if the user chooses so. */

import { computed, signal } from "@preact/signals";
import type { TokenFacts } from "../../client/client.ts";
import type { Scope } from "../../src/domain/token.ts";
import { keep, KEPT_SESSION, recall } from "./storage.ts";

export type SignedOut = "never" | "left" | "expired" | "refused";

const KEY = "plantstore.session";

interface Session {
  readonly token: string;
  readonly identity: TokenFacts;
}

const findOwn = (): Session | undefined => recall("sessionStorage", KEY) as Session | undefined;
const findKept = (): Session | undefined =>
  recall("localStorage", KEPT_SESSION) as Session | undefined;

const session = signal(findOwn() ?? findKept());
/** Why no token is in use. */
export const signedOut = signal<SignedOut>("never");
/** Counts sign-outs. */
export const departures = signal(0);

export const token = computed(() => session.value?.token);
export const identity = computed(() => session.value?.identity);
export const mayRead = computed(() => may("plants:read"));
export const mayWrite = computed(() => may("plants:write"));

/** Those who manage get the overview; staff at the counter begin with the list. */
export const isManager = computed(
  () => mayRead.value && (may("tokens:manage") || may("webhooks:manage")),
);

export const may = (scope: Scope): boolean =>
  session.value?.identity.scopes.includes(scope) ?? false;

export function beginSession(begun: Session, isKept: boolean): void {
  keep(isKept ? "localStorage" : "sessionStorage", isKept ? KEPT_SESSION : KEY, begun);
  session.value = begun;
}

/** Someone else continues in this tab. The person before stays signed in elsewhere, unless the device is switched. */
export function switchSession(begun: Session, isKept: boolean): void {
  if (session.value !== undefined) leave();
  beginSession(begun, isKept);
}

/** Nothing of this person stays in the tab. */
function leave(): void {
  // A link that was opened before must not sign the next user in.
  offered.value = undefined;
  departures.value++;
  keep("sessionStorage", KEY, undefined);
  signedOut.value = "left";
  session.value = undefined;
}

/** An expired or revoked token stays on the device: each tab notices on its own, and keeps its drafts. */
export function endSession(why: SignedOut): void {
  if (why === "left") {
    keep("localStorage", KEPT_SESSION, undefined);
    return leave();
  }
  keep("sessionStorage", KEY, undefined);
  signedOut.value = why;
  session.value = undefined;
}

// Another tab signed in or out for the device. A tab with its own token keeps it.
window.addEventListener("storage", ({ key }) => {
  if ((key !== KEPT_SESSION && key !== null) || findOwn() !== undefined) return;
  const kept = findKept();
  if (kept === undefined) {
    if (session.value !== undefined) endSession("left");
    return;
  }
  // The same person may have a new token.
  if (session.value !== undefined && session.value.identity.name !== kept.identity.name) leave();
  session.value = kept;
});

const LINK = /^#token=(.+)$/;

/** A token from a link, such as the first start prints. No server sees the fragment, and it is removed at once. */
export const offered = signal<string | undefined>(undefined);

function takeOffer(): void {
  const [, linked] = LINK.exec(location.hash) ?? [];
  if (linked === undefined) return;
  history.replaceState(null, "", location.pathname + location.search);
  if (linked !== session.value?.token) offered.value = linked;
}

takeOffer();
addEventListener("hashchange", takeOffer);
