/** The embedded engine: one file, one writer, one sync for every commit. */

import type { Database } from "bun:sqlite";
import type { ChangePage, ChangeQuery } from "../../domain/change.ts";
import { Refusal } from "../../domain/errors.ts";
import {
  type CountQuery,
  isSearch,
  type PlantCount,
  type PlantPage,
  type PlantQuery,
  type TagPage,
  type TagQuery,
  takePage,
  takeTags,
} from "../../domain/page.ts";
import { type Condition, lengthOf, type Plant } from "../../domain/plant.ts";
import type {
  Created,
  OnMigrate,
  Store,
  StoreDescription,
  StoreLimits,
} from "../../domain/store.ts";
import type { Scope, TokenRecord, TokenUse } from "../../domain/token.ts";
import { Batcher, type Committed, pause } from "../batcher.ts";
import { Counts } from "../counts.ts";
import { ChangePageBuilder, Entries, partOf, requireJournal, Trimmer } from "../journal.ts";
import { toPlant, toTokenRecord, toWebhook } from "../rows.ts";
import {
  type Durability,
  fileBytesOf,
  isLocked,
  isSyncFailure,
  makeDurable,
  openDatabase,
  openReadOnly,
  reopenDatabase,
  StoreLockedError,
  translate,
  watchFiles,
} from "./database.ts";
import { Searcher } from "./search.ts";
import { connect, type Connection, disconnect, inSnapshot, walkPlants, walkTags } from "./sql.ts";
import { applyWrite, concernsPlants, type Outcome, Room, type Write } from "./writes.ts";

/**
 * A thread that reads a large page has milliseconds of work with it. So after a page, reading rests this many times as
 * long as the page took, if there are writes.
 */
const PAGE_REST = 3;
/** Of pages that take longer to read, one is read in a tick: it is answered or refused before the next takes memory. */
const LARGE_PAGE_MS = 2;
/** The plants that one tick looks up. The others are looked up when these are answered, so few are in memory at once. */
const LOOK_UP_CHARACTERS_MAX = 524_288;
/** A client that has been answered sends its next write soon. */
export const WRITING_MS = 100;

/** What the owner of a store and the readers on other threads have in common. Readers do not block the writer. */
abstract class SqliteReads {
  /** One read transaction for all plants asked for in one tick: its lock costs more than a look-up. */
  private readonly lookUps: Batcher<bigint, Plant | undefined>;
  private readonly searcher: Searcher;
  private readonly counts = new Counts((query) => this.searcher.count(query));
  /** Pages that wait for their turn. One is read in a tick, so there are commits between two of them. */
  private readonly pages: Batcher<() => unknown, unknown>;
  protected readonly limits: StoreLimits;
  /** Set for the rest of the tick in which a large page was read. */
  private isTickTaken = false;
  /** The number of the last break in the journal, once it was looked for; 0 if there is none. */
  private lastBreak: number | undefined;
  /** While there are writes, no page is read before this time. */
  private restsUntilMs = 0;

  constructor(path: string, limits: StoreLimits) {
    this.pages = new Batcher((reads) => this.readInTurn(reads), { ...limits, batchLengthMax: 1 });
    this.limits = limits;
    this.lookUps = new Batcher((ids) => this.findPlants(ids), limits);
    // These alone: a thread cannot be given the functions among the limits.
    const { queueSecondsMax, scanRowsMax } = limits;
    this.searcher = new Searcher({ path, queueSecondsMax, scanRowsMax });
  }

  /** Whether clients of this thread are writing. */
  protected abstract isWriting(): boolean;
  /** The connection to use now. Throws if there is none. */
  protected abstract connected(): Connection;
  /** The same, but throws if a plant that can be read may not be on disk. */
  protected abstract connectedToPlants(): Connection;

  findPlant(id: bigint): Promise<Plant | undefined> {
    return this.lookUps.submit(id);
  }

  async listPlants(query: PlantQuery): Promise<PlantPage> {
    if (isSearch(query)) {
      // The thread opens the file by itself, so whether it may be read is decided here.
      this.readPlants(() => undefined);
      return this.searcher.search(query);
    }
    return this.readPage(({ statements }) =>
      takePage(walkPlants(statements, query, query.limit + 1), query, Number.POSITIVE_INFINITY),
    );
  }

