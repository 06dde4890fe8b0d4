/**
 * Sends changes to webhooks: to each in order, one at a time, at least once. The cursor is part of the record, so a
 * webhook that is down costs no memory. The instance that holds the lease sends, and renews the lease.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { ChangePage, ListedChange } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import type { ServedStore, WholeStore } from "../domain/store.ts";
import { hasSucceeded, joinAttempts, type Webhook } from "../domain/webhook.ts";
import type { Log } from "../observe/log.ts";
import type { WebhookFacts } from "../observe/reporter.ts";
import type { Tracer } from "../observe/tracer.ts";
import { sentBy } from "./manage.ts";
import { deliver, type SendOptions, toEvent } from "./send.ts";

interface Limits extends SendOptions {
  readonly webhookRetrySeconds: readonly number[];
  readonly webhookLeaseSeconds: number;
  readonly webhookPollMs: number;
}

const PAGE_LENGTH = 100;
const LIST_POLLS = 10;
/** Lease renewals per `spareMs`. */
const WRITES_PER_LEASE = 10;
/** A cursor advances over unwanted changes in memory. It is written before the journal could be trimmed past it. */
const CURSOR_MS_MAX = 3_600_000;
const JITTER = 0.1;
const LARGE_CHARACTERS = 262_144;
/** For events in flight at a stop. A receiver that has not answered by then gets the event again. */
const STOP_MS_MAX = 1_000;

/** A webhook as this instance sees it. Only its own rounds change it, one at a time. */
interface Receiver {
  /** `stored`, with the changes that are not written yet. */
  webhook: Webhook;
  stored: Webhook;
  /** When this version was first seen, or its write began. */
  sinceMs: number;
  /** When the next attempt is due. */
  dueMs: number;
  round: Promise<void> | undefined;
  /** Another writer won, or the webhook was removed. */
  isLost: boolean;
  sent: number;
  failed: number;
}

const HOLDER = crypto.randomUUID();

