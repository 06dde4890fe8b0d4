/** The thread that searches and counts, on a read-only connection of its own. */

import { parentPort, workerData } from "node:worker_threads";
import { openReadOnly } from "./database.ts";
import type { SearchAnswer, SearchOrder, SearchWorkerSetup } from "./search.ts";
import { connect, countPlants, disconnect, inSnapshot, searchPlants } from "./sql.ts";

const { path, scanRowsMax, started } = workerData as SearchWorkerSetup;
const connection = connect(openReadOnly(path));
Atomics.store(started, 0, 1);
Atomics.notify(started, 0);

parentPort?.on("message", (order: SearchOrder) => {
  if (order !== "close") return parentPort?.postMessage(perform(order));
  disconnect(connection);
  parentPort?.close();
});

function perform({ kind, query }: Exclude<SearchOrder, "close">): SearchAnswer {
  const work = kind === "list" ? searchPlants : countPlants;
  try {
    return {
      page: inSnapshot(connection, () => work(connection.statements, query, scanRowsMax)),
    };
  } catch (error) {
    return { error: error as Error };
  }
}
