/** The HTTP client of a plant store, for browsers, Node, Bun and Deno. */

import {
  type Created,
  type Entry,
  findOutcome,
  findResult,
  formatUpsert,
  isSummary,
  type Outcome,
  packBody,
  type Settle,
  type Settled,
  Upload,
  type Upsert,
  type Upserted,
  type WriteOptions,
} from "./batch.ts";
import {
  type Bulk,
  type BulkOptions,
  type BulkPreview,
  type Change,
  type ChangeCountPage,
  type ChangeCountQuery,
  type ChangePage,
  type ChangeQuery,
  findChangeCounts,
  findChanges,
  findNewest,
  formatChangeCountQuery,
  formatChangeQuery,
  type UpsertedByJob,
} from "./changes.ts";
import { NDJSON_TYPE } from "./connection.ts";
import { type FailureFacts, findJson, findWaitMs, ServiceError } from "./errors.ts";
import { JSON_BODY, Manager, nameBatch, PAGE_LENGTH } from "./manage.ts";
import {
  type BulkFilter,
  type Content,
  findContent,
  findEtag,
  findNext,
  findPlants,
  formatId,
  formatPairs,
  formatPlant,
  formatQuery,
  isCount,
  isTagCount,
  type ListQuery,
  type NewPlant,
  type Page,
  type PageQuery,
  type PlantCount,
  type Plant,
  type PlantPatch,
  type SortedPage,
  type SortedQuery,
  type TagCountPage,
  type TagPage,
  type TagQuery,
  type TokenFacts,
  type Versioned,
} from "./plants.ts";
import { Backoff, type RetryOptions } from "./retry.ts";

export type {
  Created,
  Outcome,
  Refused,
  Removal,
  Settle,
  Settled,
  Upsert,
  Upserted,
  WriteOptions,
} from "./batch.ts";
export type {
  Bulk,
  BulkOptions,
  BulkPreview,
  Change,
  ChangeCount,
  ChangeCountPage,
  ChangeCountQuery,
  ChangePage,
  ChangeQuery,
  Job,
  Reverted,
  RevertLeft,
  RevertPreview,
  RevertRange,
  UpsertedByJob,
} from "./changes.ts";
export { type ErrorName, ServiceError } from "./errors.ts";
export type {
  NewToken,
  NewWebhook,
  Token,
  TokenPage,
  TokenQuery,
  Webhook,
  WebhookAttempt,
} from "./manage.ts";
export type {
  BulkFilter,
  Content,
  Count,
  Filter,
  ListQuery,
  NewPlant,
  Page,
  PageQuery,
  PlantCount,
  Plant,
  PlantPatch,
  TagCount,
  SortedPage,
  SortedQuery,
  TagCountPage,
  TagPage,
  TagQuery,
  TokenFacts,
  Versioned,
} from "./plants.ts";
export type { ClientOptions } from "./connection.ts";
export type { RetryOptions } from "./retry.ts";
export { verifyWebhook, type VerifyOptions, WebhookError, type WebhookEvent } from "./webhook.ts";

interface ChangeOptions extends WriteOptions {
  readonly ifMatch?: string | undefined;
}

const UPSERT = { upsert: true };

function bulkPath(filter: BulkFilter, more: Readonly<Record<string, unknown>>): string {
  const { all, except = [] } = filter;
  const pairs = [formatQuery({ ...filter, order: undefined }), formatPairs({ all, ...more })];
  // A comma needs no encoding, which would make it three times as long.
  if (except.length > 0) pairs.push(`?except=${except.map(formatId).join(",")}`);
  const query = pairs.filter((part) => part !== "").map((part) => part.slice(1));
  return `/plants?${query.join("&")}`;
}

const EVENTS_TYPE = "text/event-stream";
/** After an abort, the batch in flight gets this long to report what it stored. */
const ABORTED_BATCH_MS_MAX = 5_000;

