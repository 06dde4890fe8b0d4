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
  statSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { StoreOpenError } from "../../domain/errors.ts";
import { formatJson } from "../../domain/plant.ts";
import { logOf, type Point, replayLog } from "./change-log.ts";
import {
  adviseOnTemporaryFiles,
  fileBytesOf,
  findDamage,
  getSchemaVersion,
  isLocked,
  isOfEnvironment,
  makeDirectoryDurably,
  readStore,
  syncFile,
} from "./database.ts";
import { startThread } from "./thread.ts";

export interface CopyRequest {
  readonly from: string;
  readonly to: string;
  /** Whether to verify the original before copying it, and to compare each row of the copy with it. */
  readonly verifyFirst: boolean;
  /** Replays the change log of `from` into the copy, up to this point. */
  readonly until?: Point;
  /** A store whose plants the copy must equal. */
  readonly sameAs?: string | undefined;
}

export interface AppendRequest {
  readonly from: string;
  readonly copy: string;
}

interface Transfer extends Omit<CopyRequest, "verifyFirst"> {
  /** An abort before the copy is complete leaves everything as it was. */
  readonly signal: AbortSignal;
  /** Called when the copy is complete, before it gets its name. */
  readonly beforeNaming?: () => Promise<void>;
}

type StoreFacts = ReturnType<typeof copyStore>;
export type Transferred = StoreFacts & { readonly path: string };

/** SQLite keeps files with these suffixes beside a database, and would use any file with such a name. */
export const companions = ["-wal", "-shm", "-journal"] as const;

/** Copies the store at `from` to the new file `to`. The service may be running. */
export async function backUpStore(transfer: Transfer): Promise<Transferred> {
  const { from, to } = transfer;
  requireStore(from);
  const folder = dirname(resolve(to));
  // Not created: it may be the mount point of a disk that is not mounted.
  if (!existsSync(folder)) throw new StoreOpenError(`The folder ${folder} does not exist.`);
  const path = findFree(to, "Choose another name, or move it away first.");
  if (companions.some((suffix) => realpathSync(from) + suffix === path))
    throw new StoreOpenError(`${path} is a name that SQLite uses for a part of the store.`);
  return copyInto(path, transfer, false);
}

