/** The embedded engine: one file, one writer, one sync for every commit. */

import type { Database } from "bun:sqlite";
import { Refusal } from "../../domain/errors.ts";
import { type Condition, lengthOf, type Plant } from "../../domain/plant.ts";
import type {
  Created,
  OnMigrate,
  Store,
  StoreDescription,
  StoreLimits,
} from "../../domain/store.ts";
import type { Scope, TokenRecord, TokenUse } from "../../domain/token.ts";
import { Batcher, type Committed } from "../batcher.ts";
import { Entries, Trimmer } from "../journal.ts";
import {
  type Durability,
  fileBytesOf,
  isLocked,
  isSyncFailure,
  makeDurable,
  openDatabase,
  reopenDatabase,
  StoreLockedError,
  translate,
  watchFiles,
} from "./database.ts";
import { SqliteReads, WRITING_MS } from "./read.ts";
import { connect, type Connection, disconnect } from "./sql.ts";
import { applyWrite, concernsPlants, type Outcome, Room, type Write } from "./writes.ts";

interface WriteConnection extends Connection {
  durability: Durability;
  readonly room: Room;
  readonly assertFilesNotMoved: () => void;
}

export class SqliteStore extends SqliteReads implements Store {
  readonly description: StoreDescription;
  private readonly path: string;
  private readonly writes: Batcher<Write, Outcome>;
  private connection: WriteConnection | undefined;
  /** After a failure the store reopens the same file, never another one at its path. */
  private readonly assertFileNotMoved: () => void;
  private committedAtMs = Number.NEGATIVE_INFINITY;
  /** Whether the journal shows that this process writes none: before its first change there is a break. */
  private isBreakMarked = false;
  private readonly trimmer: Trimmer;
  changesWritten = 0;
  private isClosed = false;

  constructor(path: string, limits: StoreLimits, onMigrate?: OnMigrate) {
    super(path, limits);
    this.path = path;
    this.description = {
      engine: "SQLite",
      location: path,
      durability: "every answer is sent after its commit is synced (WAL, synchronous=FULL)",
    };
    this.connection = this.connectToWrite(openDatabase(path, onMigrate));
    this.assertFileNotMoved = watchFiles([path]);
    try {
      this.makeDurable(this.connection);
    } catch {
      // The first request tries again, and is refused if it fails.
    }
    this.writes = new Batcher((batch) => this.commit(batch), limits, limits);
    this.trimmer = new Trimmer(
      limits,
      async (beforeMs) => (await this.writes.submit({ kind: "trimChanges", beforeMs })) === "more",
    );
  }

  createPlant(plant: Plant, by?: string): Promise<Created> {
    const created = this.writes.submit({ kind: "createPlant", plant, by }, lengthOf(plant));
    return created as Promise<Created>;
  }

  createPlants(plants: readonly Plant[], by?: string): Promise<(Created | Refusal)[]> {
    const writes = plants.map((plant): Write => ({ kind: "createPlant", plant, by }));
    const created = this.writes.submitAll(writes, plants.map(lengthOf));
    return created as Promise<(Created | Refusal)[]>;
  }

  async replacePlant(plant: Plant, condition: Condition, by?: string): Promise<void> {
    await this.writes.submit({ kind: "replacePlant", plant, condition, by }, lengthOf(plant));
  }

  async removePlant(id: bigint, condition: Condition, by?: string): Promise<void> {
    await this.writes.submit({ kind: "removePlant", id, condition, by });
  }

  async probe(): Promise<void> {
    await this.writes.submit({ kind: "probe" });
  }

  protected isWriting(): boolean {
    return this.writes.waiting > 0 || performance.now() - this.committedAtMs < WRITING_MS;
  }

  get writesWaiting(): number {
    return this.writes.waiting;
  }

  readFigures(): ReturnType<Store["readFigures"]> {
    return { diskFreeBytes: this.connection?.room.measureDisk() };
  }

