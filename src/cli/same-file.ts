/** Whether a file that is to be written is one that must not be lost: by whatever name, there yet or not. */

import { type BigIntStats, fstatSync, readlinkSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { parseStoreUrl } from "../store/open.ts";
import { companions } from "../store/sqlite/backup.ts";
import { UsageError } from "./failure.ts";

/** Throws where writing to the path would change the store, or what SQLite keeps beside it. */
export function requireOutsideStore(flag: string, path: string, databaseUrl: string): void {
  const url = parseStoreUrl(databaseUrl);
  if (url.engine !== "sqlite") return;
  // SQLite keeps them beside the file itself, and not beside a link to it.
  const store = resolvePlace(url.path);
  if (isSameFile(path, store)) throw new UsageError(`${flag}: ${path} is the store`);
  const companion = companions.find((suffix) => isSameFile(path, store + suffix));
  if (companion !== undefined)
    throw new UsageError(`${flag}: ${path} is part of the store, its ${companion}`);
}

export function isSameFile(path: string, other: string): boolean {
  const [found, foundOther] = [findStats(path), findStats(other)];
  if (found !== undefined && foundOther !== undefined) return isSame(found, foundOther);
  // What is not there yet has no identity, but a place.
  return found === foundOther && resolvePlace(path) === resolvePlace(other);
}

/** A terminal or a pipe loses nothing by being written to. */
export function isFileOfDescriptor(path: string, descriptor: number): boolean {
  const found = findStats(path);
  if (found?.isFile() !== true) return false;
  try {
    return isSame(found, fstatSync(descriptor, { bigint: true }));
  } catch {
    return false;
  }
}

// Names tell nothing: a file may have several, by links of both kinds.
const isSame = (one: BigIntStats, other: BigIntStats): boolean =>
  one.dev === other.dev && one.ino === other.ino;

/** Undefined also where we may not look: there we cannot write either. */
function findStats(path: string): BigIntStats | undefined {
  try {
    return statSync(path, { bigint: true });
  } catch {
    return undefined;
  }
}

/** Where the path leads to, or would when something is written to it: a link may lead to nothing yet. */
function resolvePlace(path: string): string {
  try {
    return realpathSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") return resolve(path);
  }
  const folder = resolvePlace(dirname(resolve(path)));
  const place = join(folder, basename(path));
  const target = findLinkTarget(place);
  return target === undefined ? place : resolvePlace(resolve(folder, target));
}

function findLinkTarget(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}
