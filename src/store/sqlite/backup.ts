/** A store into a file, and a file into a store: verified, and complete in its place or not there at all. */

import { existsSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { copyStoreAside } from "./copy.ts";
import { makeDirectoryDurably, StoreOpenError } from "./database.ts";
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
  // A folder that is missing may be a disk that is not mounted: it is not made.
  const folder = dirname(resolve(transfer.to));
  if (!existsSync(folder)) throw new StoreOpenError(`The folder ${folder} does not exist.`);
  return copyInto({ ...transfer, verifyFirst: false });
}

/** Makes the backup at `from` the store at `to`, which nobody may have open. */
export async function restoreStore(transfer: Transfer): Promise<Transferred> {
  makeDirectoryDurably(dirname(resolve(transfer.to)));
  return copyInto({ ...transfer, verifyFirst: true });
}

async function copyInto({
  from,
  to,
  replace,
  signal,
  verifyFirst,
}: Transfer & { verifyFirst: boolean }): Promise<Transferred> {
  const path = followLinks(to);
  refuseItself(from, path);
  const previous = statSync(path, { throwIfNoEntry: false });
  using place = reservePlace(path, { replace });
  using temporary = makeTemporaryFile(
    path,
    previous ?? (verifyFirst ? statSync(dirname(path)) : undefined),
  );
  const facts = await copyStoreAside({ from, to: temporary.path, verifyFirst }, signal);
  signal.throwIfAborted();
  place.put(temporary.path);
  return { ...facts, path };
}

/** As SQLite does, so that what is beside the file is looked for beside the file. */
function followLinks(path: string): string {
  if (existsSync(path)) return realpathSync(path);
  return join(realpathSync(dirname(resolve(path))), basename(path));
}

function refuseItself(from: string, to: string): void {
  const original = statSync(from, { throwIfNoEntry: false });
  const target = statSync(to, { throwIfNoEntry: false });
  const isSame = original?.ino === target?.ino && original?.dev === target?.dev;
  if (original === undefined) throw new StoreOpenError(`${from} does not exist.`);
  const beside = companions.map((suffix) => followLinks(from) + suffix);
  if (isSame || beside.includes(to))
    throw new StoreOpenError(`${to} is the very store that is to be copied, or a part of it.`);
}