export class Client extends Manager {
  /** Resolves when the plant is on disk. Rejects with `id_taken` if a different plant has the id. */
  async create(plant: NewPlant, { batch, ...options }: WriteOptions = {}): Promise<Created> {
    const init = { method: "POST", headers: JSON_BODY, body: formatPlant(plant) };
    const { headers, text } = await this.ask(`/plants${formatPairs({ batch })}`, init, options);
    if (findContent(text) === undefined) throw this.notAPlantStore();
    return headers.get("idempotent-replayed") === "true" ? "replayed" : "created";
  }

  /** Rejects with `plant_not_found`. With `ifNoneMatch`, resolves to undefined if the plant still has that etag. */
  get(
    id: bigint,
    options?: RetryOptions & { readonly ifNoneMatch?: undefined },
  ): Promise<Versioned>;
  get(
    id: bigint,
    options: RetryOptions & { readonly ifNoneMatch: string },
  ): Promise<Versioned | undefined>;
  async get(
    id: bigint,
    { ifNoneMatch, ...options }: RetryOptions & { readonly ifNoneMatch?: string | undefined } = {},
  ): Promise<Versioned | undefined> {
    const headers = ifNoneMatch === undefined ? {} : { "if-none-match": ifNoneMatch };
    try {
      const answer = await this.ask(`/plants/${formatId(id)}`, { headers }, options);
      const [plant] = findPlants(`[${answer.text}]`) ?? [];
      const etag = findEtag(answer.headers);
      if (plant === undefined || etag === undefined) throw this.notAPlantStore();
      return { plant, etag };
    } catch (error) {
      const isUnchanged = error instanceof ServiceError && error.status === 304;
      if (isUnchanged && ifNoneMatch !== undefined) return undefined;
      throw error;
    }
  }

  /**
   * Replaces the name and the tag of the plant with this id. With `ifMatch`, rejects with `precondition_failed` if the
   * plant no longer has that etag; without it, the last writer wins.
   */
  async replace({ id, name, tag }: NewPlant, options: ChangeOptions = {}): Promise<Versioned> {
    return this.change("PUT", id, { name, tag }, options, { name, tag });
  }

  /**
   * Changes the members of the patch, and leaves the others; `{ tag: null }` removes the tag. `ifMatch` as for
   * `replace`.
   */
  async patch(id: bigint, patch: PlantPatch, options: ChangeOptions = {}): Promise<Versioned> {
    return this.change("PATCH", id, patch, options);
  }

  /** `wanted` is the plant that a replacement leaves; what a patch leaves follows from the plant that was there. */
  private async change(
    method: string,
    id: bigint,
    patch: PlantPatch,
    { ifMatch, batch, ...options }: ChangeOptions,
    wanted?: Content,
  ): Promise<Versioned> {
    const headers = { ...JSON_BODY, ...(ifMatch === undefined ? {} : { "if-match": ifMatch }) };
    const init = { method, headers, body: JSON.stringify(patch) };
    try {
      const path = `/plants/${formatId(id)}${formatPairs({ batch })}`;
      const answer = await this.ask(path, init, options);
      const [content, etag] = [findContent(answer.text), findEtag(answer.headers)];
      if (content === undefined || etag === undefined) throw this.notAPlantStore();
      return { plant: { id, ...(wanted ?? content) }, etag };
    } catch (error) {
      if (!(error instanceof ServiceError) || error.status !== 412) throw error;
      const current = await this.get(id, options).catch(() => undefined);
      // A retry after a lost answer finds its own change.
      const now = current?.plant;
      const { name, tag } = patch;
      const isDone =
        wanted === undefined
          ? (name === undefined || name === now?.name) &&
            (tag === undefined || (tag ?? undefined) === now?.tag)
          : wanted.name === now?.name && wanted.tag === now.tag;
      if (current !== undefined && isDone) return current;
      throw error;
    }
  }

