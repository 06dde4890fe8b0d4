/** Clients that each write plants of their own to a service that may fail, and check every answer against a ledger. */

import type { ErrorName } from "../../src/domain/errors.ts";
import { entityTagOf } from "../../src/domain/entity-tag.ts";
import { formatStoredPlant } from "../../src/domain/plant.ts";
import { type Answer, idOf, Ledger, type Operation } from "./model.ts";
import { isReplay, readRefusal, type StoredPlant, toBody } from "./plants.ts";
import type { Random } from "./random.ts";
import { send, type Sent } from "./service.ts";

export interface Surroundings {
  /** Where the next request goes. */
  readonly findUrl: () => string;
  /** Resolves when a request that was cut off has had its effect, or never will. */
  readonly untilQuiet?: () => Promise<void>;
  /** Creates alone: nothing is replaced, removed or read. */
  readonly createsOnly?: boolean;
  /** Now and then this many new plants are sent together. */
  readonly batchLengthMax?: number;
  /** Reads may come from an old primary: a change by filter would miss what that one lacks. */
  readonly mayReadOld?: boolean;
  readonly nameLengthMax?: number;
  readonly firstId?: bigint;
  /** Each client keeps at most this many plants, and now and then exports them all. */
  readonly plantsMax?: number;
  /**
   * The URL leads to several services. If a reused connection closes, fetch itself repeats a PUT or DELETE (RFC 9110,
   * 9.2.2), and another service answers about its own work: so no connection is reused.
   */
  readonly isShared?: boolean;
  /** The reasons for which the service, or the status with which a proxy, may refuse for now. */
  readonly mayRefuse?: readonly (ErrorName | number)[];
  /** The connection broke before the whole answer came. */
  readonly onLost?: (url: string) => void;
}

const RETRY_MS = 20;
/** Far beyond what the service promises: a client that waits this long would wait for ever. */
const ANSWER_MS_MAX = 120_000;
/** Plants that a client keeps changing, unless it keeps them all. */
const KNOWN_MAX = 50;
/** With these the service says that nothing was stored. */
const NOTHING_STORED: readonly (ErrorName | number)[] = ["overloaded", "store_busy", "store_down"];
const FOR_NOW = [...NOTHING_STORED, "store_unavailable"];
/** 502 and 504 come from a proxy alone. */
export const isForNow = ({ status }: Pick<Response, "status">): boolean =>
  status === 503 || status === 502 || status === 504;

/** They work until they are stopped. */
export abstract class Crew implements AsyncDisposable {
  readonly surroundings: Surroundings;
  readonly random: Random;
  readonly faults: string[] = [];
  isOver = false;
  protected working: Promise<unknown> = Promise.resolve();

  constructor(surroundings: Surroundings, random: Random) {
    this.surroundings = surroundings;
    this.random = random;
  }

  /** Resolves when everything that was sent has been answered, or never will be. */
  async stop(): Promise<void> {
    this.isOver = true;
    await this.working;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** After a refusal for now, or a lost answer. False if it is no longer worth trying again. */
  protected async rest(): Promise<boolean> {
    if (this.isOver) return false;
    await this.surroundings.untilQuiet?.();
    await Bun.sleep(RETRY_MS);
    return true;
  }
}

export class Clients extends Crew {
  readonly ledger = new Ledger();
  /** Writes that were answered. */
  acknowledged = 0;
  /** Writes that may have happened or not: refused for now, or cut off. */
  unsettled = 0;
  requests = 0;
  answerMsMax = 0;
  /** Who waits for acknowledgements. Only of what was sent after the waiting began. */
  readonly #waiting = new Set<{ left: number; sinceMs: number; resolve: (ms: number) => void }>();

  constructor(length: number, surroundings: Surroundings, random: Random) {
    super(surroundings, random);
    const all = Array.from({ length }, (_, nth) => new Client(this, nth, length));
    this.working = Promise.all(all.map((client) => client.work()));
  }

