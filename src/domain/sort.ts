/** Lists in another order than by id: the key of a plant, the order of keys, and the cursor of a page. */

import { createFilter } from "./filter.ts";
import { Refusal } from "./errors.ts";
import { clip, findPlainInt64 } from "./json.ts";
import { joinFaults } from "./members.ts";
import {
  CHARACTERS_MAX,
  type Order,
  type Position,
  type PlantPage,
  type PlantQuery,
  type Sort,
  type SortName,
  sortNames,
} from "./page.ts";
import { lengthOf, type ListedPlant } from "./plant.ts";

/** What a bounded piece of a scan has found, in any order, and the id after which the next one continues. */
export type SortPiece = Readonly<{ positions: readonly Position[]; next: bigint | undefined }>;

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

export function positionOf({ by }: Pick<Sort, "by">, plant: ListedPlant): Position {
  const { [by]: value } = plant;
  const id = BigInt(plant.id);
  if (value === undefined) return { key: null, id };
  return { key: by === "changed" ? Date.parse(value) : foldKey(value), id };
}

/** Plants with the same key are in the order of their ids, in both directions. */
export function comparePositions(
  { isDescending }: Pick<Sort, "isDescending">,
  one: Position,
  other: Position,
): number {
  if (one.key === null || other.key === null) {
    if (one.key !== other.key) return one.key === null ? 1 : -1;
  } else {
    const difference = compareKeys(one.key, other.key);
    if (difference !== 0) return isDescending ? -difference : difference;
  }
  return one.id < other.id ? -1 : one.id > other.id ? 1 : 0;
}

/** Whether the page may have the position: it comes after the cursor. */
const isOn = (sort: Sort, position: Position): boolean =>
  sort.after === undefined || comparePositions(sort, position, sort.after) > 0;

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
const POSITION_BYTES = 4 * KEY_CHARACTERS + 128;

/** A sorted page scans the whole store, so a stream reads larger ones. */
export const SORTED_STREAM_LENGTH = 10_000;

/** What the scan for a page keeps in memory; nothing for a list by id. */
export const scanBytesOf = ({ sort, limit }: PlantQuery): number =>
  sort === undefined ? 0 : 2 * (limit + 1) * POSITION_BYTES;

/** Keeps the first positions of a scan: at most two for each that is wanted. */
export class FirstPositions {
  private readonly sort: Sort;
  private readonly length: number;
  private positions: Position[] = [];
  private isSorted = true;

  constructor(sort: Sort, length: number) {
    this.sort = sort;
    this.length = length;
  }

  add(positions: readonly Position[]): void {
    for (const position of positions) {
      this.positions.push(position);
      if (this.positions.length >= 2 * this.length) this.cut();
    }
    if (positions.length > 0) this.isSorted = false;
  }

  /** A position after this one is not among the first. Undefined while every position is. */
  get bound(): Position | undefined {
    return this.positions.length < this.length ? undefined : this.take().at(-1);
  }

  /** In order. */
  take(): readonly Position[] {
    if (!this.isSorted) this.cut();
    return this.positions;
  }

  private cut(): void {
    this.positions.sort((one, other) => comparePositions(this.sort, one, other));
    this.positions.length = Math.min(this.positions.length, this.length);
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

/** The first positions among the plants of that search. */
export function sortScan({ plants, next }: PlantPage, sort: Sort, limit: number): SortPiece {
  const first = new FirstPositions(sort, limit);
  first.add(
    plants.map((plant) => positionOf(sort, plant)).filter((position) => isOn(sort, position)),
  );
  return { positions: first.take(), next };
}

/**
 * Builds the page of these positions, one more than its limit if there is a next page. A plant may have changed since it
 * was scanned: it is on the page only if it belongs there now. So the page is in order, and a plant that does not change
 * is on exactly one page.
 */
export function createSortedPage(query: PlantQuery, sort: Sort, positions: readonly Position[]) {
  const { limit, hasTimes, charactersMax = CHARACTERS_MAX } = query;
  const accepts = createFilter(query);
  const found: { readonly plant: ListedPlant; readonly position: Position }[] = [];
  let characters = 0;
  let last: Position | undefined;
  return {
    /** False if the page ended before this position. */
    add(scanned: Position, plant: ListedPlant | undefined): boolean {
      if (found.length === limit || characters > charactersMax) return false;
      last = scanned;
      characters += lengthOf(plant);
      if (plant !== undefined && accepts(plant)) {
        const { id, name, tag } = plant;
        found.push({
          plant: hasTimes ? plant : { id, name, tag },
          position: positionOf(sort, plant),
        });
      }
      return true;
    },

    finish(): PlantPage {
      const isEnd = positions.length <= limit && last === positions.at(-1);
      const nextPosition = isEnd ? undefined : last;
      const plants = found
        .filter(
          ({ position }) =>
            isOn(sort, position) &&
            (nextPosition === undefined || comparePositions(sort, position, nextPosition) <= 0),
        )
        .toSorted((one, other) => comparePositions(sort, one.position, other.position))
        .map(({ plant }) => plant);
      return { plants, next: undefined, nextPosition };
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
  let position: Position | undefined;
  if (sorted === undefined) {
    if (cursor !== undefined)
      faults.push("cursor: expected nothing unless sort is by name, tag or changed; use after");
  } else {
    if (after !== undefined) faults.push(`after: expected nothing with sort=${sort}; use cursor`);
    position = cursor === undefined ? undefined : findCursor(sorted, cursor);
    if (cursor !== undefined && position === undefined)
      faults.push(
        `cursor: expected the cursor of a next page with sort=${sort}, got ${JSON.stringify(clip(cursor))}`,
      );
  }
  if (faults.length > 0) throw new Refusal("invalid_query", joinFaults(faults));
  return {
    order: isDescending ? ("desc" as const) : ("asc" as const),
    after,
    sort: sorted && { ...sorted, after: position },
  };
}

/** Names its sort, so that a cursor of another one is refused. */
export const formatCursor = (sort: Sort, { key, id }: Position): string =>
  `${formatSort(sort)}~${id}${key === null ? "" : `~${key}`}`;

/** Undefined if it is not a cursor of this sort. */
export function findCursor(sort: Sort, cursor: string): Position | undefined {
  const [, name, digits = "", text] = /^(-?[a-z]+)~(-?\d+)(?:~(.*))?$/su.exec(cursor) ?? [];
  const id = findPlainInt64(digits);
  if (name !== formatSort(sort) || id === undefined) return undefined;
  if (text === undefined) return sort.by === "name" ? undefined : { key: null, id };
  if (sort.by !== "changed") return foldKey(text) === text ? { key: text, id } : undefined;
  return /^-?\d{1,16}$/.test(text) ? { key: Number(text), id } : undefined;
}
