/** Where backups are: a folder, or a bucket. A piece appears whole or not at all; only an open segment grows. */

import { randomBytes } from "node:crypto";
import {
  closeSync,
  existsSync,
  fdatasyncSync,
  fstatSync,
  linkSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join, resolve } from "node:path";
import { StoreOpenError } from "../domain/errors.ts";
import { isBucketUrl } from "../store-url.ts";
import { syncFile } from "../descriptor.ts";
import { companions } from "../store/sqlite/database.ts";
import { isPacked, openScratch, pack, unpack } from "./scratch.ts";

/** A store, and the place of its backups. */
export interface Source {
  /** The file of the store. */
  readonly from: string;
  /** A folder or a bucket. */
  readonly to: string;
  readonly label: string;
  /** Random, for this run of the service. */
  readonly instance: string;
}

export interface FoundFile {
  readonly name: string;
  readonly bytes: number;
}

/** A file that was listed is no longer there. */
export class GoneError extends StoreOpenError {}

/** Every method may take arbitrarily long, so none is called on a thread that serves. */
export interface Place {
  /** For people and logs. It contains no secret. */
  readonly url: string;
  list(): Promise<FoundFile[]>;
  /** A local file with the unpacked bytes of a piece. It belongs to the place: do not change it. Rejects with a GoneError. */
  fetch(name: string): Promise<string>;
  /** Forgets what `fetch` downloaded or unpacked. */
  release(): void;
  /** A new local file, empty and mode 0600, in which a piece is prepared. `prefix` tells who left it behind. */
  stage(prefix: string): string;
  /**
   * Packs a staged file if its name says so, and gives it that name, durably. Never replaces a piece. The staged file is
   * gone afterwards. Resolves to the size in the place.
   */
  keep(staged: string, name: string): Promise<number>;
  remove(name: string): Promise<void>;
  /** Removes staged files whose names begin with `prefix`, but not with `except`: a killed process left them. */
  sweep(prefix: string, except: string): Promise<void>;
  /** A small text that is replaced as a whole; undefined if there is none. */
  readNote(name: string): Promise<string | undefined>;
  /**
   * Replaces `before`, the note as it was read or written last by this place. Resolves to false if the note is another
   * one by now: of two writers that replace the same note, one succeeds. See `docs/architecture.md` for what a server
   * needs for that.
   */
  writeNote(name: string, text: string, before: string | undefined): Promise<boolean>;
  /** Creates a piece that grows, until it is kept under another name. Undefined if the place has whole objects only. */
  readonly grow?: (name: string) => GrowingFile;
  /** Ends what is in flight, and removes what was downloaded or staged. */
  close(): void;
}

export interface GrowingFile {
  readonly path: string;
  /** Appends and syncs. Throws, even for an empty text, if another program has changed the file. */
  append(text: string): void;
  close(): void;
}

export async function openPlace(url: string, scratch: string): Promise<Place> {
  return isBucketUrl(url)
    ? (await import("./bucket.ts")).openBucket(url, scratch)
    : openFolder(url, scratch);
}

const LISTINGS_MAX = 5;

/**
 * Opens a place and closes it. A running service renames a segment when it closes it, and removes pieces: if one is
 * gone that was listed, `use` starts again with a new list.
 */
export async function withPlace<Result>(
  url: string,
  scratch: string,
  use: (place: Place) => Promise<Result>,
  open = openPlace,
): Promise<Result> {
  for (let left = LISTINGS_MAX; ; left--) {
    const place = await open(url, scratch);
    try {
      return await use(place);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (left === 1 || !(error instanceof GoneError || code === "ENOENT")) throw error;
    } finally {
      place.close();
    }
  }
}

