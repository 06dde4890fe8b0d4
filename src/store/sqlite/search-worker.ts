/** The thread that searches by name, on a read-only connection of its own. */

import { parentPort, workerData } from "node:worker_threads";
import { takePage } from "../../domain/page.ts";
import { openReadOnly } from "./database.ts";
import type { SearchAnswer, SearchOrder, SearchQuestion, SearchSetup } from "./search.ts";
import { closeDatabase, prepareStatements, walkPlants } from "./sql.ts";

const { path, scanRowsMax } = workerData as SearchSetup;
const db = openReadOnly(path);
const statements = prepareStatements(db);

parentPort?.on("message", (order: SearchOrder) => {
  if (order !== "close") return parentPort?.postMessage(search(order));
  closeDatabase(db, statements);
  parentPort?.close();
});

function search({ number, query }: SearchQuestion): SearchAnswer {
  try {
    const rows = walkPlants(statements, query, scanRowsMax + 1);
    return { number, page: takePage(rows, query, scanRowsMax) };
  } catch (error) {
    return { number, error: error as Error };
  }
}