export function createWebhookSender(
  served: Pick<ServedStore, "for">,
  limits: Limits,
  log: Log,
  tracer?: Tracer,
) {
  /** For the records, and for the newest number. */
  const store = served.for("whole store");
  const leaseMs = limits.webhookLeaseSeconds * 1000;
  /** The lease minus the longest that one event can take. */
  const spareMs = leaseMs - limits.webhookSecondsMax * 1000;
  /** Starts nothing new. */
  const stopping = new AbortController();
  /** Aborts events in flight. */
  const ending = new AbortController();
  let receivers = new Map<string, Receiver>();
  let working: Promise<void> | undefined;
  const ages = new Ages();
  let newest = 0;
  let isFailing = false;
  let large: Promise<unknown> = Promise.resolve();

  async function work(): Promise<void> {
    for (let polls = 0; !stopping.signal.aborted; polls++) {
      const isStale = [...receivers.values()].some(({ isLost }) => isLost);
      if (polls % LIST_POLLS === 0 || isStale) await list().catch(noteFailure);
      if (receivers.size > 0) await look().catch(noteFailure);
      for (const receiver of receivers.values())
        if (receiver.webhook.cursor !== newest || isUnwritten(receiver))
          receiver.round ??= runRound(receiver)
            .catch(noteFailure)
            .finally(() => (receiver.round = undefined));
      const { signal } = stopping;
      await sleep(limits.webhookPollMs, undefined, { signal }).catch(() => undefined);
    }
  }

  /** A failing store is logged once. */
  function noteFailure(cause: unknown): void {
    if (!isFailing) log.warn("webhooks_not_sent", { cause });
    isFailing = true;
  }

  /** One read for all webhooks: those whose cursor is the newest change have nothing to read. */
  async function look(): Promise<void> {
    ({ newest } = await store.readChanges({ after: 0, limit: 0 }));
    ages.note(newest);
  }

  async function list(): Promise<void> {
    const webhooks = await store.listWebhooks();
    isFailing = false;
    const known = receivers;
    const { webhookRetrySeconds: waits } = limits;
    receivers = new Map(
      webhooks.map((webhook) => [webhook.name, refresh(known.get(webhook.name), webhook, waits)]),
    );
    for (const [name, removed] of known) removed.isLost ||= !receivers.has(name);
  }

  async function runRound(receiver: Receiver): Promise<void> {
    try {
      if (isDue(receiver)) await sendAll(receiver);
    } catch (error) {
      if (!(error instanceof Refusal) || error.reason !== "changes_gone") throw error;
      pause(receiver, explainGone(receiver.webhook));
    } finally {
      if (isUnwritten(receiver)) await write(store, receiver);
    }
  }

  /** Clocks differ, so another holder's lease has expired once its version is unchanged here for a whole lease. */
  function isDue(receiver: Receiver): boolean {
    const { paused, holder } = receiver.webhook;
    const isWaiting = performance.now() < receiver.dueMs;
    if (receiver.isLost || paused !== undefined || isWaiting) return false;
    return holder === undefined || holder === HOLDER || ageMs(receiver) > leaseMs;
  }

  async function sendAll(receiver: Receiver): Promise<void> {
    for (let hasMore = true; hasMore && !stopping.signal.aborted;) {
      const page = await read(served, receiver.webhook);
      for (const change of page.changes) {
        if (!(await sendInTurn(receiver, change))) return;
        update(receiver, { cursor: change.seq });
      }
      update(receiver, { cursor: page.last });
      ({ hasMore } = page);
      // One page per tick: there may be a million unwanted changes, and other work must run in between.
      await new Promise(setImmediate);
    }
  }

  /** A large event takes several times its size while in flight, so only one is sent at a time. */
  function sendInTurn(receiver: Receiver, change: ListedChange): Promise<boolean> {
    const sendHeld = async (): Promise<boolean> => {
      const { signal } = stopping;
      // Again after the wait for the lease, which may take as long as a commit.
      return !signal.aborted && (await hold(receiver)) && !signal.aborted && send(receiver, change);
    };
    if (change.json.length < LARGE_CHARACTERS) return sendHeld();
    const sent = large.then(sendHeld);
    large = sent.catch(() => undefined);
    return sent;
  }

  async function send(receiver: Receiver, change: ListedChange): Promise<boolean> {
    const { webhook } = receiver;
    const { signal } = ending;
    const origin = { cause: change.trace };
    const sent = await deliver(tracer, origin, webhook, toEvent(change), limits, signal);
    const { attempt, retryAfterMs, ids } = sent;
    if (signal.aborted && attempt.status === null) return false;
    const attempts = joinAttempts(attempt, ...webhook.attempts);
    const isDelivered = hasSucceeded(attempt);
    const failures = isDelivered ? 0 : webhook.failures + 1;
    update(receiver, { attempts, failures });
    receiver[isDelivered ? "sent" : "failed"]++;
    if (isDelivered) return true;
    const what = attempt.error ?? `The receiver answered ${attempt.status}.`;
    const facts = { webhook: webhook.name, change: change.seq, failures, what, ...ids };
    log.warn("webhook_failed", facts);
    if (attempt.status === 410) pause(receiver, "The receiver answered 410 Gone.");
    else retryOrPause(receiver, retryAfterMs, what);
    return false;
  }

  function retryOrPause(receiver: Receiver, retryAfterMs: number, what: string): void {
    const { failures } = receiver.webhook;
    const waitSeconds = limits.webhookRetrySeconds[failures - 1];
    if (waitSeconds === undefined)
      return pause(receiver, `${failures} attempts failed. The last one: ${what}`);
    const backoffMs = waitSeconds * 1000 * (1 + JITTER * Math.random());
    const waitMs = Math.round(Math.max(backoffMs, retryAfterMs));
    update(receiver, { nextAttemptAtMs: Date.now() + waitMs, waitMs });
    receiver.dueMs = performance.now() + waitMs;
  }

  function pause(receiver: Receiver, reason: string): void {
    const { name, cursor } = receiver.webhook;
    update(receiver, { paused: reason });
    log.warn("webhook_paused", { webhook: name, after: cursor, reason });
  }

  /** Whether this instance holds the lease for as long as one event can take. */
  async function hold(receiver: Receiver): Promise<boolean> {
    const isHeld = receiver.webhook.holder === HOLDER;
    const isFresh = isHeld && ageMs(receiver) < spareMs / WRITES_PER_LEASE;
    return (isFresh || (await write(store, receiver, HOLDER))) && ageMs(receiver) < spareMs;
  }

  return {
    start: (): void => {
      working = work();
    },

    /** Events in flight get a moment to be answered; the next instance sends the rest. */
    stop: async (): Promise<void> => {
      stopping.abort();
      const timer = setTimeout(() => ending.abort(), STOP_MS_MAX);
      await working;
      for (const { round } of receivers.values()) await round;
      clearTimeout(timer);
    },

    report: (): Promise<WebhookFacts[]> =>
      Promise.all(
        [...receivers.values()].map(async ({ webhook, sent, failed }) => {
          const lagSeconds =
            webhook.cursor === newest ? 0 : await measureLag(served, webhook, ages);
          const isPaused = webhook.paused !== undefined;
          return { name: webhook.name, isPaused, lagSeconds, sent, failed };
        }),
      ),
  };
}

const ageMs = ({ sinceMs }: Receiver): number => performance.now() - sinceMs;

/** True even if the last write failed. A cursor that only skipped changes is written once an hour. */
function isUnwritten(receiver: Receiver): boolean {
  const { webhook, stored } = receiver;
  const isOld = webhook.cursor !== stored.cursor && ageMs(receiver) > CURSOR_MS_MAX;
  return webhook.holder === HOLDER || webhook.paused !== stored.paused || isOld;
}

