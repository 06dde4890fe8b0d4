/** A store that another thread owns. All calls of one tick, and all results of one commit, go in one message. */

import { type ErrorName, Refusal, toRefusal } from "../domain/errors.ts";
import type { ServedStore } from "../domain/store.ts";
import { describeError } from "../observe/log.ts";
import type { Reports } from "../observe/reporter.ts";
import { endOfTick, pause } from "../store/batcher.ts";

type RemoteStore = ServedStore & Pick<Reports, "readActivity" | "formatMetrics">;

/** Gives every guarantee of the owner's store. What `reader` can read is read on this thread. */
export function createRemoteStore(caller: Caller, reader: object = {}): RemoteStore {
  // Before its first answer, the owner makes durable what can be read.
  let isDurable = false;
  const askOwner = async (name: string, asked: readonly unknown[]): Promise<unknown> => {
    const answer = await caller.call(name, asked);
    isDurable = true;
    return answer;
  };
  return new Proxy({} as RemoteStore, {
    get:
      (_, name: string) =>
      (...asked: never[]) => {
        if (!(name in reader)) return caller.call(name, asked);
        return isDurable ? (reader as Methods)[name]?.(...asked) : askOwner(name, asked);
      },
  });
}

/** Number, method and four parameters of each call: to send a flat list costs half of a list of objects. */
type Calls = readonly unknown[];
const CALL_LENGTH = 6;

/** Flat too: number and value of each call. */
export type Results = readonly unknown[];
const RESULT_LENGTH = 2;

/** An error as a message carries it. */
interface Failure {
  readonly refusal: ErrorName;
  readonly message: string;
  readonly cause: unknown;
}

export type Methods = Readonly<Record<string, (...parameters: never[]) => Promise<unknown>>>;

/** After this the caller looks for results by itself. */
const RECEIVE_MS = 10;

export type Caller = ReturnType<typeof createCaller>;

/** `receive` finds a message that has arrived but was not delivered: a busy event loop may not deliver it for long. */
export function createCaller(send: (calls: Calls) => void, receive: () => Results | undefined) {
  const waiting = new Map<number, Pick<PromiseWithResolvers<unknown>, "resolve" | "reject">>();
  let calls: unknown[] = [];
  let isWatching = false;
  let count = 0;

  const settle = (results: Results): void => {
    for (let at = 0; at < results.length; at += RESULT_LENGTH) {
      const number = results[at] as number;
      const value = fromMessage(results[at + 1]);
      const called = waiting.get(number);
      waiting.delete(number);
      if (value instanceof Refusal) called?.reject(value);
      else called?.resolve(value);
    }
  };
  const watch = async (): Promise<void> => {
    isWatching = true;
    while (waiting.size > 0) {
      await pause(RECEIVE_MS);
      for (let came = receive(); came !== undefined; came = receive()) settle(came);
    }
    isWatching = false;
  };
  const flush = (): void => {
    const sent = calls;
    calls = [];
    send(sent);
    if (!isWatching) void watch();
  };
  return {
    settle,
    call: (method: string, [first, second, third, fourth]: readonly unknown[]) =>
      new Promise<unknown>((resolve, reject) => {
        waiting.set(++count, { resolve, reject });
        if (calls.length === 0) void endOfTick().then(flush);
        calls.push(count, method, first, second, third, fourth);
      }),
  };
}

/** Runs the calls that arrive, of `others` or of the store, and sends back their results. */
export function createCallee(
  store: ServedStore,
  others: Methods,
  send: (results: Results) => void,
): (calls: Calls) => void {
  let results: unknown[] = [];
  // A commit settles many calls at once: they go back together.
  const add = (number: number, value: unknown): void => {
    if (results.length === 0)
      setImmediate(() => {
        const settled = results;
        results = [];
        send(settled);
      });
    results.push(number, value);
  };
  return (calls) => {
    for (let at = 0; at < calls.length; at += CALL_LENGTH) {
      const number = calls[at] as number;
      const name = calls[at + 1] as string;
      const parameters = calls.slice(at + 2, at + CALL_LENGTH) as never[];
      const callee = name in others ? others : (store as unknown as Methods);
      callee[name]?.(...parameters).then(
        (value) => add(number, toMessage(value)),
        (error: unknown) => add(number, toFailure(error)),
      );
    }
  };
}

/** A list of outcomes may have errors in it. */
const toMessage = (value: unknown): unknown =>
  Array.isArray(value)
    ? value.map((one: unknown) => (one instanceof Error ? toFailure(one) : one))
    : value;

function toFailure(error: unknown): Failure {
  const { reason, message, cause } = toRefusal(error);
  return { refusal: reason, message, cause: toPlain(cause) };
}

function fromMessage(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(fromMessage);
  if (typeof value !== "object" || value === null || !("refusal" in value)) return value;
  const { refusal, message, cause } = value as Failure;
  return new Refusal(refusal, message, cause);
}

/** For the log: a message between threads would drop an error's code. */
function toPlain(cause: unknown): unknown {
  if (!(cause instanceof Error)) return cause === undefined ? undefined : Bun.inspect(cause);
  const described = describeError(cause);
  return { ...described, cause: toPlain(described["cause"]) };
}
