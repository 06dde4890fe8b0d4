/** What both engines share about plants: the write queue, pages as text, and the trim of the journal. */

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
import { type Dialect, SqlRecords, type Statement } from "./records.ts";

const refuseWrite = ({ plant }: PlantWrite): Refusal | undefined => plant && refusePlant(plant);

const isChange = (outcome: unknown): boolean =>
  !(outcome instanceof Error || outcome instanceof Promise) &&
  outcome !== "replayed" &&
  (outcome as Verdict).done !== "replayed";

const TRIM_MORE_MS = 100;
const MINUTES_PER_DAY = 1_440;

const isSmallPage = (query: PlantQuery): boolean =>
  query.limit <= SMALL_PAGE_LENGTH && !needsScan(query);
/** A long read gets at least this long, even if it was queued almost until its deadline. */
export const READ_MS_MIN = 1_000;

/** `Task` is what the queue accepts besides writes of plants. */
export abstract class SqlStore<Task extends { readonly kind: "run" } = never> extends SqlRecords {
  protected abstract readonly writes: Queue<PlantWrite | AtomicWrite | Task, unknown>;
  readonly countPlants: ReturnType<typeof createCounter>;
  protected readonly limits: StoreLimits;
  private readonly changeBefore: string;
  private readonly journal: ReturnType<typeof trimStatements>;
  private readonly trimming: Timer;
  private isTrimming = false;
  /** The newest mark of the journal, and when this store first saw it. */
  private mark = { number: -1, sinceMs: 0 };

  constructor(dialect: Dialect, limits: StoreLimits) {
    super(dialect);
    const changes = `${dialect.prefix}changes`;
    this.changeBefore = `SELECT coalesce(
      (SELECT max(last) FROM ${changes} WHERE last < CAST($1 AS bigint)),
      (SELECT last FROM ${changes}
        WHERE last = (SELECT min(last) FROM ${changes}) AND ${dialect.isBeginning})) AS last`;
    this.journal = trimStatements(dialect.prefix);
    this.limits = limits;
    this.countPlants = createCounter(
      (query) => this.readLong({ kind: "count", query }),
      limits.countSecondsMax * 1000,
    );
    this.trimming = setInterval(() => void this.trimAll(), limits.trimSeconds * 1000).unref();
  }

  /** At once: a short read. On SQLite it runs on this thread, so its result is no promise. */
  protected abstract read<Request extends ReadRequest>(
    request: Request,
  ): ResultOf<Request> | Promise<ResultOf<Request>>;

  /** In a queue, where long reads take turns. */
  protected abstract readLong<Request extends ReadRequest>(
    request: Request,
  ): Promise<ResultOf<Request>>;

  readonly listPlants: Store["listPlants"] = async (query) =>
    (await this.readPage({ kind: "plants", query })) as PlantPage;

  readonly readPlants: Store["readPlants"] = (query, form, signal) =>
    this.readPage({ kind: "plants", query, form }, signal) as PageText | Promise<PageText>;

  readonly listTags: Store["listTags"] = (query) => this.readLong({ kind: "tags", query });

  private readPage(request: PageRequest, signal?: AbortSignal) {
    const { sort } = request.query;
    if (sort !== undefined) return this.readSorted(request, sort, signal);
    return isSmallPage(request.query) ? this.read(request) : this.readLong(request);
  }

  private async readSorted(request: PageRequest, sort: Sort, signal: AbortSignal | undefined) {
    const places = await this.findPlaces(request.query, sort, signal);
    return this.readLong({ ...request, places });
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
      const piece = await this.readLong(request);
      first.add(piece.places);
      if (piece.next === undefined) return first.take();
      after = piece.next;
    }
  }

  /** Resolves to the rows of the last statement. */
  protected abstract writeJournal(...statements: Statement[]): Promise<readonly unknown[]>;

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
    const stored = (await this.writes.submitAll(signed, lengths)).values();
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
    return (await this.writes.submit(write, length)) as readonly Done[];
  }

  private submit(write: PlantWrite): Promise<unknown> {
    const refusal = refuseWrite(write);
    if (refusal !== undefined) return Promise.reject(refusal);
    return this.writes.submit(write, lengthOf(write.plant));
  }

  async readChanges(query: ChangeQuery): Promise<ChangePage> {
    if (this.limits.changesDays > 0) return this.readLong({ kind: "changes", query });
    throw new Refusal(
      "changes_gone",
      "This service keeps no changes: PLANTSTORE_CHANGES_DAYS is 0, or the database cannot order them.",
    );
  }

  get writesWaiting(): number {
    return this.writes.waiting;
  }

  async findChangeBefore(seq: number): Promise<number | undefined> {
    const statement: Statement = [this.changeBefore, seq];
    const [row] = await this.readRecords<{ readonly last: bigint | null }>(statement);
    return typeof row?.last === "bigint" ? Number(row.last) : undefined;
  }

  async close(): Promise<void> {
    clearInterval(this.trimming);
  }

  /** Called after each commit. Commits without a plant do not count. */
  protected readonly countCommit = (
    durationMs: number,
    writes: readonly (PlantWrite | AtomicWrite | Task)[],
    outcomes: readonly unknown[],
  ): void => {
    // An atomic write has one outcome for each of its lines.
    const done = outcomes.flatMap((outcome, index) =>
      writes[index]?.kind === "run" ? [] : (outcome as Done | Done[]),
    );
    const changes = done.filter(isChange).length;
    if (done.length > 0) this.limits.onCommit?.(durationMs, done.length, changes);
  };

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
    const [marks] = await this.readRecords<Marks>([readMarks, kept]);
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
