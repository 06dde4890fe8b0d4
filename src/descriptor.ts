/** File descriptors: reading and writing files, pipes and terminals in chunks, syncing, and how many are free. */

import { closeSync, fsyncSync, openSync, read, readFileSync, write } from "node:fs";

export const STANDARD_INPUT = 0;
export const STANDARD_OUTPUT = 1;
export const STANDARD_ERROR = 2;

const CHUNK_BYTES = 256 * 1024;
/** EAGAIN: another process that shares the pipe has made it non-blocking. */
const NOT_READY_RETRY_MS = 5;

/** All chunks share one buffer: each is valid until the next is requested. The runtime's own streams read ahead. */
export async function* readDescriptor(descriptor: number, signal: AbortSignal) {
  const memory = new Uint8Array(CHUNK_BYTES);
  for (;;) {
    const begin = (done: Done): void => read(descriptor, memory, 0, memory.length, null, done);
    const length = await operate(begin, signal);
    if (length === 0) {
      // Ctrl-C also ends the process that writes into our pipe. Then the end of the pipe is not the end of the data.
      await new Promise(setImmediate);
      signal.throwIfAborted();
      return;
    }
    yield memory.subarray(0, length);
  }
}

/** The runtime's own streams hide a failed write. The system does not name the file, so `path` is added. */
export async function writeDescriptor(
  descriptor: number,
  content: string | Uint8Array,
  signal?: AbortSignal,
  path = descriptor === STANDARD_OUTPUT ? "standard output" : undefined,
): Promise<void> {
  const bytes = typeof content === "string" ? Buffer.from(content) : content;
  try {
    for (let start = 0; start < bytes.length;) {
      const rest = bytes.subarray(start);
      start += await operate((done) => write(descriptor, rest, 0, rest.length, null, done), signal);
    }
  } catch (error) {
    const isOfSystem = (error as NodeJS.ErrnoException).syscall === "write";
    throw isOfSystem ? Object.assign(error as Error, { path }) : error;
  }
}

export async function copyDescriptor(from: number, to: number, signal: AbortSignal): Promise<void> {
  for await (const chunk of readDescriptor(from, signal)) await writeDescriptor(to, chunk, signal);
  for (const descriptor of [from, to]) if (descriptor > STANDARD_OUTPUT) closeSync(descriptor);
}

type Done = (error: NodeJS.ErrnoException | null, length: number) => void;

/** Retries while the descriptor is not ready. An abort does not wait for it. */
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

export const syncFile = (path: string): void => withFile(path, "r", fsyncSync);

export function withFile(path: string, flags: "r" | "r+", use: (descriptor: number) => void): void {
  const descriptor = openSync(path, flags);
  try {
    use(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** How many files this process could open now, counted up to `countMax`. */
export function countFreeDescriptors(countMax: number): number {
  const opened: number[] = [];
  try {
    while (opened.length < countMax) opened.push(openSync("/dev/null", "r"));
  } catch {
    // EMFILE or ENFILE.
  }
  for (const descriptor of opened) closeSync(descriptor);
  return opened.length;
}

/** Undefined if the system does not tell, or no file can be opened. */
export function findDescriptorsMax(): number | undefined {
  try {
    const [, most] =
      /^Max open files +(\d+)/m.exec(readFileSync("/proc/self/limits", "latin1")) ?? [];
    return most === undefined ? undefined : Number(most);
  } catch {
    return undefined;
  }
}
