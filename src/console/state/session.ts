/** Who is at the counter: a token, kept for this tab only, and what it may do. */

import { computed, signal } from "@preact/signals";
import type { Scope } from "../../domain/token.ts";

/** What GET /token tells of one. */
export interface Identity {
  readonly name: string;
  readonly prefix?: string;
  readonly scopes: readonly Scope[];
  /** When it ends; left out where it never does. */
  readonly expires?: string;
}

/** Why nobody is signed in. */
export type SignedOut = "never" | "left" | "expired" | "refused";

const KEY = "plantstore.session";

interface Kept {
  readonly token: string;
  readonly identity: Identity;
}

const kept = signal<Kept | undefined>(readKept());
export const signedOut = signal<SignedOut>("never");

export const token = computed(() => kept.value?.token);
export const identity = computed(() => kept.value?.identity);
export const mayRead = computed(() => may("plants:read"));
export const mayWrite = computed(() => may("plants:write"));

function may(scope: Scope): boolean {
  return kept.value?.identity.scopes.includes(scope) ?? false;
}

export function beginSession(newToken: string, newIdentity: Identity): void {
  const session = { token: newToken, identity: newIdentity };
  kept.value = session;
  try {
    sessionStorage.setItem(KEY, JSON.stringify(session));
  } catch {
    // Storage may be forbidden: then a reload asks for the token again.
  }
}

export function endSession(why: SignedOut): void {
  signedOut.value = why;
  kept.value = undefined;
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // As above: there was nothing to keep it in.
  }
}

function readKept(): Kept | undefined {
  try {
    return (JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Kept | null) ?? undefined;
  } catch {
    return undefined;
  }
}
