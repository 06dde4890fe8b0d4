/**
 * What both engines share about the journal: a block for each transaction, and pages of changes. A block has
 * all entries of its transaction as one text: a row for each would make a create several times as expensive.
 */

import {
  type Change,
  type ChangePage,
  type ChangeQuery,
  type ChangeType,
  changeTypes,
  firstNumberOf,
  type Folded,
  isFiltered,
  isPause,
  isWanted,
  listChange,
  type Moment,
  packWriter,
  unpackWriter,
  type Writer,
  writerOf,
} from "../domain/change.ts";
import { createTally } from "../domain/change-count.ts";
import { narrowChange } from "../domain/confinement.ts";
import { Refusal } from "../domain/errors.ts";
import { lengthOf, type Plant } from "../domain/plant.ts";

/** One letter per change type in a block's text, in the order of `changeTypes`. */
const CODES = "crd";

/** On SQLite a token or a webhook that changes is a block of its own, by a trigger. Readers skip it. */
const RECORD_CODES = "tw";

/** A row of a token, or a webhook and its record, null if it was removed. */
export type RecordEntry =
  | readonly ["t", row: Readonly<Record<string, string | number | null>>]
  | readonly ["w", name: string, record: Readonly<Record<string, unknown>> | null];

/** Undefined for a block of plants. */
export function findRecordEntry(entries: readonly unknown[]): RecordEntry | undefined {
  const [code] = entries;
  return typeof code === "string" && code !== "" && RECORD_CODES.includes(code)
    ? (entries as unknown as RecordEntry)
    : undefined;
}

/** Bounds a block, because a reader loads it whole. */
const BLOCK_CHARACTERS_MAX = 1_048_576;

export type EntryValue = string | number | null;

/** Entries as they are stored. */
export interface Entries {
  readonly text: string;
  /** What the text says. */
  readonly values: readonly EntryValue[];
  readonly count: number;
  /** UTF-16 units of the plants, before and after each change. */
  readonly characters: number;
}

/** A create has these values: its code, writer, id, name and tag. */
export const CREATE_LENGTH = 5;

export class JournalBlock implements Entries {
  count = 0;
  readonly values: EntryValue[] = [];
  characters = 0;
  private lastName: string | undefined;
  /** Entries that are all of the block so far. */
  private adopted: Entries | undefined;

  get isFull(): boolean {
    return this.characters >= BLOCK_CHARACTERS_MAX;
  }

  /** `before` is undefined for a create, `plant` for a removal. */
  add(id: bigint, writer: Writer | undefined, plant?: Plant, before?: Plant): void {
    const { adopted } = this;
    if (adopted !== undefined) {
      this.adopted = undefined;
      this.count = this.characters = 0;
      this.addAll(adopted);
    }
    const code = before === undefined ? "c" : plant === undefined ? "d" : "r";
    const name = packWriter(writer);
    // An empty string repeats the previous name: most blocks have only one.
    this.values.push(code, name === this.lastName ? "" : (name ?? null), toExact(id));
    this.lastName = name;
    if (plant !== undefined) this.push(plant);
    if (before !== undefined) this.push(before);
    this.count++;
  }

  /** Adds creates that were formatted on another thread: one text serves for the message and the store. */
  adopt(creates: Entries): void {
    if (this.count > 0) return this.addAll(creates);
    this.adopted = creates;
    this.count = creates.count;
    this.characters = creates.characters;
  }

  get text(): string {
    return this.adopted?.text ?? JSON.stringify(this.values);
  }

  private addAll(creates: Entries): void {
    for (const change of parseEntries(creates.text))
      this.add(change.id, writerOf(change), change.plant);
  }

  private push(plant: Plant): void {
    this.values.push(plant.name, plant.tag ?? null);
    this.characters += lengthOf(plant);
  }
}

/** A number, or a string if a double cannot hold it exactly. */
export function toExact(id: bigint): string | number {
  const value = Number(id);
  return Number.isSafeInteger(value) ? value : String(id);
}

