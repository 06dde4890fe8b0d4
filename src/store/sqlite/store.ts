/** The embedded engine: one file, one writer, one sync for every commit. */

import type { Database } from "bun:sqlite";
import { Refusal } from "../../domain/errors.ts";
import {
  type PlantPage,
  type PlantQuery,
  type TagPage,
  type TagQuery,
  takePage,
  takeTags,
} from "../../domain/page.ts";
import type { Condition, Plant } from "../../domain/plant.ts";
import type { Created, Reads, Store, StoreDescription, StoreLimits } from "../../domain/store.ts";
import type { TokenRecord, TokenUse } from "../../domain/token.ts";
import { Batcher, type Committed } from "../batcher.ts";
import { lengthOf, toPlant, toTokenRecord } from "../rows.ts";
import {
  fileBytesOf,
  isLocked,
  isSyncFailure,
  makeReadableDurable,
  openDatabase,
  openReadOnly,
  reopenDatabase,
  translate,
  watchFiles,
} from "./database.ts";
import { Searcher } from "./search.ts";
import { closeDatabase, prepareStatements, type Statements, walkPlants, walkTags } from "./sql.ts";
import { applyWrite, concernsPlants, type Outcome, type Write } from "./writes.ts";

interface Connection {
  readonly db: Database;
  readonly statements: Statements;
}

const connect = (db: Database): Connection => ({ db, statements: prepareStatements(db) });

/** What the owner of a store and the readers on other threads have in common. Readers do not block the writer. */
abstract class SqliteReads implements Reads {
  /** One read transaction for all plants asked for in one tick: its lock costs more than a look-up. */
  private readonly lookUps: Batcher<bigint, Plant | undefined>;
  private readonly searcher: Searcher;

  constructor(path: string, limits: StoreLimits) {
    this.lookUps = new Batcher(
      (ids) => this.read((connection) => findPlants(connection, ids)),
      limits,
    );
    this.searcher = new Searcher({ path, ...limits });
  }

  /** The connection to use now. Throws if there is none. */
  protected abstract connected(): Connection;

  findPlant(id: bigint): Promise<Plant | undefined> {
    return this.lookUps.submit(id);
  }

  async listPlants(query: PlantQuery): Promise<PlantPage> {
    if (query.name !== undefined) {
      // The thread opens the file by itself, so whether it may be read is decided here.
      this.read(() => undefined);
      return this.searcher.search(query);
    }
    return this.read(({ statements }) =>
      takePage(walkPlants(statements, query, query.limit + 1), query, Number.POSITIVE_INFINITY),
    );
  }

  async listTags(query: TagQuery): Promise<TagPage> {
    return this.read((connection) =>
      inSnapshot(connection, () => takeTags(walkTags(connection.statements, query), query.limit)),
    );
  }

  async countPlants(): Promise<bigint> {
    return this.read(({ statements }) => statements.countPlants.get())?.count ?? 0n;
  }

  async findToken(hash: string): Promise<TokenRecord | undefined> {
    const row = this.read(({ statements }) => statements.findToken.get(hash));
    return row === null ? undefined : toTokenRecord(row);
  }

  async listTokens(): Promise<TokenRecord[]> {
    return this.read(({ statements }) => statements.listTokens.all()).map(toTokenRecord);
  }

  async close(): Promise<void> {
    await this.lookUps.close();
    await this.searcher.close();
  }

  private read<Result>(query: (connection: Connection) => Result): Result {
    try {
      return query(this.connected());
    } catch (error) {
      throw translate(error);
    }
  }
}

/** Reads on a thread beside the one that owns the store. */
export class SqliteReader extends SqliteReads {
  private connection: Connection | undefined;

  constructor(path: string, limits: StoreLimits) {
    super(path, limits);
    this.connection = connect(openReadOnly(path));
  }

  override async close(): Promise<void> {
    await super.close();
    if (this.connection !== undefined)
      closeDatabase(this.connection.db, this.connection.statements);
    this.connection = undefined;
  }

  protected connected(): Connection {
    if (this.connection === undefined) throw new Refusal("shutting_down");
    return this.connection;
  }
}

interface WriteConnection extends Connection {
  /** False until everything that can be read is known to be on disk. */
  isReadableDurable: boolean;
  readonly assertFilesNotMoved: () => void;
}

export class SqliteStore extends SqliteReads implements Store {
  readonly description: StoreDescription;
  private readonly path: string;
  private readonly writes: Batcher<Write, Outcome>;
  private connection: WriteConnection | undefined;
  /** After a failure the store goes on with the file that it began with, and with no other. */
  private readonly assertFileNotMoved: () => void;
  private isClosed = false;

  constructor(path: string, limits: StoreLimits) {
    super(path, limits);
    this.path = path;
    this.description = {
      engine: "SQLite",
      location: path,
      durability: "every answer is sent after its commit is synced (WAL, synchronous=FULL)",
    };
    this.connection = this.connectToWrite(openDatabase(path));
    this.assertFileNotMoved = watchFiles([path]);
    this.writes = new Batcher((batch) => this.commit(batch), limits);
  }

  createPlant(plant: Plant): Promise<Created> {
    const created = this.writes.submit({ kind: "createPlant", plant }, lengthOf(plant));
    return created as Promise<Created>;
  }

  createPlants(plants: readonly Plant[]): Promise<(Created | Refusal)[]> {
    const writes = plants.map((plant): Write => ({ kind: "createPlant", plant }));
    const created = this.writes.submitAll(writes, plants.map(lengthOf));
    return created as Promise<(Created | Refusal)[]>;
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

  override async close(): Promise<void> {
    await this.writes.close();
    this.isClosed = true;
    await super.close();
    this.disconnect();
  }

  private commit(batch: readonly Write[]): Committed<Outcome> {
    try {
      return this.commitOn(this.connected(), batch);
    } catch (error) {
      if (isLocked(error)) return "locked";
      // What this log holds on disk is unknown, so nothing more is added to it: the next batch opens the file
      // again, and first writes and syncs everything that can be read.
      if (isSyncFailure(error)) this.disconnect();
      throw translate(error);
    }
  }

  private commitOn(connection: WriteConnection, batch: readonly Write[]): Outcome[] {
    const { db, statements } = connection;
    connection.assertFilesNotMoved();
    if (!connection.isReadableDurable && batch.some(concernsPlants)) {
      makeReadableDurable(db, this.path);
      connection.isReadableDurable = true;
    }
    statements.beginWrite.run();
    try {
      const outcomes = batch.map((write) => applyWrite(db, statements, write));
      statements.commit.run();
      return outcomes as Outcome[];
    } catch (error) {
      // A full disk and an I/O error have rolled back already.
      if (db.inTransaction) statements.rollback.run();
      throw error;
    }
  }

  protected connected(): WriteConnection {
    if (this.isClosed) throw new Refusal("shutting_down");
    if (this.connection === undefined) {
      this.assertFileNotMoved();
      this.connection = this.connectToWrite(reopenDatabase(this.path));
    }
    return this.connection;
  }

  private connectToWrite(db: Database): WriteConnection {
    return {
      ...connect(db),
      isReadableDurable: false,
      assertFilesNotMoved: watchFiles([this.path, `${this.path}-wal`]),
    };
  }

  private disconnect(): void {
    if (this.connection !== undefined)
      closeDatabase(this.connection.db, this.connection.statements);
    this.connection = undefined;
  }
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
  statements.begin.run();
  try {
    return read();
  } finally {
    if (db.inTransaction) statements.commit.run();
  }
}
