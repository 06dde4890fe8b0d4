/** The only write connection. It commits a group in one transaction, with one sync. */

import type { Database } from "bun:sqlite";
import { TIME_NUMBER_MAX, type Writer } from "../../domain/change.ts";
import { Refusal } from "../../domain/errors.ts";
import type { Plant } from "../../domain/plant.ts";
import type { OnMigrate, StoreLimits } from "../../domain/store.ts";
import {
  type AtomicWrite,
  type Create,
  type Done,
  findWriter,
  judge,
  judgeAtomic,
  judgeCreate,
  type NetChange,
  type PlantWrite,
  type Update,
  type Verdict,
} from "../../domain/write.ts";
import { JournalBlock } from "../journal.ts";
import type { Statement, Value } from "../records.ts";
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
export interface Task {
  readonly kind: "run";
  readonly statements: readonly Statement[];
}

export type Write = PlantWrite | AtomicWrite | Task;

/** Of one HTTP thread. The deadline is by `performance.now()`. */
interface Group {
  readonly writes: readonly Write[];
  readonly deadlineMs: number;
}

const ROWS_TOGETHER = [16, 4] as const;

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
    insertPlant: prepare(
      "INSERT INTO plants (id, name, tag, changed_at_ms) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
    ),
    // OR FAIL: a taken id ends the statement and keeps the rows before it. To undo those, SQLite would copy every page.
    insertPlants: { 16: insertRows(16), 4: insertRows(4) },
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

interface Capacity {
  plantsLeft: number;
  /** The version of the data that the count is of; undefined if plants are not counted. */
  readonly version: bigint | undefined;
  readonly diskFreeBytes: number;
  readonly diskFreeBytesMin: number;
}

