/**
 * A batch of writes: creates, replacements and removals by one statement each, writes about one id in
 * their order. Every statement commits by itself. A statement whose answer was lost is never sent again.
 */

import { judgeChange, judgeCreate, type Plant, refuseTaken } from "../../domain/plant.ts";
import { Refusal } from "../../domain/errors.ts";
import type { Store } from "../../domain/store.ts";
import { Entries } from "../journal.ts";
import {
  type Change,
  type Create,
  type PlantWrite as Write,
  toPlant,
  type Value,
} from "../sql-store.ts";
import { withChanges } from "./changes.ts";
import {
  classify,
  type Connection,
  LostAnswerError,
  toArray,
  TransientError,
} from "./connection.ts";
import type { ConnectionPool } from "./pool.ts";
import { comparePlants, findSome, toColumns } from "./read.ts";

type Outcome = "created" | "replayed" | "done";

/** A promise if the outcome is unknown: it rejects when the statement cannot be executed any more. */
type Settled = Outcome | Error | Promise<Outcome>;

/**
 * A statement may reach the server long after we have given it up, or wait there for a lock. It changes
 * nothing after the time in its last parameter: otherwise a create that was given up, sent again by the
 * client, acknowledged and removed would come back. The clock is read for each row.
 */
const isValidUntil = (parameter: string): string =>
  `clock_timestamp() < to_timestamp(${parameter}::float8)`;

/** A statement that returns the ids that it changed, without and with a journal. */
interface ChangeStatement {
  readonly plain: string;
  readonly journaled: string;
}

/** `parameters` come first, then those of the journal, then the time. */
const toStatement = (
  parameters: number,
  change: (validUntil: string) => string,
): ChangeStatement => ({
  plain: change(`$${parameters + 1}`),
  journaled: withChanges(change(`$${parameters + 3}`), parameters + 1),
});

const insertFrom = (source: string): ChangeStatement =>
  toStatement(
    3,
    (validUntil) => `INSERT INTO plants (id, name, tag)
  SELECT ${source} WHERE ${isValidUntil(validUntil)}
  ON CONFLICT (id) DO NOTHING RETURNING id`,
  );

const INSERT = insertFrom("* FROM unnest($1::bigint[], $2::text[], $3::text[])");
/** A single plant, without the arrays: a fifth faster. */
const INSERT_ONE = insertFrom("$1::bigint, $2::text, $3::text");

/**
 * Changes a plant only if it still is what its condition was judged by. Rows are locked in the order of
 * their ids, so two instances never wait for each other.
 */
const changeBy = (change: string): ChangeStatement =>
  toStatement(
    5,
    (validUntil) => `WITH wanted AS (
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
    AND ${isValidUntil(validUntil)}
  RETURNING p.id`,
  );

const REPLACE = changeBy("UPDATE plants p SET name = w.name, tag = w.tag FROM");
const REMOVE = changeBy("DELETE FROM plants p USING");

interface IdRow {
  readonly id: bigint;
}

/** Settles every write by the deadline. */
export async function commitWrites(
  pool: ConnectionPool,
  writes: readonly Write[],
  deadlineMs: number,
  journal: Journal,
  quota?: Quota,
): Promise<Settled[]> {
  const batch = new Batch(writes, journal, quota);
  let failure: unknown;
  try {
    await pool.run(deadlineMs, (connection) => batch.proceed(connection));
  } catch (error) {
    failure = error;
  }
  // Nothing was done of the writes that are still open.
  return writes.map((write) => batch.outcomes.get(write) ?? (failure as Error));
}

/** Whether changes are written down, and how many were. */
export interface Journal {
  readonly isOn: boolean;
  written: number;
}

/** A count of a million plants takes about a tenth of a second. */
const QUOTA_CHECK_MS = 10_000;
const QUOTA_COUNT_MS_MAX = 30_000;

