/** Pages of plants, by key: what is asked for, and how a page is cut from rows in key order. */

import { INT64_MAX, INT64_MIN } from "./int64.ts";
import type { Plant } from "./plant.ts";

export const orders = ["asc", "desc"] as const;
export type Order = (typeof orders)[number];

export interface PlantQuery {
  /** The id of the last plant seen; the page begins behind it. */
  readonly after: bigint | undefined;
  readonly limit: number;
  /** Exactly this tag. */
  readonly tag: string | undefined;
  /** A part of the name, in any case. */
  readonly name: string | undefined;
  /** By id. */
  readonly order: Order;
}

export interface PlantPage {
  readonly plants: readonly Plant[];
  /** The `after` of the next page; undefined where this is the last. */
  readonly next: bigint | undefined;
}

/** The first id that may be on the page; undefined where none can be. */
export function firstIdOf({ after, order }: PlantQuery): bigint | undefined {
  if (order === "asc") {
    if (after === undefined) return INT64_MIN;
    return after === INT64_MAX ? undefined : after + 1n;
  }
  if (after === undefined) return INT64_MAX;
  return after === INT64_MIN ? undefined : after - 1n;
}

/** Names may be long: a page of long ones is a shorter page, whatever its limit. */
const CHARACTERS_MAX = 2_097_152;

/**
 * Takes the page off rows in key order. It ends at the limit, or early when that many rows or characters
 * have been looked at, whatever was found: so no page and no search takes more than its share of time or
 * memory. It is never without a row where there is one.
 */
export function takePage(
  rows: Iterable<Plant>,
  { limit, name }: PlantQuery,
  scanRowsMax: number,
): PlantPage {
  const part = name === undefined ? undefined : fold(name);
  const plants: Plant[] = [];
  let seen = 0;
  let characters = 0;
  let lastId: bigint | undefined;
  for (const row of rows) {
    const isFull = plants.length === limit || seen === scanRowsMax || characters > CHARACTERS_MAX;
    if (isFull) return { plants, next: lastId };
    seen++;
    characters += row.name.length + (row.tag?.length ?? 0);
    lastId = row.id;
    if (part === undefined || fold(row.name).includes(part)) plants.push(row);
  }
  return { plants, next: undefined };
}

/** Below these letters nothing composes; and a run of marks this long is no text, but takes a square of its length to order. */
const COMPOSABLE = /[\u0300-\uffff]/;
const MARKS_WITHOUT_END = /\p{M}{32}/u;

/**
 * Case folding, in this one place for every engine: composed (NFC), then in Unicode upper case, which
 * depends neither on a locale nor, as lower case does for Σ, on the letters around.
 */
function fold(text: string): string {
  const composes = COMPOSABLE.test(text) && !MARKS_WITHOUT_END.test(text);
  return (composes ? text.normalize("NFC") : text).toUpperCase();
}
