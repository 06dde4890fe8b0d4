/** The one connection that writes. It commits a batch in one transaction, and each commit is one sync. */

import type { Database } from "bun:sqlite";
import { Refusal } from "../../domain/errors.ts";
import { INT64_MIN, judgeChange, judgeCreate } from "../../domain/plant.ts";
import type { Created, OnMigrate, StoreLimits } from "../../domain/store.ts";
import { Entries } from "../journal.ts";
import {
  type Change,
  type Create,
  type PlantWrite,
  type Statement,
  toPlant,
  type Value,
} from "../sql-store.ts";
import {
  type Durability,
  findDiskFree,
  hasCode,
  isLocked,
  isSyncFailure,
  makeDurable,
  openDatabase,
  reopenDatabase,
  rewriteLog,
  runOn,
  StoreLockedError,
  translate,
  watchFiles,
} from "./database.ts";
import { connect, type Connection, disconnect, ROWS_TOGETHER, type RowsTogether } from "./sql.ts";

/** Statements that are run in a transaction with the writes of plants. Its outcome is the rows of the last one. */
interface Task {
  readonly kind: "run";
  /** Run only once everything that can be read is durable. */
  readonly concernsPlants: boolean;
  readonly statements: readonly Statement[];
}

export type Write = PlantWrite | Task;

export type WriterLimits = Pick<StoreLimits, "changesDays" | "plantsMax" | "diskFreeBytesMin">;

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

interface WriteConnection extends Connection {
  durability: Durability;
  readonly assertFilesNotMoved: () => void;
}

const LOCK_RETRY_MS = 1;
const LOCK_RETRY_MS_MAX = 20;

export class SqliteWriter {
  private readonly path: string;
  private readonly limits: WriterLimits;
  private connection: WriteConnection | undefined;
  /** Undefined until the plants are counted. */
  private plantsLeft: number | undefined;
  /** After a failure the writer reopens the same file, never another one at its path. */
  private readonly assertFileNotMoved: () => void;
  /** Whether the journal shows that this process writes none: before its first change there is a break. */
  private isBreakMarked = false;

  /** Opens and migrates the store. Throws a StoreOpenError. */
  constructor(path: string, limits: WriterLimits, onMigrate?: OnMigrate) {
    this.path = path;
    this.limits = limits;
    this.connection = this.prepare(openDatabase(path, onMigrate));
    this.assertFileNotMoved = watchFiles([path]);
    try {
      this.requireDurable(this.connection, "reads");
    } catch (error) {
      // A disk that fails, or a reader of another process. The next commit tries again, and reads wait for it.
      this.disconnectAfter(error);
    }
  }

  /** Whether everything that can be read is on disk: answers about plants may be given. */
  get isDurable(): boolean {
    return this.connection?.durability.reads === true;
  }

  /**
   * Commits the batch, and returns one outcome a write, in order. The writes behind the last outcome were not begun. A
   * lock of another process is waited for until the deadline, by `performance.now()`. Throws what `translate` makes.
   */
  commit(batch: readonly Write[], deadlineMs: number): unknown[] {
    for (let waitMs = LOCK_RETRY_MS; ; waitMs = Math.min(2 * waitMs, LOCK_RETRY_MS_MAX)) {
      try {
        return this.commitOn(this.connected(), batch);
      } catch (error) {
        const isWaiting = isLocked(error) && performance.now() + waitMs <= deadlineMs;
        if (isWaiting) Bun.sleepSync(waitMs);
        // A sleep may take longer. Past the deadline the clients were refused, and nothing may be stored any more.
        if (isWaiting && performance.now() < deadlineMs) continue;
        this.disconnectAfter(error);
        throw translate(error);
      }
    }
  }

  close(): void {
    disconnect(this.connection);
    this.connection = undefined;
  }

  private commitOn(connection: WriteConnection, batch: readonly Write[]): unknown[] {
    const { db, statements } = connection;
    connection.assertFilesNotMoved();
    const concernsPlants = batch.some((write) => write.kind !== "run" || write.concernsPlants);
    if (concernsPlants) this.requireDurable(connection, "writes");
    const entries = this.limits.changesDays > 0 ? new Entries() : undefined;
    const isBreak = entries === undefined && !this.isBreakMarked && concernsPlants;
    statements.beginWrite.run();
    try {
      const room = this.findRoom(connection);
      if (isBreak) statements.insertChanges.run(0, Date.now(), "[]");
      const outcomes = applyAll({ db, statements, room, entries }, batch);
      if (entries !== undefined && entries.count > 0)
        statements.insertChanges.run(entries.count, Date.now(), entries.format());
      statements.commit.run();
      this.plantsLeft = room.plantsLeft;
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
    const free = diskFreeBytesMin > 0 ? findDiskFree(this.path) : undefined;
    return { plantsLeft, diskFreeBytes: free ?? diskFreeBytesMin, diskFreeBytesMin };
  }

  private connected(): WriteConnection {
    if (this.connection === undefined) {
      this.assertFileNotMoved();
      this.connection = this.prepare(reopenDatabase(this.path));
    }
    return this.connection;
  }

  private requireDurable(connection: WriteConnection, use: keyof Durability): void {
    if (connection.durability[use]) return;
    try {
      connection.durability = makeDurable(connection.db);
    } catch (error) {
      if (isLocked(error) || isSyncFailure(error)) throw error;
      if (!connection.durability.reads) rewriteLog(connection.db, this.path);
      connection.durability = { reads: true, writes: false };
      if (use === "writes") throw error;
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

  /** After a failed sync nothing more is added to this log. The next batch opens the file again. */
  private disconnectAfter(error: unknown): void {
    if (!isSyncFailure(error)) return;
    this.close();
    this.plantsLeft = undefined;
  }
}

/**
 * Creates share statements until an id is taken: a failure costs more than a statement saves. Once the journal's block is
 * full, the other writes are left to the next commit.
 */
function applyAll(transaction: Transaction, batch: readonly Write[]): unknown[] {
  const outcomes: unknown[] = [];
  let isTaken = false;
  while (outcomes.length < batch.length && transaction.entries?.isFull !== true) {
    const creates: readonly Create[] = isTaken ? [] : takeCreates(batch, outcomes.length);
    const made = creates.length === 0 ? 0 : createTogether(transaction, creates);
    isTaken ||= made < creates.length;
    for (let count = 0; count < made; count++) outcomes.push("created");
    if (made > 0) continue;
    outcomes.push(applyAlone(transaction, batch[outcomes.length] as Write));
  }
  return outcomes;
}

/** As many as one statement creates; none if the next writes are not that many creates. */
function takeCreates(batch: readonly Write[], from: number): readonly Create[] {
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
function applyAlone(transaction: Transaction, write: Write): unknown {
  try {
    if (write.kind === "run") return runAll(transaction.db, write.statements);
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

/** Why that number of new plants cannot be stored. */
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

function runAll(db: Database, statements: readonly Statement[]): unknown[] {
  let rows: unknown[] = [];
  for (const statement of statements) rows = runOn(db, statement);
  return rows;
}
