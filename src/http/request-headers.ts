/** What a request's headers ask for: a form (Accept, Accept-Encoding) or a condition (If-Match, If-None-Match). */

import { Refusal } from "../domain/errors.ts";
import { type Condition, type EntityTags, matches } from "../domain/plant.ts";

export const JSON_TYPE = "application/json";
/** One format under three names; the client gets the name that it asked for. */
export const NDJSON_TYPES = [
  "application/x-ndjson",
  "application/ndjson",
  "application/jsonl",
] as const;

/**
 * The offer with the highest weight, RFC 9110 section 12.5.1. The first offer if the client has no preference or
 * accepts none of them.
 */
export function chooseForm<Form extends string>(
  accept: string | null,
  offers: readonly [Form, ...Form[]],
): Form {
  if (accept === null || accept === "*/*") return offers[0];
  const ranges = accept.split(",").map(parseRange);
  let best = offers[0];
  let bestWeight = 0;
  for (const offer of offers) {
    const weight = weigh(offer, ranges);
    if (weight > bestWeight) [best, bestWeight] = [offer, weight];
  }
  return best;
}

interface Range {
  readonly type: string;
  readonly weight: number;
}

function parseRange(text: string): Range {
  const [type = "", ...parameters] = text.split(";").map((part) => part.trim().toLowerCase());
  const weight = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2);
  return { type, weight: weight === undefined ? 1 : Number(weight) || 0 };
}

/** The most specific range that covers the offer decides. */
function weigh(offer: string, ranges: readonly Range[]): number {
  const covering = [offer, `${offer.split("/")[0]}/*`, "*/*"];
  for (const type of covering) {
    const range = ranges.find((candidate) => candidate.type === type);
    if (range !== undefined) return range.weight;
  }
  return 0;
}

/** RFC 9110, section 12.5.3. */
const GZIP = /^(gzip|x-gzip|\*)(?:[ \t]*;[ \t]*q=([\d.]+))?$/;

export function acceptsGzip(header: string | null): boolean {
  const codings = (header ?? "").split(",").map((coding) => GZIP.exec(coding.trim().toLowerCase()));
  // A weight for gzip by name counts for more than a weight for all.
  const named = codings.find((match) => match !== null && match[1] !== "*");
  const found = named ?? codings.find((match) => match !== null);
  return found !== undefined && found !== null && Number(found[2] ?? 1) > 0;
}

/** The condition of a change, RFC 9110 section 13. Throws a Refusal if a header is malformed. */
export function parseCondition(headers: Headers): Condition {
  return {
    // A weak tag does not promise the same bytes, so it never matches here (strong comparison).
    match: parseEntityTags(headers.get("if-match"), "strong"),
    noneMatch: parseEntityTags(headers.get("if-none-match"), "weak"),
  };
}

/** Whether the client already has these bytes. */
export function isUnmodified(headers: Headers, entityTag: string): boolean {
  const header = headers.get("if-none-match");
  return header !== null && matches(parseEntityTags(header, "weak") ?? [], entityTag);
}

function parseEntityTags(
  header: string | null,
  comparison: "strong" | "weak",
): EntityTags | undefined {
  if (header === null) return undefined;
  if (header.trim() === "*") return "any";
  const tags = parseTags(header);
  return comparison === "weak" ? tags.map((tag) => tag.replace(/^W\//, "")) : tags;
}

/** An entity tag of a list, with the separator behind it. */
const ELEMENT = /((?:W\/)?"[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?:,|$)/y;
/** RFC 9110, section 5.6.1.2: empty elements are ignored. */
const EMPTY_ELEMENTS = /[ \t,]*/y;

/** Element by element: a client could make one expression for the whole list run for hours. */
function parseTags(header: string): string[] {
  const tags: string[] = [];
  for (let at = skip(header, 0); at < header.length; at = skip(header, ELEMENT.lastIndex)) {
    ELEMENT.lastIndex = at;
    const tag = ELEMENT.exec(header)?.[1];
    if (tag === undefined) throw new Refusal("invalid_precondition");
    tags.push(tag);
  }
  if (tags.length === 0) throw new Refusal("invalid_precondition");
  return tags;
}

function skip(header: string, from: number): number {
  EMPTY_ELEMENTS.lastIndex = from;
  EMPTY_ELEMENTS.exec(header);
  return EMPTY_ELEMENTS.lastIndex;
}
