/** Many plants: what is sent in one request, and what its results mean. */

import { type ErrorName, findJson, isTransient, nameOf } from "./errors.ts";
import { formatPlant, type NewPlant } from "./plants.ts";
import type { RetryOptions } from "./retry.ts";

export interface WriteOptions extends RetryOptions {
  /** Names the writes that belong together, in the journal: 1 to 100 characters. */
  readonly batch?: string | undefined;
}

export const formatBatch = (batch: string | undefined): string =>
  batch === undefined ? "" : `?batch=${encodeURIComponent(batch)}`;

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

export interface Entry<Given extends NewPlant> {
  readonly index: number;
  readonly plant: Given;
  /** With its newline. */
  readonly line: string;
}

const BLOCK_LENGTH_MAX = 2_000;
/** Long names make shorter blocks. */
const BLOCK_CHARACTERS_MAX = 1_000_000;
/** How long a block waits for plants after its first. */
const BLOCK_MS_MAX = 50;

/** The plants to send, taken from what the caller gave. */
export class Feed<Given extends NewPlant> {
  private readonly iterator: Iterator<Given> | AsyncIterator<Given>;
  private readonly isAsync: boolean;
  /** Asked for and not taken yet. */
  private asked: Promise<IteratorResult<Given>> | undefined;
  private failure: { readonly error: unknown } | undefined;
  private count = 0;

  constructor(plants: Iterable<Given> | AsyncIterable<Given>) {
    this.isAsync = Symbol.asyncIterator in plants;
    this.iterator =
      Symbol.asyncIterator in plants ? plants[Symbol.asyncIterator]() : plants[Symbol.iterator]();
  }

  /**
   * Waits for a plant, and takes those that soon follow it; none if there are no more. If the source fails, rejects
   * after the plants that it gave before. An abort rejects too, unless there are plants.
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
        // Without a promise for each plant if the source needs none.
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
    // Not awaited: a generator that waits for its next plant would never answer.
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
