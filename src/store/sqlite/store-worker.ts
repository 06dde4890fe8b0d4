/** A thread with a connection of its own: it copies a store, or searches and counts until it is told to close. */

import { parentPort, workerData } from "node:worker_threads";
import { StoreOpenError } from "../../domain/errors.ts";
import { type CopyAnswer, type CopyOrder, copyStore } from "./backup.ts";
import { openReadOnly } from "./database.ts";
import type { SearchAnswer, SearchOrder, SearchWorkerSetup } from "./search.ts";
import { connect, countPlants, disconnect, inSnapshot, searchPlants } from "./sql.ts";

const order = workerData as CopyOrder | SearchWorkerSetup;
if ("started" in order) search(order);
else parentPort?.postMessage(copy(order));

function copy(asked: CopyOrder): CopyAnswer {
  try {
    return { facts: copyStore(asked) };
  } catch (error) {
    // An error loses its class on the way to another thread.
    if (error instanceof StoreOpenError) return { refusal: error.message };
    return { error: error as Error };
  }
}

function search({ path, scanRowsMax, started }: SearchWorkerSetup): void {
  const connection = connect(openReadOnly(path));
  Atomics.store(started, 0, 1);
  Atomics.notify(started, 0);
  const perform = ({ kind, query }: Exclude<SearchOrder, "close">): SearchAnswer => {
    const work = kind === "list" ? searchPlants : countPlants;
    try {
      return inSnapshot(connection, () => work(connection.statements, query, scanRowsMax));
    } catch (error) {
      return error as Error;
    }
  };
  parentPort?.on("message", (asked: SearchOrder) => {
    if (asked !== "close") return parentPort?.postMessage(perform(asked));
    disconnect(connection);
    parentPort?.close();
  });
}
