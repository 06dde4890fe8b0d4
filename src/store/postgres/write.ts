/**
 * A batch of writes: creates, replacements and removals by one statement each, writes about one id in
 * their order. Every statement commits by itself. A statement whose answer was lost is never sent again.
 */

import { type Condition, holds, type Plant } from "../../domain/plant.ts";
import { Refusal } from "../../domain/errors.ts";
import { type PlantRow, toPlant } from "../rows.ts";
import {
  classify,
  type Connection,
  int64Array,
  LostAnswerError,
  textArray,
  TransientError,
} from "./connection.ts";
import type { ConnectionPool } from "./pool.ts";

interface Create {
  readonly kind: "create";
  readonly id: bigint;
  readonly plant: Plant;
}

interface Change {
  readonly kind: "replace" | "remove";
  readonly id: bigint;
  /** Undefined where the plant is to be removed. */
  readonly plant: Plant | undefined;
  readonly condition: Condition;
}

export type Write = Create | Change;
export type Outcome = "created" | "replayed" | "done";

/** A promise where the outcome is unknown: it rejects when the statement cannot be executed any more. */
type Settled = Outcome | Error | Promise<Outcome>;

/**
 * A statement may reach the server long after we have given it up, or wait there for a lock. It changes
 * nothing after the time in its last parameter: otherwise a create that was given up, sent again by the
 * client, acknowledged and removed would come back. The clock is read for each row.
 */
const isValidUntil = (parameter: string): string =>
  `clock_timestamp() < to_timestamp(${parameter}::float8)`;

const insertFrom = (source: string): string => `INSERT INTO plants (id, name, tag)
  SELECT ${source} WHERE ${isValidUntil("$4")}
  ON CONFLICT (id) DO NOTHING RETURNING id`;

const INSERT = insertFrom("* FROM unnest($1::bigint[], $2::text[], $3::text[])");
/** A single plant, without the arrays: a fifth faster. */
const INSERT_ONE = insertFrom("$1::bigint, $2::text, $3::text");

/**
 * The lock makes this a transaction that writes, so it waits for the synchronous standby: a plant that can
 * be read may not be there yet, and a replay would acknowledge it.
 */
const FIND_KEPT = `SELECT id, name, tag FROM plants WHERE id = ANY ($1::bigint[])
  ORDER BY id FOR KEY SHARE`;

const FIND = "SELECT id, name, tag FROM plants WHERE id = ANY ($1::bigint[])";

/**
 * Changes a plant only where it still is what its condition was judged by. Rows are locked in the order of
 * their ids, so two instances never wait for each other.
 */
const changeBy = (change: string): string => `WITH wanted AS (
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[])
      AS w (id, seen_name, seen_tag, name, tag)
  ), locked AS (
    SELECT p.id FROM plants p JOIN wanted w ON p.id = w.id
    WHERE p.name = w.seen_name AND p.tag IS NOT DISTINCT FROM w.seen_tag
    ORDER BY p.id FOR UPDATE OF p
  )
  ${change} wanted w, locked l
  WHERE p.id = w.id AND p.id = l.id
    AND p.name = w.seen_name AND p.tag IS NOT DISTINCT FROM w.seen_tag
    AND ${isValidUntil("$6")}
  RETURNING p.id`;

const REPLACE = changeBy("UPDATE plants p SET name = w.name, tag = w.tag FROM");
const REMOVE = changeBy("DELETE FROM plants p USING");

interface MadeRow {
  readonly id: bigint;
}

/** Settles every write by the deadline. */
export async function commitWrites(
  pool: ConnectionPool,
  writes: readonly Write[],
  deadlineMs: number,
): Promise<Settled[]> {
  const batch = new Batch(writes);
  try {
    await pool.run(deadlineMs, (connection) => batch.proceed(connection));
  } catch (error) {
    batch.fail(error as Error);
  }
  return batch.outcomes;
}

class Batch {
  readonly outcomes: Settled[];
  private readonly writes: readonly Write[];
  private openCount: number;
  /** Each piece is one statement: indexes of writes of one kind, about different ids, sorted by id. */
  private readonly pieces: (readonly number[])[] = [];
  private hasRepeats = false;
  /** What this batch has found or stored, for further creates of the same id. */
  private readonly stored = new Map<bigint, Plant>();

  constructor(writes: readonly Write[]) {
    this.writes = writes;
    this.outcomes = Array.from({ length: writes.length });
    this.openCount = writes.length;
  }

  /** Goes on with what earlier attempts have left open. */
  async proceed(connection: Connection): Promise<void> {
    while (this.openCount > 0) {
      const piece = this.pieces.pop() ?? this.nextPiece();
      const open = piece.filter((index) => this.outcomes[index] === undefined);
      if (open.length === 0) continue;
      try {
        await this.perform(connection, open);
      } catch (error) {
        if (classify(error) === "bad row") {
          this.divide(open, error as Error);
          continue;
        }
        if (error instanceof LostAnswerError) this.giveUp(open, error);
        else this.pieces.push(open);
        if (this.openCount > 0) throw error;
      }
    }
  }

  /** Nothing was done of the writes that are still open. */
  fail(error: Error): void {
    for (const [index, outcome] of this.outcomes.entries())
      if (outcome === undefined) this.outcomes[index] = error;
  }

