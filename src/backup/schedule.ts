/**
 * Backups of a running service. Two threads touch the place, and the thread that serves only waits for them: one
 * appends changes, the other makes copies, proves and prunes.
 */

import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Config } from "../config.ts";
import { StoreOpenError } from "../domain/errors.ts";
import { DAY_MS, findDurationMs } from "../domain/time.ts";
import type { Store } from "../domain/store.ts";
import { isBucketUrl, parseStoreUrl } from "../store-url.ts";
import type { Log } from "../observe/log.ts";
import type { BackupState } from "../observe/reporter.ts";
import { within } from "../tick.ts";
import type { Source } from "./place.ts";
import type { Appended, Reached } from "./ship.ts";
import type { CopyFacts, Proof } from "./maintain.ts";
import { type CheckPosition, labelOf, nameProof } from "./names.ts";
import { isCopyDue, type NewestCopy } from "./plan.ts";
import { locateBucket } from "./s3.ts";
import { sweepScratch } from "./scratch.ts";
import { createThread } from "./thread.ts";

/** A slower append is logged. */
const APPEND_MS_MAX = 10_000;
/** What failed is tried again after twice as long each time, up to this. */
const RETRY_MS_MIN = 1_000;
const APPEND_RETRY_MS_MAX = 60_000;
const COPY_RETRY_MS_MIN = 10_000;
const COPY_RETRY_MS_MAX = 3_600_000;
/** The deadline of each step of a shutdown: what is under way, the last append, giving up the lease. */
export const STOP_MS_MAX = 2_000;

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
    currentSinceMs: undefined,
    provenSinceMs: 0,
    loggedAtMs: undefined,
    loggedSinceMs: undefined,
    countChanges: () => 0,
    loggedChanges: 0,
    proven: undefined,
    proofs: 0,
    proofsFailed: 0,
    damaged: 0,
    get problem() {
      return failure ?? maintainer.findProblem();
    },
  };
  const hasJournal = config.changesDays > 0;
  const stopping = new AbortController();
  const { signal } = stopping;
  const thread = createThread();
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
      const { checked } = maintainer;
      const done = await thread.ask("append", source, checked);
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

  const { ask } = thread;
  const parts = { config, source, scratch, state, log, explain, append, ask };
  const maintainer = createMaintainer(parts, signal);

  /** Appends continue while a copy is made, which may take minutes. */
  const work = async (): Promise<void> => {
    const usualMs =
      1_000 * (isBucketUrl(to) ? config.backupBucketSeconds : config.backupFolderSeconds);
    for (let retryMs = RETRY_MS_MIN; !signal.aborted;) {
      const done = await append();
      if (done !== undefined && "change" in done) maintainer.startDue(done);
      const pauseMs =
        done === undefined ? Math.min(retryMs, Math.max(usualMs, APPEND_RETRY_MS_MAX)) : usualMs;
      retryMs = done === undefined ? 2 * pauseMs : RETRY_MS_MIN;
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined);
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
        await within(STOP_MS_MAX, thread.ask("finish")).catch(() => undefined);
      }
      isEnded = true;
      thread.end();
      // Threads that are ended cannot remove them.
      rmSync(scratch, { force: true });
      sweepScratch(dirname(resolve(url.path)), true);
    },
  };
}

interface Maintained {
  readonly config: Config;
  readonly source: Source;
  readonly scratch: string;
  readonly state: BackupState;
  readonly log: Log;
  readonly explain: (error: unknown) => string;
  readonly append: () => Promise<Appended | undefined>;
  /** The thread that appends. */
  readonly ask: ReturnType<typeof createThread>["ask"];
}

