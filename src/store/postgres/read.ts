/** Plants by id, pages of plants and pages of tags. */

import { needsScan } from "../../domain/filter.ts";
import {
  createPage,
  firstIdOf,
  type Place,
  type PlantPage,
  type PlantQuery,
  type Sort,
  type SortName,
  TAG_PREFIX_CHARACTERS,
  TAG_PREFIXES_MAX,
  type TagPage,
  type TagPrefix,
  type TagQuery,
  takeTags,
} from "../../domain/page.ts";
import { lengthOf, type ListedPlant, type Plant } from "../../domain/plant.ts";
import {
  createSortedPage,
  KEY_CHARACTERS,
  type SortPiece,
  sortScan,
  toScan,
} from "../../domain/sort.ts";
import { endOfTick } from "../../tick.ts";
import {
  type PlantRow,
  selectBetween,
  type TimedRow,
  toKey,
  toPlant,
  toTimedPlant,
  valuesOf,
} from "../sql-store.ts";
import { type Connection, toArray } from "./connection.ts";

/** Pages are read in pieces, to bound memory on both sides. */
const PIECE_BYTES_MAX = 4_194_304;
const PIECE_ROWS_MAX = 2_000;
/** Bounds one query for plants that are too long to be sent with the others. */
const LONG_BYTES_MAX = PIECE_BYTES_MAX / 2;
/** Few, because each is a prepared statement. A page of 100 reads 101 rows, to know whether there are more. */
const PIECE_LENGTHS = [11, 51, 101, 251, 501, 1_001, PIECE_ROWS_MAX];

/** The deadline of a search, which mostly waits for the server. */
const SEARCH_MS_MAX = 100;
/** A search yields to other requests after this time. */
const TICK_MS = 5;

export async function listPlants(connection: Connection, query: PlantQuery, scanRowsMax: number) {
  const searches = needsScan(query);
  const page = createPage(query, searches ? scanRowsMax : query.limit, SEARCH_MS_MAX);
  const rowsMax = searches ? PIECE_ROWS_MAX : query.limit + 1;
  const length = PIECE_LENGTHS.find((known) => known >= rowsMax) ?? PIECE_ROWS_MAX;
  for (let firstId = firstIdOf(query); firstId !== undefined;) {
    const columns = query.hasTimes ? `${SHORT_COLUMNS}, changed_at_ms` : SHORT_COLUMNS;
    const rows = await connection.query<SentRow>(
      `SELECT ${columns} ${rowsOf(query, length)}`,
      query.tag === undefined ? [firstId] : [firstId, query.tag],
    );
    const findLong = createLongReader(connection, rows, query.hasTimes);
    let yieldAtMs = performance.now() + TICK_MS;
    for (const row of rows) {
      const plant = row.name === null ? await findLong(row) : toListed(row, query.hasTimes);
      if (plant === undefined) continue;
      if (!page.add(plant)) return { plants: page.plants, next: page.lastId };
      if (!searches || performance.now() < yieldAtMs) continue;
      await endOfTick();
      yieldAtMs = performance.now() + TICK_MS;
    }
    if (rows.length < length) break;
    firstId = firstIdOf({ ...query, after: rows.at(-1)?.id });
  }
  return { plants: page.plants, next: undefined };
}

/** A row that is too long to be sent with the others has no text. Most pages have none. */
export type SentRow = PlantRow | { readonly id: bigint; readonly name: null; readonly tag: null };

/** The rows of a query that lists times have one more column. */
const toListed = (row: PlantRow, hasTimes: boolean | undefined): ListedPlant =>
  hasTimes ? toTimedPlant(row as TimedRow) : toPlant(row);

/** Reads the texts that were not sent, a few plants at a time. Undefined for a plant that was removed since. */
function createLongReader(
  connection: Connection,
  rows: readonly (SentRow | undefined)[],
  hasTimes?: boolean,
) {
  let found = new Map<bigint, ListedPlant>();
  return async (row: SentRow): Promise<ListedPlant | undefined> => {
    if (!found.has(row.id)) {
      const rest = Array.from(rows).slice(rows.indexOf(row));
      const ids = rest.flatMap((other) => (other?.name === null ? other.id : []));
      const long = await connection.query<TimedRow>(FIND_SOME, [toArray(ids)]);
      found = new Map(
        Array.from(long, ({ changed_at_ms, ...plant }) => [
          plant.id,
          hasTimes ? toTimedPlant({ ...plant, changed_at_ms }) : toPlant(plant),
        ]),
      );
    }
    return found.get(row.id);
  };
}