  /** With `ifMatch`, rejects with `precondition_failed` if the plant no longer has that etag. */
  async remove(id: bigint, { ifMatch, batch, ...options }: ChangeOptions = {}): Promise<void> {
    const headers = ifMatch === undefined ? {} : { "if-match": ifMatch };
    const path = `/plants/${formatId(id)}${formatPairs({ batch })}`;
    await this.removeAt(path, "plant_not_found", headers, options);
  }

  async listPage(query: PageQuery = {}, options?: RetryOptions): Promise<Page> {
    const init = { headers: { accept: "application/json" } };
    const { headers, text } = await this.ask(`/plants${formatQuery(query)}`, init, options);
    const plants = findPlants(text);
    const after = findNext(headers);
    const isPage = after === undefined || /^-?\d+$/.test(after ?? "");
    if (plants === undefined || !isPage) throw this.notAPlantStore();
    return { plants, next: after === undefined ? undefined : BigInt(after as string) };
  }

  /**
   * A page in the order of `sort`. The service scans all plants for each page. A plant that changes between two pages
   * may be on both, or on none.
   */
  async listSortedPage(query: SortedQuery, options?: RetryOptions): Promise<SortedPage> {
    const init = { headers: { accept: "application/json" } };
    const { headers, text } = await this.ask(`/plants${formatQuery(query)}`, init, options);
    const plants = findPlants(text);
    const cursor = findNext(headers, "cursor");
    if (plants === undefined || cursor === null) throw this.notAPlantStore();
    return { plants, cursor };
  }

  /** Iterates over all matching plants, page by page. Concurrent changes may or may not show. */
  async *list(query: ListQuery = {}, options?: RetryOptions): AsyncGenerator<Plant, void> {
    let { after } = query;
    do {
      const page: Page = await this.listPage({ ...query, after, limit: PAGE_LENGTH }, options);
      yield* page.plants;
      after = page.next;
    } while (after !== undefined);
  }

  /** Streams all matching plants. It ends without an error only if it is complete. */
  async *export(query: ListQuery = {}, options?: RetryOptions): AsyncGenerator<Plant, void> {
    for await (const plants of this.exportBlocks(query, options)) yield* plants;
  }

  /**
   * Like `export`, in blocks. It resumes after a lost connection. Behind an HTTP/1.0 proxy a truncated stream looks
   * complete, so after the stream it reads pages from the last plant until one has no next link.
   */
  async *exportBlocks(
    filter: ListQuery = {},
    options: RetryOptions = {},
  ): AsyncGenerator<readonly Plant[], void> {
    const settings = { ...this.options, ...options };
    const { signal } = settings;
    const backoff = new Backoff(settings, findWaitMs);
    let { after } = filter;
    let isStreamed = false;
    for (;;) {
      try {
        if (!isStreamed)
          for await (const plants of this.streamPlants({ ...filter, after }, signal)) {
            backoff.reset();
            yield plants;
            after = plants.at(-1)?.id ?? after;
          }
        isStreamed = true;
        const query = { ...filter, after, limit: PAGE_LENGTH };
        const page: Page = await this.listPage(query, { signal, delaysMs: [] });
        if (page.plants.length > 0) yield page.plants;
        if (page.next === undefined) return;
        after = page.next;
      } catch (error) {
        await backoff.wait(error);
      }
    }
  }

  /** A page of the journal. Rejects with `changes_gone` if the cursor is no longer in the journal. */
  async listChangePage(query: ChangeQuery = {}, options?: RetryOptions): Promise<ChangePage> {
    const path = `/changes${formatChangeQuery(query)}&limit=${query.limit ?? PAGE_LENGTH}`;
    const { headers, text } = await this.ask(path, {}, options);
    const changes = findChanges(text);
    const next = findNext(headers);
    const newest = findNewest(headers);
    if (changes === undefined || next === null || newest === undefined) throw this.notAPlantStore();
    const last = next === undefined ? (changes.at(-1)?.seq ?? query.after ?? 0) : Number(next);
    return { changes, last, hasMore: next !== undefined, newest };
  }

