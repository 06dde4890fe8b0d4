/** The thread that writes: it drains all its ports, commits once, and answers. */

import {
  type MessagePort,
  parentPort,
  receiveMessageOnPort,
  workerData,
} from "node:worker_threads";
import { Refusal } from "../../domain/errors.ts";
import { sharedNow } from "../../tick.ts";
import {
  type Answer,
  decodeBatch,
  type Notice,
  type Order,
  toAnswer,
  toFailure,
} from "./thread.ts";
import type { ThreadSetup } from "./thread.ts";
import { SqliteWriter, type Write } from "./writer.ts";

interface Batch {
  readonly port: MessagePort;
  readonly writes: readonly Write[];
  readonly deadlineMs: number;
}

const { path, limits, ports, durable } = workerData as ThreadSetup;
const notify = (notice: Notice): void => parentPort?.postMessage(notice);

let writer: SqliteWriter | undefined;

parentPort?.on("message", (order: Order) => notify(toAnswer(() => perform(order))));

function perform(order: Order): void {
  if (order === "close") return writer?.close();
  writer = new SqliteWriter(path, limits, (migrates) => notify({ migrates }));
  noteDurable(writer);
  for (const port of ports)
    port.on("message", (first: string) => commitAll(writer as SqliteWriter, drain(port, first)));
}

function drain(from: MessagePort, first: string): Batch[] {
  const batches = [{ port: from, ...decodeBatch(first) }];
  for (const port of ports)
    for (let came = receiveMessageOnPort(port); came; came = receiveMessageOnPort(port))
      batches.push({ port, ...decodeBatch(came.message as string) });
  return batches;
}

/**
 * What is late is dropped: its client may have been refused, sent it again and removed it, and a commit now would bring
 * it back.
 */
function commitAll(open: SqliteWriter, batches: readonly Batch[]): void {
  const nowMs = sharedNow();
  const late = new Set(batches.filter(({ deadlineMs }) => deadlineMs <= nowMs));
  const inTime = batches.filter((batch) => !late.has(batch));
  const answer = toAnswer(() => commit(open, inTime, nowMs));
  noteDurable(open);
  const outcomes = "value" in answer ? (answer.value as unknown[]) : undefined;
  let start = 0;
  for (const { port, writes } of inTime) {
    const end = start + writes.length;
    port.postMessage(outcomes === undefined ? answer : { value: outcomes.slice(start, end) });
    start = end;
  }
  const failure = toFailure(new Refusal("store_busy"));
  for (const { port } of late) port.postMessage({ failure } satisfies Answer);
}

function commit(open: SqliteWriter, batches: readonly Batch[], nowMs: number): unknown[] {
  if (batches.length === 0) return [];
  const leftMs = Math.min(...batches.map(({ deadlineMs }) => deadlineMs)) - nowMs;
  const writes = batches.flatMap((batch) => batch.writes);
  const outcomes = open.commit(writes, performance.now() + leftMs);
  return outcomes.map((outcome) =>
    outcome instanceof Error ? { failure: toFailure(outcome) } : outcome,
  );
}

const noteDurable = (open: SqliteWriter): void =>
  void Atomics.store(durable, 0, open.isDurable ? 1 : 0);
