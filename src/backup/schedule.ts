/**
 * Backups of a running service. Two threads touch the place, and the thread that serves only waits for them: one
 * appends changes, the other makes copies, proves and prunes.
 */

import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { Config } from "../config.ts";
import { StoreOpenError } from "../domain/errors.ts";
import { findDurationMs } from "../domain/time.ts";
import type { Store } from "../domain/store.ts";
import { isBucketUrl, parseStoreUrl } from "../store-url.ts";
import type { Log } from "../observe/log.ts";
import type { BackupState } from "../observe/reporter.ts";
import { within } from "../tick.ts";
import type { Appended, NewestCopy } from "./append.ts";
import type { CopyFacts } from "./keep.ts";
import type { Digest, Source } from "./order.ts";
import type { Proof } from "./restore.ts";
import { labelOf, nameProof } from "./piece.ts";
import { locateBucket } from "./s3.ts";
import { createThread } from "./thread.ts";

/** A slower append is logged. */
const APPEND_MS_MAX = 10_000;
/** A failed copy is retried after this time, or after the interval if that is shorter. */
const RETRY_MS_MAX = 300_000;
/** The deadline of each step of a shutdown: what is under way, the last append, giving up the lease. */
export const STOP_MS_MAX = 2_000;
/** Proofs are repeated after the interval of copies or this time. */
const PROOF_MS_MAX = 3_600_000;

export function scheduleBackups(config: Config, log: Log, explain: (error: unknown) => string) {
  const { databaseUrl, backupTo: to } = config;
  const url = parseStoreUrl(databaseUrl);
  if (url.engine !== "sqlite") throw new StoreOpenError("PostgreSQL has its own backups.");
  // Without credentials no attempt can succeed.
  if (isBucketUrl(to)) locateBucket(to, process.env);
  const instance = randomBytes(6).toString("hex");
  const source: Source = { from: url.path, to, label: labelOf(url.path), instance };
  const scratch = nameProof(url.path, instance);
  const state: BackupState = {
    place: to,
    everyMs: findDurationMs(config.backupEvery) as number,
    made: 0,
    failed: 0,
    last: undefined,
    loggedAtMs: undefined,
    loggedSinceMs: undefined,
    countChanges: () => 0,
    loggedChanges: 0,
    proven: undefined,
    proofs: 0,
    proofsFailed: 0,
    get problem() {
      return failure ?? maintainer.findFailure();
    },
  };
  const hasJournal = config.changesDays > 0;
  const stopping = new AbortController();
  const { signal } = stopping;
  const thread = createThread();
  const ask: Ask = (kind) => thread.ask({ ...source, kind });
  let store: Store | undefined;
  /** A mistyped place never works. */
  let hasAppended = false;
  let isEnded = false;
  let failure: string | undefined;
  let working: Promise<void> | undefined;

  const noteAppend = (reason: string | undefined): void => {
    if (isEnded) return;
    if (reason !== undefined && reason !== failure) {
      if (!hasAppended) log.warn("no_backups", { warning: `No backups in ${to} yet: ${reason}` });
      log.error("change_log_failed", { to, reason });
    }
    hasAppended ||= reason === undefined;
    if (reason === undefined && failure !== undefined)
      log.info("change_log_resumed", { to, lagMs: Math.round(lagOf(state)) });
    failure = reason;
  };

  /** What was committed before an append began is in the place when it resolves. Never rejects. */
  const append = async (): Promise<Appended | undefined> => {
    const [atMs, sinceMs, changes] = [Date.now(), performance.now(), state.countChanges()];
    const late = setTimeout(() => noteAppend("it has taken more than 10 s"), APPEND_MS_MAX).unref();
    try {
      const done = await ask<Appended>("append");
      if ("forkAbove" in done) {
        await store?.backUps?.startTimeline(done.forkAbove, done.after);
        log.warn("timeline_started", {
          warning: `${to} holds changes that this store does not have. A new timeline begins; the other is kept.`,
        });
        return done;
      }
      noteAppend(undefined);
      if (hasJournal)
        Object.assign(state, { loggedAtMs: atMs, loggedSinceMs: sinceMs, loggedChanges: changes });
      return done;
    } catch (error) {
      noteAppend(explain(error));
      return undefined;
    } finally {
      clearTimeout(late);
    }
  };

  const parts = { config, source, scratch, state, log, explain, append, ask };
  const maintainer = createMaintainer(parts, signal);

  /** Appends continue while a copy is made, which may take minutes. */
  const work = async (): Promise<void> => {
    while (!signal.aborted) {
      const done = await append();
      if (done !== undefined && "change" in done) maintainer.startDue(done);
      // A failed append is retried soon.
      const isSparing = done !== undefined && isBucketUrl(to);
      const pauseSeconds = isSparing ? config.backupBucketSeconds : config.backupFolderSeconds;
      await sleep(1_000 * pauseSeconds, undefined, { signal }).catch(() => undefined);
    }
  };

  return {
    state,
    start(served: Store): void {
      store = served;
      if (hasJournal)
        Object.assign(state, { loggedAtMs: Date.now(), loggedSinceMs: performance.now() });
      working = work();
    },
    /** Call it when writes have stopped: the last append then has everything. */
    async stop(): Promise<void> {
      stopping.abort();
      maintainer.end();
      const atWork = Promise.allSettled([working, maintainer.settle()]);
      const isHanging = (await within(STOP_MS_MAX, atWork)) === undefined;
      if (!isHanging) {
        await within(STOP_MS_MAX, append());
        await within(STOP_MS_MAX, ask("finish")).catch(() => undefined);
      }
      isEnded = true;
      thread.end();
      // A thread that is ended cannot remove it itself.
      rmSync(scratch, { force: true });
    },
  };
}

