/** A group of writes: one statement per kind, writes to one id in order. Each statement commits by itself. */

import type { Writer } from "../../domain/change.ts";
import { lengthOf, type Plant } from "../../domain/plant.ts";
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
  refuseTaken,
  STORED_CHARACTERS_MAX,
  type Update,
  type Verdict,
} from "../../domain/write.ts";
import { Refusal } from "../../domain/errors.ts";
import type { Store } from "../../domain/store.ts";
import { JournalBlock } from "../journal.ts";
import type { Value } from "../records.ts";
import { type SentRow, toPlant } from "../reads.ts";
import {
  asNotStored,
  classify,
  type Connection,
  IS_SYNCED,
  LostAnswerError,
  sqlStateOf,
  toArray,
  TransientError,
  translate,
} from "./connection.ts";
import type { ConnectionPool } from "./pool.ts";
import { FIND_MANY_LENGTH_MAX, findPlants, whereShort } from "./read.ts";

export type GroupWrite = PlantWrite | AtomicWrite;

/** A promise if the outcome is unknown: it rejects once the statement can no longer take effect. */
type Settled = Done | Verdict | readonly Done[] | Error | Promise<never>;

/** A change that a statement is to make, for a write. */
type Planned = NetChange & { readonly write: PlantWrite };

/**
 * A statement may reach the server, or get its lock there, long after we gave up on it. It changes nothing after the
 * time in its first parameter: otherwise a plant that was retried and then removed would come back.
 */
const IS_VALID = `clock_timestamp() < to_timestamp($1::float8) AND ${IS_SYNCED}`;

export const NOW_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
/** The WAL position: it grows with every record, whatever the clock does. */
export const LSN = "(pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";

/** The time of a statement's changes, in its plants and in its journal block. Volatile, so it is evaluated once. */
const MOMENT = `moment AS (SELECT ${NOW_US} AS at_us)`;
const AT_US = "(SELECT at_us FROM moment)";
const AT_MS = `${AT_US} / 1000`;

/** The journal block for the ids in `done`. The LSN is taken after the last plant was changed. */
const insertBlock = (length: string, text: string, kept: string): string =>
  `INSERT INTO plantstore_changes (length, lsn, at_us, entries, kept)
  SELECT ${length}, ${LSN}, ${AT_US}, ${text}::text, ${kept} FROM done`;

/** Without and with a journal. The text of the block is the last parameter. */
type ChangeStatement = Readonly<Record<"plain" | "journaled", string>>;

/** The changed ids as text; null if all ids in $2 were changed. */
const KEPT = "CASE WHEN count(*) < array_length($2::bigint[], 1) THEN array_agg(id)::text END";

const toStatement = (change: string, text: string): ChangeStatement => ({
  plain: `WITH ${MOMENT}, done AS (${change} RETURNING id)
  SELECT ${KEPT} AS kept FROM done HAVING count(*) > 0`,
  journaled: `WITH ${MOMENT}, done AS (${change} RETURNING id)
  ${insertBlock("count(*)", text, KEPT)} HAVING count(*) > 0 RETURNING kept`,
});

const insertFrom = (
  source: string,
  condition = "",
): string => `INSERT INTO plants (id, name, tag, changed_at_ms)
  SELECT ${source} WHERE ${IS_VALID} ${condition} ON CONFLICT (id) DO NOTHING`;

const INSERT = toStatement(
  insertFrom(`*, ${AT_MS} FROM unnest($2::bigint[], $3::text[], $4::text[])`),
  "$5",
);

/** A single plant is cheaper without arrays and aggregates. */
const ONE = `${insertFrom(`$2::bigint, $3::text, $4::text, ${AT_MS}`)} RETURNING NULL AS kept`;
const INSERT_ONE: ChangeStatement = {
  plain: `WITH ${MOMENT} ${ONE}`,
  journaled: `WITH ${MOMENT}, done AS (${ONE}) ${insertBlock("1", "$5", "NULL")} RETURNING kept`,
};

/**
 * For statements of writers with leases. The rows of the jobs are locked, so nobody ends or replaces a job between the
 * check and the commit. A token may be revoked meanwhile, because a statement is far shorter than that takes effect.
 */
const holdRuns = (at: number): string => `(SELECT count(*) FROM (
      SELECT FROM plantstore_jobs JOIN unnest($${at}::text[], $${at + 1}::text[]) AS l (job, run) ON name = job
      WHERE split_part(version, '/', 1) = run AND record::json ->> 'state' = 'running'
      FOR SHARE OF plantstore_jobs
    ) AS held) = cardinality($${at}::text[])`;
