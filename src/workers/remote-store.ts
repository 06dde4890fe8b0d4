/** A store that another thread owns. All calls of one tick, and all results of one commit, go in one message. */

import { type ErrorName, Refusal, toRefusal } from "../domain/errors.ts";
import type { Plant } from "../domain/plant.ts";
import type { Created, Reads, Store, StoreDescription } from "../domain/store.ts";
import { describeError } from "../observe/log.ts";
import { endOfTick, pause } from "../store/batcher.ts";

const forwarded = [
  "createPlant",
  "findPlant",
  "listPlants",
  "listTags",
  "countPlants",
  "replacePlant",
  "removePlant",
  "probe",
  "measureBytes",
  "findToken",
  "listTokens",
  "createToken",
  "createFirstToken",
  "revokeToken",
  "adoptTokens",
  "touchTokens",
] as const satisfies readonly (keyof Store)[];

type Forwarded = Pick<Store, (typeof forwarded)[number]>;

/** The methods that the owner offers to callers. */
export function methodsOf(store: Store) {
  const methods = Object.fromEntries(
    forwarded.map((name) => [name, store[name].bind(store)]),
  ) as unknown as Forwarded;
  return {
    ...methods,
    createPlants: async (flat: FlatPlants): Promise<readonly (Created | Failure)[]> => {
      const outcomes = await store.createPlants(parsePlants(flat));
      return outcomes.map((outcome) => (outcome instanceof Error ? toFailure(outcome) : outcome));
    },
  };
}

/** Gives every guarantee of the owner's store. `reader` reads plants on this thread; without it the owner does. */
export function createRemoteStore(
  caller: Caller,
  description: StoreDescription,
  reader: Reads | undefined,
): Store {
  const calls = Object.fromEntries(
    forwarded.map((name) => [name, (...parameters: unknown[]) => caller.call(name, parameters)]),
  ) as unknown as Forwarded;
  return {
    ...calls,
    ...(reader !== undefined && readLocally(calls, reader)),
    createPlant: (plant) => caller.createPlant(plant),
    createPlants: async (plants) => {
      const outcomes = await caller.call("createPlants", [flattenPlants(plants)]);
      return (outcomes as (Created | Failure)[]).map((outcome) =>
        typeof outcome === "string" ? outcome : fromFailure(outcome),
      );
    },
    description,
    get writesWaiting() {
      return caller.callsWaiting;
    },
    // The owner closes it.
    close: () => Promise.resolve(),
  };
}

type PlantReads = Pick<Reads, "findPlant" | "listPlants" | "listTags" | "countPlants">;

/** The owner answers until it has once succeeded: before its first answer it makes durable what can be read. */
function readLocally(owner: PlantReads, reader: PlantReads): PlantReads {
  let isDurable = false;
  const ask = async <Answer>(answer: Promise<Answer>): Promise<Answer> => {
    const answered = await answer;
    isDurable = true;
    return answered;
  };
  return {
    findPlant: (id) => (isDurable ? reader.findPlant(id) : ask(owner.findPlant(id))),
    listPlants: (query) => (isDurable ? reader.listPlants(query) : ask(owner.listPlants(query))),
    listTags: (query) => (isDurable ? reader.listTags(query) : ask(owner.listTags(query))),
    countPlants: () => (isDurable ? reader.countPlants() : ask(owner.countPlants())),
  };
}

/** A flat list is cheaper to send than a list of plants: id, name, tag, id… */
type FlatPlants = readonly (bigint | string | undefined)[];

function flattenPlants(plants: readonly Plant[]): FlatPlants {
  const flat: (bigint | string | undefined)[] = [];
  for (const { id, name, tag } of plants) flat.push(id, name, tag);
  return flat;
}

function parsePlants(flat: FlatPlants): Plant[] {
  const plants: Plant[] = [];
  for (let at = 0; at < flat.length; at += 3)
    plants.push({
      id: flat[at] as bigint,
      name: flat[at + 1] as string,
      tag: flat[at + 2] as string | undefined,
    });
  return plants;
}

interface Call {
  readonly number: number;
  readonly method: string;
  readonly parameters: readonly unknown[];
}

/** Most calls are creates. They are cheaper to send as one flat list: number, id, name, tag, number… */
type FlatCreates = readonly (number | bigint | string | undefined)[];
const CREATE_LENGTH = 4;

export interface Calls {
  readonly calls: readonly Call[];
  readonly creates: FlatCreates;
}

type Result =
  | { readonly number: number; readonly value: unknown }
  | { readonly number: number; readonly failure: Failure };

