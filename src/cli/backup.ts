/** Verified copies of a SQLite store: plantstore backup and restore, and plantstore serve --backup-to. */

import { mkdtempSync, openSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { findDurationMs } from "../auth/rate-limit.ts";
import type { Config } from "../config.ts";
import type { Log } from "../observe/log.ts";
import type { BackupState } from "../observe/reporter.ts";
import { parseStoreUrl } from "../store/open.ts";
import { backUpStore, restoreStore, type Transferred } from "../store/sqlite/backup.ts";
import { migrations } from "../store/sqlite/database.ts";
import { CommandError, Interrupted, untilInterrupted, UsageError } from "./command.ts";
import { copyDescriptor, STANDARD_INPUT, STANDARD_OUTPUT } from "./files.ts";
import {
  formatBytes,
  formatCount,
  formatSeconds,
  printError,
  printFacts,
  roundToMs,
} from "./terminal.ts";

interface TransferOptions {
  readonly json?: boolean;
}

export async function backUp(
  config: Config,
  { json = false }: TransferOptions,
  file: string,
): Promise<void> {
  const [from, to] = [requireSqlite(config.databaseUrl), requirePath(file)];
  if (to === "-" && process.stdout.isTTY)
    throw new UsageError("-: standard output is a terminal; redirect it into a file");
  await report("backed_up", "Backed up, and the copy verified.", from, to, json, (signal) =>
    to === "-"
      ? withTemporaryFile(async (path) => {
          const transferred = await backUpStore({ from, to: path, signal });
          await copyDescriptor(openSync(path, "r"), STANDARD_OUTPUT, signal);
          return { ...transferred, path: "-" };
        })
      : backUpStore({ from, to, signal }),
  );
}

export async function restore(
  config: Config,
  { json = false }: TransferOptions,
  file: string,
): Promise<void> {
  const [from, to] = [requirePath(file), requireSqlite(config.databaseUrl)];
  await report("restored", "Restored, and the store verified.", from, to, json, (signal) =>
    from === "-"
      ? withTemporaryFile(async (path) => {
          await copyDescriptor(STANDARD_INPUT, openSync(path, "wx", 0o600), signal);
          return restoreStore({ from: path, to, signal });
        })
      : restoreStore({ from, to, signal }),
  );
}

/** Leaves nothing behind. */
export async function verifyBackup(
  folder: string,
  { json = false }: TransferOptions,
): Promise<void> {
  const newest = readBackups(requirePath(folder)).findLast(({ isComplete }) => isComplete);
  if (newest === undefined)
    throw new CommandError(`${resolve(folder)} holds no backup of plantstore serve --backup-to.`);
  const sentence = `The newest backup, of ${new Date(newest.atMs).toISOString()}, can be restored: every row was compared.`;
  await report("verified", sentence, newest.file, "", json, (signal) =>
    withTemporaryFile(async (to) => ({
      ...(await restoreStore({ from: newest.file, to, signal })),
      path: undefined,
    })),
  );
}

/** SQLite needs a file to read and write at any place, which a pipe is not. */
async function withTemporaryFile<Result>(use: (path: string) => Promise<Result>): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), "plantstore-"));
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
      "For backups to any point in time, see docs/backup.md. To copy into a SQLite file: plantstore copy.",
  );
}

/** Without a path if the copy was removed again. */
type Reported = Omit<Transferred, "path"> & { readonly path: string | undefined };

/** Ctrl-C leaves everything as it was. */
async function report(
  event: string,
  sentence: string,
  from: string,
  to: string,
  isJson: boolean,
  transfer: (signal: AbortSignal) => Promise<Reported>,
): Promise<void> {
  const startedAtMs = performance.now();
  let transferred: Reported;
  try {
    transferred = await untilInterrupted(transfer);
  } catch (error) {
    if (error instanceof Interrupted) printError("interrupted; nothing was changed.");
    throw error;
  }
  const seconds = (performance.now() - startedAtMs) / 1000;
  const { path, schemaVersion, plants, tokens, bytes } = transferred;
  const source = from === "-" ? from : resolve(from);
  const output = to === "-" ? process.stderr : process.stdout;
  if (isJson) {
    const counts = { plants: Number(plants), tokens: Number(tokens), bytes };
    const facts = { event, from: source, to: path, schema: schemaVersion, ...counts };
    output.write(`${JSON.stringify({ ...facts, seconds: roundToMs(seconds) })}\n`);
    return;
  }
  printFacts(
    sentence,
    [
      ["From", source],
      ...(path === undefined ? [] : [["To", path] as const]),
      ["Plants", formatCount(plants)],
      ["Tokens", formatCount(tokens)],
      ["Schema", describeSchema(schemaVersion, migrations.length)],
      ["Size", formatBytes(bytes)],
      ["Time", formatSeconds(seconds)],
    ],
    output,
  );
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

/** Backups while the service runs, each with the time in its name. */
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