const areUsable = (at: number): string => `NOT EXISTS (
      SELECT FROM plantstore_tokens WHERE hash = ANY ($${at}::text[]) AND revoked_at_ms IS NOT NULL
    )`;

/** The parameters of both. */
function leaseColumns(writers: Iterable<Writer>): string[] {
  const runs = new Map<string, string>();
  const tokens = new Set<string>();
  for (const { batch = "", lease } of writers) {
    if (lease?.run !== undefined) runs.set(lease.run, batch);
    if (lease?.token !== undefined) tokens.add(lease.token);
  }
  return [[...runs.values()], [...runs.keys()], [...tokens]].map(toArray);
}

const checkLeases = (statement: string, at: number): string =>
  statement.replaceAll(IS_VALID, `${IS_VALID} AND ${holdRuns(at)} AND ${areUsable(at + 2)}`);

const FIND_LEASE = `SELECT ${holdRuns(1)} AS held, ${areUsable(3)} AS usable`;

/** The statement that creates one plant, with its parameters as literals. */
export const insertOne = (hasJournal: boolean, values: readonly (string | null)[]): string =>
  INSERT_ONE[hasJournal ? "journaled" : "plain"].replaceAll(/\$(\d)/g, (_, place) => {
    const value = values[Number(place) - 1] ?? null;
    return value === null ? "NULL" : `'${value}'`;
  });

/** Rows are locked in id order: two instances never deadlock. */
const LOCK = `wanted AS (
    SELECT * FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[])
      AS w (wanted_id, seen_name, seen_tag, new_name, new_tag)
  ), locked AS (
    SELECT p.id AS locked_id FROM plants p JOIN wanted ON p.id = wanted_id
    WHERE p.name = seen_name AND p.tag IS NOT DISTINCT FROM seen_tag
    ORDER BY p.id FOR UPDATE OF p
  )`;
/** Only plants that are still what was checked. */
const IS_SEEN = `id = wanted_id AND id = locked_id
    AND name = seen_name AND tag IS NOT DISTINCT FROM seen_tag AND ${IS_VALID}`;
const UPDATE = `UPDATE plants SET name = new_name, tag = new_tag, changed_at_ms = ${AT_MS}
  FROM wanted, locked WHERE ${IS_SEEN}`;
const DELETE = `DELETE FROM plants USING wanted, locked WHERE ${IS_SEEN}`;

const REPLACE = toStatement(`WITH ${LOCK} ${UPDATE}`, "$7");
const REMOVE = toStatement(`WITH ${LOCK} ${DELETE}`, "$7");

/**
 * Everything or nothing, in one statement: the division fails it if one plant is no longer what was checked, if an id
 * was taken since, or if the time is over. A removal has no new name. Rows are locked before the first insert.
 */
const atomically = (end: string): string => `WITH ${MOMENT}, ${LOCK}, replaced AS (
    ${UPDATE} AND new_name IS NOT NULL RETURNING id
  ), removed AS (
    ${DELETE} AND new_name IS NULL RETURNING id
  ), created AS (
    ${insertFrom(
      `*, ${AT_MS} FROM unnest($7::bigint[], $8::text[], $9::text[])`,
      "AND (SELECT count(*) FROM locked) = cardinality($2::bigint[])",
    )} RETURNING id
  ), done AS (
    SELECT count(*) AS count FROM (
      SELECT id FROM replaced UNION ALL SELECT id FROM removed UNION ALL SELECT id FROM created
    ) AS each HAVING 1 / (count(*) = cardinality($2::bigint[]) + cardinality($7::bigint[]))::int = 1
  )
  ${end}`;
const ATOMIC: ChangeStatement = {
  plain: atomically("SELECT NULL AS kept FROM done"),
  journaled: atomically(`${insertBlock("count", "$10", "NULL")} RETURNING kept`),
};
const DIVISION_BY_ZERO = "22012";

/** The lock makes this a write, so it waits for the synchronous standby, which may lack rows that can be read here. */
const COMPARE = `SELECT id, ${whereShort("name")}, ${whereShort("tag")},
    name = wanted_name AND tag IS NOT DISTINCT FROM wanted_tag AS same
  FROM plants JOIN unnest($1::bigint[], $2::text[], $3::text[]) AS w (wanted_id, wanted_name, wanted_tag)
    ON id = wanted_id
  WHERE ${IS_SYNCED} ORDER BY id FOR KEY SHARE OF plants`;

