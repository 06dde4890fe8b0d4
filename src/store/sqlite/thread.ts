/** A thread with a connection of its own. SQLite works without a pause there: it searches, counts and copies. */

import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import type { Worker } from "node:worker_threads";
import { Refusal, StoreOpenError } from "../../domain/errors.ts";
import type { CountPage, PlantPage, PlantQuery } from "../../domain/page.ts";
import type { StoreLimits } from "../../domain/store.ts";
import { within } from "../batcher.ts";
import { createScans, type Scans } from "../scans.ts";

interface ScanOrder {
  readonly kind: "search" | "count";
  readonly path: string;
  readonly query: PlantQuery;
  readonly scanRowsMax: number;
}

export interface CopyOrder {
  readonly kind: "copy";
  readonly from: string;
  /** An empty file. */
  readonly to: string;
  /** Whether to verify the original before copying it, and to compare each row of the copy with it. */
  readonly verifyFirst: boolean;
}

export type Order = ScanOrder | CopyOrder | { readonly kind: "close" };

/** An error loses its class on the way to another thread. */
export type Answer =
  { readonly value: unknown } | { readonly error: Error; readonly isOpenError: boolean };

/** Searches, and counts. Each takes a bounded time, so this bounds the wait of the last one. */
const WAITING_MAX = 64;
const CLOSE_MS_MAX = 2_000;
const START_MS_MAX = 2_000;
/** The runtime ends the process if a thread cannot have descriptors for its event loop. */
const DESCRIPTORS_NEEDED = 32;
/** So many connections do not come while a thread starts. */
const DESCRIPTORS_AMPLE = 256;

/** It does what it is asked in order. */
export class StoreThread {
  isEnded = false;
  private readonly worker: Worker;
  private readonly asked: PromiseWithResolvers<unknown>[] = [];

  constructor() {
    const free = countFreeDescriptors();
    if (free < DESCRIPTORS_NEEDED)
      throw new Error(`a thread cannot start: ${free} descriptors are free`);
    const started = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    const threads = process.getBuiltinModule("node:worker_threads");
    const options = { workerData: started };
    this.worker = new threads.Worker(join(import.meta.dir, "store-worker"), options);
    // This thread takes no connection, and so no descriptor, until the other has its own.
    if (free < DESCRIPTORS_AMPLE) Atomics.wait(started, 0, 0, START_MS_MAX);
    this.worker.on("message", (answer: Answer) => {
      const asked = this.asked.shift();
      if ("value" in answer) asked?.resolve(answer.value);
      else
        asked?.reject(answer.isOpenError ? new StoreOpenError(answer.error.message) : answer.error);
    });
    this.worker.on("error", (error) => this.end(error));
    this.worker.on("exit", () => this.end());
  }

  ask(order: Order): Promise<unknown> {
    const asked = Promise.withResolvers<unknown>();
    this.asked.push(asked);
    this.worker.postMessage(order);
    return asked.promise;
  }

  end(reason: unknown = new Error("the thread has ended")): void {
    this.isEnded = true;
    for (const { reject } of this.asked.splice(0)) reject(reason);
    void this.worker.terminate();
  }
}

/** Up to DESCRIPTORS_AMPLE. */
function countFreeDescriptors(): number {
  const opened: number[] = [];
  try {
    while (opened.length < DESCRIPTORS_AMPLE) opened.push(openSync("/dev/null", "r"));
  } catch {
    // The limit of the process, or of the system.
  }
  for (const descriptor of opened) closeSync(descriptor);
  return opened.length;
}

export function scanOnThread(path: string, limits: StoreLimits): Scans {
  const { scanRowsMax } = limits;
  let thread: StoreThread | undefined;
  const ask = async (kind: ScanOrder["kind"], query: PlantQuery, deadlineMs: number) => {
    try {
      // Started by the first search: many services never search, and a thread takes memory.
      const asked = thread?.isEnded === false ? thread : (thread = new StoreThread());
      // One that hangs is ended, and the next search starts another.
      const timer = setTimeout(() => asked.end(), deadlineMs - performance.now());
      return await asked.ask({ kind, path, query, scanRowsMax }).finally(() => clearTimeout(timer));
    } catch (error) {
      throw new Refusal("store_unavailable", undefined, error);
    }
  };
  const bounds = { ...limits, queueLengthMax: WAITING_MAX };
  return createScans(bounds, {
    search: (query, deadlineMs) => ask("search", query, deadlineMs) as Promise<PlantPage>,
    count: (query, deadlineMs) => ask("count", query, deadlineMs) as Promise<CountPage>,
    // When the thread has closed the file: the last connection to close folds the log in.
    close: async () => {
      if (thread?.isEnded !== false) return;
      await within(CLOSE_MS_MAX, thread.ask({ kind: "close" })).catch(() => undefined);
      thread.end();
    },
  });
}
