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

/**
 * Takes the page off rows in key order. It ends at the limit, or early when that many rows have been
 * looked at, whatever was found: so no search holds the store for longer than the bound allows.
 */
export function takePage(
  rows: Iterable<Plant>,
  { limit, name }: PlantQuery,
  scanRowsMax: number,
): PlantPage {
  const part = name === undefined ? undefined : fold(name);
  const plants: Plant[] = [];
  let seen = 0;
  let lastId: bigint | undefined;
  for (const row of rows) {
    if (plants.length === limit || seen === scanRowsMax) return { plants, next: lastId };
    seen++;
    lastId = row.id;
    if (part === undefined || fold(row.name).includes(part)) plants.push(row);
  }
  return { plants, next: undefined };
}

/**
 * Case folding, in this one place for every engine: composed (NFC), then in Unicode upper case, which
 * depends neither on a locale nor, as lower case does for Σ, on the letters around.
 */
function fold(text: string): string {
  return text.normalize("NFC").toUpperCase();
}