/** The thread that makes copies, proves, looks for rot and prunes. */
function createMaintainer(
  { config, source, scratch, state, log, explain, append, ask }: Maintained,
  signal: AbortSignal,
) {
  const { to } = source;
  const { everyMs } = state;
  const hasJournal = config.changesDays > 0;
  const ageMsMax = 1_000 * config.backupCopySeconds;
  const thread = createThread();
  const retention = {
    momentsMs: config.backupMomentsDays * DAY_MS,
    days: config.backupStatesDays,
  };
  let working: Promise<void> | undefined;
  /** By event. Each is gone when the same has succeeded. */
  const problems = new Map<string, string>();
  /** By the monotonic clock. */
  let dueMs = Number.NEGATIVE_INFINITY;
  let consideredMs: number | undefined;
  let retryMs = COPY_RETRY_MS_MIN;
  /** Undefined before the first check: then it continues where the note says. */
  let checked: CheckPosition | undefined;
  let isProven = true;
  /** The last change in the place at the check before. */
  let coveredChange: number | undefined;
  /** Pieces that are known to be damaged, so each is logged once. */
  const damaged = new Set<string>();

  /** A copy of an earlier run. A time that cannot be right counts as long ago. */
  const noteNewest = ({ atMs, bytes }: NewestCopy): void => {
    if (state.last !== undefined) return;
    const ageMs = Date.now() - atMs;
    const isLikely = ageMs >= 0 && ageMs < ageMsMax;
    const sinceMs = performance.now() - (isLikely ? ageMs : ageMsMax);
    state.last = { atMs, bytes, sinceMs };
  };

  /** No copy is needed now, and nothing has to be proven: neither is late. */
  const noteCurrent = (): void => {
    state.currentSinceMs = performance.now();
    if (isProven) state.provenSinceMs = state.currentSinceMs;
  };

  /** False if the failure is that of a stop. */
  const fail = (event: string, error: unknown): boolean => {
    if (signal.aborted) return false;
    const reason = explain(error);
    problems.set(event, reason);
    log.error(event, { to, reason });
    return true;
  };

  const makeCopy = async (serial: number): Promise<CopyFacts | undefined> => {
    const sinceMs = performance.now();
    try {
      const { diskFreeBytesMin } = config;
      const copy = await thread.ask("backUp", { ...source, serial, diskFreeBytesMin });
      const { name, plants, bytes, atMs } = copy;
      const durationMs = Math.round(performance.now() - sinceMs);
      log.info("backed_up", { to, name, plants, bytes, durationMs });
      state.made++;
      state.last = { atMs, bytes, sinceMs };
      state.currentSinceMs = sinceMs;
      problems.delete("backup_failed");
      retryMs = COPY_RETRY_MS_MIN;
      await ask("cover", copy);
      return copy;
    } catch (error) {
      if (!fail("backup_failed", error)) return undefined;
      state.failed++;
      // A copy that cannot be finished fills the disk again and again.
      dueMs = performance.now() + retryMs;
      retryMs = Math.min(2 * retryMs, COPY_RETRY_MS_MAX);
      return undefined;
    }
  };

  const noteDamage = async (damage: Proof["damage"]): Promise<void> => {
    const found = damage.filter(({ name }) => !damaged.has(name));
    for (const { name, faults } of found) {
      damaged.add(name);
      state.damaged++;
      log.error("backup_damaged", { to, name, reason: faults.join("; ") });
    }
    // It continues where the place is whole.
    if (found.length > 0) await ask("recheck");
  };

  /** Restores the state of the copy without it, and compares. Then older pieces are not needed. */
  const prove = async ({ name, change, digest }: CopyFacts, isCovered: boolean) => {
    try {
      if (hasJournal && !reaches(await append(), change)) return;
      const { diskFreeBytesMin } = config;
      const task = { ...source, name, change, digest, scratch, diskFreeBytesMin, isCovered };
      const { damage, copies, oldestAtMs } = await thread.ask("prove", task);
      state.proofs++;
      state.proven = { atMs: Date.now(), change, copies, oldestAtMs };
      state.provenSinceMs = performance.now();
      isProven = true;
      problems.delete("backup_proof_failed");
      log.info("backup_proven", { to, change });
      await noteDamage(damage);
    } catch (error) {
      if (!fail("backup_proof_failed", error)) return;
      state.proofsFailed++;
      isProven = false;
      await ask("recheck").catch(() => undefined);
      return;
    }
    await thread.ask("prune", { ...source, retention }).then(
      () => problems.delete("backup_prune_failed"),
      (error: unknown) => fail("backup_prune_failed", error),
    );
  };

  /** Reads every piece in turn, within a number of days, and misses those that are gone. */
  const check = async (done: Reached, elapsedMs: number): Promise<void> => {
    const { after, share: left } = checked ?? done.checked ?? { after: "", share: 0 };
    const share = left + elapsedMs / (config.backupCheckDays * DAY_MS);
    // What was written since the last check may not be listed yet.
    const change = done.isCovered ? coveredChange : undefined;
    coveredChange = done.isCovered ? done.change : undefined;
    try {
      const task = { ...source, after, share, change };
      const { damage, ...position } = await thread.ask("check", task);
      checked = position;
      problems.delete("backup_check_failed");
      await noteDamage(damage);
    } catch (error) {
      checked = { after, share };
      fail("backup_check_failed", error);
    }
  };

  const maintain = async (done: Reached, elapsedMs: number): Promise<void> => {
    const ageMs = performance.now() - (state.last?.sinceMs ?? 0);
    const logBytesMin = config.backupLogBytesMin;
    if (isCopyDue(done, { hasJournal, ageMs, ageMsMax, logBytesMin })) {
      const copy = await makeCopy(done.serial);
      if (copy !== undefined && !signal.aborted) await prove(copy, done.isCovered);
    } else noteCurrent();
    if (!problems.has("backup_failed") && !signal.aborted) await check(done, elapsedMs);
    // It takes memory, and is needed only now and then.
    thread.end();
  };

  return {
    end: thread.end,
    findProblem: (): string | undefined => problems.values().next().value,
    get checked() {
      return checked;
    },
    settle: () => working,

    /** Call it after an append. It has no effect while a copy or a proof is made. */
    startDue(done: Reached): void {
      const nowMs = performance.now();
      if (done.newest !== undefined) noteNewest(done.newest);
      const mustCopy = !problems.has("backup_failed") && hasJournal && !done.isCovered;
      if (working !== undefined || (nowMs < dueMs && !mustCopy)) return;
      const elapsedMs = nowMs - (consideredMs ?? nowMs);
      consideredMs = nowMs;
      dueMs = nowMs + everyMs;
      working = maintain(done, elapsedMs).finally(() => (working = undefined));
    },
  };
}

const reaches = (done: Appended | undefined, change: number): boolean =>
  done !== undefined && "change" in done && done.change >= change;

/** How long changes have been waiting for the place. */
const lagOf = ({ loggedSinceMs }: BackupState): number =>
  performance.now() - (loggedSinceMs ?? performance.now());
