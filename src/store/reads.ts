/**
 * Every read of plants and changes, the same on both engines. A read is a generator over a `Source`: it yields only what
 * is a promise, so on SQLite it runs to its end at once.
 */

import type { ChangePage, ChangeQuery } from "../domain/change.ts";
import { needsScan } from "../domain/filter.ts";
import {
  type CountPage,
  createPage,
  firstIdOf,
  type PageForm,
  type PageText,
  type Position,
  type PlantPage,
  type PlantQuery,
  type Sort,
  type TagPage,
  type TagPrefix,
  type TagQuery,
  takeTags,
} from "../domain/page.ts";
import { formatNdjson, formatStoredPlants, type ListedPlant, type Plant } from "../domain/plant.ts";
import {
  createSortedPage,
  FirstPositions,
  type SortPiece,
  sortScan,
  toScan,
} from "../domain/sort.ts";
import { formatCsv } from "../format/csv.ts";
import { endOfTick } from "../tick.ts";
import { type BlockRow, createChangePage } from "./journal.ts";

/** A page of plants: as text, or without a form the plants themselves. A sorted one needs its positions. */
export interface PageRequest {
  readonly kind: "plants";
  readonly query: PlantQuery;
  readonly form?: PageForm;
  readonly positions?: readonly Position[];
}

interface SortRequest {
  readonly kind: "sort";
  readonly query: PlantQuery;
  readonly sort: Sort;
  readonly bound: Position | undefined;
}

/** Plain data, so another thread can perform it. */
export type ReadRequest =
  | PageRequest
  | SortRequest
  | Readonly<{ kind: "count"; query: PlantQuery }>
  | Readonly<{ kind: "tags"; query: TagQuery }>
  | Readonly<{ kind: "changes"; query: ChangeQuery }>;

interface Results {
  readonly plants: PlantPage | PageText;
  readonly sort: SortPiece;
  readonly count: CountPage;
  readonly tags: TagPage;
  readonly changes: ChangePage;
}

export type ResultOf<Request extends ReadRequest> = Results[Request["kind"]];

export interface PlantRow<Id = bigint> {
  readonly id: Id;
  readonly name: string;
  readonly tag: string | null;
}

/** A row with the time of the plant's last change. */
export interface TimedRow<Id = bigint> extends PlantRow<Id> {
  readonly changed_at_ms: bigint | number | null;
}

/** A row that is too long to be sent with the others has no text. */
export type SentRow<Id = bigint> =
  PlantRow<Id> | Readonly<{ id: bigint; name: null; tag: null; changed_at_ms?: never }>;

type Answer<Value> = Value | Promise<Value>;

/** The rows of an engine. */
export interface Source {
  /** Rows that a search reads at a time, and how long it may take. */
  readonly stepRows: number;
  readonly searchMsMax?: number;
  readonly scanRowsMax: number;
  /** A read gives way to other requests of its thread after this time. */
  readonly tickMs: number;
  readonly changesMsMax?: number;
  /** The same with bigints for ids: numbers are faster, and may be rounded. */
  readonly exact?: Source | undefined;
  /** The next rows by key, at least `length` unless the store ends. Rows that a search cannot match may be left out. */
  scan(query: PlantQuery, firstId: bigint, length: number): Answer<Scan>;
  /** The first of these plants, in order: as many as fit in memory. Those that are gone are left out. */
  findTexts(ids: readonly bigint[]): Answer<readonly TimedRow[]>;
  /** The first positions of a step through the store that come before the bound, in any order. */
  sort(query: PlantQuery, sort: Sort, firstId: bigint, bound?: Position): Answer<SortPiece>;
  count(query: PlantQuery, firstId: bigint): Answer<CountPage>;
  listHeads(query: TagQuery): Answer<Iterable<TagPrefix>>;
  findNewest(): Answer<number>;
  /** The number of the last break in the journal, or of its beginning. */
  findLastBreak(): Answer<number>;
  /** Blocks from the one that contains the number; at least one more if there is one. */
  readBlocks(query: ChangeQuery, start: number): Answer<Iterable<BlockRow>>;
}

/** `last` is the last row that was scanned, undefined at the end of the store. `length` includes rows left out. */
interface Scan {
  readonly rows: Iterable<SentRow<bigint | number>>;
  readonly last: bigint | undefined;
  readonly length: number;
}

export type Read<Result> = Generator<Promise<unknown>, Result, unknown>;

function* wait<Value>(answer: Answer<Value>): Read<Value> {
  return answer instanceof Promise ? ((yield answer) as Value) : answer;
}

/** For a source that answers at once. */
export const readNow = <Result>(read: Read<Result>): Result => read.next().value as Result;

