/** Output files of commands: complete or absent, and never overwritten by mistake. */

import { randomBytes } from "node:crypto";
import {
  closeSync,
  existsSync,
  fsyncSync,
  ftruncateSync,
  lstatSync,
  openSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import type { Config } from "../config.ts";
import { STANDARD_OUTPUT, syncFile, writeDescriptor } from "../descriptor.ts";
import { parseStoreUrl } from "../store-url.ts";
import { companions } from "../store/sqlite/database.ts";
import { CommandError, explain, type Flags, UsageError } from "./command.ts";

/** The file appears, synced, when it is finished; otherwise nothing is left. `-` is standard output. */
export function openOutput(
  flag: string,
  path: string,
  { force, url }: Flags,
  { databaseUrl }: Config,
  signal?: AbortSignal,
) {
  if (path === "-")
    return {
      write: (text: string) => writeDescriptor(STANDARD_OUTPUT, text, signal),
      finish: () => undefined,
      [Symbol.dispose]: () => undefined,
    };
  if (url === undefined) requireOutsideStore(flag, path, databaseUrl);
  requireFree(flag, path, force);
  // Resolves symlinks: the file behind the link is replaced, not the link.
  const target = realPath(path);
  // Random, not the process id: in a container that may be the id of a process that was killed.
  const chance = randomBytes(6).toString("hex");
  const temporary = join(dirname(target), `.${basename(target)}.${chance}.partial`);
  const descriptor = openTemporary(temporary, path);
  let bytes = 0;
  return {
    /** Writes the whole text or, on a failure, none of it. */
    write: async (text: string): Promise<void> => {
      try {
        await writeDescriptor(descriptor, text, signal, path);
        bytes += Buffer.byteLength(text);
      } catch (error) {
        ftruncateSync(descriptor, bytes);
        throw error;
      }
    },
    finish: () => {
      fsyncSync(descriptor);
      requireFree(flag, path, force);
      renameSync(temporary, target);
      syncFile(dirname(target));
    },
    [Symbol.dispose]: () => {
      closeSync(descriptor);
      rmSync(temporary, { force: true });
    },
  };
}

/** A failure names the file that the user named. */
function openTemporary(temporary: string, path: string): number {
  try {
    return openSync(temporary, "ax");
  } catch (error) {
    throw Object.assign(error as Error, { path });
  }
}

function requireFree(flag: string, path: string, force = false): void {
  // An unset variable in a script.
  if (path === "") throw new UsageError(`${flag}: expected a path, got nothing`);
  const folder = dirname(path);
  if (!existsSync(folder)) throw new CommandError(`The folder ${folder} does not exist.`);
  // Not stat: a dangling symlink counts as existing.
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) return;
  if (!statSync(path, { throwIfNoEntry: false })?.isFile())
    throw new CommandError(`${path} exists and is not a regular file.`);
  if (!force) throw new CommandError(`${path} exists; --force replaces it.`);
}

/** Throws if the path names the store, or a file that SQLite keeps beside it. */
export function requireOutsideStore(flag: string, path: string, databaseUrl: string): void {
  const url = parseStoreUrl(databaseUrl);
  if (url.engine !== "sqlite") return;
  const parts = ["", ...companions].map((suffix) => realPath(url.path) + suffix);
  if (parts.some((part) => isSameFile(path, part)))
    throw new UsageError(`${flag}: ${path} is the store, or a part of it`);
}

export const isSameFile = (path: string, other: string): boolean =>
  identify(path) === identify(other);

/** The same for all hard links of a file: SQLite corrupts a file that is open under two names. */
function identify(path: string): string {
  const found = statSync(path, { bigint: true, throwIfNoEntry: false });
  return found === undefined ? realPath(path) : `${found.dev}:${found.ino}`;
}

/** The real path of the file, or of where it would be created. */
function realPath(path: string): string {
  if (existsSync(path)) return realpathSync(path);
  const folder = dirname(resolve(path));
  return join(existsSync(folder) ? realpathSync(folder) : folder, basename(path));
}

export async function printSecret(text: string): Promise<void> {
  try {
    await writeDescriptor(STANDARD_OUTPUT, `${text}\n`);
  } catch (error) {
    throw new CommandError(
      `The secret could not be written, and cannot be shown again: ${explain(error)}`,
    );
  }
}
