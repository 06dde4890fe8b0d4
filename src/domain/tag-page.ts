/** Pages of the tags in use: what is asked for, and how a page is cut from their beginnings in order. */

/**
 * Tags are told apart, and listed, by their first 100 characters, which is what every engine can index. One
 * that has as many or more is not listed: nobody picks it from a list, and it would not fit into a link.
 */
export const HEAD_CHARACTERS = 100;
/** Beginnings that are looked at for one page, listed or not. */
export const HEADS_MAX = 2_000;
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
export interface TagHead {
  readonly head: string;
  readonly bytes: number;
}

/** The heads of a page are from here on, and before `until` where there is an end. */
export interface HeadRange {
  readonly from: string;
  readonly until: string | undefined;
}

/** Undefined where no tag can be on the page. */
export function findHeadRange({ prefix, after }: TagQuery): HeadRange | undefined {
  if (!isWhole(prefix)) return undefined;
  const behind = after === undefined ? prefix : findBehind(after);
  if (behind === undefined) return undefined;
  return { from: laterOf(behind, prefix), until: findEnd(prefix) };
}

/** Where the next head begins; undefined where there can be none. */
export function findBehind(head: string): string | undefined {
  // No text has U+0000 in it, so that the next one in order has a U+0001 more.
  return isWhole(head) ? `${head}\u0001` : findEnd(cut(head));
}

/**
 * Takes the page off heads in order. It ends at the limit, or early when enough has been looked at, however
 * many of them are too long to be listed. It is never without progress where there is a head.
 */
export function takeTags(heads: Iterable<TagHead>, limit: number): TagPage {
  const tags: string[] = [];
  let seen = 0;
  let bytesSeen = 0;
  let last: string | undefined;
  for (const { head, bytes } of heads) {
    if (tags.length === limit || seen === HEADS_MAX || bytesSeen > BYTES_MAX)
      return { tags, next: last };
    seen++;
    bytesSeen += bytes;
    last = head;
    if (isWhole(head)) tags.push(head);
  }
  return { tags, next: undefined };
}

/** Whether a head is the tag itself, and not the beginning of longer ones. */
export function isWhole(head: string): boolean {
  // An emoji is two units of a string, and one character.
  return head.length < HEAD_CHARACTERS || Array.from(head).length < HEAD_CHARACTERS;
}

const cut = (text: string): string => Array.from(text).slice(0, HEAD_CHARACTERS).join("");

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
