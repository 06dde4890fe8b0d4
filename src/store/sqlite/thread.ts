/**
 * The store's threads, and both ends of their message ports. The store thread only writes, so a slow sync delays
 * nothing else. The reader thread runs long reads.
 */

import { basename, join } from "node:path";
import {
  MessageChannel,
  type MessagePort,
  receiveMessageOnPort,
  Worker,
} from "node:worker_threads";
import { describeError, Refusal, StoreOpenError, toRefusal } from "../../domain/errors.ts";
import type { OnMigrate, SchemaChange, StoreLimits } from "../../domain/store.ts";
import type { PlantWrite } from "../../domain/write.ts";
import { fromShared, pause, shareClock, sharedNow, toShared, within } from "../../tick.ts";
import { toExact } from "../journal.ts";
import type { SqliteWriter, Write } from "./writer.ts";

export interface StoreLink {
  readonly writes: MessagePort;
  /** Long reads. */
  readonly reads: MessagePort;
  /** Tokens, webhooks and file sizes, which do not wait in the queue of long reads. */
  readonly records: MessagePort;
  readonly state: StoreState;
}

/** Shared by all threads. At DURABLE it is 1 once everything readable is on disk, at MOVED while the file is moved. */
type StoreState = Int32Array;
const DURABLE = 0;
export const MOVED = 1;
const STATE_LENGTH = 2;

export interface ThreadSetup {
  /** "open", "close", that of the clock, or the copy to make. The reader opens the store after the writer. */
  readonly orders: MessagePort;
  readonly path: string;
  readonly limits: StoreLimits;
  readonly ports: readonly MessagePort[];
  readonly state: StoreState;
}

/** postMessage drops an error's class and code. Without a reason it is a StoreOpenError. */
type Failed = ReturnType<typeof toFailed>;
export type Answer = Failed | { readonly value: unknown };

export function toFailed(error: unknown) {
  const known = error instanceof StoreOpenError ? error : toRefusal(error);
  const reason = known instanceof Refusal ? known.reason : undefined;
  return { failure: { reason, message: known.message, cause: toPlain(known.cause) } };
}

export const fromFailed = ({ failure: { reason, message, cause } }: Failed): Error =>
  reason === undefined
    ? new StoreOpenError(message, { cause })
    : new Refusal(reason, message, cause);

/** For the log: postMessage would drop an error's code. */
function toPlain(cause: unknown): unknown {
  if (!(cause instanceof Error)) return cause === undefined ? undefined : Bun.inspect(cause);
  const described = describeError(cause);
  return { ...described, cause: toPlain(described["cause"]) };
}

export function toAnswer(work: () => unknown): Answer {
  try {
    return { value: work() };
  } catch (error) {
    return toFailed(error);
  }
}

function* takeAll(port: MessagePort): Generator {
  for (let came = receiveMessageOnPort(port); came; came = receiveMessageOnPort(port))
    yield came.message;
}

/** A busy event loop may not deliver a message for seconds, so the port is polled too. */
const RECEIVE_MS = 10;

/**
 * The calling end of a port, with one request in flight. Answers are received in two ways, which could swap two of
 * them: a client would get the outcome of another's write.
 */
export function createCaller(port: MessagePort, onMigrate?: OnMigrate) {
  let asked: PromiseWithResolvers<unknown> | undefined;
  let isWatching = false;
  let isClosed = false;
  const isAsked = (): boolean => asked !== undefined;
  const receive = (answer: Answer | { readonly migrates: SchemaChange }): void => {
    if ("migrates" in answer) return onMigrate?.(answer.migrates);
    const answered = asked;
    asked = undefined;
    if ("value" in answer) answered?.resolve(answer.value);
    else answered?.reject(fromFailed(answer));
  };
  port.on("message", receive);
  const fail = (): void => {
    isClosed = true;
    asked?.reject(new Refusal("store_unavailable"));
    asked = undefined;
  };
  // The other end closes with its thread, however that ended.
  port.on("close", fail);
  const watch = async (): Promise<void> => {
    isWatching = true;
    while (isAsked()) {
      await pause(RECEIVE_MS);
      for (const answer of takeAll(port)) receive(answer as Answer);
    }
    isWatching = false;
  };
  return {
    ask: (question: unknown): Promise<unknown> => {
      if (isClosed) return Promise.reject(new Refusal("store_unavailable"));
      if (isAsked()) return Promise.reject(new Error("a request while another one is in flight"));
      asked = Promise.withResolvers<unknown>();
      port.postMessage(question);
      if (!isWatching) void watch();
      return asked.promise;
    },
    close(): void {
      port.close();
      fail();
    },
  };
}

