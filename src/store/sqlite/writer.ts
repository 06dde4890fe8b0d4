/** The only write connection. It commits a group in one transaction, with one sync. */

import type { Database } from "bun:sqlite";
import { type Change, TIME_NUMBER_MAX, type Writer, writerOf } from "../../domain/change.ts";
import { decide, type NetChange, type Room } from "../../domain/decide.ts";
import { Refusal } from "../../domain/errors.ts";
import type { Plant } from "../../domain/plant.ts";
import type { OnMigrate, StoreLimits } from "../../domain/store.ts";
import { type AtomicWrite, type Create, findWriter, type PlantWrite } from "../../domain/write.ts";
import { CREATE_LENGTH, type Entries, JournalBlock, parseEntries } from "../journal.ts";
import type { Statement, Value } from "../engine.ts";
import { type PlantRow, toPlant } from "../reads.ts";
import {
  BREAK_ENTRIES,
  type Durability,
  findDiskFree,
  hasCode,
  isLocked,
  isSyncFailure,
  keepLog,
  logOf,
  makeDurable,
  openDatabase,
  reopenDatabase,
  rewriteLog,
  runOn,
  StoreLockedError,
  translate,
  watchFile,
} from "./database.ts";

/** Statements that run in the transaction of the plants. The outcome is the rows of the last one. */
interface Run {
  readonly kind: "run";
  readonly statements: readonly Statement[];
}

export type Write = PlantWrite | AtomicWrite | Run;

/** Of one HTTP thread. The deadline is by `performance.now()`. */
export interface Group {
  readonly parts: readonly Part[];
  readonly deadlineMs: number;
}

/** Creates that follow each other, under one lease, are a block of the journal from the start. Other writes are data. */
export type Part = Creates | readonly Exclude<Write, Create>[];

export interface Creates extends Entries {
  /** The writer whose lease all have; undefined without a lease. */
  readonly leased: Writer | undefined;
}

export function toParts(writes: readonly Write[]): readonly Part[] {
  const parts: (Exclude<Write, Create>[] | (JournalBlock & Creates))[] = [];
  for (const write of writes) {
    let part = parts.at(-1);
    if (write.kind !== "create") {
      if (!Array.isArray(part)) parts.push((part = []));
      part.push(write);
      continue;
    }
    const { id, plant, writer } = write;
    if (part === undefined || Array.isArray(part) || part.leased?.lease !== writer?.lease) {
      const leased = writer?.lease === undefined ? undefined : writer;
      parts.push((part = Object.assign(new JournalBlock(), { leased })));
    }
    part.add(id, writer, plant);
  }
  return parts;
}

export const isCreates = (part: Part): part is Creates => "text" in part;

const concernsPlants = (part: Part): boolean =>
  isCreates(part) || part.some(({ kind }) => kind !== "run");

const countWrites = ({ parts }: Group): number =>
  parts.reduce((sum, part) => sum + (isCreates(part) ? part.count : part.length), 0);

const ROWS_TOGETHER = [16, 4, 1] as const;

/** The number of the last of ?1 changes at the time ?2. With a SELECT, SQLite would copy the row to a temporary table. */
const LAST = `max(min(?2 * 1000, ${TIME_NUMBER_MAX}), (SELECT max(last) FROM changes) + max(?1, 1))`;

