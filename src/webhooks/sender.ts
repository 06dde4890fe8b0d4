/**
 * Sends changes to webhooks: to each in order, one at a time, at least once. Where a webhook is in the journal is part
 * of its record, so one that is down costs no memory. Of several instances, one sends to a webhook at a time: the one
 * that has written its name into the record, for as long as it goes on writing.
 */

import { type Change, type ChangePage, countCharacters } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import type { Store } from "../domain/store.ts";
import { hasSucceeded, type Webhook } from "../domain/webhook.ts";
import type { Log } from "../observe/log.ts";
import type { WebhookFacts } from "../observe/reporter.ts";
import type { WebhookStore } from "./manage.ts";
import { sendEvent, type SendOptions, toEvent } from "./send.ts";

type SenderStore = WebhookStore & Pick<Store, "changesWritten">;

interface Limits extends SendOptions {
  readonly webhookRetrySeconds: readonly number[];
  readonly webhookLeaseSeconds: number;
  readonly webhookPollMs: number;
  readonly drainSecondsMax: number;
}

const PAGE_LENGTH = 100;
/** From one read of the list of webhooks to the next. */
const LIST_POLLS = 10;
/** How often the record is written in the part of a lease that no event takes. */
const WRITES_A_LEASE = 10;
/** A cursor moves on over changes that are not wanted. It is written before the journal could be trimmed past it. */
const CURSOR_AGE_US_MAX = 3_600_000_000;
const ATTEMPTS_MAX = 5;
/** Longer than any wait. A next attempt that is further away was set by a clock that was wrong. */
const WAIT_MS_MAX = 2 * 86_400_000;
/** What an event takes of the thread, as measured, and the share that all together may take from the writes. */
const EVENT_MS = 0.2;
const SHARE = 0.1;
/** After a write more are likely. */
const BUSY_MS = 100;
const JITTER = 0.1;
const LARGE_CHARACTERS = 262_144;

export class WebhookSender {
  private readonly store: SenderStore;
  private readonly limits: Limits;
  private readonly log: Log;
  private receivers = new Map<string, Receiver>();
  private readonly ending = new AbortController();
  private working: Promise<void> | undefined;
  private isStopped = false;
  /** When the events that were sent are paid for. */
  private paidAtMs = 0;
  private changesWritten = 0;
  private busyUntilMs = 0;
  private isFailing = false;
  /** The last large event. */
  private large: Promise<unknown> = Promise.resolve();

  constructor(store: SenderStore, limits: Limits, log: Log) {
    this.store = store;
    this.limits = limits;
    this.log = log;
  }

  start(): void {
    this.working = this.work();
  }

  /** Events on their way get their time to be answered; the next instance sends the others. */
  async stop(): Promise<void> {
    this.isStopped = true;
    const timer = setTimeout(() => this.ending.abort(), this.limits.drainSecondsMax * 1000);
    await this.working;
    for (const { turn } of this.receivers.values()) await turn;
    clearTimeout(timer);
  }

  report(): Promise<WebhookFacts[]> {
    return Promise.all(
      [...this.receivers.values()].map(async ({ webhook, sent, failed }) => {
        const { name, cursor, types, paused } = webhook;
        const first = await this.store
          .readChanges({ after: cursor, limit: 1, id: undefined, types })
          .then(({ changes }) => changes[0]?.atMs ?? Date.now())
          .catch(() => cursor / 1000);
        const lagSeconds = Math.max(0, Date.now() - first) / 1000;
        return { name, isPaused: paused !== undefined, lagSeconds, sent, failed };
      }),
    );
  }

  private async work(): Promise<void> {
    for (let polls = 0; !this.isStopped; polls++) {
      const isStale = [...this.receivers.values()].some(({ isLost }) => isLost);
      if (polls % LIST_POLLS === 0 || isStale) await this.list().catch(this.noteFailure);
      for (const receiver of this.receivers.values())
        receiver.turn ??= this.takeTurn(receiver)
          .catch(this.noteFailure)
          .finally(() => (receiver.turn = undefined));
      await Bun.sleep(this.limits.webhookPollMs);
    }
  }