interface Transaction extends WriteConnection {
  readonly capacity: Capacity;
  /** The refusal of a write whose lease is lost. */
  readonly refuseLease: (write: Write) => Refusal | undefined;
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
    return this.commitAll([{ writes, deadlineMs }])[0] ?? [];
  }

  /**
   * Commits the groups together. Returns one outcome per write, in order; undefined for a group that is late. Writes
   * without an outcome were not tried. If another process holds the lock, it retries until the last deadline. Throws
   * translated errors, also if all groups are late.
   */
  commitAll(groups: readonly Group[]): (unknown[] | undefined)[] {
    const untilMs = Math.max(...groups.map(({ deadlineMs }) => deadlineMs));
    for (let waitMs = LOCK_RETRY_MS; ; waitMs = Math.min(2 * waitMs, LOCK_RETRY_MS_MAX)) {
      try {
        return this.commitOn(this.connected(), groups);
      } catch (error) {
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
      const writes = inTime.flatMap((group) => group.writes);
      const capacity = this.findCapacity(connection, writes);
      const refuseLease = createLeaseCheck(connection);
      const atMs = Date.now();
      const transaction = Object.assign(connection, { capacity, refuseLease, entries, atMs });
      const outcomes = applyAll(transaction, writes);
      const isJournaled = this.limits.changesDays > 0;
      if (entries.count > 0 && isJournaled)
        insertChanges.run(entries.count, atMs, entries.format());
      // Without a journal the break moves: two states never have the same number, as a backup relies on.
      else if (entries.count > 0 && moveBreak.run(atMs).changes === 0)
        insertChanges.run(0, atMs, BREAK_ENTRIES);
      this.disk.writtenBytes +=
        (outcomes.length + entries.count) * WRITE_BYTES + entries.characters * CHARACTER_BYTES;
      const syncedAtMs = performance.now();
      commit.run();
      this.syncMs = performance.now() - syncedAtMs;
      if (capacity.version !== undefined)
        this.quota = { plantsLeft: capacity.plantsLeft, version: capacity.version };
      if (groups.length === 1) return [outcomes];
      let end = 0;
      return groups.map((group) =>
        inTime.includes(group) ? outcomes.slice(end, (end += group.writes.length)) : undefined,
      );
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
  private findCapacity(connection: WriteConnection, group: readonly Write[]): Capacity {
    const { plantsMax = 0, diskFreeBytesMin = 0 } = this.limits;
    const isCounted = plantsMax > 0 && group.some(({ kind }) => kind !== "run");
    const version = isCounted ? connection.dataVersion.get()?.data_version : undefined;
    let plantsLeft = Number.POSITIVE_INFINITY;
    if (version !== undefined)
      plantsLeft =
        this.quota?.version === version
          ? this.quota.plantsLeft
          : plantsMax - Number(connection.countPlants.get()?.count);
    // On a full disk not even a removal is possible, so what was written since the check counts as used.
    const diskFreeBytes = this.disk.freeBytes - this.disk.writtenBytes;
    return { plantsLeft, version, diskFreeBytes, diskFreeBytesMin };
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

/** Once for each writer: the writes of a batch share it. Tasks have none. */
function createLeaseCheck({ findRun, findRevoked }: WriteConnection): Transaction["refuseLease"] {
  const known = new Map<Writer, Refusal | undefined>();
  return (write) => {
    const writer = write.kind === "run" ? undefined : findWriter(write);
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

/**
 * Creates share INSERTs until an id is taken: a failure costs more than sharing saves. A full block ends the commit.
 */
function applyAll(transaction: Transaction, group: readonly Write[]): unknown[] {
  const outcomes: unknown[] = [];
  let isTaken = false;
  while (outcomes.length < group.length && !transaction.entries.isFull) {
    const lost = transaction.refuseLease(group[outcomes.length] as Write);
    if (lost !== undefined) {
      outcomes.push(lost);
      continue;
    }
    const creates: readonly Create[] = isTaken
      ? []
      : takeCreates(transaction, group, outcomes.length);
    const created = creates.length === 0 ? 0 : createTogether(transaction, creates);
    isTaken ||= created < creates.length;
    for (let count = 0; count < created; count++) outcomes.push("created");
    if (created > 0) continue;
    outcomes.push(applyAlone(transaction, group[outcomes.length] as Write));
  }
  return outcomes;
}

/** The next 16 or 4 creates, for one INSERT; none if fewer than 4 come next. */
function takeCreates(
  { refuseLease }: Transaction,
  group: readonly Write[],
  from: number,
): readonly Create[] {
  let end = from;
  for (; end - from < ROWS_TOGETHER[0]; end++) {
    const write = group[end];
    if (write?.kind !== "create" || refuseLease(write) !== undefined) break;
  }
  const rows = ROWS_TOGETHER.find((count) => count <= end - from) ?? 0;
  return group.slice(from, from + rows) as Create[];
}

/** Returns how many were created: all before the first one whose id is taken. */
function createTogether(transaction: Transaction, creates: readonly Create[]): number {
  const { db, insertPlants, countChanged, capacity, atMs, entries } = transaction;
  if (refuseNew(capacity, creates.length) !== undefined) return 0;
  const values: Value[] = [atMs];
  for (const { id, plant } of creates) values.push(id, plant.name, plant.tag ?? null);
  let created = creates.length;
  try {
    insertPlants[creates.length as (typeof ROWS_TOGETHER)[number]].run(...values);
  } catch (error) {
    if (!db.inTransaction) throw error;
    // A taken id, or an operator's trigger. After any other error, changes() may count an earlier statement.
    created = hasCode(error, /^SQLITE_CONSTRAINT/) ? Number(countChanged.get()?.count) : 0;
  }
  capacity.plantsLeft -= created;
  for (const { id, writer, plant } of creates.slice(0, created)) entries.add(id, writer, plant);
  return created;
}

/** If the transaction is still open after an error, SQLite undid only that statement, so only this write fails. */
function applyAlone(transaction: Transaction, write: Write): unknown {
  const { db } = transaction;
  try {
    if (write.kind === "run")
      return write.statements.reduce<unknown[]>((_, statement) => runOn(db, statement), []);
    if (write.kind === "atomic") return writeAtomic(transaction, write);
    return write.kind === "create"
      ? createPlant(transaction, write)
      : changePlant(transaction, write);
  } catch (error) {
    if (!db.inTransaction) throw error;
    return translate(error);
  }
}

function createPlant(
  { insertPlant, findPlant, capacity, atMs, entries }: Transaction,
  { id, plant, writer }: Create,
): Done | Refusal {
  const { name, tag = null } = plant;
  const refusal = refuseNew(capacity, 1);
  if (refusal === undefined && insertPlant.run(id, name, tag, atMs).changes === 1) {
    capacity.plantsLeft--;
    entries.add(id, writer, plant);
    return "created";
  }
  const row = findPlant.get(id);
  // No row means that the insert was refused.
  const verdict = row === null ? (refusal as Refusal) : judgeCreate(plant, toPlant(row));
  return verdict instanceof Refusal ? verdict : verdict.done;
}

function changePlant(transaction: Transaction, write: Update): Done | Verdict | Refusal {
  const before = findStored(transaction, write.id);
  const verdict = judge(write, before);
  if (verdict instanceof Refusal) return verdict;
  const { done, after } = verdict;
  if (done !== "replayed") {
    const refusal = refuseBeyond(transaction.capacity, done, 1);
    if (refusal !== undefined) return refusal;
    change(transaction, { id: write.id, writer: write.writer, before, after });
  }
  return write.kind === "patch" ? verdict : done;
}

function findStored({ findPlant }: Transaction, id: bigint): Plant | undefined {
  const row = findPlant.get(id);
  return row === null ? undefined : toPlant(row);
}

function change(
  { insertPlant, deletePlant, updatePlant, capacity, atMs, entries }: Transaction,
  { id, writer, before, after }: NetChange,
): void {
  if (after === undefined) {
    deletePlant.run(id);
    capacity.plantsLeft++;
  } else if (before === undefined) {
    insertPlant.run(id, after.name, after.tag ?? null, atMs);
    capacity.plantsLeft--;
  } else updatePlant.run(after.name, after.tag ?? null, atMs, id);
  entries.add(id, writer, after, before);
}

/** All lines are judged before the first change. The savepoint is for what SQLite refuses, as a trigger would. */
function writeAtomic(transaction: Transaction, write: AtomicWrite): readonly Done[] {
  const { beginAtomic, endAtomic, undoAtomic, capacity, entries, db } = transaction;
  const { outcomes, changes } = judgeAtomic(
    write,
    (id) => findStored(transaction, id),
    (done, created) => refuseBeyond(capacity, done, created),
  );
  const [{ plantsLeft }, mark] = [capacity, entries.mark()];
  beginAtomic.run();
  try {
    for (const each of changes) change(transaction, each);
    endAtomic.run();
  } catch (error) {
    if (db.inTransaction) {
      undoAtomic.run();
      endAtomic.run();
    }
    capacity.plantsLeft = plantsLeft;
    entries.undo(mark);
    throw error;
  }
  return outcomes;
}

function refuseBeyond(capacity: Capacity, done: Done, created: number): Refusal | undefined {
  if (done === "created") return refuseNew(capacity, created);
  return done === "replaced" ? refuseText(capacity) : undefined;
}

const refuseNew = (capacity: Capacity, plants: number): Refusal | undefined =>
  capacity.plantsLeft < plants ? new Refusal("store_full") : refuseText(capacity);

/** Refuses writes that add text. The remaining disk space is for removals, which are journaled too. */
const refuseText = ({ diskFreeBytes, diskFreeBytesMin }: Capacity): Refusal | undefined =>
  diskFreeBytes < diskFreeBytesMin
    ? new Refusal(
        "disk_low",
        `Too little disk space is free for a new plant: ${diskFreeBytes} bytes of at least ${diskFreeBytesMin} (PLANTSTORE_DISK_FREE_BYTES_MIN); nothing was stored.`,
      )
    : undefined;
