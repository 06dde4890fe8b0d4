/**
 * Files, pipes and terminals, read and written piece by piece. The runtime's own streams either read
 * ahead without a bound or keep a failure to write from whoever could report it.
 */

import { read, write } from "node:fs";
import { orAborted } from "./interrupt.ts";

const CHUNK_BYTES = 256 * 1024;
/** Somebody who shares the pipe has made it non-blocking. */
const NOT_READY_RETRY_MS = 5;

/** Everything until its end. Each piece is good until the next is asked for: their memory is the same. */
export async function* readDescriptor(
  descriptor: number,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const memory = new Uint8Array(CHUNK_BYTES);
  for (;;) {
    const length = await orAborted(
      patiently((done) => read(descriptor, memory, 0, memory.length, null, done)),
      signal,
    );
    if (length === 0) {
      // A Ctrl-C ends whoever writes into our pipe as well: its end is not to be taken for that of the data.
      await new Promise(setImmediate);
      signal.throwIfAborted();
      return;
    }
    yield memory.subarray(0, length);
  }
}

/** Resolves when the system has taken all of it, so that a slow reader holds us up. */
export async function writeDescriptor(
  descriptor: number,
  text: string,
  signal?: AbortSignal,
): Promise<void> {
  const bytes = Buffer.from(text);
  for (let start = 0; start < bytes.length;) {
    const from = start;
    const writing = patiently((done) =>
      write(descriptor, bytes, from, bytes.length - from, null, done),
    );
    start += await (signal === undefined ? writing : orAborted(writing, signal));
  }
}

type Done = (error: NodeJS.ErrnoException | null, length: number) => void;

async function patiently(operate: (done: Done) => void): Promise<number> {
  for (;;) {
    try {
      return await new Promise<number>((resolve, reject) => {
        operate((error, length) => (error === null ? resolve(length) : reject(error)));
      });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
      await Bun.sleep(NOT_READY_RETRY_MS);
    }
  }
}
