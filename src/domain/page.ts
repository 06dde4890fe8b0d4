/** Pages of plants and of tags: what a query asks for, and how a page is cut from rows in key order. */

import { createFilter, type Filter, needsScan } from "./filter.ts";
import { INT64_MAX, INT64_MIN, lengthOf, type ListedPlant } from "./plant.ts";

export const orders = ["asc", "desc"] as const;
export type Order = (typeof orders)[number];

export interface PlantQuery extends Filter {
  readonly after: bigint | undefined;
  readonly limit: number;
  readonly order: Order;
  /** Ends the page after this many characters; by default, after the limit of every page. */
  readonly charactersMax?: number | undefined;
}

export interface PlantPage {
  readonly plants: readonly ListedPlant[];
  /** The `after` of the next page; undefined on the last one. */
  readonly next: bigint | undefined;
}

export type PageForm = "json" | "ndjson" | "csv";

/** A page as it is sent, without the heading of a table. Bytes if another thread has made it. */
export type PageText = Readonly<{ text: string | Uint8Array; next: bigint | undefined }>;

/** How many plants a bounded piece of work has found. */
export type CountPage = Readonly<{ count: number; next: bigint | undefined }>;

/** `exact` is false if there may be more. */
export type PlantCount = Readonly<{ count: number; exact: boolean }>;

/** The first id that may be on the page; undefined if there can be none. */
export function firstIdOf({ after, order }: PlantQuery): bigint | undefined {
  const isUp = order === "asc";
  if (after === undefined) return isUp ? INT64_MIN : INT64_MAX;
  if (after === (isUp ? INT64_MAX : INT64_MIN)) return undefined;
  return isUp ? after + 1n : after - 1n;
}

/** Names may be long: a page of long names is a shorter page, whatever its limit. */
const CHARACTERS_MAX = 2_097_152;
const SEARCH_MS_MAX = 50;

/**
 * A page that grows row by row, in key order. It ends at the limit, or early: at a bound on rows and characters, and
 * in a search on time. It holds at least one row if there is one, or has looked at one.
 */
export function createPage(
  query: PlantQuery,
  scanRowsMax: number,
  searchMsMax = SEARCH_MS_MAX,
  now = () => performance.now(),
) {
  const { limit, charactersMax = CHARACTERS_MAX } = query;
  const accepts = needsScan(query) ? createFilter(query) : undefined;
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

    /** False if the page is over before this row. */
    add(row: ListedPlant): boolean {
      if (plants.length === limit || seen >= scanRowsMax) return false;
      if (characters > charactersMax) return false;
      if (accepts !== undefined && seen > 0 && now() > endsAtMs) return false;
      seen++;
      characters += lengthOf(row);
      last = row;
      if (accepts === undefined || accepts(row)) plants.push(row);
      return true;
    },

    /** Rows that the database has looked at, and that do not match. */
    skip(rows: number): void {
      seen += rows;
    },

    /** How many rows a search may still look at: one at least, to know whether there are others. */
    rowsLeft: (rowsMax: number): number => Math.max(1, Math.min(rowsMax, scanRowsMax - seen)),
  };
}

/** Every engine indexes the first 100 characters of a tag. A longer tag is not listed: it does not fit into a link. */
export const TAG_PREFIX_CHARACTERS = 100;
/** Prefixes that one page looks at, listed or not. */
export const TAG_PREFIXES_MAX = 2_000;
/** Looking at a prefix reads its whole tag. */
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

/** The first characters of one or more tags, and how many bytes it takes to look at them. */
export type TagPrefix = Readonly<{ head: string; bytes: number | bigint }>;

/** Takes a page off prefixes in order. It ends at the limit, or early when it has looked at enough, listed or not. */
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
    // The whole tag. An emoji is two units of a string, and one character.
    if (Array.from(head).length < TAG_PREFIX_CHARACTERS) tags.push(head);
  }
  return { tags, next: undefined };
}
