/** The journal of changes. */

import { BulkClient } from "./bulk.ts";
import { findNext, formatPairs, PAGE_LENGTH, quoteIds } from "./connection.ts";
import { findJson, findWaitMs } from "./errors.ts";
import { type Content, formatId } from "./plants.ts";
import { Backoff, type RetryOptions } from "./retry.ts";

interface ChangeFacts {
  readonly seq: number;
  /** ISO 8601. */
  readonly time: string;
  readonly id: bigint;

  /* table: changeMembers */

  /** The name of the token. Absent if a command changed the store directly. */
  readonly by?: string;
  /** The client's name for a group of writes, such as an import. */
  readonly batch?: string;

  /* end */

  /** With `fold`, for a change of a run: how many changes the entry stands for, itself included. */
  readonly folded?: Readonly<Record<"created" | "replaced" | "removed", number>>;
  /** With `folded`: the number of the last change of the run. */
  readonly foldedTo?: number;
}

/** `plant` is the plant after this change, `before` the one it replaced or removed. */
export type Change =
  | (ChangeFacts & {
      readonly type: "created";
      readonly plant: Content;
      readonly before?: undefined;
    })
  | (ChangeFacts & {
      readonly type: "replaced";
      readonly plant: Content;
      readonly before: Content;
    })
  | (ChangeFacts & {
      readonly type: "removed";
      readonly plant?: undefined;
      readonly before: Content;
    });

/** The number of a change, or a time in ISO 8601 with its zone. */
export type Moment = number | string;

export interface ChangeQuery {
  /** The cursor: the number of the last change seen. 0 or undefined starts at the oldest change, or at the newest. */
  readonly after?: number | undefined;
  /** By default the oldest change is first. Changes that are followed have no other order. */
  readonly order?: "asc" | "desc" | undefined;
  /** Entries on a page, 1,000 by default. */
  readonly limit?: number | undefined;
  /** `batch`: one entry for consecutive changes by one token in one batch. `run`: also for consecutive creates. */
  readonly fold?: "batch" | "run" | undefined;
  /** Only changes of this plant. */
  readonly id?: bigint | undefined;
  /** Only changes of these types. */
  readonly types?: readonly Change["type"][] | undefined;
  /** Only changes by the token of this name. */
  readonly by?: string | undefined;
  /** Only changes of this batch. */
  readonly batch?: string | undefined;
  /** The first change and the last, inclusive. */
  readonly from?: Moment | undefined;
  readonly to?: Moment | undefined;
}

export interface ChangeCountQuery extends Omit<ChangeQuery, "order" | "fold" | "id"> {
  /** Counts the changes of each token, of each batch, or of both. */
  readonly group?: readonly ("by" | "batch")[] | undefined;
  /** Counts each interval of this length by itself, in UTC, as in `15m`, `1h` or `1d`. */
  readonly every?: string | undefined;
}

/** How many changes a group has. */
export interface ChangeCount {
  /** The start of its interval, in ISO 8601. */
  readonly start?: string | undefined;
  readonly by?: string | undefined;
  readonly batch?: string | undefined;
  readonly created: number;
  readonly replaced: number;
  readonly removed: number;
  /** The number and the time of its first change, and of its last. */
  readonly first: number;
  readonly last: number;
  readonly firstTime: string;
  readonly lastTime: string;
}

export interface ChangeCountPage {
  /** The group with the newest change is first. One may be on several pages: add up its counts. */
  readonly counts: readonly ChangeCount[];
  /** The `after` of the next page; undefined on the last one. */
  readonly next: number | undefined;
}

/** Undefined if the text is not an array of counts. */
function findChangeCounts(json: string): readonly ChangeCount[] | undefined {
  const found = findJson(json);
  const isCount = (value: unknown): boolean => {
    const { created, replaced, removed, first } = (value ?? {}) as Partial<ChangeCount>;
    return [created, replaced, removed, first].every((each) => typeof each === "number");
  };
  return Array.isArray(found) && found.every(isCount) ? (found as ChangeCount[]) : undefined;
}

