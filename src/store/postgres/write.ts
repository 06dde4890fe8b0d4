/** A group of writes: one statement per kind, writes to one id in order. Each statement commits by itself. */

import { judgeChange, judgeCreate, type Plant, refuseTaken } from "../../domain/plant.ts";
import { Refusal } from "../../domain/errors.ts";
import type { Store } from "../../domain/store.ts";
import { JournalBlock } from "../journal.ts";
import type { Value } from "../records.ts";
import { type Update, type Create, type PlantWrite, toPlant } from "../sql-store.ts";
import {
  classify,
  type Connection,
  LostAnswerError,
  toArray,
  TransientError,
} from "./connection.ts";
import type { ConnectionPool } from "./pool.ts";
import { FIND_LENGTH_MAX, findPlants, type SentRow, whereShort } from "./read.ts";

/** A promise if the outcome is unknown: it rejects once the statement can no longer take effect. */
type Settled = "created" | "replayed" | "done" | Error | Promise<never>;

/**
 * A statement may reach the server, or get its lock there, long after we gave up on it. It changes nothing after the
 * time in its first parameter: otherwise a plant that was retried and then removed would come back.
 */
const IS_VALID = "clock_timestamp() < to_timestamp($1::float8)";

export const NOW_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
/** The WAL position: it grows with every record, whatever the clock does. */
export const LSN = "(pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";

/** The journal block for the ids in `done`. Time and LSN are taken after the last plant was changed. */
const insertBlock = (length: string, text: string, kept: string): string =>
  `INSERT INTO plantstore_changes (length, lsn, at_us, entries, kept)
  SELECT ${length}, ${LSN}, ${NOW_US}, ${text}::text, ${kept} FROM done`;

/** Without and with a journal. The text of the block is the last parameter. */
type ChangeStatement = Readonly<Record<"plain" | "journaled", string>>;

/** The changed ids as text; null if all ids in $2 were changed. */
const KEPT = "CASE WHEN count(*) < array_length($2::bigint[], 1) THEN array_agg(id)::text END";

const toStatement = (change: string, text: string): ChangeStatement => ({
  plain: `WITH done AS (${change} RETURNING id)
  SELECT ${KEPT} AS kept FROM done HAVING count(*) > 0`,
  journaled: `WITH done AS (${change} RETURNING id)
  ${insertBlock("count(*)", text, KEPT)} HAVING count(*) > 0 RETURNING kept`,
});

const insertFrom = (source: string): string => `INSERT INTO plants (id, name, tag)
  SELECT ${source} WHERE ${IS_VALID} ON CONFLICT (id) DO NOTHING`;

const INSERT = toStatement(insertFrom("* FROM unnest($2::bigint[], $3::text[], $4::text[])"), "$5");

/** A single plant is cheaper without arrays and aggregates. */
const ONE = `${insertFrom("$2::bigint, $3::text, $4::text")} RETURNING NULL AS kept`;
const INSERT_ONE: ChangeStatement = {
  plain: ONE,
  journaled: `WITH done AS (${ONE}) ${insertBlock("1", "$5", "NULL")} RETURNING kept`,
};

/** Changes a plant only if it is still what was checked. Rows are locked in id order: two instances never deadlock. */
const changeBy = (change: string): ChangeStatement =>
  toStatement(
    `WITH wanted AS (
    SELECT * FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[])
      AS w (wanted_id, seen_name, seen_tag, new_name, new_tag)
  ), locked AS (
    SELECT p.id AS locked_id FROM plants p JOIN wanted ON p.id = wanted_id
    WHERE p.name = seen_name AND p.tag IS NOT DISTINCT FROM seen_tag
    ORDER BY p.id FOR UPDATE OF p
  )
  ${change} wanted, locked
  WHERE id = wanted_id AND id = locked_id
    AND name = seen_name AND tag IS NOT DISTINCT FROM seen_tag AND ${IS_VALID}`,
    "$7",
  );

const REPLACE = changeBy("UPDATE plants SET name = new_name, tag = new_tag FROM");
const REMOVE = changeBy("DELETE FROM plants USING");

/** The lock makes this a write, so it waits for the synchronous standby, which may lack rows that can be read here. */
const COMPARE = `SELECT id, ${whereShort("name")}, ${whereShort("tag")},
    name = wanted_name AND tag IS NOT DISTINCT FROM wanted_tag AS same
  FROM plants JOIN unnest($1::bigint[], $2::text[], $3::text[]) AS w (wanted_id, wanted_name, wanted_tag)
    ON id = wanted_id
  ORDER BY id FOR KEY SHARE OF plants`;

