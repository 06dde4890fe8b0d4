/** The backup thread: makes copies, appends changes, proves, prunes and restores. One order at a time. */

import { setPriority } from "node:os";
import { onMessage, runThread, toFailed } from "../thread.ts";
import { Appender } from "./append.ts";
import { copyBackup, copyStore } from "./copy.ts";
import { backUp, check, prove, prune } from "./keep.ts";
import type { Order } from "./order.ts";
import { restoreFromPlace } from "./restore.ts";
import { listPlace, verifyPlace } from "./report.ts";

/** Clients come before copies and proofs. */
const NICE = 10;

let appender: Appender | undefined;

async function perform(order: Order): Promise<unknown> {
  switch (order.kind) {
    case "copy":
      return copyStore(order.from, order.to);
    case "restoreFile":
      return copyBackup(order.from, order.to);
    case "restore":
      return restoreFromPlace(order);
    case "list":
      return listPlace(order);
    case "verify":
      return verifyPlace(order);
    case "backUp":
      yieldToClients();
      return backUp(order);
    case "prove":
      yieldToClients();
      return prove(order);
    case "check":
      yieldToClients();
      return check(order);
    case "prune":
      return prune(order);
    case "append":
      return (appender ??= new Appender(order)).append(order.checked);
    case "cover":
      return appender?.cover(order.copy);
    case "recheck":
      return appender?.recheck();
    case "finish":
      return appender?.finish();
  }
}

/** On Linux the priority is the thread's; elsewhere it would be that of the whole process. */
function yieldToClients(): void {
  if (process.platform === "linux") setPriority(0, NICE);
}

runThread(({ orders }: { readonly orders: MessagePort }) =>
  onMessage(orders, (order: Order) => {
    void perform(order).then(
      (value) => orders.postMessage({ value }),
      (error: unknown) => orders.postMessage(toFailed(error)),
    );
  }),
);
