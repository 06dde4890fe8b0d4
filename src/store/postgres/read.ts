/** Rows of plants, tags and the journal, for the reads of src/store/reads.ts. */

import {
  type PlantQuery,
  type SortName,
  TAG_PREFIX_CHARACTERS,
  TAG_PREFIXES_MAX,
} from "../../domain/page.ts";
import { tagsOf } from "../../domain/filter.ts";
import { INT64_MAX } from "../../domain/json.ts";
import { lengthOf, type Plant } from "../../domain/plant.ts";
import { KEY_CHARACTERS } from "../../domain/sort.ts";
import {
  createTextReader,
  readLater,
  rowsOfEach,
  selectBetween,
  type SentRow,
  type Source,
  type TimedRow,
  toKey,
  toPlant,
  toSlots,
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
      selectRows(columns, query, length),
      startOf(query, firstId),
    );
    const last = rows.length < length ? undefined : rows.at(-1)?.id;
    return { rows, last, length: rows.length };
  },

  findTexts: (ids) => findTexts(connection, ids),

  sort: async (query, sort, firstId, bound) => {
    const tags = toSlots(tagsOf(query));
    const length = rowsOfEach(tags, SORT_ROWS);
    const type = sort.by === "changed" ? "bigint" : "text";
    const between = selectBetween(
      sort,
      [`$2::${type}`, "$3::bigint"],
      [`$4::${type}`, "$5::bigint"],
    );
    const keyed = selectTagged(`id, ${sortKeys[sort.by]} AS key`, query, length, 6).join(UNION);
    const rows = await connection.query<SortRow>(
      // The ids are read twice: storing the keys of the piece would cost more.
      `WITH piece_end AS (${selectPieceEnd(query, length, 6)}), best AS (
      SELECT id, key FROM (SELECT * FROM (${keyed}) AS parts ${UP_TO_END}) AS piece
        ${between} LIMIT $6::int
    )
    SELECT id, key, last FROM piece_end LEFT JOIN best ON true`,
      [firstId, ...valuesOf(sort.after), ...valuesOf(bound), query.limit + 1, ...tags],
    );
    // The row of a piece without any has no id.
    const positions = Array.from(rows).flatMap(({ id, key }) =>
      id === null ? [] : { id, key: toKey(key) },
    );
    return { positions, next: rows[0]?.last ?? undefined };
  },

  count: async (query, firstId) => {
    const tags = toSlots(tagsOf(query));
    const length = rowsOfEach(tags, COUNT_ROWS);
    const ids = selectTagged("id", query, length).join(UNION);
    const [row] = await connection.query<CountRow>(
      tags.length < 2
        ? `SELECT count(*) AS count, CASE WHEN count(*) = ${length} THEN max(id) END AS last FROM (${ids}) AS piece`
        : `WITH piece_end AS (${selectPieceEnd(query, length)})
          SELECT count(*) AS count, (SELECT last FROM piece_end) AS last FROM (${ids}) AS piece ${UP_TO_END}`,
      startOf(query, firstId),
    );
    return { count: Number(row?.count), next: row?.last ?? undefined };
  },

  listHeads: ({ prefix, after, limit }) => connection.query(HEADS, [prefix, after ?? null, limit]),
  findNewest: () => newest,
  findLastBreak: () => findLastBreak(connection),
  readBlocks: (query, start) => readBlocks(connection, query, start),
});

const startOf = (query: PlantQuery, firstId: bigint) => [firstId, ...toSlots(tagsOf(query))];

/**
 * Selects the next rows from the id $1 on: for each tag, or once for all plants. The tags are the parameters after `used`.
 *
 * LIMIT is a literal: with a parameter the server replans every page, which takes as long as reading it. A tag has a
 * lower bound in the index and an upper one whose value the planner does not know. With an equality it would expect few
 * rows, and for each page read and sort all plants of the tag.
 */
function selectTagged(
  columns: string,
  query: PlantQuery,
  length: number,
  used = 1,
): readonly string[] {
  const { order } = query;
  const [from, to] = order === "asc" ? [">=", "<="] : ["<=", ">="];
  const end = `${order} LIMIT ${length}`;
  const parts = toSlots(tagsOf(query)).map((_, slot) => {
    const tag = `$${used + slot + 1}::text`;
    return `(SELECT ${columns} FROM plants
      WHERE (left(tag, 100), id) ${from} (left(${tag}, 100), $1::bigint)
        AND left(tag, 100) ${to} (SELECT left(${tag}, 100)) AND coalesce(tag = ${tag}, false)
      ORDER BY left(tag, 100) ${order}, id ${end})`;
  });
  return parts.length > 0
    ? parts
    : [`(SELECT ${columns} FROM plants WHERE id ${from} $1::bigint ORDER BY id ${end})`];
}

const UNION = " UNION ALL ";

/** The same rows merged. */
function selectRows(columns: string, query: PlantQuery, length: number): string {
  const parts = selectTagged(columns, query, length);
  const [only] = parts;
  if (parts.length === 1 && only !== undefined) return only;
  return `SELECT * FROM (${parts.join(UNION)}) AS merged ORDER BY id ${query.order} LIMIT ${length}`;
}

/**
 * The end of a piece with at most `length` rows of each tag: the smallest id at which the rows of a tag end; null if all
 * do. Ascending.
 */
const selectPieceEnd = (query: PlantQuery, length: number, used?: number): string =>
  `SELECT min(last) AS last FROM (${selectTagged("id", query, length, used)
    .map(
      (one) => `SELECT CASE WHEN count(*) = ${length} THEN max(id) END AS last FROM ${one} AS part`,
    )
    .join(UNION)}) AS parts`;

const UP_TO_END = `WHERE id <= coalesce((SELECT last FROM piece_end), ${INT64_MAX})`;

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
  /** Null in the last piece. */
  readonly last: bigint | null;
}
type CountRow = Pick<SortRow, "last"> & { readonly count: bigint };

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