  /** Waits for this many acknowledgements of writes sent from now on. Resolves to the elapsed time. */
  untilAcknowledged(left: number): Promise<number> {
    const { promise, resolve } = Promise.withResolvers<number>();
    this.#waiting.add({ left, sinceMs: performance.now(), resolve });
    return promise;
  }

  compare(rows: Iterable<StoredPlant>): string[] {
    return [...this.faults, ...this.ledger.compare(rows)];
  }

  acknowledge(sentAtMs: number): void {
    this.acknowledged++;
    for (const waiter of this.#waiting) {
      if (sentAtMs < waiter.sinceMs || --waiter.left > 0) continue;
      this.#waiting.delete(waiter);
      waiter.resolve(performance.now() - waiter.sinceMs);
    }
  }

  waitToRetry(count: number): Promise<boolean> {
    this.unsettled += count;
    return this.rest();
  }

  /** Undefined if no whole answer came, or a refusal for now: it may have happened, unless it was "refused". */
  async ask<Result>(
    request: (url: string, signal: AbortSignal) => Promise<Result | Response>,
    what: string,
  ): Promise<Result | "refused" | undefined> {
    const url = this.surroundings.findUrl();
    const sentAtMs = performance.now();
    this.requests++;
    try {
      const result = await request(url, AbortSignal.timeout(ANSWER_MS_MAX));
      if (!(result instanceof Response)) return result;
      const isDelay = /^[1-9]\d*$/.test(result.headers.get("retry-after") ?? "");
      const reason = await readRefusal(result);
      const mayRefuse = this.surroundings.mayRefuse ?? FOR_NOW;
      if (!mayRefuse.includes(reason)) this.faults.push(`${what}: answered ${reason}`);
      else if (!isDelay) this.faults.push(`${what}: ${reason} without saying for how long`);
      if (NOTHING_STORED.includes(reason)) return "refused";
    } catch (error) {
      if ((error as Error).name === "TimeoutError") this.faults.push(`${what}: no answer`);
      this.surroundings.onLost?.(url);
    } finally {
      this.answerMsMax = Math.max(this.answerMsMax, performance.now() - sentAtMs);
    }
    return undefined;
  }
}

class Client {
  readonly #shared: Clients;
  readonly #tag: string;
  readonly #step: bigint;
  #nextId: bigint;
  #serial = 0;
  /** What it knows for certain, and may change. */
  #plants: StoredPlant[] = [];

  /** The ids of different clients lie side by side, so their plants share pages and commits. */
  constructor(shared: Clients, nth: number, length: number) {
    this.#shared = shared;
    this.#tag = `client ${nth}`;
    this.#nextId = (shared.surroundings.firstId ?? 0n) + BigInt(nth);
    this.#step = BigInt(length);
  }

  async work(): Promise<void> {
    const { random, surroundings } = this.#shared;
    const { createsOnly = false, batchLengthMax = 0, plantsMax = Infinity } = surroundings;
    const tendsBeds = batchLengthMax > 0 && !createsOnly && surroundings.mayReadOld !== true;
    while (!this.#shared.isOver) {
      const plant =
        this.#plants.length === 0 || createsOnly ? undefined : random.pick(this.#plants);
      const isFull = this.#plants.length >= plantsMax;
      if (plant !== undefined && random.chance(15)) await this.#read(plant.id);
      else if (plantsMax < Infinity && random.chance(5)) await this.#export();
      else if (batchLengthMax > 0 && !isFull && random.chance(10))
        await this.#createTogether(1 + random.below(batchLengthMax));
      else if (tendsBeds && !isFull && random.chance(5))
        await this.#tendBed(2 + random.below(batchLengthMax));
      else await this.#write(this.#chooseWrite(plant, isFull));
    }
  }

