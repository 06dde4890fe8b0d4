/** The token in use, kept for this tab only, and what it may do. */

import { computed, signal } from "@preact/signals";
import type { TokenFacts } from "../../../client/client.ts";
import type { Scope } from "../../domain/token.ts";
import { keep, recall } from "./storage.ts";

export type SignedOut = "never" | "left" | "expired" | "refused";

const KEY = "plantstore.session";

interface Session {
  readonly token: string;
  readonly identity: TokenFacts;
}

const session = signal(recall("sessionStorage", KEY) as Session | undefined);
/** Why no token is in use. */
export const signedOut = signal<SignedOut>("never");

export const token = computed(() => session.value?.token);
export const identity = computed(() => session.value?.identity);
export const mayRead = computed(() => may("plants:read"));
export const mayWrite = computed(() => may("plants:write"));

const may = (scope: Scope): boolean => session.value?.identity.scopes.includes(scope) ?? false;

export function beginSession(begun: Session): void {
  session.value = begun;
  keep("sessionStorage", KEY, begun);
}

export function endSession(why: SignedOut): void {
  signedOut.value = why;
  session.value = undefined;
  keep("sessionStorage", KEY, undefined);
}
