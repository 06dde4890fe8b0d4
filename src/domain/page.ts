/** Pages of plants and of tags: what a query asks for, and how a page is cut from rows in key order. */

import { INT64_MAX, INT64_MIN } from "./json.ts";
import type { Plant } from "./plant.ts";

export const orders = ["asc", "desc"] as const;
export type Order = (typeof orders)[number];

export interface PlantQuery {
  /** The id of the last plant seen; the page begins behind it. */
  readonly after: bigint | undefined;
  readonly limit: number;
  /** Exactly this tag. */
  readonly tag: string | undefined;
  /** A part of the name, in any case. */
  readonly name: string | undefined;
  /** By id. */
  readonly order: Order;
}

export interface PlantPage {
  readonly plants: readonly Plant[];
  /** The `after` of the next page; undefined where this is the last. */
  readonly next: bigint | undefined;
}

/** The first id that may be on the page; undefined where none can be. */
export function firstIdOf({ after, order }: PlantQuery): bigint | undefined {
  if (order === "asc") {
    if (after === undefined) return INT64_MIN;
    return after === INT64_MAX ? undefined : after + 1n;
  }
  if (after === undefined) return INT64_MAX;
  return after === INT64_MIN ? undefined : after - 1n;
}

/** Names may be long: a page of long ones is a shorter page, whatever its limit. */
const CHARACTERS_MAX = 2_097_152;

/**
 * Takes the page off rows in key order. It ends at the limit, or early when that many rows or characters
 * have been looked at, whatever was found: so no page and no search takes more than its share of time or
 * memory. It is never without a row where there is one.
 */
export function takePage(
  rows: Iterable<Plant>,
  { limit, name }: PlantQuery,
  scanRowsMax: number,
): PlantPage {
  const part = name === undefined ? undefined : fold(name);
  const plants: Plant[] = [];
  let seen = 0;
  let characters = 0;
  let lastId: bigint | undefined;
  for (const row of rows) {
    const isFull = plants.length === limit || seen === scanRowsMax || characters > CHARACTERS_MAX;
    if (isFull) return { plants, next: lastId };
    seen++;
    characters += row.name.length + (row.tag?.length ?? 0);
    lastId = row.id;
    if (part === undefined || fold(row.name).includes(part)) plants.push(row);
  }
  return { plants, next: undefined };
}

/** Below these letters nothing composes; and a run of marks this long is no text, but takes a square of its length to order. */
const COMPOSABLE = /[\u0300-\uffff]/;
const MARKS_WITHOUT_END = /\p{M}{32}/u;

/**
 * Case folding, in this one place for every engine: composed (NFC), then in Unicode upper case, which
 * depends neither on a locale nor, as lower case does for Σ, on the letters around.
 */
function fold(text: string): string {
  const composes = COMPOSABLE.test(text) && !MARKS_WITHOUT_END.test(text);
  return (composes ? text.normalize("NFC") : text).toUpperCase();
}

/**
 * Tags are told apart, and listed, by their first 100 characters, which is what every engine can index. One
 * that has as many or more is not listed: nobody picks it from a list, and it would not fit into a link.
 */
export const TAG_PREFIX_CHARACTERS = 100;
/** Beginnings that are looked at for one page, listed or not. */
export const TAG_PREFIXES_MAX = 2_000;
/** A long tag is read as a whole where it is looked at. */
const BYTES_MAX = 4_194_304;

export interface TagQuery {
  /** The tags begin with this. */
  readonly prefix: string;
  /** The last tag seen; the page begins behind it. Empty, it is the empty tag. */
  readonly after: string | undefined;
  readonly limit: number;
}

export interface TagPage {
  /** Each once, in the order of their UTF-8 bytes. */
  readonly tags: readonly string[];
  /** The `after` of the next page; undefined where this is the last. */
  readonly next: string | undefined;
}

/** The beginning that one tag or many have in common, and what it takes to look at it. */
export interface TagPrefix {
  readonly head: string;
  readonly bytes: number;
}

/** The heads of a page are from here on, and before `until` where there is an end. */
export interface TagPrefixRange {
  readonly from: string;
  readonly until: string | undefined;
}

/** Undefined where no tag can be on the page. */
export function findTagPrefixRange({ prefix, after }: TagQuery): TagPrefixRange | undefined {
  if (!isComplete(prefix)) return undefined;
  const behind = after === undefined ? prefix : findBehind(after);
  if (behind === undefined) return undefined;
  return { from: laterOf(behind, prefix), until: findEnd(prefix) };
}

/** Where the next head begins; undefined where there can be none. */
export function findBehind(head: string): string | undefined {
  // No text has U+0000 in it, so that the next one in order has a U+0001 more.
  return isComplete(head) ? `${head}\u0001` : findEnd(cut(head));
}

/**
 * Takes the page off heads in order. It ends at the limit, or early when enough has been looked at, however
 * many of them are too long to be listed. It is never without progress where there is a head.
 */
export function takeTags(heads: Iterable<TagPrefix>, limit: number): TagPage {
  const tags: string[] = [];
  let seen = 0;
  let bytesSeen = 0;
  let last: string | undefined;
  for (const { head, bytes } of heads) {
    if (tags.length === limit || seen === TAG_PREFIXES_MAX || bytesSeen > BYTES_MAX)
      return { tags, next: last };
    seen++;
    bytesSeen += bytes;
    last = head;
    if (isComplete(head)) tags.push(head);
  }
  return { tags, next: undefined };
}

/** Whether a head is the tag itself, and not the beginning of longer ones. */
export function isComplete(head: string): boolean {
  // An emoji is two units of a string, and one character.
  return head.length < TAG_PREFIX_CHARACTERS || Array.from(head).length < TAG_PREFIX_CHARACTERS;
}

const cut = (text: string): string => Array.from(text).slice(0, TAG_PREFIX_CHARACTERS).join("");

/** The first text behind all that begin with this one, in the order of code points, which is that of UTF-8. */
function findEnd(prefix: string): string | undefined {
  const characters = Array.from(prefix);
  for (let last = characters.pop(); last !== undefined; last = characters.pop()) {
    const code = last.codePointAt(0) as number;
    // Behind the last of all there is none; the surrogates in the midst are no characters.
    if (code < 0x10ffff)
      return characters.join("") + String.fromCodePoint(code === 0xd7ff ? 0xe000 : code + 1);
  }
  return undefined;
}

/** In the order of UTF-8, which is not that of strings. */
const laterOf = (one: string, other: string): string =>
  Buffer.compare(Buffer.from(one), Buffer.from(other)) > 0 ? one : other;
