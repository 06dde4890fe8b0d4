/** Webhooks, as the store keeps them. */

import type { ChangeType } from "./change.ts";

/** Each may hold a page of changes and an event in flight, and has its own metrics. */
export const WEBHOOKS_MAX = 32;

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
  /** Sends only changes of plants with these tags; undefined for the whole store. */
  readonly tags?: readonly string[] | undefined;
  /** In plain text, because every event is signed with it. */
  readonly secret: string;
  /** Signs too until `untilMs`, so a receiver can switch to the new one. */
  readonly oldSecret: { readonly secret: string; readonly untilMs: number } | undefined;
  readonly createdAtMs: number;
  /** The last change that was sent, skipped or not wanted. */
  readonly cursor: number;
  /** Why nothing is sent to it; undefined if it is active. */
  readonly paused: string | undefined;
  readonly failures: number;
  /** For people and after a restart. The instance that is waiting counts `waitMs`: the wall clock may be set. */
  readonly nextAttemptAtMs: number;
  /** The wait before that attempt. Records of version 1.0 have none. */
  readonly waitMs?: number;
  readonly attempts: readonly Attempt[];
  /** The lease holder. It renews the lease by writing the record; if it stops, another instance takes over. */
  readonly holder: string | undefined;
  /** Changes with every write. */
  readonly version: string;
}

/**
 * As it is stored. A version that does not know tags, still running beside this one, would send all changes: for it a
 * webhook with tags is paused, and the true state is in `pausedWithin`.
 */
export interface WebhookRecord extends Webhook {
  readonly pausedWithin?: string | undefined;
}

const FOR_TAGS = "It is for some tags: a service of a later version sends its changes.";

export function toRecord(webhook: Webhook): WebhookRecord {
  if (webhook.tags === undefined) return webhook;
  return { ...webhook, paused: FOR_TAGS, pausedWithin: webhook.paused };
}

export function fromRecord({ pausedWithin, ...webhook }: WebhookRecord): Webhook {
  return webhook.paused === FOR_TAGS ? { ...webhook, paused: pausedWithin } : webhook;
}