  /** Counts the changes from the newest back, without reading them. A page takes about a second at most. */
  async countChangePage(
    query: ChangeCountQuery = {},
    options?: RetryOptions,
  ): Promise<ChangeCountPage> {
    const path = `/changes/counts${formatChangeCountQuery({ limit: PAGE_LENGTH, ...query })}`;
    const { headers, text } = await this.ask(path, {}, options);
    const counts = findChangeCounts(text);
    const next = findNext(headers);
    if (counts === undefined || next === null) throw this.notAPlantStore();
    return { counts, next: next === undefined ? undefined : Number(next) };
  }

  /** The number of the newest change. Read it before an export: the export may miss the changes after it. */
  async findNewestChange(options?: RetryOptions): Promise<number> {
    const newest = findNewest((await this.ask("/changes", { method: "HEAD" }, options)).headers);
    if (newest === undefined) throw this.notAPlantStore();
    return newest;
  }

  /** Yields the changes up to now. With `follow`, continues with new changes until it is aborted. */
  async *changes(
    { follow = false, ...query }: ChangeQuery & { readonly follow?: boolean } = {},
    options: RetryOptions = {},
  ): AsyncGenerator<Change, void> {
    if (follow) return yield* this.followChanges(query, { ...this.options, ...options });
    let { after } = query;
    for (;;) {
      const page = await this.listChangePage({ ...query, after }, options);
      yield* page.changes;
      if (!page.hasMore) return;
      after = page.last;
    }
  }

  /** Reconnects at its cursor, so it misses and repeats nothing. */
  private async *followChanges(
    query: ChangeQuery,
    options: RetryOptions,
  ): AsyncGenerator<Change, void> {
    const backoff = new Backoff(options, findWaitMs);
    let { after = 0 } = query;
    for (;;) {
      try {
        const path = `/changes${formatChangeQuery({ ...query, after })}`;
        const init = { headers: { accept: EVENTS_TYPE } };
        for await (const lines of this.readLines(path, init, options.signal)) {
          const data = lines.filter((line) => line.startsWith("data:"));
          const changes = findChanges(`[${data.map((line) => line.slice(5)).join(",")}]`);
          if (changes === undefined) throw this.notAPlantStore();
          for (const change of changes) {
            backoff.reset();
            yield change;
            after = change.seq;
          }
          // A comment proves that the service is alive. Its `id:` moves the cursor past changes outside the filter.
          if (lines.some((line) => line.startsWith(":"))) backoff.reset();
          const end = lines.lastIndexOf("");
          const ids = lines.filter((line, at) => at < end && line.startsWith("id:"));
          after = Math.max(after, Number(ids.at(-1)?.slice(3)) || 0);
        }
        throw this.explainLoss(new Error("the stream ended"), options.signal);
      } catch (error) {
        await backoff.wait(error);
      }
    }
  }

  /** The service counts for a second. Add up the counts until one has no `next`. */
  async countPlants(filter: ListQuery = {}, options?: RetryOptions): Promise<PlantCount> {
    const path = `/plants/count${formatQuery({ ...filter, order: undefined })}`;
    const { headers, text } = await this.ask(path, {}, options);
    const count = findJson(text);
    if (!isCount(count)) throw this.notAPlantStore();
    const next = findNext(headers) ?? "";
    return /^-?\d+$/.test(next) ? { ...count, next: BigInt(next) } : count;
  }

  async listTagPage(query: TagQuery = {}, options?: RetryOptions): Promise<TagPage> {
    return this.readTags("/tags", query, (tag) => typeof tag === "string", options);
  }

  /** Like `listTagPage`, with the number of plants per tag. */
  async countTagPage(query: TagQuery = {}, options?: RetryOptions): Promise<TagCountPage> {
    return this.readTags("/tags/counts", query, isTagCount, options);
  }

