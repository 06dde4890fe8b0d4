/** Batches of plants: the body of one request, and its results. */

import { type ErrorName, findJson, isTransient, nameOf } from "./errors.ts";
import { formatPlant, type NewPlant } from "./plants.ts";
import type { RetryOptions } from "./retry.ts";

export interface WriteOptions extends RetryOptions {
  /** Names the writes that belong together, in the journal: 1 to 100 characters. */
  readonly batch?: string | undefined;
}

/** Why a plant was not stored. */
export interface Refused {
  readonly code: number;
  readonly reason: ErrorName | undefined;
  readonly message: string;
}

/** "replayed" means that the same plant was stored already. Nothing was changed. */
export type Created = "created" | "replayed";
export type Outcome = Created | Refused;

/** Called once per plant, with its index, as soon as its outcome is known. */
export type Settle = (index: number, outcome: Outcome) => void;

export interface Settled<Given extends NewPlant = NewPlant> {
  /** The position of the plant in the given iterable, from 0. */
  readonly index: number;
  /** The caller's own object. */
  readonly plant: Given;
  readonly outcome: Outcome;
}

export interface Entry<Given extends NewPlant> {
  readonly index: number;
  readonly plant: Given;
  /** NDJSON, with its newline. */
  readonly line: string;
}

const BLOCK_LENGTH_MAX = 2_000;
/** Caps the size of a block of plants with long names. */
const BLOCK_CHARACTERS_MAX = 1_000_000;
/** A block is sent at most this long after its first plant. */
const BLOCK_MS_MAX = 50;

/** Groups the caller's plants into blocks. */
export class Upload<Given extends NewPlant> {
  private readonly iterator: Iterator<Given> | AsyncIterator<Given>;
  private readonly isAsync: boolean;
  /** The pending `next()`. It outlives a block that is sent before it resolves. */
  private asked: Promise<IteratorResult<Given>> | undefined;
  private failure: { readonly error: unknown } | undefined;
  private count = 0;

  constructor(plants: Iterable<Given> | AsyncIterable<Given>) {
    this.isAsync = Symbol.asyncIterator in plants;
    this.iterator =
      Symbol.asyncIterator in plants ? plants[Symbol.asyncIterator]() : plants[Symbol.iterator]();
  }

  /**
   * Waits for one plant, and adds those that follow within BLOCK_MS_MAX; empty at the end of the source. If the source
   * throws, the plants before the error are returned, and the next call rejects. An abort rejects if there is no plant.
   */
  async takeBlock(signal: AbortSignal | undefined): Promise<Entry<Given>[]> {
    signal?.throwIfAborted();
    if (this.failure !== undefined) throw this.failure.error;
    const entries: Entry<Given>[] = [];
    let characters = 0;
    const closing = new AbortController();
    const end = (): void => closing.abort();
    const isClosed = new Promise<undefined>((resolve) => {
      closing.signal.addEventListener("abort", () => resolve(undefined));
    });
    let timer: ReturnType<typeof setTimeout> | undefined;
    signal?.addEventListener("abort", end);
    try {
      while (entries.length < BLOCK_LENGTH_MAX && characters < BLOCK_CHARACTERS_MAX) {
        // A synchronous source needs no promise per plant.
        const found = this.isAsync
          ? await Promise.race([(this.asked ??= this.ask()), isClosed])
          : (this.iterator.next() as IteratorResult<Given>);
        if (found === undefined || found.done === true) break;
        this.asked = undefined;
        const line = `${formatPlant(found.value)}\n`;
        entries.push({ index: this.count++, plant: found.value, line });
        characters += line.length;
        timer ??= setTimeout(end, BLOCK_MS_MAX);
      }
    } catch (error) {
      this.failure = { error };
      if (entries.length === 0) throw error;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
    }
    if (entries.length === 0) signal?.throwIfAborted();
    return entries;
  }

  close(): void {
    // Not awaited: the `return()` of a generator stays pending while its body awaits.
    void Promise.resolve(this.iterator.return?.()).catch(() => undefined);
  }

  private async ask(): Promise<IteratorResult<Given>> {
    return this.iterator.next();
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

/** The last line for a client that did not read for a while. Plants that were stored meanwhile have no result. */
export const isSummary = (text: string): boolean =>
  typeof (findJson(text) as { complete?: unknown } | null)?.complete === "boolean";

/** Undefined if a retry may store the plant. */
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
