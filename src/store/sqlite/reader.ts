/** One connection that only reads. It sees a commit after its sync, never before. Readers do not block the writer. */

import type { Database } from "bun:sqlite";
import type { ChangeQuery } from "../../domain/change.ts";
import { Refusal } from "../../domain/errors.ts";
import { findHint, needsScan } from "../../domain/filter.ts";
import { INT64_MAX, INT64_MIN } from "../../domain/plant.ts";
import {
  type CountPage,
  createPage,
  firstIdOf,
  type Order,
  type PageForm,
  type PageText,
  type PlantPage,
  type PlantQuery,
  TAG_PREFIX_CHARACTERS,
  type TagPrefix,
  type TagQuery,
  takeTags,
} from "../../domain/page.ts";
import { lengthOf, type Plant } from "../../domain/plant.ts";
import { formatPage } from "../../format/page.ts";
import type { Statement, Value } from "../records.ts";
import { type BlockRow, createChangePage, partOf, type PlantRow, toPlant } from "../sql-store.ts";
import { openReadOnly, runOn, translate, watchFiles } from "./database.ts";

/** What may take long. It is data, so another thread can do it. */
export type ReadRequest =
  | { readonly kind: "plants"; readonly query: PlantQuery; readonly form: PageForm }
  | { readonly kind: "count"; readonly query: PlantQuery }
  | { readonly kind: "tags"; readonly query: TagQuery }
  | { readonly kind: "changes"; readonly query: ChangeQuery };

/** The plants that one batch of look-ups reads. The rest is read when these are answered, so memory stays bounded. */
const LOOK_UP_CHARACTERS_MAX = 524_288;
/** Rows between two looks at the clock: about a millisecond, if none of them matches. */
const STEP_ROWS = 5_000;
/** Counting these takes some ten milliseconds. */
const COUNT_ROWS = 200_000;

/** LIKE compares plain ASCII as a search does. Other texts, and long ones, are for the search itself to look at. */
const mayMatch = (column: string): string =>
  `octet_length(${column}) > 4096 OR length(${column}) < octet_length(${column}) OR ${column} LIKE ?4 ESCAPE '\\'`;

/** The index on the tag holds the ids of each tag in order, so it is walked as the table is. */
const TAGGED = "tag = ?1 AND";

function connect(db: Database) {
  const prepare = <Row>(sql: string) => db.prepare<Row, Value[]>(sql);
  const prepareWalk = (order: Order, condition: string) => {
    const [from, to] = order === "asc" ? [">=", "<="] : ["<=", ">="];
    const rows = `FROM plants WHERE ${condition} id ${from} ?2`;
    return {
      page: prepare<PlantRow<bigint | number>>(
        `SELECT id, name, tag ${rows} ORDER BY id ${order} LIMIT ?3`,
      ),
      // The last row of a piece, if there are as many.
      last: prepare<{ id: bigint }>(`SELECT id ${rows} ORDER BY id ${order} LIMIT 1 OFFSET ?3 - 1`),
      count: prepare<{ count: bigint }>(`SELECT count(*) AS count ${rows}`),
      // All rows that may match, and the last one.
      candidates: prepare<PlantRow>(
        `SELECT id, name, tag ${rows} AND id ${to} ?3
        AND (?4 IS NULL OR ${mayMatch("name")} OR ${mayMatch("tag")} OR id = ?3) ORDER BY id ${order}`,
      ),
    };
  };
  return {
    db,
    begin: prepare("BEGIN"),
    commit: prepare("COMMIT"),
    findPlant: prepare<PlantRow>("SELECT id, name, tag FROM plants WHERE id = ?"),
    all: { asc: prepareWalk("asc", ""), desc: prepareWalk("desc", "") },
    tagged: { asc: prepareWalk("asc", TAGGED), desc: prepareWalk("desc", TAGGED) },
    // A tag has no byte 0, so the next one after a whole tag is at least a byte 1 longer. No text has the byte 255, so
    // that one leads behind all tags that begin with a prefix.
    nextTag: prepare<TagPrefix>(
      `SELECT substr(tag, 1, ${TAG_PREFIX_CHARACTERS}) AS head, octet_length(tag) AS bytes
        FROM plants WHERE tag >= max(?1, coalesce(substr(?2, 1, ${TAG_PREFIX_CHARACTERS})
          || iif(length(?2) < ${TAG_PREFIX_CHARACTERS}, x'01', x'ff'), '')) ORDER BY tag LIMIT 1`,
    ),
    // The first row is the block that contains the number ?1. Only its numbers are used.
    readChanges: prepare<BlockRow>(
      `SELECT first, last, at_ms,
        iif(last > ?1 AND (?2 IS NULL OR instr(entries, ?2)), entries, NULL) AS entries
        FROM changes WHERE last >= ?1 ORDER BY last`,
    ),
    lastBreak: prepare<{ last: bigint | null }>(
      "SELECT max(last) AS last FROM changes WHERE first > last",
    ),
    newestChange: prepare<{ newest: bigint }>("SELECT max(last) AS newest FROM changes"),
  };
}

