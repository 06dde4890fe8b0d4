/** The backup thread: makes copies, appends changes, proves, prunes and restores. One task at a time. */

import { setPriority } from "node:os";
import { onMessage, runThread, toFailed } from "../thread.ts";
import { Appender } from "./ship.ts";
import { copyBackup, copyStore } from "./copy.ts";
import { backUp, check, prove, prune } from "./maintain.ts";
import type { Task } from "./tasks.ts";
import { restoreFromPlace } from "./restore.ts";
import { listPlace, verifyPlace } from "./report.ts";

/** Clients come before copies and proofs. */
const NICE = 10;

let appender: Appender | undefined;

async function perform(task: Task): Promise<unknown> {
  switch (task.kind) {
    case "copy":
      return copyStore(task.from, task.to);
    case "restoreFile":
      return copyBackup(task.from, task.to);
    case "restore":
      return restoreFromPlace(task);
    case "list":
      return listPlace(task);
    case "verify":
      return verifyPlace(task);
    case "backUp":
      yieldToClients();
      return backUp(task);
    case "prove":
      yieldToClients();
      return prove(task);
    case "check":
      yieldToClients();
      return check(task);
    case "prune":
      return prune(task);
    case "append":
      return (appender ??= new Appender(task)).append(task.checked);
    case "cover":
      return appender?.cover(task.copy);
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
  onMessage(orders, (task: Task) => {
    void perform(task).then(
      (value) => orders.postMessage({ value }),
      (error: unknown) => orders.postMessage(toFailed(error)),
    );
  }),
);
