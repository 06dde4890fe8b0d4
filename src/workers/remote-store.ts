/** A store that another thread owns. All calls of one tick, and all results of one commit, go in one message. */

import { type ErrorName, Refusal, toRefusal } from "../domain/errors.ts";
import type { Plant } from "../domain/plant.ts";
import { type Created, type ServedStore, servedMethods } from "../domain/store.ts";
import { describeError } from "../observe/log.ts";
import { endOfTick, pause } from "../store/batcher.ts";

/** Creates go in another form. */
const forwarded = servedMethods.filter((name) => name !== "createPlant" && name !== "createPlants");

type Forwarded = Omit<ServedStore, "createPlant" | "createPlants">;

/** The methods that the owner offers to callers. */
export function methodsOf(store: ServedStore) {
  const methods = Object.fromEntries(
    forwarded.map((name) => [name, store[name].bind(store)]),
  ) as unknown as Forwarded;
  return {
    ...methods,
    createPlant: (id: bigint, name: string, tag: string | undefined, by: string | undefined) =>
      store.createPlant({ id, name, tag }, by),
    createPlants: async (
      flat: FlatPlants,
      by: string | undefined,
    ): Promise<readonly (Created | Failure)[]> => {
      const outcomes = await store.createPlants(parsePlants(flat), by);
      return outcomes.map((outcome) => (outcome instanceof Error ? toFailure(outcome) : outcome));
    },
  };
}

/** Gives every guarantee of the owner's store. `reader` reads plants on this thread; without it the owner does. */
export function createRemoteStore(caller: Caller, reader: PlantReads | undefined): ServedStore {
  const calls = Object.fromEntries(
    forwarded.map((name) => [name, (...parameters: unknown[]) => caller.call(name, parameters)]),
  ) as unknown as Forwarded;
  return {
    ...calls,
    ...(reader !== undefined && readLocally(calls, reader)),
    createPlant: ({ id, name, tag }, by) =>
      caller.call("createPlant", [id, name, tag, by]) as Promise<Created>,
    createPlants: async (plants, by) => {
      const flat: FlatPlants = plants.flatMap(({ id, name, tag }) => [id, name, tag]);
      const outcomes = (await caller.call("createPlants", [flat, by])) as (Created | Failure)[];
      return outcomes.map((outcome) =>
        typeof outcome === "string" ? outcome : fromFailure(outcome),
      );
    },
  };
}

const plantReads = ["findPlant", "listPlants", "listTags", "countPlants", "readChanges"] as const;

type PlantReads = Pick<ServedStore, (typeof plantReads)[number]>;

/** The owner answers until it has once succeeded: before its first answer it makes durable what can be read. */
function readLocally(owner: PlantReads, reader: PlantReads): PlantReads {
  let isDurable = false;
  const askOwner = async (name: keyof PlantReads, asked: never): Promise<unknown> => {
    const answer = await owner[name](asked);
    isDurable = true;
    return answer;
  };
  return Object.fromEntries(
    plantReads.map((name) => [
      name,
      (asked: never) => (isDurable ? reader[name](asked) : askOwner(name, asked)),
    ]),
  ) as unknown as PlantReads;
}

/** Id, name, tag, id… To send a flat list of primitives costs half of a list of objects. */
type FlatPlants = readonly (bigint | string | undefined)[];

function parsePlants(flat: FlatPlants): Plant[] {
  const plants: Plant[] = [];
  for (let at = 0; at < flat.length; at += 3) {
    const [id, name, tag] = flat.slice(at, at + 3) as [bigint, string, string | undefined];
    plants.push({ id, name, tag });
  }
  return plants;
}

/** Flat too: number, method and four parameters of each call. */
type Calls = readonly unknown[];
const CALL_LENGTH = 6;

/** Flat too: number, value and failure of each call. */
export type Results = readonly unknown[];
const RESULT_LENGTH = 3;

/** An error as a message carries it. */
interface Failure {
  readonly reason: ErrorName;
  readonly message: string;
  readonly cause: unknown;
}

export type Methods = Readonly<Record<string, (...parameters: never[]) => Promise<unknown>>>;

/** How the caller reaches the callee. */
interface Line {
  readonly send: (calls: Calls) => void;
  /** A message that has arrived but was not delivered: a busy event loop may not deliver it for long. */
  readonly receive: () => Results | undefined;
}

/** After this the caller looks for results by itself. */
const RECEIVE_MS = 10;

export type Caller = ReturnType<typeof createCaller>;

export function createCaller({ send, receive }: Line) {
  const waiting = new Map<number, Pick<PromiseWithResolvers<unknown>, "resolve" | "reject">>();
  let calls: unknown[] = [];
  let isWatching = false;
  let count = 0;

  const settle = (results: Results): void => {
    for (let at = 0; at < results.length; at += RESULT_LENGTH) {
      const number = results[at] as number;
      const failure = results[at + 2] as Failure | undefined;
      const called = waiting.get(number);
      waiting.delete(number);
      if (failure === undefined) called?.resolve(results[at + 1]);
      else called?.reject(fromFailure(failure));
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

/** Runs the calls that arrive, and sends back their results. */
export function createCallee(
  methods: Methods,
  send: (results: Results) => void,
): (calls: Calls) => void {
  let results: unknown[] = [];
  // A commit settles many calls at once: they go back together.
  const add = (number: number, value: unknown, failure?: Failure): void => {
    if (results.length === 0)
      setImmediate(() => {
        const settled = results;
        results = [];
        send(settled);
      });
    results.push(number, value, failure);
  };
  return (calls) => {
    for (let at = 0; at < calls.length; at += CALL_LENGTH) {
      const number = calls[at] as number;
      const parameters = calls.slice(at + 2, at + CALL_LENGTH) as never[];
      methods[calls[at + 1] as string]?.(...parameters).then(
        (value) => add(number, value),
        (error: unknown) => add(number, undefined, toFailure(error)),
      );
    }
  };
}

const fromFailure = ({ reason, message, cause }: Failure): Refusal =>
  new Refusal(reason, message, cause);

function toFailure(error: unknown): Failure {
  const { reason, message, cause } = toRefusal(error);
  return { reason, message, cause: toPlain(cause) };
}

/** For the log: a message between threads would drop an error's code. */
function toPlain(cause: unknown): unknown {
  if (!(cause instanceof Error)) return cause === undefined ? undefined : Bun.inspect(cause);
  const described = describeError(cause);
  return { ...described, cause: toPlain(described["cause"]) };
}
