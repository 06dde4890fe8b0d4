/** If-Match and If-None-Match, RFC 9110 section 13: nobody overwrites unknowingly what another has written. */

import { Refusal } from "../domain/error.ts";
import { entityTagOf } from "../domain/plant.ts";
import type { Condition } from "../domain/store.ts";

/** `*`, or a list of entity tags, each strong or weak. */
const ENTITY_TAG = /(?:W\/)?"[\x21\x23-\x7e\x80-\xff]*"/;
const ENTITY_TAGS = new RegExp(`^\\s*${ENTITY_TAG.source}(?:\\s*,\\s*${ENTITY_TAG.source})*\\s*$`);

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
  if (!ENTITY_TAGS.test(header)) throw new Refusal("invalid_precondition");
  const tags = header.match(new RegExp(ENTITY_TAG.source, "g")) ?? [];
  const comparable = comparison === "weak" ? tags.map((tag) => tag.replace(/^W\//, "")) : tags;
  return (entityTag) => comparable.includes(entityTag);
}
