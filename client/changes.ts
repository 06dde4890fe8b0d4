/** The journal of changes. */

import type { Refused, WriteOptions } from "./batch.ts";
import { findJson, nameOf } from "./errors.ts";
import { type Content, formatId, formatPairs } from "./plants.ts";

interface ChangeFacts {
  readonly seq: number;
  /** ISO 8601. */
  readonly time: string;
  readonly id: bigint;
  /** The name of the token that made the change. */
  readonly by?: string;
  /** The client's name for writes that belong together. */
  readonly batch?: string;
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
type Moment = number | string;

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
export function findChangeCounts(json: string): readonly ChangeCount[] | undefined {
  const found = findJson(json);
  const isCount = (value: unknown): boolean => {
    const { created, replaced, removed, first } = (value ?? {}) as Partial<ChangeCount>;
    return [created, replaced, removed, first].every((each) => typeof each === "number");
  };
  return Array.isArray(found) && found.every(isCount) ? (found as ChangeCount[]) : undefined;
}

/** Which changes to undo: those that match everything given. Both ends belong to the range. */
export interface RevertRange {
  readonly from?: Moment | undefined;
  readonly to?: Moment | undefined;
  /** The name of a token. */
  readonly by?: string | undefined;
  readonly batch?: string | undefined;
  readonly types?: readonly Change["type"][] | undefined;
}

/** What undoing the changes would do. */
export interface RevertPreview {
  /** The number of plants that the changes concern. */
  readonly plants: number;
  readonly revertible: number;
  /** Plants that are in their earlier state already. */
  readonly unchanged: number;
  /** Plants changed since, which would be left alone. */
  readonly changedSince: number;
  /** A sample of the plants that would be undone: their state now, and after the undo. */
  readonly sample: readonly {
    readonly id: bigint;
    readonly now?: Content | undefined;
    readonly before?: Content | undefined;
  }[];
}

export interface Reverted {
  readonly plants: number;
  readonly reverted: number;
  readonly unchanged: number;
  readonly changedSince: number;
  readonly refused: number;
  /** The batch of these writes in the journal. */
  readonly batch: string;
}

/** A plant that was left alone: `precondition_failed` if it was changed since. */
export interface RevertLeft extends Refused {
  readonly id: bigint;
}

/** What a change of all plants that match would do. */
export interface BulkPreview {
  /** The number of plants that match. */
  readonly plants: number;
  /** False if more may match. */
  readonly exact: boolean;
  /** Some plants that would be changed: as they are, and as they would be; undefined if removed. */
  readonly sample: readonly {
    readonly id: bigint;
    readonly now: Content;
    readonly after?: Content | undefined;
  }[];
}

/** What was done to all plants that match. */
export interface Bulk {
  readonly plants: number;
  readonly replaced: number;
  readonly removed: number;
  /** Plants that were in that state already. */
  readonly unchanged: number;
  /** Plants that others changed meanwhile. They were left alone. */
  readonly changedSince: number;
  readonly refused: number;
  /** The name of the work in the journal. */
  readonly batch: string;
}

/** The counts of a batch that was a job. */
export interface UpsertedByJob extends Bulk {
  readonly created: number;
}

export interface BulkOptions<Counts> extends WriteOptions {
  /** Called for each plant that was left alone. */
  readonly onLeft?: ((plant: RevertLeft) => void) | undefined;
  /** Called about once a second with the counts so far. */
  readonly onProgress?: ((counts: Counts) => void) | undefined;
  /**
   * The service finishes the work, even without this client: an abort ends only the wait for it, and `stopJob` the work.
   * `onLeft` is called at the end, for at most 100 plants.
   */
  readonly respondAsync?: boolean | undefined;
}

/** Work that the service finishes without its client. */
export interface Job {
  /** The name of the work in the journal. */
  readonly batch: string;
  readonly kind: "change" | "remove" | "revert" | "upsert";
  /** The name of the token. */
  readonly by: string;
  /** `lost`: the service that ran it was killed, or writes no progress. Send the request again to continue. */
  readonly state: "running" | "stopping" | "ended" | "lost";
  /** ISO 8601. */
  readonly started: string;
  /** Counts as in `Bulk` or `Reverted`. If it ended early, `complete` is false, and there is an error. */
  readonly report: Partial<Omit<UpsertedByJob & Reverted, "plants" | "batch">> & {
    readonly plants: number;
    readonly complete: boolean;
    readonly status?: number;
    readonly error?: number;
    readonly message?: string;
  };
  /** The first 100 plants that were left alone. */
  readonly left: readonly RevertLeft[];
}

interface BulkLine {
  readonly id?: string;
  readonly complete?: boolean;
  readonly status?: number;
  readonly error?: number;
  readonly message?: string;
}

/** Undefined if the text is not a line of a report. */
export function findBulkLine(text: string): BulkLine | undefined {
  const line = findJson(quoteIds(text));
  return typeof line === "object" && line !== null ? line : undefined;
}

/** Undefined if the text is not an array of jobs. */
export function findJobs(json: string): Job[] | undefined {
  const found = findJson(quoteIds(json)) as
    (Omit<Job, "left"> & { left: BulkLine[] })[] | undefined;
  const isJob = (value: unknown): boolean => {
    const { batch, state, report, left } = (value ?? {}) as Partial<Record<keyof Job, unknown>>;
    return (
      typeof batch === "string" &&
      typeof state === "string" &&
      typeof (report as Job["report"] | undefined)?.plants === "number" &&
      Array.isArray(left)
    );
  };
  if (!Array.isArray(found) || !found.every(isJob)) return undefined;
  return found.map((job) => Object.assign({}, job, { left: job.left.map(toLeft) }));
}

/** From a line with an id. */
export const toLeft = ({ id = "", error: code = 0, message = "" }: BulkLine): RevertLeft => ({
  id: BigInt(id),
  code,
  reason: nameOf(code),
  message,
});

/** Undefined if the text is not a preview. */
export function findPreview(json: string): RevertPreview | BulkPreview | undefined {
  const found = findJson(quoteIds(json)) as RevertPreview | BulkPreview | undefined;
  if (!Array.isArray(found?.sample) || typeof found.plants !== "number") return undefined;
  for (const plant of found.sample) Object.assign(plant, { id: BigInt(plant.id) });
  return found;
}

export interface ChangePage {
  readonly changes: readonly Change[];
  /** The `after` of the next page. */
  readonly last: number;
  readonly hasMore: boolean;
  /** The number of the newest change in the journal, whatever the filter. */
  readonly newest: number;
}

/** Keeps ids exact. Matches members only, because a quote inside a JSON string is escaped. */
export const quoteIds = (json: string): string => json.replaceAll(/"id":(-?\d+)/g, '"id":"$1"');

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
export function findNewest(headers: Headers): number | undefined {
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

export const formatChangeQuery = (query: ChangeQuery): string => formatPairs(pairsOf(query));

export const formatChangeCountQuery = ({ group, every, limit, ...query }: ChangeCountQuery) =>
  formatPairs({ ...pairsOf(query), limit, group: group?.join(","), every });
