/** Copies a store while it is being written to, on a thread of its own, and verifies the copy. */

import { closeSync, fsyncSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { Worker } from "node:worker_threads";
import { StoreOpenError } from "../../domain/errors.ts";
import { isLocked } from "./failure.ts";
import { readStore, requireOurs } from "./read.ts";
import { type StoreFacts, verifyStore } from "./verify.ts";

export interface CopyOrder {
  readonly from: string;
  /** A file, still empty. */
  readonly to: string;
  /** Whether the original is verified too, before anything is copied. */
  readonly verifyFirst: boolean;
}

export type CopyAnswer =
  { readonly facts: StoreFacts } | { readonly refusal: string } | { readonly error: Error };

/**
 * One read transaction for the whole copy: it has every plant that was acknowledged before it began,
 * and writers go on meanwhile. The result is one file that needs no log.
 */
export function copyStore({ from, to, verifyFirst }: CopyOrder): StoreFacts {
  if (verifyFirst) verifyStore(from);
  readStore(from, (db) => {
    requireOurs(db, from);
    try {
      db.run("VACUUM INTO ?", [to]);
    } catch (error) {
      if (isLocked(error)) throw error;
      const { message } = error as Error;
      throw new StoreOpenError(`${from} cannot be copied into ${dirname(to)}: ${message}.`);
    }
  });
  syncFile(to);
  return verifyStore(to, `The copy of ${from}`);
}

function syncFile(path: string): void {
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** So that this thread can be interrupted: a statement of SQLite's cannot be. */
export async function copyStoreAside(order: CopyOrder, signal: AbortSignal): Promise<StoreFacts> {
  signal.throwIfAborted();
  const worker = new Worker(new URL("copy-worker.ts", import.meta.url), { workerData: order });
  const answered = Promise.withResolvers<CopyAnswer>();
  const abort = (): void => answered.reject(signal.reason);
  signal.addEventListener("abort", abort);
  worker.on("message", answered.resolve);
  worker.on("error", answered.reject);
  worker.on("exit", () => answered.reject(new Error("the copying thread ended without an answer")));
  try {
    const answer = await answered.promise;
    if ("refusal" in answer) throw new StoreOpenError(answer.refusal);
    if ("error" in answer) throw answer.error;
    return answer.facts;
  } finally {
    signal.removeEventListener("abort", abort);
    void worker.terminate();
  }
}