/**
 * LIMIT is a literal: with a parameter the server replans every page, which takes as long as reading it. A tag has a
 * lower bound in the index and an upper one whose value the planner does not know. With an equality it would expect few
 * rows, and for each page read and sort all plants of the tag.
 */
function rowsOf({ tag, order }: PlantQuery, length: number): string {
  const [from, to] = order === "asc" ? [">=", "<="] : ["<=", ">="];
  const end = `${order} LIMIT ${length}`;
  if (tag === undefined) return `FROM plants WHERE id ${from} $1::bigint ORDER BY id ${end}`;
  return `FROM plants
    WHERE (left(tag, 100), id) ${from} (left($2::text, 100), $1::bigint)
      AND left(tag, 100) ${to} (SELECT left($2::text, 100)) AND coalesce(tag = $2::text, false)
    ORDER BY left(tag, 100) ${order}, id ${end}`;
}

const BYTES = "octet_length(name) + coalesce(octet_length(tag), 0)";
/** So that PIECE_ROWS_MAX rows fit in PIECE_BYTES_MAX. */
const SHORT_BYTES_MAX = Math.floor(PIECE_BYTES_MAX / PIECE_ROWS_MAX);

export const whereShort = (column: string, bytesMax = SHORT_BYTES_MAX): string =>
  `CASE WHEN ${BYTES} <= ${bytesMax} THEN ${column} END AS ${column}`;

const SHORT_COLUMNS = `id, ${whereShort("name")}, ${whereShort("tag")}`;

const findBy = (bytesMax?: number): string =>
  `SELECT id, ${whereShort("name", bytesMax)}, ${whereShort("tag", bytesMax)}
  FROM plants WHERE id = ANY ($1::bigint[])`;
export const FIND_LENGTH_MAX = 128;
const FIND = findBy(Math.floor(PIECE_BYTES_MAX / FIND_LENGTH_MAX));
export const FIND_MANY_LENGTH_MAX = PIECE_ROWS_MAX;
const FIND_MANY = findBy();

/** In the order of the ids, up to LONG_BYTES_MAX. */
export async function findPlants(connection: Connection, ids: readonly bigint[]) {
  const find = ids.length <= FIND_LENGTH_MAX ? FIND : FIND_MANY;
  const rows = await connection.query<SentRow>(find, [toArray(ids)]);
  // rows.map() would make another of the client's slow arrays.
  const sent = new Map(Array.from(rows, (row) => [row.id, row]));
  const ordered = ids.map((id) => sent.get(id));
  const findLong = createLongReader(connection, ordered);
  const plants: (Plant | undefined)[] = [];
  let characters = 0;
  for (const row of ordered) {
    if (characters > LONG_BYTES_MAX) break;
    const plant = row?.name === null ? await findLong(row) : row && toPlant(row);
    plants.push(plant as Plant | undefined);
    characters += lengthOf(plant);
  }
  return plants;
}

/** The first row, and further rows until LONG_BYTES_MAX is exceeded. */
const FIND_SOME = `SELECT id, name, tag, changed_at_ms FROM (
    SELECT id, name, tag, changed_at_ms, place, sum(${BYTES})
      OVER (ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM plants JOIN unnest($1::bigint[]) WITH ORDINALITY AS wanted (wanted_id, place) ON id = wanted_id
  ) AS sized
  WHERE coalesce(bytes_before, 0) <= ${LONG_BYTES_MAX} ORDER BY place`;

/** Other statements on the connection wait about 10 ms for it. */
const COUNT_ROWS = 50_000;

export async function countPlants(connection: Connection, query: PlantQuery, scanRowsMax: number) {
  if (needsScan(query)) {
    const { plants, next } = await listPlants(connection, query, scanRowsMax);
    return { count: plants.length, next };
  }
  const firstId = firstIdOf(query);
  if (firstId === undefined) return { count: 0, next: undefined };
  const [row] = await connection.query<{ readonly count: bigint; readonly last: bigint }>(
    `SELECT count(*) AS count, max(id) AS last FROM (SELECT id ${rowsOf(query, COUNT_ROWS)}) AS piece`,
    query.tag === undefined ? [firstId] : [firstId, query.tag],
  );
  const count = Number(row?.count);
  return { count, next: count === COUNT_ROWS ? row?.last : undefined };
}

/** One step takes the server about 10 ms. Other statements on the connection wait for it. */
const SORT_ROWS = 20_000;

/** Most texts need no cut: counting characters costs as much as folding them. */
const foldSql = (column: string): string =>
  `lower(CASE WHEN octet_length(${column}) <= ${KEY_CHARACTERS} THEN ${column}
    ELSE left(${column}, ${KEY_CHARACTERS}) END COLLATE "C")`;

