/** Lists in another order than by id: the key of a plant, the order of keys, and the cursor of a page. */

import { createFilter } from "./filter.ts";
import { Refusal } from "./errors.ts";
import { clip, findPlainInt64 } from "./json.ts";
import { joinFaults } from "./members.ts";
import {
  CHARACTERS_MAX,
  type Order,
  type Place,
  type PlantPage,
  type PlantQuery,
  type Sort,
  type SortName,
  sortNames,
} from "./page.ts";
import { lengthOf, type ListedPlant } from "./plant.ts";

/** What a bounded piece of a scan has found, in any order, and the id after which the next one continues. */
export type SortPiece = Readonly<{ places: readonly Place[]; next: bigint | undefined }>;

/** Texts are compared by these first characters. It bounds the memory of a scan, and the length of a cursor. */
export const KEY_CHARACTERS = 100;

/** Every engine computes the same: the first characters, with the letters A to Z in lower case. */
export function foldKey(text: string): string {
  const head =
    text.length <= KEY_CHARACTERS
      ? text
      : Array.from(text.slice(0, 2 * KEY_CHARACTERS))
          .slice(0, KEY_CHARACTERS)
          .join("");
  return head.replaceAll(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

export function placeOf({ by }: Pick<Sort, "by">, plant: ListedPlant): Place {
  const { [by]: value } = plant;
  const id = BigInt(plant.id);
  if (value === undefined) return { key: null, id };
  return { key: by === "changed" ? Date.parse(value) : foldKey(value), id };
}

/** Plants with the same key are in the order of their ids, in both directions. */
export function comparePlaces(
  { isDescending }: Pick<Sort, "isDescending">,
  one: Place,
  other: Place,
): number {
  if (one.key === null || other.key === null) {
    if (one.key !== other.key) return one.key === null ? 1 : -1;
  } else {
    const difference = compareKeys(one.key, other.key);
    if (difference !== 0) return isDescending ? -difference : difference;
  }
  return one.id < other.id ? -1 : one.id > other.id ? 1 : 0;
}

/** Whether the page may have the place: it comes after the cursor. */
const isOn = (sort: Sort, place: Place): boolean =>
  sort.after === undefined || comparePlaces(sort, place, sort.after) > 0;

/** Texts by code points, which is the order of their UTF-8 bytes. */
function compareKeys(one: string | number, other: string | number): number {
  if (typeof one === "number" || typeof other === "number") return Number(one) - Number(other);
  const length = Math.min(one.length, other.length);
  for (let at = 0; at < length; at++) {
    const difference = rankUnit(one.charCodeAt(at)) - rankUnit(other.charCodeAt(at));
    if (difference !== 0) return difference;
  }
  return one.length - other.length;
}

/** Surrogates stand for the characters after U+FFFF. */
const rankUnit = (unit: number): number =>
  unit < 0xd800 ? unit : unit >= 0xe000 ? unit - 0x800 : unit + 0x2000;

/** An upper bound: the key, with two units of two bytes for a character, and the objects. */
const PLACE_BYTES = 4 * KEY_CHARACTERS + 128;

/** A sorted page scans the whole store, so a stream reads larger ones. */
export const SORTED_STREAM_LENGTH = 10_000;

/** What the scan for a page keeps in memory; nothing for a list by id. */
export const scanBytesOf = ({ sort, limit }: PlantQuery): number =>
  sort === undefined ? 0 : 2 * (limit + 1) * PLACE_BYTES;

/** Keeps the first places of a scan: at most two for each that is wanted. */
export class FirstPlaces {
  private readonly sort: Sort;
  private readonly length: number;
  private places: Place[] = [];
  private isSorted = true;

  constructor(sort: Sort, length: number) {
    this.sort = sort;
    this.length = length;
  }

  add(places: readonly Place[]): void {
    for (const place of places) {
      this.places.push(place);
      if (this.places.length >= 2 * this.length) this.cut();
    }
    if (places.length > 0) this.isSorted = false;
  }

  /** A place after this one is not among the first. Undefined while every place is. */
  get bound(): Place | undefined {
    return this.places.length < this.length ? undefined : this.take().at(-1);
  }

  /** In order. */
  take(): readonly Place[] {
    if (!this.isSorted) this.cut();
    return this.places;
  }

  private cut(): void {
    this.places.sort((one, other) => comparePlaces(this.sort, one, other));
    this.places.length = Math.min(this.places.length, this.length);
    this.isSorted = true;
  }
}

/** The search for a sorted page. The bounds of the page apply when its plants are read. */
export const toScan = (query: PlantQuery, { by }: Sort): PlantQuery => ({
  ...query,
  limit: Number.POSITIVE_INFINITY,
  charactersMax: undefined,
  hasTimes: by === "changed",
});

/** The first places among the plants of that search. */
export function sortScan({ plants, next }: PlantPage, sort: Sort, limit: number): SortPiece {
  const first = new FirstPlaces(sort, limit);
  first.add(plants.map((plant) => placeOf(sort, plant)).filter((place) => isOn(sort, place)));
  return { places: first.take(), next };
}

/**
 * Builds the page of these places, one more than its limit if there is a next page. A plant may have changed since it
 * was scanned: it is on the page only if it belongs there now. So the page is in order, and a plant that does not change
 * is on exactly one page.
 */
export function createSortedPage(query: PlantQuery, sort: Sort, places: readonly Place[]) {
  const { limit, hasTimes, charactersMax = CHARACTERS_MAX } = query;
  const accepts = createFilter(query);
  const found: { readonly plant: ListedPlant; readonly place: Place }[] = [];
  let characters = 0;
  let last: Place | undefined;
  return {
    /** False if the page ended before this place. */
    add(scanned: Place, plant: ListedPlant | undefined): boolean {
      if (found.length === limit || characters > charactersMax) return false;
      last = scanned;
      characters += lengthOf(plant);
      if (plant !== undefined && accepts(plant)) {
        const { id, name, tag } = plant;
        found.push({ plant: hasTimes ? plant : { id, name, tag }, place: placeOf(sort, plant) });
      }
      return true;
    },

    finish(): PlantPage {
      const isEnd = places.length <= limit && last === places.at(-1);
      const nextPlace = isEnd ? undefined : last;
      const plants = found
        .filter(
          ({ place }) =>
            isOn(sort, place) &&
            (nextPlace === undefined || comparePlaces(sort, place, nextPlace) <= 0),
        )
        .toSorted((one, other) => comparePlaces(sort, one.place, other.place))
        .map(({ plant }) => plant);
      return { plants, next: undefined, nextPlace };
    },
  };
}

export const sortValues = ["id", ...sortNames].flatMap((name) => [name, `-${name}`]);

export const formatSort = ({ by, isDescending }: Sort): SortName | `-${SortName}` =>
  isDescending ? `-${by}` : by;

export interface Ordering {
  readonly order?: Order | undefined;
  readonly sort?: string | undefined;
  readonly after?: bigint | undefined;
  readonly cursor?: string | undefined;
}

/** What the client wrote, as a query has it. Throws a Refusal if members contradict each other. */
export function toOrder({ order, sort, after, cursor }: Ordering) {
  const faults: string[] = [];
  if (sort !== undefined && order !== undefined)
    faults.push("order: expected nothing with sort, which has the direction");
  const isDescending = sort?.startsWith("-") ?? order === "desc";
  const by = sortNames.find((name) => name === sort?.replace(/^-/, ""));
  const sorted: Sort | undefined = by && { by, isDescending };
  let place: Place | undefined;
  if (sorted === undefined) {
    if (cursor !== undefined)
      faults.push("cursor: expected nothing unless sort is by name, tag or changed; use after");
  } else {
    if (after !== undefined) faults.push(`after: expected nothing with sort=${sort}; use cursor`);
    place = cursor === undefined ? undefined : findCursor(sorted, cursor);
    if (cursor !== undefined && place === undefined)
      faults.push(
        `cursor: expected the cursor of a next page with sort=${sort}, got ${JSON.stringify(clip(cursor))}`,
      );
  }
  if (faults.length > 0) throw new Refusal("invalid_query", joinFaults(faults));
  return {
    order: isDescending ? ("desc" as const) : ("asc" as const),
    after,
    sort: sorted && { ...sorted, after: place },
  };
}

/** Names its sort, so that a cursor of another one is refused. */
export const formatCursor = (sort: Sort, { key, id }: Place): string =>
  `${formatSort(sort)}~${id}${key === null ? "" : `~${key}`}`;

/** Undefined if it is not a cursor of this sort. */
export function findCursor(sort: Sort, cursor: string): Place | undefined {
  const [, name, digits = "", text] = /^(-?[a-z]+)~(-?\d+)(?:~(.*))?$/su.exec(cursor) ?? [];
  const id = findPlainInt64(digits);
  if (name !== formatSort(sort) || id === undefined) return undefined;
  if (text === undefined) return sort.by === "name" ? undefined : { key: null, id };
  if (sort.by !== "changed") return foldKey(text) === text ? { key: text, id } : undefined;
  return /^-?\d{1,16}$/.test(text) ? { key: Number(text), id } : undefined;
}
