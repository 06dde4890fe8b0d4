/**
 * A webhook as this instance sees it, with its lease: the holder renews it by writing the record. Only the receiver's own
 * rounds change it, one at a time.
 */

import { joinAttempts, type Webhook } from "../domain/webhook.ts";
import type { WebhookStore } from "./manage.ts";

const HOLDER = crypto.randomUUID();

/** Lease renewals per `spareMs`. */
const WRITES_PER_LEASE = 10;
/** A cursor advances over unwanted changes in memory. It is written before the journal could be trimmed past it. */
const CURSOR_MS_MAX = 3_600_000;

export interface ReceiverLimits {
  readonly webhookRetrySeconds: readonly number[];
  readonly webhookLeaseSeconds: number;
  readonly webhookSecondsMax: number;
}

export class Receiver {
  /** `stored`, with the changes that are not written yet. */
  webhook: Webhook;
  /** When the next attempt is due. */
  dueMs: number;
  round: Promise<void> | undefined;
  /** Another writer won, or the webhook was removed. */
  isLost = false;
  sent = 0;
  failed = 0;
  private stored: Webhook;
  /** When this version was first seen, or its write began. */
  private sinceMs = performance.now();
  private readonly store: WebhookStore;
  private readonly limits: ReceiverLimits;

  constructor(store: WebhookStore, limits: ReceiverLimits, webhook: Webhook) {
    this.store = store;
    this.limits = limits;
    this.webhook = webhook;
    this.stored = webhook;
    this.dueMs = this.sinceMs + findWaitMs(webhook, limits.webhookRetrySeconds);
  }

  update(changes: Partial<Webhook>): void {
    this.webhook = { ...this.webhook, ...changes };
  }

  /** The record, after the list was read again. */
  see(webhook: Webhook): void {
    if (this.round !== undefined) return;
    this.isLost = false;
    if (this.stored.version === webhook.version) return;
    this.webhook = webhook;
    this.stored = webhook;
    this.sinceMs = performance.now();
    this.dueMs = this.sinceMs + findWaitMs(webhook, this.limits.webhookRetrySeconds);
  }

  /** Clocks differ, so another holder's lease has expired once its version is unchanged here for a whole lease. */
  get isDue(): boolean {
    const { paused, holder } = this.webhook;
    const isWaiting = performance.now() < this.dueMs;
    if (this.isLost || paused !== undefined || isWaiting) return false;
    return holder === undefined || holder === HOLDER || this.ageMs > this.leaseMs;
  }

  /** True even if the last write failed. A cursor that only skipped changes is written once an hour. */
  get isUnwritten(): boolean {
    const { webhook, stored } = this;
    const isOld = webhook.cursor !== stored.cursor && this.ageMs > CURSOR_MS_MAX;
    return webhook.holder === HOLDER || webhook.paused !== stored.paused || isOld;
  }

  /** Whether this instance holds the lease for as long as one event can take. */
  async hold(): Promise<boolean> {
    const spareMs = this.leaseMs - this.limits.webhookSecondsMax * 1000;
    const isHeld = this.webhook.holder === HOLDER;
    const isFresh = isHeld && this.ageMs < spareMs / WRITES_PER_LEASE;
    return (isFresh || (await this.write(HOLDER))) && this.ageMs < spareMs;
  }

  /** False if another writer won and took the lease. If it left the lease with us, its write is merged. */
  async write(holder?: string): Promise<boolean> {
    while (!this.isLost) {
      const sinceMs = performance.now();
      const next = { ...this.webhook, holder, version: crypto.randomUUID() };
      if (await this.store.putWebhook(next, this.stored)) {
        this.sinceMs = sinceMs;
        this.webhook = next;
        this.stored = next;
        return true;
      }
      const webhooks = await this.store.listWebhooks();
      const stored = webhooks.find(({ name }) => name === next.name);
      if (stored?.holder === HOLDER) this.adopt(stored);
      else this.isLost = true;
    }
    return false;
  }

  /** Merges what commands write while an instance sends: a new secret, and test attempts. */
  private adopt(stored: Webhook): void {
    const { secret, oldSecret, attempts } = stored;
    const known = new Set(this.stored.attempts.map(({ event }) => event));
    const tests = attempts.filter(({ event }) => !known.has(event));
    const joined = joinAttempts(...tests, ...this.webhook.attempts);
    this.stored = stored;
    this.update({ secret, oldSecret, attempts: joined });
  }

  private get ageMs(): number {
    return performance.now() - this.sinceMs;
  }

  private get leaseMs(): number {
    return this.limits.webhookLeaseSeconds * 1000;
  }
}

/** The rest of a wait that another process wrote. Never longer than the whole: the clock may have been set back. */
function findWaitMs(webhook: Webhook, retrySeconds: readonly number[]): number {
  const { nextAttemptAtMs, waitMs, failures } = webhook;
  const wholeMs = waitMs ?? (retrySeconds[failures - 1] ?? 0) * 1000;
  return Math.max(0, Math.min(nextAttemptAtMs - Date.now(), wholeMs));
}