  async measureBytes(): Promise<number | undefined> {
    try {
      const bytes = fileBytesOf(this.path) + fileBytesOf(`${this.path}-wal`);
      return bytes === 0 ? undefined : bytes;
    } catch {
      return undefined;
    }
  }

  readonly createToken: Store["createToken"] = async (token) =>
    (await this.writes.submit({ kind: "createToken", token, onlyFirst: false })) === "done";

  readonly createFirstToken: Store["createToken"] = async (token) =>
    (await this.writes.submit({ kind: "createToken", token, onlyFirst: true })) === "done";

  async revokeToken(hash: string, revokedAtMs: number, unlessLast?: Scope): Promise<boolean> {
    const write = { kind: "revokeToken", hash, revokedAtMs, unlessLast } as const;
    return (await this.writes.submit(write)) === "done";
  }

  async touchTokens(uses: readonly TokenUse[]): Promise<void> {
    await this.writes.submit({ kind: "touchTokens", uses });
  }

  async adoptTokens(records: readonly TokenRecord[]): Promise<readonly TokenRecord[]> {
    const outcome = await this.writes.submit({ kind: "adoptTokens", records });
    return outcome as readonly TokenRecord[];
  }

  readonly putWebhook: Store["putWebhook"] = async (next, last) =>
    (await this.writes.submit({ kind: "putWebhook", next, last })) === "done";

  override async close(): Promise<void> {
    this.trimmer.stop();
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
      this.disconnectAfter(error);
      throw translate(error);
    }
  }

  private commitOn(connection: WriteConnection, batch: readonly Write[]): Outcome[] {
    const { db, statements, room } = connection;
    connection.assertFilesNotMoved();
    if (connection.durability !== "everything" && batch.some(concernsPlants)) {
      const durability = this.makeDurable(connection);
      if (durability !== "everything") throw new StoreLockedError(this.path);
    }
    const entries = this.limits.changesDays > 0 ? new Entries() : undefined;
    const isBreak = entries === undefined && !this.isBreakMarked && batch.some(concernsPlants);
    let changes = 0;
    const writeChanges = (): void => {
      if (entries === undefined || entries.count === 0) return;
      changes += entries.count;
      statements.insertChanges.run(entries.count, Date.now(), entries.take());
    };
    statements.beginWrite.run();
    try {
      room.prepare(statements);
      if (isBreak) statements.insertChanges.run(0, Date.now(), "[]");
      const outcomes = batch.map((write) => {
        const outcome = applyWrite(db, statements, write, room, entries);
        if (entries?.isFull === true) writeChanges();
        return outcome;
      });
      writeChanges();
      statements.commit.run();
      this.committedAtMs = performance.now();
      this.changesWritten += changes;
      this.isBreakMarked ||= isBreak;
      return outcomes as Outcome[];
    } catch (error) {
      room.rollBack();
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

  protected connectedToPlants(): WriteConnection {
    const connection = this.connected();
    if (connection.durability === "unknown" && this.makeDurable(connection) === "unknown")
      throw new StoreLockedError(this.path);
    return connection;
  }

  private makeDurable(connection: WriteConnection): Durability {
    try {
      connection.durability = makeDurable(connection.db);
      return connection.durability;
    } catch (error) {
      this.disconnectAfter(error);
      throw error;
    }
  }

  private connectToWrite(db: Database): WriteConnection {
    return {
      ...connect(db),
      durability: "unknown",
      room: new Room(this.limits, this.path),
      assertFilesNotMoved: watchFiles([this.path, `${this.path}-wal`]),
    };
  }

  /** After a failed sync nothing more is added to this log. The next request opens the file again. */
  private disconnectAfter(error: unknown): void {
    if (isSyncFailure(error)) this.disconnect();
  }

  private disconnect(): void {
    disconnect(this.connection);
    this.connection = undefined;
  }
}