type ReadConnection = ReturnType<typeof connect>;

const walkOf = ({ all, tagged }: ReadConnection, { tag, order }: PlantQuery) =>
  (tag === undefined ? all : tagged)[order];

/** Every method throws what `translate` makes of an error. */
export class SqliteReader {
  private connection: ReadConnection | undefined;
  private readonly scanRowsMax: number;
  private readonly assertFileNotMoved: () => void;
  private lastBreak: number | undefined;

  constructor(path: string, scanRowsMax: number) {
    this.connection = connect(openReadOnly(path));
    this.scanRowsMax = scanRowsMax;
    this.assertFileNotMoved = watchFiles([path]);
  }

  /** With its statements: a connection with an unfinished one does not release its file. */
  close(): void {
    this.connection?.db.close(true);
    this.connection = undefined;
  }

  /** In the order of the ids, as far as the plants are not too large together. */
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

  listPlants(query: PlantQuery): PlantPage {
    return needsScan(query)
      ? this.readSnapshot((connection) => this.searchPlants(connection, query))
      : this.read((connection) => readPage(connection, query));
  }

  readPlants(query: PlantQuery, form: PageForm): PageText {
    return formatPage(this.listPlants(query), form);
  }

  perform(order: ReadRequest) {
    if (order.kind === "plants") return this.readPlants(order.query, order.form);
    if (order.kind === "count")
      return this.readSnapshot((connection) => this.countPlants(connection, order.query));
    if (order.kind === "changes") return this.readChanges(order.query);
    const { query } = order;
    return this.readSnapshot((connection) => takeTags(walkTags(connection, query), query.limit));
  }

  run(statement: Statement): unknown[] {
    return this.read(({ db }) => runOn(db, statement));
  }

  private searchPlants(connection: ReadConnection, query: PlantQuery): PlantPage {
    const { tag = null, order } = query;
    const { last, candidates } = walkOf(connection, query);
    const hint = findHint(query);
    const pattern = hint === undefined ? null : `%${hint.replace(/[%_\\]/g, "\\$&")}%`;
    const page = createPage(query, this.scanRowsMax);
    let firstId = firstIdOf(query);
    while (firstId !== undefined) {
      const rows = page.rowsLeft(STEP_ROWS);
      const lastId = last.get(tag, firstId, rows)?.id;
      const end = lastId ?? (order === "asc" ? INT64_MAX : INT64_MIN);
      let found = 0;
      for (const row of candidates.iterate(tag, firstId, end, pattern)) {
        if (!page.add(toPlant(row))) return { plants: page.plants, next: page.lastId };
        found++;
      }
      if (lastId === undefined) break;
      page.skip(rows - found);
      firstId = firstIdOf({ ...query, after: lastId });
    }
    return { plants: page.plants, next: undefined };
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
    return this.read(({ lastBreak, newestChange, readChanges }) => {
      // To find it takes a scan. While a process keeps a journal, nothing makes another break.
      if (query.after === 0) this.lastBreak ??= Number(lastBreak.get()?.last ?? 0);
      const page = createChangePage(query, Number(newestChange.get()?.newest));
      const start = query.after || (this.lastBreak as number);
      for (const row of readChanges.iterate(start, partOf(query))) if (!page.add(row)) break;
      return page.finish();
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

function readPage(connection: ReadConnection, query: PlantQuery): PlantPage {
  const { tag = null, limit } = query;
  const firstId = firstIdOf(query);
  if (firstId === undefined) return { plants: [], next: undefined };
  const read = (isExact: boolean): PlantPage | undefined => {
    const page = createPage(query, Number.POSITIVE_INFINITY);
    const rows = walkOf(connection, query).page.safeIntegers(isExact);
    // One more than the page may have tells whether there is a next one.
    for (const row of rows.iterate(tag, firstId, limit + 1)) {
      if (!isExact && !Number.isSafeInteger(row.id)) return undefined;
      if (!page.add(toPlant(row))) return { plants: page.plants, next: page.lastId };
    }
    return { plants: page.plants, next: undefined };
  };
  // As numbers, which take a tenth less time, unless an id among them may have been rounded.
  return read(false) ?? (read(true) as PlantPage);
}

/** The different tags. Each costs one step down the index, however many plants have it. */
function* walkTags({ nextTag }: ReadConnection, query: TagQuery): Generator<TagPrefix> {
  for (let after = query.after ?? null; ;) {
    const row = nextTag.get(query.prefix, after);
    if (row === null || !row.head.startsWith(query.prefix)) return;
    yield row;
    after = row.head;
  }
}