type Caller = ReturnType<typeof createCaller>;

/** `closeThreads` is for the thread that started them. */
export function callThreads(link: StoreLink, closeThreads?: () => Promise<void>) {
  const [writes, reads, records] = [link.writes, link.reads, link.records].map((port) =>
    createCaller(port),
  ) as [Caller, Caller, Caller];
  return {
    async commit(batch: readonly Write[], deadlineMs: number): Promise<unknown[]> {
      const outcomes = await writes.ask(encodeBatch(batch, toShared(deadlineMs)));
      return (outcomes as unknown[]).map(fromOutcome);
    },
    read: reads.ask,
    readRecords: records.ask,
    isMoved: (): boolean => Atomics.load(link.state, MOVED) === 1,
    get isDurable(): boolean {
      return Atomics.load(link.state, DURABLE) === 1;
    },
    close: () => {
      for (const caller of [writes, reads, records]) caller.close();
      return closeThreads?.();
    },
  };
}

/** A single write of a commit may have failed. */
const fromOutcome = (outcome: unknown): unknown =>
  typeof outcome === "object" && outcome !== null && "failure" in outcome
    ? fromFailed(outcome as Failed)
    : outcome;

/** One JSON text, which costs a fraction of a list of objects. The deadline is by `sharedNow`. */
export const encodeBatch = (writes: readonly Write[], deadlineMs: number): string =>
  JSON.stringify({ deadlineMs, writes: writes.map(toJson) });

/** JSON has no bigint, and one id is enough. */
function toJson(write: Write) {
  if (write.kind === "run") return write;
  if (write.kind === "atomic") return { ...write, writes: write.writes.map(plantToJson) };
  return plantToJson(write);
}

function plantToJson(write: PlantWrite) {
  const { id, plant } = write;
  return { ...write, id: toExact(id), plant: plant && { name: plant.name, tag: plant.tag } };
}

export function decodeBatch(text: string) {
  type Sent = Readonly<{ deadlineMs: number; writes: readonly ReturnType<typeof toJson>[] }>;
  const { deadlineMs, writes } = JSON.parse(text) as Sent;
  return { deadlineMs, writes: writes.map(fromJson) };
}

function fromJson(sent: ReturnType<typeof toJson>): Write {
  if (sent.kind === "run") return sent;
  if (sent.kind === "atomic") return { ...sent, writes: sent.writes.map(plantFromJson) };
  return plantFromJson(sent);
}

function plantFromJson(sent: ReturnType<typeof plantToJson>): PlantWrite {
  const id = BigInt(sent.id);
  return { ...sent, id, plant: sent.plant && { id, ...sent.plant } } as PlantWrite;
}

/** On the store thread: drains all ports into one commit. */
export function serveWrites(writer: SqliteWriter, { ports, state }: ThreadSetup): void {
  const noteDurable = (): unknown => Atomics.store(state, DURABLE, writer.isDurable ? 1 : 0);
  noteDurable();
  for (const port of ports)
    port.on("message", (first: string) => {
      const batches = [{ port, ...decodeBatch(first) }];
      for (const from of ports)
        for (const text of takeAll(from))
          batches.push({ port: from, ...decodeBatch(text as string) });
      const answers = commitTogether(writer, batches);
      noteDurable();
      for (const [index, batch] of batches.entries()) batch.port.postMessage(answers[index]);
    });
}

