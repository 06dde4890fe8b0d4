/**
 * The journal of changes, as both engines keep it: a row is a block of entries, all of one transaction, as one text.
 * A row for each entry would cost a create several times as much.
 *
 * The number of an entry is at least the time of its write in microseconds, and more than every number before it. So
 * a store that was restored from a backup never gives a number again that a reader may have seen.
 */

import {
  type Change,
  type ChangePage,
  type ChangeQuery,
  type ChangeType,
  changeTypes,
  isFiltered,
  isWanted,
  listChange,
  type ListedChange,
  splitWriter,
} from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import { lengthOf, type Plant } from "../domain/plant.ts";
import type { StoreLimits } from "../domain/store.ts";
import { pause } from "../tick.ts";

/** A letter in the text of a block for each of the types, in their order. */
const CODES = "crd";

/** A block ends then, because a reader loads a whole block. */
const BLOCK_CHARACTERS_MAX = 1_048_576;

type Value = string | number | null;

/** The entries of a block that is to be written. */
export class Entries {
  count = 0;
  private readonly values: Value[] = [];
  private characters = 0;
  private lastBy: string | undefined;

  get isFull(): boolean {
    return this.characters >= BLOCK_CHARACTERS_MAX;
  }

  /** `by` is what `joinWriter` makes. `before` is undefined for a create, `plant` for a removal. */
  add(id: bigint, by: string | undefined, plant?: Plant, before?: Plant): void {
    const code = before === undefined ? "c" : plant === undefined ? "d" : "r";
    // An empty text stands for the name before it: most blocks have one.
    this.values.push(code, by === this.lastBy ? "" : (by ?? null), toValue(id));
    this.lastBy = by;
    if (plant !== undefined) this.push(plant);
    if (before !== undefined) this.push(before);
    this.count++;
  }

  format(): string {
    return JSON.stringify(this.values);
  }

  private push(plant: Plant): void {
    this.values.push(plant.name, plant.tag ?? null);
    this.characters += lengthOf(plant);
  }
}

/** Exact: a number that a double cannot hold is a text. */
function toValue(id: bigint): Value {
  const value = Number(id);
  return Number.isSafeInteger(value) ? value : String(id);
}

/** What the text of a block contains if it may have an entry that is wanted; null for any. */
export function partOf({ id, by, batch }: ChangeQuery): string | null {
  if (id !== undefined) return `,${JSON.stringify(toValue(id))},`;
  if (batch !== undefined) return `${JSON.stringify(`\n${batch}`).slice(1)},`;
  return by === undefined ? null : `,${JSON.stringify(by).slice(0, -1)}`;
}

export interface BlockRow {
  readonly first: bigint;
  readonly last: bigint;
  readonly at_ms: bigint;
  /** Null if no entry of the block is wanted. */
  readonly entries: string | null;
  /** The ids of the entries that took effect, as JSON; null if all did. */
  readonly kept?: string | null;
}

export function parseBlock({ first, at_ms: atMs, entries, kept }: BlockRow): Change[] {
  if (entries === null) return [];
  const values = JSON.parse(entries) as Value[];
  const keptIds = typeof kept === "string" ? new Set(kept.match(/-?\d+/g)) : undefined;
  const changes: Change[] = [];
  let seq = Number(first);
  let writer = splitWriter(undefined);
  for (let at = 0; at < values.length;) {
    const type = changeTypes[CODES.indexOf(values[at++] as string)] as ChangeType;
    const name = values[at++];
    if (name !== "") writer = splitWriter((name ?? undefined) as string | undefined);
    const id = BigInt(values[at++] as string | number);
    const take = (): Plant => ({
      id,
      name: values[at++] as string,
      tag: (values[at++] ?? undefined) as string | undefined,
    });
    const plant = type === "removed" ? undefined : take();
    const before = type === "created" ? undefined : take();
    if (keptIds === undefined || keptIds.has(String(id)))
      changes.push({ seq: seq++, atMs: Number(atMs), type, id, ...writer, plant, before });
  }
  return changes;
}

const PAGE_MS_MAX = 5;
const PAGE_CHARACTERS_MAX = 524_288;

/**
 * A page that grows block by block. It ends at the limit, or early: after so much text, or with a filter after so
 * much time. The first block has the number that the query begins behind, or follows it at once. If the query begins
 * with the oldest entry, the first block is the last break. A block without entries marks a break: before it, changes
 * were made that the journal does not have. `newest` was looked up before the blocks: some may have come since.
 */
