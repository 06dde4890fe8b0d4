/** The backup thread: makes copies, appends changes, proves, prunes and restores. One task at a time. */

import { setPriority } from "node:os";
import { onMessage, runThread, toFailed } from "../thread.ts";
import type { Source } from "./place.ts";
import { Appender } from "./ship.ts";
import { copyBackup, copyStore } from "./copy.ts";
import { backUp, check, prove, prune } from "./maintain.ts";
import type { CheckPosition } from "./names.ts";
import type { NewestCopy } from "./plan.ts";
import { restoreFromPlace } from "./restore.ts";
import { listPlace, verifyPlace } from "./report.ts";

/** Clients come before copies and proofs. */
const NICE = 10;

/** On Linux the priority is the thread's; elsewhere it would be that of the whole process. */
function yieldToClients(): void {
  if (process.platform === "linux") setPriority(0, NICE);
}

const yielding =
  <Task, Result>(perform: (task: Task) => Result) =>
  (task: Task): Result => {
    yieldToClients();
    return perform(task);
  };

let appender: Appender | undefined;

const tasks = {
  copyStore,
  copyBackup,
  restoreFromPlace,
  listPlace,
  verifyPlace,
  backUp: yielding(backUp),
  prove: yielding(prove),
  check: yielding(check),
  prune: yielding(prune),
  /** `checked` is noted with what is appended, and at a stop; undefined if it has not moved since the start. */
  append: (source: Source, checked: CheckPosition | undefined) =>
    (appender ??= new Appender(source)).append(checked),
  cover: (copy: NewestCopy) => appender?.cover(copy),
  recheck: () => appender?.recheck(),
  finish: () => appender?.finish(),
};

export type Tasks = typeof tasks;

export interface Order {
  readonly task: keyof Tasks;
  readonly args: readonly unknown[];
}

runThread(({ orders }: { readonly orders: MessagePort }) =>
  onMessage(orders, ({ task, args }: Order) => {
    const perform: (...of: readonly never[]) => unknown = tasks[task];
    void Promise.try(perform, ...(args as never[])).then(
      (value) => orders.postMessage({ value }),
      (error: unknown) => orders.postMessage(toFailed(error)),
    );
  }),
);
