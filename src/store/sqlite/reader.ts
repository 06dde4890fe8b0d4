/** One connection that only reads. It sees a commit after its sync, never before. Readers do not block the writer. */

import type { ChangePage, ChangeQuery } from "../../domain/change.ts";
import { Refusal } from "../../domain/errors.ts";
import { isSearch } from "../../domain/filter.ts";
import {
  type CountPage,
  type PageForm,
  type PageText,
  type PlantPage,
  type PlantQuery,
  type TagPage,
  type TagQuery,
  takeTags,
} from "../../domain/page.ts";
import { lengthOf, type Plant } from "../../domain/plant.ts";
import { formatPage } from "../../format/page.ts";
import { createChangePage, partOf } from "../journal.ts";
import { type Statement, toPlant } from "../sql-store.ts";
import { openReadOnly, runOn, translate, watchFiles } from "./database.ts";
import {
  connect,
  type Connection,
  countPlants,
  disconnect,
  inSnapshot,
  readPage,
  searchPlants,
  walkTags,
} from "./sql.ts";

/** What may take long. It is data, so another thread can do it. */
export type ReadOrder =
  | { readonly kind: "plants"; readonly query: PlantQuery; readonly form: PageForm }
  | { readonly kind: "count"; readonly query: PlantQuery }
  | { readonly kind: "tags"; readonly query: TagQuery }
  | { readonly kind: "changes"; readonly query: ChangeQuery };

/** The plants that one batch of look-ups reads. The rest is read when these are answered, so memory stays bounded. */
const LOOK_UP_CHARACTERS_MAX = 524_288;

/** Every method throws what `translate` makes of an error. */
export class SqliteReader {
  private connection: Connection | undefined;
  private readonly scanRowsMax: number;
  private readonly assertFileNotMoved: () => void;
  /** The number of the last break in the journal, once it was looked for; 0 if there is none. */
  private lastBreak: number | undefined;

  /** The writer has opened the file already. */
  constructor(path: string, scanRowsMax: number) {
    this.connection = connect(openReadOnly(path));
    this.scanRowsMax = scanRowsMax;
    this.assertFileNotMoved = watchFiles([path]);
  }

  close(): void {
    disconnect(this.connection);
    this.connection = undefined;
  }

  /** In the order of the ids, as far as the plants are not too large together. */
  findPlants(ids: readonly bigint[]): (Plant | undefined)[] {
    return this.read((connection) => {
      const found: (Plant | undefined)[] = [];
      let characters = 0;
      const find = (id: bigint): void => {
        const row = connection.statements.findPlant.get(id);
        const plant = row === null ? undefined : toPlant(row);
        characters += lengthOf(plant);
        found.push(plant);
      };
      const [first, ...others] = ids;
      if (first !== undefined && others.length === 0) find(first);
      // One read transaction for all: its lock costs more than a look-up.
      else
        inSnapshot(connection, () => {
          for (const id of ids) if (characters <= LOOK_UP_CHARACTERS_MAX) find(id);
        });
      return found;
    });
  }

  listPlants(query: PlantQuery): PlantPage {
    return this.read((connection) =>
      isSearch(query)
        ? inSnapshot(connection, () => searchPlants(connection.statements, query, this.scanRowsMax))
        : readPage(connection.statements, query),
    );
  }

  readPlants(query: PlantQuery, form: PageForm): PageText {
    return formatPage(this.listPlants(query), form);
  }

  private countPlants(query: PlantQuery): CountPage {
    return this.read((connection) =>
      inSnapshot(connection, () => countPlants(connection.statements, query, this.scanRowsMax)),
    );
  }

  private listTags(query: TagQuery): TagPage {
    return this.read((connection) =>
      inSnapshot(connection, () => takeTags(walkTags(connection.statements, query), query.limit)),
    );
  }

  private readChanges(query: ChangeQuery): ChangePage {
    return this.read(({ statements }) => {
      // To find it takes a scan. While a process keeps a journal, nothing makes another break.
      if (query.after === 0) this.lastBreak ??= Number(statements.lastBreak.get()?.last ?? 0);
      const page = createChangePage(query, Number(statements.newestChange.get()?.newest));
      const start = query.after || (this.lastBreak as number);
      for (const row of statements.readChanges.iterate(start, partOf(query)))
        if (!page.add(row)) break;
      return page.finish();
    });
  }

  perform(order: ReadOrder): unknown {
    if (order.kind === "plants") return this.readPlants(order.query, order.form);
    if (order.kind === "count") return this.countPlants(order.query);
    return order.kind === "tags" ? this.listTags(order.query) : this.readChanges(order.query);
  }

  run(statement: Statement): unknown[] {
    return this.read(({ db }) => runOn(db, statement));
  }

  private read<Result>(query: (connection: Connection) => Result): Result {
    if (this.connection === undefined) throw new Refusal("shutting_down");
    try {
      this.assertFileNotMoved();
      return query(this.connection);
    } catch (error) {
      throw translate(error);
    }
  }
}