  /** Mostly a new plant. */
  #chooseWrite(plant: StoredPlant | undefined, isFull: boolean): Operation {
    const { random } = this.#shared;
    if (plant === undefined || (!isFull && random.chance(50)))
      return { kind: "create", plant: this.#makePlant(this.#takeId()) };
    const { id } = plant;
    const condition = random.chance(50) ? { ifMatch: plant } : {};
    if (random.chance(20)) return { kind: "patch", id, patch: { name: this.#makePlant(id).name } };
    if (random.chance(20)) return { kind: "upsert", plant: this.#makePlant(id), ...condition };
    if (random.chance(50)) return { kind: "replace", plant: this.#makePlant(id), ifMatch: plant };
    return { kind: random.chance(50) ? "remove" : "discard", id, ...condition };
  }

  #takeId(): bigint {
    const id = this.#nextId;
    this.#nextId += this.#step;
    return id;
  }

  /** No two are alike, in any part of their names. */
  #makePlant(id: bigint): StoredPlant {
    const { random, surroundings } = this.#shared;
    const { nameLengthMax = 0 } = surroundings;
    const name = `${id} ${this.#serial++}`;
    const length = nameLengthMax === 0 ? 0 : random.below(nameLengthMax);
    return { id, name: name.padEnd(length, ` ${name}`), tag: random.chance(30) ? null : this.#tag };
  }

  /** Sends it until it is answered. */
  async #write(operation: Operation): Promise<void> {
    const shared = this.#shared;
    const id = idOf(operation);
    // Not changed again until it is known what became of it.
    this.#plants = this.#plants.filter((plant) => plant.id !== id);
    do {
      const settle = shared.ledger.begin(operation);
      const sentAtMs = performance.now();
      const answer = await this.#ask(operation);
      if (answer !== undefined) settle(answer);
      if (typeof answer === "object") return this.#settled(id, sentAtMs);
    } while (await shared.waitToRetry(1));
  }

  /** New plants in one batch. Each is stored or not on its own. */
  async #createTogether(length: number): Promise<void> {
    const shared = this.#shared;
    let left = Array.from({ length }, () => this.#makePlant(this.#takeId()));
    do {
      const sent = left.map((plant) => ({
        plant,
        settle: shared.ledger.begin({ kind: "create", plant }),
      }));
      const sentAtMs = performance.now();
      const answer = await shared.ask(
        (url, signal) => sendBatch(url, left, signal),
        `a batch of ${left.length}`,
      );
      const statuses = typeof answer === "object" ? answer : [];
      left = [];
      for (const [index, { plant, settle }] of sent.entries()) {
        const status = statuses[index];
        if (status === undefined || status === 503) left.push(plant);
        else {
          settle({ status });
          this.#settled(plant.id, sentAtMs);
        }
      }
    } while (left.length > 0 && (await shared.waitToRetry(left.length)));
  }

  /**
   * New plants with a tag of their own: stored together or not at all, then changed and removed by that tag. Whatever
   * was cut off: there are all of them, or none.
   */
  async #tendBed(length: number): Promise<void> {
    const tag = `${this.#tag} bed ${this.#serial++}`;
    const plants = Array.from({ length }, () => ({ ...this.#makePlant(this.#takeId()), tag }));
    const query = `?tag=${encodeURIComponent(tag)}`;
    const name = `${tag} changed`;
    const steps: [
      what: string,
      operations: Operation[],
      path: string,
      method: string,
      body?: string,
    ][] = [
      [
        "plant a bed",
        plants.map((plant) => ({ kind: "upsert", plant })),
        "/plants/batch?atomic=true&upsert=true",
        "POST",
        `[${plants.map(toBody).join(",")}]`,
      ],
      [
        "change a bed",
        plants.map(({ id }) => ({ kind: "patch", id, patch: { name } })),
        `/plants${query}`,
        "PATCH",
        JSON.stringify({ name }),
      ],
      [
        "clear a bed",
        plants.map(({ id }) => ({ kind: "discard", id })),
        `/plants${query}`,
        "DELETE",
      ],
    ];
    for (const [what, operations, path, method, body] of steps)
      if (!(await this.#tryAll(what, operations, path, { method, body }, query))) return;
  }

  /** False if it was not answered before the end: then all of it has happened, or nothing, if it is atomic. */
  async #tryAll(
    what: string,
    operations: readonly Operation[],
    path: string,
    { method, body }: { readonly method: string; readonly body: string | undefined },
    query: string,
  ): Promise<boolean> {
    const shared = this.#shared;
    do {
      const settles = operations.map((operation) => shared.ledger.begin(operation));
      const sentAtMs = performance.now();
      const answer = await shared.ask(async (url, signal) => {
        const sent = body === undefined ? { signal } : { body, signal };
        const response = await send({ url }, method, path, sent);
        if (response.status !== 200) return response;
        const text = await response.text();
        return method === "POST" || text.endsWith('"complete":true}\n') ? text : undefined;
      }, what);
      if (answer === "refused") for (const settle of settles) settle(answer);
      else if (answer !== undefined && (method === "POST" || ALL_CHANGED.test(answer))) {
        for (const settle of settles) settle({ status: 200 });
        shared.acknowledge(sentAtMs);
        return true;
      }
      if (method === "POST") await this.#checkWhole(what, operations.length, query);
    } while (await shared.waitToRetry(operations.length));
    return false;
  }

  /** One statement counts them, so it sees no moment between. */
  async #checkWhole(what: string, length: number, query: string): Promise<void> {
    const counted = await this.#shared.ask(async (url, signal) => {
      const response = await send({ url }, "GET", `/plants/count${query}`, { signal });
      return response.status === 200 ? response.text() : response;
    }, `count: ${what}`);
    if (counted === undefined || counted === "refused") return;
    const { count } = JSON.parse(counted) as { count: number };
    if (count !== 0 && count !== length)
      this.#shared.faults.push(`${what}: half-done, ${count} of ${length}`);
  }

  #settled(id: bigint, sentAtMs: number): void {
    const { ledger, surroundings } = this.#shared;
    const plant = ledger.find(id);
    if (plant !== undefined) this.#plants.push(plant);
    if (surroundings.plantsMax === undefined && this.#plants.length > KNOWN_MAX)
      this.#plants.shift();
    this.#shared.acknowledge(sentAtMs);
  }

  async #read(id: bigint): Promise<void> {
    const operation: Operation = { kind: "read", id };
    const answer = await this.#ask(operation);
    if (typeof answer === "object") this.#shared.ledger.begin(operation)(answer);
  }

  /** All its plants with a tag, and nothing of anyone else's. */
  async #export(): Promise<void> {
    const { faults, random } = this.#shared;
    const isCsv = random.chance(50);
    const text = await this.#shared.ask(async (url, signal) => {
      const path = `/plants?tag=${encodeURIComponent(this.#tag)}`;
      const headers = { accept: isCsv ? "text/csv" : "application/x-ndjson" };
      const response = await send({ url }, "GET", path, { headers, signal });
      return response.status === 200 ? response.text() : response;
    }, "an export");
    if (text === undefined || text === "refused") return;
    const found = text.split("\n").length - (isCsv ? 2 : 1);
    const due = this.#plants.filter(({ tag }) => tag !== null).length;
    if (found !== due) faults.push(`${this.#tag}: exported ${found} of ${due} plants`);
  }

  #ask(operation: Operation): Promise<Answer | "refused" | undefined> {
    return this.#shared.ask(
      async (url, signal) => {
        const keepalive = this.#shared.surroundings.isShared !== true;
        const response = await sendOperation(url, operation, { signal, keepalive });
        if (isForNow(response)) return response;
        const answer = await toAnswer(response);
        // The only line of a batch was refused for now.
        return isForNow(answer) ? undefined : answer;
      },
      `${idOf(operation)}: to ${operation.kind} it`,
    );
  }
}

