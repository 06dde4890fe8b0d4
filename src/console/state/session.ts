/** The token in use, kept for this tab only, and what it may do. */

import { computed, signal } from "@preact/signals";
import type { Scope } from "../../domain/token.ts";

/** The answer of GET /token. */
export interface Identity {
  readonly name: string;
  readonly prefix?: string;
  readonly scopes: readonly Scope[];
  /** Absent where the token never expires. */
  readonly expires?: string;
}

export type SignedOut = "never" | "left" | "expired" | "refused";

const KEY = "plantstore.session";

interface Session {
  readonly token: string;
  readonly identity: Identity;
}

const session = signal<Session | undefined>(readSession());
/** Why no token is in use. */
export const signedOut = signal<SignedOut>("never");

export const token = computed(() => session.value?.token);
export const identity = computed(() => session.value?.identity);
export const mayRead = computed(() => may("plants:read"));
export const mayWrite = computed(() => may("plants:write"));

const may = (scope: Scope): boolean => session.value?.identity.scopes.includes(scope) ?? false;

export function beginSession(begun: Session): void {
  session.value = begun;
  try {
    sessionStorage.setItem(KEY, JSON.stringify(begun));
  } catch {
    // The browser may forbid storage. A reload then asks for the token again.
  }
}

export function endSession(why: SignedOut): void {
  signedOut.value = why;
  session.value = undefined;
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Without storage nothing was kept.
  }
}

function readSession(): Session | undefined {
  try {
    return (JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Session | null) ?? undefined;
  } catch {
    return undefined;
  }
}
