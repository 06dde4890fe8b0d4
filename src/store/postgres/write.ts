/**
 * A group of writes. Creates are inserted first; those whose id exists are looked up. Everything else is looked up,
 * decided, and applied by one statement, which changes only what is still as it was. Each statement commits by itself.
 */

import type { Writer } from "../../domain/change.ts";
import { lengthOf, type Plant } from "../../domain/plant.ts";
import {
  decide,
  type Decision,
  type NetChange,
  see,
  STORED_CHARACTERS_MAX,
} from "../../domain/decide.ts";
import { type AtomicWrite, type Create, findWriter, type PlantWrite } from "../../domain/write.ts";
import { Refusal } from "../../domain/errors.ts";
import type { Store } from "../../domain/store.ts";
import { JournalBlock } from "../journal.ts";
import type { Value } from "../engine.ts";
import { type SentRow, toPlant } from "../reads.ts";
import {
  asNotStored,
  classify,
  type Connection,
  IS_SYNCED,
  LostAnswerError,
  LSN,
  NOW_US,
  sqlStateOf,
  toArray,
  TransientError,
  translate,
} from "./connection.ts";
import type { ConnectionPool } from "./pool.ts";
import { FIND_MANY_LENGTH_MAX, findPlants, whereShort } from "./read.ts";

export type GroupWrite = PlantWrite | AtomicWrite;

/** A promise if the outcome is unknown: it rejects once the statement can no longer take effect. */
type Settled = Decision["outcome"] | Error | Promise<never>;

/** `before` is the plant of a single write. */
type Decided = Readonly<{
  write: GroupWrite;
  before: Plant | undefined;
  decision: Decision;
}>;

/**
 * A statement may reach the server, or get its lock there, long after we gave up on it. It changes nothing after the
 * time in its first parameter: otherwise a plant that was retried and then removed would come back.
 */
const IS_VALID = `clock_timestamp() < to_timestamp($1::float8) AND ${IS_SYNCED}`;

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

/** `done` has the ids that were changed. The answer has them as text, or null if they are as many as `wanted`. */
function toStatement(done: string, text: string, wanted: string): ChangeStatement {
  const kept = `CASE WHEN count(*) < ${wanted} THEN array_agg(id)::text END`;
  return {
    plain: `WITH ${MOMENT}, ${done} SELECT ${kept} AS kept FROM done HAVING count(*) > 0`,
    journaled: `WITH ${MOMENT}, ${done} ${insertBlock("count(*)", text, kept)} HAVING count(*) > 0 RETURNING kept`,
  };
}

const insertFrom = (
  source: string,
  condition = "",
): string => `INSERT INTO plants (id, name, tag, changed_at_ms)
  SELECT ${source} WHERE ${IS_VALID} ${condition} ON CONFLICT (id) DO NOTHING`;

const INSERT = toStatement(
  `done AS (${insertFrom(`*, ${AT_MS} FROM unnest($2::bigint[], $3::text[], $4::text[])`)} RETURNING id)`,
  "$5",
  "cardinality($2::bigint[])",
);

/** A single plant is cheaper without arrays and aggregates. */
const ONE = `${insertFrom(`$2::bigint, $3::text, $4::text, ${AT_MS}`)} RETURNING NULL AS kept`;
const INSERT_ONE: ChangeStatement = {
  plain: `WITH ${MOMENT} ${ONE}`,
  journaled: `WITH ${MOMENT}, done AS (${ONE}) ${insertBlock("1", "$5", "NULL")} RETURNING kept`,
};

/**
 * For statements of writers with leases. The rows of the jobs are locked, so nobody ends or replaces a job between the
 * check and the commit. A token may be revoked meanwhile: a revocation may take seconds, and a
 * statement is far shorter.
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

/** Rows are locked in id order: two instances never deadlock. Only plants that are still what was looked up. */
const LOCK = `locked AS (
    SELECT w.* FROM plants p JOIN unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[])
      AS w (locked_id, seen_name, seen_tag, new_name, new_tag) ON p.id = locked_id
    WHERE p.name = seen_name AND p.tag IS NOT DISTINCT FROM seen_tag
    ORDER BY p.id FOR UPDATE OF p
  )`;
const IS_SEEN = `id = locked_id AND name = seen_name AND tag IS NOT DISTINCT FROM seen_tag AND ${IS_VALID}`;
const UPDATE = `UPDATE plants SET name = new_name, tag = new_tag, changed_at_ms = ${AT_MS}
  FROM locked WHERE ${IS_SEEN}`;
const DELETE = `DELETE FROM plants USING locked WHERE ${IS_SEEN}`;