function connect(db: Database) {
  const prepare = <Row>(sql: string) => db.prepare<Row, Value[]>(sql);
  /** ?1 is the time, which all rows share. */
  const insertRows = (count: number) => {
    const rows = Array.from({ length: count }, (_, row) => {
      const first = 2 + 3 * row;
      return `(?${first}, ?${first + 1}, ?${first + 2}, ?1)`;
    });
    return prepare(
      `INSERT OR FAIL INTO plants (id, name, tag, changed_at_ms) VALUES ${rows.join()}`,
    );
  };
  return {
    db,
    durability: { reads: false, writes: false } as Durability,
    // IMMEDIATE takes the write lock at once: a transaction that has begun never fails for lack of it.
    begin: prepare("BEGIN IMMEDIATE"),
    commit: prepare("COMMIT"),
    rollback: prepare("ROLLBACK"),
    beginAtomic: prepare("SAVEPOINT atomic"),
    endAtomic: prepare("RELEASE atomic"),
    undoAtomic: prepare("ROLLBACK TO atomic"),
    // OR FAIL: a taken id ends the statement and keeps the rows before it. To undo those, SQLite would copy every page.
    insertPlants: { 16: insertRows(16), 4: insertRows(4), 1: insertRows(1) },
    countChanged: prepare<{ count: bigint }>("SELECT changes() AS count"),
    updatePlant: prepare("UPDATE plants SET name = ?, tag = ?, changed_at_ms = ? WHERE id = ?"),
    deletePlant: prepare("DELETE FROM plants WHERE id = ?"),
    findPlant: prepare<PlantRow>("SELECT id, name, tag FROM plants WHERE id = ?"),
    countPlants: prepare<{ count: bigint }>("SELECT count(*) AS count FROM plants"),
    // Changes with every commit of another connection, and with none of this one.
    dataVersion: prepare<{ data_version: bigint }>("PRAGMA data_version"),
    moveBreak: prepare(
      `UPDATE changes SET last = next, first = next + 1, at_ms = ?1
        FROM (SELECT max(last) AS newest, max(min(?1 * 1000, ${TIME_NUMBER_MAX}), max(last) + 1) AS next FROM changes)
        WHERE last = newest AND entries = '${BREAK_ENTRIES}'`,
    ),
    findRun: prepare(
      `SELECT 1 FROM jobs WHERE name = ?1 AND substr(version, 1, instr(version, '/') - 1) = ?2 AND record ->> 'state' = 'running'`,
    ),
    findRevoked: prepare("SELECT 1 FROM tokens WHERE hash = ? AND revoked_at_ms IS NOT NULL"),
    insertChanges: prepare(
      `INSERT INTO changes (last, first, at_ms, entries) VALUES (${LAST}, ${LAST} - ?1 + 1, ?2, ?3)`,
    ),
  };
}

type WriteConnection = ReturnType<typeof connect>;

interface Capacity extends Room {
  plantsLeft: number;
  /** The version of the data that the count is of; undefined if plants are not counted. */
  readonly version: bigint | undefined;
}

interface Transaction extends WriteConnection {
  readonly capacity: Capacity;
  /** The refusal of writes whose lease is lost. */
  readonly refuseLease: (writer: Writer | undefined) => Refusal | undefined;
  /** The time of its journal block, and of every plant that it changes: a restore replays the same. */
  readonly atMs: number;
  /** The changes, for the journal. */
  readonly entries: JournalBlock;
}

/** The WAL and the free space are checked at most this often, unless little space may be left. */
export const CHECK_MS = 10;
/** The most that a write adds to the WAL: pages of the table, its index and the journal, and its text in each, in UTF-8. */
const WRITE_BYTES = 16_384;
const CHARACTER_BYTES = 9;

const LOCK_RETRY_MS = 1;
const LOCK_RETRY_MS_MAX = 20;

export class SqliteWriter {
  private readonly path: string;
  private readonly limits: StoreLimits;
  private connection: WriteConnection | undefined;
  /** Nothing is appended to a WAL that failed to sync. The next commit reopens the file. */
  private mustReopen = false;
  /** Valid until another process writes: its plants are not counted here. */
  private quota: { readonly plantsLeft: number; readonly version: bigint } | undefined;
  /** Throws if another file, or none, is at the path. Called before each commit, and before the file is reopened. */
  private readonly assertFileNotMoved: () => void;
  private readonly assertLogNotMoved: () => void;
  /** How long the last COMMIT took: what it wrote to the WAL, and the sync. */
  syncMs = 0;
  /** The free space at the last check, and an upper bound of what was written since. */
  private disk = { checkedAtMs: Number.NEGATIVE_INFINITY, freeBytes: 0, writtenBytes: 0 };

