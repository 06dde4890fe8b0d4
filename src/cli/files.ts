/** Files, pipes and terminals: read and written piece by piece, and never written over by mistake. */

import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  lstatSync,
  openSync,
  read,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  write,
} from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { parseStoreUrl } from "../store/open.ts";
import { companions } from "../store/sqlite/backup.ts";
import { syncFile } from "../store/sqlite/database.ts";
import { CommandError, explainSystemError, ReaderGone, UsageError } from "./command.ts";

export const STANDARD_INPUT = 0;
export const STANDARD_OUTPUT = 1;

const CHUNK_BYTES = 256 * 1024;
/** Another process that shares the pipe has made it non-blocking. */
const NOT_READY_RETRY_MS = 5;

/**
 * Everything until the end of the file. All chunks share one memory: each is valid until the next is asked for.
 * The runtime's own streams read ahead without a bound.
 */
export async function* readDescriptor(
  descriptor: number,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const memory = new Uint8Array(CHUNK_BYTES);
  for (;;) {
    const length = await orAborted(
      untilReady((done) => read(descriptor, memory, 0, memory.length, null, done)),
      signal,
    );
    if (length === 0) {
      // A Ctrl-C also ends the process that writes into our pipe. Its end is not the end of the data.
      await new Promise(setImmediate);
      signal.throwIfAborted();
      return;
    }
    yield memory.subarray(0, length);
  }
}

/** Resolves when the system has taken all bytes. The runtime's own streams hide a failed write. */
export async function writeDescriptor(
  descriptor: number,
  content: string | Uint8Array,
  signal?: AbortSignal,
): Promise<void> {
  const bytes = typeof content === "string" ? Buffer.from(content) : content;
  for (let start = 0; start < bytes.length;) {
    const from = start;
    const writing = untilReady((done) =>
      write(descriptor, bytes, from, bytes.length - from, null, done),
    );
    start += await (signal === undefined ? writing : orAborted(writing, signal));
  }
}

/** Closes both. */
export async function copyDescriptor(from: number, to: number, signal: AbortSignal): Promise<void> {
  for await (const chunk of readDescriptor(from, signal)) await writeDescriptor(to, chunk, signal);
  for (const descriptor of [from, to]) if (descriptor > STANDARD_OUTPUT) closeSync(descriptor);
}

type Done = (error: NodeJS.ErrnoException | null, length: number) => void;

async function untilReady(operate: (done: Done) => void): Promise<number> {
  for (;;) {
    try {
      return await new Promise<number>((settle, reject) => {
        operate((error, length) => (error === null ? settle(length) : reject(error)));
      });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
      await Bun.sleep(NOT_READY_RETRY_MS);
    }
  }
}

async function orAborted<Result>(promise: Promise<Result>, signal: AbortSignal): Promise<Result> {
  signal.throwIfAborted();
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const listener = (): void => reject(signal.reason as Error);
  signal.addEventListener("abort", listener);
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", listener);
  }
}

export async function writeStandardOutput(text: string, signal: AbortSignal): Promise<void> {
  try {
    await writeDescriptor(STANDARD_OUTPUT, text, signal);
  } catch (error) {
    throw (error as NodeJS.ErrnoException).code === "EPIPE" ? new ReaderGone() : error;
  }
}

interface Output extends Disposable {
  readonly write: (text: string) => Promise<void>;
  /** Puts the file in its place, on the disk. Without it, what was written is removed at the end. */
  readonly finish: () => void;
}

/** A file that appears when it is complete. */
export function openFileOutput(path: string, force: boolean, signal: AbortSignal): Output {
  requireFree(path, force);
  // Through a symbolic link: the file behind it is replaced, not the link.
  const target = existsSync(path) ? realpathSync(path) : path;
  const temporary = join(dirname(target), `.${basename(target)}.${process.pid}.partial`);
  // The user knows the file by its own name.
  const named = <Result>(operate: () => Result): Result => {
    try {
      return operate();
    } catch (error) {
      throw new CommandError(explainSystemError(error).replace(temporary, path), { cause: error });
    }
  };
  const descriptor = named(() => openSync(temporary, "wx"));
  let isOpen = true;
  const close = (): void => {
    if (isOpen) closeSync(descriptor);
    isOpen = false;
  };
  return {
    write: (text) => writeDescriptor(descriptor, text, signal),
    finish: () => {
      fsyncSync(descriptor);
      close();
      requireFree(path, force);
      named(() => renameSync(temporary, target));
      syncFile(dirname(target));
    },
    [Symbol.dispose]: () => {
      close();
      rmSync(temporary, { force: true });
    },
  };
}

export function requireFree(path: string, force: boolean): void {
  const folder = dirname(path);
  if (!existsSync(folder)) throw new CommandError(`The folder ${folder} does not exist.`);
  // Not stat: a link that leads nowhere is in use, too.
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) return;
  if (!statSync(path, { throwIfNoEntry: false })?.isFile())
    throw new CommandError(`${path} exists and is not a regular file.`);
  if (!force) throw new CommandError(`${path} exists; --force replaces it.`);
}

/** Throws if writing to the path would change the store, or a file that SQLite keeps beside it. */
export function requireOutsideStore(flag: string, path: string, databaseUrl: string): void {
  const url = parseStoreUrl(databaseUrl);
  if (url.engine !== "sqlite") return;
  if (isSameFile(path, url.path)) throw new UsageError(`${flag}: ${path} is the store`);
  // SQLite keeps these beside the file itself, not beside a link to it.
  const store = existsSync(url.path) ? realpathSync(url.path) : url.path;
  const companion = companions.find((suffix) => isSameFile(path, store + suffix));
  if (companion !== undefined)
    throw new UsageError(`${flag}: ${path} is part of the store, its ${companion}`);
}

/** A number is the descriptor of a file that is open. */
export const isSameFile = (path: string, other: string | number): boolean =>
  identify(path) === identify(other);

/** The same for all names of a file, hard and symbolic links included. A file that does not exist is known by its place. */
function identify(file: string | number): string {
  try {
    const options = { bigint: true } as const;
    const found = typeof file === "number" ? fstatSync(file, options) : statSync(file, options);
    return `${found.dev}:${found.ino}`;
  } catch (error) {
    const path = resolve(String(file));
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") return path;
    const folder = dirname(path);
    if (lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink())
      return identify(resolve(folder, readlinkSync(path)));
    return join(existsSync(folder) ? realpathSync(folder) : folder, basename(path));
  }
}

/** Prints what cannot be shown again. Not by process.stdout, which hides a failed write. */
export async function printSecret(
  text: string,
  explainLoss: (reason: string) => string | Promise<string>,
): Promise<void> {
  try {
    await writeDescriptor(STANDARD_OUTPUT, `${text}\n`);
  } catch (cause) {
    throw new CommandError(await explainLoss(explainSystemError(cause)), { cause });
  }
}