/** How many plants may still be created, by a count that is some seconds old and what this instance did since. */
export function createQuota(plantsMax: number, countPlants: Store["countPlants"]) {
  let left: number | undefined;
  let counting: Promise<void> | undefined;
  let dueMs = Number.NEGATIVE_INFINITY;
  const count = async (): Promise<void> => {
    try {
      left = plantsMax - (await countPlants({}, QUOTA_COUNT_MS_MAX)).count;
      dueMs = performance.now() + QUOTA_CHECK_MS;
    } finally {
      counting = undefined;
    }
  };
  return {
    async isUsedUp(): Promise<boolean> {
      if (counting === undefined && performance.now() >= dueMs) {
        counting = count();
        // Later counts are made beside the writes. A failed one leaves what was known.
        counting.catch(() => undefined);
      }
      if (left === undefined) await counting;
      return (left as number) <= 0;
    },
    take(plants: number): void {
      if (left !== undefined) left -= plants;
    },
  };
}

export type Quota = ReturnType<typeof createQuota>;

class Batch {
  /** Writes that are missing here are open. */
  readonly outcomes = new Map<Write, Settled>();
  private readonly writes: readonly Write[];
  private readonly journal: Journal;
  private readonly quota: Quota | undefined;
  /** What this batch has found or stored, for further creates of the same id. */
  private readonly stored = new Map<bigint, Plant>();

  constructor(writes: readonly Write[], journal: Journal, quota: Quota | undefined) {
    this.writes = writes;
    this.journal = journal;
    this.quota = quota;
  }

  /** Goes on with what earlier attempts have left open. */
  async proceed(connection: Connection): Promise<void> {
    while (this.outcomes.size < this.writes.length)
      await this.perform(connection, this.nextPiece());
  }

  /** Writes for one statement: the first open one of each id, as far as they are of one kind, sorted by id. */
  private nextPiece(): Write[] {
    const piece: Write[] = [];
    const ids = new Set<bigint>();
    for (const write of this.writes) {
      const { kind, id, plant } = write;
      if (this.outcomes.has(write) || ids.has(id)) continue;
      const stored = this.stored.get(id);
      if (kind === "create" && stored !== undefined) {
        this.outcomes.set(write, judgeCreate(plant, stored));
        continue;
      }
      ids.add(id);
      if (kind === (piece[0] ?? write).kind) piece.push(write);
    }
    return piece.toSorted((one, other) => (one.id < other.id ? -1 : 1));
  }

  private async perform(connection: Connection, piece: readonly Write[]): Promise<void> {
    const [first] = piece;
    if (first === undefined) return;
    try {
      if (first.kind === "create") await this.create(connection, piece as Create[]);
      else await this.change(connection, piece as Change[]);
    } catch (error) {
      if (error instanceof LostAnswerError) return this.giveUp(piece, error);
      if (classify(error) !== "bad row") throw error;
      if (piece.length === 1) return void this.outcomes.set(first, error as Error);
      // One row that PostgreSQL refuses fails its whole statement.
      for (const write of piece)
        if (!this.outcomes.has(write)) await this.perform(connection, [write]);
    }
  }

  /** Later writes about the same ids are given up too: they must not overtake a statement that is still on its way. */
  private giveUp(piece: readonly Write[], error: LostAnswerError): void {
    const unknown = refuseAfter(error.validUntilMs, error);
    const open = piece.filter((write) => !this.outcomes.has(write));
    const ids = new Set(open.map(({ id }) => id));
    for (const write of this.writes)
      if (ids.has(write.id) && !this.outcomes.has(write)) this.outcomes.set(write, unknown);
  }

  private settle(write: Write, outcome: Settled, stored: Plant | undefined): void {
    this.outcomes.set(write, outcome);
    if (stored === undefined) this.stored.delete(write.id);
    else this.stored.set(write.id, stored);
  }

