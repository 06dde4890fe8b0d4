/** Batches of writes: the body of one request, and its results. */

import { type ErrorName, findJson, isTransient, nameOf } from "./errors.ts";
import { formatId, formatPlant, type NewPlant, type Plant } from "./plants.ts";
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
export type Outcome<Success = Created> = Success | Refused;

/** A plant to create or to replace; or, with `removed`, to remove. */
export type Upsert = (NewPlant & { readonly removed?: undefined } & Conditional) | Removal;

interface Conditional {
  /** An etag: the write is refused with `precondition_failed` if the stored plant has another one, or there is none. */
  readonly ifMatch?: string | undefined;
}

export type Removal = Conditional & Pick<Plant, "id"> & { readonly removed: true };

/** "replayed" means that there was nothing to do. */
export type Upserted = Created | "replaced" | "removed";

/** Called once per plant, with its index, as soon as its outcome is known. */
export type Settle<Success = Created> = (index: number, outcome: Outcome<Success>) => void;

export interface Settled<Item = NewPlant, Success = Created> {
  /** The position of the plant in the given iterable, from 0. */
  readonly index: number;
  /** The caller's own object. */
  readonly plant: Item;
  readonly outcome: Outcome<Success>;
}

export const formatUpsert = (write: Upsert): string =>
  write.removed === true
    ? JSON.stringify({ removed: true, ifMatch: write.ifMatch }).replace(
        "{",
        `{"id":${formatId(write.id)},`,
      )
    : formatPlant(write, { removed: write.removed, ifMatch: write.ifMatch });

/** Smaller bodies are sent as they are. */
const PACKED_CHARACTERS_MIN = 1_400;

/** In gzip, which all browsers and runtimes can make. */
export async function packBody(text: string) {
  if (text.length < PACKED_CHARACTERS_MIN) return { body: text };
  const packed = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
  const body = await new Response(packed).arrayBuffer();
  return { body, encoding: { "content-encoding": "gzip" } };
}

export interface Entry<Item> {
  readonly index: number;
  readonly plant: Item;
  /** NDJSON, with its newline. */
  readonly line: string;
}

const BLOCK_LENGTH_MAX = 2_000;
/** Caps the size of a block of plants with long names. */
const BLOCK_CHARACTERS_MAX = 1_000_000;
/** A block is sent at most this long after its first plant. */
const BLOCK_MS_MAX = 50;

/** Groups the caller's plants into blocks. */
export class Upload<Item> {
  private readonly iterator: Iterator<Item> | AsyncIterator<Item>;
  private readonly isAsync: boolean;
  /** The pending `next()`. It outlives a block that is sent before it resolves. */
  private pending: Promise<IteratorResult<Item>> | undefined;
  private failure: { readonly error: unknown } | undefined;
  private readonly format: (item: Item) => string;
  private count = 0;

  constructor(plants: Iterable<Item> | AsyncIterable<Item>, format: (item: Item) => string) {
    this.format = format;
    this.isAsync = Symbol.asyncIterator in plants;
    this.iterator =
      Symbol.asyncIterator in plants ? plants[Symbol.asyncIterator]() : plants[Symbol.iterator]();
  }

  /**
   * Waits for one plant, and adds those that follow within BLOCK_MS_MAX; empty at the end of the source. If the source
   * throws, the plants before the error are returned, and the next call rejects. An abort rejects if there is no plant.
   */
  async takeBlock(signal: AbortSignal | undefined): Promise<Entry<Item>[]> {
    signal?.throwIfAborted();
    if (this.failure !== undefined) throw this.failure.error;
    const entries: Entry<Item>[] = [];
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
          ? await Promise.race([(this.pending ??= this.ask()), isClosed])
          : (this.iterator.next() as IteratorResult<Item>);
        if (found === undefined || found.done === true) break;
        this.pending = undefined;
        const line = `${this.format(found.value)}\n`;
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

  private async ask(): Promise<IteratorResult<Item>> {
    return this.iterator.next();
  }
}

export interface Result {
  readonly line: number;
  readonly status: number;
  readonly replaced?: boolean;
  readonly removed?: boolean;
  readonly replayed?: boolean;
  readonly error?: number;
  readonly message?: string;
}

/** Undefined if the text is not a result of the service. */
export function findResult(text: string): Result | undefined {
  const found = findJson(text);
  if (typeof found !== "object" || found === null) return undefined;
  const { line, status, replayed, replaced, removed, error, message } = found as Record<
    keyof Result,
    unknown
  >;
  const isResult =
    Number.isSafeInteger(line) &&
    typeof status === "number" &&
    [replayed, replaced, removed].every((did) => ["undefined", "boolean"].includes(typeof did)) &&
    ["undefined", "number"].includes(typeof error) &&
    ["undefined", "string"].includes(typeof message);
  return isResult ? (found as Result) : undefined;
}

/** The last line for a client that did not read for a while. Plants that were stored meanwhile have no result. */
export const isSummary = (text: string): boolean =>
  typeof (findJson(text) as { complete?: unknown } | null)?.complete === "boolean";

const did = ["replayed", "replaced", "removed"] as const;

/** Undefined if a retry may store the plant. */
export function findOutcome(result: Result): Outcome<Upserted> | undefined {
  const { status, error = 0, message = "" } = result;
  if (status === 200) return did.find((name) => result[name] === true) ?? "created";
  if (status >= 500 || isTransient(status, error)) return undefined;
  return { code: error, reason: nameOf(error), message };
}
