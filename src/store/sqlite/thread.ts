/**
 * The threads of a store, and how others talk to them. One writes: nothing else runs there, so a slow sync delays
 * writes alone. One reads at length. Both answer in the order of the questions.
 */

import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import {
  MessageChannel,
  type MessagePort,
  receiveMessageOnPort,
  Worker,
} from "node:worker_threads";
import {
  describeError,
  type ErrorName,
  Refusal,
  StoreOpenError,
  toRefusal,
} from "../../domain/errors.ts";
import type { Plant } from "../../domain/plant.ts";
import type { OnMigrate, SchemaChange, StoreLimits } from "../../domain/store.ts";
import { pause, within } from "../../tick.ts";
import type { Replayed, Until } from "./change-log.ts";
import type { Write, WriterLimits } from "./writer.ts";

/** What one HTTP thread needs of the threads of a store. */
export interface StoreLink {
  readonly writes: MessagePort;
  readonly reads: MessagePort;
  /** 1 once everything that can be read is on disk. */
  readonly durable: Int32Array;
}

/** What both threads are started with. */
export interface ThreadSetup {
  readonly path: string;
  readonly limits: WriterLimits & Pick<StoreLimits, "scanRowsMax">;
  /** One for each HTTP thread. */
  readonly ports: readonly MessagePort[];
  readonly durable: Int32Array;
}

/** Appends to the change log of a copy. */
export interface AppendOrder {
  readonly from: string;
  readonly copy: string;
}

export interface CopyOrder {
  readonly from: string;
  /** An empty file. */
  readonly to: string;
  /** Whether to verify the original before copying it, and to compare each row of the copy with it. */
  readonly verifyFirst: boolean;
  /** The change log to replay into the copy, and up to which moment. */
  readonly replay?: { readonly log: string; readonly until: Until } | undefined;
  /** A store that has to have the same plants afterwards. */
  readonly sameAs?: string | undefined;
}

/** Of a copy. */
export interface StoreFacts {
  readonly schemaVersion: number;
  readonly plants: bigint;
  readonly tokens: bigint;
  readonly bytes: number;
  readonly replayed?: Replayed | undefined;
}

/** What a thread is told beside its ports. The reader opens the store when the writer has. */
export type Order = "open" | "close" | CopyOrder | AppendOrder;

/** What a thread says beside its ports: about a migration before it begins, then one answer to each order. */
export type Notice = { readonly migrates: SchemaChange } | Answer;

/** An error loses its class and code on the way to another thread. */
export type Answer =
  | { readonly value: unknown }
  | { readonly failure: Failure }
  | { readonly openError: string; readonly cause: unknown };

interface Failure {
  readonly reason: ErrorName;
  readonly message: string;
  readonly cause: unknown;
}

export function toFailure(error: unknown): Failure {
  const { reason, message, cause } = toRefusal(error);
  return { reason, message, cause: toPlain(cause) };
}

const fromFailure = ({ reason, message, cause }: Failure): Refusal =>
  new Refusal(reason, message, cause);

/** An outcome of a commit. One of its writes may have failed alone. */
export const fromOutcome = (outcome: unknown): unknown =>
  typeof outcome === "object" && outcome !== null && "failure" in outcome
    ? fromFailure(outcome.failure as Failure)
    : outcome;

/** For the log: a message between threads would drop an error's code. */
function toPlain(cause: unknown): unknown {
  if (!(cause instanceof Error)) return cause === undefined ? undefined : Bun.inspect(cause);
  const described = describeError(cause);
  return { ...described, cause: toPlain(described["cause"]) };
}

/** What `work` returns or throws, as a message. */
export function toAnswer(work: () => unknown): Answer {
  try {
    return { value: work() };
  } catch (error) {
    return error instanceof StoreOpenError
      ? { openError: error.message, cause: toPlain(error.cause) }
      : { failure: toFailure(error) };
  }
}