  constructor(path: string, limits: StoreLimits, onMigrate?: OnMigrate) {
    this.path = path;
    this.limits = limits;
    this.connection = connect(openDatabase(path, onMigrate));
    this.assertFileNotMoved = watchFile(path);
    this.assertLogNotMoved = watchFile(logOf(path));
    try {
      this.requireDurable(this.connection, "reads");
    } catch (error) {
      // The disk failed, or a reader of another process is in the way. The next commit retries, and reads wait for it.
      this.noteFailure(error);
    }
  }

  /** Whether everything readable is synced, so plants may be answered. */
  get isDurable(): boolean {
    return !this.mustReopen && this.connection?.durability.reads === true;
  }

  /** `commitAll` of one group. */
  commit(writes: readonly Write[], deadlineMs: number): unknown[] {
    return this.commitAll([{ parts: toParts(writes), deadlineMs }])[0] ?? [];
  }

  /**
   * Commits the groups together. Returns one outcome per write, in order; undefined for a group that is late. Writes
   * without an outcome were not tried. If another process holds the lock, it retries until the last deadline. Throws
   * translated errors, also if all groups are late.
   */
  commitAll(groups: readonly Group[]): (unknown[] | undefined)[] {
    for (let waitMs = LOCK_RETRY_MS; ; waitMs = Math.min(2 * waitMs, LOCK_RETRY_MS_MAX)) {
      try {
        return this.commitOn(this.connected(), groups);
      } catch (error) {
        const untilMs = Math.max(...groups.map(({ deadlineMs }) => deadlineMs));
        if (isLocked(error) && performance.now() + waitMs <= untilMs) {
          Bun.sleepSync(waitMs);
          continue;
        }
        this.noteFailure(error);
        throw translate(error);
      }
    }
  }

  /** Finalizes its statements too: an unfinished one would keep the file open. */
  close(): void {
    this.connection?.db.close(true);
    this.connection = undefined;
  }

  private commitOn(
    connection: WriteConnection,
    groups: readonly Group[],
  ): (unknown[] | undefined)[] {
    const { db, begin, commit, rollback, insertChanges, moveBreak } = connection;
    this.requireDurable(connection, "writes");
    const entries = new JournalBlock();
    begin.run();
    try {
      const inTime = this.admit(groups);
      const capacity = this.findCapacity(connection, inTime);
      const refuseLease = createLeaseCheck(connection);
      const atMs = Date.now();
      const transaction = Object.assign(connection, { capacity, refuseLease, entries, atMs });
      const outcomes = groups.map((group) =>
        inTime.includes(group) ? applyGroup(transaction, group) : undefined,
      );
      const isJournaled = this.limits.changesDays > 0;
      if (entries.count > 0 && isJournaled) insertChanges.run(entries.count, atMs, entries.text);
      // Without a journal the break moves: two states never have the same number, as a backup relies on.
      else if (entries.count > 0 && moveBreak.run(atMs).changes === 0)
        insertChanges.run(0, atMs, BREAK_ENTRIES);
      this.disk.writtenBytes +=
        (inTime.reduce((sum, group) => sum + countWrites(group), 0) + entries.count) * WRITE_BYTES +
        entries.characters * CHARACTER_BYTES;
      const syncedAtMs = performance.now();
      commit.run();
      this.syncMs = performance.now() - syncedAtMs;
      if (capacity.version !== undefined)
        this.quota = { plantsLeft: capacity.plantsLeft, version: capacity.version };
      return outcomes;
    } catch (error) {
      // SQLite has already rolled back after a full disk or an I/O error.
      if (db.inTransaction) rollback.run();
      throw error;
    }
  }

  /**
   * The groups in time. All that can take long comes before: once the lock is held and the deadline has not passed, no
   * other service writes before this commit. A client of a late group was refused. It may have retried and removed its
   * plant since, and a commit now would bring it back.
   */
  private admit(groups: readonly Group[]): readonly Group[] {
    this.assertFileNotMoved();
    this.checkDisk();
    const nowMs = performance.now();
    const inTime = groups.filter(({ deadlineMs }) => deadlineMs > nowMs);
    if (inTime.length === 0) throw new Refusal("store_busy");
    return inTime;
  }