export function createChangePage(query: ChangeQuery, newest: number, msMax = PAGE_MS_MAX) {
  const endsAtMs = isFiltered(query) ? performance.now() + msMax : Number.POSITIVE_INFINITY;
  let changes: ListedChange[] = [];
  let last = query.after;
  let characters = 0;
  let isBegun = query.after === 0;

  const gone = (): Refusal =>
    new Refusal(
      "changes_gone",
      `The changes after ${query.after} are not kept any more. Read the plants again, then the changes after ${newest}.`,
    );

  return {
    /** Everything up to this number was looked at. */
    get last(): number {
      return last;
    },

    /** False if the page is over. Throws a Refusal if the cursor is not in the journal. */
    add(row: BlockRow): boolean {
      const [first, lastOfRow] = [Number(row.first), Number(row.last)];
      // Numbers have gaps, but not inside a block: there is no change between `first - 1` and `first`.
      if (!isBegun && first > query.after + 1) throw gone();
      isBegun = true;
      if (first > lastOfRow && lastOfRow > last) {
        if (query.after !== 0) throw gone();
        changes = [];
        last = lastOfRow;
        return true;
      }
      if (query.limit === 0) return lastOfRow <= query.after;
      characters += row.entries?.length ?? 0;
      for (const change of parseBlock(row)) {
        if (change.seq <= last) continue;
        if (changes.length === query.limit) return false;
        last = change.seq;
        if (isWanted(query, change)) changes.push(listChange(change));
      }
      last = Math.max(last, lastOfRow);
      // However slow the store is, each page gets further.
      if (last === query.after) return true;
      return characters < PAGE_CHARACTERS_MAX && performance.now() < endsAtMs;
    },

    finish(): ChangePage {
      const inFuture = `after: ${query.after} is in the future; the newest change is ${newest}`;
      if (!isBegun && query.after > Date.now() * 1000) throw new Refusal("invalid_query", inFuture);
      if (!isBegun) throw gone();
      return { changes, last, hasMore: last < newest, newest: Math.max(last, newest) };
    },
  };
}

/** Throws a Refusal if the service writes no journal. */
export function requireJournal({ changesDays }: Pick<StoreLimits, "changesDays">): void {
  if (changesDays === 0)
    throw new Refusal(
      "changes_gone",
      "This service keeps no changes: its PLANTSTORE_CHANGES_DAYS is 0, or its database cannot tell their order.",
    );
}

/** Bounds for one DELETE, which then takes a few milliseconds. */
const TRIM_BLOCKS = 1_000;
const TRIM_BYTES = 4_194_304;

/**
 * Removes blocks that are older than the time in the parameter, in milliseconds. The newest one stays: numbers go on
 * from it. What comes before an old block is old too, whatever the clocks said: a reader would not notice a hole.
 */
export const trimBlocks = (table: string, atMs: string): string => `WITH oldest AS (
    SELECT last, ${atMs} AS at_ms, octet_length(entries) AS bytes FROM ${table}
    WHERE last IS NOT NULL ORDER BY last LIMIT ${TRIM_BLOCKS}
  ), sized AS (
    SELECT last, sum(bytes) OVER (ORDER BY last) - bytes AS bytes_before FROM oldest
  )
  DELETE FROM ${table} WHERE last IN (SELECT last FROM sized WHERE bytes_before <= ${TRIM_BYTES})
    AND last <= (SELECT max(last) FROM oldest WHERE at_ms < CAST($1 AS bigint))
    AND last < (SELECT max(last) FROM ${table})
  RETURNING last`;

const DAY_MS = 86_400_000;
const TRIM_MORE_MS = 100;

/**
 * Removes what is too old, in steps, until it is stopped. `trim` takes one step, and resolves to whether it removed
 * something: there may be more. What becomes too old meanwhile is left to the next round, so every round ends.
 */
export function keepTrimmed(
  { changesDays, trimSeconds }: Pick<StoreLimits, "changesDays" | "trimSeconds">,
  trim: (beforeMs: number) => Promise<boolean>,
): () => void {
  let isTrimming = false;
  const trimAll = async (): Promise<void> => {
    if (isTrimming) return;
    isTrimming = true;
    const beforeMs = Math.floor(Date.now() - changesDays * DAY_MS);
    // A store that cannot write now is trimmed later.
    while (await trim(beforeMs).catch(() => false)) await pause(TRIM_MORE_MS);
    isTrimming = false;
  };
  const timer = setInterval(() => void trimAll(), trimSeconds * 1000).unref();
  return () => clearInterval(timer);
}
