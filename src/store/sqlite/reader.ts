/** A read-only connection. It sees a commit after its sync, never before. Readers do not block the writer. */

import type { Database } from "bun:sqlite";
import { Refusal } from "../../domain/errors.ts";
import { findHint, needsScan, tagsOf } from "../../domain/filter.ts";
import { INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import {
  type Order,
  type Position,
  type PlantQuery,
  type Sort,
  type SortName,
  TAG_PREFIX_CHARACTERS,
  type TagPrefix,
  type TagQuery,
} from "../../domain/page.ts";
import { lengthOf, type Plant } from "../../domain/plant.ts";
import { formatSort, KEY_CHARACTERS } from "../../domain/sort.ts";
import type { StoreLimits } from "../../domain/store.ts";
import { type BlockRow, partOf, timesOf } from "../journal.ts";
import {
  perform,
  type PlantRow,
  type ReadRequest,
  readNow,
  rowsOfEach,
  selectBetween,
  type Source,
  type TimedRow,
  toKey,
  toPlant,
  toSlots,
  valuesOf,
} from "../reads.ts";
import type { Statement, Value } from "../engine.ts";
import {
  IS_BEGINNING,
  measureFiles,
  movedError,
  openReadOnly,
  runOn,
  translate,
  watchFile,
} from "./database.ts";

/** What the reader thread does, as plain data. */
export type ReaderOrder = ReadRequest | Readonly<{ kind: "records"; reads: readonly RecordRead[] }>;

/** Rows of tokens or webhooks, or the sizes of the files. */
export type RecordRead = Statement | "files";

/** Bounds the memory of look-ups that run together. The rest wait for the next round. */
const LOOK_UP_CHARACTERS_MAX = 524_288;
/** Interval between two checks whether the file was moved. */
export const WATCH_MS = 50;
/** Rows between two clock checks: about 1 ms if none match. */
const STEP_ROWS = 5_000;
/** Counting these takes about 10 ms. */
const COUNT_ROWS = 200_000;

/** LIKE agrees with our search on short ASCII text. The search itself checks everything else. */
const mayMatch = (column: string): string =>
  `octet_length(${column}) > 4096 OR length(${column}) < octet_length(${column}) OR ${column} LIKE ?3 ESCAPE '\\'`;

/**
 * A SELECT for each tag, or one for all plants. The tags are the parameters after `used`. The tag index has the ids of
 * each tag in order, so pages walk it like the table; those of several tags are merged row by row.
 */
const selectTagged = (
  slots: number,
  used: number,
  columns: string,
  condition: string,
): readonly string[] =>
  slots === 0
    ? [`SELECT ${columns} FROM plants WHERE ${condition}`]
    : Array.from({ length: slots }, (_, slot) => {
        return `SELECT ${columns} FROM plants WHERE tag = ?${used + slot + 1} AND ${condition}`;
      });

const UNION = " UNION ALL ";

/** Whether a block may have changes that match the text ?2, and the times ?3 and ?4. */
const IS_WANTED = `(?3 IS NULL OR at_ms >= ?3) AND (?4 IS NULL OR at_ms <= ?4)
  AND (?2 IS NULL OR instr(entries, ?2))`;

const sortKeys: Readonly<Record<SortName, string>> = {
  name: `lower(substr(name, 1, ${KEY_CHARACTERS}))`,
  tag: `lower(substr(tag, 1, ${KEY_CHARACTERS}))`,
  changed: "changed_at_ms",
};

/**
 * Whether the key may be between ?4 and ?6, without computing it: most rows of a scan are not. NOCASE agrees with the
 * keys, whose letters A to Z are in lower case.
 */
function mayBeOn({ by, isDescending }: Sort): string {
  const isText = by !== "changed";
  const column = isText ? by : "changed_at_ms";
  const isFrom = (key: string): string => `${column} ${isText ? "COLLATE NOCASE" : ""} >= ${key}`;
  // A key is the beginning of its text. UTF-8 has no byte 255.
  const isUpTo = (key: string): string =>
    isText ? `${column} COLLATE NOCASE < ${key} || x'ff'` : `${column} <= ${key}`;
  const [isLater, isEarlier] = isDescending ? [isUpTo, isFrom] : [isFrom, isUpTo];
  return `(?4 IS NULL OR ${column} IS NULL OR ${isLater("?4")}) AND (?6 IS NULL OR ${isEarlier("?6")})`;
}

function prepareAll(db: Database) {
  const prepare = <Row>(sql: string) => db.prepare<Row, Value[]>(sql);
  /** From the id ?1 on. The tags come last. */
  const prepareWalk = (order: Order, slots: number, columns: string) => {
    const [from, to] = order === "asc" ? [">=", "<="] : ["<=", ">="];
    const rows = (used: number, shown: string, more = "") =>
      selectTagged(slots, used, shown, `id ${from} ?1 ${more}`);
    const inOrder = `ORDER BY id ${order}`;
    return {
      page: prepare<PlantRow<bigint | number>>(
        `${rows(2, columns).join(UNION)} ${inOrder} LIMIT ?2`,
      ),
      // The id of row number ?2, if there are that many.
      last: prepare<{ id: bigint }>(
        `${rows(2, "id").join(UNION)} ${inOrder} LIMIT 1 OFFSET ?2 - 1`,
      ),
      // The smallest id of row number ?2 of a tag: a piece up to there has at most that many rows of each. Ascending.
      pieceEnd: prepare<{ id: bigint | null }>(
        `SELECT min(id) AS id FROM (${rows(2, "id")
          .map((one) => `SELECT * FROM (${one} ORDER BY id LIMIT 1 OFFSET ?2 - 1)`)
          .join(UNION)})`,
      ),
      count: prepare<{ count: bigint }>(
        `SELECT sum(count) AS count FROM (${rows(2, "count(*) AS count", "AND id <= ?2").join(UNION)})`,
      ),
      // The rows up to ?2 that may match, and ?2 itself.
      candidates: prepare<PlantRow>(
        `${rows(
          4,
          columns,
          `AND id ${to} ?2 AND (id = ?2 OR (?3 IS NULL OR ${mayMatch("name")} OR ${mayMatch("tag")})
            AND (?4 IS NULL OR (tag IS NOT NULL) = ?4))`,
        ).join(UNION)} ${inOrder}`,
      ),
    };
  };
  const walks = makeLazily<ReturnType<typeof prepareWalk>>();
  const sorted = makeLazily<ReturnType<typeof prepare<Position>>>();
  return {
    db,
    begin: prepare("BEGIN"),
    commit: prepare("COMMIT"),
    findPlant: prepare<PlantRow>("SELECT id, name, tag FROM plants WHERE id = ?"),
    findTimed: prepare<TimedRow>("SELECT id, name, tag, changed_at_ms FROM plants WHERE id = ?"),
    walk: (order: Order, slots: number, hasTimes: boolean) =>
      walks(`${order} ${slots} ${hasTimes}`, () =>
        prepareWalk(order, slots, `id, name, tag${hasTimes ? ", changed_at_ms" : ""}`),
      ),
    // The first ?3 of the rows from ?1 to ?2 that come after the position ?4, ?5 and before the position ?6, ?7.
    sorted: (sort: Sort, slots: number) =>
      sorted(`${formatSort(sort)} ${slots}`, () => {
        const rows = selectTagged(
          slots,
          7,
          `id, ${sortKeys[sort.by]} AS key`,
          `id BETWEEN ?1 AND ?2 AND ${mayBeOn(sort)}`,
        ).join(UNION);
        return prepare<Position>(
          `SELECT * FROM (${rows}) ${selectBetween(sort, ["?4", "?5"], ["?6", "?7"])} LIMIT ?3`,
        );
      }),
    // A tag has no byte 0, so every tag after a whole tag is at least that tag plus byte 1. UTF-8 has no byte 255, so a
    // prefix plus byte 255 sorts after all tags with that prefix.
    nextTag: prepare<TagPrefix>(
      `SELECT substr(tag, 1, ${TAG_PREFIX_CHARACTERS}) AS head, octet_length(tag) AS bytes
        FROM plants WHERE tag >= max(?1, coalesce(substr(?2, 1, ${TAG_PREFIX_CHARACTERS})
          || iif(length(?2) < ${TAG_PREFIX_CHARACTERS}, x'01', x'ff'), '')) ORDER BY tag LIMIT 1`,
    ),
    // The first row is the block that contains the number ?1. Only its numbers are used.
    readChanges: prepare<BlockRow>(
      `SELECT first, last, at_ms, ${IS_BEGINNING} AS is_beginning,
        iif(last > ?1 AND ${IS_WANTED}, entries, NULL) AS entries
        FROM changes WHERE last >= ?1 ORDER BY last`,
    ),
    // From the block that contains the number ?1 back.
    readChangesBack: prepare<BlockRow>(
      `SELECT first, last, at_ms, iif(${IS_WANTED}, entries, NULL) AS entries
        FROM changes WHERE last <= coalesce((SELECT min(last) FROM changes WHERE last >= ?1), ?1)
        ORDER BY last DESC`,
    ),
    lastBreak: prepare<{ last: bigint | null }>(
      "SELECT max(last) AS last FROM changes WHERE first > last",
    ),
    newestChange: prepare<{ newest: bigint }>("SELECT max(last) AS newest FROM changes"),
  };
}

type Statements = ReturnType<typeof prepareAll>;

interface ReadConnection extends Statements {
  readonly source: Source;
}

function connect(path: string, limits: StoreLimits): ReadConnection {
  const statements = prepareAll(openReadOnly(path));
  const exact = createSource(statements, limits.scanRowsMax);
  return { ...statements, source: createSource(statements, limits.scanRowsMax, exact) };
}

/** Each is made on first use: most clients need none. */
function makeLazily<Item>() {
  const items = new Map<string, Item>();
  return (name: string, make: () => Item): Item => {
    const item = items.get(name) ?? make();
    items.set(name, item);
    return item;
  };
}

/** Every method throws translated errors. */
export class SqliteReader {
  private connection: ReadConnection | undefined;
  private readonly path: string;
  private readonly assertFileNotMoved: () => void;

  /** `isMoved` tells whether the file was moved, on a thread that must not touch the disk. */
  constructor(path: string, limits: StoreLimits, isMoved?: () => boolean) {
    this.connection = connect(path, limits);
    this.path = path;
    this.assertFileNotMoved =
      isMoved === undefined
        ? throttle(watchFile(path))
        : () => {
            if (isMoved()) throw movedError(path);
          };
  }

  /** Finalizes its statements too: an unfinished one would keep the file open. */
  close(): void {
    this.connection?.db.close(true);
    this.connection = undefined;
  }

  /** In the order of the ids, up to LOOK_UP_CHARACTERS_MAX. */
  findPlants(ids: readonly bigint[]): (Plant | undefined)[] {
    const find = ({ findPlant }: ReadConnection): (Plant | undefined)[] =>
      lookUp(ids, (id) => findPlant.get(id)).map((row) =>
        row === null ? undefined : toPlant(row),
      );
    // One read transaction for all: its lock costs more than a look-up.
    return ids.length === 1 ? this.read(find) : this.readSnapshot(find);
  }

  perform(order: ReaderOrder): unknown {
    if (order.kind === "records") return order.reads.map((read) => this.readRecord(read));
    const isPage =
      order.kind === "plants" && !needsScan(order.query) && order.positions === undefined;
    const read = ({ source }: ReadConnection): unknown => readNow(perform(source, order));
    return isPage ? this.read(read) : this.readSnapshot(read);
  }

  private readRecord(read: RecordRead): unknown {
    return read === "files" ? measureFiles(this.path) : this.read(({ db }) => runOn(db, read));
  }

  private readSnapshot<Result>(query: (connection: ReadConnection) => Result): Result {
    return this.read((connection) => {
      connection.begin.run();
      try {
        return query(connection);
      } finally {
        if (connection.db.inTransaction) connection.commit.run();
      }
    });
  }

  private read<Result>(query: (connection: ReadConnection) => Result): Result {
    if (this.connection === undefined) throw new Refusal("shutting_down");
    try {
      this.assertFileNotMoved();
      return query(this.connection);
    } catch (error) {
      throw translate(error);
    }
  }
}

/** In the order of the ids, up to LOOK_UP_CHARACTERS_MAX. */
function lookUp<Row extends PlantRow>(
  ids: readonly bigint[],
  find: (id: bigint) => Row | null,
): (Row | null)[] {
  const rows: (Row | null)[] = [];
  let characters = 0;
  for (const id of ids) {
    if (characters > LOOK_UP_CHARACTERS_MAX) break;
    const row = find(id);
    if (row !== null) characters += lengthOf(toPlant(row));
    rows.push(row);
  }
  return rows;
}

/** Calls the check if the last one that passed was WATCH_MS ago. */
function throttle(check: () => void): () => void {
  let checkedAtMs = Number.NEGATIVE_INFINITY;
  return () => {
    const nowMs = performance.now();
    if (nowMs - checkedAtMs <= WATCH_MS) return;
    check();
    checkedAtMs = nowMs;
  };
}

/** Rows are read one by one: a page may end long before the last. Ids of pages are numbers unless it is exact. */
function createSource(statements: Statements, scanRowsMax: number, exact?: Source): Source {
  const walkOf = (query: PlantQuery) => {
    const tags = toSlots(tagsOf(query));
    return { ...statements.walk(query.order, tags.length, query.hasTimes === true), tags };
  };
  let lastBreak: number | undefined;
  return {
    stepRows: STEP_ROWS,
    tickMs: Number.POSITIVE_INFINITY,
    scanRowsMax,
    exact,

    scan: (query, firstId, length) => {
      const { tagged = null, order } = query;
      const { page, last, candidates, tags } = walkOf(query);
      if (!needsScan(query)) {
        const rows = page.safeIntegers(exact === undefined).iterate(firstId, length, ...tags);
        return { rows, last: undefined, length };
      }
      const hint = findHint(query);
      const pattern = hint === undefined ? null : `%${hint.replace(/[%_\\]/g, "\\$&")}%`;
      const lastId = last.get(firstId, length, ...tags)?.id;
      const end = lastId ?? (order === "asc" ? INT64_MAX : INT64_MIN);
      const rows = candidates.iterate(firstId, end, pattern, tagged, ...tags);
      return { rows, last: lastId, length };
    },

    findTexts: (ids) =>
      lookUp(ids, (id) => statements.findTimed.get(id)).filter((row) => row !== null),

    sort: (query, sort, firstId, bound) => {
      const { pieceEnd, tags } = walkOf(query);
      const next = pieceEnd.get(firstId, rowsOfEach(tags, STEP_ROWS), ...tags)?.id ?? undefined;
      const ends = [...valuesOf(sort.after), ...valuesOf(bound)];
      const rows = statements
        .sorted(sort, tags.length)
        .all(firstId, next ?? INT64_MAX, query.limit + 1, ...ends, ...tags);
      return { positions: rows.map(({ id, key }) => ({ id, key: toKey(key) })), next };
    },

    count: (query, firstId) => {
      const { pieceEnd, count, tags } = walkOf(query);
      const next = pieceEnd.get(firstId, rowsOfEach(tags, COUNT_ROWS), ...tags)?.id ?? undefined;
      if (next !== undefined && tags.length < 2) return { count: COUNT_ROWS, next };
      return { count: Number(count.get(firstId, next ?? INT64_MAX, ...tags)?.count), next };
    },

    listHeads: (query) => walkTags(statements, query),
    findNewest: () => Number(statements.newestChange.get()?.newest),

    // Cached: finding it is a scan, and no break is added while a process keeps a journal.
    findLastBreak: () => (lastBreak ??= Number(statements.lastBreak.get()?.last ?? 0)),

    readBlocks: (query, start) => {
      const { readChanges, readChangesBack } = statements;
      const read = query.order === "desc" ? readChangesBack : readChanges;
      return read.iterate(start, partOf(query), ...timesOf(query));
    },
  };
}

/** Distinct tags. Each costs one index seek, however many plants have it. */
function* walkTags({ nextTag }: Statements, { prefix, after }: TagQuery): Iterable<TagPrefix> {
  for (let last = after; ;) {
    const row = nextTag.get(prefix, last ?? null);
    if (row === null || !row.head.startsWith(prefix)) return;
    yield row;
    last = row.head;
  }
}