/** Those that were left alone are tried again: a lost answer may have changed them, or a failing disk refused them. */
const ALL_CHANGED = /"changedSince":0,"refused":0,/;

const NDJSON = { "content-type": "application/x-ndjson" };
const METHODS = {
  create: "POST",
  read: "GET",
  replace: "PUT",
  patch: "PATCH",
  remove: "DELETE",
  upsert: "POST",
  discard: "POST",
};

const etagOf = (plant: StoredPlant): string =>
  entityTagOf(formatStoredPlant({ ...plant, tag: plant.tag ?? undefined }));

/** The line of a batch. */
export function toLine(operation: Operation): string {
  const { ifMatch } = operation as { readonly ifMatch?: StoredPlant };
  const members =
    "plant" in operation
      ? toBody(operation.plant).slice(1, -1)
      : `"id":${operation.id},"removed":true`;
  return `{${members}${ifMatch === undefined ? "" : `,"ifMatch":${JSON.stringify(etagOf(ifMatch))}`}}`;
}

export function sendOperation(
  url: string,
  operation: Operation,
  options: Pick<Sent, "signal" | "keepalive" | "headers"> = {},
): Promise<Response> {
  const { kind } = operation;
  if (kind === "upsert" || kind === "discard")
    return send({ url }, "POST", "/plants/batch?upsert=true", {
      ...options,
      body: `[${toLine(operation)}]`,
    });
  if (kind === "sweep") {
    const { tag, patch } = operation;
    const path = `/plants?tag=${encodeURIComponent(tag)}`;
    if (patch === undefined) return send({ url }, "DELETE", path, options);
    return send({ url }, "PATCH", path, { ...options, body: JSON.stringify(patch) });
  }
  const path = kind === "create" ? "/plants" : `/plants/${idOf(operation)}`;
  const body =
    kind === "patch"
      ? JSON.stringify(operation.patch)
      : "plant" in operation
        ? toBody(operation.plant)
        : undefined;
  const sent: Sent = body === undefined ? options : { ...options, body };
  const { ifMatch } = operation as { readonly ifMatch?: StoredPlant };
  if (ifMatch === undefined) return send({ url }, METHODS[kind], path, sent);
  return send({ url }, METHODS[kind], path, {
    ...sent,
    headers: { ...sent.headers, "if-match": etagOf(ifMatch) },
  });
}

