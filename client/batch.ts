/** Batches of writes: the body of one request, and its results. */

import { formatPairs, JSON_BODY, NDJSON_TYPE, type WriteOptions } from "./connection.ts";
import {
  type ErrorName,
  type FailureFacts,
  findJson,
  findWaitMs,
  isTransient,
  nameOf,
  ServiceError,
} from "./errors.ts";
import {
  type Content,
  type Created,
  formatId,
  formatPlant,
  type NewPlant,
  type Plant,
} from "./plants.ts";
import { Backoff } from "./retry.ts";
import { TagClient } from "./tags.ts";

/** Why a plant was not stored. */
export interface Refused {
  readonly code: number;
  readonly reason: ErrorName | undefined;
  readonly message: string;
}

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
  /** In a dry run: the stored plant that would be replaced or removed. */
  readonly now?: Content | undefined;
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
async function packBody(text: string) {
  if (text.length < PACKED_CHARACTERS_MIN) return { body: text };
  const packed = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
  const body = await new Response(packed).arrayBuffer();
  return { body, encoding: { "content-encoding": "gzip" } };
}

interface Entry<Item> {
  readonly index: number;
  readonly plant: Item;
  /** NDJSON, with its newline. */
  readonly line: string;
}

export const UPSERT = { upsert: true };

export interface BatchOptions extends WriteOptions {
  /**
   * Changes nothing: the outcomes are those that the writes would have. Needs `plants:read`. Writes of one id see each
   * other only if they are sent together, in a block of up to 2,000.
   */
  readonly dryRun?: boolean | undefined;
}

const BLOCK_LENGTH_MAX = 2_000;
/** Caps the size of a block of plants with long names. */
const BLOCK_CHARACTERS_MAX = 1_000_000;
/** After an abort, the batch in flight gets this long to report what it stored. */
const ABORTED_BATCH_MS_MAX = 5_000;
/** A block is sent at most this long after its first plant. */
const BLOCK_MS_MAX = 50;

/** Groups the caller's plants into blocks. */
class Upload<Item> {
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

interface Result {
  readonly line: number;
  readonly status: number;
  readonly replaced?: boolean;
  readonly removed?: boolean;
  readonly replayed?: boolean;
  readonly now?: Content;
  readonly error?: number;
  readonly message?: string;
}

/** Undefined if the text is not a result of the service. */
function findResult(text: string): Result | undefined {
  const found = findJson(text);
  if (typeof found !== "object" || found === null) return undefined;
  const { line, status, replayed, replaced, removed, now, error, message } = found as Record<
    keyof Result,
    unknown
  >;
  const isResult =
    Number.isSafeInteger(line) &&
    typeof status === "number" &&
    [replayed, replaced, removed].every((did) => ["undefined", "boolean"].includes(typeof did)) &&
    (now === undefined || typeof (now as Content | null)?.name === "string") &&
    ["undefined", "number"].includes(typeof error) &&
    ["undefined", "string"].includes(typeof message);
  return isResult ? (found as Result) : undefined;
}

/** The last line for a client that did not read for a while. Plants that were stored meanwhile have no result. */
const isSummary = (text: string): boolean =>
  typeof (findJson(text) as { complete?: unknown } | null)?.complete === "boolean";

const did = ["replayed", "replaced", "removed"] as const;

/** Undefined if a retry may store the plant. */
function findOutcome(result: Result): Outcome<Upserted> | undefined {
  const { status, error = 0, message = "" } = result;
  if (status === 200) return did.find((name) => result[name] === true) ?? "created";
  if (status >= 500 || isTransient(status, error)) return undefined;
  return { code: error, reason: nameOf(error), message };
}

export class BatchClient extends TagClient {
  /**
   * Stores the plants, and settles each as soon as its outcome is known. Rejects if some plants stay unsettled: they
   * may be stored, and sending them again settles it. An abort ends the retries at once, and the request in flight
   * after 5 seconds.
   *
   * @operation createPlants
   * @example
   * const plants = [{ id: 1n, name: "Rose", tag: "shrub" }, { id: 4n, name: "Ivy" }];
   * await client.createBatch(plants, (index, outcome) => console.log(index, outcome)); // 0 replayed, 1 created
   */
  async createBatch(
    plants: readonly NewPlant[],
    settle: Settle,
    options: BatchOptions = {},
  ): Promise<void> {
    for await (const block of this.deliver<NewPlant, Created>(plants, formatPlant, {}, options))
      for (const { index, outcome } of block) settle(index, outcome);
  }

  /**
   * Stores any number of plants, and yields the outcome of each. A refused plant does not affect the others. Rejects
   * and aborts as `createBatch` does.
   *
   * @operation createPlants
   * @example
   * const shelf = [{ id: 4n, name: "Ivy", row: "A" }, { id: 1n, name: "Moss", row: "B" }];
   * for await (const { plant, outcome } of client.createAll(shelf))
   *   console.log(plant.row, typeof outcome === "string" ? outcome : outcome.reason); // A created, B id_taken
   */
  async *createAll<Item extends NewPlant>(
    plants: Iterable<Item> | AsyncIterable<Item>,
    options: BatchOptions = {},
  ): AsyncGenerator<Settled<Item>, void> {
    for await (const block of this.deliver<Item, Created>(plants, formatPlant, {}, options))
      yield* block;
  }

  /**
   * Creates plants, replaces those whose id is taken, and removes those with `removed: true`; the last write of an id
   * wins. What is in the wanted state already is "replayed". Settles, rejects and aborts as `createBatch` does.
   *
   * @operation createPlants
   * @example
   * const writes = [{ id: 1n, name: "Rosa" }, { id: 3n, removed: true as const }];
   * await client.upsertBatch(writes, (index, outcome) => console.log(index, outcome)); // 0 replaced, 1 removed
   */
  async upsertBatch(
    writes: readonly Upsert[],
    settle: Settle<Upserted>,
    options: BatchOptions = {},
  ): Promise<void> {
    for await (const block of this.deliver<Upsert, Upserted>(writes, formatUpsert, UPSERT, options))
      for (const { index, outcome } of block) settle(index, outcome);
  }

