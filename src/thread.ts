/** Threads of this process: starting one, and asking it over a message port. */

import { basename } from "node:path";
import { describeError, Refusal, StoreOpenError, toRefusal } from "./domain/errors.ts";
import type { OnMigrate, SchemaChange } from "./domain/store.ts";
import { pause } from "./tick.ts";

/** Transfers `ports` to the thread. Uses the runtime's own Worker: that of node:worker_threads starts more slowly. */
export function startThread(
  file: string,
  setup: object = {},
  ports: readonly MessagePort[] = [],
  options: CallerOptions = {},
) {
  const { port1, port2 } = new MessageChannel();
  const orders = createCaller(port1, options);
  const ended = Promise.withResolvers<never>();
  // There may be no request in flight to handle the rejection.
  ended.promise.catch(() => undefined);
  const worker = new Worker(file);
  worker.postMessage({ ...setup, orders: port2 }, [port2, ...ports]);
  const finish = (error: unknown = new Error(`the thread ${basename(file)} has ended`)): void => {
    ended.reject(error);
    orders.close(error);
  };
  worker.addEventListener("message", ({ data }) => {
    const { fatal } = data as { readonly fatal?: object };
    if (fatal !== undefined) finish(Object.assign(new Error(), fatal));
  });
  worker.addEventListener("error", ({ message }) => finish(new Error(message)));
  worker.addEventListener("close", () => finish());
  return {
    worker,
    ended: ended.promise,
    ask: orders.ask,
    /** Does not wait: a running statement cannot be interrupted. */
    end: (): void => {
      finish();
      worker.terminate();
    },
  };
}

/** For the entry of a thread. `run` gets its setup, which is the first message. */
export function runThread(run: (setup: never) => void): void {
  process.on("uncaughtException", failThread);
  process.on("unhandledRejection", failThread);
  addEventListener("message", ({ data }) => run(data as never), { once: true });
}

/** The last message has the error: the runtime would report only a text. */
function failThread(thrown: unknown): void {
  const error = thrown instanceof Error ? thrown : new Error("thrown", { cause: thrown });
  postMessage({ fatal: toPlain(error) });
  process.exit(1);
}

/** Calls back with every message to the port. */
export function onMessage(port: MessagePort, receive: (message: never) => void): void {
  port.addEventListener("message", ({ data }) => receive(data as never));
  port.start();
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
  // On demand: few threads need it, and loading it is slow.
  const { receiveMessageOnPort } = process.getBuiltinModule("node:worker_threads");
  for (let received = receiveMessageOnPort(port); received; received = receiveMessageOnPort(port))
    yield received.message;
}

/** A busy event loop may not deliver a message for seconds, so the port is polled too. */
const RECEIVE_MS = 10;

interface CallerOptions {
  /** False if it asks only while no requests are in flight: loading what polls takes half as long as a thread's start. */
  readonly isPolled?: boolean;
  readonly onMigrate?: OnMigrate | undefined;
}

/**
 * The calling end of a port, with one request in flight; later ones wait for their turn. Answers are received in two
 * ways, which could swap two of them: a client would get the outcome of another's write.
 */
export function createCaller(
  port: MessagePort,
  { isPolled = true, onMigrate }: CallerOptions = {},
) {
  /** The first one is in flight. */
  const requests: (PromiseWithResolvers<unknown> & { readonly question: unknown })[] = [];
  let isWatching = false;
  let isClosed = false;
  const send = (): void => {
    const [next] = requests;
    if (next !== undefined) port.postMessage(next.question);
  };
  const receive = (answer: Answer | { readonly migrates: SchemaChange }): void => {
    if ("migrates" in answer) return onMigrate?.(answer.migrates);
    const answered = requests.shift();
    send();
    if ("value" in answer) answered?.resolve(answer.value);
    else answered?.reject(fromFailed(answer));
  };
  onMessage(port, receive);
  const fail = (error: unknown): void => {
    isClosed = true;
    for (const { reject } of requests.splice(0)) reject(error);
  };
  // The other end closes with its thread, however that ended.
  port.addEventListener("close", () => fail(new Refusal("store_unavailable")));
  const watch = async (): Promise<void> => {
    isWatching = true;
    while (requests.length > 0) {
      await pause(RECEIVE_MS);
      for (const answer of takeAll(port)) receive(answer as Answer);
    }
    isWatching = false;
  };
  return {
    ask: (question: unknown): Promise<unknown> => {
      if (isClosed) return Promise.reject(new Refusal("store_unavailable"));
      const request = { question, ...Promise.withResolvers<unknown>() };
      if (requests.push(request) === 1) send();
      if (isPolled && !isWatching) void watch();
      return request.promise;
    },
    close(error: unknown = new Refusal("store_unavailable")): void {
      port.close();
      fail(error);
    },
  };
}