  private async readTags<Tag>(
    path: string,
    query: TagQuery,
    isTag: (value: unknown) => value is Tag,
    options: RetryOptions | undefined,
  ): Promise<{ readonly tags: readonly Tag[]; readonly next: string | undefined }> {
    const { headers, text } = await this.ask(path + formatQuery(query), {}, options);
    const tags = findJson(text);
    const next = findNext(headers);
    if (!Array.isArray(tags) || !tags.every(isTag) || next === null) throw this.notAPlantStore();
    return { tags, next };
  }

  /** All tags in use with this prefix. */
  async *listTags(prefix = "", options?: RetryOptions): AsyncGenerator<string, void> {
    let after: string | undefined;
    do {
      const query = { prefix: prefix === "" ? undefined : prefix, after, limit: PAGE_LENGTH };
      const page: TagPage = await this.listTagPage(query, options);
      yield* page.tags;
      after = page.next;
    } while (after !== undefined);
  }

  /** The token of this client, as the service knows it. */
  async describeToken(options?: RetryOptions): Promise<TokenFacts> {
    const facts = findJson((await this.ask("/token", {}, options)).text);
    const { name, scopes } = (facts ?? {}) as Partial<TokenFacts>;
    if (typeof name !== "string" || !Array.isArray(scopes)) throw this.notAPlantStore();
    return facts as TokenFacts;
  }

  /**
   * Stores the plants, and settles each as soon as its outcome is known. Rejects if some plants stay unsettled: they
   * may be stored, and sending them again settles it. An abort ends the retries at once, and the request in flight
   * after 5 seconds.
   */
  async createBatch(
    plants: readonly NewPlant[],
    settle: Settle,
    options: WriteOptions = {},
  ): Promise<void> {
    for await (const block of this.deliver<NewPlant, Created>(plants, formatPlant, {}, options))
      for (const { index, outcome } of block) settle(index, outcome);
  }

  /**
   * Stores any number of plants, and yields the outcome of each. A refused plant does not affect the others. Rejects
   * and aborts as `createBatch` does.
   */
  async *createAll<Item extends NewPlant>(
    plants: Iterable<Item> | AsyncIterable<Item>,
    options: WriteOptions = {},
  ): AsyncGenerator<Settled<Item>, void> {
    for await (const block of this.deliver<Item, Created>(plants, formatPlant, {}, options))
      yield* block;
  }

  /**
   * Creates plants, replaces those whose id is taken, and removes those with `removed: true`; the last write of an id
   * wins. What is in the wanted state already is "replayed". Settles, rejects and aborts as `createBatch` does.
   */
  async upsertBatch(
    writes: readonly Upsert[],
    settle: Settle<Upserted>,
    options: WriteOptions = {},
  ): Promise<void> {
    for await (const block of this.deliver<Upsert, Upserted>(writes, formatUpsert, UPSERT, options))
      for (const { index, outcome } of block) settle(index, outcome);
  }

  /** Like `upsertBatch`, for any number of writes. Yields the outcome of each. */
  async *upsertAll<Item extends Upsert>(
    writes: Iterable<Item> | AsyncIterable<Item>,
    options: WriteOptions = {},
  ): AsyncGenerator<Settled<Item, Upserted>, void> {
    for await (const block of this.deliver<Item, Upserted>(writes, formatUpsert, UPSERT, options))
      yield* block;
  }