function settle({ resolve, reject }: PromiseWithResolvers<unknown>, answer: Answer): void {
  if ("value" in answer) resolve(answer.value);
  else if ("failure" in answer) reject(fromFailure(answer.failure));
  else reject(new StoreOpenError(answer.openError, { cause: answer.cause }));
}

/** A message may arrive and not be delivered for seconds, if the event loop is busy: so this looks for it. */
const RECEIVE_MS = 10;

/** One end of a port: questions out, and an answer to each back. */
export function createCaller(port: MessagePort) {
  const asked: PromiseWithResolvers<unknown>[] = [];
  let isWatching = false;
  const receive = (answer: Answer): void => {
    const first = asked.shift();
    if (first !== undefined) settle(first, answer);
  };
  port.on("message", receive);
  const watch = async (): Promise<void> => {
    isWatching = true;
    while (asked.length > 0) {
      await pause(RECEIVE_MS);
      for (let came = receiveMessageOnPort(port); came; came = receiveMessageOnPort(port))
        receive(came.message as Answer);
    }
    isWatching = false;
  };
  return {
    ask(question: unknown): Promise<unknown> {
      const answered = Promise.withResolvers<unknown>();
      asked.push(answered);
      port.postMessage(question);
      if (!isWatching) void watch();
      return answered.promise;
    },
    close(): void {
      port.close();
      for (const { reject } of asked.splice(0)) reject(new Refusal("store_unavailable"));
    },
  };
}

/**
 * A batch is one text: a flat list of primitives costs a fraction of a list of objects. The deadline is by `sharedNow`.
 */
export function encodeBatch(writes: readonly Write[], deadlineMs: number): string {
  const values: unknown[] = [deadlineMs];
  for (const write of writes) {
    if (write.kind === "run") values.push("run", write.concernsPlants, write.statements);
    else {
      const { kind, id, by = null, plant } = write;
      // Exact: a number that a double cannot hold is a text.
      const number = Number(id);
      values.push(kind, Number.isSafeInteger(number) ? number : String(id), by);
      if (plant !== undefined) values.push(plant.name, plant.tag ?? null);
      if (kind !== "create") values.push(write.condition);
    }
  }
  return JSON.stringify(values);
}

export function decodeBatch(text: string): { deadlineMs: number; writes: Write[] } {
  const values = JSON.parse(text) as never[];
  const writes: Write[] = [];
  for (let at = 1; at < values.length;) {
    const kind: Write["kind"] = values[at++] as never;
    if (kind === "run") {
      writes.push({
        kind,
        concernsPlants: values[at++] as never,
        statements: values[at++] as never,
      });
      continue;
    }
    const id = BigInt(values[at++] as never);
    const by = values[at++] ?? undefined;
    const take = (): Plant => ({ id, name: values[at++] as never, tag: values[at++] ?? undefined });
    if (kind === "create") writes.push({ kind, id, by, plant: take() });
    else {
      const plant = kind === "replace" ? take() : undefined;
      writes.push({ kind, id, by, plant, condition: values[at++] as never });
    }
  }
  return { deadlineMs: values[0] as never, writes };
}

/** A thread, and what it is told. */
function startThread(entry: string, setup?: ThreadSetup) {
  const asked: PromiseWithResolvers<unknown>[] = [];
  const ended = Promise.withResolvers<never>();
  // Nothing may be waiting for an answer.
  ended.promise.catch(() => undefined);
  let onMigrate: OnMigrate | undefined;
  const worker = new Worker(join(import.meta.dir, entry), {
    workerData: setup,
    transferList: [...(setup?.ports ?? [])],
  });
  worker.on("message", (notice: Notice) => {
    if ("migrates" in notice) return onMigrate?.(notice.migrates);
    const first = asked.shift();
    if (first !== undefined) settle(first, notice);
  });
  worker.on("error", (error) => ended.reject(error));
  worker.on("exit", () => ended.reject(new Error(`the thread ${entry} has ended`)));
  return {
    /** Rejects when the thread has ended. */
    ended: ended.promise,
    ask(order: Order, noteMigration?: OnMigrate): Promise<unknown> {
      onMigrate = noteMigration;
      const answered = Promise.withResolvers<unknown>();
      asked.push(answered);
      worker.postMessage(order);
      return Promise.race([answered.promise, ended.promise]);
    },
    end: (): void => void worker.terminate(),
  };
}