export interface Results {
  readonly results: readonly Result[];
  /** The numbers of the creates with this outcome. */
  readonly created: readonly number[];
  readonly replayed: readonly number[];
}

/** An error as a message carries it. */
interface Failure {
  readonly reason: ErrorName;
  readonly message: string;
  readonly cause: unknown;
}

export type Methods = Readonly<Record<string, (...parameters: never[]) => Promise<unknown>>> &
  Pick<Store, "createPlant">;

type Settle = Pick<PromiseWithResolvers<unknown>, "resolve" | "reject">;

/** How the caller reaches the callee. */
interface Line {
  readonly send: (calls: Calls) => void;
  /** A message that has arrived but was not delivered: a busy event loop may not deliver it for long. */
  readonly receive: () => Results | undefined;
}

/** After this the caller looks for results by itself. */
const RECEIVE_MS = 10;

export class Caller {
  private readonly line: Line;
  private readonly waiting = new Map<number, Settle>();
  private calls: Call[] = [];
  private creates: (number | bigint | string | undefined)[] = [];
  private isFlushing = false;
  private isWatching = false;
  private count = 0;

  constructor(line: Line) {
    this.line = line;
  }

  get callsWaiting(): number {
    return this.waiting.size;
  }

  call(method: string, parameters: readonly unknown[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.calls.push({ number: this.expect({ resolve, reject }), method, parameters });
    });
  }

  createPlant({ id, name, tag }: Plant): ReturnType<Store["createPlant"]> {
    return new Promise((resolve, reject) => {
      const number = this.expect({ resolve: resolve as (value: unknown) => void, reject });
      this.creates.push(number, id, name, tag);
    });
  }

  settle({ results, created, replayed }: Results): void {
    for (const number of created) this.take(number)?.resolve("created");
    for (const number of replayed) this.take(number)?.resolve("replayed");
    for (const result of results) {
      const called = this.take(result.number);
      if ("value" in result) called?.resolve(result.value);
      else called?.reject(fromFailure(result.failure));
    }
  }

  private expect(called: Settle): number {
    const number = ++this.count;
    this.waiting.set(number, called);
    if (!this.isFlushing) {
      this.isFlushing = true;
      void endOfTick().then(() => this.flush());
    }
    return number;
  }

  private take(number: number): Settle | undefined {
    const called = this.waiting.get(number);
    this.waiting.delete(number);
    return called;
  }

  private flush(): void {
    const { calls, creates } = this;
    this.calls = [];
    this.creates = [];
    this.isFlushing = false;
    this.line.send({ calls, creates });
    if (!this.isWatching) void this.watch();
  }

  private async watch(): Promise<void> {
    this.isWatching = true;
    while (this.waiting.size > 0) {
      await pause(RECEIVE_MS);
      for (let came = this.line.receive(); came !== undefined; came = this.line.receive())
        this.settle(came);
    }
    this.isWatching = false;
  }
}

const nothing = (): { results: Result[]; created: number[]; replayed: number[] } => ({
  results: [],
  created: [],
  replayed: [],
});

/** Runs the calls that arrive, and sends back their results. */
export class Callee {
  private readonly methods: Methods;
  private readonly send: (results: Results) => void;
  private done = nothing();
  private isFlushing = false;

  constructor(methods: Methods, send: (results: Results) => void) {
    this.methods = methods;
    this.send = send;
  }

  answer({ calls, creates }: Calls): void {
    for (const { number, method, parameters } of calls)
      this.methods[method]?.(...(parameters as never[])).then(
        (value) => this.flushSoon().results.push({ number, value }),
        (error: unknown) => this.fail(number, error),
      );
    for (let at = 0; at < creates.length; at += CREATE_LENGTH) {
      const [number, id, name, tag] = creates.slice(at, at + CREATE_LENGTH) as [
        number,
        bigint,
        string,
        string | undefined,
      ];
      this.methods.createPlant({ id, name, tag }).then(
        (outcome) => this.flushSoon()[outcome].push(number),
        (error: unknown) => this.fail(number, error),
      );
    }
  }

  private fail(number: number, error: unknown): void {
    this.flushSoon().results.push({ number, failure: toFailure(error) });
  }

  /** A commit settles many calls at once: they go back together. */
  private flushSoon(): ReturnType<typeof nothing> {
    if (!this.isFlushing) {
      this.isFlushing = true;
      setImmediate(() => {
        const { done } = this;
        this.done = nothing();
        this.isFlushing = false;
        this.send(done);
      });
    }
    return this.done;
  }
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