/** A write that changes nothing. A leader that was replaced without knowing it can still read, but not write. */
const CONFIRM = `SELECT id FROM plantstore_version WHERE id = 1 AND ${IS_SYNCED} FOR KEY SHARE`;

/** A stored row, and whether it is the same. Long plants come without their text. */
type Compared = SentRow & { readonly same: boolean };

const toColumns = (plants: readonly Plant[]): string[] => [
  toArray(plants.map(({ id }) => id)),
  toArray(plants.map(({ name }) => name)),
  toArray(plants.map(({ tag }) => tag)),
];

export async function commitWrites(
  pool: ConnectionPool,
  writes: readonly GroupWrite[],
  deadlineMs: number,
  accounts: Accounts,
): Promise<Settled[]> {
  const group = new Group(writes, accounts);
  const work = pool.run((connection) => group.proceed(connection), deadlineMs);
  const failure: unknown = await work.catch((error: unknown) => error);
  // Writes without an outcome were not executed.
  const rest = asNotStored(failure) as Error;
  return writes.map((write) => group.outcomes.get(write) ?? rest);
}

export interface Accounts {
  readonly hasJournal: boolean;
  /** Undefined for no limit. */
  readonly quota: ReturnType<typeof createQuota> | undefined;
}

/** Counting every plant is slow, so the count is repeated only this often. */
const QUOTA_CHECK_MS = 10_000;
const QUOTA_COUNT_MS_MAX = 30_000;

/**
 * How many plants may still be created: from a count that is about 10 s old, and this instance's writes since. Writes in
 * flight have reserved theirs, so an instance alone does not pass the limit.
 */
export function createQuota(plantsMax: number, countPlants: Store["countPlants"]) {
  let left: number | undefined;
  let inFlight = 0;
  let dueMs = 0;
  const count = async (): Promise<void> => {
    dueMs = performance.now() + QUOTA_CHECK_MS;
    left = plantsMax - (await countPlants({}, QUOTA_COUNT_MS_MAX)).count;
  };
  return {
    /** Resolves to how many of the plants may be created. Every reservation ends with `settle`. */
    async reserve(wanted: number): Promise<number> {
      if (wanted === 0) return 0;
      if (left === undefined) await count();
      // Later counts run in the background. If one fails, the old count stays.
      else if (performance.now() >= dueMs) void count().catch(() => undefined);
      const reserved = Math.min(wanted, Math.max(0, (left as number) - inFlight));
      inFlight += reserved;
      return reserved;
    },
    /** `created` is less than 0 if the write removed plants. */
    settle(reserved: number, created: number): void {
      inFlight -= reserved;
      if (left !== undefined) left -= created;
    },
  };
}

const unlimited: ReturnType<typeof createQuota> = {
  reserve: async (wanted) => wanted,
  settle: () => undefined,
};

class Group {
  /** Writes without an outcome are open. */
  readonly outcomes = new Map<GroupWrite, Settled>();
  private readonly writes: readonly GroupWrite[];
  private readonly hasJournal: boolean;
  private readonly quota: NonNullable<Accounts["quota"]>;
  /** Writes whose plants are no longer what their writers have seen. */
  private readonly doubted = new Set<PlantWrite>();
  /** Plants that this group has found or stored, for further creates of the same id. */
  private readonly stored = new Map<bigint, Plant>();
  private attempts = 0;

  constructor(writes: readonly GroupWrite[], { hasJournal, quota = unlimited }: Accounts) {
    this.writes = writes;
    this.hasJournal = hasJournal;
    this.quota = quota;
  }

  /** Continues with the writes that earlier attempts left open, maybe because a lease of theirs is lost. */
  async proceed(connection: Connection): Promise<void> {
    if (this.attempts++ > 0) await this.refuseLost(connection);
    while (this.outcomes.size < this.writes.length)
      await this.perform(connection, this.nextPiece());
  }

  private async refuseLost(connection: Connection): Promise<void> {
    const open = this.writes.filter((write) => !this.outcomes.has(write));
    for (const [writer, writes] of Map.groupBy(open, findWriter)) {
      if (writer?.lease === undefined) continue;
      const [found] = await connection.query<Record<"held" | "usable", boolean>>(
        FIND_LEASE,
        leaseColumns([writer]),
      );
      if (found?.held === true && found.usable) continue;
      const refusal = new Refusal(found?.usable === true ? "job_stopped" : "token_invalid");
      for (const write of writes) this.outcomes.set(write, refusal);
    }
  }

