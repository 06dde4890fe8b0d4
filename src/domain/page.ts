/** Pages of plants and of tags: what a query asks for, and how a page is cut from rows in key order. */

import { INT64_MAX, INT64_MIN } from "./json.ts";
import { lengthOf, type ListedPlant } from "./plant.ts";

export const orders = ["asc", "desc"] as const;
export type Order = (typeof orders)[number];

export interface PlantQuery {
  /** The id of the last plant seen; the page begins after it. */
  readonly after: bigint | undefined;
  readonly limit: number;
  /** Exactly this tag. */
  readonly tag: string | undefined;
  /** A part of the name, in any case. */
  readonly name: string | undefined;
  /** Each of its words is in the name or in the tag, in any case, with or without accents. */
  readonly q?: string | undefined;
  /** By id. */
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
export interface PageText {
  readonly text: string | Uint8Array;
  readonly next: bigint | undefined;
}

/** What is counted. */
export type CountQuery = Partial<Pick<PlantQuery, "tag" | "name" | "q">>;

/** How many plants a bounded piece of work has found. */
export interface CountPage {
  readonly count: number;
  /** The `after` of the next piece; undefined after the last one. */
  readonly next: bigint | undefined;
}

export interface PlantCount {
  readonly count: number;
  /** False if there may be more. */
  readonly exact: boolean;
}

/** Whether plants have to be looked at to know whether they match. */
export const isSearch = ({ name, q }: CountQuery): boolean => name !== undefined || q !== undefined;

/** The first id that may be on the page; undefined if there can be none. */
export function firstIdOf({ after, order }: PlantQuery): bigint | undefined {
  const isUp = order === "asc";
  if (after === undefined) return isUp ? INT64_MIN : INT64_MAX;
  if (after === (isUp ? INT64_MAX : INT64_MIN)) return undefined;
  return isUp ? after + 1n : after - 1n;
}

/** Names may be long: a page of long names is a shorter page, whatever its limit. */
const CHARACTERS_MAX = 2_097_152;
/** How long a search looks for a page. */
const SEARCH_MS_MAX = 50;

/**
 * A page that grows row by row, in key order. It ends at the limit, or early: after so many rows or characters, and in
 * a search after so much time, whatever was found. So no page takes more than its share of time or memory. It holds at
 * least one row if there is one, or has looked at one.
 */
export function createPage(
  query: PlantQuery,
  scanRowsMax: number,
  searchMsMax = SEARCH_MS_MAX,
  now = () => performance.now(),
) {
  const { limit, charactersMax = CHARACTERS_MAX } = query;
  const accepts = isSearch(query) ? createFilter(query) : undefined;
  const endsAtMs = now() + searchMsMax;
  const plants: ListedPlant[] = [];
  let last: ListedPlant | undefined;
  let seen = 0;
  let characters = 0;
  return {
    plants,

    /** Of the last row that was looked at. */
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

/** More words would take too long with a long name. */
export const WORDS_MAX = 16;

export const splitWords = (q: string): string[] => q.split(/\s+/u).filter((word) => word !== "");

/** Which plants a search finds. */
export function createFilter(query: CountQuery): (plant: ListedPlant) => boolean {
  const part = query.name === undefined ? undefined : fold(query.name);
  const words = splitWords(query.q ?? "").map(foldAccents);
  return ({ name, tag }) => {
    if (part !== undefined && !isPartOf(part, fold(name))) return false;
    if (words.length === 0) return true;
    const texts = (tag === undefined ? [name] : [name, tag]).map(foldAccents);
    return words.every((word) => texts.some((text) => isPartOf(word, text)));
  };
}

/**
 * A text in ASCII, in upper case. A plant whose name and tag are ASCII and do not contain it, in any case, is not found
 * by the search, so a database can pass over it. Undefined if there is no such text.
 */
export function findHint({ name, q = "" }: CountQuery): string | undefined {
  const parts = [...splitWords(q).map(foldAccents), ...(name === undefined ? [] : [fold(name)])];
  const plain = parts.filter((part) => part !== "" && !BEYOND_ASCII.test(part));
  // The longest is the rarest. It is cut because a database compares it at every character.
  const longest = plain.toSorted((one, other) => other.length - one.length)[0];
  return longest?.slice(0, SHORT_PART_MAX);
}

/** String.includes takes up to this many steps a character. */
const SHORT_PART_MAX = 8;

/** Takes time in proportion to the text. With a long part, String.includes would take more. */
const isPartOf = (part: string, text: string): boolean =>
  part.length <= SHORT_PART_MAX ? text.includes(part) : Buffer.from(text).includes(part);

const BEYOND_ASCII = /[\u0080-\uffff]/;
/** No letter below these has a composed form with a mark. */
const COMPOSABLE = /[\u0300-\uffff]/;
/** The marks of Latin, Greek and Cyrillic. Those of other scripts tell words apart. */
const ACCENTS = /[\u0300-\u036f]/g;
/** Composing orders the marks on a letter, which takes a square of their number. */
const TOO_MANY_MARKS = /\p{M}{32}/u;
/** Composing takes up to half a microsecond a character. */
const COMPOSED_CHARACTERS_MAX = 4_096;

/**
 * Case folding, in one place for every engine: composed (NFC), then in Unicode upper case, which depends neither on a
 * locale nor, as lower case does for Σ, on the letters around. A name of more than 4,096 characters, or with 32 marks
 * in a row, is not composed: it is found by the characters that it was written with.
 */
const fold = (text: string): string =>
  (COMPOSABLE.test(text) && isNormalized(text) ? text.normalize("NFC") : text).toUpperCase();

/** The same without accents: É is E. */
function foldAccents(text: string): string {
  const hasAccents = BEYOND_ASCII.test(text) && isNormalized(text);
  return (hasAccents ? text.normalize("NFD").replace(ACCENTS, "") : text).toUpperCase();
}

const isNormalized = (text: string): boolean =>
  text.length <= COMPOSED_CHARACTERS_MAX && !TOO_MANY_MARKS.test(text);

/**
 * Every engine indexes the first 100 characters of a tag, so tags are told apart and listed by them. A tag of 100
 * characters or more is not listed: it is too long to pick from a list, and does not fit into a link.
 */
export const TAG_PREFIX_CHARACTERS = 100;
/** Prefixes that one page looks at, listed or not. */
export const TAG_PREFIXES_MAX = 2_000;
/** Looking at a prefix reads its whole tag. */
const BYTES_MAX = 4_194_304;

export interface TagQuery {
  /** The tags begin with this. */
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
export interface TagPrefix {
  readonly head: string;
  readonly bytes: number | bigint;
}

/**
 * Takes a page off prefixes in order. It ends at the limit, or early when it has looked at enough, listed or not. It
 * makes progress if there is a prefix.
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
    bytesSeen += Number(bytes);
    last = head;
    if (isComplete(head)) tags.push(head);
  }
  return { tags, next: undefined };
}

/** Whether a prefix is the whole tag, and not the beginning of longer ones. */
function isComplete(head: string): boolean {
  // An emoji is two units of a string, and one character.
  return head.length < TAG_PREFIX_CHARACTERS || Array.from(head).length < TAG_PREFIX_CHARACTERS;
}
