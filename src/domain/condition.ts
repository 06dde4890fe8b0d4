/** What a change depends on: data, so that it can be judged wherever the change is made. */

import { entityTagOf, type Plant } from "./plant.ts";

/** Of contents: any that there is, or these. */
export type EntityTags = "any" | readonly string[];

/** The plant has one of the first contents, where they are given, and none of the second. */
export interface Condition {
  readonly match?: EntityTags | undefined;
  readonly noneMatch?: EntityTags | undefined;
}

export const ALWAYS: Condition = {};

/** The plant is still what somebody has seen: one of these. */
export const isStill = (...seen: readonly Plant[]): Condition => ({ match: seen.map(entityTagOf) });

export function holds({ match, noneMatch }: Condition, plant: Plant): boolean {
  if (match === undefined && noneMatch === undefined) return true;
  const entityTag = entityTagOf(plant);
  return matches(match ?? "any", entityTag) && !matches(noneMatch ?? [], entityTag);
}

export const matches = (tags: EntityTags, entityTag: string): boolean =>
  tags === "any" || tags.includes(entityTag);
