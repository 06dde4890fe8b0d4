/** The other side of thread.ts. */

import { parentPort } from "node:worker_threads";
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