/** What this instance knows of a webhook, after the list was read again. */
function refresh(last: Receiver | undefined, webhook: Webhook, waits: readonly number[]): Receiver {
  if (last?.round !== undefined) return last;
  const { sent, failed } = last ?? { sent: 0, failed: 0 };
  const isSame = last?.stored.version === webhook.version;
  const sinceMs = performance.now();
  const dueMs = sinceMs + findWaitMs(webhook, waits);
  const seen = isSame ? last : { webhook, stored: webhook, sinceMs, dueMs };
  return { ...seen, sent, failed, round: undefined, isLost: false };
}

/** The rest of a wait that another process wrote. Never longer than the whole: the clock may have been set back. */
function findWaitMs(webhook: Webhook, retrySeconds: readonly number[]): number {
  const { nextAttemptAtMs, waitMs, failures } = webhook;
  const wholeMs = waitMs ?? (retrySeconds[failures - 1] ?? 0) * 1000;
  return Math.max(0, Math.min(nextAttemptAtMs - Date.now(), wholeMs));
}

/** False if another writer won and took the lease. If it left the lease with us, its write is merged. */
async function write(store: WholeStore, receiver: Receiver, holder?: string): Promise<boolean> {
  while (!receiver.isLost) {
    const sinceMs = performance.now();
    const next = { ...receiver.webhook, holder, version: crypto.randomUUID() };
    if (await store.putWebhook(next, receiver.stored)) {
      Object.assign(receiver, { sinceMs, webhook: next, stored: next });
      return true;
    }
    const webhooks = await store.listWebhooks();
    const stored = webhooks.find(({ name }) => name === next.name);
    if (stored?.holder === HOLDER) adopt(receiver, stored);
    else receiver.isLost = true;
  }
  return false;
}

function update(receiver: Receiver, changes: Partial<Webhook>): void {
  receiver.webhook = { ...receiver.webhook, ...changes };
}

/** Merges what commands write while an instance sends: a new secret, and test attempts. */
function adopt(receiver: Receiver, stored: Webhook): void {
  const { secret, oldSecret, attempts } = stored;
  const known = new Set(receiver.stored.attempts.map(({ event }) => event));
  const tests = attempts.filter(({ event }) => !known.has(event));
  const joined = joinAttempts(...tests, ...receiver.webhook.attempts);
  receiver.stored = stored;
  update(receiver, { secret, oldSecret, attempts: joined });
}

/** At most LARGE_CHARACTERS, or one large change: a waiting webhook holds it in memory. */
async function read(store: Pick<ServedStore, "for">, webhook: Webhook): Promise<ChangePage> {
  const { cursor, types } = webhook;
  const page = await sentBy({ store }, webhook).readChanges({
    after: cursor,
    limit: PAGE_LENGTH,
    types,
  });
  let left = LARGE_CHARACTERS;
  const full = page.changes.findIndex(({ json }) => (left -= json.length) <= 0);
  const end = page.changes[full];
  if (end === undefined) return page;
  return { ...page, changes: page.changes.slice(0, full + 1), last: end.seq, hasMore: true };
}

const AGE_MS_MIN = 1_000;
const AGE_SHARE = 16;

/**
 * How long ago this process first saw a change, by a monotonic clock. A sixteenth of the age is exact enough: so there
 * are few samples, however long it runs.
 */
class Ages {
  private samples: readonly { readonly number: number; readonly atMs: number }[] = [];
  private firstWallMs = 0;

  note(newest: number): void {
    const nowMs = performance.now();
    const last = this.samples.at(-1);
    if (last === undefined) this.firstWallMs = Date.now();
    if (last?.number === newest || nowMs - (last?.atMs ?? -Infinity) < AGE_MS_MIN) return;
    let keptMs = Number.NEGATIVE_INFINITY;
    const kept = this.samples.filter(({ atMs }) => {
      const isKept = atMs - keptMs >= (nowMs - atMs) / AGE_SHARE;
      if (isKept) keptMs = atMs;
      return isKept;
    });
    this.samples = [...kept, { number: newest, atMs: nowMs }];
  }

  /** The age of the first change after the cursor. Before the first sample, its own time has to do. */
  async measureMs(cursor: number, findTimeMs: () => Promise<number>): Promise<number> {
    const index = this.samples.findIndex(({ number }) => number > cursor);
    const seen = this.samples[index];
    if (seen === undefined) return 0;
    const beforeMs = index > 0 ? 0 : Math.max(0, this.firstWallMs - (await findTimeMs()));
    return beforeMs + performance.now() - seen.atMs;
  }
}

async function measureLag(store: Pick<ServedStore, "for">, webhook: Webhook, ages: Ages) {
  const { cursor, types } = webhook;
  const findTimeMs = (): Promise<number> =>
    sentBy({ store }, webhook)
      .readChanges({ after: cursor, limit: 1, types })
      .then(
        ({ changes }) => changes[0]?.atMs ?? Date.now(),
        () => cursor / 1000,
      );
  return (await ages.measureMs(cursor, findTimeMs)) / 1000;
}

const explainGone = ({ name, cursor }: Webhook): string =>
  `The changes after ${cursor} have been deleted, so some were not sent. ` +
  `Sync the receiver with the plants, then run: plantstore webhook replay ${name} --from newest`;
