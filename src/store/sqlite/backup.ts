/** Copies a store into a backup, and a backup into a store. The copy is verified, and never overwrites a file. */

import { randomBytes } from "node:crypto";
import {
  chownSync,
  closeSync,
  existsSync,
  linkSync,
  lstatSync,
  openSync,
  realpathSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { StoreOpenError } from "../../domain/errors.ts";
import { replayLog } from "./change-log.ts";
import { findDamage } from "./check.ts";
import {
  adviseOnTemporaryFiles,
  fileBytesOf,
  getSchemaVersion,
  isLocked,
  isOfEnvironment,
  makeDirectoryDurably,
  readStore,
  syncFile,
} from "./database.ts";
import { type CopyOrder, copyOnThread, type StoreFacts } from "./thread.ts";

interface Transfer {
  readonly from: string;
  readonly to: string;
  /** An abort before the copy is complete leaves everything as it was. */
  readonly signal: AbortSignal;
}

export interface Transferred extends StoreFacts {
  /** Where the copy is, as an absolute path. */
  readonly path: string;
}

/** SQLite keeps these beside a file. It would take any file with such a name for its own. */
export const companions = ["-wal", "-shm", "-journal"] as const;

/** Copies the store at `from` to the new file `to`. The service may be running. */
export async function backUpStore({
  from,
  to,
  signal,
  beforeNaming,
}: Transfer & { readonly beforeNaming?: () => Promise<void> }): Promise<Transferred> {
  requireStore(from);
  const folder = dirname(resolve(to));
  // Not created: it may be the mount point of a disk that is not mounted.
  if (!existsSync(folder)) throw new StoreOpenError(`The folder ${folder} does not exist.`);
  const path = findFree(to, "Choose another name, or move it away first.");
  if (companions.some((suffix) => realpathSync(from) + suffix === path))
    throw new StoreOpenError(`${path} is a name that SQLite uses for a part of the store.`);
  return copyInto(path, { from, verifyFirst: false }, signal, { beforeNaming });
}

/** Copies the backup at `from` to the new store `to`, which belongs to the owner of its folder. */
export async function restoreStore({
  from,
  to,
  signal,
  ...more
}: Transfer & Pick<CopyOrder, "replay" | "sameAs">): Promise<Transferred> {
  requireStore(from);
  makeDirectoryDurably(dirname(resolve(to)));
  const advice =
    "Stop the service and move it away first, or restore to another file with --database-url.";
  const path = findFree(to, advice);
  return copyInto(path, { from, verifyFirst: true, ...more }, signal, {
    owner: statSync(dirname(path)),
  });
}

function requireStore(path: string): void {
  readStore(path, (db) => getSchemaVersion(db, path));
}

function findFree(to: string, advice: string): string {
  const path = join(realpathSync(dirname(resolve(to))), basename(to));
  // A link that leads nowhere is taken too.
  if (lstatSync(path, { throwIfNoEntry: false }) !== undefined)
    throw new StoreOpenError(`${path} exists, and is not overwritten. ${advice}`);
  // SQLite would replay a log that is left of a lost file into the copy.
  const orphan = companions.map((suffix) => path + suffix).find((file) => existsSync(file));
  if (orphan !== undefined)
    throw new StoreOpenError(
      `${orphan} exists without the file that it belongs to. Make sure that no service is using it, and move it away first.`,
    );
  return path;
}

async function copyInto(
  path: string,
  source: Omit<CopyOrder, "to">,
  signal: AbortSignal,
  { owner, beforeNaming }: { owner?: Stats; beforeNaming?: (() => Promise<void>) | undefined },
): Promise<Transferred> {
  using temporary = makeTemporaryFile(path, owner);
  const facts = await copyOnThread({ ...source, to: temporary.path }, signal);
  await beforeNaming?.();
  signal.throwIfAborted();
  giveName(temporary.path, path);
  syncFile(dirname(path));
  return { ...facts, path };
}

/** Beside the file that it becomes. Readable by its owner alone, because it holds hashes of tokens. */
function makeTemporaryFile(beside: string, owner: Stats | undefined) {
  const path = `${beside}.${randomBytes(6).toString("hex")}.tmp`;
  closeSync(openSync(path, "wx", 0o600));
  // A store that root restores must still belong to the service.
  if (owner !== undefined && process.getuid?.() === 0) chownSync(path, owner.uid, owner.gid);
  return {
    path,
    [Symbol.dispose]() {
      for (const suffix of ["", ...companions]) rmSync(path + suffix, { force: true });
    },
  };
}

/** A link fails if the name was taken in the meantime; a rename would overwrite. */
function giveName(file: string, path: string): void {
  try {
    linkSync(file, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST" || existsSync(path))
      throw new StoreOpenError(`${path} was created in the meantime. It was left alone.`);
    // A file system without links.
    renameSync(file, path);
  }
}

/**
 * One read transaction for the whole copy: it has every plant that was acknowledged before it began, and
 * writes continue. The result is one file that needs no log.
 */
export function copyStore({ from, to, verifyFirst, replay, sameAs }: CopyOrder): StoreFacts {
  if (verifyFirst) verifyStore(from);
  readStore(from, (db) => {
    getSchemaVersion(db, from);
    try {
      db.run("VACUUM INTO ?", [to]);
    } catch (error) {
      if (isLocked(error)) throw error;
      const { message } = error as Error;
      const folder = tmpdir();
      const isTemporary = existsSync(folder) && to.startsWith(`${realpathSync(folder)}/`);
      const advice =
        isTemporary && isOfEnvironment(error) ? ` ${adviseOnTemporaryFiles(folder)}` : "";
      throw new StoreOpenError(
        `${from} cannot be copied into ${dirname(to)}: ${message}.${advice}`,
      );
    }
  });
  if (verifyFirst && digestStore(from) !== digestStore(to))
    throw new StoreOpenError(`The copy of ${from} differs from it. Was it written to meanwhile?`);
  const replayed = replay && replayLog(to, replay.log, replay.until);
  syncFile(to);
  if (sameAs !== undefined && digestStore(to, "plants") !== digestStore(sameAs, "plants"))
    throw new StoreOpenError(`${from} with its change log has other plants than ${sameAs}.`);
  return { ...verifyStore(to, `The copy of ${from}`), replayed };
}

/** Throws a StoreOpenError that says what is wrong with the file. */
function verifyStore(path: string, calledAs = path): StoreFacts {
  return readStore(path, (db) => {
    const schemaVersion = getSchemaVersion(db, calledAs);
    const [fault] = findDamage(db, 1);
    if (fault !== undefined) throw new StoreOpenError(`${calledAs} is damaged: ${fault}`);
    const counts = db
      .query<{ plants: bigint; tokens: bigint }, []>(
        "SELECT (SELECT count(*) FROM plants) AS plants, (SELECT count(*) FROM tokens) AS tokens",
      )
      .get() as { plants: bigint; tokens: bigint };
    return { schemaVersion, ...counts, bytes: fileBytesOf(path) };
  });
}

/** Over every row of every table, or of one: two stores with the same digest hold the same. */
function digestStore(path: string, table?: string): string {
  return readStore(path, (db) => {
    const hasher = new Bun.CryptoHasher("sha256");
    const tables = db
      .query<{ name: string }, []>(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
      )
      .all();
    for (const { name } of tables.filter((one) => table === undefined || one.name === table))
      for (const row of db.query(`SELECT * FROM "${name}"`).iterate())
        hasher.update(`${name} ${JSON.stringify(row, writeExactly)}\n`);
    return hasher.digest("hex");
  });
}

const writeExactly = (_: string, value: unknown): unknown =>
  typeof value === "bigint" ? String(value) : value;