const CLOSE_MS_MAX = 2_000;

/** Resolves when the store is open, with a link for each HTTP thread. Rejects with a StoreOpenError. */
export async function startStoreThreads(
  path: string,
  limits: ThreadSetup["limits"],
  httpThreads: number,
  onMigrate?: OnMigrate,
) {
  const durable = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  const makeChannels = () => Array.from({ length: httpThreads }, () => new MessageChannel());
  const [writes, reads] = [makeChannels(), makeChannels()];
  const { changesDays, plantsMax, diskFreeBytesMin, scanRowsMax } = limits;
  const bounds = { changesDays, plantsMax, diskFreeBytesMin, scanRowsMax };
  const start = (entry: string, channels: readonly MessageChannel[]) =>
    startThread(entry, {
      path,
      limits: bounds,
      durable,
      ports: channels.map(({ port2 }) => port2),
    });
  // Side by side: each takes some ten milliseconds.
  const writer = start("store-worker", writes);
  const reader = start("reader-worker", reads);
  let isClosing = false;
  try {
    await writer.ask("open", onMigrate);
    await reader.ask("open");
  } catch (error) {
    for (const thread of [reader, writer]) thread.end();
    throw error;
  }
  return {
    links: writes.map(({ port1 }, index): StoreLink => ({
      writes: port1,
      reads: (reads[index] as MessageChannel).port1,
      durable,
    })),
    /** Calls back if a thread ends before it is closed. */
    onEnd: (fail: (error: unknown) => void): void => {
      for (const { ended } of [writer, reader]) ended.catch((error) => isClosing || fail(error));
    },
    /** When nothing uses the links any more. The writer closes last: the last connection to close checkpoints the WAL. */
    close: async (): Promise<void> => {
      isClosing = true;
      for (const thread of [reader, writer]) {
        await within(CLOSE_MS_MAX, thread.ask("close")).catch(() => undefined);
        thread.end();
      }
    },
  };
}

/** The runtime ends the process if a thread cannot have descriptors for its event loop. */
const DESCRIPTORS_NEEDED = 32;

/** On a thread of its own: a copy may take minutes, a running statement cannot be interrupted, and Ctrl-C must work. */
export async function copyOnThread(order: CopyOrder, signal: AbortSignal): Promise<StoreFacts> {
  signal.throwIfAborted();
  requireDescriptors();
  const thread = startThread("reader-worker");
  const aborted = Promise.withResolvers<never>();
  const abort = (): void => aborted.reject(signal.reason);
  signal.addEventListener("abort", abort);
  try {
    return (await Promise.race([thread.ask(order), aborted.promise])) as StoreFacts;
  } finally {
    signal.removeEventListener("abort", abort);
    thread.end();
  }
}

/** A thread that appends to change logs: a folder on a network may hang. */
export function startAppender() {
  requireDescriptors();
  const thread = startThread("reader-worker");
  return {
    /** False if a new copy is needed. */
    append: (order: AppendOrder) => thread.ask(order) as Promise<boolean>,
    end: thread.end,
  };
}

function requireDescriptors(): void {
  const opened: number[] = [];
  try {
    while (opened.length < DESCRIPTORS_NEEDED) opened.push(openSync("/dev/null", "r"));
  } catch {
    // The limit of the process, or of the system.
  }
  for (const descriptor of opened) closeSync(descriptor);
  if (opened.length < DESCRIPTORS_NEEDED)
    throw new StoreOpenError(
      `A copy needs ${DESCRIPTORS_NEEDED} free file descriptors, and ${opened.length} are free. Raise the limit (ulimit -n).`,
    );
}