  /** In the transaction, so no other process can create a plant between the count and the commit. */
  private findCapacity(connection: WriteConnection, groups: readonly Group[]): Capacity {
    const { plantsMax = 0, diskFreeBytesMin = 0 } = this.limits;
    const isCounted = plantsMax > 0 && groups.some(({ parts }) => parts.some(concernsPlants));
    const version = isCounted ? connection.dataVersion.get()?.data_version : undefined;
    let plantsLeft = Number.POSITIVE_INFINITY;
    if (version !== undefined)
      plantsLeft =
        this.quota?.version === version
          ? this.quota.plantsLeft
          : plantsMax - Number(connection.countPlants.get()?.count);
    // On a full disk not even a removal is possible, so what was written since the check counts as used.
    const diskFreeBytes = this.disk.freeBytes - this.disk.writtenBytes;
    const refuseText =
      diskFreeBytes < diskFreeBytesMin ? refuseLowDisk(diskFreeBytes, diskFreeBytesMin) : undefined;
    return { plantsLeft, version, refuseText };
  }

  /**
   * A `stat` of the WAL in every commit would slow every sync down: since Linux 6.13, the first write after it updates
   * the times of the file, and the sync writes them too.
   */
  private checkDisk(): void {
    const { diskFreeBytesMin = 0 } = this.limits;
    const checkedAtMs = performance.now();
    const isEnough = this.disk.freeBytes - this.disk.writtenBytes >= diskFreeBytesMin;
    if (checkedAtMs - this.disk.checkedAtMs < CHECK_MS && isEnough) return;
    this.assertLogNotMoved();
    // If it is unknown, no write is refused for it.
    const freeBytes = findDiskFree(this.path) ?? Number.POSITIVE_INFINITY;
    this.disk = { checkedAtMs, freeBytes, writtenBytes: 0 };
  }

  /** A file that was moved stays open: if it is not put back, closing it still saves what its WAL has. */
  private connected(): WriteConnection {
    if (this.connection !== undefined && !this.mustReopen) return this.connection;
    this.assertFileNotMoved();
    this.assertLogNotMoved();
    if (this.connection !== undefined) keepLog(this.connection.db);
    this.close();
    this.connection = connect(reopenDatabase(this.path));
    this.mustReopen = false;
    return this.connection;
  }

