/** Verified copies of a SQLite store: plantstore backup and restore, and plantstore serve --backup-to. */

import { mkdtempSync, openSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { findTimeMs } from "../domain/change.ts";
import { findDurationMs } from "../domain/rate.ts";
import type { Config } from "../config.ts";
import { copyDescriptor, STANDARD_INPUT, STANDARD_OUTPUT } from "../descriptor.ts";
import type { Log } from "../observe/log.ts";
import type { BackupState } from "../observe/reporter.ts";
import { parseStoreUrl } from "../domain/store-url.ts";
import {
  type AppendRequest,
  backUpStore,
  restoreStore,
  startCopyThread,
  type Transferred,
} from "../store/sqlite/backup.ts";
import { findPoint, findReach, logOf, NEWEST, type Point } from "../store/sqlite/change-log.ts";
import { adviseOnTemporaryFiles, migrations } from "../store/sqlite/database.ts";
import { within } from "../tick.ts";
import { parseChangeNumber } from "./changes.ts";
import { CommandError, explain, type Flags, untilInterrupted, UsageError } from "./command.ts";
import { printReport } from "./terminal.ts";

export async function backUp(config: Config, flags: Flags, file: string): Promise<void> {
  const [from, to] = [requireSqlite(config.databaseUrl), requirePath(file)];
  if (to === "-" && process.stdout.isTTY)
    throw new UsageError("-: standard output is a terminal; redirect it into a file");
  await transfer("backed_up", "Backed up, and the copy verified.", from, flags, (signal) =>
    to === "-"
      ? withTemporaryFile(async (path) => {
          const transferred = await backUpStore({ from, to: path, signal });
          await copyDescriptor(openSync(path, "r"), STANDARD_OUTPUT, signal);
          return { ...transferred, path: "-" };
        })
      : backUpStore({ from, to, signal }),
  );
}

export async function restore(config: Config, flags: Flags, file: string): Promise<void> {
  const [from, to] = [requirePath(file), requireSqlite(config.databaseUrl)];
  const isFolder = from !== "-" && statSync(from, { throwIfNoEntry: false })?.isDirectory();
  const until = parseUntil(flags);
  if (until !== undefined && !isFolder)
    throw new UsageError("--at and --at-change need a folder of plantstore serve --backup-to");
  const source = isFolder ? chooseBackup(from, storeNameOf(to), until) : { from };
  await transfer("restored", "Restored, and the store verified.", source.from, flags, (signal) =>
    from === "-"
      ? withTemporaryFile(async (path) => {
          await copyDescriptor(STANDARD_INPUT, openSync(path, "wx", 0o600), signal).catch(
            (error: NodeJS.ErrnoException) => {
              throw error.syscall === "write" ? explainTemporary(error) : error;
            },
          );
          return restoreStore({ from: path, to, signal });
        })
      : restoreStore({ ...source, to, signal }),
  );
}

function parseUntil({ at, atChange }: Flags): Point | undefined {
  if (at !== undefined && atChange !== undefined)
    throw new UsageError("--at and --at-change: give one of them");
  if (atChange !== undefined)
    return { ...NEWEST, change: parseChangeNumber("--at-change", atChange) };
  if (at === undefined) return undefined;
  const atMs = findTimeMs(at);
  if (atMs !== undefined) return { ...NEWEST, atMs };
  throw new UsageError(
    `--at: ${JSON.stringify(at)} is not allowed; expected a time with its zone, as in 2026-11-15T10:00:00Z`,
  );
}

/** The copy to start from, and up to which point its log is replayed. */
function chooseBackup(folder: string, store: string, until: Point | undefined) {
  const complete = readBackups(folder);
  const names = [...new Set(complete.map((one) => one.store))];
  if (names.length > 1 && !names.includes(store))
    throw new CommandError(
      `${resolve(folder)} holds backups of several stores: ${names.join(", ")}. Name the file to restore.`,
    );
  const own = complete.filter((one) => names.length === 1 || one.store === store).toReversed();
  const oldest = own.at(-1);
  if (oldest === undefined) throw noBackup(folder);
  const start = until === undefined ? 0 : own.findIndex((copy) => isBefore(until, copy));
  const chosen = start === -1 ? undefined : findFurthest(own.slice(start));
  if (chosen === undefined)
    throw new CommandError(
      `No backup in ${resolve(folder)} is old enough. The oldest was made at ${formatMoment(oldest.atMs)}, with change ${findPoint(oldest.file).change}.`,
    );
  const next = own[own.indexOf(chosen) - 1];
  if (until !== undefined && next !== undefined) requireReach(until, chosen, next);
  return { from: chosen.file, until: until ?? NEWEST };
}

/** If the service was killed just after a copy, only the log of the copy before has the last changes. */
function findFurthest(newestFirst: readonly Backup[]): Backup | undefined {
  const [newest, before] = newestFirst;
  if (newest === undefined || before === undefined) return newest;
  return findReach(before.file).change > findReach(newest.file).change ? before : newest;
}

/** Whether the copy has no later change. */
function isBefore(until: Point, { file, atMs }: Backup): boolean {
  if (atMs > until.atMs) return false;
  const newest = findPoint(file);
  return newest.change <= until.change && newest.atMs <= until.atMs;
}

/** The log of a copy has every change up to the next copy, unless the service or its folder failed. */
function requireReach(until: Point, chosen: Backup, next: Backup): void {
  const reach = findReach(chosen.file);
  const isShort = reach.change < until.change && reach.atMs < until.atMs;
  if (isShort && reach.change < findPoint(next.file).change)
    throw new CommandError(
      `${logOf(chosen.file)} ends at ${formatMoment(reach.atMs)}, before that moment. To restore its last state: --at-change ${reach.change}.`,
    );
}

const formatMoment = (atMs = 0): string => new Date(atMs).toISOString();

const noBackup = (folder: string): CommandError =>
  new CommandError(`${resolve(folder)} holds no backup of plantstore serve --backup-to.`);

export async function verifyBackup(folder: string, flags: Flags): Promise<void> {
  const complete = readBackups(requirePath(folder));
  const newest = complete.at(-1);
  if (newest === undefined) throw noBackup(folder);
  const before = complete.findLast((one) => one.store === newest.store && one !== newest);
  const sentence = `The newest backup, of ${formatMoment(newest.atMs)}, can be restored: every row was compared.`;
  await transfer("verified", sentence, newest.file, flags, async (signal) => {
    // Replaying the previous copy's log must give the newest copy.
    const point = findPoint(newest.file);
    if (before !== undefined && findReach(before.file).change >= point.change)
      await withTemporaryFile((to) =>
        restoreStore({
          from: before.file,
          to,
          signal,
          until: { ...NEWEST, change: point.change },
          sameAs: newest.file,
        }),
      );
    return withTemporaryFile(async (to) => ({
      ...(await restoreStore({ from: newest.file, to, signal, until: NEWEST })),
      path: undefined,
    }));
  });
}

const explainTemporary = (error: unknown): CommandError =>
  new CommandError(`${explain(error)} ${adviseOnTemporaryFiles(tmpdir())}`, { cause: error });

/** SQLite needs a seekable file, which a pipe is not. */
async function withTemporaryFile<Result>(use: (path: string) => Promise<Result>): Promise<Result> {
  let folder: string;
  try {
    folder = mkdtempSync(join(tmpdir(), "plantstore-"));
  } catch (error) {
    throw explainTemporary(error);
  }
  try {
    return await use(join(folder, "backup.db"));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function requirePath(file: string): string {
  // An unset variable in a script.
  if (file === "") throw new UsageError("<file>: expected a path, got nothing");
  return file;
}

function requireSqlite(databaseUrl: string): string {
  const url = parseStoreUrl(databaseUrl);
  if (url.engine === "sqlite") return url.path;
  throw new CommandError(
    "PostgreSQL has its own tools for this:\n" +
      `  pg_dump --format=custom --file=plants.dump "$DATABASE_URL"\n` +
      `  pg_restore --clean --if-exists --dbname="$DATABASE_URL" plants.dump\n` +
      "For backups to any point in time, see docs/operations.md. To copy into a SQLite file: plantstore copy.",
  );
}

/** Ctrl-C leaves everything as it was. */
async function transfer(
  event: string,
  sentence: string,
  from: string,
  { json }: Flags,
  /** Resolves without a path if the copy was temporary. */
  make: (signal: AbortSignal) => Promise<Omit<Transferred, "path"> & { path: string | undefined }>,
): Promise<void> {
  const startedAtMs = performance.now();
  const { path, schemaVersion, plants, tokens, bytes, replayed } = await untilInterrupted(make);
  const seconds = Math.round(performance.now() - startedAtMs) / 1000;
  const schema = json ? schemaVersion : describeSchema(schemaVersion, migrations.length);
  const source = from === "-" ? from : resolve(from);
  const { changes, reached } = replayed ?? {};
  // The last change in the result.
  const last = reached && { change: reached.change, at: formatMoment(reached.atMs) };
  const moment = json ? last : last && `${last.at}, change ${last.change}`;
  const facts = { from: source, to: path, plants, tokens, changes, moment, schema, bytes, seconds };
  const output = path === "-" ? process.stderr : process.stdout;
  printReport(sentence, facts, { isJson: json, more: { event }, output });
}

export const describeSchema = (version: number, newest: number): string =>
  version === newest
    ? `${version}, the newest`
    : `${version}, will be migrated to ${newest} at the next start`;

/** A failed backup is retried after this time, or after the interval if that is shorter. */
const RETRY_MS_MAX = 300_000;
/** A younger leftover may be a backup in progress by another service. */
const LEFTOVER_MS_MIN = 3_600_000;
/** Clock skew between machines that share a folder. */
const CLOCK_MS_MAX = 60_000;

/** The store's name, when the backup began, and the suffix of a killed backup. */
const namePattern = /^(.+)-(\d{8}T\d{6}Z)\.db(\.[0-9a-f]{12}\.tmp.*)?$/;

/** Oldest first. A name with a future time comes from a wrong clock, and counts as the oldest. */
function readBackups(folder: string, isComplete = true) {
  return readdirSync(folder, { withFileTypes: true })
    .flatMap((entry) => {
      const [, store = "", time = "", leftover] = namePattern.exec(entry.name) ?? [];
      const iso = time.replace(/(....)(..)(..T..)(..)(..Z)/, "$1-$2-$3:$4:$5");
      const namedMs = Date.parse(iso);
      if (Number.isNaN(namedMs) || !entry.isFile()) return [];
      if (isComplete !== (leftover === undefined)) return [];
      const atMs = namedMs > Date.now() + CLOCK_MS_MAX ? 0 : namedMs;
      return [{ file: join(folder, entry.name), store, atMs }];
    })
    .toSorted((one, other) => one.atMs - other.atMs);
}

type Backup = ReturnType<typeof readBackups>[number];

const storeNameOf = (path: string): string => basename(path).replace(/\.db$/, "");

/** For people: what survives if the store's disk is lost now; undefined without backups. */
export function describeBackups({ databaseUrl, backupTo }: Config): string | undefined {
  const url = parseStoreUrl(databaseUrl);
  if (backupTo === "" || url.engine !== "sqlite") return undefined;
  const own = readBackups(backupTo).filter(({ store }) => store === storeNameOf(url.path));
  const best = findFurthest(own.toReversed());
  if (best === undefined) return `none yet in ${backupTo}`;
  const { change, atMs } = findReach(best.file);
  return `up to change ${change} of ${formatMoment(atMs)}; later writes would be lost with the disk`;
}

/** How often changes are appended to the log of the newest copy. */
const APPEND_MS = 1_000;
/** An append slower than this is logged. */
const APPEND_MS_MAX = 10_000;
/** The deadline of the last append at shutdown. */
const STOP_MS_MAX = 2_000;

/** Copies the running store to files named by their time, and appends to a change log beside the newest. */
export function scheduleBackups(config: Config, log: Log) {
  const { databaseUrl, backupTo: folder, backupEvery, backupKeep, changesDays } = config;
  const url = parseStoreUrl(databaseUrl);
  if (url.engine !== "sqlite")
    throw new UsageError("--backup-to: for backups of PostgreSQL, see docs/operations.md");
  const { path: from } = url;
  const store = storeNameOf(from);
  const everyMs = findDurationMs(backupEvery) as number;
  const state: BackupState = {
    everyMs,
    made: 0,
    failed: 0,
    last: undefined,
    loggedAtMs: undefined,
  };
  const stopping = new AbortController();
  const { signal } = stopping;
  /** The newest copy, whose log is appended to. */
  let copy: string | undefined;
  let dueMs = 0;
  let copying: Promise<void> | undefined;
  let working: Promise<void> | undefined;
  let appender: ReturnType<typeof startCopyThread> | undefined;
  let failure: string | undefined;

  const listOwn = (isComplete: boolean) =>
    readBackups(folder, isComplete).filter((one) => one.store === store);

  const makeCopy = async (): Promise<void> => {
    const startedAt = new Date();
    dueMs = startedAt.getTime() + everyMs;
    try {
      for (const { file, atMs } of listOwn(false))
        if (atMs < startedAt.getTime() - LEFTOVER_MS_MIN) rmSync(file);
      const time = startedAt.toISOString().replaceAll(/[-:]|\.\d+/g, "");
      const to = join(folder, `${store}-${time}.db`);
      // The previous copy's log must reach this copy: moments in between could not be restored otherwise.
      const { plants, bytes } = await backUpStore({ from, to, signal, beforeNaming: append });
      const durationMs = Date.now() - startedAt.getTime();
      log.info("backed_up", { to, plants: Number(plants), bytes, durationMs });
      state.made++;
      state.last = { atMs: startedAt.getTime(), bytes };
      copy = to;
      for (const { file } of listOwn(true).slice(0, -backupKeep)) {
        rmSync(file);
        rmSync(logOf(file), { force: true });
      }
    } catch (error) {
      if (signal.aborted) return;
      log.error("backup_failed", { to: folder, reason: explain(error) });
      state.failed++;
      dueMs = Date.now() + Math.min(everyMs, RETRY_MS_MAX);
    }
  };

  /** What was committed before an append began is in the log when it ends. */
  const append = async (): Promise<void> => {
    // Without a journal there is nothing to append.
    if (copy === undefined || changesDays === 0) return;
    const startedAtMs = Date.now();
    const late = setTimeout(() => noteFailure("it takes more than 10 s"), APPEND_MS_MAX).unref();
    try {
      appender ??= startCopyThread();
      if (await appender.ask({ from, copy } satisfies AppendRequest)) {
        const lagMs = startedAtMs - (state.loggedAtMs ?? 0);
        if (failure !== undefined) log.info("change_log_resumed", { to: folder, lagMs });
        failure = undefined;
        state.loggedAtMs = startedAtMs;
      } else if (copying === undefined) dueMs = 0;
    } catch (error) {
      noteFailure(explain(error));
      appender?.end();
      appender = undefined;
    } finally {
      clearTimeout(late);
    }
  };

  const noteFailure = (reason: string): void => {
    if (failure !== reason) log.error("change_log_failed", { to: folder, reason });
    failure = reason;
  };

  /** Appends also while a copy is made, which may take minutes. */
  const work = async (): Promise<void> => {
    while (!signal.aborted) {
      await append();
      if (Date.now() >= dueMs) copying ??= makeCopy().finally(() => (copying = undefined));
      await sleep(APPEND_MS, undefined, { signal }).catch(() => undefined);
    }
  };

  return {
    state,
    start(): void {
      try {
        const newest = listOwn(true).at(-1);
        copy = newest?.file;
        if (newest !== undefined)
          state.last = { atMs: newest.atMs, bytes: statSync(newest.file).size };
      } catch {
        // The first backup will fail for the same reason and log it.
      }
      // A restart alone makes no copy.
      dueMs = (state.last?.atMs ?? 0) + everyMs;
      if (changesDays > 0) state.loggedAtMs = Date.now();
      working = work();
    },
    /** Call it when writes have stopped: the last append then has everything. */
    async stop(): Promise<void> {
      stopping.abort();
      await within(STOP_MS_MAX, Promise.allSettled([working, copying]));
      await within(STOP_MS_MAX, append());
      appender?.end();
    },
  };
}
