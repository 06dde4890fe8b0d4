/** Searches by name, on a thread and a read-only connection of its own: readers do not block the writer. */

import { Database } from "bun:sqlite";
import { parentPort, workerData } from "node:worker_threads";
import { takePage } from "../../domain/page.ts";
import { preparePageStatements, walkPlants } from "./page-statements.ts";
import type { ScanAnswer, ScanOrder, ScanQuestion, ScanSetup } from "./scan.ts";

const LOCK_WAIT_MS = 2_000;

const { path, scanRowsMax } = workerData as ScanSetup;
const db = new Database(path, { readonly: true, safeIntegers: true });
db.run(`PRAGMA busy_timeout = ${LOCK_WAIT_MS}`);
const statements = preparePageStatements(db);

parentPort?.on("message", (order: ScanOrder) => {
  if (order === "close") return close();
  parentPort?.postMessage(search(order));
});

function close(): void {
  for (const statement of Object.values(statements)) statement.finalize();
  db.close();
  parentPort?.close();
}

function search({ number, query }: ScanQuestion): ScanAnswer {
  try {
    const rows = walkPlants(statements, query, scanRowsMax + 1);
    return { number, page: takePage(rows, query, scanRowsMax) };
  } catch (error) {
    return { number, error: error as Error };
  }
}
