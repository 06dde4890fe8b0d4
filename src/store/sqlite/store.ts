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
import type { Webhook } from "../../domain/webhook.ts";
import { Batcher, type Committed } from "../batcher.ts";
import { Entries, keepTrimmed } from "../journal.ts";
import { planWebhook, toTokenValues } from "../rows.ts";
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
import { connect, type Connection, disconnect, type Statements } from "./sql.ts";
import { changePlant, createPlant, Room, type Transaction } from "./writes.ts";

interface Write {
  /** Done only once everything that can be read is durable. */
  readonly concernsPlants: boolean;
  /** An Error fails this write alone. */
  readonly apply: (transaction: Transaction) => unknown;
}

/** So many blocks take about a millisecond. */
const TRIM_ROWS = 1_000;

interface WriteConnection extends Connection {
  durability: Durability;
  readonly room: Room;
  readonly assertFilesNotMoved: () => void;
}

export class SqliteStore extends SqliteReads implements Store {
  readonly description: StoreDescription;
  private readonly path: string;
  private readonly writes: Batcher<Write, unknown>;
  private connection: WriteConnection | undefined;
  /** After a failure the store reopens the same file, never another one at its path. */
  private readonly assertFileNotMoved: () => void;
  private committedAtMs = Number.NEGATIVE_INFINITY;
  /** Whether the journal shows that this process writes none: before its first change there is a break. */
  private isBreakMarked = false;
  private readonly stopTrimming: () => void;
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
    this.stopTrimming = keepTrimmed(limits, (beforeMs) =>
      this.writePlants(
        ({ statements }) => statements.trimChanges.run(beforeMs, TRIM_ROWS).changes === TRIM_ROWS,
      ),
    );
  }

  createPlant(plant: Plant, by?: string): Promise<Created> {
    return this.writes.submit(toCreate(plant, by), lengthOf(plant)) as Promise<Created>;
  }

  createPlants(plants: readonly Plant[], by?: string): Promise<(Created | Refusal)[]> {
    const writes = plants.map((plant) => toCreate(plant, by));
    const created = this.writes.submitAll(writes, plants.map(lengthOf));
    return created as Promise<(Created | Refusal)[]>;
  }

  replacePlant(plant: Plant, condition: Condition, by?: string): Promise<void> {
    return this.writePlants(
      (transaction) => changePlant(transaction, plant.id, plant, condition, by),
      lengthOf(plant),
    );
  }

  removePlant(id: bigint, condition: Condition, by?: string): Promise<void> {
    return this.writePlants((transaction) =>
      changePlant(transaction, id, undefined, condition, by),
    );
  }

  /** It finds out whether a plant could be created. */
  probe(): Promise<void> {
    return this.writePlants(({ statements }) => void statements.probe.run(Date.now()));
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

  createToken(token: TokenRecord): Promise<boolean> {
    return this.write((statements) => insertToken(statements, token, false));
  }

  createFirstToken(token: TokenRecord): Promise<boolean> {
    return this.write((statements) => insertToken(statements, token, true));
  }

  revokeToken(hash: string, revokedAtMs: number, unlessLast?: Scope): Promise<boolean> {
    return this.write(({ revokeToken, findToken }) => {
      revokeToken.run(revokedAtMs, hash, unlessLast ?? null);
      return typeof findToken.get(hash)?.revoked_at_ms === "bigint";
    });
  }

  touchTokens(uses: readonly TokenUse[]): Promise<void> {
    return this.write(({ touchToken }) => {
      for (const { usedAtMs, hash } of uses) touchToken.run(usedAtMs, hash);
    });
  }

  adoptTokens(records: readonly TokenRecord[]): Promise<readonly TokenRecord[]> {
    return this.write((statements) => {
      // All of these first: a revocation frees a name that another token may have.
      const absent = records.filter(
        ({ hash, revokedAtMs = null, lastUsedAtMs = null }) =>
          statements.mergeToken.run(revokedAtMs, lastUsedAtMs, hash).changes === 0,
      );
      return absent.filter((token) => !insertToken(statements, token, false));
    });
  }

  putWebhook(next: Webhook | undefined, last: Webhook | undefined): Promise<boolean> {
    const [kind, values] = planWebhook(next, last);
    return this.write(({ webhook }) => webhook[kind].run(...values).changes === 1);
  }

  override async close(): Promise<void> {
    this.stopTrimming();
    await this.writes.close();
    this.isClosed = true;
    await super.close();
    this.disconnect();
  }

  private write<Outcome>(apply: (statements: Statements) => Outcome): Promise<Outcome> {
    const write: Write = { concernsPlants: false, apply: ({ statements }) => apply(statements) };
    return this.writes.submit(write) as Promise<Outcome>;
  }

  private writePlants<Outcome>(
    apply: (transaction: Transaction) => Outcome,
    characters?: number,
  ): Promise<Exclude<Outcome, Refusal>> {
    const written = this.writes.submit({ concernsPlants: true, apply }, characters);
    return written as Promise<Exclude<Outcome, Refusal>>;
  }

  private commit(batch: readonly Write[]): Committed<unknown> {
    try {
      return this.commitOn(this.connected(), batch);
    } catch (error) {
      if (isLocked(error)) return [];
      this.disconnectAfter(error);
      throw translate(error);
    }
  }

  private commitOn(connection: WriteConnection, batch: readonly Write[]): unknown[] {
    const { db, statements, room } = connection;
    connection.assertFilesNotMoved();
    const concernsPlants = batch.some((write) => write.concernsPlants);
    if (connection.durability !== "everything" && concernsPlants) {
      const durability = this.makeDurable(connection);
      if (durability !== "everything") throw new StoreLockedError(this.path);
    }
    const entries = this.limits.changesDays > 0 ? new Entries() : undefined;
    const isBreak = entries === undefined && !this.isBreakMarked && concernsPlants;
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
      const transaction = { statements, room, entries };
      const outcomes = batch.map((write) => {
        const outcome = applyAlone(db, transaction, write);
        if (entries?.isFull === true) writeChanges();
        return outcome;
      });
      writeChanges();
      statements.commit.run();
      this.committedAtMs = performance.now();
      this.changesWritten += changes;
      this.isBreakMarked ||= isBreak;
      return outcomes;
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

const toCreate = (plant: Plant, by: string | undefined): Write => ({
  concernsPlants: true,
  apply: (transaction) => createPlant(transaction, plant, by),
});

/** If the transaction is still open after an error, SQLite undid that statement alone, and only this write fails. */
function applyAlone(db: Database, transaction: Transaction, { apply }: Write): unknown {
  try {
    return apply(transaction);
  } catch (error) {
    if (!db.inTransaction) throw error;
    return translate(error);
  }
}

/** False if another token has the name, or if it is not the first one and should be. */
const insertToken = (statements: Statements, token: TokenRecord, onlyFirst: boolean): boolean =>
  statements.insertToken.run(...toTokenValues(token), onlyFirst).changes === 1;