  private async create(connection: Connection, creates: readonly Create[]): Promise<void> {
    if (this.quota !== undefined && (await this.quota.isUsedUp()))
      return this.compare(connection, creates, new Refusal("store_full"));
    const [{ plant }] = creates as [Create, ...Create[]];
    const made = await (creates.length === 1
      ? this.write(connection, INSERT_ONE, creates, [plant.id, plant.name, plant.tag ?? null])
      : this.write(connection, INSERT, creates, toColumns(plantsOf(creates))));
    this.quota?.take(made.length);
    const isMade = isOneOf(made);
    for (const create of creates) if (isMade(create)) this.settle(create, "created", create.plant);
    if (made.length < creates.length)
      await this.compare(
        connection,
        creates.filter((create) => !isMade(create)),
      );
  }

  /** Tells a replay from a conflict. What is not there is `absent`, or tried again. */
  private async compare(
    connection: Connection,
    creates: readonly Create[],
    absent?: Refusal,
  ): Promise<void> {
    // Locked, because a replay acknowledges what was found.
    const kept = await comparePlants(connection, plantsOf(creates));
    for (const create of creates) {
      const row = kept.get(create.id);
      if (row?.same === true) this.settle(create, "replayed", create.plant);
      else if (row !== undefined) {
        const stored = row.name === null ? undefined : toPlant(row);
        this.settle(create, refuseTaken(create.plant), stored);
      } else if (absent !== undefined) this.settle(create, absent, undefined);
    }
    // The rest was removed since, or came too late to be created.
    if (kept.size < creates.length && absent === undefined)
      throw new TransientError("neither created nor found");
  }

  private async change(connection: Connection, changes: readonly Change[]): Promise<void> {
    // Those behind the last one stay open. The next piece has them.
    const { found, last } = await findSome(connection, idsOf(changes));
    const seenBy = ({ id }: Change): Plant | undefined => found.get(id);
    const planned = changes.filter((change) => {
      if (last !== undefined && change.id > last) return false;
      const seen = seenBy(change);
      const judged = judgeChange(seen, change.condition);
      if (judged instanceof Refusal) this.settle(change, judged, seen);
      return judged === seen;
    });
    const [first] = planned;
    if (first === undefined) return;
    const statement = first.kind === "replace" ? REPLACE : REMOVE;
    const parameters = [
      toArray(idsOf(planned)),
      toArray(planned.map((change) => seenBy(change)?.name)),
      toArray(planned.map((change) => seenBy(change)?.tag)),
      toArray(planned.map((change) => change.plant?.name)),
      toArray(planned.map((change) => change.plant?.tag)),
    ];
    const done = await this.write(connection, statement, planned, parameters, found);
    if (first.kind === "remove") this.quota?.take(-done.length);
    const isDone = isOneOf(done);
    for (const change of planned) if (isDone(change)) this.settle(change, "done", change.plant);
    if (done.length < planned.length) throw new TransientError("changed by others meanwhile");
  }

  /** `before` has the plants that are to be changed. Resolves to those that were. */
  private async write(
    connection: Connection,
    { plain, journaled }: ChangeStatement,
    writes: readonly Write[],
    parameters: readonly Value[],
    before?: ReadonlyMap<bigint, Plant>,
  ): Promise<readonly IdRow[]> {
    const { journal } = this;
    if (!journal.isOn) return connection.write<IdRow>(plain, parameters);
    const entries = new Entries();
    for (const { id, by, plant } of writes) entries.add(id, by, plant, before?.get(id));
    const values = [...parameters, entries.take(), writes.length];
    const rows = await connection.write<IdRow>(journaled, values);
    journal.written += rows.length;
    return rows;
  }
}

const plantsOf = (creates: readonly Create[]): Plant[] => creates.map(({ plant }) => plant);

const idsOf = (writes: readonly Write[]): bigint[] => writes.map(({ id }) => id);

function isOneOf(rows: readonly IdRow[]): (write: Write) => boolean {
  const ids = new Set(Array.from(rows, ({ id }) => id));
  return ({ id }) => ids.has(id);
}

function refuseAfter(untilMs: number, cause: Error): Promise<never> {
  const refusal = Bun.sleep(Math.max(0, untilMs - performance.now()) + 1).then(() => {
    throw new Refusal("store_unavailable", undefined, cause);
  });
  // The caller may come for it later than it is due.
  refusal.catch(() => undefined);
  return refusal;
}
