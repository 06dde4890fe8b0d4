/** Threads of this process: starting one, and asking it over a message port. */

import { basename } from "node:path";
import {
  MessageChannel,
  type MessagePort,
  receiveMessageOnPort,
  Worker,
} from "node:worker_threads";
import { describeError, Refusal, StoreOpenError, toRefusal } from "./domain/errors.ts";
import type { OnMigrate, SchemaChange } from "./domain/store.ts";
import { pause } from "./tick.ts";

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

/** postMessage drops an error's class and code. Without a reason it is a StoreOpenError. */
export type Failed = ReturnType<typeof toFailed>;
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

export function* takeAll(port: MessagePort): Generator {
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
