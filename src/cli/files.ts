/** Files, pipes and terminals: read and written piece by piece, and never written over by mistake. */

import { randomBytes } from "node:crypto";
import {
  closeSync,
  existsSync,
  fsyncSync,
  lstatSync,
  openSync,
  read,
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
    const length = await operate(
      (done) => read(descriptor, memory, 0, memory.length, null, done),
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
async function writeDescriptor(
  descriptor: number,
  content: string | Uint8Array,
  signal?: AbortSignal,
): Promise<void> {
  const bytes = typeof content === "string" ? Buffer.from(content) : content;
  for (let start = 0; start < bytes.length;) {
    const rest = bytes.subarray(start);
    start += await operate((done) => write(descriptor, rest, 0, rest.length, null, done), signal);
  }
}

/** Closes both. */
export async function copyDescriptor(from: number, to: number, signal: AbortSignal): Promise<void> {
  for await (const chunk of readDescriptor(from, signal)) await writeDescriptor(to, chunk, signal);
  for (const descriptor of [from, to]) if (descriptor > STANDARD_OUTPUT) closeSync(descriptor);
}

type Done = (error: NodeJS.ErrnoException | null, length: number) => void;

/** Begins again while the descriptor is not ready. An abort does not wait for it. */
async function operate(begin: (done: Done) => void, signal?: AbortSignal): Promise<number> {
  for (;;) {
    signal?.throwIfAborted();
    const { promise, resolve: settle, reject } = Promise.withResolvers<number>();
    const abort = (): void => reject(signal?.reason as Error);
    signal?.addEventListener("abort", abort);
    begin((error, length) => (error === null ? settle(length) : reject(error)));
    try {
      return await promise;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
      await Bun.sleep(NOT_READY_RETRY_MS);
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }
}

export async function writeStandardOutput(text: string, signal?: AbortSignal): Promise<void> {
  try {
    await writeDescriptor(STANDARD_OUTPUT, text, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EPIPE") throw error;
    throw new ReaderGone("The reader of standard output is gone.");
  }
}

interface Output extends Disposable {
  readonly write: (text: string) => Promise<void>;
  /** Puts the file in its place, on the disk. Without it, what was written is removed at the end. */
  readonly finish: () => void;
}

/** A file that appears when it is complete; - is standard output. An abort ends a write. */
export function openOutput(path: string, force = false, signal?: AbortSignal): Output {
  if (path === "-")
    return {
      write: (text) => writeStandardOutput(text, signal),
      finish: () => undefined,
      [Symbol.dispose]: () => undefined,
    };
  requireFree(path, force);
  // Through a symbolic link: the file behind it is replaced, not the link.
  const target = realPath(path);
  // By chance: in a container every process may have the same number as one that was killed.
  const chance = randomBytes(6).toString("hex");
  const temporary = join(dirname(target), `.${basename(target)}.${chance}.partial`);
  const descriptor = openSync(temporary, "wx");
  return {
    write: (text) => writeDescriptor(descriptor, text, signal),
    finish: () => {
      fsyncSync(descriptor);
      requireFree(path, force);
      renameSync(temporary, target);
      syncFile(dirname(target));
    },
    [Symbol.dispose]: () => {
      closeSync(descriptor);
      rmSync(temporary, { force: true });
    },
  };
}

/** Throws if there is something at the path that must not be replaced. */
export function requireFree(path: string, force = false): void {
  // As when a variable in a script is not set.
  if (path === "") throw new UsageError("--output, --rejects: expected a path, got nothing");
  const folder = dirname(path);
  if (!existsSync(folder)) throw new CommandError(`The folder ${folder} does not exist.`);
  // Not stat: a link that leads nowhere is in use, too.
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

/** The same for all names of a file: SQLite damages one that is open under two of them. */
function identify(path: string): string {
  const found = statSync(path, { bigint: true, throwIfNoEntry: false });
  return found === undefined ? realPath(path) : `${found.dev}:${found.ino}`;
}

/** The place of the file, or where it would be made. */
function realPath(path: string): string {
  if (existsSync(path)) return realpathSync(path);
  const folder = dirname(resolve(path));
  return join(existsSync(folder) ? realpathSync(folder) : folder, basename(path));
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