/** Late batches are dropped: a client may have retried and removed its plant, and a commit now would bring it back. */
function commitTogether(
  writer: SqliteWriter,
  batches: readonly ReturnType<typeof decodeBatch>[],
): Answer[] {
  const nowMs = sharedNow();
  const inTime = batches.filter(({ deadlineMs }) => deadlineMs > nowMs);
  const writes = inTime.flatMap((batch) => batch.writes);
  const untilMs = fromShared(Math.min(...inTime.map(({ deadlineMs }) => deadlineMs)));
  const committed = toAnswer(() => (inTime.length === 0 ? [] : writer.commit(writes, untilMs)));
  let start = 0;
  return batches.map((batch) => {
    if (batch.deadlineMs <= nowMs) return toFailed(new Refusal("store_busy"));
    if (!("value" in committed)) return committed;
    const outcomes = (committed.value as unknown[]).slice(start, start + batch.writes.length);
    start += batch.writes.length;
    return {
      value: outcomes.map((outcome) => (outcome instanceof Error ? toFailed(outcome) : outcome)),
    };
  });
}

/** `ports` are given to the thread. */
export function startThread(
  file: string,
  setup: object = {},
  ports: readonly MessagePort[] = [],
  onMigrate?: OnMigrate,
) {
  const { port1, port2 } = new MessageChannel();
  const orders = createCaller(port1, onMigrate);
  const ended = Promise.withResolvers<never>();
  // There may be no request in flight to handle the rejection.
  ended.promise.catch(() => undefined);
  const worker = new Worker(file, {
    workerData: { ...setup, orders: port2 },
    transferList: [port2, ...ports],
  });
  const finish = (error: unknown = new Error(`the thread ${basename(file)} has ended`)): void => {
    ended.reject(error);
    orders.close();
  };
  worker.on("error", finish);
  worker.on("exit", () => finish());
  return {
    worker,
    ended: ended.promise,
    ask: (order: unknown): Promise<unknown> => Promise.race([orders.ask(order), ended.promise]),
    /** Does not wait: a running statement cannot be interrupted. */
    end: (): void => {
      finish();
      void worker.terminate();
    },
  };
}

const CLOSE_MS_MAX = 2_000;

/** Resolves when the store is open, with a link for each HTTP thread. Rejects with a StoreOpenError. */
export async function startStoreThreads(
  path: string,
  limits: StoreLimits,
  httpThreads: number,
  onMigrate?: OnMigrate,
) {
  const bytes = STATE_LENGTH * Int32Array.BYTES_PER_ELEMENT;
  const state = new Int32Array(new SharedArrayBuffer(bytes));
  const start = (entry: string, portsPerThread: number) => {
    const length = httpThreads * portsPerThread;
    const channels = Array.from({ length }, () => new MessageChannel());
    const ports = channels.map(({ port2 }) => port2);
    // A function cannot be sent to a thread.
    const setup = { path, limits: { ...limits, onCommit: undefined }, state, ports };
    const thread = startThread(join(import.meta.dir, entry), setup, ports, onMigrate);
    return { ...thread, ports: channels.map(({ port1 }) => port1) };
  };
  // Started in parallel: each takes about 10 ms.
  const writer = start("store-worker", 1);
  const reader = start("reader-worker", 2);
  let isClosing = false;
  try {
    await writer.ask("open");
    await shareClock(writer.ask);
    await reader.ask("open");
  } catch (error) {
    for (const thread of [reader, writer]) thread.end();
    throw error;
  }
  return {
    links: writer.ports.map((writes, index): StoreLink => ({
      writes,
      reads: reader.ports[index] as MessagePort,
      records: reader.ports[httpThreads + index] as MessagePort,
      state,
    })),
    /** Calls back if a thread ends before it is closed. */
    onEnd: (fail: (error: unknown) => void): void => {
      for (const { ended } of [writer, reader]) ended.catch((error) => isClosing || fail(error));
    },
    /** Call it when no link is in use. The writer closes last, because the last connection checkpoints the WAL. */
    close: async (): Promise<void> => {
      isClosing = true;
      for (const thread of [reader, writer]) {
        await within(CLOSE_MS_MAX, thread.ask("close")).catch(() => undefined);
        thread.end();
      }
    },
  };
}