  /**
   * Writes that are done together: the first open one of each id, sorted by id, and either all creates or none. An
   * atomic write is alone.
   */
  private nextPiece(): GroupWrite[] {
    const piece: PlantWrite[] = [];
    const ids = new Set<bigint>();
    for (const write of this.writes) {
      if (this.outcomes.has(write)) continue;
      if (write.kind === "atomic") {
        const own = idsOf(write);
        if (piece.length === 0 && !own.some((id) => ids.has(id))) return [write];
        for (const id of own) ids.add(id);
        continue;
      }
      const { kind, id, plant } = write;
      if (ids.has(id)) continue;
      const stored = this.stored.get(id);
      if (kind === "create" && stored !== undefined) {
        const verdict = judgeCreate(plant, stored);
        this.outcomes.set(write, verdict instanceof Refusal ? verdict : verdict.done);
        continue;
      }
      ids.add(id);
      if ((kind === "create") === ((piece[0] ?? write).kind === "create")) piece.push(write);
    }
    return piece.toSorted((one, other) => (one.id < other.id ? -1 : 1));
  }

  private async perform(connection: Connection, piece: readonly GroupWrite[]): Promise<void> {
    const [first] = piece;
    if (first === undefined) return;
    try {
      if (first.kind === "atomic") await this.writeAtomic(connection, first);
      else if (first.kind === "create") await this.create(connection, piece as Create[]);
      else await this.change(connection, piece as Update[]);
    } catch (error) {
      if (error instanceof LostAnswerError) return this.giveUp(piece, error);
      const failure = classify(error);
      // Replays and conflicts use no quota.
      if (failure === "full" && first.kind === "create")
        return this.compare(connection, piece as Create[], translate(error) as Refusal);
      if (failure !== "bad row") throw error;
      if (piece.length === 1) return void this.outcomes.set(first, error as Error);
      // One bad row fails its whole statement, so each is tried alone.
      for (const write of piece)
        if (!this.outcomes.has(write)) await this.perform(connection, [write]);
    }
  }

  /** Gives up later writes to the same ids too: they must not overtake a statement in flight. */
  private giveUp(piece: readonly GroupWrite[], error: LostAnswerError): void {
    const unknown = Bun.sleep(Math.max(0, error.validUntilMs - performance.now()) + 1).then(() => {
      throw new Refusal("store_unavailable", undefined, error);
    });
    // It may reject before the caller handles it.
    unknown.catch(() => undefined);
    const open = piece.filter((write) => !this.outcomes.has(write));
    const ids = new Set(open.flatMap(idsOf));
    for (const write of this.writes)
      if (!this.outcomes.has(write) && idsOf(write).some((id) => ids.has(id)))
        this.outcomes.set(write, unknown);
  }

  private settle(write: PlantWrite, outcome: Settled, stored?: Plant): void {
    this.outcomes.set(write, outcome);
    if (stored === undefined) this.stored.delete(write.id);
    else this.stored.set(write.id, stored);
  }

  private async create(connection: Connection, creates: readonly Create[]): Promise<void> {
    let wanted = creates;
    let reserved = await this.quota.reserve(wanted.length);
    if (reserved < wanted.length) {
      this.quota.settle(reserved, 0);
      // Replays and conflicts use no quota.
      await this.compare(connection, wanted, "open");
      const open = new Set<GroupWrite>(wanted.filter((create) => !this.outcomes.has(create)));
      reserved = await this.quota.reserve(open.size);
      // The quota goes to the writes that came first.
      for (const write of this.writes.filter((one) => open.has(one)).slice(reserved))
        this.settle(write as Create, new Refusal("store_full"));
      wanted = wanted.filter((create) => !this.outcomes.has(create));
      if (wanted.length === 0) return;
    }
    await this.account(reserved, async () => {
      const planned = wanted.map((write) => planCreate(write, write.plant));
      const created = await this.insert(connection, planned);
      for (const { write, after } of created) this.settle(write, "created", after);
      return created.length;
    });
    const rest = wanted.filter((create) => !this.outcomes.has(create));
    if (rest.length > 0) await this.compare(connection, rest);
  }

  /** Resolves to those that were created. */
  private insert(connection: Connection, planned: readonly Planned[]) {
    const plants = planned.map(({ after }) => after as Plant);
    const [{ id, name, tag }] = plants as [Plant, ...Plant[]];
    return plants.length === 1
      ? this.write(connection, INSERT_ONE, planned, [id, name, tag ?? null])
      : this.write(connection, INSERT, planned, toColumns(plants));
  }