  async readChanges(query: ChangeQuery): Promise<ChangePage> {
    requireJournal(this.limits);
    return this.readPage(({ statements }) => {
      // To find it takes a scan. While a process keeps a journal, nothing makes another break.
      if (query.after === 0) this.lastBreak ??= Number(statements.lastBreak.get()?.last ?? 0);
      const page = new ChangePageBuilder(query);
      const start = query.after || (this.lastBreak as number);
      for (const row of statements.readChanges.iterate(start, partOf(query)))
        if (!page.add(row)) return page.finish();
      return page.finish(Number(statements.newestChange.get()?.newest));
    });
  }

  async listTags(query: TagQuery): Promise<TagPage> {
    return this.readPlants((connection) =>
      inSnapshot(connection, () => takeTags(walkTags(connection.statements, query), query.limit)),
    );
  }

  async countPlants(query: CountQuery = {}, msMax?: number): Promise<PlantCount> {
    this.readPlants(() => undefined);
    return this.counts.count(query, msMax);
  }

  async findToken(hash: string): Promise<TokenRecord | undefined> {
    const row = this.read(() => this.connected().statements.findToken.get(hash));
    return row === null ? undefined : toTokenRecord(row);
  }

  async listTokens(): Promise<TokenRecord[]> {
    return this.read(() => this.connected().statements.listTokens.all()).map(toTokenRecord);
  }

  readonly listWebhooks: Store["listWebhooks"] = async () =>
    this.read(() => this.connected().statements.listWebhooks.all()).map(toWebhook);

  async close(): Promise<void> {
    await this.lookUps.close();
    await this.pages.close();
    await this.searcher.close();
  }

  private findPlants(ids: readonly bigint[]): Committed<Plant | undefined> {
    try {
      const connection = this.connectedToPlants();
      const found: (Plant | undefined)[] = [];
      let characters = 0;
      return inSnapshot(connection, () => {
        for (const id of ids) {
          if (characters > LOOK_UP_CHARACTERS_MAX) break;
          const row = connection.statements.findPlant.get(id);
          const plant = row === null ? undefined : toPlant(row);
          characters += plant === undefined ? 0 : lengthOf(plant);
          found.push(plant);
        }
        return found;
      });
    } catch (error) {
      if (isLocked(error)) return "locked";
      throw translate(error);
    }
  }

  /** At once, or when it is its turn. */
  private async readPage<Page>(read: (connection: Connection) => Page): Promise<Page> {
    const readNow = (): Page => {
      const startedAtMs = performance.now();
      const rest = (): void => {
        const nowMs = performance.now();
        this.restsUntilMs = nowMs + (nowMs - startedAtMs) * PAGE_REST;
      };
      const page = this.readPlants(read);
      rest();
      if (performance.now() - startedAtMs > LARGE_PAGE_MS) {
        this.isTickTaken = true;
        setImmediate(() => (this.isTickTaken = false));
      }
      // By the end of the tick its text is made and sent, which takes as long again.
      if (this.isWriting()) setImmediate(rest);
      return page;
    };
    const isFree = !this.isTickTaken && this.pages.waiting === 0 && this.restMs() <= 0;
    return isFree ? readNow() : (this.pages.submit(readNow) as Promise<Page>);
  }

  private async readInTurn(reads: readonly (() => unknown)[]): Promise<unknown[]> {
    for (let restMs = this.restMs(); restMs > 0; restMs = this.restMs()) await pause(restMs);
    return reads.map((read) => read());
  }

  private restMs(): number {
    return this.isWriting() ? this.restsUntilMs - performance.now() : 0;
  }

  private readPlants<Result>(query: (connection: Connection) => Result): Result {
    return this.read(() => query(this.connectedToPlants()));
  }

  private read<Result>(query: () => Result): Result {
    try {
      return query();
    } catch (error) {
      throw translate(error);
    }
  }
}

/** Reads on a thread beside the one that owns the store. The owner has made durable what can be read. */
export class SqliteReader extends SqliteReads {
  protected readonly isWriting: () => boolean;
  private connection: Connection | undefined;

  constructor(path: string, limits: StoreLimits, isWriting: () => boolean) {
    super(path, limits);
    this.isWriting = isWriting;
    this.connection = connect(openReadOnly(path));
  }

  override async close(): Promise<void> {
    await super.close();
    disconnect(this.connection);
    this.connection = undefined;
  }

  protected connected(): Connection {
    if (this.connection === undefined) throw new Refusal("shutting_down");
    return this.connection;
  }

  protected connectedToPlants(): Connection {
    return this.connected();
  }
}

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
