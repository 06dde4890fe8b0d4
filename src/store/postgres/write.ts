/** A batch of writes: one statement for each kind, writes about one id in their order. Each commits by itself. */

import { judgeChange, judgeCreate, type Plant, refuseTaken } from "../../domain/plant.ts";
import { Refusal } from "../../domain/errors.ts";
import type { Store } from "../../domain/store.ts";
import type { Value } from "../records.ts";
import { type Update, type Create, JournalBlock, type PlantWrite, toPlant } from "../sql-store.ts";
import {
  classify,
  type Connection,
  LostAnswerError,
  toArray,
  TransientError,
} from "./connection.ts";
import type { ConnectionPool } from "./pool.ts";
import { FIND_LENGTH_MAX, findPlants, type SentRow, whereShort } from "./read.ts";

/** A promise if the outcome is unknown: it rejects when the statement cannot be executed any more. */
type Settled = "created" | "replayed" | "done" | Error | Promise<never>;

/**
 * A statement may reach the server long after we have given it up, or wait there for a lock. It changes nothing after
 * the time in its first parameter: otherwise a create that was sent again and removed would come back.
 */
const IS_VALID = "clock_timestamp() < to_timestamp($1::float8)";

export const NOW_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
/** The place in the server's log: it grows with every record, whatever the clock does. */
export const LSN = "(pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";

/** The block of a change whose ids are in `done`. Time and place are taken when the last plant has been changed. */
const insertBlock = (length: string, text: string, kept: string): string =>
  `INSERT INTO plantstore_changes (length, lsn, at_us, entries, kept)
  SELECT ${length}, ${LSN}, ${NOW_US}, ${text}::text, ${kept} FROM done`;

/** Without and with a journal, whose text is the last parameter. */
type ChangeStatement = Readonly<Record<"plain" | "journaled", string>>;

/** The ids that were changed, as a text; null if all in $2 were. */
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

/** Without arrays and sums, a single plant takes the server less time. */
const ONE = `${insertFrom("$2::bigint, $3::text, $4::text")} RETURNING NULL AS kept`;
const INSERT_ONE: ChangeStatement = {
  plain: ONE,
  journaled: `WITH done AS (${ONE}) ${insertBlock("1", "$5", "NULL")} RETURNING kept`,
};

/** Only if the plant still is what its condition was judged by. Rows are locked by id: two instances never deadlock. */
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

/** The lock makes this a write, so it waits for the synchronous standby: what can be read may not be there yet. */
const COMPARE = `SELECT id, ${whereShort("name")}, ${whereShort("tag")},
    name = wanted_name AND tag IS NOT DISTINCT FROM wanted_tag AS same
  FROM plants JOIN unnest($1::bigint[], $2::text[], $3::text[]) AS w (wanted_id, wanted_name, wanted_tag)
    ON id = wanted_id
  ORDER BY id FOR KEY SHARE OF plants`;

/** What is stored under their ids, and whether it is the same. Of long plants the server does not send the texts. */
async function comparePlants(connection: Connection, plants: readonly Plant[]) {
  type Compared = SentRow & { readonly same: boolean };
  const rows = await connection.query<Compared>(COMPARE, toColumns(plants));
  return new Map(Array.from(rows, (row) => [row.id, row]));
}

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
  const batch = new Batch(writes, accounts);
  const work = pool.run((connection) => batch.proceed(connection), deadlineMs);
  const failure: unknown = await work.catch((error: unknown) => error);
  // Nothing was done of the writes that are still open.
  return writes.map((write) => batch.outcomes.get(write) ?? (failure as Error));
}

export interface Accounts {
  readonly hasJournal: boolean;
  readonly quota: ReturnType<typeof createQuota> | undefined;
}

/** A count of a million plants takes about a tenth of a second. */
const QUOTA_CHECK_MS = 10_000;
const QUOTA_COUNT_MS_MAX = 30_000;

/** How many plants may still be created, by a count that is some seconds old and what this instance did since. */
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
      // Later counts are made beside the writes. A failed one leaves what was known.
      else if (performance.now() >= dueMs) void count().catch(() => undefined);
      return (left as number) <= 0;
    },
    take(plants: number): void {
      if (left !== undefined) left -= plants;
    },
  };
}

class Batch {
  /** Writes that are missing here are open. */
  readonly outcomes = new Map<PlantWrite, Settled>();
  private readonly writes: readonly PlantWrite[];
  private readonly accounts: Accounts;
  /** What this batch has found or stored, for further creates of the same id. */
  private readonly stored = new Map<bigint, Plant>();

  constructor(writes: readonly PlantWrite[], accounts: Accounts) {
    this.writes = writes;
    this.accounts = accounts;
  }

  /** Goes on with what earlier attempts have left open. */
  async proceed(connection: Connection): Promise<void> {
    while (this.outcomes.size < this.writes.length)
      await this.perform(connection, this.nextPiece());
  }

  /** Writes for one statement: the first open one of each id, as far as they are of one kind, sorted by id. */
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
      // One row that PostgreSQL refuses fails its whole statement.
      for (const write of piece)
        if (!this.outcomes.has(write)) await this.perform(connection, [write]);
    }
  }

  /** Later writes about the same ids are given up too: they must not overtake a statement that is still on its way. */
  private giveUp(piece: readonly PlantWrite[], error: LostAnswerError): void {
    const unknown = Bun.sleep(Math.max(0, error.validUntilMs - performance.now()) + 1).then(() => {
      throw new Refusal("store_unavailable", undefined, error);
    });
    // The caller may come for it later than it is due.
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

  /** Tells a replay from a conflict. What is not there is `absent`, or tried again. */
  private async compare(connection: Connection, creates: readonly Create[], absent?: Refusal) {
    // Locked, because a replay acknowledges what was found.
    const kept = await comparePlants(connection, plantsOf(creates));
    for (const create of creates) {
      const row = kept.get(create.id);
      if (row?.same === true) this.settle(create, "replayed", create.plant);
      else if (row !== undefined) {
        const stored = row.name === null ? undefined : toPlant(row);
        this.settle(create, refuseTaken(create.plant), stored);
      } else if (absent !== undefined) this.settle(create, absent);
    }
    // The rest was removed since, or came too late to be created.
    if (kept.size < creates.length && absent === undefined)
      throw new TransientError("neither created nor found");
  }

  private async change(connection: Connection, changes: readonly Update[]): Promise<void> {
    const before = new Map<bigint, Plant>();
    // What is not looked up now stays open, for the next piece.
    const ids = idsOf(changes.slice(0, FIND_LENGTH_MAX));
    for (const [index, seen] of (await findPlants(connection, ids)).entries()) {
      const change = changes[index] as Update;
      const judged = judgeChange(seen, change.condition);
      if (judged instanceof Refusal) this.settle(change, judged, seen);
      else before.set(change.id, judged);
    }
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
      for (const { id, by, plant } of writes) entries.add(id, by, plant, before?.get(id));
      values.push(entries.format());
    }
    const statement = hasJournal ? journaled : plain;
    const rows = await connection.write<{ readonly kept: string | null }>(statement, values);
    // Rows are trusted, and not their count, which some engines that speak the protocol get wrong.
    const kept = rows.length > 0 ? rows[0]?.kept : "";
    const ids = typeof kept === "string" ? new Set(kept.match(/-?\d+/g)) : undefined;
    return ids === undefined ? writes : writes.filter(({ id }) => ids.has(String(id)));
  }
}

const plantsOf = (creates: readonly Create[]): Plant[] => creates.map(({ plant }) => plant);

const idsOf = (writes: readonly PlantWrite[]): bigint[] => writes.map(({ id }) => id);
