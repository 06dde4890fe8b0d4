/** What a request's headers ask for: a form (Accept, Accept-Encoding, Prefer) or a condition (If-Match, If-None-Match). */

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
  const weigh = parseWeights(accept);
  let best = offers[0];
  let bestWeight = 0;
  for (const offer of offers) {
    const weight = weigh(offer, `${offer.split("/")[0]}/*`, "*/*");
    if (weight > bestWeight) [best, bestWeight] = [offer, weight];
  }
  return best;
}

/** RFC 9110, section 12.5.3. */
export const acceptsGzip = (header: string | null): boolean =>
  parseWeights(header ?? "")("gzip", "x-gzip", "*") > 0;

/** RFC 7240, sections 2 and 4.2: other preferences are ignored, and of two about the answer the first one counts. */
export function prefersMinimal(header: string | null): boolean {
  // A comma inside quotes does not end a preference.
  const preferences = header?.match(/(?:"[^"]*"|[^,"])+/g) ?? [];
  const given = preferences.map((text) => /^\s*return\s*=\s*"?([^\s";]*)/i.exec(text)?.[1]);
  return given.find((value) => value !== undefined) === "minimal";
}

/** Tells the weight of types or codings: that of the first name, the most specific one, that the client weighs. */
function parseWeights(header: string): (...names: readonly string[]) => number {
  const weights = new Map<string, number>();
  for (const element of header.toLowerCase().split(",")) {
    const [name = "", ...parameters] = element.split(";").map((part) => part.trim());
    const weight = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2);
    weights.set(name, weight === undefined ? 1 : Number(weight) || 0);
  }
  return (...names) =>
    names.map((name) => weights.get(name)).find((weight) => weight !== undefined) ?? 0;
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
export const isUnmodified = (headers: Headers, entityTag: string): boolean =>
  matches(parseEntityTags(headers.get("if-none-match"), "weak") ?? [], entityTag);

function parseEntityTags(
  header: string | null,
  comparison: "strong" | "weak",
): EntityTags | undefined {
  if (header === null) return undefined;
  if (header.trim() === "*") return "any";
  const tags = parseTags(header);
  return comparison === "weak" ? tags.map((tag) => tag.replace(/^W\//, "")) : tags;
}

/**
 * The next entity tag of a list, with the separator behind it. RFC 9110, section 5.6.1.2: empty elements are ignored.
 * Element by element: a client could make one expression for the whole list run for hours.
 */
const ELEMENT = /[ \t,]*(?:$|((?:W\/)?"[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?:,|$))/y;

function parseTags(header: string): string[] {
  const tags: string[] = [];
  ELEMENT.lastIndex = 0;
  do {
    const [found, tag] = ELEMENT.exec(header) ?? [];
    if (found === undefined) throw new Refusal("invalid_precondition");
    if (tag !== undefined) tags.push(tag);
  } while (ELEMENT.lastIndex < header.length);
  if (tags.length === 0) throw new Refusal("invalid_precondition");
  return tags;
}