export async function readLater<Result>(read: Read<Result>): Promise<Result> {
  for (let step = read.next(); ; step = read.next(await step.value))
    if (step.done === true) return step.value;
}

export function perform(source: Source, request: ReadRequest): Read<ResultOf<ReadRequest>> {
  if (request.kind === "plants") return readPage(source, request);
  if (request.kind === "sort") return readSortPiece(source, request);
  if (request.kind === "count") return countPiece(source, request.query);
  if (request.kind === "changes") return readChanges(source, request.query);
  return listTags(source, request.query);
}

/** Rows are selected by column, so one with a tag is a plant. Copying it would slow pages down. */
export const toPlant = <Id>(row: PlantRow<Id>): Plant<Id> =>
  row.tag === null ? { ...row, tag: undefined } : (row as Plant<Id>);

const toTimedPlant = (row: TimedRow<bigint | number>): ListedPlant => ({
  id: row.id,
  name: row.name,
  tag: row.tag ?? undefined,
  changed:
    row.changed_at_ms === null ? undefined : new Date(Number(row.changed_at_ms)).toISOString(),
});

/** The rows of a query that lists times have one more column. */
const toListed = (row: PlantRow<bigint | number>, hasTimes: boolean | undefined): ListedPlant =>
  hasTimes ? toTimedPlant(row as TimedRow<bigint | number>) : toPlant(row);

function* readPage(
  source: Source,
  { query, form, positions }: PageRequest,
): Read<PlantPage | PageText> {
  const { sort } = query;
  const isSorted = sort !== undefined && positions !== undefined;
  const page = yield* isSorted
    ? readPositions(source, query, sort, positions)
    : scan(source, query);
  if (form === undefined) return page;
  const { plants, ...rest } = page;
  if (form === "csv") return { text: formatCsv(plants, query.hasTimes), ...rest };
  return { text: form === "json" ? formatStoredPlants(plants) : formatNdjson(plants), ...rest };
}

/** A page by id, or a bounded piece of a search. */
export function* scan(source: Source, query: PlantQuery): Read<PlantPage> {
  const { exact } = source;
  const searches = needsScan(query);
  const page = createPage(query, searches ? source.scanRowsMax : Infinity, source.searchMsMax);
  let yieldAtMs = performance.now() + source.tickMs;
  for (let firstId = firstIdOf(query); firstId !== undefined;) {
    // One row more than the page holds tells whether there is a next page.
    const length = searches ? page.rowsLeft(source.stepRows) : query.limit + 1;
    const step = yield* wait(source.scan(query, firstId, length));
    const findText = createTextReader((ids) => source.findTexts(ids), step.rows, query.hasTimes);
    let found = 0;
    for (const row of step.rows) {
      if (exact !== undefined && typeof row.id === "number" && !Number.isSafeInteger(row.id))
        return yield* scan(exact, query);
      found++;
      const plant = row.name === null ? yield* findText(row) : toListed(row, query.hasTimes);
      if (plant === undefined) continue;
      if (!page.add(plant)) return { plants: page.plants, next: page.lastId };
      if (!searches || performance.now() < yieldAtMs) continue;
      yield endOfTick();
      yieldAtMs = performance.now() + source.tickMs;
    }
    if (step.last === undefined) break;
    page.skip(step.length - found);
    firstId = firstIdOf({ ...query, after: step.last });
  }
  return { plants: page.plants, next: undefined };
}

/** Reads the texts that were not sent, a few plants at a time. Undefined for a plant that was removed since. */
export function createTextReader(
  findTexts: Source["findTexts"],
  rows: Iterable<SentRow<bigint | number> | undefined>,
  hasTimes?: boolean,
) {
  let found = new Map<bigint, TimedRow>();
  return function* (row: SentRow): Read<ListedPlant | undefined> {
    if (!found.has(row.id)) {
      const rest = Array.from(rows);
      const long = rest.slice(rest.indexOf(row)).filter((other) => other?.name === null);
      const texts = yield* wait(findTexts(long.map((other) => other.id)));
      found = new Map(Array.from(texts, (text) => [text.id, text]));
    }
    const text = found.get(row.id);
    if (text === undefined) return undefined;
    const { id, name, tag } = text;
    return hasTimes ? toTimedPlant(text) : toPlant({ id, name, tag });
  };
}

/** The page of these positions. */
function* readPositions(
  source: Source,
  query: PlantQuery,
  sort: Sort,
  positions: readonly Position[],
): Read<PlantPage> {
  const page = createSortedPage(query, sort, positions);
  for (let at = 0; at < positions.length;) {
    const rest = positions.slice(at, at + source.stepRows);
    const rows = yield* wait(source.findTexts(rest.map(({ id }) => id)));
    const found = new Map(Array.from(rows, (row) => [row.id, toTimedPlant(row)]));
    // Those after the last row were not read, unless there was none.
    const lastRead = rest.findLastIndex(({ id }) => found.has(id));
    const read = lastRead === -1 ? rest : rest.slice(0, lastRead + 1);
    for (const position of read)
      if (!page.add(position, found.get(position.id))) return page.finish();
    at += read.length;
  }
  return page.finish();
}