  /** The first open write of each id, as far as they are of one kind. */
  private nextPiece(): readonly number[] {
    const piece: number[] = [];
    const seen = new Set<bigint>();
    let kind: Write["kind"] | undefined;
    for (const [index, write] of this.writes.entries()) {
      if (this.outcomes[index] !== undefined) continue;
      if (seen.has(write.id)) {
        this.hasRepeats = true;
        continue;
      }
      const stored = this.stored.get(write.id);
      if (write.kind === "create" && stored !== undefined) {
        this.settle(index, judgeCreate(write.plant, stored), stored);
        continue;
      }
      kind ??= write.kind;
      if (write.kind === kind) piece.push(index);
      seen.add(write.id);
    }
    const idOf = (index: number): bigint => (this.writes[index] as Write).id;
    return piece.toSorted((one, other) => (idOf(one) < idOf(other) ? -1 : 1));
  }

  private settle(index: number, outcome: Settled, stored?: Plant): void {
    this.outcomes[index] = outcome;
    this.openCount--;
    if (!this.hasRepeats) return;
    const { id } = this.writes[index] as Write;
    if (stored === undefined) this.stored.delete(id);
    else this.stored.set(id, stored);
  }

  /** One row that PostgreSQL refuses fails its whole statement: halved until it is alone. */
  private divide(open: readonly number[], error: Error): void {
    const [only] = open;
    if (open.length === 1 && only !== undefined) return this.settle(only, error);
    const middle = Math.floor(open.length / 2);
    this.pieces.push(open.slice(middle), open.slice(0, middle));
  }

  /** Later writes about the same ids are given up too: they must not overtake a statement that is still on its way. */
  private giveUp(open: readonly number[], error: LostAnswerError): void {
    const unknown = refuseAfter(error.validUntilMs, error);
    const isOpen = (index: number): boolean => this.outcomes[index] === undefined;
    const ids = new Set(open.filter(isOpen).map((index) => (this.writes[index] as Write).id));
    for (const [index, { id }] of this.writes.entries())
      if (ids.has(id) && isOpen(index)) this.settle(index, unknown);
  }

  private perform(connection: Connection, open: readonly number[]): Promise<void> {
    const isCreate = (this.writes[open[0] as number] as Write).kind === "create";
    return isCreate ? this.create(connection, open) : this.change(connection, open);
  }

  private async create(connection: Connection, open: readonly number[]): Promise<void> {
    const plants = open.map((index) => (this.writes[index] as Create).plant);
    const [first] = plants as [Plant, ...Plant[]];
    const made = await (plants.length === 1
      ? connection.write<MadeRow>(INSERT_ONE, [first.id, first.name, first.tag ?? null])
      : connection.write<MadeRow>(INSERT, [
          int64Array(plants.map(({ id }) => id)),
          textArray(plants.map(({ name }) => name)),
          textArray(plants.map(({ tag }) => tag)),
        ]));
    const madeIds = new Set(made.map(({ id }) => id));
    const others: number[] = [];
    for (const [at, plant] of plants.entries()) {
      const index = open[at] as number;
      if (madeIds.has(plant.id)) this.settle(index, "created", plant);
      else others.push(index);
    }
    if (others.length > 0) await this.compare(connection, others);
  }

  /** Tells a replay from a conflict. */
  private async compare(connection: Connection, open: readonly number[]): Promise<void> {
    const kept = await this.find(connection, FIND_KEPT, open);
    for (const index of open) {
      const { id, plant } = this.writes[index] as Create;
      const stored = kept.get(id);
      if (stored !== undefined) this.settle(index, judgeCreate(plant, stored), stored);
    }
    // The rest was removed since, or came too late to be created.
    if (kept.size < open.length) throw new TransientError("neither created nor found");
  }

  private async change(connection: Connection, open: readonly number[]): Promise<void> {
    const found = await this.find(connection, FIND, open);
    const planned: { readonly index: number; readonly write: Change; readonly seen: Plant }[] = [];
    for (const index of open) {
      const write = this.writes[index] as Change;
      const seen = found.get(write.id);
      if (seen === undefined) this.settle(index, new Refusal("plant_not_found"));
      else if (!holds(write.condition, seen))
        this.settle(index, new Refusal("precondition_failed"), seen);
      else planned.push({ index, write, seen });
    }
    const [first] = planned;
    if (first === undefined) return;
    const done = await connection.write<MadeRow>(
      first.write.kind === "replace" ? REPLACE : REMOVE,
      [
        int64Array(planned.map(({ write }) => write.id)),
        textArray(planned.map(({ seen }) => seen.name)),
        textArray(planned.map(({ seen }) => seen.tag)),
        textArray(planned.map(({ write }) => write.plant?.name)),
        textArray(planned.map(({ write }) => write.plant?.tag)),
      ],
    );
    const doneIds = new Set(done.map(({ id }) => id));
    for (const { index, write } of planned)
      if (doneIds.has(write.id)) this.settle(index, "done", write.plant);
    if (done.length < planned.length) throw new TransientError("changed by others meanwhile");
  }

  private async find(
    connection: Connection,
    statement: string,
    open: readonly number[],
  ): Promise<ReadonlyMap<bigint, Plant>> {
    const ids = int64Array(open.map((index) => (this.writes[index] as Write).id));
    const rows = await connection.query<PlantRow>(statement, [ids]);
    return new Map(rows.map((row) => [row.id, toPlant(row)]));
  }
}

/** What becomes of a create where the id has a plant already. */
function judgeCreate(plant: Plant, stored: Plant): "replayed" | Refusal {
  if (stored.name === plant.name && stored.tag === plant.tag) return "replayed";
  return new Refusal("id_taken", `A different plant has the id ${plant.id}; nothing was changed.`);
}

function refuseAfter(untilMs: number, cause: Error): Promise<never> {
  const refusal = Bun.sleep(Math.max(0, untilMs - performance.now()) + 1).then(() => {
    throw new Refusal("store_unavailable", undefined, cause);
  });
  // The caller may come for it later than it is due.
  refusal.catch(() => undefined);
  return refusal;
}