/** A substring of every block that has a wanted entry; null matches any block. */
export function partOf({ within = [], id, by, batch }: ChangeQuery): string | null {
  if (id !== undefined) return `,${JSON.stringify(toExact(id))},`;
  if (batch !== undefined) return JSON.stringify(`\n${batch}`).slice(1, -1);
  if (by !== undefined) return `,${JSON.stringify(by).slice(0, -1)}`;
  return within.length === 1 ? `,${JSON.stringify(within[0])}` : null;
}

/** The times between which a block has wanted entries, in milliseconds; null for no bound. */
export const timesOf = ({
  from,
  to,
}: ChangeQuery): readonly [from: number | null, to: number | null] => [timeOf(from), timeOf(to)];

const timeOf = (moment: Moment | undefined): number | null =>
  moment?.unit === "atMs" ? moment.value : null;

export interface BlockRow {
  readonly first: bigint;
  readonly last: bigint;
  readonly at_ms: bigint;
  readonly entries: string | null;
  /** The ids of the entries that took effect, as JSON; null if all did. */
  readonly kept?: string | null;
  /** Whether the journal began with this block, which has no entries. Absent in a page that is read back. */
  readonly is_beginning?: boolean | bigint;
}

/** The changes of a text of entries, which have no numbers yet. */
export const parseEntries = (entries: string): Change[] =>
  parseBlock({ first: 0n, last: 0n, at_ms: 0n, entries });

export function parseBlock({ first, at_ms, entries, kept }: BlockRow): Change[] {
  if (entries === null) return [];
  const values = JSON.parse(entries) as EntryValue[];
  if (findRecordEntry(values) !== undefined) return [];
  const keptIds = typeof kept === "string" ? new Set(kept.match(/-?\d+/g)) : undefined;
  const changes: Change[] = [];
  const atMs = Number(at_ms);
  let seq = Number(first);
  let writer = unpackWriter(null);
  for (let at = 0; at < values.length;) {
    const type = changeTypes[CODES.indexOf(values[at++] as string)] as ChangeType;
    const name = values[at++];
    if (name !== "") writer = unpackWriter(name);
    const id = BigInt(values[at++] as string | number);
    const take = (): Plant => ({
      id,
      name: values[at++] as string,
      tag: (values[at++] ?? undefined) as string | undefined,
    });
    const plant = type === "removed" ? undefined : take();
    const before = type === "created" ? undefined : take();
    if (keptIds === undefined || keptIds.has(String(id)))
      changes.push({ seq: seq++, atMs, type, id, ...writer, plant, before });
  }
  return changes;
}

const PAGE_MS_MAX = 5;
/** Blocks that a page examines before its time counts: a slow database must not make pages of one block. */
const PAGE_BLOCKS_MIN = 256;
const PAGE_CHARACTERS_MAX = 524_288;

/** There was no store before 2026, so a smaller number is no reader's cursor: it asks for all changes. */
const CURSOR_MIN = Date.UTC(2026, 0) * 1000;

/**
 * Builds a page block by block: upwards from the cursor, or from the newest change back. The page ends at its limit, at
 * PAGE_CHARACTERS_MAX or, with a filter, after msMax and PAGE_BLOCKS_MIN, because it may examine many changes and list
 * few. `newest` was read before the blocks, so there may be newer ones.
 *
 * A block without entries is a break: changes were made that the journal does not have. A page that reads back ends
 * there. Otherwise the first block must contain the cursor or directly follow it; for a query from the oldest entry it
 * is the last break. A number below CURSOR_MIN means the oldest entry as long as the journal has its beginning. A larger
 * one from before the beginning is the cursor of another store, whose changes this one does not have.
 */
