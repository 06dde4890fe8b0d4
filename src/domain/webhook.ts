/** Receivers of changes, as the store keeps them. */

import type { ChangeType } from "./change.ts";

/** Each may have a page of changes in memory and an event on its way, and has metrics of its own. */
export const WEBHOOKS_MAX = 32;

/** One event sent to a receiver. */
export interface Attempt
  extends
    Readonly<Record<"event" | "time", string>>,
    Readonly<Record<"error" | "answer", string | null>> {
  readonly durationMs: number;
  readonly status: number | null;
}

export const hasSucceeded = ({ status }: Attempt): boolean =>
  status !== null && status >= 200 && status < 300;

const ATTEMPTS_MAX = 5;

export const joinAttempts = (...attempts: readonly Attempt[]): readonly Attempt[] =>
  attempts.slice(0, ATTEMPTS_MAX);

export interface Webhook {
  readonly name: string;
  readonly url: string;
  readonly types: readonly ChangeType[];
  /** In clear, because every event is signed with it. */
  readonly secret: string;
  /** Signs too until then, so a receiver can be given the new one. */
  readonly oldSecret: { readonly secret: string; readonly untilMs: number } | undefined;
  readonly createdAtMs: number;
  /** The number of the last change that it needs no more. */
  readonly cursor: number;
  /** Why nothing is sent to it; undefined if it is active. */
  readonly paused: string | undefined;
  /** Since the last success. */
  readonly failures: number;
  readonly nextAttemptAtMs: number;
  readonly attempts: readonly Attempt[];
  /** The instance that is sending. It writes the record again and again; if it stops doing so, another one takes over. */
  readonly holder: string | undefined;
  /** Another one after every write. */
  readonly version: string;
}