export interface ChangePage {
  readonly changes: readonly Change[];
  /** The `after` of the next page. */
  readonly last: number;
  readonly hasMore: boolean;
  /** The number of the newest change in the journal, whatever the filter. */
  readonly newest: number;
}

const EVENTS_TYPE = "text/event-stream";

export class ChangeClient extends BulkClient {
  /**
   * A page of the journal. Rejects with `changes_gone` if the cursor is no longer in the journal.
   *
   * @operation listChanges
   * @example
   * const { changes, newest } = await client.listChangePage({ id: 1n, order: "desc", limit: 1 });
   * console.log(changes[0]?.type, newest >= 3); // created true
   */
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

  /**
   * Counts the changes from the newest back, without reading them. A page takes about a second at most.
   *
   * @operation countChanges
   * @example
   * await client.remove(3n, { batch: "winter" });
   * const { counts } = await client.countChangePage({ batch: "winter", group: ["by"] });
   * console.log(counts[0]?.by, counts[0]?.removed); // PLANTSTORE_TOKEN 1
   */
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

  /**
   * The number of the newest change. Read it before an export: the export may miss the changes after it.
   *
   * @operation listChanges
   * @example
   * const after = await client.findNewestChange();
   * await client.create({ id: 4n, name: "Ivy" });
   * console.log((await client.findNewestChange()) > after); // true
   */
  async findNewestChange(options?: RetryOptions): Promise<number> {
    const newest = findNewest((await this.ask("/changes", { method: "HEAD" }, options)).headers);
    if (newest === undefined) throw this.notAPlantStore();
    return newest;
  }

  /**
   * Yields the changes up to now. With `follow`, continues with new changes until it is aborted.
   *
   * @operation listChanges
   * @example
   * const after = await client.findNewestChange();
   * await client.patch(3n, { tag: "shade" });
   * for await (const { type, id, plant } of client.changes({ after }))
   *   console.log(type, id, plant); // replaced 3n { name: 'Fern', tag: 'shade' }
   */
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
}

/** Undefined if the text is not an array of changes. */
export function findChanges(json: string): Change[] | undefined {
  const found = findJson(quoteIds(json));
  if (!Array.isArray(found) || !found.every(isChange)) return undefined;
  return found.map(
    (change) => Object.assign(change, { id: BigInt(change.id) }) as unknown as Change,
  );
}

function isChange(value: unknown): value is Record<"id", string> {
  const { seq, time, type, id, plant, before } = (value ?? {}) as Record<keyof Change, unknown>;
  return (
    Number.isSafeInteger(seq) &&
    typeof time === "string" &&
    typeof type === "string" &&
    typeof id === "string" &&
    (type === "removed" || hasName(plant)) &&
    (type === "created" || hasName(before))
  );
}

const hasName = (value: unknown): boolean =>
  typeof (value as Partial<Content> | null | undefined)?.name === "string";

/** Parses the header `Last-Change`; undefined without one. */
function findNewest(headers: Headers): number | undefined {
  const newest = headers.get("last-change");
  return newest !== null && /^\d{1,16}$/.test(newest) ? Number(newest) : undefined;
}

const pairsOf = ({ after = 0, id, types, ...query }: ChangeQuery) => ({
  after,
  id: id === undefined ? id : formatId(id),
  type: types?.join(","),
  by: query.by,
  batch: query.batch,
  from: query.from,
  to: query.to,
  order: query.order,
  fold: query.fold,
});

const formatChangeQuery = (query: ChangeQuery): string => formatPairs(pairsOf(query));

const formatChangeCountQuery = ({ group, every, limit, ...query }: ChangeCountQuery) =>
  formatPairs({ ...pairsOf(query), limit, group: group?.join(","), every });