/** A piece of a sort ends after the first step that exceeds it. */
const SORT_MS_MAX = 10;

/** The first positions of a piece of the store. Names have no index, so all of it is scanned. */
function* readSortPiece(source: Source, { query, sort, bound }: SortRequest): Read<SortPiece> {
  const limit = query.limit + 1;
  if (needsScan(query)) return sortScan(yield* scan(source, toScan(query, sort)), sort, limit);
  const first = new FirstPositions(sort, limit);
  const endsAtMs = performance.now() + SORT_MS_MAX;
  for (let firstId = firstIdOf(query); firstId !== undefined;) {
    const step = yield* wait(source.sort(query, sort, firstId, first.bound ?? bound));
    first.add(step.positions);
    if (step.next === undefined) break;
    if (performance.now() > endsAtMs) return { positions: first.take(), next: step.next };
    firstId = firstIdOf({ ...query, after: step.next });
  }
  return { positions: first.take(), next: undefined };
}

function* countPiece(source: Source, query: PlantQuery): Read<CountPage> {
  if (needsScan(query)) {
    const { plants, next } = yield* scan(source, query);
    return { count: plants.length, next };
  }
  const firstId = firstIdOf(query);
  if (firstId === undefined) return { count: 0, next: undefined };
  return yield* wait(source.count(query, firstId));
}

function* listTags(source: Source, query: TagQuery): Read<TagPage> {
  return takeTags(yield* wait(source.listHeads(query)), query.limit);
}

export function* readChanges(source: Source, query: ChangeQuery): Read<ChangePage> {
  const newest = yield* wait(source.findNewest());
  const page = createChangePage(query, newest, source.changesMsMax);
  const isBack = query.order === "desc";
  const isFromStart = page.last === 0 && query.limit > 0;
  const begin = isFromStart ? yield* wait(source.findLastBreak()) : 0;
  for (;;) {
    const start = page.last || begin;
    let first: bigint | undefined;
    for (const row of yield* wait(source.readBlocks(query, start))) {
      first ??= row.first;
      // The next blocks were trimmed since the last ones were read. The next page is refused.
      const isTrimmed = !isBack && page.last > query.after && Number(first) > page.last + 1;
      if (isTrimmed || !page.add(row)) return page.finish();
    }
    // After a failover, the new server may lack the newest blocks.
    if (page.last === start || (!isBack && page.last >= newest)) return page.finish(true);
  }
}

/**
 * The tags of a read, in as many places as a power of two: there are few statements then. A place that is left is null,
 * which no tag equals.
 */
export function toSlots(tags: readonly string[] = []): readonly (string | null)[] {
  const slots = tags.length < 2 ? tags.length : 2 ** Math.ceil(Math.log2(tags.length));
  return Array.from({ length: slots }, (_, slot) => tags[slot] ?? null);
}

/** Of each tag as many rows are read as of all together. */
export const rowsOfEach = (slots: readonly unknown[], rows: number): number =>
  Math.ceil(rows / (slots.length || 1));

/** Engines answer whole numbers as bigints. */
export const toKey = (key: bigint | Position["key"]): Position["key"] =>
  typeof key === "bigint" ? Number(key) : key;

/** A position as parameters: both null if there is none. */
export const valuesOf = (position: Position | undefined) =>
  [position?.key ?? null, position?.id ?? null] as const;

/** The names of these parameters. */
type PositionNames = readonly [key: string, id: string];

/** Rows `key`, `id` between two positions, in the order of `comparePositions`. The key of a position may be null. */
export function selectBetween(
  { isDescending }: Sort,
  [afterKey, afterId]: PositionNames,
  [endKey, endId]: PositionNames,
): string {
  const [later, earlier] = isDescending ? ["<", ">"] : [">", "<"];
  return `WHERE (${afterId} IS NULL OR CASE WHEN ${afterKey} IS NULL THEN key IS NULL AND id > ${afterId}
      ELSE key IS NULL OR key ${later} ${afterKey} OR (key = ${afterKey} AND id > ${afterId}) END)
    AND (${endId} IS NULL OR CASE WHEN ${endKey} IS NULL THEN key IS NOT NULL OR id < ${endId}
      ELSE key ${earlier} ${endKey} OR (key = ${endKey} AND id < ${endId}) END)
    ORDER BY key IS NULL, key ${isDescending ? "DESC" : "ASC"}, id`;
}
