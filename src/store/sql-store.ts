/** The store, over an engine: rules about writes, lists, counts and the trim of the journal. */

import type { ChangePage, ChangeQuery, Writer } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import { needsScan } from "../domain/filter.ts";
import {
  type PageText,
  type Place,
  type PlantPage,
  type PlantQuery,
  SMALL_PAGE_LENGTH,
  type Sort,
} from "../domain/page.ts";
import type { Condition } from "../domain/entity-tag.ts";
import { lengthOf, type Plant, refusePlant } from "../domain/plant.ts";
import { FirstPlaces } from "../domain/sort.ts";
import type { Created, Store, StoreLimits } from "../domain/store.ts";
import {
  type AtomicWrite,
  type Done,
  type Patch,
  type PlantWrite,
  refuseLine,
  type Verdict,
} from "../domain/write.ts";
import { pause } from "../tick.ts";
import { createCounter } from "./counter.ts";
import { trimStatements } from "./journal.ts";
import type { Queue } from "./queue.ts";
import type { PageRequest, ReadRequest, ResultOf } from "./reads.ts";
import { type RecordEngine, RecordStore, type Statement } from "./records.ts";

const refuseWrite = ({ plant }: PlantWrite): Refusal | undefined => plant && refusePlant(plant);

const TRIM_MORE_MS = 100;
const MINUTES_PER_DAY = 1_440;

const isSmallPage = (query: PlantQuery): boolean =>
  query.limit <= SMALL_PAGE_LENGTH && !needsScan(query);

type Passed = "description" | "findPlant" | "probe" | "measureBytes" | "readFigures" | "backUps";

/** What differs between engines: statements, and where they run. */
export interface Engine extends RecordEngine, Pick<Store, Passed | "close"> {
  readonly writes: Pick<Queue<PlantWrite | AtomicWrite, unknown>, "submit" | "submitAll">;
  readonly countWaiting: () => number;
  /** At once: a short read. On SQLite it runs on this thread, so its result is no promise. */
  read<Request extends ReadRequest>(
    request: Request,
  ): ResultOf<Request> | Promise<ResultOf<Request>>;
  /** In a lane, where long reads take turns. */
  readLong<Request extends ReadRequest>(request: Request): Promise<ResultOf<Request>>;
  /** Numbers the changes, if that is left to readers: there may be none. */
  readonly numberChanges?: () => Promise<unknown>;
}

export class SqlStore extends RecordStore<Engine> implements Store {
  readonly description: Store["description"];
  readonly findPlant: Store["findPlant"];
  readonly probe: Store["probe"];
  readonly measureBytes: Store["measureBytes"];
  readonly readFigures: Store["readFigures"];
  readonly backUps: Store["backUps"];
  readonly countPlants: Store["countPlants"];
  private readonly limits: StoreLimits;
  private readonly changeBefore: string;
  private readonly journal: ReturnType<typeof trimStatements>;
  private readonly trimming: Timer;
  private isTrimming = false;
  /** The newest mark of the journal, and when this store first saw it. */
  private mark = { number: -1, sinceMs: 0 };

  constructor(engine: Engine, limits: StoreLimits) {
    super(engine, limits);
    this.description = engine.description;
    this.findPlant = engine.findPlant;
    this.probe = engine.probe;
    this.measureBytes = engine.measureBytes;
    this.readFigures = engine.readFigures;
    this.backUps = engine.backUps;
    const { prefix, isBeginning } = engine.dialect;
    const changes = `${prefix}changes`;
    this.changeBefore = `SELECT coalesce(
      (SELECT max(last) FROM ${changes} WHERE last < CAST($1 AS bigint)),
      (SELECT last FROM ${changes}
        WHERE last = (SELECT min(last) FROM ${changes}) AND ${isBeginning})) AS last`;
    this.journal = trimStatements(prefix);
    this.limits = limits;
    this.countPlants = createCounter(
      (query) => this.engine.readLong({ kind: "count", query }),
      limits.countSecondsMax * 1000,
    );
    this.trimming = setInterval(() => void this.trimAll(), limits.trimSeconds * 1000).unref();
  }

  readonly listPlants: Store["listPlants"] = async (query) =>
    (await this.readPage({ kind: "plants", query })) as PlantPage;

  readonly readPlants: Store["readPlants"] = (query, form, signal) =>
    this.readPage({ kind: "plants", query, form }, signal) as PageText | Promise<PageText>;

  readonly listTags: Store["listTags"] = (query) => this.engine.readLong({ kind: "tags", query });

  private readPage(request: PageRequest, signal?: AbortSignal) {
    const { sort } = request.query;
    if (sort !== undefined) return this.readSorted(request, sort, signal);
    return isSmallPage(request.query) ? this.engine.read(request) : this.engine.readLong(request);
  }

  private async readSorted(request: PageRequest, sort: Sort, signal: AbortSignal | undefined) {
    const places = await this.findPlaces(request.query, sort, signal);
    return this.engine.readLong({ ...request, places });
  }

  /**
   * The places of a page of a sorted list, one more than its limit if there is a next page. Names have no index, so the
   * whole store is scanned, in bounded pieces: other reads take turns.
   */
  private async findPlaces(
    query: PlantQuery,
    sort: Sort,
    signal?: AbortSignal,
  ): Promise<readonly Place[]> {
    const first = new FirstPlaces(sort, query.limit + 1);
    for (let after: bigint | undefined; ;) {
      if (signal?.aborted)
        // The reason is not a Refusal if the client has left.
        throw signal.reason instanceof Refusal ? signal.reason : new Refusal("body_incomplete");
      const scanned: PlantQuery = { ...query, order: "asc", after };
      const request = { kind: "sort", query: scanned, sort, bound: first.bound } as const;
      const piece = await this.engine.readLong(request);
      first.add(piece.places);
      if (piece.next === undefined) return first.take();
      after = piece.next;
    }
  }