  /** A store that fails for long is logged once. */
  private readonly noteFailure = (cause: unknown): void => {
    if (!this.isFailing) this.log.warn("webhooks_not_sent", { cause });
    this.isFailing = true;
  };

  private async list(): Promise<void> {
    const webhooks = await this.store.listWebhooks();
    this.isFailing = false;
    const known = this.receivers;
    this.receivers = new Map();
    for (const webhook of webhooks) {
      const receiver = known.get(webhook.name) ?? new Receiver(this.store, this.limits, webhook);
      receiver.refresh(webhook);
      this.receivers.set(webhook.name, receiver);
      known.delete(webhook.name);
    }
    for (const removed of known.values()) removed.isLost = true;
  }

  private async takeTurn(receiver: Receiver): Promise<void> {
    try {
      if (receiver.isDue()) await this.sendAll(receiver);
    } catch (error) {
      if (!(error instanceof Refusal) || error.reason !== "changes_gone") throw error;
      this.pause(receiver, explainGone(receiver.webhook));
    } finally {
      await receiver.release();
    }
  }

  /** Until nothing is left, or an event is not taken. */
  private async sendAll(receiver: Receiver): Promise<void> {
    for (let hasMore = true; hasMore && !this.isStopped;) {
      const page = await this.read(receiver.webhook);
      for (const change of page.changes) {
        if (!(await this.sendInTurn(receiver, change))) return;
        receiver.update({ cursor: change.seq });
        await this.pay();
      }
      receiver.update({ cursor: page.last });
      ({ hasMore } = page);
      // One page a tick. There may be a million changes that are not wanted, and other work comes between.
      await new Promise(setImmediate);
    }
  }

  /** Writes come first. */
  private async pay(): Promise<void> {
    const { changesWritten } = this.store;
    const nowMs = performance.now();
    if (changesWritten !== this.changesWritten) this.busyUntilMs = nowMs + BUSY_MS;
    this.changesWritten = changesWritten;
    if (nowMs > this.busyUntilMs) return;
    this.paidAtMs = Math.max(nowMs, this.paidAtMs) + EVENT_MS / SHARE;
    await Bun.sleep(this.paidAtMs - nowMs);
  }

  /** A large event takes several times its size while it is on its way, so one is at a time. */
  private sendInTurn(receiver: Receiver, change: Change): Promise<boolean> {
    const send = async (): Promise<boolean> =>
      !this.isStopped && (await receiver.hold()) && this.send(receiver, change);
    if (countCharacters(change) < LARGE_CHARACTERS) return send();
    const sent = this.large.then(send);
    this.large = sent.catch(() => undefined);
    return sent;
  }

  private async send(receiver: Receiver, change: Change): Promise<boolean> {
    const { webhook } = receiver;
    const { attempt, retryAfterMs } = await sendEvent(
      webhook,
      toEvent(change),
      this.limits,
      this.ending.signal,
    );
    if (this.ending.signal.aborted) return false;
    const attempts = [attempt, ...webhook.attempts].slice(0, ATTEMPTS_MAX);
    const isTaken = hasSucceeded(attempt);
    const failures = isTaken ? 0 : webhook.failures + 1;
    receiver.update({ attempts, failures });
    if (isTaken) {
      receiver.sent++;
      return true;
    }
    receiver.failed++;
    const waitSeconds = this.limits.webhookRetrySeconds[failures - 1];
    const what = attempt.error ?? `It answered ${attempt.status}.`;
    this.log.warn("webhook_failed", { webhook: webhook.name, change: change.seq, failures, what });
    if (attempt.status === 410) this.pause(receiver, "It answered 410: it wants no more.");
    else if (waitSeconds === undefined)
      this.pause(receiver, `${failures} attempts failed. The last one: ${what}`);
    else {
      const waitMs = waitSeconds * 1000 * (1 + JITTER * Math.random());
      const nextAttemptAtMs = Date.now() + Math.round(Math.max(waitMs, retryAfterMs));
      receiver.update({ nextAttemptAtMs });
    }
    return false;
  }

