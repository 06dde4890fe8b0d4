/** Verified copies of a SQLite store: plantstore backup and restore, and plantstore serve --backup-to. */

import { mkdtempSync, openSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { findDurationMs } from "../domain/rate.ts";
import type { Config } from "../config.ts";
import { copyDescriptor, STANDARD_INPUT, STANDARD_OUTPUT } from "../descriptor.ts";
import type { Log } from "../observe/log.ts";
import type { BackupState } from "../observe/reporter.ts";
import { parseStoreUrl } from "../domain/store-url.ts";
import { backUpStore, restoreStore, type Transferred } from "../store/sqlite/backup.ts";
import { adviseOnTemporaryFiles, migrations } from "../store/sqlite/database.ts";
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
  await transfer("restored", "Restored, and the store verified.", from, flags, (signal) =>
    from === "-"
      ? withTemporaryFile(async (path) => {
          await copyDescriptor(STANDARD_INPUT, openSync(path, "wx", 0o600), signal).catch(
            (error: NodeJS.ErrnoException) => {
              throw error.syscall === "write" ? explainTemporary(error) : error;
            },
          );
          return restoreStore({ from: path, to, signal });
        })
      : restoreStore({ from, to, signal }),
  );
}

/** Leaves nothing behind. */
export async function verifyBackup(folder: string, flags: Flags): Promise<void> {
  const newest = readBackups(requirePath(folder)).findLast(({ isComplete }) => isComplete);
  if (newest === undefined)
    throw new CommandError(`${resolve(folder)} holds no backup of plantstore serve --backup-to.`);
  const sentence = `The newest backup, of ${new Date(newest.atMs).toISOString()}, can be restored: every row was compared.`;
  await transfer("verified", sentence, newest.file, flags, (signal) =>
    withTemporaryFile(async (to) => ({
      ...(await restoreStore({ from: newest.file, to, signal })),
      path: undefined,
    })),
  );
}

const explainTemporary = (error: unknown): CommandError =>
  new CommandError(`${explain(error)} ${adviseOnTemporaryFiles(tmpdir())}`, { cause: error });

/** SQLite needs a file to read and write at any place, which a pipe is not. */
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
  // As when a variable in a script is not set.
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
  /** Resolves without a path if the copy was removed again. */
  make: (signal: AbortSignal) => Promise<Omit<Transferred, "path"> & { path: string | undefined }>,
): Promise<void> {
  const startedAtMs = performance.now();
  const { path, schemaVersion, plants, tokens, bytes } = await untilInterrupted(make);
  const seconds = Math.round(performance.now() - startedAtMs) / 1000;
  const schema = json ? schemaVersion : describeSchema(schemaVersion, migrations.length);
  const source = from === "-" ? from : resolve(from);
  const facts = { from: source, to: path, plants, tokens, schema, bytes, seconds };
  const output = path === "-" ? process.stderr : process.stdout;
  printReport(sentence, facts, { isJson: json, more: { event }, output });
}

export const describeSchema = (version: number, newest: number): string =>
  version === newest
    ? `${version}, the newest`
    : `${version}, will be migrated to ${newest} at the next start`;

/** A backup that failed is tried again after this time, or after the interval if that is shorter. */
const RETRY_MS_MAX = 300_000;
/** A younger one may be the backup that another service is making now. */
const LEFTOVER_MS_MIN = 3_600_000;
/** Clocks of two machines that share a folder may differ by this much. */
const CLOCK_MS_MAX = 60_000;

/** The store's name, the time at which the backup began, and what a killed backup leaves behind. */
const namePattern = /^(.+)-(\d{8}T\d{6}Z)\.db(\.[0-9a-f]{12}\.tmp.*)?$/;

/** Oldest first. A name with a time in the future comes from a wrong clock, and counts as the oldest. */
function readBackups(folder: string) {
  return readdirSync(folder, { withFileTypes: true })
    .flatMap((entry) => {
      const [, store = "", time = "", leftover] = namePattern.exec(entry.name) ?? [];
      const iso = time.replace(/(....)(..)(..T..)(..)(..Z)/, "$1-$2-$3:$4:$5");
      const namedMs = Date.parse(iso);
      if (Number.isNaN(namedMs) || !entry.isFile()) return [];
      const atMs = namedMs > Date.now() + CLOCK_MS_MAX ? 0 : namedMs;
      return [{ file: join(folder, entry.name), store, atMs, isComplete: leftover === undefined }];
    })
    .toSorted((one, other) => one.atMs - other.atMs);
}

/** Backups while the service runs, each with the time in its name. */
export function scheduleBackups(config: Config, log: Log) {
  const { databaseUrl, backupTo: folder, backupEvery, backupKeep } = config;
  const url = parseStoreUrl(databaseUrl);
  if (url.engine !== "sqlite")
    throw new UsageError("--backup-to: for backups of PostgreSQL, see docs/operations.md");
  const { path: from } = url;
  const store = basename(from).replace(/\.db$/, "");
  const everyMs = findDurationMs(backupEvery) as number;
  const state: BackupState = { everyMs, made: 0, failed: 0, last: undefined };
  const stopping = new AbortController();
  const { signal } = stopping;
  let running: Promise<void> | undefined;

  const listOwn = (isComplete: boolean) =>
    readBackups(folder).filter((one) => one.store === store && one.isComplete === isComplete);

  const run = async (): Promise<void> => {
    const startedAt = new Date();
    for (const { file, atMs } of listOwn(false))
      if (atMs < startedAt.getTime() - LEFTOVER_MS_MIN) rmSync(file);
    const time = startedAt.toISOString().replaceAll(/[-:]|\.\d+/g, "");
    const to = join(folder, `${store}-${time}.db`);
    const { plants, bytes } = await backUpStore({ from, to, signal });
    const durationMs = Date.now() - startedAt.getTime();
    log.info("backed_up", { to, plants: Number(plants), bytes, durationMs });
    state.made++;
    state.last = { atMs: startedAt.getTime(), bytes };
    for (const { file } of listOwn(true).slice(0, -backupKeep)) rmSync(file);
  };

  /** Until it is stopped. The first backup is due when the newest one is old enough: a restart alone makes none. */
  const repeat = async (): Promise<void> => {
    for (let dueMs = (state.last?.atMs ?? 0) + everyMs; ;) {
      await sleep(Math.max(0, dueMs - Date.now()), undefined, { signal });
      dueMs = Date.now() + everyMs;
      try {
        await run();
      } catch (error) {
        signal.throwIfAborted();
        log.error("backup_failed", { to: folder, reason: explain(error) });
        state.failed++;
        dueMs = Date.now() + Math.min(everyMs, RETRY_MS_MAX);
      }
    }
  };

  return {
    state,
    start(): void {
      try {
        const newest = listOwn(true).at(-1);
        if (newest !== undefined)
          state.last = { atMs: newest.atMs, bytes: statSync(newest.file).size };
      } catch {
        // The first backup fails for the same reason, and says so.
      }
      running = repeat().catch(() => undefined);
    },
    async stop(): Promise<void> {
      stopping.abort();
      await running;
    },
  };
}
