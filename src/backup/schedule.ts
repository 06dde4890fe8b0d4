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
/** The deadline of the last append at shutdown. */
const STOP_MS_MAX = 2_000;
/** Proofs are repeated after the interval of copies or this time. */
const PROOF_MS_MAX = 3_600_000;

export function scheduleBackups(config: Config, log: Log, explain: (error: unknown) => string) {
  const { databaseUrl, backupTo: to, backupEvery, backupKeep, changesDays } = config;
  const url = parseStoreUrl(databaseUrl);
  if (url.engine !== "sqlite") throw new StoreOpenError("PostgreSQL has its own backups.");
  // Without credentials no attempt can succeed.
  if (isBucketUrl(to)) locateBucket(to, process.env);
  const everyMs = findDurationMs(backupEvery) as number;
  const instance = randomBytes(6).toString("hex");
  const source: Source = { from: url.path, to, label: labelOf(url.path), instance };
  const scratch = nameProof(url.path, instance);
  const state: BackupState = {
    place: to,
    everyMs,
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
    problem: undefined,
  };
  const stopping = new AbortController();
  const { signal } = stopping;
  const appending = createThread();
  const copying = createThread();
  let store: Store | undefined;
  /** A mistyped place never works. */
  let hasAppended = false;
  let isEnded = false;
  let [appendFailure, copyFailure] = [] as (string | undefined)[];
  /** By the monotonic clock; undefined until the place was read. */
  let dueMs: number | undefined;
  let proofDueMs = 0;
  /** The plants of the newest copy, without a journal: later states are not in the place. */
  let copyDigest: Digest | undefined;
  /** Whether the last proof succeeded. */
  let isProven = false;
  /** Pieces that are known to be damaged, so each is logged once. */
  const damaged = new Set<string>();
  let [working, maintaining] = [] as (Promise<void> | undefined)[];

  const noteProblem = (): void => {
    state.problem = appendFailure ?? copyFailure;
  };

  const noteAppend = (reason: string | undefined): void => {
    if (isEnded) return;
    if (reason !== undefined && reason !== appendFailure) {
      if (!hasAppended) log.warn("no_backups", { warning: `No backups in ${to} yet: ${reason}` });
      log.error("change_log_failed", { to, reason });
    }
    hasAppended ||= reason === undefined;
    if (reason === undefined && appendFailure !== undefined)
      log.info("change_log_resumed", { to, lagMs: Math.round(lagOf(state)) });
    appendFailure = reason;
    noteProblem();
  };

  /** What was committed before an append began is in the place when it resolves. Never rejects. */
  const append = async (): Promise<Appended | undefined> => {
    const [atMs, sinceMs, changes] = [Date.now(), performance.now(), state.countChanges()];
    const late = setTimeout(() => noteAppend("it has taken more than 10 s"), APPEND_MS_MAX).unref();
    try {
      const done = await appending.ask<Appended>({ ...source, kind: "append" });
      if ("forkAbove" in done) {
        await store?.backUps?.startTimeline(done.forkAbove, done.after);
        log.warn("timeline_started", {
          warning: `${to} holds changes that this store does not have. A new timeline begins; the other is kept.`,
        });
        return done;
      }
      noteAppend(undefined);
      if (changesDays > 0)
        Object.assign(state, { loggedAtMs: atMs, loggedSinceMs: sinceMs, loggedChanges: changes });
      if (dueMs === undefined) noteNewest(done.newest);
      // Without a journal every copy stands alone.
      if (!done.isCovered && changesDays > 0 && maintaining === undefined) dueMs = sinceMs;
      return done;
    } catch (error) {
      noteAppend(explain(error));
      return undefined;
    } finally {
      clearTimeout(late);
    }
  };

  /** A restart alone makes no copy. A time that cannot be right counts as long ago. */
  const noteNewest = (newest: NewestCopy | undefined): void => {
    const nowMs = performance.now();
    dueMs = nowMs;
    if (newest === undefined) return;
    const ageMs = Date.now() - newest.atMs;
    const isLikely = ageMs >= 0 && ageMs < everyMs;
    state.last = { ...newest, sinceMs: nowMs - (isLikely ? ageMs : everyMs) };
    dueMs = state.last.sinceMs + everyMs;
  };

  const makeCopy = async (): Promise<void> => {
    const startedAtMs = performance.now();
    try {
      const atMs = Date.now();
      const serial = await appending.ask<number>({ ...source, kind: "roll" });
      const isAlone = changesDays === 0;
      const copy = await copying.ask<CopyFacts>({ ...source, kind: "backUp", serial, isAlone });
      const durationMs = Math.round(performance.now() - startedAtMs);
      const { name, plants, bytes } = copy;
      copyDigest = copy.digest;
      log.info("backed_up", { to, name, plants, bytes, durationMs });
      state.made++;
      state.last = { atMs, bytes, sinceMs: startedAtMs };
      dueMs = startedAtMs + everyMs;
      copyFailure = undefined;
      await appending.ask({ ...source, kind: "cover" });
    } catch (error) {
      if (signal.aborted) return;
      copyFailure = explain(error);
      log.error("backup_failed", { to, reason: copyFailure });
      state.failed++;
      dueMs = performance.now() + Math.min(everyMs, RETRY_MS_MAX);
    }
    noteProblem();
  };

  /** Restores from the place what was written there, and compares. */
  const prove = async (): Promise<void> => {
    const startedAtMs = performance.now();
    try {
      const digest =
        copyDigest ?? (await copying.ask<Digest>({ kind: "digest", from: source.from }));
      if (changesDays > 0 && !reaches(await append(), digest.change)) return;
      const { diskFreeBytesMin } = config;
      const order = { ...source, ...digest, kind: "prove", scratch, diskFreeBytesMin } as const;
      const { damage, copies, oldestAtMs } = await copying.ask<Proof>(order);
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
      if (found.length > 0) await appending.ask({ ...source, kind: "recheck" });
    } catch (error) {
      if (signal.aborted) return;
      state.proofsFailed++;
      isProven = false;
      log.error("backup_proof_failed", { to, reason: explain(error) });
      await appending.ask({ ...source, kind: "recheck" }).catch(() => undefined);
    }
    const tookMs = performance.now() - startedAtMs;
    // A proof downloads copies from a bucket.
    const restMs = isBucketUrl(to) ? PROOF_MS_MAX : Math.min(everyMs, PROOF_MS_MAX);
    proofDueMs = performance.now() + Math.max(config.backupProofRest * tookMs, restMs);
  };

  /** Older pieces are removed as long as the newer ones were proven. */
  const prune = async (): Promise<void> => {
    try {
      await copying.ask({ ...source, kind: "prune", keep: backupKeep });
    } catch (error) {
      if (!signal.aborted) log.error("backup_prune_failed", { to, reason: explain(error) });
    }
  };

  const maintain = async (isCopyDue: boolean): Promise<void> => {
    if (isCopyDue) await makeCopy();
    if (performance.now() >= proofDueMs && copyFailure === undefined) await prove();
    if (isProven && copyFailure === undefined) await prune();
    // It takes memory, and is needed only now and then.
    copying.end();
  };

  /** Appends continue while a copy is made, which may take minutes. */
  const work = async (): Promise<void> => {
    while (!signal.aborted) {
      const done = await append();
      const nowMs = performance.now();
      const isCopyDue = nowMs >= (dueMs ?? Infinity);
      const isProofDue = changesDays > 0 && nowMs >= proofDueMs;
      if (done !== undefined && "change" in done && (isCopyDue || isProofDue))
        maintaining ??= maintain(isCopyDue).finally(() => (maintaining = undefined));
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
      if (changesDays > 0)
        Object.assign(state, { loggedAtMs: Date.now(), loggedSinceMs: performance.now() });
      working = work();
    },
    /** Call it when writes have stopped: the last append then has everything. */
    async stop(): Promise<void> {
      stopping.abort();
      copying.end();
      const isHanging =
        (await within(STOP_MS_MAX, Promise.allSettled([working, maintaining]))) === undefined;
      if (!isHanging) {
        await within(STOP_MS_MAX, append());
        const finished = appending.ask({ ...source, kind: "finish" });
        await within(STOP_MS_MAX, finished).catch(() => undefined);
      }
      isEnded = true;
      appending.end();
      // A thread that is ended cannot remove it itself.
      rmSync(scratch, { force: true });
    },
  };
}

const reaches = (done: Appended | undefined, change: number): boolean =>
  done !== undefined && "change" in done && done.change >= change;

/** How long changes have been waiting for the place. */
const lagOf = ({ loggedSinceMs }: BackupState): number =>
  performance.now() - (loggedSinceMs ?? performance.now());
