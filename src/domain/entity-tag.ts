/** Entity tags, and the preconditions of writes. */

import { formatStoredPlant, type Content, type Plant } from "./plant.ts";

/** A strong ETag: a hash of what `formatStoredPlant` writes. A plant changed and changed back matches again. */
export const entityTagOf = (content: string): string =>
  `"${Bun.SHA256.hash(content, "base64").slice(0, 24)}"`;

/** The ETags of a header: `*` for any existing plant, or a list. */
export type EntityTags = "any" | readonly string[];

/** RFC 9110, section 5.6.1.2. One element at a time: a single regex for the list could backtrack for hours. */
const ELEMENT = /[ \t,]*(?:$|((?:W\/)?"[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?:,|$))/y;

/** The value of If-Match: `*`, or one or more entity tags with commas. Undefined for anything else. */
export function findEntityTags(text: string): EntityTags | undefined {
  if (text.trim() === "*") return "any";
  const tags: string[] = [];
  ELEMENT.lastIndex = 0;
  do {
    const [found, tag] = ELEMENT.exec(text) ?? [];
    if (found === undefined) return undefined;
    if (tag !== undefined) tags.push(tag);
  } while (ELEMENT.lastIndex < text.length);
  return tags.length === 0 ? undefined : tags;
}

/** The precondition of a write. Plain data, so the engine checks it in the transaction of the write. */
export interface Condition {
  readonly match?: EntityTags | undefined;
  readonly noneMatch?: EntityTags | undefined;
  /** The state that the writer has seen. Unlike an entity tag, it spares PostgreSQL a look-up. */
  readonly seen?: Content | undefined;
}

export function holds({ match, noneMatch, seen }: Condition, plant: Plant): boolean {
  if (seen !== undefined && (seen.name !== plant.name || seen.tag !== plant.tag)) return false;
  if (match === undefined && noneMatch === undefined) return true;
  const entityTag = entityTagOf(formatStoredPlant(plant));
  return matches(match ?? "any", entityTag) && !matches(noneMatch ?? [], entityTag);
}

export const matches = (tags: EntityTags, entityTag: string): boolean =>
  tags === "any" || tags.includes(entityTag);