/** A write that changes nothing. A leader that was replaced without knowing it can still read, but not write. */
const CONFIRM = "SELECT id FROM plantstore_version WHERE id = 1 FOR KEY SHARE";

/** A stored row, and whether it is the same. Long plants come without their text. */
type Compared = SentRow & { readonly same: boolean };

const toColumns = (plants: readonly Plant[]): string[] => [
  toArray(plants.map(({ id }) => id)),
  toArray(plants.map(({ name }) => name)),
  toArray(plants.map(({ tag }) => tag)),
];

export async function commitWrites(
  pool: ConnectionPool,
  writes: readonly PlantWrite[],
  deadlineMs: number,
  accounts: Accounts,
): Promise<Settled[]> {
  const group = new Group(writes, accounts);
  const work = pool.run((connection) => group.proceed(connection), deadlineMs);
  const failure: unknown = await work.catch((error: unknown) => error);
  // Writes without an outcome were not executed.
  return writes.map((write) => group.outcomes.get(write) ?? (failure as Error));
}

export interface Accounts {
  readonly hasJournal: boolean;
  readonly quota: ReturnType<typeof createQuota> | undefined;
}

/** Counting a million plants takes about 100 ms. */
const QUOTA_CHECK_MS = 10_000;
const QUOTA_COUNT_MS_MAX = 30_000;

/** How many plants may still be created: from a count that is about 10 s old, and this instance's writes since. */
export function createQuota(plantsMax: number, countPlants: Store["countPlants"]) {
  let left: number | undefined;
  let dueMs = 0;
  const count = async (): Promise<void> => {
    dueMs = performance.now() + QUOTA_CHECK_MS;
    left = plantsMax - (await countPlants({}, QUOTA_COUNT_MS_MAX)).count;
  };
  return {
    async isUsedUp(): Promise<boolean> {
      if (left === undefined) await count();
      // Later counts run in the background. If one fails, the old count stays.
      else if (performance.now() >= dueMs) void count().catch(() => undefined);
      return (left as number) <= 0;
    },
    take(plants: number): void {
      if (left !== undefined) left -= plants;
    },
  };
}

class Group {
  /** Writes without an outcome are open. */
  readonly outcomes = new Map<PlantWrite, Settled>();
  private readonly writes: readonly PlantWrite[];
  private readonly accounts: Accounts;
  /** Plants that this group has found or stored, for further creates of the same id. */
  private readonly stored = new Map<bigint, Plant>();

  constructor(writes: readonly PlantWrite[], accounts: Accounts) {
    this.writes = writes;
    this.accounts = accounts;
  }

  /** Continues with the writes that earlier attempts left open. */
  async proceed(connection: Connection): Promise<void> {
    while (this.outcomes.size < this.writes.length)
      await this.perform(connection, this.nextPiece());
  }

