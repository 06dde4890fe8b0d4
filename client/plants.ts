/** Plants on the wire. An id is a bigint, never a number, so no digit is lost. */

import { findJson } from "./errors.ts";

/** A plant without its id. */
export interface Content {
  readonly name: string;
  /** Undefined if the plant has none. */
  readonly tag?: string | undefined;
}

export interface Plant extends Content {
  /** Any int64. */
  readonly id: bigint;
  /** When it last changed (ISO 8601), with `include`. Undefined if that is not known. */
  readonly changed?: string | undefined;
}

/** A plant to create, or the replacement of one. */
export type NewPlant = Plant;

/** A plant with the entity tag of its content, for `ifMatch`. */
export interface Versioned {
  readonly plant: Plant;
  readonly etag: string;
}

/** A merge patch: members that are left out stay as they are, and null removes the tag. */
export interface PlantPatch {
  readonly name?: string | undefined;
  readonly tag?: string | null | undefined;
}

export interface Filter {
  /** Exactly this tag. */
  readonly tag?: string | undefined;
  /** A substring of the name, case-insensitive. */
  readonly name?: string | undefined;
  /** Words in any order. Each must be in the name or the tag; case and accents are ignored. */
  readonly q?: string | undefined;
  /** Whether the plant has a tag. */
  readonly tagged?: boolean | undefined;
  /** By id; ascending by default. */
  readonly order?: "asc" | "desc" | undefined;
}

/** Which plants a bulk change concerns: those that match, or all of the store. */
export interface BulkFilter extends Filter {
  /** Every plant, in place of a filter. */
  readonly all?: boolean | undefined;
  /** Not these. Their ids are in the URL, which has at most 8,192 bytes. */
  readonly except?: readonly bigint[] | undefined;
}

export interface ListQuery extends Filter {
  /** The id of the last plant seen; the list begins after it. */
  readonly after?: bigint | undefined;
  /** Adds the time of the last change to each plant. */
  readonly include?: "changed" | undefined;
}

export interface PageQuery extends ListQuery {
  /** 1 to 1000, 100 by default. A page may be shorter and still have a next one. */
  readonly limit?: number | undefined;
}

export interface SortedQuery extends Pick<PageQuery, "limit" | "include">, Omit<Filter, "order"> {
  /** By name, tag or time of the last change; `-` for descending. */
  readonly sort: "name" | "-name" | "tag" | "-tag" | "changed" | "-changed";
  /** The `cursor` of the page before, with the same sort. */
  readonly cursor?: string | undefined;
}

export interface SortedPage {
  readonly plants: readonly Plant[];
  /** The `cursor` of the next page; undefined on the last one. */
  readonly cursor: string | undefined;
}

export interface Page {
  readonly plants: readonly Plant[];
  /** The `after` of the next page; undefined on the last one. */
  readonly next: bigint | undefined;
}

export interface TagQuery {
  readonly prefix?: string | undefined;
  /** The last tag seen; the page begins after it. */
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
}

export interface TagPage {
  readonly tags: readonly string[];
  /** The `after` of the next page; undefined on the last one. */
  readonly next: string | undefined;
}

export interface Count {
  readonly count: number;
  /** False if there may be more. */
  readonly exact: boolean;
}

/** If it is not exact, `next` is the `after` of the count that continues it. */
export interface PlantCount extends Count {
  readonly next?: bigint;
}

export interface TagCount extends Count {
  readonly tag: string;
}

export interface TagCountPage {
  readonly tags: readonly TagCount[];
  /** The `after` of the next page; undefined on the last one. */
  readonly next: string | undefined;
}

export function isCount(value: unknown): value is Count {
  const { count, exact } = (value ?? {}) as Partial<Count>;
  return typeof count === "number" && typeof exact === "boolean";
}

export const isTagCount = (value: unknown): value is TagCount =>
  isCount(value) && typeof (value as Partial<TagCount>).tag === "string";

