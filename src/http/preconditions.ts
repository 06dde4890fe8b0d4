/** If-Match and If-None-Match, RFC 9110 section 13: nobody overwrites unknowingly what another has written. */

import { type Condition, type EntityTags, matches } from "../domain/plant.ts";
import { Refusal } from "../domain/errors.ts";

/** An entity tag of a list, with the separator behind it. */
const ELEMENT = /((?:W\/)?"[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?:,|$)/y;
/** Empty elements are ignored, by section 5.6.1.2. */
const NOTHING = /[ \t,]*/y;

/** The condition that a change depends on. Throws a Refusal where the headers are malformed. */
export function parseCondition(headers: Headers): Condition {
  // A weak tag does not promise the same bytes, so that it never matches here (strong comparison).
  return {
    match: parseEntityTags(headers.get("if-match"), "strong"),
    noneMatch: parseEntityTags(headers.get("if-none-match"), "weak"),
  };
}

/** Whether the reader has these very bytes already. */
export function isUnmodified(headers: Headers, entityTag: string): boolean {
  return matches(parseEntityTags(headers.get("if-none-match"), "weak") ?? [], entityTag);
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

/** Element by element: one expression for the whole list could be made to take for ever. */
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
  NOTHING.lastIndex = from;
  NOTHING.exec(header);
  return NOTHING.lastIndex;
}
