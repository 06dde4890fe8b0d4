/**
 * The client's operations on a store that this process has opened, so a command is written once, for a store and for a
 * service: those on plants, and what the commands' own share. Not the service's handlers: JSON would double the CPU time
 * of an import and an export, and the operator would lose the cause of a failure, which a service keeps in its log.
 */

import type {
  BulkOptions,
  Client,
  Refused,
  Settle,
  Upsert,
  WriteOptions,
} from "../../client/client.ts";
import { retry, type RetryOptions } from "../../client/retry.ts";
import { type BulkOptions as Working, type Left, writeUntilTaken } from "../domain/bulk.ts";
import { nameBatch, type Writer } from "../domain/change.ts";
import { findEntityTags } from "../domain/entity-tag.ts";
import { catalogue, Refusal } from "../domain/errors.ts";
import type { PlantQuery } from "../domain/page.ts";
import type { ListedPlant, Plant } from "../domain/plant.ts";
import { formatCursor, SORTED_STREAM_LENGTH, toOrder } from "../domain/sort.ts";
import type { Store } from "../domain/store.ts";
import type { Done, PlantWrite } from "../domain/write.ts";

/** Plants of a service or of a store, whose ids are bigints only if they have to be. */
export interface Plants extends Pick<Client, "createBatch" | "upsertBatch"> {
  listPage(...parameters: Parameters<Client["listPage"]>): Promise<Listed<"next", bigint>>;
  listSortedPage(
    ...parameters: Parameters<Client["listSortedPage"]>
  ): Promise<Listed<"cursor", string>>;
  exportBlocks(
    ...parameters: Parameters<Client["exportBlocks"]>
  ): AsyncGenerator<readonly ListedPlant[], void>;
}

type Listed<Name extends string, Cursor> = Readonly<
  { plants: readonly ListedPlant[] } & Record<Name, Cursor | undefined>
>;

export const PAGE_LENGTH = 1_000;

/** Transient errors: another process is writing, or the database server is being replaced. */
const busyReasons: ReadonlySet<string> = new Set([
  "store_busy",
  "store_unavailable",
  "store_down",
  "overloaded",
]);

export const retryBusy = <Result>(attempt: () => Promise<Result>, options: RetryOptions = {}) =>
  retry(attempt, options, (error) =>
    error instanceof Refusal && busyReasons.has(error.reason) ? 0 : undefined,
  );

/** SQLite reads are synchronous and would starve Ctrl-C and the progress line. */
const retryInTurn = <Result>(attempt: () => Promise<Result>, options: RetryOptions = {}) =>
  retryBusy(async () => {
    await new Promise(setImmediate);
    options.signal?.throwIfAborted();
    return attempt();
  }, options);

export function plantsOf(store: Store): Plants {
  const readPage = (query: PlantQuery, options?: RetryOptions) =>
    retryInTurn(() => store.listPlants(query), options);

  return {
    createBatch: (plants, settle, options) =>
      writeAll(plants, (...open) => store.createPlants(...open), settle, options),

    upsertBatch: (writes, settle, options) =>
      writeAll(writes.map(toWrite), (...open) => store.writePlants(...open), settle, options),

    listPage: ({ after, limit = PAGE_LENGTH } = {}, options) =>
      readPage({ after, limit, order: "asc" }, options),

    listSortedPage: async ({ sort, cursor, ...filter }, options) => {
      const ordered = toOrder({ sort, cursor });
      // A command shares its memory with no other stream.
      const query = { ...filter, ...ordered, limit: 2 * SORTED_STREAM_LENGTH };
      const { plants, nextPosition } = await readPage(query, options);
      return {
        plants,
        cursor: ordered.sort && nextPosition && formatCursor(ordered.sort, nextPosition),
      };
    },

    exportBlocks: async function* ({ order = "asc", after, ...filter } = {}, options) {
      for (let next = after; ;) {
        const page = await readPage({ ...filter, after: next, limit: PAGE_LENGTH, order }, options);
        if (page.plants.length > 0) yield page.plants;
        next = page.next;
        if (next === undefined) return;
      }
    },
  };
}

/** Writes block by block, and tells the counts like a service. */
export async function writeBlocks<Block, Counts extends object>(
  counts: Counts,
  read: (working: Working) => AsyncIterable<Block>,
  write: (block: Block, writer: Writer, working: Working) => Promise<readonly Left[]>,
  { batch = nameBatch("edit"), onLeft, onProgress, ...options }: BulkOptions<Counts & Named> = {},
): Promise<Counts & Named> {
  const working = toWorking(options);
  for await (const block of read(working)) {
    working.signal.throwIfAborted();
    const left = await write(block, { batch }, working);
    for (const { id, refusal } of left) onLeft?.({ id, ...toRefused(refusal) });
    onProgress?.({ ...counts, batch });
  }
  return { ...counts, batch };
}

type Named = Readonly<Record<"batch", string>>;

const writeAll = <Item extends Pick<Plant, "id">, Success extends Done>(
  items: readonly Item[],
  write: (open: readonly Item[], writer: Writer) => Promise<readonly (Success | Refusal)[]>,
  settle: Settle<Success>,
  { batch, ...options }: WriteOptions = {},
): Promise<void> =>
  writeUntilTaken(
    items,
    (open) => write(open, { batch }),
    (attempt) => retryBusy(attempt, options),
    (index, outcome, isOpen) => {
      if (!isOpen) settle(index, outcome instanceof Refusal ? toRefused(outcome) : outcome);
    },
  );

const NEVER = new AbortController().signal;

export const toWorking = ({ signal = NEVER, onRetry }: RetryOptions = {}) => ({
  signal,
  retry: <Result>(attempt: () => Promise<Result>) => retryInTurn(attempt, { signal, onRetry }),
});

function toWrite(write: Upsert): PlantWrite {
  const { id, ifMatch } = write;
  const condition = { match: ifMatch === undefined ? ifMatch : findEntityTags(ifMatch) };
  return write.removed === true
    ? { kind: "remove", id, condition, isLenient: true }
    : { kind: "upsert", id, plant: write, condition };
}

export const toRefused = ({ reason, message }: Refusal): Refused => ({
  code: catalogue[reason].code,
  reason,
  message,
});
