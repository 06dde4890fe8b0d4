/** The store thread: the only one that writes. */

import { workerData } from "node:worker_threads";
import { serveWrites, type ThreadSetup, toAnswer } from "./thread.ts";
import { SqliteWriter } from "./writer.ts";

const setup = workerData as ThreadSetup;
const { orders, path, limits } = setup;

let writer: SqliteWriter | undefined;

function perform(order: "open" | "close"): void {
  if (order === "close") return writer?.close();
  writer = new SqliteWriter(path, limits, (migrates) => orders.postMessage({ migrates }));
  serveWrites(writer, setup);
}

orders.on("message", (order: "open" | "close") =>
  orders.postMessage(toAnswer(() => perform(order))),
);
