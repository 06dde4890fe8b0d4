/** plantstore backup and restore: verified copies of a SQLite store. */

import { resolve } from "node:path";
import type { Config } from "../config.ts";
import { parseStoreUrl } from "../store/open.ts";
import { backUpStore, restoreStore, type Transferred } from "../store/sqlite/backup.ts";
import { migrations } from "../store/sqlite/database.ts";
import { CommandError, Interrupted, untilInterrupted, UsageError } from "./command.ts";
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
  await report("backed_up", "Backed up, and the copy verified.", from, json, (signal) =>
    backUpStore({ from, to, signal }),
  );
}

export async function restore(
  config: Config,
  file: string,
  { json = false }: TransferOptions,
): Promise<void> {
  const [from, to] = [requirePath(file), requireSqlite(config.databaseUrl)];
  await report("restored", "Restored, and the store verified.", from, json, (signal) =>
    restoreStore({ from, to, signal }),
  );
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

/** Ctrl-C leaves everything as it was. */
async function report(
  event: string,
  sentence: string,
  from: string,
  isJson: boolean,
  transfer: (signal: AbortSignal) => Promise<Transferred>,
): Promise<void> {
  const startedAtMs = performance.now();
  let transferred: Transferred;
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
  if (isJson) {
    const counts = { plants: Number(plants), tokens: Number(tokens), bytes };
    const facts = { event, from: resolve(from), to: path, schema: schemaVersion, ...counts };
    process.stdout.write(`${JSON.stringify({ ...facts, seconds: roundToMs(seconds) })}\n`);
    return;
  }
  printFacts(sentence, [
    ["From", resolve(from)],
    ["To", path],
    ["Plants", formatCount(plants)],
    ["Tokens", formatCount(tokens)],
    ["Schema", describeSchema(schemaVersion, migrations.length)],
    ["Size", formatBytes(bytes)],
    ["Time", formatSeconds(seconds)],
  ]);
}

export const describeSchema = (version: number, newest: number): string =>
  version === newest
    ? `${version}, the newest`
    : `${version}, will be migrated to ${newest} at the next start`;
