/** Many plants in one request: what was sent, what is settled, and what has to be sent again. */

import { type ErrorName, findJson, isTransient, nameOf } from "./errors.ts";
import { formatPlant, type NewPlant } from "./plants.ts";

/** Why a plant was not stored. */
export interface Refused {
  readonly code: number;
  readonly reason: ErrorName | undefined;
  readonly message: string;
}

/** A plant that is stored already was "replayed": nothing was changed. */
export type Created = "created" | "replayed";
export type Outcome = Created | Refused;

/** Called once for each plant, by its index, as soon as its outcome is known. */
export type Settle = (index: number, outcome: Outcome) => void;

export interface Settled<Given extends NewPlant = NewPlant> {
  /** The place of the plant among those that were given, from 0. */
  readonly index: number;
  /** As it was given. */
  readonly plant: Given;
  readonly outcome: Outcome;
}

interface Entry<Given extends NewPlant> {
  readonly index: number;
  readonly plant: Given;
  /** With its newline. */
  readonly line: string;
}

/** Long names make shorter blocks. */
const CHARACTERS_MAX = 1_000_000;

/** The plants to send, taken from what the caller gave. */
export class Feed<Given extends NewPlant> {
  private readonly iterator: Iterator<Given> | AsyncIterator<Given>;
  private readonly isAsync: boolean;
  /** Asked for and not taken yet. It stays here if it failed or was the end, so a further look finds the same. */
  private asked: Promise<IteratorResult<Given>> | undefined;
  /** To be sent before any other. */
  private waiting: Entry<Given>[] = [];
  private count = 0;
  private endWait: (() => void) | undefined;

  constructor(plants: Iterable<Given> | AsyncIterable<Given>) {
    this.isAsync = Symbol.asyncIterator in plants;
    this.iterator =
      Symbol.asyncIterator in plants ? plants[Symbol.asyncIterator]() : plants[Symbol.iterator]();
  }

  /** Waits for a plant to send; false if there will be none. Rejects if the source failed, or with an abort. */
  async hasMore(signal: AbortSignal | undefined): Promise<boolean> {
    const onAbort = (): void => this.interrupt();
    signal?.addEventListener("abort", onAbort);
    try {
      signal?.throwIfAborted();
      const first = this.waiting.shift() ?? (await this.next(undefined));
      if (first !== undefined) this.waiting.unshift(first);
      signal?.throwIfAborted();
      return first !== undefined;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  /** Waits that long for a first plant, and for each further one. */
  async take(lengthMax: number, firstMs: number, furtherMs: number): Promise<Entry<Given>[]> {
    const entries: Entry<Given>[] = [];
    for (let characters = 0; entries.length < lengthMax && characters < CHARACTERS_MAX;) {
      const waitMs = entries.length === 0 ? firstMs : furtherMs;
      const entry =
        this.waiting.shift() ??
        (this.isAsync ? await this.next(waitMs).catch(() => undefined) : this.nextNow());
      if (entry === undefined) break;
      entries.push(entry);
      characters += entry.line.length;
    }
    return entries;
  }

  /** Ends a wait for the next plant. */
  interrupt(): void {
    this.endWait?.();
  }

  /** To be sent again. */
  putBack(entries: Iterable<Entry<Given>>): void {
    this.waiting = [...entries, ...this.waiting];
  }

  close(): void {
    // Not awaited: a generator that waits for its next plant would never answer.
    void Promise.resolve(this.iterator.return?.()).catch(() => undefined);
  }

  private async next(waitMs: number | undefined): Promise<Entry<Given> | undefined> {
    this.asked ??= (async () => this.iterator.next())();
    const found = await this.within(waitMs, this.asked);
    if (found === undefined || found.done === true) return undefined;
    const entry = this.toEntry(found.value);
    this.asked = undefined;
    return entry;
  }

  /** Without a promise for each plant. The end, and a failure, are left for `next` to find. */
  private nextNow(): Entry<Given> | undefined {
    if (this.asked !== undefined) return undefined;
    try {
      const found = this.iterator.next() as IteratorResult<Given>;
      if (found.done !== true) return this.toEntry(found.value);
      this.asked = Promise.resolve(found);
    } catch (error) {
      this.asked = Promise.reject(error);
      this.asked.catch(() => undefined);
    }
    return undefined;
  }

  private toEntry(plant: Given): Entry<Given> {
    return { index: this.count++, plant, line: `${formatPlant(plant)}\n` };
  }

  private async within<Value>(
    waitMs: number | undefined,
    promise: Promise<Value>,
  ): Promise<Value | undefined> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const isOver = new Promise<undefined>((resolve) => {
      this.endWait = () => resolve(undefined);
      if (waitMs !== undefined) timer = setTimeout(this.endWait, waitMs);
    });
    try {
      return await Promise.race([promise, isOver]);
    } finally {
      clearTimeout(timer);
    }
  }
}

const CHUNK_LENGTH_MAX = 256;
/** Sent and not settled. Some platforms would read any number of plants ahead of the network. */
const UNSETTLED_CHARACTERS_MAX = 1_000_000;
/** The service ends a batch in which nothing arrives for ten seconds. */
const STREAM_IDLE_MS = 2_000;
const BLOCK_LENGTH_MAX = 2_000;
/** How long a block waits for one more plant. */
const BLOCK_IDLE_MS = 50;

/** The plants of one request. */
export class Batch<Given extends NewPlant> {
  private readonly feed: Feed<Given>;
  private readonly unsettled = new Map<number, Entry<Given>>();
  private unsettledCharacters = 0;
  private lineCount = 0;
  private pulling: Promise<void> | undefined;
  private isOver = false;
  /** Ends a wait for fewer unsettled plants. */
  private goOn: () => void = () => undefined;