  /**
   * Like `upsertBatch`, in one request of at most 1 MiB that the service finishes, even without this client: `stopJob`
   * ends it. A write that is malformed refuses all of them.
   */
  upsertByJob(
    writes: readonly Upsert[],
    {
      batch = nameBatch("upsert"),
      ...options
    }: Omit<BulkOptions<UpsertedByJob>, "respondAsync"> = {},
  ): Promise<UpsertedByJob> {
    const body = `[${writes.map(formatUpsert).join(",")}]`;
    const path = `/plants/batch${formatPairs({ ...UPSERT, batch })}`;
    const headers = { ...JSON_BODY, accept: NDJSON_TYPE };
    const init = { method: "POST", headers, body };
    return this.runBulk<UpsertedByJob>(path, init, { ...options, respondAsync: true });
  }

  /**
   * One transaction of at most 1 MiB: all of them, or none. Rejects with the error of the first one that failed; its
   * `detail` begins with `line` and its number, from 1. Without `upsert`, a taken id is refused with `id_taken`.
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

  /** How many plants match the filter, and what some of them would be after the patch. Changes nothing. */
  previewPatch(
    filter: BulkFilter,
    patch: PlantPatch,
    options?: RetryOptions,
  ): Promise<BulkPreview> {
    const init = { method: "PATCH", headers: JSON_BODY, body: JSON.stringify(patch) };
    return this.preview(bulkPath(filter, { dry_run: true }), init, options) as Promise<BulkPreview>;
  }

  /** How many plants match the filter, and some of them. Changes nothing. */
  previewRemoval(filter: BulkFilter, options?: RetryOptions): Promise<BulkPreview> {
    const path = bulkPath(filter, { dry_run: true });
    return this.preview(path, { method: "DELETE" }, options) as Promise<BulkPreview>;
  }

  /**
   * Changes all plants that match; without a filter, or `all`, it is refused. A plant that others change meanwhile is
   * left alone. If it is interrupted, it is sent again, and continues: the counts are those of the last attempt.
   */
  patchMatching(
    filter: BulkFilter,
    patch: PlantPatch,
    { batch = nameBatch("change"), ...options }: BulkOptions<Bulk> = {},
  ): Promise<Bulk> {
    const headers = { ...JSON_BODY, accept: NDJSON_TYPE };
    const init = { method: "PATCH", headers, body: JSON.stringify(patch) };
    return this.runBulk<Bulk>(bulkPath(filter, { batch }), init, options);
  }

  /** Removes all plants that match, like `patchMatching`. */
  removeMatching(
    filter: BulkFilter,
    { batch = nameBatch("remove"), ...options }: BulkOptions<Bulk> = {},
  ): Promise<Bulk> {
    // As in `removeAt`: Bun's fetch repeats a DELETE without telling.
    const init = { method: "DELETE", headers: { accept: NDJSON_TYPE }, keepalive: false };
    return this.runBulk<Bulk>(bulkPath(filter, { batch }), init, options);
  }

  private async *deliver<Item extends Pick<Plant, "id">, Success>(
    plants: Iterable<Item> | AsyncIterable<Item>,
    format: (item: Item) => string,
    query: Readonly<Record<string, unknown>>,
    { batch, ...options }: WriteOptions,
  ): AsyncGenerator<Settled<Item, Success>[], void> {
    const path = `/plants/batch${formatPairs({ ...query, batch })}`;
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
          block.push({ index: entry.index, plant: entry.plant, outcome });
        }
      }
      yield block;
    }
    if (unsettled.size > 0) throw new ServiceError({ ...failure, isTransient: true });
  }

  private async *streamPlants(
    query: PageQuery,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<Plant[], void> {
    let { after } = query;
    const init = { headers: { accept: NDJSON_TYPE } };
    for await (const lines of this.readLines(`/plants${formatQuery(query)}`, init, signal)) {
      const plants = findPlants(`[${lines.join(",")}]`);
      const [first] = plants ?? [];
      // A stream that does not advance would be read forever.
      const isNext =
        first !== undefined &&
        (after === undefined || (query.order === "desc" ? first.id < after : first.id > after));
      if (plants === undefined || !isNext) throw this.notAPlantStore();
      yield plants;
      after = plants.at(-1)?.id;
    }
  }
}