/** Orders for the thread that appends. */
type Ask = <Answer>(kind: "append" | "roll" | "cover" | "recheck" | "finish") => Promise<Answer>;

interface Maintained {
  readonly config: Config;
  readonly source: Source;
  readonly scratch: string;
  readonly state: BackupState;
  readonly log: Log;
  readonly explain: (error: unknown) => string;
  readonly append: () => Promise<Appended | undefined>;
  readonly ask: Ask;
}

/** The thread that makes copies, proves and prunes. */
function createMaintainer(
  { config, source, scratch, state, log, explain, append, ask }: Maintained,
  signal: AbortSignal,
) {
  const { to } = source;
  const { everyMs } = state;
  const hasJournal = config.changesDays > 0;
  const thread = createThread();
  let working: Promise<void> | undefined;
  let failure: string | undefined;
  /** By the monotonic clock; undefined until the place is read. */
  let dueMs: number | undefined;
  let proofDueMs = 0;
  /** The plants of the newest copy, without a journal: later states are not in the place. */
  let copyDigest: Digest | undefined;
  /** Whether the last proof succeeded. */
  let isProven = false;
  /** Pieces that are known to be damaged, so each is logged once. */
  const damaged = new Set<string>();

  /** When the next copy is due. A restart alone makes no copy. A time that cannot be right counts as long ago. */
  const noteNewest = (newest: NewestCopy | undefined, nowMs: number): number => {
    if (newest === undefined) return nowMs;
    const ageMs = Date.now() - newest.atMs;
    const isLikely = ageMs >= 0 && ageMs < everyMs;
    state.last = { ...newest, sinceMs: nowMs - (isLikely ? ageMs : everyMs) };
    return state.last.sinceMs + everyMs;
  };

  const makeCopy = async (): Promise<void> => {
    const startedAtMs = performance.now();
    try {
      const atMs = Date.now();
      const serial = await ask<number>("roll");
      const order = { ...source, kind: "backUp", serial, isAlone: !hasJournal } as const;
      const { name, plants, bytes, digest } = await thread.ask<CopyFacts>(order);
      const durationMs = Math.round(performance.now() - startedAtMs);
      copyDigest = digest;
      log.info("backed_up", { to, name, plants, bytes, durationMs });
      state.made++;
      state.last = { atMs, bytes, sinceMs: startedAtMs };
      dueMs = startedAtMs + everyMs;
      failure = undefined;
      await ask("cover");
    } catch (error) {
      if (signal.aborted) return;
      failure = explain(error);
      log.error("backup_failed", { to, reason: failure });
      state.failed++;
      dueMs = performance.now() + Math.min(everyMs, RETRY_MS_MAX);
    }
  };

  /** Restores from the place what was written there, and compares. */
  const prove = async (): Promise<void> => {
    const startedAtMs = performance.now();
    try {
      const digest =
        copyDigest ?? (await thread.ask<Digest>({ kind: "digest", from: source.from }));
      if (hasJournal && !reaches(await append(), digest.change)) return;
      const { diskFreeBytesMin } = config;
      const order = { ...source, ...digest, kind: "prove", scratch, diskFreeBytesMin } as const;
      const { damage, copies, oldestAtMs } = await thread.ask<Proof>(order);
      state.proofs++;
      isProven = true;
      const { change } = digest;
      const [atMs, sinceMs] = [Date.now(), performance.now()];
      state.proven = { atMs, sinceMs, change, copies, oldestAtMs };
      log.info("backup_proven", { to, change });
      const found = damage.filter(({ name }) => !damaged.has(name));
      for (const { name, faults } of found) {
        damaged.add(name);
        log.error("backup_damaged", { to, name, reason: faults.join("; ") });
      }
      // It continues where the place is whole.
      if (found.length > 0) await ask("recheck");
    } catch (error) {
      if (signal.aborted) return;
      state.proofsFailed++;
      isProven = false;
      log.error("backup_proof_failed", { to, reason: explain(error) });
      await ask("recheck").catch(() => undefined);
    }
    const tookMs = performance.now() - startedAtMs;
    // A proof downloads copies from a bucket.
    const restMs = isBucketUrl(to) ? PROOF_MS_MAX : Math.min(everyMs, PROOF_MS_MAX);
    proofDueMs = performance.now() + Math.max(config.backupProofRest * tookMs, restMs);
  };

  /** Older pieces are removed as long as the newer ones were proven. */
  const prune = async (): Promise<void> => {
    try {
      await thread.ask({ ...source, kind: "prune", keep: config.backupKeep });
    } catch (error) {
      if (!signal.aborted) log.error("backup_prune_failed", { to, reason: explain(error) });
    }
  };

  const maintain = async (isCopyDue: boolean): Promise<void> => {
    if (isCopyDue) await makeCopy();
    if (performance.now() >= proofDueMs && failure === undefined) await prove();
    if (isProven && failure === undefined) await prune();
    // It takes memory, and is needed only now and then.
    thread.end();
  };

  return {
    end: thread.end,
    findFailure: () => failure,
    settle: () => working,

    /** Call it after an append. It has no effect while a copy or a proof is made. */
    startDue({ newest, isCovered }: Exclude<Appended, { forkAbove: number }>): void {
      const nowMs = performance.now();
      dueMs ??= noteNewest(newest, nowMs);
      if (working !== undefined) return;
      // Without a journal every copy stands alone.
      if (!isCovered && hasJournal) dueMs = nowMs;
      const isCopyDue = nowMs >= dueMs;
      const isProofDue = hasJournal && nowMs >= proofDueMs;
      if (isCopyDue || isProofDue)
        working = maintain(isCopyDue).finally(() => (working = undefined));
    },
  };
}

const reaches = (done: Appended | undefined, change: number): boolean =>
  done !== undefined && "change" in done && done.change >= change;

/** How long changes have been waiting for the place. */
const lagOf = ({ loggedSinceMs }: BackupState): number =>
  performance.now() - (loggedSinceMs ?? performance.now());
