/** The thread that searches by name, on a read-only connection of its own. */

import { parentPort, workerData } from "node:worker_threads";
import { type PlantQuery, takePage } from "../../domain/page.ts";
import { openReadOnly } from "./database.ts";
import type { SearchAnswer, SearchOrder, SearchWorkerSetup } from "./search.ts";
import { connect, disconnect, walkPlants } from "./sql.ts";

const { path, scanRowsMax, started } = workerData as SearchWorkerSetup;
const connection = connect(openReadOnly(path));
Atomics.store(started, 0, 1);
Atomics.notify(started, 0);

parentPort?.on("message", (order: SearchOrder) => {
  if (order !== "close") return parentPort?.postMessage(search(order));
  disconnect(connection);
  parentPort?.close();
});

function search(query: PlantQuery): SearchAnswer {
  try {
    const rows = walkPlants(connection.statements, query, scanRowsMax + 1);
    return { page: takePage(rows, query, scanRowsMax) };
  } catch (error) {
    return { error: error as Error };
  }
}
