/** The thread that reads at length: searches, counts, large pages, exports, tags, the journal. Or it copies a store. */

import { type MessagePort, workerData } from "node:worker_threads";
import { type CopyOrder, copyStore } from "./backup.ts";
import { type ReadOrder, SqliteReader } from "./reader.ts";
import { type ThreadSetup, toAnswer } from "./thread.ts";

const { orders, path, limits, ports } = workerData as ThreadSetup;
const encoder = new TextEncoder();

let reader: SqliteReader | undefined;

function perform(order: "open" | "close" | CopyOrder): unknown {
  if (typeof order === "object") return copyStore(order);
  if (order === "close") return reader?.close();
  const opened = (reader = new SqliteReader(path, limits.scanRowsMax));
  for (const port of ports) port.on("message", (read: ReadOrder) => answer(port, opened, read));
  return undefined;
}

/** A text goes as bytes, which are not copied on the way. */
function answer(port: MessagePort, opened: SqliteReader, order: ReadOrder): void {
  const made = toAnswer(() => opened.perform(order));
  if (order.kind !== "plants" || !("value" in made)) return port.postMessage(made);
  const page = made.value as ReturnType<SqliteReader["readPlants"]>;
  const text = encoder.encode(page.text as string);
  port.postMessage({ value: { ...page, text } }, [text.buffer]);
}

orders.on("message", (order: "open" | "close" | CopyOrder) =>
  orders.postMessage(toAnswer(() => perform(order))),
);
