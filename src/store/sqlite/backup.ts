/** A store into a file, and a file into a store: verified, and complete in its place or not there at all. */

import { existsSync, realpathSync, type Stats, statSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { copyStoreAside } from "./copy.ts";
import { StoreOpenError } from "../../domain/errors.ts";
import { makeDirectoryDurably } from "./database.ts";
import { readStore, requireOurs } from "./read.ts";
import { companions, reservePlace } from "./replace.ts";
import { makeTemporaryFile } from "./temporary.ts";
import type { StoreFacts } from "./verify.ts";

export interface Transfer {
  readonly from: string;
  readonly to: string;
  /** Whether a store that is in the place may be replaced. */
  readonly replace: boolean;
  /** Until the copy is in its place, an abort leaves everything as it was. */
  readonly signal: AbortSignal;
}

export interface Transferred extends StoreFacts {
  /** Where the copy is: absolute, links followed. */
  readonly path: string;
}

/** Copies the store at `from`, in use or not, to the file `to`. */
export async function backUpStore(transfer: Transfer): Promise<Transferred> {
  requireStore(transfer.from);
  const folder = dirname(resolve(transfer.to));
  // One that is missing may be a disk that is not mounted: it is not made.
  if (!existsSync(folder)) throw new StoreOpenError(`The folder ${folder} does not exist.`);
  return copyInto({ ...transfer, verifyFirst: false });
}

/** Makes the backup at `from` the store at `to`, which nobody may have open. */
export async function restoreStore(transfer: Transfer): Promise<Transferred> {
  requireStore(transfer.from);
  const folder = dirname(resolve(transfer.to));
  makeDirectoryDurably(folder);
  return copyInto({ ...transfer, verifyFirst: true, model: statSync(folder) });
}

/** Before anything is made or locked for its sake. */
function requireStore(path: string): void {
  readStore(path, (db) => requireOurs(db, path));
}

interface Copying extends Transfer {
  readonly verifyFirst: boolean;
  /** Whose owner the copy gets where it replaces nothing. */
  readonly model?: Stats;
}

async function copyInto(copying: Copying): Promise<Transferred> {
  const { from, replace, signal, verifyFirst } = copying;
  const path = followLinks(copying.to);
  refuseItself(from, path);
  using place = reservePlace(path, { replace });
  const model = statSync(path, { throwIfNoEntry: false }) ?? copying.model;
  using temporary = makeTemporaryFile(path, model);
  const facts = await copyStoreAside({ from, to: temporary.path, verifyFirst }, signal);
  signal.throwIfAborted();
  place.put(temporary.path);
  return { ...facts, path };
}

/** As SQLite does: the log of a linked file is beside the file, not beside the link. */
function followLinks(path: string): string {
  if (existsSync(path)) return realpathSync(path);
  return join(realpathSync(dirname(resolve(path))), basename(path));
}

function refuseItself(from: string, to: string): void {
  const original = statSync(from);
  const target = statSync(to, { throwIfNoEntry: false });
  const isSame = original.ino === target?.ino && original.dev === target.dev;
  const beside = companions.map((suffix) => followLinks(from) + suffix);
  if (isSame || beside.includes(to))
    throw new StoreOpenError(`${to} is the very store that is to be copied, or a part of it.`);
}
