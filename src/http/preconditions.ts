/** If-Match and If-None-Match, RFC 9110 section 13: nobody overwrites unknowingly what another has written. */

import { Refusal } from "../domain/error.ts";
import { entityTagOf } from "../domain/plant.ts";
import type { Condition } from "../domain/store.ts";

/** An entity tag of a list, with the separator behind it. */
const ELEMENT = /((?:W\/)?"[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?:,|$)/y;
/** Empty elements are ignored, by section 5.6.1.2. */
const NOTHING = /[ \t,]*/y;

type Matcher = (entityTag: string) => boolean;

/** The condition that a change depends on. Throws a Refusal where the headers are malformed. */
export function parseCondition(headers: Headers): Condition {
  // A weak tag does not promise the same bytes, so that it never matches here (strong comparison).
  const match = parseMatcher(headers.get("if-match"), "strong");
  const noneMatch = parseMatcher(headers.get("if-none-match"), "weak");
  return (current) => {
    const entityTag = entityTagOf(current);
    return (match?.(entityTag) ?? true) && !(noneMatch?.(entityTag) ?? false);
  };
}

/** Whether the reader has these very bytes already. */
export function isUnmodified(headers: Headers, entityTag: string): boolean {
  return parseMatcher(headers.get("if-none-match"), "weak")?.(entityTag) ?? false;
}

function parseMatcher(header: string | null, comparison: "strong" | "weak"): Matcher | undefined {
  if (header === null) return undefined;
  if (header.trim() === "*") return () => true;
  const tags = parseTags(header);
  const comparable = comparison === "weak" ? tags.map((tag) => tag.replace(/^W\//, "")) : tags;
  return (entityTag) => comparable.includes(entityTag);
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
