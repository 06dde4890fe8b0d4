/** A read-only connection. It sees a commit after its sync, never before. Readers do not block the writer. */

import type { Database } from "bun:sqlite";
import type { ChangeQuery } from "../../domain/change.ts";
import { Refusal } from "../../domain/errors.ts";
import { findHint, needsScan } from "../../domain/filter.ts";
import {
  type CountPage,
  createPage,
  firstIdOf,
  type Order,
  type PageForm,
  type PageText,
  type Place,
  type PlantPage,
  type PlantQuery,
  type Sort,
  type SortName,
  TAG_PREFIX_CHARACTERS,
  type TagPrefix,
  type TagQuery,
  takeTags,
} from "../../domain/page.ts";
import { INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import { lengthOf, type ListedPlant, type Plant } from "../../domain/plant.ts";
import {
  createSortedPage,
  FirstPlaces,
  formatSort,
  KEY_CHARACTERS,
  type SortPiece,
  sortScan,
  toScan,
} from "../../domain/sort.ts";
import type { StoreLimits } from "../../domain/store.ts";
import type { Statement, Value } from "../records.ts";
import { type BlockRow, createChangePage, partOf, timesOf } from "../journal.ts";
import {
  formatPage,
  type PlantRow,
  selectBetween,
  type TimedRow,
  toKey,
  toPlant,
  toTimedPlant,
  valuesOf,
} from "../sql-store.ts";
import {
  IS_BEGINNING,
  measureFiles,
  movedError,
  openReadOnly,
  runOn,
  translate,
  watchFile,
} from "./database.ts";

/** A read that may take long, as plain data, so another thread can run it. */
export type ReadRequest =
  | ({ readonly kind: "plants"; readonly form: PageForm } & PageRead)
  | {
      readonly kind: "sort";
      readonly query: PlantQuery;
      readonly sort: Sort;
      readonly bound: Bound;
    }
  | { readonly kind: "count"; readonly query: PlantQuery }
  | { readonly kind: "tags"; readonly query: TagQuery }
  | { readonly kind: "changes"; readonly query: ChangeQuery }
  | { readonly kind: "records"; readonly reads: readonly RecordRead[] };

interface PageRead {
  readonly query: PlantQuery;
  /** Of a sorted list, the places of the page. */
  readonly places?: readonly Place[] | undefined;
}

type Bound = Place | undefined;

/** Rows of tokens or webhooks, or the sizes of the files. */
export type RecordRead = Statement | "files";

/** Bounds the memory of look-ups that run together. The rest wait for the next round. */
const LOOK_UP_CHARACTERS_MAX = 524_288;
/** Interval between two checks whether the file was moved. */
export const WATCH_MS = 50;
/** Rows between two clock checks: about 1 ms if none match. */
const STEP_ROWS = 5_000;
/** A piece of a sort ends after the first step that exceeds it. */
const SORT_MS_MAX = 10;
/** Counting these takes about 10 ms. */
const COUNT_ROWS = 200_000;

/** LIKE agrees with our search on short ASCII text. The search itself checks everything else. */
const mayMatch = (column: string): string =>
  `octet_length(${column}) > 4096 OR length(${column}) < octet_length(${column}) OR ${column} LIKE ?4 ESCAPE '\\'`;

/** The tag index has the ids of each tag in order, so pages walk it like the table. */
const TAGGED = "tag = ?1 AND";

/** Whether a block may have changes that match the text ?2, and the times ?3 and ?4. */
const IS_WANTED = `(?3 IS NULL OR at_ms >= ?3) AND (?4 IS NULL OR at_ms <= ?4)
  AND (?2 IS NULL OR instr(entries, ?2))`;

const sortKeys: Readonly<Record<SortName, string>> = {
  name: `lower(substr(name, 1, ${KEY_CHARACTERS}))`,
  tag: `lower(substr(tag, 1, ${KEY_CHARACTERS}))`,
  changed: "changed_at_ms",
};

/**
 * Whether the key may be between ?5 and ?7, without computing it: most rows of a scan are not. NOCASE agrees with the
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
  return `(?5 IS NULL OR ${column} IS NULL OR ${isLater("?5")}) AND (?7 IS NULL OR ${isEarlier("?7")})`;
}

function connect(db: Database) {
  const prepare = <Row>(sql: string) => db.prepare<Row, Value[]>(sql);
  const prepareWalk = (order: Order, condition: string, columns = "id, name, tag") => {
    const [from, to] = order === "asc" ? [">=", "<="] : ["<=", ">="];
    const rows = `FROM plants WHERE ${condition} id ${from} ?2`;
    return {
      page: prepare<PlantRow<bigint | number>>(
        `SELECT ${columns} ${rows} ORDER BY id ${order} LIMIT ?3`,
      ),
      // The id of row number ?3, if there are that many.
      last: prepare<{ id: bigint }>(`SELECT id ${rows} ORDER BY id ${order} LIMIT 1 OFFSET ?3 - 1`),
      count: prepare<{ count: bigint }>(`SELECT count(*) AS count ${rows}`),
      // The rows up to ?3 that may match, and ?3 itself.
      candidates: prepare<PlantRow>(
        `SELECT ${columns} ${rows} AND id ${to} ?3
        AND (id = ?3 OR (?4 IS NULL OR ${mayMatch("name")} OR ${mayMatch("tag")})
          AND (?5 IS NULL OR (tag IS NOT NULL) = ?5)) ORDER BY id ${order}`,
      ),
    };
  };
  const timed = makeLazily<ReturnType<typeof prepareWalk>>();
  const sorted = makeLazily<ReturnType<typeof prepare<Place>>>();
  return {
    db,
    begin: prepare("BEGIN"),
    commit: prepare("COMMIT"),
    findPlant: prepare<PlantRow>("SELECT id, name, tag FROM plants WHERE id = ?"),
    all: { asc: prepareWalk("asc", ""), desc: prepareWalk("desc", "") },
    tagged: { asc: prepareWalk("asc", TAGGED), desc: prepareWalk("desc", TAGGED) },
    findTimed: prepare<TimedRow>("SELECT id, name, tag, changed_at_ms FROM plants WHERE id = ?"),
    timed: (order: Order, isTagged: boolean) =>
      timed(`${order} ${isTagged}`, () =>
        prepareWalk(order, isTagged ? TAGGED : "", "id, name, tag, changed_at_ms"),
      ),
    // The first ?4 of the rows from ?2 to ?3 that come after the place ?5, ?6 and before the place ?7, ?8.
    sorted: (sort: Sort, isTagged: boolean) =>
      sorted(`${formatSort(sort)} ${isTagged}`, () =>
        prepare<Place>(
          `SELECT * FROM (SELECT id, ${sortKeys[sort.by]} AS key FROM plants
            WHERE ${isTagged ? TAGGED : ""} id BETWEEN ?2 AND ?3 AND ${mayBeOn(sort)})
          ${selectBetween(sort, ["?5", "?6"], ["?7", "?8"])} LIMIT ?4`,
        ),
      ),
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

type ReadConnection = ReturnType<typeof connect>;

function walkOf({ all, tagged, timed }: ReadConnection, { tag, order, hasTimes }: PlantQuery) {
  if (hasTimes) return timed(order, tag !== undefined);
  return (tag === undefined ? all : tagged)[order];
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

/** The rows of a query that lists times have one more column. */
const toListed = ({ hasTimes }: PlantQuery, row: PlantRow<bigint | number>): ListedPlant =>
  hasTimes ? toTimedPlant(row as TimedRow<bigint | number>) : toPlant(row);

/** Every method throws translated errors. */
export class SqliteReader {
  private connection: ReadConnection | undefined;
  private readonly path: string;
  private readonly limits: StoreLimits;
  private readonly assertFileNotMoved: () => void;
  private lastBreak: number | undefined;

  /** `isMoved` tells whether the file was moved, on a thread that must not touch the disk. */
  constructor(path: string, limits: StoreLimits, isMoved?: () => boolean) {
    this.connection = connect(openReadOnly(path));
    this.path = path;
    this.limits = limits;
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
    const find = ({ findPlant }: ReadConnection): (Plant | undefined)[] => {
      const found: (Plant | undefined)[] = [];
      let characters = 0;
      for (const id of ids) {
        if (characters > LOOK_UP_CHARACTERS_MAX) break;
        const row = findPlant.get(id);
        const plant = row === null ? undefined : toPlant(row);
        characters += lengthOf(plant);
        found.push(plant);
      }
      return found;
    };
    // One read transaction for all: its lock costs more than a look-up.
    return ids.length === 1 ? this.read(find) : this.readSnapshot(find);
  }

  /** A sorted list needs the places of the page. */
  listPlants(query: PlantQuery, places?: readonly Place[]): PlantPage {
    const { sort } = query;
    if (sort !== undefined && places !== undefined)
      return this.readSnapshot((connection) => readSorted(connection, query, sort, places));
    return needsScan(query)
      ? this.readSnapshot((connection) => this.searchPlants(connection, query))
      : this.read((connection) => readPage(connection, query));
  }

  readPlants(query: PlantQuery, form: PageForm, places?: readonly Place[]): PageText {
    return formatPage(this.listPlants(query, places), form, query);
  }

  perform(order: ReadRequest) {
    if (order.kind === "plants") return this.readPlants(order.query, order.form, order.places);
    if (order.kind === "sort")
      return this.readSnapshot((connection) =>
        this.sortPlants(connection, order.query, order.sort, order.bound),
      );
    if (order.kind === "count")
      return this.readSnapshot((connection) => this.countPlants(connection, order.query));
    if (order.kind === "changes") return this.readChanges(order.query);
    if (order.kind === "records") return order.reads.map((read) => this.readRecord(read));
    const { query } = order;
    return this.readSnapshot((connection) => takeTags(walkTags(connection, query), query.limit));
  }

  private readRecord(read: RecordRead): unknown {
    return read === "files" ? measureFiles(this.path) : this.read(({ db }) => runOn(db, read));
  }

  private searchPlants(connection: ReadConnection, query: PlantQuery): PlantPage {
    const { tag = null, tagged = null, order } = query;
    const { last, candidates } = walkOf(connection, query);
    const hint = findHint(query);
    const pattern = hint === undefined ? null : `%${hint.replace(/[%_\\]/g, "\\$&")}%`;
    const page = createPage(query, this.limits.scanRowsMax);
    let firstId = firstIdOf(query);
    while (firstId !== undefined) {
      const rows = page.rowsLeft(STEP_ROWS);
      const lastId = last.get(tag, firstId, rows)?.id;
      const end = lastId ?? (order === "asc" ? INT64_MAX : INT64_MIN);
      let found = 0;
      for (const row of candidates.iterate(tag, firstId, end, pattern, tagged)) {
        if (!page.add(toListed(query, row))) return { plants: page.plants, next: page.lastId };
        found++;
      }
      if (lastId === undefined) break;
      page.skip(rows - found);
      firstId = firstIdOf({ ...query, after: lastId });
    }
    return { plants: page.plants, next: undefined };
  }

  private sortPlants(
    connection: ReadConnection,
    query: PlantQuery,
    sort: Sort,
    bound: Bound,
  ): SortPiece {
    const limit = query.limit + 1;
    if (needsScan(query))
      return sortScan(this.searchPlants(connection, toScan(query, sort)), sort, limit);
    const first = new FirstPlaces(sort, limit);
    const { tag = null } = query;
    const { last } = walkOf(connection, query);
    const endsAtMs = performance.now() + SORT_MS_MAX;
    for (let firstId = firstIdOf(query); firstId !== undefined;) {
      const lastId = last.get(tag, firstId, STEP_ROWS)?.id;
      const end = first.bound ?? bound;
      const rows = connection
        .sorted(sort, tag !== null)
        .all(tag, firstId, lastId ?? INT64_MAX, limit, ...valuesOf(sort.after), ...valuesOf(end));
      first.add(rows.map(({ id, key }) => ({ id, key: toKey(key) })));
      if (lastId === undefined) break;
      if (performance.now() > endsAtMs) return { places: first.take(), next: lastId };
      firstId = firstIdOf({ ...query, after: lastId });
    }
    return { places: first.take(), next: undefined };
  }

  private countPlants(connection: ReadConnection, query: PlantQuery): CountPage {
    if (needsScan(query)) {
      const { plants, next } = this.searchPlants(connection, query);
      return { count: plants.length, next };
    }
    const firstId = firstIdOf(query);
    if (firstId === undefined) return { count: 0, next: undefined };
    const { tag = null } = query;
    const { last, count } = walkOf(connection, query);
    const lastId = last.get(tag, firstId, COUNT_ROWS)?.id;
    if (lastId !== undefined) return { count: COUNT_ROWS, next: lastId };
    return { count: Number(count.get(tag, firstId)?.count), next: undefined };
  }

  private readChanges(query: ChangeQuery) {
    return this.read(({ lastBreak, newestChange, readChanges, readChangesBack }) => {
      const isBack = query.order === "desc";
      // Cached: finding it is a scan, and no break is added while a process keeps a journal.
      if (query.after === 0 && !isBack) this.lastBreak ??= Number(lastBreak.get()?.last ?? 0);
      const page = createChangePage(query, Number(newestChange.get()?.newest));
      const start = page.last || (this.lastBreak as number);
      const wanted = [start, partOf(query), ...timesOf(query)];
      for (const row of (isBack ? readChangesBack : readChanges).iterate(...wanted))
        if (!page.add(row)) return page.finish();
      return page.finish(true);
    });
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

function readPage(connection: ReadConnection, query: PlantQuery): PlantPage {
  const { tag = null, limit } = query;
  const firstId = firstIdOf(query);
  if (firstId === undefined) return { plants: [], next: undefined };
  const read = (isExact: boolean): PlantPage | undefined => {
    const page = createPage(query, Number.POSITIVE_INFINITY);
    const rows = walkOf(connection, query).page.safeIntegers(isExact);
    // One row more than the page holds tells whether there is a next page.
    for (const row of rows.iterate(tag, firstId, limit + 1)) {
      if (!isExact && !Number.isSafeInteger(row.id)) return undefined;
      if (!page.add(toListed(query, row))) return { plants: page.plants, next: page.lastId };
    }
    return { plants: page.plants, next: undefined };
  };
  // Ids are read as numbers first, which is faster, and again as bigints if one may have been rounded.
  return read(false) ?? (read(true) as PlantPage);
}

function readSorted(
  { findTimed }: ReadConnection,
  query: PlantQuery,
  sort: Sort,
  places: readonly Place[],
): PlantPage {
  const page = createSortedPage(query, sort, places);
  for (const place of places) {
    const row = findTimed.get(place.id);
    if (!page.add(place, row === null ? undefined : toTimedPlant(row))) break;
  }
  return page.finish();
}

/** Distinct tags. Each costs one index seek, however many plants have it. */
function* walkTags({ nextTag }: ReadConnection, query: TagQuery): Generator<TagPrefix> {
  for (let after = query.after ?? null; ;) {
    const row = nextTag.get(query.prefix, after);
    if (row === null || !row.head.startsWith(query.prefix)) return;
    yield row;
    after = row.head;
  }
}