  constructor(feed: Feed<Given>) {
    this.feed = feed;
  }

  get isSettled(): boolean {
    return this.unsettled.size === 0;
  }

  async takeText(): Promise<string> {
    return this.number(await this.feed.take(BLOCK_LENGTH_MAX, BLOCK_IDLE_MS, BLOCK_IDLE_MS));
  }

  /** A body that is sent while its results come back. It ends if no plant came for a while. */
  stream(): ReadableStream<Uint8Array> {
    const encoder = new TextEncoder();
    const send = async (controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> => {
      if (this.unsettledCharacters >= UNSETTLED_CHARACTERS_MAX && !this.isOver)
        await new Promise<void>((resolve) => (this.goOn = resolve));
      const entries = this.isOver ? [] : await this.feed.take(CHUNK_LENGTH_MAX, STREAM_IDLE_MS, 0);
      if (entries.length === 0) controller.close();
      else controller.enqueue(encoder.encode(this.number(entries)));
    };
    const pull = (controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> => {
      // The request may be over by then, and its stream closed. Its plants are put back.
      this.pulling = send(controller).catch(() => undefined);
      return this.pulling;
    };
    return new ReadableStream<Uint8Array>({ pull }, { highWaterMark: 0 });
  }

  /** Undefined for a line that was not sent. */
  settle(line: number, outcome: Outcome): Settled<Given> | undefined {
    const entry = this.unsettled.get(line);
    if (entry === undefined) return undefined;
    this.unsettled.delete(line);
    this.unsettledCharacters -= entry.line.length;
    if (this.unsettledCharacters < UNSETTLED_CHARACTERS_MAX) this.goOn();
    return { index: entry.index, plant: entry.plant, outcome };
  }

  /** Takes no more plants. What is already sent may still be answered. */
  stop(): void {
    this.isOver = true;
    this.goOn();
    this.feed.interrupt();
  }

  /** Puts back what was not settled. */
  async end(): Promise<void> {
    this.stop();
    await this.pulling;
    this.feed.putBack(this.unsettled.values());
  }

  private number(entries: readonly Entry<Given>[]): string {
    for (const entry of entries) {
      this.unsettled.set(++this.lineCount, entry);
      this.unsettledCharacters += entry.line.length;
    }
    return entries.map(({ line }) => line).join("");
  }
}

export interface Result {
  readonly line: number;
  readonly status: number;
  readonly replayed?: boolean;
  readonly error?: number;
  readonly message?: string;
}

/** Undefined if the text is not a result of the service. */
export function findResult(text: string): Result | undefined {
  const found = findJson(text);
  if (typeof found !== "object" || found === null) return undefined;
  const { line, status, replayed, error, message } = found as Record<keyof Result, unknown>;
  const isResult =
    Number.isSafeInteger(line) &&
    typeof status === "number" &&
    ["undefined", "boolean"].includes(typeof replayed) &&
    ["undefined", "number"].includes(typeof error) &&
    ["undefined", "string"].includes(typeof message);
  return isResult ? (found as Result) : undefined;
}

/** Undefined if the plant may be stored another time. */
export function findOutcome({
  status,
  replayed,
  error = 0,
  message = "",
}: Result): Outcome | undefined {
  if (status === 200) return replayed === true ? "replayed" : "created";
  if (status >= 500 || isTransient(status, error)) return undefined;
  return { code: error, reason: nameOf(error), message };
}