/** The token that was sent, as the service knows it. */
export interface TokenFacts {
  readonly name: string;
  /** The first characters of the token; a token from the service's environment has none. */
  readonly prefix?: string;
  readonly scopes: readonly string[];
  /** ISO 8601; undefined if it does not expire. */
  readonly expires?: string;
}

/** Throws a TypeError unless the id is a bigint: a number may have lost digits. */
export function formatPlant({ id, name, tag }: NewPlant, more: object = {}): string {
  return `{"id":${formatId(id)},${JSON.stringify({ name, tag, ...more }).slice(1)}`;
}

export function formatId(id: bigint): string {
  if (typeof id === "bigint") return String(id);
  throw new TypeError(`id: expected a bigint, got ${typeof id}`);
}

/** A missing name does not compile: if a filter is not sent, every plant matches. */
const queryNames: Readonly<Record<keyof PageQuery | keyof SortedQuery | keyof TagQuery, true>> = {
  prefix: true,
  tag: true,
  name: true,
  q: true,
  tagged: true,
  order: true,
  sort: true,
  cursor: true,
  after: true,
  limit: true,
  include: true,
};
/** Other members of the given object are not sent. */
const QUERY_NAMES = Object.keys(queryNames);

export function formatQuery(query: PageQuery | SortedQuery | TagQuery): string {
  const values: Readonly<Record<string, unknown>> = { ...query };
  return formatPairs(Object.fromEntries(QUERY_NAMES.map((name) => [name, values[name]])));
}

/** Starts with a question mark, or is empty. */
export function formatPairs(values: Readonly<Record<string, unknown>>): string {
  const present = Object.entries(values).filter(([, value]) => value !== undefined);
  const pairs = present.map(([name, value]): [string, string] => [name, String(value)]);
  return present.length === 0 ? "" : `?${new URLSearchParams(pairs)}`;
}

/** The `after` of `Link: <…after=…>; rel="next"`; undefined without a link, null if the link has no `after`. */
export function findNext(
  headers: Headers,
  name: "after" | "cursor" = "after",
): string | undefined | null {
  const link = /<([^>]*)>\s*;\s*rel="?next"?/.exec(headers.get("link") ?? "")?.[1];
  if (link === undefined) return undefined;
  return new URLSearchParams(link.replace(/^[^?]*/, "")).get(name);
}

/** Undefined without an entity tag. `*` is none: as `ifMatch` it would match any content. */
export const findEtag = (headers: Headers): string | undefined =>
  /^(W\/)?".*"$/.exec(headers.get("etag") ?? "")?.[0];

/** The plant without its id, in answer to a write; undefined if the text is something else. */
export function findContent(json: string): Content | undefined {
  const { name, tag } = (findJson(json) ?? {}) as Partial<Content>;
  return typeof name === "string" ? { name, tag } : undefined;
}

/**
 * The service writes the id first in every plant. A quote inside a JSON string is escaped, so `{"id":` occurs only at
 * the start of a plant, and putting its digits into quotes keeps them exact.
 */
const ID_MEMBER = /\{"id":(-?\d+)/g;

/** Undefined if the text is not an array of plants. */
export function findPlants(json: string): Plant[] | undefined {
  const found = findJson(json.replaceAll(ID_MEMBER, '{"id":"$1"'));
  if (!Array.isArray(found)) return undefined;
  const plants = found.flatMap((value: unknown) => findPlant(value) ?? []);
  return plants.length === found.length ? plants : undefined;
}

function findPlant(value: unknown): Plant | undefined {
  const { id, name, tag, changed } = (value ?? {}) as Record<keyof Plant, unknown>;
  const isPlant = typeof id === "string" && typeof name === "string";
  if (!isPlant || (tag !== undefined && typeof tag !== "string")) return undefined;
  if (!/^-?\d+$/.test(id)) return undefined;
  return {
    id: BigInt(id),
    name,
    ...(tag !== undefined && { tag }),
    ...(typeof changed === "string" && { changed }),
  };
}