const sortKeys: Readonly<Record<SortName, string>> = {
  name: foldSql("name"),
  tag: foldSql("tag"),
  changed: "changed_at_ms",
};

/** What to sort, and the place before which a result is wanted. */
export interface SortRequest {
  readonly query: PlantQuery;
  readonly sort: Sort;
  readonly bound: Place | undefined;
}

interface SortRow {
  readonly id: bigint | null;
  readonly key: bigint | string | null;
  readonly count: bigint;
  readonly last: bigint;
}

/** The first places of a piece of the store. The row of a piece without any has no id. */
export async function sortPlants(
  connection: Connection,
  { query, sort, bound }: SortRequest,
  scanRowsMax: number,
): Promise<SortPiece> {
  const limit = query.limit + 1;
  const firstId = firstIdOf(query);
  if (firstId === undefined) return { places: [], next: undefined };
  if (needsScan(query))
    return sortScan(await listPlants(connection, toScan(query, sort), scanRowsMax), sort, limit);
  const type = sort.by === "changed" ? "bigint" : "text";
  const between = selectBetween(sort, [`$3::${type}`, "$4::bigint"], [`$5::${type}`, "$6::bigint"]);
  const rows = await connection.query<SortRow>(
    // The ids are read twice: storing the keys of the piece would cost more.
    `WITH ends AS (
      SELECT count(*) AS count, max(id) AS last FROM (SELECT id ${rowsOf(query, SORT_ROWS)}) AS piece
    ), best AS (
      SELECT id, key FROM (SELECT id, ${sortKeys[sort.by]} AS key ${rowsOf(query, SORT_ROWS)}) AS piece
        ${between} LIMIT $7::int
    )
    SELECT id, key, count, last FROM ends
    LEFT JOIN best ON $2::text IS NULL OR true -- Gives the parameter a type, even without a tag.`,
    [firstId, query.tag ?? null, ...valuesOf(sort.after), ...valuesOf(bound), limit],
  );
  const places = Array.from(rows).flatMap(({ id, key }) =>
    id === null ? [] : { id, key: toKey(key) },
  );
  return { places, next: Number(rows[0]?.count) < SORT_ROWS ? undefined : rows[0]?.last };
}

/** The page of these places. */
export async function readSorted(
  connection: Connection,
  query: PlantQuery,
  sort: Sort,
  places: readonly Place[],
): Promise<PlantPage> {
  const page = createSortedPage(query, sort, places);
  for (let at = 0; at < places.length;) {
    const rest = places.slice(at, at + PIECE_ROWS_MAX);
    const rows = await connection.query<TimedRow>(FIND_SOME, [toArray(rest.map(({ id }) => id))]);
    const found = new Map(Array.from(rows, (row) => [row.id, toTimedPlant(row)]));
    // Those after the last row were not read, unless there was none.
    const lastRead = rest.findLastIndex(({ id }) => found.has(id));
    const isAll = rows.length === 0;
    for (const place of isAll ? rest : rest.slice(0, lastRead + 1))
      if (!page.add(place, found.get(place.id))) return page.finish();
    at += isAll ? rest.length : lastRead + 1;
  }
  return page.finish();
}

export async function listTags(connection: Connection, query: TagQuery): Promise<TagPage> {
  const parameters = [query.prefix, query.after ?? null, query.limit];
  return takeTags(await connection.query<TagPrefix>(HEADS, parameters), query.limit);
}

const HEAD = `left(tag, ${TAG_PREFIX_CHARACTERS})`;

const nextHead = (comparison: string): string =>
  `(SELECT ${HEAD} FROM plants WHERE tag IS NOT NULL AND ${HEAD} ${comparison} ORDER BY ${HEAD} LIMIT 1)`;

const HAS_PREFIX = "left(head, length($1::text)) = $1::text";

/** One index seek per tag, however many plants have it. The last row may lack the prefix, or be null. */
const HEADS = `WITH RECURSIVE heads (head, seen, listed) AS (
    SELECT ${nextHead(`>= greatest($1::text COLLATE "C", left($2::text, ${TAG_PREFIX_CHARACTERS}) || chr(1))`)}, 0, 0
    UNION ALL
    SELECT ${nextHead("> head")}, seen + 1,
      CASE WHEN length(head) < ${TAG_PREFIX_CHARACTERS} THEN listed + 1 ELSE listed END
    FROM heads WHERE ${HAS_PREFIX} AND seen < ${TAG_PREFIXES_MAX} AND listed < $3::int
  )
  SELECT head, octet_length(head) AS bytes FROM heads WHERE ${HAS_PREFIX} ORDER BY seen`;