export function createChangePage(query: ChangeQuery, newest: number, msMax = PAGE_MS_MAX) {
  const { after, limit } = query;
  const isBack = query.order === "desc";
  const endsAtMs = isFiltered(query) ? performance.now() + msMax : Number.POSITIVE_INFINITY;
  const { from, to } = query;
  const listing = createListing(query);
  let last = isBack && after === 0 ? newest + 1 : after;
  if (isBack && to?.unit === "seq") last = Math.min(last, to.value + 1);
  const oldest = from === undefined ? 0 : firstNumberOf(from);
  let characters = 0;
  let blocks = 0;
  let isBegun = isBack || after === 0;
  let isAtBreak = false;
  /** A page that reads back has passed the start of its period. */
  let isPast = false;

  const gone = (row?: BlockRow): Refusal => {
    const fault = row?.is_beginning
      ? `The journal of this store begins with ${row.first}, and ${after} belongs to another store.`
      : `The changes after ${after} have been deleted.`;
    const advice = `Read the plants again, then the changes after ${newest}.`;
    return new Refusal("changes_gone", `${fault} ${advice}`);
  };

  return {
    get last(): number {
      return last;
    },

    /** False if the page is complete. Throws a Refusal if the cursor is not in the journal. */
    add(row: BlockRow): boolean {
      const [first, lastOfRow] = [Number(row.first), Number(row.last)];
      isAtBreak = first > lastOfRow;
      if (isBack && isAtBreak) return false;
      if (isBack && lastOfRow < oldest) {
        isPast = true;
        return false;
      }
      // Numbers have gaps, but not inside a block: there is no change between `first - 1` and `first`.
      const isStart = after === 0 || (Boolean(row.is_beginning) && after < CURSOR_MIN);
      if (!isBegun && first > after + 1 && !isStart) throw gone(row);
      isBegun = true;
      if (isAtBreak && lastOfRow > last) {
        if (!isStart) throw gone(row);
        listing.clear();
        last = lastOfRow;
        return true;
      }
      if (limit === 0 && !isBack) return lastOfRow <= after;
      characters += row.entries?.length ?? 0;
      const changes = parseBlock(row);
      for (const change of isBack ? changes.toReversed() : changes) {
        if (isBack ? change.seq >= last : change.seq <= last) continue;
        if (!listing.add(change)) return false;
        last = change.seq;
      }
      last = isBack ? Math.min(last, first) : Math.max(last, lastOfRow);
      // Every page makes progress, however long its first block is.
      if (last === after) return true;
      if (characters >= PAGE_CHARACTERS_MAX) return false;
      return ++blocks < PAGE_BLOCKS_MIN || performance.now() < endsAtMs;
    },

    /** `isEnd`: there are no further blocks. */
    finish(isEnd = false): ChangePage {
      if (!isBegun) throw gone();
      const hasMore = isBack ? !isAtBreak && !isPast && !isEnd : last < newest;
      return {
        ...listing.finish(),
        last,
        hasMore,
        newest: isBack ? newest : Math.max(last, newest),
      };
    },
  };
}

/** What a page lists of the changes that it reads: those that are wanted, with runs folded, or only their counts. */
function createListing(query: ChangeQuery) {
  const { within, limit, fold, count } = query;
  const tally = count && createTally(count);
  let listed: { readonly change: Change; readonly folded: Folded | undefined; last: number }[] = [];
  return {
    /** False if the change is wanted, and the page is full. */
    add(entry: Change): boolean {
      const change = within === undefined ? entry : narrowChange(entry, within);
      if (change === undefined || !isWanted(query, change)) return true;
      if (tally !== undefined) return tally.add(change, limit);
      const { by, batch, type, seq } = change;
      const isFolded =
        fold !== undefined && (batch !== undefined || (fold === "run" && type === "created"));
      const run = listed.at(-1);
      const isSameRun =
        run !== undefined &&
        run.change.batch === batch &&
        run.change.by === by &&
        (batch !== undefined || !isPause(run.last, seq));
      if (isFolded && isSameRun && run.folded !== undefined) {
        run.folded[type]++;
        run.last = seq;
        return true;
      }
      if (listed.length === limit) return false;
      const folded = isFolded ? { created: 0, replaced: 0, removed: 0, [type]: 1 } : undefined;
      listed.push({ change, folded, last: seq });
      return true;
    },

    clear(): void {
      listed = [];
    },

    finish() {
      const changes = listed.map((each) => listChange(each.change, each.folded, each.last));
      return tally === undefined ? { changes } : { changes, counts: tally.list() };
    },
  };
}