const CHANGES_WANTED = "cardinality($2::bigint[]) + cardinality($7::bigint[])";

/** A removal has no new name. Rows are locked before the first insert, so no two statements wait for each other. */
const applyAll = (condition: string, having: string): ChangeStatement =>
  toStatement(
    `${LOCK}, replaced AS (
    ${UPDATE} AND new_name IS NOT NULL RETURNING id
  ), removed AS (
    ${DELETE} AND new_name IS NULL RETURNING id
  ), created AS (
    ${insertFrom(
      `*, ${AT_MS} FROM unnest($7::bigint[], $8::text[], $9::text[])`,
      `AND (SELECT count(*) FROM locked) ${condition}`,
    )} RETURNING id
  ), changed AS (
    SELECT id FROM replaced UNION ALL SELECT id FROM removed UNION ALL SELECT id FROM created
  ), done AS (
    SELECT id FROM changed ${having}
  )`,
    "$10",
    CHANGES_WANTED,
  );

/** Those that are still what was looked up. */
const APPLY = applyAll(">= 0", "");
/**
 * Everything or nothing: the division fails the statement if one plant is no longer what was looked up, if an id was taken
 * since, or if the time is over.
 */
const APPLY_ATOMIC = applyAll(
  "= cardinality($2::bigint[])",
  `WHERE 1 / ((SELECT count(*) FROM changed) = ${CHANGES_WANTED})::int = 1`,
);
const DIVISION_BY_ZERO = "22012";

/** The lock makes this a write, so it waits for the synchronous standby, which may lack rows that can be read here. */
const COMPARE = `SELECT id, ${whereShort("name")}, ${whereShort("tag")},
    name = wanted_name AND tag IS NOT DISTINCT FROM wanted_tag AS same
  FROM plants JOIN unnest($1::bigint[], $2::text[], $3::text[]) AS w (wanted_id, wanted_name, wanted_tag)
    ON id = wanted_id
  WHERE ${IS_SYNCED} ORDER BY id FOR KEY SHARE OF plants`;

/** A stored row, and whether it is the same. Long plants come without their text. */
type Compared = SentRow & { readonly same: boolean };

/** A write that changes nothing. A leader that was replaced without knowing it can still read, but not write. */
const CONFIRM = `SELECT id FROM plantstore_version WHERE id = 1 AND ${IS_SYNCED} FOR KEY SHARE`;

const planCreate = ({ id, writer, plant }: Create): NetChange => ({
  id,
  writer,
  before: undefined,
  after: plant,
});