  private pause(receiver: Receiver, reason: string): void {
    const { name, cursor } = receiver.webhook;
    receiver.update({ paused: reason });
    this.log.warn("webhook_paused", { webhook: name, after: cursor, reason });
  }

  /** Little text, or one large change: a webhook that waits holds it. */
  private async read({ cursor, types }: Webhook): Promise<ChangePage> {
    const query = { after: cursor, limit: PAGE_LENGTH, id: undefined, types };
    const page = await this.store.readChanges(query);
    let characters = 0;
    const full = page.changes.findIndex(
      (change) => (characters += countCharacters(change)) >= LARGE_CHARACTERS,
    );
    const end = page.changes[full];
    if (end === undefined) return page;
    return { ...page, changes: page.changes.slice(0, full + 1), last: end.seq, hasMore: true };
  }
}

/** This process. */
const HOLDER = crypto.randomUUID();

const explainGone = ({ name, cursor }: Webhook): string =>
  `The changes after ${cursor} are not kept any more, so some were not sent. ` +
  `Bring the receiver in step with the plants, then: plantstore webhook replay ${name} --from newest`;

/** A webhook as this instance knows it. Its turns alone change it, one after the other. */
class Receiver {
  /** With what has happened since it was written. */
  webhook: Webhook;
  turn: Promise<void> | undefined;
  /** Another writer came first, or it was removed. */
  isLost = false;
  sent = 0;
  failed = 0;
  private readonly store: WebhookStore;
  private readonly leaseMs: number;
  /** The part of a lease that no event takes. */
  private readonly spareMs: number;
  private stored: Webhook;
  /** When this version was first seen, or began to be written. */
  private sinceMs = performance.now();

  constructor(store: WebhookStore, limits: Limits, webhook: Webhook) {
    this.store = store;
    this.leaseMs = limits.webhookLeaseSeconds * 1000;
    this.spareMs = this.leaseMs - limits.webhookSecondsMax * 1000;
    this.webhook = webhook;
    this.stored = webhook;
  }

  refresh(webhook: Webhook): void {
    if (this.turn !== undefined) return;
    this.isLost = false;
    if (webhook.version === this.stored.version) return;
    this.webhook = webhook;
    this.stored = webhook;
    this.sinceMs = performance.now();
  }

  /** Clocks of machines differ, so another holder counts as gone once its version has not changed here for a lease. */
  isDue(): boolean {
    const { paused, nextAttemptAtMs, holder } = this.webhook;
    const waitMs = nextAttemptAtMs - Date.now();
    if (this.isLost || paused !== undefined || (waitMs > 0 && waitMs < WAIT_MS_MAX)) return false;
    return holder === undefined || holder === HOLDER || this.ageMs() > this.leaseMs;
  }

  private ageMs(): number {
    return performance.now() - this.sinceMs;
  }

  update(changes: Partial<Webhook>): void {
    this.webhook = { ...this.webhook, ...changes };
  }

  /** Whether this instance may send, for as long as one event can take. */
  async hold(): Promise<boolean> {
    const isFresh = this.webhook.holder === HOLDER && this.ageMs() < this.spareMs / WRITES_A_LEASE;
    return (isFresh || (await this.write(HOLDER))) && this.ageMs() < this.spareMs;
  }

  /** Writes what has happened, also if the last write failed. A cursor that has only moved on is written now and then. */
  async release(): Promise<void> {
    const { holder, paused, cursor } = this.webhook;
    const isOld = cursor - this.stored.cursor > CURSOR_AGE_US_MAX;
    if (holder === HOLDER || paused !== this.stored.paused || isOld) await this.write(undefined);
  }

  /** False if another writer came first. */
  private async write(holder: string | undefined): Promise<boolean> {
    const sinceMs = performance.now();
    const next = { ...this.webhook, holder, version: crypto.randomUUID() };
    this.isLost ||= !(await this.store.putWebhook(next, this.stored));
    if (this.isLost) return false;
    this.sinceMs = sinceMs;
    this.webhook = next;
    this.stored = next;
    return true;
  }
}