  /** Writes for one statement: the first open one of each id, all of one kind, sorted by id. */
  private nextPiece(): PlantWrite[] {
    const piece: PlantWrite[] = [];
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

  private async perform(connection: Connection, piece: readonly PlantWrite[]): Promise<void> {
    const [first] = piece;
    if (first === undefined) return;
    try {
      if (first.kind === "create") await this.create(connection, piece as Create[]);
      else await this.change(connection, piece as Update[]);
    } catch (error) {
      if (error instanceof LostAnswerError) return this.giveUp(piece, error);
      if (classify(error) !== "bad row") throw error;
      if (piece.length === 1) return void this.outcomes.set(first, error as Error);
      // One bad row fails its whole statement, so each is tried alone.
      for (const write of piece)
        if (!this.outcomes.has(write)) await this.perform(connection, [write]);
    }
  }

  /** Gives up later writes to the same ids too: they must not overtake a statement in flight. */
  private giveUp(piece: readonly PlantWrite[], error: LostAnswerError): void {
    const unknown = Bun.sleep(Math.max(0, error.validUntilMs - performance.now()) + 1).then(() => {
      throw new Refusal("store_unavailable", undefined, error);
    });
    // It may reject before the caller handles it.
    unknown.catch(() => undefined);
    const open = piece.filter((write) => !this.outcomes.has(write));
    const ids = new Set(open.map(({ id }) => id));
    for (const write of this.writes)
      if (ids.has(write.id) && !this.outcomes.has(write)) this.outcomes.set(write, unknown);
  }

  private settle(write: PlantWrite, outcome: Settled, stored?: Plant): void {
    this.outcomes.set(write, outcome);
    if (stored === undefined) this.stored.delete(write.id);
    else this.stored.set(write.id, stored);
  }

  private async create(connection: Connection, creates: readonly Create[]): Promise<void> {
    const { quota } = this.accounts;
    if (quota !== undefined && (await quota.isUsedUp()))
      return this.compare(connection, creates, new Refusal("store_full"));
    const [{ plant }] = creates as [Create, ...Create[]];
    const made = await (creates.length === 1
      ? this.write(connection, INSERT_ONE, creates, [plant.id, plant.name, plant.tag ?? null])
      : this.write(connection, INSERT, creates, toColumns(plantsOf(creates))));
    quota?.take(made.length);
    for (const create of made) this.settle(create, "created", create.plant);
    const open = creates.filter((create) => !this.outcomes.has(create));
    if (open.length > 0) await this.compare(connection, open);
  }

  /** Tells replays from conflicts. Missing plants settle as `absent`, or are retried. */
  private async compare(connection: Connection, creates: readonly Create[], absent?: Refusal) {
    // Locks the rows: a replay acknowledges what was found.
    const rows = await connection.query<Compared>(COMPARE, toColumns(plantsOf(creates)));
    const kept = new Map(Array.from(rows, (row) => [row.id, row]));
    for (const create of creates) {
      const row = kept.get(create.id);
      if (row?.same === true) this.settle(create, "replayed", create.plant);
      else if (row !== undefined) {
        const stored = row.name === null ? undefined : toPlant(row);
        this.settle(create, refuseTaken(create.plant), stored);
      } else if (absent !== undefined) this.settle(create, absent);
    }
    // The rest were removed since, or their INSERT came after its deadline.
    if (kept.size < creates.length && absent === undefined)
      throw new TransientError("neither created nor found");
  }

  private async change(connection: Connection, changes: readonly Update[]): Promise<void> {
    const before = new Map<bigint, Plant>();
    const refused: Parameters<typeof this.settle>[] = [];
    // The rest stay open, for the next piece.
    const ids = idsOf(changes.slice(0, FIND_LENGTH_MAX));
    for (const [index, seen] of (await findPlants(connection, ids)).entries()) {
      const change = changes[index] as Update;
      const judged = judgeChange(seen, change.condition);
      if (judged instanceof Refusal) refused.push([change, judged, seen]);
      else before.set(change.id, judged);
    }
    if (refused.length > 0) await connection.query(CONFIRM);
    for (const refusal of refused) this.settle(...refusal);
    const planned = changes.filter(({ id }) => before.has(id));
    const [first] = planned;
    if (first === undefined) return;
    const statement = first.kind === "replace" ? REPLACE : REMOVE;
    const parameters = [
      toArray(idsOf(planned)),
      toArray(planned.map(({ id }) => before.get(id)?.name)),
      toArray(planned.map(({ id }) => before.get(id)?.tag)),
      toArray(planned.map((change) => change.plant?.name)),
      toArray(planned.map((change) => change.plant?.tag)),
    ];
    const done = await this.write(connection, statement, planned, parameters, before);
    if (first.kind === "remove") this.accounts.quota?.take(-done.length);
    for (const change of done) this.settle(change, "done", change.plant);
    if (done.length < planned.length) throw new TransientError("changed by others meanwhile");
  }

  /** `before` has the plants that are to be changed. Resolves to the writes that were done. */
  private async write<Kind extends PlantWrite>(
    connection: Connection,
    { plain, journaled }: ChangeStatement,
    writes: readonly Kind[],
    parameters: readonly Value[],
    before?: ReadonlyMap<bigint, Plant>,
  ): Promise<readonly Kind[]> {
    const { hasJournal } = this.accounts;
    const values = [...parameters];
    if (hasJournal) {
      const entries = new JournalBlock();
      for (const { id, writer, plant } of writes) entries.add(id, writer, plant, before?.get(id));
      values.push(entries.format());
    }
    const statement = hasJournal ? journaled : plain;
    const rows = await connection.write<{ readonly kept: string | null }>(statement, values);
    // Counts the rows returned, not the reported count, which some compatible engines get wrong.
    const kept = rows.length > 0 ? rows[0]?.kept : "";
    const ids = typeof kept === "string" ? new Set(kept.match(/-?\d+/g)) : undefined;
    return ids === undefined ? writes : writes.filter(({ id }) => ids.has(String(id)));
  }
}

const plantsOf = (creates: readonly Create[]): Plant[] => creates.map(({ plant }) => plant);

const idsOf = (writes: readonly PlantWrite[]): bigint[] => writes.map(({ id }) => id);