/** One answer, or one for each line of an array. Rejects if the body breaks off. */
export async function toAnswers(response: Response): Promise<readonly Answer[]> {
  const body = await response.text();
  const { status } = response;
  if (!response.ok) return [{ status }];
  if (!body.startsWith("[")) return [{ status, body, isReplay: isReplay(response) }];
  const results = JSON.parse(body) as { readonly status: number; readonly replayed?: boolean }[];
  return results.map((result): Answer =>
    result.status === 200
      ? { status: 200, isReplay: result.replayed === true }
      : { status: result.status },
  );
}

export const toAnswer = async (response: Response): Promise<Answer> =>
  (await toAnswers(response))[0] as Answer;

/** The status of each line; undefined where none arrived, because the answer broke off. */
async function sendBatch(
  url: string,
  plants: readonly StoredPlant[],
  signal: AbortSignal,
): Promise<(number | undefined)[] | Response> {
  const decoder = new TextDecoder();
  let text = "";
  try {
    const body = plants.map((plant) => `${toBody(plant)}\n`).join("");
    const response = await send({ url }, "POST", "/plants/batch", {
      body,
      headers: NDJSON,
      signal,
    });
    if (response.status !== 200) return response;
    for await (const bytes of response.body ?? []) text += decoder.decode(bytes, { stream: true });
  } catch (error) {
    if ((error as Error).name === "TimeoutError") throw error;
  }
  const whole = text.slice(0, text.lastIndexOf("\n") + 1);
  const results = Bun.JSONL.parse(whole) as { line: number; status: number }[];
  const statusOf = new Map(results.map(({ line, status }) => [line, status]));
  return plants.map((_plant, index) => statusOf.get(index + 1));
}
