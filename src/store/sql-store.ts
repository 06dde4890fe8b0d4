/** What both engines share about plants: the write queue, and the trim of the journal. */

import type { ChangePage, ChangeQuery, Writer } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import type { CountPage, PlantQuery } from "../domain/page.ts";
import { type Condition, lengthOf, type Plant, refusePlant } from "../domain/plant.ts";
import { DAY_MS } from "../domain/rate.ts";
import type { Created, StoreLimits } from "../domain/store.ts";
import { pause } from "../tick.ts";
import { createCounter } from "./counter.ts";
import type { Queue } from "./queue.ts";
import { type Dialect, SqlRecords, type Statement } from "./records.ts";

interface About {
  readonly id: bigint;
  readonly writer: Writer | undefined;
}

export interface Create extends About {
  readonly kind: "create";
  readonly plant: Plant;
}

export interface Update extends About {
  readonly kind: "replace" | "remove";
  readonly plant: Plant | undefined;
  readonly condition: Condition;
}

export type PlantWrite = Create | Update;

export interface PlantRow<Id = bigint> {
  readonly id: Id;
  readonly name: string;
  readonly tag: string | null;
}

/** Rows are selected by column, so one with a tag is a plant. Copying it takes a tenth of the time of a page. */
export const toPlant = <Id>(row: PlantRow<Id>): Plant<Id> =>
  row.tag === null ? { ...row, tag: undefined } : (row as Plant<Id>);

const toCreate = (plant: Plant, writer: Writer | undefined): Create => ({
  kind: "create",
  id: plant.id,
  writer,
  plant,
});

const TRIM_MORE_MS = 100;

/** Larger pages are queued with the long reads. */
export const SMALL_PAGE_LENGTH = 100;
/** A long read gets at least this long, even if it was queued almost until its deadline. */
export const READ_MS_MIN = 1_000;

/** `Task` is what the queue takes besides writes of plants. */
export abstract class SqlStore<Task extends { readonly kind: "run" } = never> extends SqlRecords {
  protected abstract readonly writes: Queue<PlantWrite | Task, unknown>;
  readonly countPlants: ReturnType<typeof createCounter>;
  protected readonly limits: StoreLimits;
  private readonly changeBefore: string;
  private readonly trimming: Timer;
  private isTrimming = false;

  constructor(dialect: Dialect, limits: StoreLimits) {
    super(dialect);
    this.changeBefore = `SELECT max(last) AS last FROM ${dialect.prefix}changes WHERE last < CAST($1 AS bigint)`;
    this.limits = limits;
    const countPiece = (query: PlantQuery): Promise<CountPage> => this.countPiece(query);
    this.countPlants = createCounter(countPiece, limits.countSecondsMax * 1000);
    this.trimming = setInterval(() => void this.trimAll(), limits.trimSeconds * 1000).unref();
  }

  protected abstract countPiece(query: PlantQuery): Promise<CountPage>;

  protected abstract readJournal(query: ChangeQuery): Promise<ChangePage>;

  /** Removes a batch of older blocks. Resolves to whether there may be more. */
  protected abstract trim(beforeMs: number): Promise<boolean>;

  createPlant(plant: Plant, writer?: Writer): Promise<Created> {
    return this.submit(toCreate(plant, writer)) as Promise<Created>;
  }

  async createPlants(plants: readonly Plant[], writer?: Writer): Promise<(Created | Refusal)[]> {
    const outcomes: (Created | Refusal | undefined)[] = plants.map(refusePlant);
    const sound = plants.filter((_, index) => outcomes[index] === undefined);
    const writes = sound.map((plant) => toCreate(plant, writer));
    const stored = (await this.writes.submitAll(writes, sound.map(lengthOf))).values();
    return outcomes.map((outcome) => outcome ?? (stored.next().value as Created | Refusal));
  }

  async replacePlant(plant: Plant, condition: Condition, writer?: Writer): Promise<void> {
    await this.submit({ kind: "replace", id: plant.id, writer, plant, condition });
  }

  async removePlant(id: bigint, condition: Condition, writer?: Writer): Promise<void> {
    await this.submit({ kind: "remove", id, writer, plant: undefined, condition });
  }

  private submit(write: PlantWrite): Promise<unknown> {
    const refusal = write.plant && refusePlant(write.plant);
    if (refusal !== undefined) return Promise.reject(refusal);
    return this.writes.submit(write, lengthOf(write.plant));
  }

  async readChanges(query: ChangeQuery): Promise<ChangePage> {
    if (this.limits.changesDays > 0) return this.readJournal(query);
    throw new Refusal(
      "changes_gone",
      "This service keeps no changes: its PLANTSTORE_CHANGES_DAYS is 0, or its database cannot tell their order.",
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
    writes: readonly (PlantWrite | Task)[],
    outcomes: readonly unknown[],
  ): void => {
    const done = outcomes.filter((_, index) => writes[index]?.kind !== "run");
    const changes = done.filter(
      (outcome) =>
        !(outcome instanceof Error || outcome instanceof Promise) && outcome !== "replayed",
    ).length;
    if (done.length > 0) this.limits.onCommit?.(durationMs, done.length, changes);
  };

  /** Trims in batches. The cutoff is fixed at the start, so every round ends. */
  private async trimAll(): Promise<void> {
    if (this.isTrimming) return;
    this.isTrimming = true;
    const beforeMs = Math.floor(Date.now() - this.limits.changesDays * DAY_MS);
    // If the store cannot write now, the next round trims it.
    while (await this.trim(beforeMs).catch(() => false)) await pause(TRIM_MORE_MS);
    this.isTrimming = false;
  }
}