  createPlant(plant: Plant, writer?: Writer): Promise<Created> {
    return this.submit({ kind: "create", id: plant.id, plant, writer }) as Promise<Created>;
  }

  createPlants(plants: readonly Plant[], writer?: Writer): Promise<(Created | Refusal)[]> {
    const creates = plants.map((plant): PlantWrite => ({ kind: "create", id: plant.id, plant }));
    return this.writePlants(creates, writer) as Promise<(Created | Refusal)[]>;
  }

  async replacePlant(plant: Plant, condition: Condition, writer?: Writer): Promise<void> {
    await this.submit({ kind: "replace", id: plant.id, plant, condition, writer });
  }

  async removePlant(id: bigint, condition: Condition, writer?: Writer): Promise<void> {
    await this.submit({ kind: "remove", id, condition, writer });
  }

  async patchPlant(id: bigint, patch: Patch, condition: Condition, writer?: Writer) {
    const patched = await this.submit({ kind: "patch", id, patch, condition, writer });
    return (patched as Verdict).after as Plant;
  }

  async writePlants(writes: readonly PlantWrite[], writer?: Writer): Promise<(Done | Refusal)[]> {
    const outcomes: (Done | Refusal | undefined)[] = writes.map(refuseWrite);
    const sound = writes.filter((_, index) => outcomes[index] === undefined);
    const signed = sound.map((write) => ({ ...write, writer }));
    const lengths = sound.map(({ plant }) => lengthOf(plant));
    const stored = (await this.engine.writes.submitAll(signed, lengths)).values();
    return outcomes.map((outcome) => outcome ?? (stored.next().value as Done | Refusal));
  }

  async writeAtomic(
    writes: readonly PlantWrite[],
    writer?: Writer,
    refusal?: Refusal,
  ): Promise<readonly Done[]> {
    const at = writes.findIndex((write) => refuseWrite(write) !== undefined);
    const refused = at === -1 ? undefined : (writes[at] as PlantWrite);
    const sound = at === -1 ? writes : writes.slice(0, at);
    const { reason, message } =
      (refused && refuseLine(refused.line, refuseWrite(refused) as Refusal)) ?? refusal ?? {};
    const write: AtomicWrite = {
      kind: "atomic",
      writes: sound.map((one) => ({ ...one, writer })),
      refusal: reason && { reason, message: message as string },
    };
    const length = sound.reduce((sum, { plant }) => sum + lengthOf(plant), 0);
    return (await this.engine.writes.submit(write, length)) as readonly Done[];
  }

  private submit(write: PlantWrite): Promise<unknown> {
    const refusal = refuseWrite(write);
    if (refusal !== undefined) return Promise.reject(refusal);
    return this.engine.writes.submit(write, lengthOf(write.plant));
  }

  async readChanges(query: ChangeQuery): Promise<ChangePage> {
    if (this.limits.changesDays > 0) return this.engine.readLong({ kind: "changes", query });
    throw new Refusal(
      "changes_gone",
      "This service keeps no changes: PLANTSTORE_CHANGES_DAYS is 0, or the database cannot order them.",
    );
  }

  async findChangeBefore(seq: number): Promise<number | undefined> {
    const statement: Statement = [this.changeBefore, seq];
    const [row] = await this.engine.query<{ readonly last: bigint | null }>(statement);
    return typeof row?.last === "bigint" ? Number(row.last) : undefined;
  }

  private async writeJournal(...statements: Statement[]): Promise<readonly unknown[]> {
    await this.engine.numberChanges?.();
    return this.engine.run(...statements);
  }

  get writesWaiting(): number {
    return this.engine.countWaiting();
  }

  override async close(): Promise<void> {
    clearInterval(this.trimming);
    await super.close();
    await this.engine.close();
  }

  private async trimAll(): Promise<void> {
    if (this.isTrimming) return;
    this.isTrimming = true;
    // If the store cannot write now, the next round trims it.
    await this.trim().catch(() => undefined);
    this.isTrimming = false;
  }

  /** Trims in pieces. The end is fixed at the start, so every round ends. */
  private async trim(): Promise<void> {
    const { readMarks, trimBlocks } = this.journal;
    const kept = Math.ceil(this.limits.changesDays * MINUTES_PER_DAY);
    type Marks = Record<"number" | "change", bigint | null>;
    const [marks] = await this.engine.query<Marks>([readMarks, kept]);
    await this.countTime(Number(marks?.number ?? 0), kept);
    if (typeof marks?.change !== "bigint") return;
    const end = Number(marks.change);
    while ((await this.writeJournal([trimBlocks, end])).length > 0) await pause(TRIM_MORE_MS);
  }

  /** Adds a mark if the newest one has been the same for an interval. */
  private async countTime(number: number, kept: number): Promise<void> {
    const nowMs = performance.now();
    const intervalMs = this.limits.markSeconds * 1000;
    if (number !== this.mark.number) this.mark = { number, sinceMs: nowMs };
    const passedMs = nowMs - this.mark.sinceMs;
    if (passedMs < intervalMs) return;
    const { addMark, dropMarks } = this.journal;
    await this.writeJournal([addMark, number + 1], [dropMarks, number + 1, kept]);
    // The rest counts towards the next one: the timer may be a little late each time.
    this.mark = { number: number + 1, sinceMs: nowMs - (passedMs % intervalMs) };
  }
}
