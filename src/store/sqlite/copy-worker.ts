/** The thread that copies a store. */

import { parentPort, workerData } from "node:worker_threads";
import { type CopyAnswer, type CopyOrder, copyStore } from "./copy.ts";
import { StoreOpenError } from "../../domain/errors.ts";

function answer(order: CopyOrder): CopyAnswer {
  try {
    return { facts: copyStore(order) };
  } catch (error) {
    // A class does not survive the way to another thread.
    if (error instanceof StoreOpenError) return { refusal: error.message };
    return { error: error as Error };
  }
}

parentPort?.postMessage(answer(workerData as CopyOrder));