  /** Settles a reservation by how many plants `work` has created. If an answer was lost, all may be. */
  private async account(reserved: number, work: () => Promise<number>): Promise<void> {
    let created = 0;
    try {
      created = await work();
    } catch (error) {
      if (error instanceof LostAnswerError) created = reserved;
      throw error;
    } finally {
      this.quota.settle(reserved, created);
    }
  }

  /** Tells replays from conflicts. Missing plants settle as `absent`, stay open, or are retried. */
  private async compare(
    connection: Connection,
    creates: readonly Create[],
    absent?: Refusal | "open",
  ) {
    const plants = creates.map(({ plant }) => plant);
    // Locks the rows: a replay acknowledges what was found.
    const rows = await connection.query<Compared>(COMPARE, toColumns(plants));
    const kept = new Map(Array.from(rows, (row) => [row.id, row]));
    for (const create of creates) {
      const row = kept.get(create.id);
      if (row?.same === true) this.settle(create, "replayed", create.plant);
      else if (row !== undefined) {
        const stored = row.name === null ? undefined : toPlant(row);
        this.settle(create, refuseTaken(create.plant), stored);
      } else if (absent instanceof Refusal) this.settle(create, absent);
    }
    // The rest were removed since, or their INSERT came after its deadline.
    if (kept.size < creates.length && absent === undefined)
      throw new TransientError("neither created nor found");
  }

  private async change(connection: Connection, changes: readonly Update[]): Promise<void> {
    const planned = {
      created: [] as Planned[],
      replaced: [] as Planned[],
      removed: [] as Planned[],
    };
    const settled: Parameters<typeof this.settle>[] = [];
    for (const [write, before] of await this.findBefore(connection, changes)) {
      const verdict = judge(write, before);
      if (verdict instanceof Refusal) settled.push([write, verdict, before]);
      else if (verdict.done === "replayed")
        settled.push([write, outcomeOf(write, verdict), before]);
      else {
        const { id, writer } = write;
        planned[verdict.done].push({ write, id, writer, before, after: verdict.after });
      }
    }
    const { created, replaced, removed } = planned;
    const reserved = await this.quota.reserve(created.length);
    for (const { write } of created.splice(reserved))
      settled.push([write, new Refusal("store_full")]);
    let done = 0;
    const note = (changed: readonly Planned[], outcome: Done): void => {
      done += changed.length;
      for (const { write, after } of changed)
        this.settle(write, outcomeOf(write, { done: outcome, after }), after);
    };
    await this.account(reserved, async () => {
      if (settled.length > 0) await connection.query(CONFIRM);
      for (const one of settled) this.settle(...one);
      const inserted = created.length > 0 ? await this.insert(connection, created) : [];
      note(inserted, "created");
      return inserted.length;
    });
    for (const [name, statement, part] of [
      ["replaced", REPLACE, replaced],
      ["removed", REMOVE, removed],
    ] as const)
      if (part.length > 0)
        note(await this.write(connection, statement, part, toChangeColumns(part)), name);
    this.quota.settle(0, -removed.filter(({ write }) => this.outcomes.has(write)).length);
    if (done === created.length + replaced.length + removed.length) return;
    for (const { write } of [...replaced, ...removed]) this.doubted.add(write);
    throw new TransientError("changed by others meanwhile");
  }

  /**
   * The plants before these changes; the rest stay open, for the next piece. What a writer has seen needs no look-up:
   * the statement changes nothing if it is no longer so. Then it is looked up.
   */
  private async findBefore(connection: Connection, changes: readonly Update[]) {
    const before = new Map<Update, Plant | undefined>();
    const unknown: Update[] = [];
    for (const write of changes.slice(0, FIND_MANY_LENGTH_MAX)) {
      const { id, condition } = write;
      const seen = condition.seen && { tag: undefined, ...condition.seen, id };
      const verdict = seen && !this.doubted.has(write) ? judge(write, seen) : undefined;
      const changesIt = verdict !== undefined && "done" in verdict && verdict.done !== "replayed";
      if (changesIt) before.set(write, seen);
      else unknown.push(write);
    }
    if (unknown.length === 0) return before;
    const found = await findPlants(
      connection,
      unknown.map(({ id }) => id),
    );
    for (const [index, plant] of found.entries()) before.set(unknown[index] as Update, plant);
    return before;
  }

