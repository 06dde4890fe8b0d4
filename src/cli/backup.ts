/** plantstore backup and restore: verified copies of a SQLite store. */

import { mkdtempSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { Config } from "../config.ts";
import { parseStoreUrl } from "../store/open.ts";
import { backUpStore, restoreStore, type Transferred } from "../store/sqlite/backup.ts";
import { migrations } from "../store/sqlite/database.ts";
import { findNewestBackup } from "./backup-schedule.ts";
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

export interface TransferOptions {
  readonly json?: boolean;
}

export async function backUp(
  config: Config,
  file: string,
  { json = false }: TransferOptions,
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
  file: string,
  { json = false }: TransferOptions,
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
  const newest = findNewestBackup(requirePath(folder));
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
    if (!(error instanceof Interrupted)) throw error;
    printError("interrupted; nothing was changed.");
    // Now: the thread that copies is in the middle of a statement and would be waited for.
    process.exit(error.exitCode);
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
