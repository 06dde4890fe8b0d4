/** Pages of plants and tags: their queries, and how a page is built from rows in key order. */

import { createFilter, narrows, needsScan, type Selection, tagsOf } from "./filter.ts";
import { INT64_MAX, INT64_MIN } from "./json.ts";
import { lengthOf, type ListedPlant } from "./plant.ts";

export const orders = ["asc", "desc"] as const;
export type Order = (typeof orders)[number];

/** Orders other than by id. */
export const sortNames = ["name", "tag", "changed"] as const;
export type SortName = (typeof sortNames)[number];

export interface Sort {
  readonly by: SortName;
  readonly isDescending: boolean;
  /** The page begins after this position. */
  readonly after?: Position | undefined;
}

/** Where a plant stands in a list. */
export interface Position {
  /** Null for a plant without a tag, or without a known change: it comes last, in both directions. */
  readonly key: string | number | null;
  readonly id: bigint;
}

export interface PlantQuery extends Selection {
  readonly after: bigint | undefined;
  readonly limit: number;
  readonly order: Order;
  /** In place of `order` and `after`. */
  readonly sort?: Sort | undefined;
  /** Lists each plant with the time of its last change. */
  readonly hasTimes?: boolean | undefined;
  /** Ends the page after this many characters; by default CHARACTERS_MAX. */
  readonly charactersMax?: number | undefined;
}

export interface PlantPage {
  readonly plants: readonly ListedPlant[];
  /** The `after` of the next page; undefined on the last one, and in a sorted list. */
  readonly next: bigint | undefined;
  /** Of a sorted list: the position after which the next page begins. */
  readonly nextPosition?: Position | undefined;
}

export type PageForm = "json" | "ndjson" | "csv";

/** The body of a page, without a table's heading. Bytes if another thread made it. */
export type PageText = Omit<PlantPage, "plants"> & { readonly text: string | Uint8Array };

/** Counts the plants after this id, or all. */
export type CountQuery = Selection & { readonly after?: bigint | undefined };

/** The count of a bounded scan, and where the next one continues. */
export type CountPage = Readonly<{ count: number; next: bigint | undefined }>;

/** `exact` is false if there may be more; then `next` is where another count continues. */
export type PlantCount = Readonly<{ count: number; exact: boolean; next?: bigint | undefined }>;

/** Read at once. Larger pages are queued with the long reads. */
export const SMALL_PAGE_LENGTH = 100;

/** The first id that may be on the page; undefined if there can be none. */
export function firstIdOf(query: PlantQuery): bigint | undefined {
  const { after, order } = query;
  if (tagsOf(query)?.length === 0) return undefined;
  const isUp = order === "asc";
  if (after === undefined) return isUp ? INT64_MIN : INT64_MAX;
  if (after === (isUp ? INT64_MAX : INT64_MIN)) return undefined;
  return isUp ? after + 1n : after - 1n;
}

/** Bounds a page of long names, whatever its limit. */
export const CHARACTERS_MAX = 2_097_152;
const SEARCH_MS_MAX = 50;
/** Rows that a search scans before its time counts: a slow database must not make pages of one row. */
export const SEARCH_ROWS_MIN = 500;

/**
 * Builds a page row by row, in key order. The page ends at its limit, or early: at a bound on rows and characters and,
 * for a search, on time. It scans at least one row, if there is one.
 */
export function createPage(
  query: PlantQuery,
  scanRowsMax: number,
  searchMsMax = SEARCH_MS_MAX,
  now = () => performance.now(),
) {
  const { limit, charactersMax = CHARACTERS_MAX } = query;
  const searches = needsScan(query);
  // Also without a search: the tag of a plant may have changed while its long text was read.
  const accepts = narrows(query) ? createFilter(query) : undefined;
  const endsAtMs = now() + searchMsMax;
  const plants: ListedPlant[] = [];
  let last: ListedPlant | undefined;
  let seen = 0;
  let characters = 0;
  return {
    plants,

    get lastId(): bigint | undefined {
      return last && BigInt(last.id);
    },

    /** False if the page ended before this row. */
    add(row: ListedPlant): boolean {
      if (plants.length === limit || seen >= scanRowsMax) return false;
      if (characters > charactersMax) return false;
      if (searches && seen >= SEARCH_ROWS_MIN && now() > endsAtMs) return false;
      seen++;
      characters += lengthOf(row);
      last = row;
      if (accepts === undefined || accepts(row)) plants.push(row);
      return true;
    },

    /** Counts rows that the database has scanned without a match. */
    skip(rows: number): void {
      seen += rows;
    },

    /** Rows that a search may still scan: at least one, to know whether there are more. */
    rowsLeft: (rowsMax: number): number => Math.max(1, Math.min(rowsMax, scanRowsMax - seen)),
  };
}

/** Every engine indexes the first 100 characters of a tag. Longer tags are not listed: they do not fit into a link. */
export const TAG_PREFIX_CHARACTERS = 100;
/** Prefixes that one page scans, listed or not. */
export const TAG_PREFIXES_MAX = 2_000;
/** Scanning a prefix reads its whole tag. */
const BYTES_MAX = 4_194_304;

export interface TagQuery {
  readonly prefix: string;
  /** The last tag seen; the page begins after it. The empty string is the empty tag. */
  readonly after: string | undefined;
  readonly limit: number;
}

export interface TagPage {
  /** Each once, in the order of their UTF-8 bytes. */
  readonly tags: readonly string[];
  /** The `after` of the next page; undefined on the last one. */
  readonly next: string | undefined;
}

/** The first characters of one or more tags, and the bytes read to find them. */
export type TagPrefix = Readonly<{ head: string; bytes: number | bigint }>;

/** Builds a page from prefixes in order. It ends at the limit, or early when it has scanned enough, listed or not. */
export function takeTags(heads: Iterable<TagPrefix>, limit: number): TagPage {
  const tags: string[] = [];
  let seen = 0;
  let bytesSeen = 0;
  let last: string | undefined;
  for (const { head, bytes } of heads) {
    if (tags.length === limit || seen === TAG_PREFIXES_MAX || bytesSeen > BYTES_MAX)
      return { tags, next: last };
    seen++;
    bytesSeen += Number(bytes);
    last = head;
    // This is the whole tag. An emoji is two UTF-16 units, but one character.
    if (Array.from(head).length < TAG_PREFIX_CHARACTERS) tags.push(head);
  }
  return { tags, next: undefined };
}
