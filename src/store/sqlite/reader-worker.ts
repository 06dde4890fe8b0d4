/**
 * The reader thread: searches, counts, large pages, exports, tags, the journal. Another instance copies a store, or
 * appends to a change log.
 */

import { type MessagePort, workerData } from "node:worker_threads";
import { StoreOpenError } from "../../domain/errors.ts";
import { type AppendRequest, type CopyRequest, copyStore } from "./backup.ts";
import { ChangeLog, logOf } from "./change-log.ts";
import { type ReadRequest, SqliteReader } from "./reader.ts";
import { type ThreadSetup, toAnswer } from "./thread.ts";

const { orders, path, limits, ports } = workerData as ThreadSetup;
const encoder = new TextEncoder();

let reader: SqliteReader | undefined;

let log: ChangeLog | undefined;

function perform(order: "open" | "close" | CopyRequest | AppendRequest): unknown {
  if (typeof order === "object") return "to" in order ? copyStore(order) : append(order);
  if (order === "close") return reader?.close();
  const opened = (reader = new SqliteReader(path, limits));
  for (const port of ports) port.on("message", (read: ReadRequest) => answer(port, opened, read));
  return undefined;
}

function append({ from, copy }: AppendRequest): boolean {
  try {
    if (log?.copy !== copy) {
      log?.close();
      log = undefined;
      log = new ChangeLog(from, copy);
    }
    return log.append();
  } catch (error) {
    if (error instanceof StoreOpenError) throw error;
    throw new StoreOpenError(`${logOf(copy)} cannot be written: ${(error as Error).message}`);
  }
}

/** Page text is sent as bytes, which are transferred, not copied. */
function answer(port: MessagePort, opened: SqliteReader, order: ReadRequest): void {
  const made = toAnswer(() => opened.perform(order));
  if (order.kind !== "plants" || !("value" in made)) return port.postMessage(made);
  const page = made.value as ReturnType<SqliteReader["readPlants"]>;
  const text = encoder.encode(page.text as string);
  port.postMessage({ value: { ...page, text } }, [text.buffer]);
}

orders.on("message", (order: Parameters<typeof perform>[0]) =>
  orders.postMessage(toAnswer(() => perform(order))),
);