  private async writeAtomic(connection: Connection, write: AtomicWrite): Promise<void> {
    const reserved = await this.quota.reserve(write.writes.length);
    await this.account(reserved, () => this.changeAll(connection, write, reserved));
  }

  /** Resolves to how many more plants there are than before. */
  private async changeAll(
    connection: Connection,
    write: AtomicWrite,
    reserved: number,
  ): Promise<number> {
    const stored = await findAll(connection, write);
    const full = new Refusal("store_full");
    let judged: ReturnType<typeof judgeAtomic>;
    try {
      judged = judgeAtomic(
        write,
        (id) => stored.get(id),
        (done, created) => (done === "created" && created > reserved ? full : undefined),
      );
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      await connection.query(CONFIRM);
      this.outcomes.set(write, error);
      return 0;
    }
    const byId = judged.changes.toSorted((one, other) => (one.id < other.id ? -1 : 1));
    const changed = byId.filter(({ before }) => before !== undefined);
    const created = byId.filter(({ before }) => before === undefined);
    if (byId.length === 0) await connection.query(CONFIRM);
    else {
      const parameters = [
        ...toChangeColumns(changed),
        ...toColumns(created.map(({ after }) => after as Plant)),
      ];
      await this.write(connection, ATOMIC, judged.changes, parameters).catch((error: unknown) => {
        if (sqlStateOf(error) !== DIVISION_BY_ZERO) throw error;
        throw new TransientError("changed by others meanwhile");
      });
    }
    this.outcomes.set(write, judged.outcomes);
    for (const id of idsOf(write)) this.stored.delete(id);
    return judged.created;
  }

  /** Resolves to the changes that were made. */
  private async write<Kind extends NetChange>(
    connection: Connection,
    { plain, journaled }: ChangeStatement,
    changes: readonly Kind[],
    parameters: readonly Value[],
  ): Promise<readonly Kind[]> {
    const { hasJournal } = this;
    const values = [...parameters];
    if (hasJournal) {
      const entries = new JournalBlock();
      for (const { id, writer, after, before } of changes) entries.add(id, writer, after, before);
      values.push(entries.format());
    }
    let statement = hasJournal ? journaled : plain;
    const writers = new Set<Writer>();
    for (const { writer } of changes) if (writer?.lease !== undefined) writers.add(writer);
    if (writers.size > 0) {
      // The first parameter is added where it is sent.
      statement = checkLeases(statement, values.length + 2);
      values.push(...leaseColumns(writers));
    }
    const rows = await connection.write<{ readonly kept: string | null }>(statement, values);
    // Counts the rows returned, not the reported count, which some compatible engines get wrong.
    const kept = rows.length > 0 ? rows[0]?.kept : "";
    const ids = typeof kept === "string" ? new Set(kept.match(/-?\d+/g)) : undefined;
    return ids === undefined ? changes : changes.filter(({ id }) => ids.has(String(id)));
  }
}

/** The stored plants of an atomic write, in the order of its lines, as far as it may need them. */
async function findAll(connection: Connection, write: AtomicWrite): Promise<Map<bigint, Plant>> {
  const ids = [...new Set(idsOf(write))];
  const stored = new Map<bigint, Plant>();
  let characters = 0;
  for (let at = 0; at < ids.length && characters <= STORED_CHARACTERS_MAX;) {
    const piece = await findPlants(connection, ids.slice(at, at + FIND_MANY_LENGTH_MAX));
    for (const plant of piece) {
      if (plant !== undefined) stored.set(plant.id, plant);
      characters += lengthOf(plant);
    }
    at += piece.length;
  }
  return stored;
}

const planCreate = (write: PlantWrite, after: Plant): Planned => ({
  write,
  id: write.id,
  writer: write.writer,
  before: undefined,
  after,
});

/** Only a patch tells what it left. */
const outcomeOf = ({ kind }: PlantWrite, verdict: Verdict): Done | Verdict =>
  kind === "patch" ? verdict : verdict.done;

const toChangeColumns = (changes: readonly NetChange[]): string[] => [
  toArray(changes.map(({ id }) => id)),
  toArray(changes.map(({ before }) => before?.name)),
  toArray(changes.map(({ before }) => before?.tag)),
  toArray(changes.map(({ after }) => after?.name)),
  toArray(changes.map(({ after }) => after?.tag)),
];

export const idsOf = (write: GroupWrite): readonly bigint[] =>
  write.kind === "atomic" ? write.writes.map(({ id }) => id) : [write.id];
