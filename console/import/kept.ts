/** What is kept of the rows of a file, however many: numbers in typed arrays, at most 26 bytes a row. */

import type { Plant } from "../../src/domain/plant.ts";
import { etagOf } from "../api/etag.ts";

/** A sorted array of ids. One that the file repeats is there as often. */
export type Ids = BigInt64Array<ArrayBuffer>;

/** The browser joins the blocks, and may move them to disk before. */
export const joinIds = async (blocks: readonly Ids[]): Promise<Ids> =>
  new BigInt64Array(await new Blob([...blocks]).arrayBuffer()).toSorted();

/** The first place of the id, or -1. */
export function findPlace(ids: Ids, id: bigint): number {
  let [low, high] = [0, ids.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((ids[middle] as bigint) < id) low = middle + 1;
    else high = middle;
  }
  return ids[low] === id ? low : -1;
}

export const listRepeated = (ids: Ids): Set<bigint> =>
  new Set(ids.filter((id, at) => at > 0 && id === ids[at - 1]));

/** The entity tags of stored plants, each at the place of its id. Zeros are none. */
export type Etags = Uint8Array<ArrayBuffer>;

/** An entity tag is base64 in quotes. */
const ETAG_BYTES = 18;

export const createEtags = (ids: Ids): Etags => new Uint8Array(ETAG_BYTES * ids.length);

export function setEtag(etags: Etags, place: number, plant: Plant): void {
  const bytes = atob(etagOf(plant).slice(1, -1));
  for (let at = 0; at < ETAG_BYTES; at++) etags[place * ETAG_BYTES + at] = bytes.charCodeAt(at);
}

export function findEtag(etags: Etags, place: number): string | undefined {
  const bytes = etags.subarray(place * ETAG_BYTES, (place + 1) * ETAG_BYTES);
  return bytes.some(Boolean) ? `"${btoa(String.fromCharCode(...bytes))}"` : undefined;
}
