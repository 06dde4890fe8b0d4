/** The token in use, and its scopes. It is stored for the tab, or for the device if the user chooses so. */

import { computed, signal } from "@preact/signals";
import type { TokenFacts } from "../../client/client.ts";
import type { Scope } from "../../src/domain/token.ts";
import { forgetPerson, personal } from "./person.ts";
import { keep, keyOf, recall } from "./storage.ts";

export type SignedOut = "never" | "left" | "elsewhere" | "expired" | "refused";

const KEY = "session";

interface Session {
  readonly token: string;
  readonly identity: TokenFacts;
}

const findOwn = (): Session | undefined => recall("sessionStorage", KEY) as Session | undefined;
const findKept = (): Session | undefined => recall("localStorage", KEY) as Session | undefined;

/** Who left edits in this tab when another tab signed out. No one else continues here without signing in. */
const LEFT_BY = "left-by";
const findLeaver = () => recall("sessionStorage", LEFT_BY) as string | undefined;

function findAdopted(): Session | undefined {
  const kept = findKept();
  const leaver = findLeaver();
  return leaver === undefined || leaver === kept?.identity.name ? kept : undefined;
}

const session = signal<Session | undefined>(undefined);
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

/** Whether the token is for all plants, and not only for those with some tags. */
export const isForAll = computed(() => session.value?.identity.tags === undefined);

export const may = (scope: Scope): boolean =>
  session.value?.identity.scopes.includes(scope) ?? false;

export function beginSession(begun: Session, isKept: boolean): void {
  if (![undefined, begun.identity.name].includes(findLeaver())) leave();
  keep("sessionStorage", LEFT_BY, undefined);
  keep(isKept ? "localStorage" : "sessionStorage", KEY, begun);
  session.value = begun;
}

/** Someone else continues in this tab. The person before stays signed in elsewhere, unless the device is switched. */
export function switchSession(begun: Session, isKept: boolean): void {
  if (session.value !== undefined) leave();
  beginSession(begun, isKept);
}

/** Nothing of this person stays in the tab. */
function leave(): void {
  departures.value++;
  keep("sessionStorage", KEY, undefined);
  signedOut.value = "left";
  session.value = undefined;
  forgetPerson();
}

/** An expired or revoked token stays on the device: each tab notices on its own, and keeps its drafts. */
export function endSession(why: SignedOut): void {
  if (why === "left") {
    keep("localStorage", KEY, undefined);
    return leave();
  }
  keep("sessionStorage", KEY, undefined);
  signedOut.value = why;
  session.value = undefined;
}

/** Another tab signed in or out for the device. A tab with its own token keeps it. */
function followDevice(hasEdits: () => boolean): void {
  const kept = findKept();
  const now = session.value;
  const isLeft = now !== undefined && now.identity.name !== kept?.identity.name;
  if (isLeft && !hasEdits()) leave();
  // Somebody else uses the device. The person of this tab continues in it.
  else if (isLeft && kept !== undefined) return keep("sessionStorage", KEY, now);
  else if (isLeft) {
    keep("sessionStorage", LEFT_BY, now.identity.name);
    return endSession("elsewhere");
  }
  const adopted = findAdopted();
  if (adopted === undefined) return;
  keep("sessionStorage", LEFT_BY, undefined);
  // The same person may have a new token.
  session.value = adopted;
}

const LINK = /^#token=(.+)$/;

/** A token from a link, such as the first start prints. No server sees the fragment, and it is removed at once. */
export const offered = personal<string | undefined>(undefined);

function takeOffer(): void {
  const [, linked] = LINK.exec(location.hash) ?? [];
  if (linked === undefined) return;
  history.replaceState(null, "", location.pathname + location.search);
  if (linked !== session.value?.token) offered.value = linked;
}

export function startSession(hasEdits: () => boolean): void {
  session.value = findOwn() ?? findAdopted();
  signedOut.value = findLeaver() === undefined ? "never" : "elsewhere";
  takeOffer();
  addEventListener("hashchange", takeOffer);
  window.addEventListener("storage", ({ key }) => {
    if ((key === keyOf(KEY) || key === null) && findOwn() === undefined) followDevice(hasEdits);
  });
}
