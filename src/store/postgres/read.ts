/** Rows of plants, tags and the journal, for the reads of src/store/reads.ts. */

import {
  type PlantQuery,
  type SortName,
  TAG_PREFIX_CHARACTERS,
  TAG_PREFIXES_MAX,
} from "../../domain/page.ts";
import { lengthOf, type Plant } from "../../domain/plant.ts";
import { KEY_CHARACTERS } from "../../domain/sort.ts";
import {
  createTextReader,
  readLater,
  selectBetween,
  type SentRow,
  type Source,
  type TimedRow,
  toKey,
  toPlant,
  valuesOf,
} from "../reads.ts";
import { CHANGES_MS_MAX, findLastBreak, readBlocks } from "./changes.ts";
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

/** `newest` is the result of `numberBlocks`, called just before, for a read of changes. */
export const createSource = (connection: Connection, scanRowsMax: number, newest = 0): Source => ({
  stepRows: PIECE_ROWS_MAX,
  searchMsMax: SEARCH_MS_MAX,
  changesMsMax: CHANGES_MS_MAX,
  tickMs: TICK_MS,
  scanRowsMax,

  scan: async (query, firstId, wanted) => {
    const length = PIECE_LENGTHS.find((known) => known >= wanted) ?? PIECE_ROWS_MAX;
    const columns = query.hasTimes ? `${SHORT_COLUMNS}, changed_at_ms` : SHORT_COLUMNS;
    const rows = await connection.query<SentRow>(
      `SELECT ${columns} ${rowsOf(query, length)}`,
      startOf(query, firstId),
    );
    const last = rows.length < length ? undefined : rows.at(-1)?.id;
    return { rows, last, length: rows.length };
  },

  findTexts: (ids) => findTexts(connection, ids),

  sort: async (query, sort, firstId, bound) => {
    const type = sort.by === "changed" ? "bigint" : "text";
    const between = selectBetween(
      sort,
      [`$3::${type}`, "$4::bigint"],
      [`$5::${type}`, "$6::bigint"],
    );
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
      [firstId, query.tag ?? null, ...valuesOf(sort.after), ...valuesOf(bound), query.limit + 1],
    );
    // The row of a piece without any has no id.
    const positions = Array.from(rows).flatMap(({ id, key }) =>
      id === null ? [] : { id, key: toKey(key) },
    );
    return { positions, next: Number(rows[0]?.count) < SORT_ROWS ? undefined : rows[0]?.last };
  },

  count: async (query, firstId) => {
    const [row] = await connection.query<Record<"count" | "last", bigint>>(
      `SELECT count(*) AS count, max(id) AS last FROM (SELECT id ${rowsOf(query, COUNT_ROWS)}) AS piece`,
      startOf(query, firstId),
    );
    const count = Number(row?.count);
    return { count, next: count === COUNT_ROWS ? row?.last : undefined };
  },

  listHeads: ({ prefix, after, limit }) => connection.query(HEADS, [prefix, after ?? null, limit]),
  findNewest: () => newest,
  findLastBreak: () => findLastBreak(connection),
  readBlocks: (query, start) => readBlocks(connection, query, start),
});

const startOf = ({ tag }: PlantQuery, firstId: bigint) =>
  tag === undefined ? [firstId] : [firstId, tag];

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
  const findText = createTextReader((long) => findTexts(connection, long), ordered);
  const plants: (Plant | undefined)[] = [];
  let characters = 0;
  for (const row of ordered) {
    if (characters > LONG_BYTES_MAX) break;
    const plant = row?.name === null ? await readLater(findText(row)) : row && toPlant(row);
    plants.push(plant as Plant | undefined);
    characters += lengthOf(plant);
  }
  return plants;
}

const findTexts = (connection: Connection, ids: readonly bigint[]) =>
  connection.query<TimedRow>(FIND_SOME, [toArray(ids)]);

/** The first row, and further rows until LONG_BYTES_MAX is exceeded. */
const FIND_SOME = `SELECT id, name, tag, changed_at_ms FROM (
    SELECT id, name, tag, changed_at_ms, place, sum(${BYTES})
      OVER (ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM plants JOIN unnest($1::bigint[]) WITH ORDINALITY AS wanted (wanted_id, place) ON id = wanted_id
  ) AS sized
  WHERE coalesce(bytes_before, 0) <= ${LONG_BYTES_MAX} ORDER BY place`;

/** Other statements on the connection wait about 10 ms for it. */
const COUNT_ROWS = 50_000;

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

interface SortRow {
  readonly id: bigint | null;
  readonly key: bigint | string | null;
  readonly count: bigint;
  readonly last: bigint;
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