  private requireDurable(connection: WriteConnection, use: keyof Durability): void {
    if (connection.durability[use]) return;
    this.assertFileNotMoved();
    this.assertLogNotMoved();
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

  private noteFailure(error: unknown): void {
    if (!isSyncFailure(error)) return;
    this.mustReopen = true;
    this.quota = undefined;
  }
}

const refuseLowDisk = (bytes: number, bytesMin: number): Refusal =>
  new Refusal(
    "disk_low",
    `Too little disk space is free for a new plant: ${bytes} bytes of at least ${bytesMin} (PLANTSTORE_DISK_FREE_BYTES_MIN); nothing was stored.`,
  );

/** Once for each writer: the writes of a batch share it. */
function createLeaseCheck({ findRun, findRevoked }: WriteConnection): Transaction["refuseLease"] {
  const known = new Map<Writer, Refusal | undefined>();
  return (writer) => {
    if (writer?.lease === undefined) return undefined;
    if (known.has(writer)) return known.get(writer);
    const { run, token } = writer.lease;
    const isRevoked = token !== undefined && findRevoked.get(token) !== null;
    const isOver = run !== undefined && findRun.get(writer.batch ?? "", run) === null;
    const reason = isRevoked ? "token_invalid" : isOver ? "job_stopped" : undefined;
    known.set(writer, reason && new Refusal(reason));
    return known.get(writer);
  };
}

/** A full block ends the commit: later writes have no outcome. */
function applyGroup(transaction: Transaction, { parts }: Group): unknown[] {
  const { entries } = transaction;
  const outcomes: unknown[] = [];
  for (const part of parts) {
    const creates = isCreates(part) ? part : undefined;
    if (entries.isFull) break;
    const created = creates === undefined ? 0 : insertCreates(transaction, creates);
    for (let count = 0; count < created; count++) outcomes.push("created");
    if (created === creates?.count) {
      entries.adopt(creates);
      continue;
    }
    const writes = creates === undefined ? (part as readonly Write[]) : toCreates(creates);
    for (const [index, write] of writes.entries()) {
      if (index < created) entries.add(...entryOf(write as Create));
      else if (entries.isFull) break;
      else outcomes.push(apply(transaction, write));
    }
  }
  return outcomes;
}

const entryOf = ({ id, writer, plant }: Create) => [id, writer, plant] as const;

export const toCreates = ({ text, leased }: Creates): Create[] =>
  parseEntries(text).map((entry) => {
    const { id, plant } = entry as Change & { readonly plant: Plant };
    const writer = Object.assign(writerOf(entry), { lease: leased?.lease });
    return { kind: "create", id, plant, writer };
  });

/** Creates that share INSERTs. Returns how many: all, or those before the first one that may be refused. */
function insertCreates(transaction: Transaction, { values, count, leased }: Creates): number {
  const { db, insertPlants, countChanged, capacity, refuseLease, atMs } = transaction;
  if (capacity.plantsLeft < count || capacity.refuseText !== undefined) return 0;
  if (refuseLease(leased) !== undefined) return 0;
  let created = 0;
  try {
    while (created < count) {
      const rows = ROWS_TOGETHER.find((length) => length <= count - created) ?? 1;
      const row: Value[] = [atMs];
      for (
        let at = created * CREATE_LENGTH;
        at < (created + rows) * CREATE_LENGTH;
        at += CREATE_LENGTH
      )
        row.push(
          BigInt(values[at + 2] as number | string),
          values[at + 3] as string,
          values[at + 4] as Value,
        );
      insertPlants[rows].run(...row);
      created += rows;
    }
  } catch (error) {
    if (!db.inTransaction) throw error;
    // A taken id, or an operator's trigger. After any other error, changes() may count an earlier statement.
    if (hasCode(error, /^SQLITE_CONSTRAINT/)) created += Number(countChanged.get()?.count);
  }
  capacity.plantsLeft -= created;
  return created;
}

/** If the transaction is still open after an error, SQLite undid only that statement, so only this write fails. */
function apply(transaction: Transaction, write: Write): unknown {
  const { db, refuseLease } = transaction;
  try {
    if (write.kind === "run")
      return write.statements.reduce<unknown[]>((_, statement) => runOn(db, statement), []);
    return refuseLease(findWriter(write)) ?? applyDecided(transaction, write);
  } catch (error) {
    if (!db.inTransaction) throw error;
    return translate(error);
  }
}

/** The savepoint is for what SQLite refuses, as a trigger would. */
function applyDecided(transaction: Transaction, write: PlantWrite | AtomicWrite): unknown {
  const { db, findPlant, beginAtomic, endAtomic, undoAtomic, capacity, entries } = transaction;
  const find = (id: bigint): Plant | undefined => {
    const row = findPlant.get(id);
    return row === null ? undefined : toPlant(row);
  };
  const { outcome, changes, created } = decide(write, find, capacity);
  const isMany = changes.length > 1;
  if (isMany) beginAtomic.run();
  try {
    for (const each of changes) change(transaction, each);
  } catch (error) {
    if (isMany && db.inTransaction) undoAtomic.run();
    throw error;
  } finally {
    if (isMany && db.inTransaction) endAtomic.run();
  }
  capacity.plantsLeft -= created;
  for (const { id, writer, after, before } of changes) entries.add(id, writer, after, before);
  return outcome;
}

function change(
  { insertPlants, deletePlant, updatePlant, atMs }: Transaction,
  { id, before, after }: NetChange,
): void {
  if (after === undefined) deletePlant.run(id);
  else if (before === undefined) insertPlants[1].run(atMs, id, after.name, after.tag ?? null);
  else updatePlant.run(after.name, after.tag ?? null, atMs, id);
}