/** Copies the backup at `from` to the new store `to`, which belongs to the owner of its folder. */
export async function restoreStore(transfer: Transfer): Promise<Transferred> {
  const { from, to } = transfer;
  requireStore(from);
  makeDirectoryDurably(dirname(resolve(to)));
  const advice =
    "Stop the service and move it away first, or restore to another file with --database-url.";
  return copyInto(findFree(to, advice), transfer, true);
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

/** Copies to a temporary file in the same folder, then names it. Mode 0600: a store holds token hashes. */
async function copyInto(
  path: string,
  { signal, beforeNaming, ...source }: Transfer,
  isRestored: boolean,
): Promise<Transferred> {
  const to = `${path}.${randomBytes(6).toString("hex")}.tmp`;
  closeSync(openSync(to, "wx", 0o600));
  try {
    // A store that root restores must still belong to the service.
    const { uid, gid } = statSync(dirname(path));
    if (isRestored && process.getuid?.() === 0) chownSync(to, uid, gid);
    const facts = await copyOnThread({ ...source, to, verifyFirst: isRestored }, signal);
    await beforeNaming?.();
    signal.throwIfAborted();
    giveName(to, path);
    syncFile(dirname(path));
    return { ...facts, path };
  } finally {
    for (const suffix of ["", ...companions]) rmSync(to + suffix, { force: true });
  }
}

/** The runtime aborts the process if a new thread gets no descriptors for its event loop. */
const DESCRIPTORS_NEEDED = 32;

/** Runs on its own thread: a copy may take minutes, a running statement cannot be interrupted, and Ctrl-C must work. */
export async function copyOnThread(order: CopyRequest, signal: AbortSignal): Promise<StoreFacts> {
  signal.throwIfAborted();
  const thread = startCopyThread();
  signal.addEventListener("abort", thread.end);
  try {
    return (await thread.ask(order)) as StoreFacts;
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener("abort", thread.end);
    thread.end();
  }
}

/** A thread that copies, or appends to change logs: a network folder may hang. */
export function startCopyThread() {
  const opened: number[] = [];
  try {
    while (opened.length < DESCRIPTORS_NEEDED) opened.push(openSync("/dev/null", "r"));
  } catch {
    // EMFILE or ENFILE.
  }
  for (const descriptor of opened) closeSync(descriptor);
  if (opened.length < DESCRIPTORS_NEEDED)
    throw new StoreOpenError(
      `A copy needs ${DESCRIPTORS_NEEDED} free file descriptors, and ${opened.length} are free. Raise the limit (ulimit -n).`,
    );
  return startThread(join(import.meta.dir, "reader-worker"));
}

/** A link fails if the name was taken in the meantime; a rename would overwrite. */
function giveName(file: string, path: string): void {
  try {
    linkSync(file, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST" || existsSync(path))
      throw new StoreOpenError(`${path} was created in the meantime. It was left alone.`);
    // The file system has no hard links.
    renameSync(file, path);
  }
}

/** One snapshot: the copy has every plant acknowledged before it began, and writes continue. */
export function copyStore({ from, to, verifyFirst, until, sameAs }: CopyRequest) {
  if (verifyFirst) verifyStore(from);
  readStore(from, (db) => {
    getSchemaVersion(db, from);
    try {
      db.run("VACUUM INTO ?", [to]);
    } catch (error) {
      if (isLocked(error)) throw error;
      const folder = tmpdir();
      const isTemporary = existsSync(folder) && to.startsWith(`${realpathSync(folder)}/`);
      const advice =
        isTemporary && isOfEnvironment(error) ? ` ${adviseOnTemporaryFiles(folder)}` : "";
      const why = `${(error as Error).message}.${advice}`;
      throw new StoreOpenError(`${from} cannot be copied into ${dirname(to)}: ${why}`);
    }
  });
  if (verifyFirst && digestStore(from) !== digestStore(to))
    throw new StoreOpenError(`The copy of ${from} differs from it. Was it written to meanwhile?`);
  const replayed = until && replayLog(to, logOf(from), until);
  syncFile(to);
  if (sameAs !== undefined && digestStore(to, "plants") !== digestStore(sameAs, "plants"))
    throw new StoreOpenError(`${from} with its change log has other plants than ${sameAs}.`);
  return { ...verifyStore(to, `The copy of ${from}`), replayed };
}

const COUNT =
  "SELECT (SELECT count(*) FROM plants) AS plants, (SELECT count(*) FROM tokens) AS tokens";
const TABLES =
  "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";

function verifyStore(path: string, calledAs = path) {
  return readStore(path, (db) => {
    const schemaVersion = getSchemaVersion(db, calledAs);
    const [fault] = findDamage(db, 1);
    if (fault !== undefined) throw new StoreOpenError(`${calledAs} is damaged: ${fault}`);
    const counts = db.query(COUNT).get() as Readonly<Record<"plants" | "tokens", bigint>>;
    return { schemaVersion, ...counts, bytes: fileBytesOf(path) };
  });
}

/** SHA-256 over every row of every table, or of one table. */
function digestStore(path: string, table?: string): string {
  return readStore(path, (db) => {
    const hasher = new Bun.CryptoHasher("sha256");
    const tables = db.query<{ name: string }, []>(TABLES).all();
    for (const { name } of tables.filter((one) => table === undefined || one.name === table))
      for (const row of db.query(`SELECT * FROM "${name}"`).iterate())
        hasher.update(`${name} ${formatJson(row)}\n`);
    return hasher.digest("hex");
  });
}
