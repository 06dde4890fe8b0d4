/** The thread that copies a store. */

import { parentPort, workerData } from "node:worker_threads";
import { StoreOpenError } from "../../domain/errors.ts";
import { type CopyAnswer, type CopyOrder, copyStore } from "./backup.ts";

function answer(order: CopyOrder): CopyAnswer {
  try {
    return { facts: copyStore(order) };
  } catch (error) {
    // An error loses its class on the way to another thread.
    if (error instanceof StoreOpenError) return { refusal: error.message };
    return { error: error as Error };
  }
}

parentPort?.postMessage(answer(workerData as CopyOrder));