function openFolder(url: string, scratch: string): Place {
  const folder = resolve(url);
  const local = openScratch(scratch);
  const pathOf = (name: string): string => join(folder, name);
  // Not created: it may be the mount point of a disk that is not mounted.
  const requireFolder = (): void => {
    if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory())
      throw new StoreOpenError(
        existsSync(folder) ? `${folder} is not a folder.` : `The folder ${folder} does not exist.`,
      );
  };
  return {
    url: folder,
    async list() {
      requireFolder();
      return readdirSync(folder, { withFileTypes: true })
        .filter((entry) => entry.isFile())
        .flatMap(({ name }) => {
          // Another process may remove it in between.
          const bytes = statSync(pathOf(name), { throwIfNoEntry: false })?.size;
          return bytes === undefined ? [] : [{ name, bytes }];
        });
    },
    async fetch(name) {
      if (!existsSync(pathOf(name))) throw new GoneError(`${pathOf(name)} does not exist.`);
      return isPacked(name)
        ? local.fetch(name, (path) => unpack(pathOf(name), path))
        : pathOf(name);
    },
    release: () => local.release(),
    stage(prefix) {
      requireFolder();
      const path = pathOf(`${prefix}.${randomBytes(6).toString("hex")}.tmp`);
      closeSync(openSync(path, "wx", 0o600));
      return path;
    },
    async keep(path, name) {
      const staged = isPacked(name) ? path.replace(/\.tmp$/, ".packed.tmp") : path;
      try {
        if (staged !== path) {
          closeSync(openSync(staged, "wx", 0o600));
          await pack(path, staged);
        }
        const { size } = statSync(staged);
        // Two copies of one state may have one name in one second.
        if (existsSync(pathOf(name)) && digestFile(staged) === digestFile(pathOf(name)))
          return size;
        syncFile(staged);
        nameFile(staged, pathOf(name));
        syncFile(folder);
        return size;
      } finally {
        for (const one of [path, staged]) rmSync(one, { force: true });
      }
    },
    async remove(name) {
      for (const suffix of ["", ...companions]) rmSync(pathOf(name) + suffix, { force: true });
    },
    async sweep(prefix, except) {
      for (const name of readdirSync(folder))
        if (name.startsWith(prefix) && STAGED.test(name) && !name.startsWith(except))
          rmSync(pathOf(name));
    },
    async readNote(name) {
      requireFolder();
      return readText(pathOf(name));
    },
    async writeNote(name, text, before) {
      const staged = pathOf(`${name}.${randomBytes(6).toString("hex")}.tmp`);
      try {
        writeFileSync(staged, text, { flag: "wx", mode: 0o600 });
        return replaceFile(staged, pathOf(name), before);
      } finally {
        rmSync(staged, { force: true });
      }
    },
    grow(name) {
      const file = growFile(pathOf(name), "wx");
      try {
        syncFile(folder);
        return file;
      } catch (error) {
        file.close();
        throw error;
      }
    },
    close: () => local.close(),
  };
}

const readText = (path: string): string | undefined =>
  existsSync(path) ? readFileSync(path, "utf8") : undefined;

/** A lock that is older was left by a process that was killed between two lines. */
const LOCK_MS_MAX = 60_000;

/** A rename replaces whatever is there, so a lock is held while the file is compared. */
function replaceFile(staged: string, path: string, before: string | undefined): boolean {
  const lock = `${path}.lock`;
  try {
    closeSync(openSync(lock, "wx", 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    // Both times are of the file system's clock, which may have been set in between.
    const atMs = statSync(lock, { throwIfNoEntry: false })?.mtimeMs ?? 0;
    if (Math.abs(statSync(staged).mtimeMs - atMs) > LOCK_MS_MAX) rmSync(lock, { force: true });
    return false;
  }
  try {
    if (readText(path) !== before) return false;
    renameSync(staged, path);
    return true;
  } finally {
    rmSync(lock, { force: true });
  }
}

/** SQLite may have left its own file beside it. */
const STAGED = /\.tmp(-\w+)?$/;

/** An empty file. By default it must be there. */
export function growFile(path: string, flags = "r+"): GrowingFile {
  const descriptor = openSync(path, flags, 0o600);
  const { ino, dev } = fstatSync(descriptor);
  let end = 0;
  return {
    path,
    append(text) {
      // It may have been removed, replaced or cut by hand, or the folder unmounted.
      const found = statSync(path, { throwIfNoEntry: false });
      if (found?.ino !== ino || found.dev !== dev || found.size !== end)
        throw new StoreOpenError(`${path} was changed by another program.`);
      if (text === "") return;
      const bytes = Buffer.from(text);
      for (let at = 0; at < bytes.length;)
        at += writeSync(descriptor, bytes, at, bytes.length - at, end + at);
      fdatasyncSync(descriptor);
      end += bytes.length;
    },
    close: () => closeSync(descriptor),
  };
}

/** The SHA-256 of a text and the bytes of the file. */
export function digestFile(path: string, text = ""): string {
  const hasher = new Bun.CryptoHasher("sha256").update(text);
  const descriptor = openSync(path, "r");
  try {
    const chunk = Buffer.allocUnsafe(1_048_576);
    for (let length = readSync(descriptor, chunk); length > 0; length = readSync(descriptor, chunk))
      hasher.update(chunk.subarray(0, length));
  } finally {
    closeSync(descriptor);
  }
  return hasher.digest("hex");
}

/** A link fails if the name is taken; a rename would overwrite. */
export function nameFile(file: string, path: string): void {
  try {
    linkSync(file, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST" || existsSync(path))
      throw new StoreOpenError(`${path} was created in the meantime. It was left alone.`);
    // The file system has no hard links.
    renameSync(file, path);
    return;
  }
  rmSync(file);
}
