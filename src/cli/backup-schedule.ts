/** plantstore serve --backup-to: verified backups while the service runs, each with the time in its name. */

import { readdirSync, rmSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { findDurationMs } from "../auth/rate-limit.ts";
import type { Config } from "../config.ts";
import type { Log } from "../observe/log.ts";
import type { BackupState } from "../observe/reporter.ts";
import { parseStoreUrl } from "../store/open.ts";
import { backUpStore } from "../store/sqlite/backup.ts";
import { UsageError } from "./command.ts";

/** A backup that failed is tried again after this time, or after the interval if that is shorter. */
const RETRY_MS_MAX = 300_000;

/** A younger one may be the backup that another service is making now. */
const LEFTOVER_MS_MIN = 3_600_000;
/** Clocks of two machines that share a folder may differ by this much. */
const CLOCK_MS_MAX = 60_000;

/** The store's name, the time at which the backup began, and what a killed backup leaves behind. */
const namePattern = /^(.+)-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z\.db(\.[0-9a-f]{12}\.tmp.*)?$/;

interface Backup {
  readonly file: string;
  readonly store: string;
  readonly atMs: number;
  readonly isComplete: boolean;
}

/**
 * Oldest first. A name with a time in the future comes from a wrong clock. Its real age is unknown, so it counts as the
 * oldest.
 */
function readBackups(folder: string): Backup[] {
  const nowMs = Date.now();
  return readdirSync(folder, { withFileTypes: true })
    .flatMap((entry) => {
      const [, store, year, month, day, hour, minute, second, leftover] =
        namePattern.exec(entry.name) ?? [];
      const namedMs = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
      if (store === undefined || Number.isNaN(namedMs) || !entry.isFile()) return [];
      const atMs = namedMs > nowMs + CLOCK_MS_MAX ? 0 : namedMs;
      return [{ file: join(folder, entry.name), store, atMs, isComplete: leftover === undefined }];
    })
    .toSorted((one, other) => one.atMs - other.atMs);
}

export const findNewestBackup = (folder: string): Backup | undefined =>
  readBackups(folder).findLast(({ isComplete }) => isComplete);

export class BackupSchedule {
  readonly state: BackupState;
  private readonly path: string;
  private readonly folder: string;
  private readonly keep: number;
  private readonly log: Log;
  private readonly stopping = new AbortController();
  private timer: Timer | undefined;
  private running: Promise<void> = Promise.resolve();

  constructor({ databaseUrl, backupTo, backupEvery, backupKeep }: Config, log: Log) {
    const url = parseStoreUrl(databaseUrl);
    if (url.engine !== "sqlite")
      throw new UsageError("--backup-to: for backups of PostgreSQL, see docs/backup.md");
    this.path = url.path;
    this.folder = backupTo;
    this.keep = backupKeep;
    this.log = log;
    const everyMs = findDurationMs(backupEvery) as number;
    this.state = { everyMs, made: 0, failed: 0, last: undefined };
  }

  /** The first backup is due when the newest one is old enough: a restart alone makes none. */
  start(): void {
    const { state } = this;
    try {
      const newest = this.listOwn().findLast(({ isComplete }) => isComplete);
      if (newest !== undefined)
        state.last = { atMs: newest.atMs, bytes: statSync(newest.file).size };
    } catch {
      // The first backup fails for the same reason, and says so.
    }
    this.wait((state.last?.atMs ?? 0) + state.everyMs - Date.now());
  }

  async stop(): Promise<void> {
    clearTimeout(this.timer);
    this.stopping.abort();
    await this.running;
  }

  private wait(ms: number): void {
    this.timer = setTimeout(
      () => {
        this.running = this.run();
      },
      Math.max(0, ms),
    );
  }

  private async run(): Promise<void> {
    const { state, log, folder } = this;
    const { signal } = this.stopping;
    const startedAt = new Date();
    try {
      for (const { file, isComplete, atMs } of this.listOwn())
        if (!isComplete && atMs < startedAt.getTime() - LEFTOVER_MS_MIN) rmSync(file);
      const time = startedAt.toISOString().replaceAll(/[-:]|\.\d+/g, "");
      const to = join(folder, `${this.storeName}-${time}.db`);
      const { plants, bytes } = await backUpStore({ from: this.path, to, signal });
      const durationMs = Date.now() - startedAt.getTime();
      log.info("backed_up", { to, plants: Number(plants), bytes, durationMs });
      state.made++;
      state.last = { atMs: startedAt.getTime(), bytes };
      const complete = this.listOwn().filter(({ isComplete }) => isComplete);
      for (const { file } of complete.slice(0, -this.keep)) rmSync(file);
    } catch (cause) {
      if (signal.aborted) return;
      log.error("backup_failed", { to: folder, cause });
      state.failed++;
      return this.wait(Math.min(state.everyMs, RETRY_MS_MAX));
    }
    if (!signal.aborted) this.wait(startedAt.getTime() + state.everyMs - Date.now());
  }

  private get storeName(): string {
    return basename(this.path).replace(/\.db$/, "");
  }

  /** The folder may hold other files, and backups of other stores. */
  private listOwn(): Backup[] {
    return readBackups(this.folder).filter(({ store }) => store === this.storeName);
  }
}
