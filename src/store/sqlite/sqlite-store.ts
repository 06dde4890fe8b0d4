/** The embedded engine: one file, one writer, one sync for every commit. */

import type { Database } from "bun:sqlite";
import { Refusal } from "../../domain/error.ts";
import { type PlantPage, type PlantQuery, takePage } from "../../domain/page.ts";
import type { Plant } from "../../domain/plant.ts";
import type { Condition, Store, StoreDescription, StoreLimits } from "../../domain/store.ts";
import { type TagPage, type TagQuery, takeTags } from "../../domain/tag-page.ts";
import type { TokenRecord, TokenUse } from "../../domain/token.ts";
import { type Committed, GroupCommit } from "../group-commit.ts";
import { lengthOf, toPlant, toTokenRecord } from "../rows.ts";
import { makeReadableDurable, openDatabase, reopenDatabase } from "./database.ts";
import { GroupRead } from "./group-read.ts";
import { type RequireInPlace, watchPlaces } from "./in-place.ts";
import { isLocked, isSyncFailure, translate } from "./failure.ts";
import { type PageStatements, preparePageStatements, walkPlants } from "./page-statements.ts";
import { fileBytesOf } from "./read.ts";
import { Scanner } from "./scan.ts";
import { prepareStatements, type Statements } from "./statements.ts";
import { type HeadStatement, prepareHeadStatement, walkHeads } from "./tag-walk.ts";
import { applyAlone, concernsPlants, type Outcome, type Write } from "./writes.ts";

interface Connection {
  readonly db: Database;
  readonly statements: Statements;
  readonly pages: PageStatements;
  readonly heads: HeadStatement;
  /** False until a plant may be acknowledged only because it can be read. */
  isReadableDurable: boolean;
  readonly requireInPlace: RequireInPlace;
}

export class SqliteStore implements Store {
  readonly description: StoreDescription;
  private readonly path: string;
  private readonly writes: GroupCommit<Write, Outcome>;
  private readonly reads: GroupRead;
  private readonly scanner: Scanner;
  private connection: Connection | undefined;
  /** The file that this store began with, and no other, is the one to go on with. */
  private readonly requireInPlace: RequireInPlace;
  private closed = false;

  constructor(path: string, limits: StoreLimits) {
    this.path = path;
    this.description = {
      engine: "SQLite",
      location: path,
      durability: "every answer is sent after its commit is synced (WAL, synchronous=FULL)",
    };
    this.connection = connect(path, openDatabase(path));
    this.requireInPlace = watchPlaces([path]);
    this.writes = new GroupCommit((batch) => this.commit(batch), limits);
    this.reads = new GroupRead((ids) => this.read((connection) => findPlants(connection, ids)));
    this.scanner = new Scanner({ path, ...limits });
  }

  async createPlant(plant: Plant): Promise<"created" | "replayed"> {
    return (await this.writes.submit({ kind: "createPlant", plant }, lengthOf(plant))) as
      "created" | "replayed";
  }

  findPlant(id: bigint): Promise<Plant | undefined> {
    return this.reads.find(id);
  }

  async listPlants(query: PlantQuery): Promise<PlantPage> {
    if (query.name !== undefined) {
      // The thread opens the file by itself, so that whether there is one to search is found out here.
      this.read(() => undefined);
      return this.scanner.search(query);
    }
    return this.read(({ pages }) =>
      takePage(walkPlants(pages, query, query.limit + 1), query, Number.POSITIVE_INFINITY),
    );
  }

  async listTags(query: TagQuery): Promise<TagPage> {
    return this.read((connection) =>
      inSnapshot(connection, () => takeTags(walkHeads(connection.heads, query), query.limit)),
    );
  }

  async countPlants(): Promise<bigint> {
    return this.read(({ statements }) => statements.countPlants.get())?.count ?? 0n;
  }

  async replacePlant(plant: Plant, condition: Condition): Promise<void> {
    await this.writes.submit({ kind: "replacePlant", plant, condition }, lengthOf(plant));
  }

  async removePlant(id: bigint, condition: Condition): Promise<void> {
    await this.writes.submit({ kind: "removePlant", id, condition });
  }

  async probe(): Promise<void> {
    await this.writes.submit({ kind: "probe" });
  }

