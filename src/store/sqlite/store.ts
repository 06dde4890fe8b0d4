/** The embedded engine: one file, one writer, one sync for every commit. */

import type { Database } from "bun:sqlite";
import { statfsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { Refusal } from "../../domain/errors.ts";
import type {
  Created,
  OnMigrate,
  Store,
  StoreDescription,
  StoreFigures,
  StoreLimits,
} from "../../domain/store.ts";
import { INT64_MIN } from "../../domain/json.ts";
import { judgeChange, judgeCreate } from "../../domain/plant.ts";
import { Batcher, type Committed } from "../batcher.ts";
import { Entries, keepTrimmed } from "../journal.ts";
import {
  type Change,
  type Create,
  type PlantWrite,
  SqlStore,
  type Statement,
  toPlant,
  type Value,
} from "../sql-store.ts";
import {
  type Durability,
  fileBytesOf,
  hasCode,
  isLocked,
  isSyncFailure,
  makeDurable,
  openDatabase,
  reopenDatabase,
  StoreLockedError,
  translate,
  watchFiles,
} from "./database.ts";
import { SqliteReads } from "./read.ts";
import { connect, type Connection, disconnect, ROWS_TOGETHER, type RowsTogether } from "./sql.ts";

/** What a transaction may still store. */
interface Room {
  /** Infinite without a quota. */
  plantsLeft: number;
  readonly diskFreeBytes: number;
  readonly diskFreeBytesMin: number;
}

/** A transaction that has begun. */
interface Transaction extends Connection {
  readonly room: Room;
  /** What was changed, for the journal; undefined without one. */
  readonly entries: Entries | undefined;
}

/** What is done in a transaction beside the writes of plants. */
interface Task {
  readonly kind: "task";
  /** Done only once everything that can be read is durable. */
  readonly concernsPlants: boolean;
  readonly run: (transaction: Transaction) => unknown;
}

interface WriteConnection extends Connection {
  durability: Durability;
  readonly assertFilesNotMoved: () => void;
}

export class SqliteStore extends SqlStore<Task> implements Store {
  readonly description: StoreDescription;
  private readonly path: string;
  private readonly limits: StoreLimits;
  private readonly reads: SqliteReads;
  protected readonly writes: Batcher<PlantWrite | Task, unknown>;
  private connection: WriteConnection | undefined;
  /** Undefined until the plants are counted. */
  private plantsLeft: number | undefined;
  /** After a failure the store reopens the same file, never another one at its path. */
  private readonly assertFileNotMoved: () => void;
  /** Whether the journal shows that this process writes none: before its first change there is a break. */
  private isBreakMarked = false;
  private readonly stopTrimming: () => void;
  changesWritten = 0;
  private isClosed = false;

  constructor(path: string, limits: StoreLimits, onMigrate?: OnMigrate) {
    super({ prefix: "", lock: "", given: "json_each($1)" });
    this.path = path;
    this.limits = limits;
    this.description = {
      engine: "SQLite",
      location: path,
      durability: "every answer is sent after its commit is synced (WAL, synchronous=FULL)",
    };
    this.connection = this.prepare(openDatabase(path, onMigrate));
    this.assertFileNotMoved = watchFiles([path]);
    this.reads = new SqliteReads(path, limits, {
      connect: () => this.connected("reads"),
      isWriting: () => this.writes.isBusy,
      close: () => this.disconnect(),
    });
    this.writes = new Batcher((batch) => this.commit(batch), limits, limits);
    this.stopTrimming = keepTrimmed(limits, (beforeMs) =>
      this.perform(true, ({ statements }) => statements.trimChanges.all(beforeMs).length > 0),
    );
  }

  readonly findPlant: Store["findPlant"] = (id) => this.reads.findPlant(id);
  readonly listPlants: Store["listPlants"] = (query) => this.reads.listPlants(query);
  readonly listTags: Store["listTags"] = (query) => this.reads.listTags(query);
  readonly countPlants: Store["countPlants"] = (...asked) => this.reads.countPlants(...asked);
  readonly readChanges: Store["readChanges"] = (query) => this.reads.readChanges(query);

  /** It finds out whether a plant could be created. */
  probe(): Promise<void> {
    return this.perform(true, ({ statements }) => void statements.probe.run(Date.now()));
  }

  /** Asking takes some microseconds. */
  readFigures(): StoreFigures {
    try {
      const { bavail, bsize } = statfsSync(dirname(resolve(this.path)));
      return { diskFreeBytes: bavail * bsize };
    } catch {
      return {};
    }
  }

  async measureBytes(): Promise<number> {
    return fileBytesOf(this.path) + fileBytesOf(`${this.path}-wal`);
  }

  async close(): Promise<void> {
    this.stopTrimming();
    await this.writes.close();
    this.isClosed = true;
    await this.reads.close();
  }

  protected override async readRecords<Row>(statement: Statement): Promise<readonly Row[]> {
    try {
      return runOn(this.connected().db, statement) as Row[];
    } catch (error) {
      throw translate(error);
    }
  }

  protected writeRecords<Row>(...statements: readonly Statement[]): Promise<readonly Row[]> {
    return this.perform(false, ({ db }) => {
      let rows: unknown[] = [];
      for (const statement of statements) rows = runOn(db, statement);
      return rows as Row[];
    });
  }

  private perform<Outcome>(
    concernsPlants: boolean,
    run: (transaction: Transaction) => Outcome,
  ): Promise<Outcome> {
    return this.writes.submit({ kind: "task", concernsPlants, run }) as Promise<Outcome>;
  }

  private commit(batch: readonly (PlantWrite | Task)[]): Committed<unknown> {
    try {
      return this.commitOn(this.connected(), batch);
    } catch (error) {
      if (isLocked(error)) return [];
      this.disconnectAfter(error);
      throw translate(error);
    }
  }

  private commitOn(connection: WriteConnection, batch: readonly (PlantWrite | Task)[]): unknown[] {
    const { db, statements } = connection;
    connection.assertFilesNotMoved();
    const concernsPlants = batch.some((write) => write.kind !== "task" || write.concernsPlants);
    if (concernsPlants) this.requireDurable(connection, "writes");
    const entries = this.limits.changesDays > 0 ? new Entries() : undefined;
    const isBreak = entries === undefined && !this.isBreakMarked && concernsPlants;
    statements.beginWrite.run();
    try {
      const room = this.findRoom(connection);
      if (isBreak) statements.insertChanges.run(0, Date.now(), "[]");
      const outcomes = applyAll({ db, statements, room, entries }, batch);
      const changes = entries?.count ?? 0;
      if (entries !== undefined && changes > 0)
        statements.insertChanges.run(changes, Date.now(), entries.format());
      statements.commit.run();
      this.plantsLeft = room.plantsLeft;
      this.changesWritten += changes;
      this.isBreakMarked ||= isBreak;
      return outcomes;
    } catch (error) {
      // A full disk and an I/O error have rolled back already.
      if (db.inTransaction) statements.rollback.run();
      throw error;
    }
  }

  private findRoom({ statements }: Connection): Room {
    const { plantsMax = 0, diskFreeBytesMin = 0 } = this.limits;
    const plantsLeft =
      plantsMax === 0
        ? Number.POSITIVE_INFINITY
        : (this.plantsLeft ?? plantsMax - Number(statements.asc.count.get(null, INT64_MIN)?.count));
    // Each time: a second of large plants can fill what is left, and then not even a removal is possible.
    const { diskFreeBytes = diskFreeBytesMin } = diskFreeBytesMin > 0 ? this.readFigures() : {};
    return { plantsLeft, diskFreeBytes, diskFreeBytesMin };
  }

  private connected(use?: keyof Durability): WriteConnection {
    if (this.isClosed) throw new Refusal("shutting_down");
    if (this.connection === undefined) {
      this.assertFileNotMoved();
      this.connection = this.prepare(reopenDatabase(this.path));
    }
    const { connection } = this;
    if (use !== undefined) this.requireDurable(connection, use);
    return connection;
  }

  private requireDurable(connection: WriteConnection, use: keyof Durability): void {
    if (connection.durability[use]) return;
    try {
      connection.durability = makeDurable(connection.db);
    } catch (error) {
      this.disconnectAfter(error);
      throw error;
    }
    if (!connection.durability[use]) throw new StoreLockedError(this.path);
  }

  private prepare(db: Database): WriteConnection {
    return {
      ...connect(db),
      durability: { reads: false, writes: false },
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
    this.plantsLeft = undefined;
  }
}

/**
 * Creates share statements until an id is taken: a failure costs more than a statement saves. Once the journal's block is
 * full, the other writes are left to the next commit.
 */
function applyAll(transaction: Transaction, batch: readonly (PlantWrite | Task)[]): unknown[] {
  const outcomes: unknown[] = [];
  let isTaken = false;
  while (outcomes.length < batch.length && transaction.entries?.isFull !== true) {
    const creates: readonly Create[] = isTaken ? [] : takeCreates(batch, outcomes.length);
    const made = creates.length === 0 ? 0 : createTogether(transaction, creates);
    isTaken ||= made < creates.length;
    for (let count = 0; count < made; count++) outcomes.push("created");
    if (made > 0) continue;
    outcomes.push(applyAlone(transaction, batch[outcomes.length] as PlantWrite | Task));
  }
  return outcomes;
}

/** As many as one statement creates; none if the next writes are not that many creates. */
function takeCreates(batch: readonly (PlantWrite | Task)[], from: number): readonly Create[] {
  let end = from;
  while (end - from < ROWS_TOGETHER[0] && batch[end]?.kind === "create") end++;
  const rows = ROWS_TOGETHER.find((count) => count <= end - from) ?? 0;
  return batch.slice(from, from + rows) as Create[];
}

/** Returns how many were created: all before the first one whose id is taken. */
function createTogether(
  { db, statements, room, entries }: Transaction,
  creates: readonly Create[],
): number {
  if (refuseNew(room, creates.length) !== undefined) return 0;
  const values: Value[] = [];
  for (const { id, plant } of creates) values.push(id, plant.name, plant.tag ?? null);
  let made = creates.length;
  try {
    statements.insertPlants[creates.length as RowsTogether].run(...values);
  } catch (error) {
    if (!db.inTransaction) throw error;
    // A taken id, or a trigger of the operator's. After another error this may be the count of an earlier statement.
    made = hasCode(error, /^SQLITE_CONSTRAINT/) ? Number(statements.countChanged.get()?.count) : 0;
  }
  room.plantsLeft -= made;
  for (const { id, by, plant } of creates.slice(0, made)) entries?.add(id, by, plant);
  return made;
}

/** If the transaction is still open after an error, SQLite undid that statement alone, and only this write fails. */
function applyAlone(transaction: Transaction, write: PlantWrite | Task): unknown {
  try {
    if (write.kind === "task") return write.run(transaction);
    return write.kind === "create"
      ? createPlant(transaction, write)
      : changePlant(transaction, write);
  } catch (error) {
    if (!transaction.db.inTransaction) throw error;
    return translate(error);
  }
}

function createPlant(
  { statements, room, entries }: Transaction,
  { id, plant, by }: Create,
): Created | Refusal {
  const { name, tag = null } = plant;
  const refusal = refuseNew(room, 1);
  if (refusal === undefined && statements.insertPlant.run(id, name, tag).changes === 1) {
    room.plantsLeft--;
    entries?.add(id, by, plant);
    return "created";
  }
  const row = statements.findPlant.get(id);
  // It is missing only if it was not tried.
  return row === null ? (refusal as Refusal) : judgeCreate(plant, toPlant(row));
}

function changePlant(
  { statements, room, entries }: Transaction,
  { id, plant, condition, by }: Change,
): Refusal | undefined {
  const row = statements.findPlant.get(id);
  const before = judgeChange(row === null ? undefined : toPlant(row), condition);
  if (before instanceof Refusal) return before;
  const refusal = plant === undefined ? undefined : refuseText(room);
  if (refusal !== undefined) return refusal;
  if (plant === undefined) {
    statements.deletePlant.run(id);
    room.plantsLeft++;
  } else statements.updatePlant.run(plant.name, plant.tag ?? null, id);
  entries?.add(id, by, plant, before);
  return undefined;
}

/** Why so many new plants cannot be stored. */
const refuseNew = (room: Room, plants: number): Refusal | undefined =>
  room.plantsLeft < plants ? new Refusal("store_full") : refuseText(room);

/** Why no text can be stored. What is left of the disk is for removals: the journal keeps what was removed. */
const refuseText = ({ diskFreeBytes, diskFreeBytesMin }: Room): Refusal | undefined =>
  diskFreeBytes < diskFreeBytesMin
    ? new Refusal(
        "disk_low",
        `Too little disk space is free for a new plant: ${diskFreeBytes} bytes of at least ${diskFreeBytesMin} (PLANTSTORE_DISK_FREE_BYTES_MIN); nothing was stored.`,
      )
    : undefined;

function runOn(db: Database, [sql, ...values]: Statement): unknown[] {
  // SQLite counts parameters that begin with $ in the order in which they appear.
  return db.query<unknown, typeof values>(sql.replaceAll("$", "?")).all(...values);
}
