/** plantstore backup, backup verify, backup list and restore: verified copies of a SQLite store, and places of backups. */

import { mkdtempSync, openSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { TEMPORARY_PREFIX } from "../backup/copy.ts";
import { backUpStore, restoreFile, restoreStore } from "../backup/create.ts";
import { labelOf } from "../backup/names.ts";
import type { Listed, ListedStore, ListTask } from "../backup/report.ts";
import type { Restored, RestoreTask } from "../backup/restore.ts";
import { sweepScratch } from "../backup/scratch.ts";
import { runOnThread } from "../backup/thread.ts";
import type { Config } from "../config.ts";
import { copyDescriptor, STANDARD_INPUT, STANDARD_OUTPUT } from "../descriptor.ts";
import { findTimeMs } from "../domain/time.ts";
import { isBucketUrl, parseStoreUrl } from "../store-url.ts";
import { migrations } from "../store/sqlite/database.ts";
import {
  CommandError,
  EXIT_DIFFERENT,
  explain,
  toTemporaryFileError,
  type Flags,
  parseFlag,
  untilInterrupted,
  UsageError,
} from "./command.ts";
import { fieldsOf } from "./fields.ts";
import {
  countOf,
  escape,
  formatBytes,
  printError,
  printJson,
  printReport,
  printTable,
} from "./terminal.ts";

export async function backUp(config: Config, flags: Flags, file: string): Promise<void> {
  const [from, to] = [requireSqlite(config.databaseUrl), requirePath(file)];
  if (to === "-" && process.stdout.isTTY)
    throw new UsageError("-: standard output is a terminal; redirect it into a file");
  await transfer("backed_up", "Backed up, and the copy verified.", from, flags, (signal) =>
    to === "-"
      ? withTemporaryFile(async (path) => {
          const copy = await backUpStore(from, path, signal);
          await copyDescriptor(openSync(path, "r"), STANDARD_OUTPUT, signal);
          return { ...copy, path: "-" };
        })
      : backUpStore(from, to, signal),
  );
}

type PlaceFlags = Flags<"store">;
type RestoreFlags = PlaceFlags & Flags<"at" | "atChange" | "timeline", "incomplete">;

export async function restore(config: Config, flags: RestoreFlags, file: string): Promise<void> {
  const [from, to] = [requirePath(file), requireSqlite(config.databaseUrl)];
  const until = parseUntil(flags);
  if (isPlace(from)) {
    const task = { place: from, label: labelOf(to), ...until };
    const sentence = "Restored, and the store verified.";
    return transfer("restored", sentence, from, flags, (signal) => restoreStore(task, to, signal));
  }
  if (Object.values(until).some((value) => value !== undefined))
    throw new UsageError(
      "--at, --at-change, --store, --timeline and --incomplete need a folder or bucket of plantstore serve --backup-to",
    );
  await transfer("restored", "Restored, and the store verified.", from, flags, (signal) =>
    from === "-"
      ? withTemporaryFile(async (path) => {
          await copyDescriptor(STANDARD_INPUT, openSync(path, "wx", 0o600), signal).catch(
            (error: NodeJS.ErrnoException) => {
              throw error.syscall === "write" ? toTemporaryFileError(error) : error;
            },
          );
          return restoreFile(path, to, signal);
        })
      : restoreFile(from, to, signal),
  );
}

const isPlace = (path: string): boolean =>
  isBucketUrl(path) ||
  (path !== "-" && statSync(path, { throwIfNoEntry: false })?.isDirectory() === true);

type Until = Pick<RestoreTask, "change" | "atMs" | "store" | "timeline" | "isIncomplete">;

function parseUntil({ at, atChange, store, timeline, incomplete }: RestoreFlags): Until {
  if (at !== undefined && atChange !== undefined)
    throw new UsageError("--at and --at-change: give one of them");
  return {
    atMs: parseFlag("--at", at, timeRule),
    store,
    isIncomplete: incomplete,
    change: parseFlag("--at-change", atChange, fieldsOf.changes.after),
    timeline: parseFlag("--timeline", timeline, timelineRule),
  };
}

const timeRule = {
  expected: "a time with its zone, as in 2026-11-15T10:00:00Z",
  find: findTimeMs,
};

const timelineRule = {
  expected: "a number",
  find: (text: string) => (/^\d{1,9}$/.test(text) ? Number(text) : undefined),
};

const formatMoment = (atMs: number): string => new Date(atMs).toISOString();

const toListTask = (place: string, { store }: PlaceFlags): ListTask => ({
  place: requirePath(place),
  label: "plants",
  store,
  scratch: tmpdir(),
});

/** Reads every piece and restores the newest state. It uses no settings, so it gets no Config. */
export async function verifyBackup(place: string, flags: PlaceFlags): Promise<void> {
  const task = toListTask(place, flags);
  const sentence = "Every piece is whole, and the newest state can be restored.";
  // Made and removed here: a thread that is ended by Ctrl-C cannot remove it.
  await transfer("verified", sentence, place, flags, (signal) =>
    withTemporaryFolder(async (scratch) => ({
      ...(await runOnThread(signal, "verifyPlace", { ...task, scratch })),
      path: undefined,
    })),
  );
}

export async function listBackups(place: string, flags: PlaceFlags): Promise<void> {
  const listed = await list(toListTask(place, flags));
  if (flags.json) return printJson(toJson(listed));
  if (listed.stores.length === 0)
    throw new CommandError(`${listed.place} holds no backup of plantstore serve --backup-to.`);
  for (const [index, store] of listed.stores.entries()) {
    if (index > 0) process.stdout.write("\n");
    printStore(store);
  }
}

const list = (task: ListTask): Promise<Listed> =>
  untilInterrupted(async (signal) => {
    try {
      return await runOnThread(signal, "listPlace", task);
    } finally {
      // A thread that was ended cannot remove what it downloaded.
      sweepScratch(task.scratch, true);
    }
  });

const toJson = ({ place, stores }: Listed) => ({
  place,
  stores: stores.map((store) => ({
    ...store,
    pieces: store.pieces.map(({ fromMs, toMs, ...piece }) => ({
      ...piece,
      from: fromMs === undefined ? null : formatMoment(fromMs),
      to: toMs === undefined ? null : formatMoment(toMs),
    })),
    reachable: store.reachable.map(({ after, last }) => ({ from: after, to: last })),
  })),
});

function printStore({ store, label, timeline, pieces, reachable, missing }: ListedStore): void {
  const identity = store === label ? "of version 1.0" : store;
  process.stdout.write(`Store ${escape(label)} (${escape(identity)}), timeline ${timeline}\n\n`);
  printTable(
    ["TIMELINE", "PIECE", "CHANGES", "TIME", "SIZE", "STATE", "NAME"],
    pieces.map((piece) => [
      String(piece.timeline),
      piece.kind,
      piece.first === piece.last ? String(piece.last) : `${piece.first} to ${piece.last}`,
      piece.toMs === undefined ? "" : formatMoment(piece.toMs),
      formatBytes(piece.bytes),
      escape(piece.state),
      escape(piece.name),
    ]),
  );
  const ranges = reachable.map(({ after, last }) => `${after} to ${last}`);
  process.stdout.write(`\nChanges that can be restored: ${ranges.join(", ") || "none"}\n`);
  for (const sentence of missing) process.stdout.write(`Missing: ${escape(sentence)}\n`);
}

/** SQLite needs a seekable file, which a pipe is not. */
const withTemporaryFile = <Result>(use: (path: string) => Promise<Result>): Promise<Result> =>
  withTemporaryFolder((folder) => use(join(folder, "backup.db")));

async function withTemporaryFolder<Result>(
  use: (folder: string) => Promise<Result>,
): Promise<Result> {
  let folder: string;
  try {
    folder = mkdtempSync(join(tmpdir(), TEMPORARY_PREFIX));
  } catch (error) {
    throw toTemporaryFileError(error);
  }
  try {
    return await use(folder);
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

/** What a transfer reports. A restore from a place also tells what is missing. */
interface Transferred extends Pick<Restored, "schemaVersion" | "plants" | "tokens" | "bytes"> {
  /** Undefined if the copy was temporary. */
  readonly path: string | undefined;
}

type PlaceFacts = Partial<
  Pick<Restored, "copy" | "changes" | "reached" | "missing" | "damage" | "store" | "timeline">
>;

/** Ctrl-C leaves everything as it was. */
async function transfer(
  event: string,
  sentence: string,
  from: string,
  { json }: Flags,
  make: (signal: AbortSignal) => Promise<Transferred & PlaceFacts>,
): Promise<void> {
  const startedAtMs = performance.now();
  const result = await untilInterrupted(make);
  const { path, schemaVersion, plants, tokens, bytes, copy, changes, reached } = result;
  const { missing = [], damage = [], timeline } = result;
  const seconds = Math.round(performance.now() - startedAtMs) / 1000;
  const schema = json ? schemaVersion : describeSchema(schemaVersion, migrations.length);
  const source = from === "-" || isBucketUrl(from) ? from : resolve(from);
  // The last change in the result.
  const last = reached && { change: reached.change, at: formatMoment(reached.atMs) };
  const moment = json ? last : last && `${last.at}, change ${last.change}`;
  const facts = {
    from: escape(copy ?? source),
    to: path,
    plants,
    tokens,
    changes,
    moment,
    timeline: timeline === undefined ? undefined : json ? timeline : String(timeline),
    schema,
    bytes,
    seconds,
  };
  const output = path === "-" ? process.stderr : process.stdout;
  const isLess = missing.length > 0;
  const isDamaged = damage.length > 0 && event === "verified";
  const summary = isLess
    ? event === "verified"
      ? "The backups can be restored, but not completely."
      : "Restored as far as the backups are whole. The store is verified, but not complete."
    : isDamaged
      ? `The newest state can be restored, but ${countOf(damage.length, "piece")} of the backups ${damage.length === 1 ? "is" : "are"} damaged.`
      : sentence;
  printReport(summary, facts, { isJson: json ?? false, more: { event, missing, damage }, output });
  if (!json) {
    for (const what of missing) printError(`missing: ${what}`);
    for (const { name, faults } of damage) printError(`damaged: ${name}: ${faults.join("; ")}`);
  }
  if (isLess || isDamaged) process.exitCode = EXIT_DIFFERENT;
}

export const describeSchema = (version: number, newest: number): string =>
  version === newest
    ? `${version}, the newest`
    : `${version}, will be migrated to ${newest} at the next start`;

/** For people: what survives if the store's disk is lost now; undefined without backups. */
export async function describeBackups({
  databaseUrl,
  backupTo,
}: Config): Promise<string | undefined> {
  const url = parseStoreUrl(databaseUrl);
  if (backupTo === "" || url.engine !== "sqlite") return undefined;
  const task = { ...toListTask(backupTo, {}), from: url.path };
  const listed = await list(task).catch((error: unknown) => explain(error));
  // That is not the store's fault.
  if (typeof listed === "string") return `cannot be read: ${listed}`;
  const { stores } = listed;
  const [own] = stores;
  const reach = own?.reachable.at(-1);
  if (own === undefined || reach === undefined) return `none yet in ${backupTo}`;
  const lost = own.missing.length === 0 ? "" : escape(` Missing: ${own.missing.join(" ")}`);
  return `up to change ${reach.last}; later writes would be lost with the disk.${lost}`;
}
