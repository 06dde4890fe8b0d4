/** Creates the file that a person asked for: a backup, or a store from one. It is verified, and never overwrites a file. */

import { randomBytes } from "node:crypto";
import {
  chownSync,
  closeSync,
  existsSync,
  lstatSync,
  openSync,
  realpathSync,
  rmSync,
  statSync,
} from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { syncFile } from "../descriptor.ts";
import { StoreOpenError } from "../domain/errors.ts";
import {
  companions,
  getSchemaVersion,
  makeDirectoryDurably,
  readStore,
} from "../store/sqlite/database.ts";
import { nameFile } from "./place.ts";
import type { Restored, RestoreTask } from "./restore.ts";
import { isPacked, nameProcess, openScratch, sweepScratch, unpack } from "./scratch.ts";
import { runOnThread } from "./thread.ts";

/** Copies the store at `from` to the new file `to`. The service may be running. */
export async function backUpStore(from: string, to: string, signal: AbortSignal) {
  requireStore(from);
  const folder = dirname(resolve(to));
  // Not created: it may be the mount point of a disk that is not mounted.
  if (!existsSync(folder)) throw new StoreOpenError(`The folder ${folder} does not exist.`);
  const path = findFree(to, "Choose another name, or move it away first.");
  if (companions.some((suffix) => realpathSync(from) + suffix === path))
    throw new StoreOpenError(`${path} is a name that SQLite uses for a part of the store.`);
  return createFile(path, false, (staged) => runOnThread(signal, "copyStore", from, staged));
}

/** Makes a new store of the backup file at `from`, which may be packed. It belongs to the owner of its folder. */
export async function restoreFile(from: string, to: string, signal: AbortSignal) {
  if (!isPacked(from)) return restorePlain(from, to, signal);
  const folder = dirname(resolve(to));
  makeDirectoryDurably(folder);
  const local = openScratch(folder);
  try {
    const path = local.create("fetched");
    await unpack(from, path);
    return await restorePlain(path, to, signal);
  } finally {
    local.close();
  }
}

async function restorePlain(from: string, to: string, signal: AbortSignal) {
  requireStore(from);
  return createStore(to, (staged) => runOnThread(signal, "copyBackup", from, staged));
}

/** Makes a new store of the backups in a place. */
export const restoreStore = (
  task: Omit<RestoreTask, "to">,
  to: string,
  signal: AbortSignal,
): Promise<Restored & { readonly path: string }> =>
  createStore(to, async (staged) => {
    try {
      return await runOnThread(signal, "restoreFromPlace", { ...task, to: staged });
    } finally {
      // A thread that was ended cannot remove what it downloaded.
      sweepScratch(dirname(staged), true);
    }
  });

function createStore<Facts>(to: string, make: (staged: string) => Promise<Facts>) {
  makeDirectoryDurably(dirname(resolve(to)));
  const advice =
    "Stop the service and move it away first, or restore to another file with --database-url.";
  return createFile(findFree(to, advice), true, make);
}

const requireStore = (path: string): unknown => readStore(path, (db) => getSchemaVersion(db, path));

function findFree(to: string, advice: string): string {
  const path = join(realpathSync(dirname(resolve(to))), basename(to));
  // A dangling symlink counts as existing.
  if (lstatSync(path, { throwIfNoEntry: false }) !== undefined)
    throw new StoreOpenError(`${path} exists, and is not overwritten. ${advice}`);
  // SQLite would replay an orphaned WAL into the copy.
  const orphan = companions.map((suffix) => path + suffix).find((file) => existsSync(file));
  if (orphan !== undefined)
    throw new StoreOpenError(
      `${orphan} exists without the file that it belongs to. Make sure that no service is using it, and move it away first.`,
    );
  return path;
}

/** Prepares a file in the same folder, then names it. Mode 0600: a store holds token hashes. */
async function createFile<Facts>(
  path: string,
  isStore: boolean,
  make: (staged: string) => Promise<Facts>,
): Promise<Facts & { readonly path: string }> {
  // What a killed command left of the same file.
  sweepScratch(dirname(path), false, `${basename(path)}.`);
  const staged = `${path}.${nameProcess()}.${randomBytes(6).toString("hex")}.tmp`;
  closeSync(openSync(staged, "wx", 0o600));
  try {
    // A store that root restores must still belong to the service.
    const { uid, gid } = statSync(dirname(path));
    if (isStore && process.getuid?.() === 0) chownSync(staged, uid, gid);
    const facts = await make(staged);
    nameFile(staged, path);
    syncFile(dirname(path));
    return { ...facts, path };
  } finally {
    for (const suffix of ["", ...companions]) rmSync(staged + suffix, { force: true });
  }
}