const toColumns = (changes: readonly NetChange[]): string[] => [
  toArray(changes.map(({ id }) => id)),
  toArray(changes.map(({ after }) => after?.name)),
  toArray(changes.map(({ after }) => after?.tag)),
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
  /** Plants that this instance has ever created and removed. */
  const done = { created: 0, removed: 0 };
  const count = async (): Promise<void> => {
    dueMs = performance.now() + QUOTA_CHECK_MS;
    const { created, removed } = done;
    const counted = plantsMax - (await countPlants({}, QUOTA_COUNT_MS_MAX)).count;
    // The count takes a while, and may have missed any of this instance's writes since it began.
    const least = counted - (done.created - created);
    const most = counted + (done.removed - removed) + inFlight;
    left = Math.min(Math.max(left ?? counted, least), most);
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
      done.created += Math.max(0, created);
      done.removed += Math.max(0, -created);
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
  private readonly doubted = new Set<GroupWrite>();
  /** Plants that this group has found or stored, for further creates of the same id. */
  private readonly stored = new Map<bigint, Plant>();
  /** They stand for plants that were found without their text. */
  private readonly standIns = new Set<Plant>();
  private attempts = 0;
  /** How many more plants there are, by what this group has settled. */
  private created = 0;

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
   * Writes that are done together: the first open one of each id, and either all creates or none. An atomic write is
   * alone.
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
      const { kind, id } = write;
      if (ids.has(id)) continue;
      if (kind === "create" && this.stored.has(id)) {
        this.outcomes.set(write, decide(write, (known) => this.stored.get(known)).outcome);
        continue;
      }
      ids.add(id);
      if ((kind === "create") === ((piece[0] ?? write).kind === "create")) piece.push(write);
    }
    return piece;
  }

  private async perform(connection: Connection, piece: readonly GroupWrite[]): Promise<void> {
    const [first] = piece;
    if (first === undefined) return;
    const isCreate = first.kind === "create";
    try {
      if (isCreate) await this.create(connection, piece as Create[]);
      else await this.change(connection, piece);
    } catch (error) {
      if (error instanceof LostAnswerError) return;
      const failure = classify(error);
      // Replays and conflicts need no room.
      if (failure === "full" && isCreate)
        return this.change(connection, piece, translate(error) as Refusal);
      if (failure !== "bad row") throw error;
      if (piece.length === 1) return void this.outcomes.set(first, error as Error);
      // One bad row fails its whole statement, so each is tried alone.
      for (const write of piece)
        if (!this.outcomes.has(write)) await this.perform(connection, [write]);
    }
  }

  /** Gives up later writes to the same ids too: they must not overtake a statement in flight. */
  private giveUp(writes: readonly GroupWrite[], error: LostAnswerError): void {
    const unknown = Bun.sleep(Math.max(0, error.validUntilMs - performance.now()) + 1).then(() => {
      throw new Refusal("store_unavailable", undefined, error);
    });
    // It may reject before the caller handles it.
    unknown.catch(() => undefined);
    const ids = new Set(writes.flatMap(idsOf));
    for (const write of this.writes)
      if (!this.outcomes.has(write) && idsOf(write).some((id) => ids.has(id)))
        this.outcomes.set(write, unknown);
  }

  /** Most creates are new, so they are inserted without a look. The others are looked up then. */
  private async create(connection: Connection, creates: readonly Create[]): Promise<void> {
    const reserved = await this.quota.reserve(creates.length);
    if (reserved < creates.length) this.quota.settle(reserved, 0);
    else
      await this.account(reserved, creates, async () => {
        const planned = creates.map(planCreate);
        const [{ plant: only }] = creates as readonly [Create];
        const created =
          creates.length === 1
            ? await this.write(connection, INSERT_ONE, planned, [
                only.id,
                only.name,
                only.tag ?? null,
              ])
            : await this.write(connection, INSERT, planned, toColumns(sortById(planned)));
        const ids = new Set(created.map(({ id }) => id));
        for (const write of creates)
          if (ids.has(write.id)) this.settle(write, "created", write.plant, 1);
      });
    const rest = creates.filter((create) => !this.outcomes.has(create));
    if (rest.length > 0) await this.change(connection, rest);
  }

  /** `refuseText` is why no text may be added. */
  private async change(
    connection: Connection,
    piece: readonly GroupWrite[],
    refuseText?: Refusal,
  ): Promise<void> {
    const [first] = piece;
    const isAtomic = first?.kind === "atomic";
    const isCreate = first?.kind === "create";
    const found = isAtomic
      ? await findAll(connection, first)
      : isCreate
        ? await this.compare(connection, piece as Create[])
        : await this.findBefore(connection, piece as PlantWrite[]);
    const isConfirmed = isCreate && found.values().some((plant) => plant !== undefined);
    const known = isAtomic ? piece : piece.filter((write) => found.has((write as PlantWrite).id));
    const decideAll = (plantsLeft: number): Decided[] => {
      let left = plantsLeft;
      return known.map((write) => {
        const decision = decide(write, (id) => found.get(id), { plantsLeft: left, refuseText });
        left -= createdBy(decision);
        const before = write.kind === "atomic" ? undefined : found.get(write.id);
        return { write, before, decision };
      });
    };
    const free = decideAll(Number.POSITIVE_INFINITY);
    const wanted = free.reduce((sum, { decision }) => sum + createdBy(decision), 0);
    const reserved = await this.quota.reserve(wanted);
    const decided = reserved < wanted ? decideAll(reserved) : free;
    const changing = decided.filter(({ decision }) => decision.changes.length > 0);
    await this.account(
      reserved,
      changing.map(({ write }) => write),
      () => this.apply(connection, decided, isAtomic, isConfirmed),
    );
  }

  private async apply(
    connection: Connection,
    decided: readonly Decided[],
    isAtomic: boolean,
    isConfirmed: boolean,
  ): Promise<void> {
    const changes = decided.flatMap(({ decision }) => decision.changes);
    const done = new Set<NetChange>();
    if (changes.length > 0) {
      const sorted = sortById(changes);
      const changed = sorted.filter(({ before }) => before !== undefined);
      const created = sorted.filter(({ before }) => before === undefined);
      const parameters = [...toChangeColumns(changed), ...toColumns(created)];
      const statement = isAtomic ? APPLY_ATOMIC : APPLY;
      const made = await this.write(connection, statement, changes, parameters).catch(
        (error: unknown) => {
          if (!isAtomic || sqlStateOf(error) !== DIVISION_BY_ZERO) throw error;
          throw new TransientError("changed by others meanwhile");
        },
      );
      for (const each of made) done.add(each);
    }
    // What changes nothing is true only if this server is still the leader, as a write shows.
    const isIdle = decided.some(({ decision }) => decision.changes.length === 0);
    if (isIdle && done.size === 0 && !isConfirmed) await connection.query(CONFIRM);
    let isDone = true;
    for (const { write, before, decision } of decided) {
      const { outcome, changes: own, created } = decision;
      if (own.some((each) => !done.has(each))) {
        this.doubted.add(write);
        isDone = false;
        continue;
      }
      const stored = own.length === 0 ? before : own.at(-1)?.after;
      this.settle(write, outcome, stored, created);
    }
    // What was done stays so: the next attempt continues with the rest.
    if (!isDone) throw new TransientError("changed by others meanwhile");
  }

  private settle(write: GroupWrite, outcome: Settled, stored?: Plant, created = 0): void {
    this.outcomes.set(write, outcome);
    this.created += created;
    for (const id of idsOf(write)) this.stored.delete(id);
    if (stored !== undefined && write.kind !== "atomic" && !this.standIns.has(stored))
      this.stored.set(write.id, stored);
  }

  /** Settles a reservation by what `work` has settled. If its answer was lost, all of the writes may be done. */
  private async account(
    reserved: number,
    writes: readonly GroupWrite[],
    work: () => Promise<void>,
  ): Promise<void> {
    const before = this.created;
    try {
      await work();
    } catch (error) {
      if (error instanceof LostAnswerError) {
        this.created += reserved;
        this.giveUp(writes, error);
      }
      throw error;
    } finally {
      this.quota.settle(reserved, this.created - before);
    }
  }

  /**
   * The plants before these writes; writes without one stay open, for the next piece. What a writer has seen needs no
   * look-up: the statement changes nothing if it is no longer so. Then it is looked up.
   */
  private async findBefore(connection: Connection, writes: readonly PlantWrite[]) {
    const found = new Map<bigint, Plant | undefined>();
    const unknown: bigint[] = [];
    for (const write of writes.slice(0, FIND_MANY_LENGTH_MAX)) {
      const { id } = write;
      const seen =
        write.kind === "create" || this.doubted.has(write) ? undefined : write.condition.seen;
      const plant = seen && { tag: undefined, ...seen, id };
      const isChanging = plant && decide(write, () => plant).changes.length > 0;
      if (isChanging) found.set(id, plant);
      else unknown.push(id);
    }
    const plants = unknown.length === 0 ? [] : await findPlants(connection, unknown);
    for (const [index, plant] of plants.entries()) found.set(unknown[index] as bigint, plant);
    return found;
  }

  /** The plants that have the ids of these creates: most are the same. The locks confirm what was found. */
  private async compare(connection: Connection, creates: readonly Create[]) {
    const wanted = toColumns(creates.map(planCreate));
    const rows = await connection.query<Compared>(COMPARE, wanted);
    const kept = new Map(Array.from(rows, (row) => [row.id, row]));
    return new Map(
      creates.map(({ plant }): [bigint, Plant | undefined] => {
        const row = kept.get(plant.id);
        if (row?.same === true) return [plant.id, plant];
        if (row?.name !== null) return [plant.id, row && toPlant(row)];
        const other = { ...plant, name: `${plant.name}…` };
        this.standIns.add(other);
        return [plant.id, other];
      }),
    );
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
      values.push(entries.text);
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
  const writer = findWriter(write);
  const stored = new Map<bigint, Plant>();
  let characters = 0;
  for (let at = 0; at < ids.length && characters <= STORED_CHARACTERS_MAX;) {
    const piece = await findPlants(connection, ids.slice(at, at + FIND_MANY_LENGTH_MAX));
    for (const plant of piece) {
      if (plant === undefined) continue;
      const { isHidden } = see(plant, writer);
      // No tags have a plant without one, so it stays hidden. Its text counts for nothing.
      stored.set(plant.id, isHidden ? { id: plant.id, name: "" } : plant);
      characters += isHidden ? 0 : lengthOf(plant);
    }
    at += piece.length;
  }
  return stored;
}

const createdBy = ({ created }: Decision): number => Math.max(0, created);

const sortById = (changes: readonly NetChange[]): NetChange[] =>
  changes.toSorted((one, other) => (one.id < other.id ? -1 : 1));

const toChangeColumns = (changes: readonly NetChange[]): string[] => [
  toArray(changes.map(({ id }) => id)),
  toArray(changes.map(({ before }) => before?.name)),
  toArray(changes.map(({ before }) => before?.tag)),
  ...toColumns(changes).slice(1),
];

export const idsOf = (write: GroupWrite): readonly bigint[] =>
  write.kind === "atomic" ? write.writes.map(({ id }) => id) : [write.id];
