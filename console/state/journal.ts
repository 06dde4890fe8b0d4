/** The journal as the page shows it: lines of one change or of many, and counts to which changes are added as they arrive. */

import type { Change, ChangeCount, ChangeCountQuery } from "../../client/client.ts";
import { type ChangeType, isPause } from "../../src/domain/change.ts";
import type { ChangeFilter } from "./route.ts";

export type Counts = NonNullable<Change["folded"]>;

/** A change, or all changes of a batch by one person, or a run of creates: then the newest of them, and their number. */
export interface Line {
  readonly change: Change;
  readonly counts?: Counts | undefined;
  /** The number of the oldest create of a run. */
  readonly end?: number | undefined;
}

/** A run of creates without a batch. */
export const isRun = ({ change: { batch }, counts }: Line): boolean =>
  batch === undefined && counts !== undefined;

function toLine(change: Change, fold: Fold): Line {
  const { seq, batch, type, folded, foldedTo } = change;
  const isFolded = batch === undefined ? fold === "run" && type === "created" : fold !== undefined;
  if (!isFolded) return { change };
  const counts = folded ?? { created: 0, replaced: 0, removed: 0, [type]: 1 };
  return { change, counts, end: batch === undefined ? (foldedTo ?? seq) : undefined };
}

export type Fold = "batch" | "run" | undefined;

/** Runs of one plant's creates may have others between them. */
export const foldOf = ({ batch, id }: ChangeFilter): Fold =>
  batch !== undefined ? undefined : id === undefined ? "run" : "batch";

const add = (one: Counts, other: Counts): Counts => ({
  created: one.created + other.created,
  replaced: one.replaced + other.replaced,
  removed: one.removed + other.removed,
});

/**
 * Adds older changes, newest first. Other changes may lie between those of a batch, but not between those of a run: it
 * continues only if the change before, `last`, is part of it.
 */
export function addOlder(
  lines: readonly Line[],
  changes: readonly Change[],
  fold: Fold,
  last?: Change,
) {
  const all = [...lines];
  for (const [index, change] of changes.entries()) {
    const line = toLine(change, fold);
    const before = changes[index - 1] ?? last;
    const isContinued =
      isRun(line) &&
      before !== undefined &&
      isRun(toLine(before, fold)) &&
      before.by === change.by &&
      !isPause(before.foldedTo ?? before.seq, change.seq);
    const at = isRun(line)
      ? isContinued
        ? all.length - 1
        : -1
      : all.findIndex((each) => line.counts && isSameBatch(each, change));
    const known = all[at];
    if (known?.counts === undefined || line.counts === undefined) all.push(line);
    else all[at] = { ...known, counts: add(known.counts, line.counts), end: line.end };
  }
  return all;
}

const isSameBatch = ({ change, counts }: Line, { by, batch }: Change): boolean =>
  counts !== undefined && batch !== undefined && change.batch === batch && change.by === by;

export function addNewer(lines: readonly Line[], changes: readonly Change[], fold: Fold): Line[] {
  const added = addOlder([], changes.toReversed(), fold);
  const isAdded = ({ change }: Line): boolean => added.some((line) => isSameBatch(line, change));
  const sum = (line: Line): Line => {
    const known = lines.find((each) => isSameBatch(each, line.change));
    return line.counts === undefined || known?.counts === undefined
      ? line
      : { ...line, counts: add(line.counts, known.counts) };
  };
  const [next, ...rest] = lines;
  const oldest = added.at(-1);
  const isContinued =
    oldest !== undefined &&
    next !== undefined &&
    isRun(oldest) &&
    isRun(next) &&
    oldest.change.by === next.change.by &&
    !isPause(oldest.end ?? oldest.change.seq, next.change.seq);
  const run =
    isContinued && oldest.counts !== undefined && next.counts !== undefined
      ? [{ ...oldest, counts: add(oldest.counts, next.counts), end: next.end }]
      : undefined;
  const shown = (run === undefined ? added : added.slice(0, -1)).map(sum);
  const kept = (run === undefined ? lines : rest).filter((line) => !isAdded(line));
  return [...shown, ...(run ?? []), ...kept];
}

export const isShown = ({ by, batch, id, type, from, to }: ChangeFilter, change: Change): boolean =>
  (by === undefined || by === change.by) &&
  (batch === undefined || batch === change.batch) &&
  (id === undefined || id === change.id) &&
  (type === undefined || type === change.type) &&
  (from === undefined || Date.parse(from) <= Date.parse(change.time)) &&
  (to === undefined || Date.parse(to) >= Date.parse(change.time));

/** The length of `every`. */
const INTERVALS_MS: Readonly<Record<string, number>> = { "15m": 900_000, "1h": 3_600_000 };

const startOf = (time: string, every: string): string => {
  const lengthMs = INTERVALS_MS[every] ?? 1;
  return new Date(Math.floor(Date.parse(time) / lengthMs) * lengthMs).toISOString();
};

/** Adds changes that have just arrived, so that nothing is counted a second time. */
export function addArrived(
  counts: readonly ChangeCount[],
  changes: readonly Change[],
  filter: ChangeFilter,
  { group = [], every }: Pick<ChangeCountQuery, "group" | "every">,
): readonly ChangeCount[] {
  const seen = Math.max(0, ...counts.map(({ last }) => last));
  const fresh = changes.filter((change) => change.seq > seen && isShown(filter, change));
  if (fresh.length === 0) return counts;
  const all = [...counts];
  for (const { seq, time, type, by, batch } of fresh) {
    const none = { created: 0, replaced: 0, removed: 0, first: seq, firstTime: time };
    const place = {
      start: every && startOf(time, every),
      by: group.includes("by") ? by : undefined,
      batch: group.includes("batch") ? batch : undefined,
    };
    const at = all.findIndex(
      (each) => each.start === place.start && each.by === place.by && each.batch === place.batch,
    );
    const known = all[at] ?? { ...place, ...none };
    const next = { ...known, [type]: known[type] + 1, last: seq, lastTime: time };
    if (at === -1) all.push(next);
    else all[at] = next;
  }
  return all;
}

export const sumOf = (count: Record<ChangeType, number>, type?: ChangeType): number =>
  type === undefined ? count.created + count.replaced + count.removed : count[type];