  /**
   * Like `upsertBatch`, for any number of writes. Yields the outcome of each.
   *
   * @operation createPlants
   * @example
   * const plants = [{ id: 1n, name: "Rosa" }, { id: 4n, name: "Ivy" }];
   * for await (const { outcome } of client.upsertAll(plants, { dryRun: true }))
   *   console.log(outcome); // replaced, created
   * for await (const { outcome } of client.upsertAll(plants)) console.log(outcome); // replaced, created
   */
  async *upsertAll<Item extends Upsert>(
    writes: Iterable<Item> | AsyncIterable<Item>,
    options: BatchOptions = {},
  ): AsyncGenerator<Settled<Item, Upserted>, void> {
    for await (const block of this.deliver<Item, Upserted>(writes, formatUpsert, UPSERT, options))
      yield* block;
  }

  /**
   * Writes plants in one transaction of at most 1 MiB: all of them, or none. Rejects with the error of the first one that failed; its
   * `detail` begins with `line` and its number, from 1. Without `upsert`, a taken id is refused with `id_taken`.
   *
   * @operation createPlants
   * @example
   * const swap = [{ id: 1n, name: "Tulip" }, { id: 2n, name: "Rose" }];
   * console.log(await client.writeAtomic(swap, { upsert: true })); // [ 'replaced', 'replaced' ]
   */
  async writeAtomic(
    writes: readonly Upsert[],
    { batch, upsert, ...options }: WriteOptions & { readonly upsert?: boolean | undefined } = {},
  ): Promise<readonly Upserted[]> {
    const path = `/plants/batch${formatPairs({ atomic: true, upsert, batch })}`;
    const body = `[${writes.map(formatUpsert).join(",")}]`;
    const { text } = await this.ask(path, { method: "POST", headers: JSON_BODY, body }, options);
    const results = findJson(text);
    const outcomes = (Array.isArray(results) ? results : []).map((result: unknown) =>
      findOutcome(findResult(JSON.stringify(result)) ?? { line: 0, status: 0 }),
    );
    const isDone = outcomes.every((outcome) => typeof outcome === "string");
    if (!isDone || outcomes.length !== writes.length) throw this.notAPlantStore();
    return outcomes;
  }

  private async *deliver<Item extends Pick<Plant, "id">, Success>(
    plants: Iterable<Item> | AsyncIterable<Item>,
    format: (item: Item) => string,
    query: Readonly<Record<string, unknown>>,
    { batch, dryRun, ...options }: BatchOptions,
  ): AsyncGenerator<Settled<Item, Success>[], void> {
    const path = `/plants/batch${formatPairs({ ...query, batch, dry_run: dryRun })}`;
    const settings = { ...this.options, ...options };
    const upload = new Upload(plants, format);
    const backoff = new Backoff(settings, findWaitMs);
    try {
      for (;;) {
        let left = await upload.takeBlock(settings.signal);
        if (left.length === 0) return;
        while (left.length > 0) {
          const unsettled = new Map(left.map((entry, at) => [at + 1, entry]));
          try {
            for await (const block of this.sendBatch<Item, Success>(
              path,
              unsettled,
              settings.signal,
            )) {
              if (block.length > 0) backoff.reset();
              yield block;
            }
          } catch (error) {
            // An older service, which has read nothing of it.
            const isRefused = (error as ServiceError).reason === "unsupported_encoding";
            if (isRefused && this.isCompressing) this.isCompressing = false;
            else await backoff.wait(error);
          }
          left = [...unsettled.values()];
        }
      }
    } finally {
      upload.close();
    }
  }

  /** Sends one request, and removes the settled plants from `unsettled`. */
  private async *sendBatch<Item extends Pick<Plant, "id">, Success>(
    path: string,
    unsettled: Map<number, Entry<Item>>,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<Settled<Item, Success>[], void> {
    const text = Array.from(unsettled.values(), ({ line }) => line).join("");
    const { body, encoding } = this.isCompressing ? await packBody(text) : { body: text };
    const headers = { accept: NDJSON_TYPE, "content-type": NDJSON_TYPE, ...encoding };
    const init = { method: "POST", headers, body };
    let failure: FailureFacts = { message: `${this.url} did not answer for every plant.` };
    // Later writes to the same plant come after it again: the last one wins.
    const openIds = new Set<bigint>();
    const answers = this.readLines(path, init, signal, ABORTED_BATCH_MS_MAX);
    for await (const lines of answers) {
      const block: Settled<Item, Success>[] = [];
      for (const line of lines) {
        const result = findResult(line);
        if (result === undefined && isSummary(line)) continue;
        if (result === undefined) throw this.notAPlantStore();
        const outcome = findOutcome(result) as Outcome<Success> | undefined;
        const entry = unsettled.get(result.line);
        if (outcome === undefined) {
          failure = {
            message: `${this.url}: ${result.message ?? `status ${result.status}`}`,
            status: result.status,
            code: result.error ?? 0,
          };
          if (entry !== undefined) openIds.add(entry.plant.id);
        } else if (entry !== undefined && !openIds.has(entry.plant.id)) {
          unsettled.delete(result.line);
          block.push({ index: entry.index, plant: entry.plant, outcome, now: result.now });
        }
      }
      yield block;
    }
    if (unsettled.size > 0) throw new ServiceError({ ...failure, isTransient: true });
  }
}
