/** The other side of thread.ts. */

import { parentPort, workerData } from "node:worker_threads";
import { StoreOpenError } from "../../domain/errors.ts";
import { copyStore } from "./backup.ts";
import { openReadOnly } from "./database.ts";
import {
  connect,
  type Connection,
  countPlants,
  disconnect,
  inSnapshot,
  searchPlants,
} from "./sql.ts";
import type { Answer, Order } from "./thread.ts";

let connection: Connection | undefined;

Atomics.store(workerData as Int32Array, 0, 1);
Atomics.notify(workerData as Int32Array, 0);

parentPort?.on("message", (order: Order) => parentPort?.postMessage(answer(order)));

function answer(order: Order): Answer {
  try {
    return { value: perform(order) };
  } catch (error) {
    return { error: error as Error, isOpenError: error instanceof StoreOpenError };
  }
}

function perform(order: Order): unknown {
  if (order.kind === "copy") return copyStore(order);
  if (order.kind === "close") return disconnect(connection);
  const { kind, path, query, scanRowsMax } = order;
  const { statements } = (connection ??= connect(openReadOnly(path)));
  const scan = kind === "search" ? searchPlants : countPlants;
  return inSnapshot(connection, () => scan(statements, query, scanRowsMax));
}
