/**
 * The client's operations on a store that this process has opened, so a command is written once, for a store and for a
 * service. Not the service's handlers: JSON would double the CPU time of an import and an export, and the operator would
 * lose the cause of a failure, which a service keeps in its log.
 */

import type {
  Bulk,
  BulkFilter,
  BulkOptions,
  Client,
  PlantPatch,
  Refused,
  Reverted,
  RevertRange,
  Settle,
  Upsert,
  WriteOptions,
} from "../../client/client.ts";
import { findChanges } from "../../client/changes.ts";
import { retry, type RetryOptions } from "../../client/retry.ts";
import { issueToken, parseGrant, readTokens, summarize } from "../auth/token.ts";
import type { Config } from "../config.ts";
import {
  changeBlock,
  type Left,
  previewBulk,
  readMatching,
  startBulkCounts,
  writeUntilTaken,
} from "../domain/bulk.ts";
import { nameBatch, type Writer } from "../domain/change.ts";
import { findEntityTags } from "../domain/entity-tag.ts";
import { catalogue, Refusal } from "../domain/errors.ts";
import { pickFilter } from "../domain/filter.ts";
import type { PlantQuery } from "../domain/page.ts";
import type { ListedPlant, Plant } from "../domain/plant.ts";
import {
  openRange,
  parseRevert,
  previewRange,
  readTouched,
  revertBlock,
  startCounts,
} from "../domain/revert.ts";
import { formatCursor, SORTED_STREAM_LENGTH, toOrder } from "../domain/sort.ts";
import type { Store } from "../domain/store.ts";
import { type Done, parsePatch, type PlantWrite } from "../domain/write.ts";
import { webhookActions } from "../webhooks/manage.ts";

/** What commands need of a service or of a store. */
export interface Target extends Pick<
  Client,
  | "addWebhook"
  | "createBatch"
  | "createToken"
  | "getWebhook"
  | "listChangePage"
  | "listTokens"
  | "listWebhooks"
  | "patchMatching"
  | "pauseWebhook"
  | "previewPatch"
  | "previewRemoval"
  | "previewRevert"
  | "removeMatching"
  | "removeWebhook"
  | "replayWebhook"
  | "resumeWebhook"
  | "revert"
  | "revokeToken"
  | "rotateWebhook"
  | "skipWebhook"
  | "testWebhook"
  | "upsertBatch"
> {
  // An id of a store is a bigint only if it has to be.
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

const PAGE_LENGTH = 1_000;

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

type Plants = "createBatch" | "upsertBatch" | "listPage" | "listSortedPage" | "exportBlocks";

export function plantsOf(store: Store): Pick<Target, Plants> {
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
      const { plants, nextPlace } = await readPage(query, options);
      return { plants, cursor: ordered.sort && nextPlace && formatCursor(ordered.sort, nextPlace) };
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

export function openStoreClient(store: Store, config: Config): Target {
  const changeAll = async (
    bulk: ReturnType<typeof toBulk>,
    kind: string,
    { batch = nameBatch(kind), onProgress, ...options }: BulkOptions<Bulk> = {},
  ): Promise<Bulk> => {
    const counts = startBulkCounts();
    const working = toWorking(options);
    for await (const block of readMatching(store, bulk, working)) {
      noteLeft(await changeBlock(store, block, bulk, { batch }, counts, working), options);
      onProgress?.({ ...counts, batch });
    }
    return { ...counts, batch };
  };

  const revertAll = async (
    range: RevertRange,
    { batch = nameBatch("revert"), onProgress, ...options }: BulkOptions<Reverted> = {},
  ): Promise<Reverted> => {
    const counts = startCounts();
    const working = { ...config, ...toWorking(options) };
    const opened = await openRange(store, parseRevert(range));
    for await (const block of readTouched(store, opened, working)) {
      working.signal.throwIfAborted();
      noteLeft(await revertBlock(store, block, { batch }, counts, working), options);
      onProgress?.({ ...counts, batch });
    }
    return { ...counts, batch };
  };

  const manage = async <Result>(
    action: keyof typeof webhookActions,
    name: string,
    input?: object,
  ): Promise<Result> => (await webhookActions[action]({ store, config }, name, input)) as Result;

  return {
    ...plantsOf(store),

    listChangePage: async (query, options) => {
      const read = () => store.readChanges({ after: query?.after ?? 0, limit: PAGE_LENGTH });
      const page = await retryBusy(read, options);
      // Serialized and parsed, as a client of a service gets them.
      const json = `[${page.changes.map((change) => change.json).join(",")}]`;
      return { ...page, changes: findChanges(json) ?? [] };
    },

    previewPatch: (filter, patch, options) =>
      previewBulk(store, toBulk(filter, patch), toWorking(options)),

    previewRemoval: (filter, options) => previewBulk(store, toBulk(filter), toWorking(options)),

    patchMatching: (filter, patch, options) => changeAll(toBulk(filter, patch), "change", options),

    removeMatching: (filter, options) => changeAll(toBulk(filter), "remove", options),

    previewRevert: async (range, options) => {
      const opened = await openRange(store, parseRevert({ ...range, dryRun: true }));
      return previewRange(store, opened, { ...config, ...toWorking(options) });
    },

    revert: revertAll,

    createToken: (token) => issueToken(store, parseGrant(token)),

    listTokens: async function* () {
      yield* (await readTokens(store)).map(summarize);
    },

    revokeToken: async (id) => {
      const [found] = await store.listTokens({ after: id, limit: 1 });
      await store.revokeToken(found?.hash ?? "", Date.now());
    },

    listWebhooks: () => manage("list", ""),
    getWebhook: (name) => manage("show", name),
    addWebhook: (webhook) => manage("add", "", webhook),
    removeWebhook: (name) => manage("remove", name),
    testWebhook: (name) => manage("test", name),
    pauseWebhook: (name) => manage("pause", name),
    resumeWebhook: (name) => manage("resume", name),
    skipWebhook: (name) => manage("skip", name),
    replayWebhook: (name, from) => manage("replay", name, { from }),
    rotateWebhook: (name) => manage("rotate", name),
  };
}

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

const toWorking = ({ signal = NEVER, onRetry }: RetryOptions = {}) => ({
  signal,
  retry: <Result>(attempt: () => Promise<Result>) => retryInTurn(attempt, { signal, onRetry }),
});

const toBulk = (filter: BulkFilter, patch?: PlantPatch) => ({
  filter: pickFilter(filter),
  except: filter.except,
  patch: patch && parsePatch(patch),
});

function toWrite(write: Upsert): PlantWrite {
  const { id, ifMatch } = write;
  const condition = { match: ifMatch === undefined ? ifMatch : findEntityTags(ifMatch) };
  return write.removed === true
    ? { kind: "remove", id, condition, isLenient: true }
    : { kind: "upsert", id, plant: write, condition };
}

function noteLeft(left: readonly Left[], { onLeft }: Pick<BulkOptions<never>, "onLeft">): void {
  for (const { id, refusal } of left) onLeft?.({ id, ...toRefused(refusal) });
}

export const toRefused = ({ reason, message }: Refusal): Refused => ({
  code: catalogue[reason].code,
  reason,
  message,
});
