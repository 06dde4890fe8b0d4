/** The embedded engine: one file, one writer, one sync for every commit. */

import type { Database } from "bun:sqlite";
import type { Condition, Plant } from "../../domain/plant.ts";
import { Refusal } from "../../domain/errors.ts";
import type { PlantPage, PlantQuery, TagPage, TagQuery } from "../../domain/page.ts";
import type { Store, StoreDescription, StoreLimits } from "../../domain/store.ts";
import type { TokenRecord, TokenUse } from "../../domain/token.ts";
import { type Committed, Batcher } from "../batcher.ts";
import { lengthOf } from "../rows.ts";
import { makeReadableDurable, openDatabase, reopenDatabase } from "./database.ts";
import { type RequireInPlace, watchPlaces } from "./in-place.ts";
import { isLocked, isSyncFailure, translate } from "./failure.ts";
import { fileBytesOf } from "./read.ts";
import { closeReads, prepareReads, type ReadConnection, SqliteReads } from "./reads.ts";
import { prepareWriteStatements, type WriteStatements } from "./statements.ts";
import { applyAlone, concernsPlants, type Outcome, type Write } from "./writes.ts";

interface Connection extends ReadConnection {
  readonly writes: WriteStatements;
  /** False until a plant may be acknowledged only because it can be read. */
  isReadableDurable: boolean;
  readonly requireInPlace: RequireInPlace;
}

export class SqliteStore implements Store {
  readonly description: StoreDescription;
  private readonly path: string;
  private readonly writes: Batcher<Write, Outcome>;
  private readonly reads: SqliteReads;
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
    this.writes = new Batcher((batch) => this.commit(batch), limits);
    this.reads = new SqliteReads(path, limits, () => this.connected());
  }

  createPlant(plant: Plant): Promise<"created" | "replayed"> {
    const created = this.writes.submit({ kind: "createPlant", plant }, lengthOf(plant));
    return created as Promise<"created" | "replayed">;
  }

  findPlant(id: bigint): Promise<Plant | undefined> {
    return this.reads.findPlant(id);
  }

  listPlants(query: PlantQuery): Promise<PlantPage> {
    return this.reads.listPlants(query);
  }

  listTags(query: TagQuery): Promise<TagPage> {
    return this.reads.listTags(query);
  }

  countPlants(): Promise<bigint> {
    return this.reads.countPlants();
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

  findToken(hash: string): Promise<TokenRecord | undefined> {
    return this.reads.findToken(hash);
  }

  listTokens(): Promise<TokenRecord[]> {
    return this.reads.listTokens();
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
    await this.reads.close();
    this.disconnect();
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
    const { db, writes } = connection;
    connection.requireInPlace();
    if (!connection.isReadableDurable && batch.some(concernsPlants)) {
      makeReadableDurable(db, this.path);
      connection.isReadableDurable = true;
    }
    writes.begin.run();
    try {
      const outcomes = batch.map((write) => applyAlone(db, writes, write));
      writes.commit.run();
      return outcomes as Outcome[];
    } catch (error) {
      // A full disk and an I/O error have rolled back already.
      if (db.inTransaction) writes.rollback.run();
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
    for (const statement of Object.values(this.connection.writes)) statement.finalize();
    closeReads(this.connection);
    this.connection = undefined;
  }
}

const connect = (path: string, db: Database): Connection => ({
  ...prepareReads(db),
  writes: prepareWriteStatements(db),
  isReadableDurable: false,
  requireInPlace: watchPlaces([path, `${path}-wal`]),
});