  get writesWaiting(): number {
    return this.writes.waiting;
  }

  async measureBytes(): Promise<number | undefined> {
    const bytes = fileBytesOf(this.path) + fileBytesOf(`${this.path}-wal`);
    return bytes === 0 ? undefined : bytes;
  }

  async findToken(hash: string): Promise<TokenRecord | undefined> {
    const row = this.read(({ statements }) => statements.findToken.get(hash));
    return row === null ? undefined : toTokenRecord(row);
  }

  async listTokens(): Promise<TokenRecord[]> {
    return this.read(({ statements }) => statements.listTokens.all()).map(toTokenRecord);
  }

  async createToken(token: TokenRecord): Promise<boolean> {
    return (await this.writes.submit({ kind: "createToken", token, onlyFirst: false })) === "done";
  }

  async createFirstToken(token: TokenRecord): Promise<boolean> {
    return (await this.writes.submit({ kind: "createToken", token, onlyFirst: true })) === "done";
  }

  async revokeToken(hash: string, revokedAtMs: number): Promise<void> {
    await this.writes.submit({ kind: "revokeToken", hash, revokedAtMs });
  }

  async touchTokens(uses: readonly TokenUse[]): Promise<void> {
    await this.writes.submit({ kind: "touchTokens", uses });
  }

  async adoptTokens(records: readonly TokenRecord[]): Promise<readonly TokenRecord[]> {
    const outcome = await this.writes.submit({ kind: "adoptTokens", records });
    return outcome as readonly TokenRecord[];
  }

  async close(): Promise<void> {
    await this.writes.close();
    this.closed = true;
    await this.scanner.close();
    this.disconnect();
  }

  private read<Result>(query: (connection: Connection) => Result): Result {
    try {
      return query(this.connected());
    } catch (error) {
      throw translate(error);
    }
  }

  private commit(batch: readonly Write[]): Committed<Outcome> {
    try {
      return this.commitOn(this.connected(), batch);
    } catch (error) {
      if (isLocked(error)) return "locked";
      // Nothing more is built on a log whose state on disk is unknown: the next batch opens the
      // file anew, and so first writes and syncs again whatever of it can be read.
      if (isSyncFailure(error)) this.disconnect();
      throw translate(error);
    }
  }

  private commitOn(connection: Connection, batch: readonly Write[]): Outcome[] {
    const { db, statements } = connection;
    connection.requireInPlace();
    if (!connection.isReadableDurable && batch.some(concernsPlants)) {
      makeReadableDurable(db, this.path);
      connection.isReadableDurable = true;
    }
    statements.begin.run();
    try {
      const outcomes = batch.map((write) => applyAlone(db, statements, write));
      statements.commit.run();
      return outcomes as Outcome[];
    } catch (error) {
      // A full disk and an I/O error have rolled back already.
      if (db.inTransaction) statements.rollback.run();
      throw error;
    }
  }

  private connected(): Connection {
    if (this.closed) throw new Refusal("shutting_down");
    if (this.connection === undefined) {
      this.requireInPlace();
      this.connection = connect(this.path, reopenDatabase(this.path));
    }
    return this.connection;
  }

  private disconnect(): void {
    if (this.connection === undefined) return;
    const { db, statements, pages, heads } = this.connection;
    for (const statement of [...Object.values(statements), ...Object.values(pages), heads])
      statement.finalize();
    db.close();
    this.connection = undefined;
  }
}

function connect(path: string, db: Database): Connection {
  return {
    db,
    statements: prepareStatements(db),
    pages: preparePageStatements(db),
    heads: prepareHeadStatement(db),
    isReadableDurable: false,
    requireInPlace: watchPlaces([path, `${path}-wal`]),
  };
}

function findPlants(connection: Connection, ids: readonly bigint[]): (Plant | undefined)[] {
  return inSnapshot(connection, () =>
    ids.map((id) => {
      const row = connection.statements.findPlant.get(id);
      return row === null ? undefined : toPlant(row);
    }),
  );
}

function inSnapshot<Result>({ db, statements }: Connection, read: () => Result): Result {
  statements.beginRead.run();
  try {
    return read();
  } finally {
    if (db.inTransaction) statements.commit.run();
  }
}
