/**
 * Chooses what to restore: a pure function from the pieces, and what is known of their damage, to a copy and the
 * segments to replay. Everything else only reads and writes.
 */

import { DAY_MS } from "../domain/time.ts";
import type { Copy, Segment, Timeline } from "./names.ts";

/** An unbroken run of changes: each block follows the one before. */
export interface Run {
  readonly after: number;
  readonly last: number;
}

interface Located {
  readonly timeline: number;
  /** Undefined until it is read. */
  readonly timelineId?: string | undefined;
}

export interface KnownCopy extends Copy, Located {
  readonly change: number;
  /** Undefined until it is read. */
  readonly schema?: number | undefined;
  /** Why it cannot be used. */
  readonly fault?: string | undefined;
}

export interface KnownSegment extends Segment, Located {
  readonly after: number;
  readonly schema?: number | undefined;
  /** What is whole in it. Until it is read, what its name says. */
  readonly runs: readonly Run[];
  /** The highest change that it held, as far as is known. */
  readonly end: number;
}

export interface Step {
  readonly segment: KnownSegment;
  readonly until: number;
}

export interface Plan {
  readonly copy: KnownCopy;
  readonly steps: readonly Step[];
  /** The last change of the restored store. */
  readonly reached: number;
}

export interface NewestCopy {
  readonly change: number;
  /** When it was made, by the wall clock at that time. */
  readonly atMs: number;
  readonly bytes: number;
}

/** The newest change that can be restored, whatever it is. */
export const NEWEST = Number.POSITIVE_INFINITY;

/** The last change that a timeline shares with all after it. One of them may have left at an earlier change. */
export const endOf = (history: readonly Timeline[], index: number): number =>
  Math.min(NEWEST, ...history.slice(index + 1).map(({ after }) => after));

/** Where in the history the piece belongs; -1 if its timeline was abandoned. */
const indexOf = (history: readonly Timeline[], { timeline, timelineId }: Located): number =>
  history.findIndex(
    ({ number, id }) => number === timeline && (timelineId === undefined || timelineId === id),
  );

/** Whether the copy is a state of this history. */
export function isOnHistory(history: readonly Timeline[], copy: KnownCopy): boolean {
  const index = indexOf(history, copy);
  return index !== -1 && copy.change <= endOf(history, index);
}

/** The runs of a history, each as far as it belongs to it, by their first change. Shared by the ways of all copies. */
function listWays(
  segments: readonly KnownSegment[],
  history: readonly Timeline[],
  target: number,
): readonly Way[] {
  const ends = history.map((_, index) => Math.min(endOf(history, index), target));
  return segments
    .flatMap((segment) => {
      const end = ends[indexOf(history, segment)];
      if (end === undefined) return [];
      return segment.runs.map(({ after, last }) => ({
        segment,
        after,
        until: Math.min(last, end),
      }));
    })
    .filter(({ after, until }) => after < until)
    .toSorted((one, other) => one.after - other.after);
}

interface Way extends Step {
  readonly after: number;
}

/**
 * How far the ways lead from a copy. Ways that overlap or touch join into stretches, and a copy within one reaches its
 * end. So many copies cost one sweep over the ways, and not one each.
 */
function createReach(ways: readonly Way[]): (copy: KnownCopy) => number {
  const bySchema = new Map<number | undefined, readonly Run[]>();
  const joinWays = (copy: KnownCopy): readonly Run[] => {
    const stretches: { after: number; last: number }[] = [];
    for (const { segment, after, until } of ways) {
      if (!hasSchema(segment, copy)) continue;
      const stretch = stretches.at(-1);
      if (stretch !== undefined && after <= stretch.last)
        stretch.last = Math.max(stretch.last, until);
      else stretches.push({ after, last: until });
    }
    bySchema.set(copy.schema, stretches);
    return stretches;
  };
  return (copy) => {
    const stretches = bySchema.get(copy.schema) ?? joinWays(copy);
    let [low, high] = [0, stretches.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((stretches[middle] as Run).after <= copy.change) low = middle + 1;
      else high = middle;
    }
    return Math.max(copy.change, stretches[low - 1]?.last ?? 0);
  };
}

/** The way from a copy, as far as it is whole: of the runs that continue it, always the one that leads furthest. */
function follow(copy: KnownCopy, ways: readonly Way[]): Plan {
  const steps: Step[] = [];
  let reached = copy.change;
  let best: Way | undefined;
  for (const way of [...ways, undefined]) {
    // The next run begins later, so none is better than the best.
    if (best !== undefined && best.until > reached && (way?.after ?? NEWEST) > reached) {
      steps.push(best);
      reached = best.until;
    }
    if (way === undefined || way.after > reached) break;
    if (way.until > Math.max(reached, best?.until ?? 0) && hasSchema(way.segment, copy)) best = way;
  }
  return { copy, steps, reached };
}

/** A record may have columns that a store of another schema lacks. */
const hasSchema = (segment: KnownSegment, { schema }: KnownCopy): boolean =>
  segment.schema === undefined || schema === undefined || segment.schema === schema;

/**
 * The plan that gets furthest without passing the target, and among equals the one with the fewest changes to replay.
 * Undefined if every whole copy is newer.
 */
export function choosePlan(
  copies: readonly KnownCopy[],
  segments: readonly KnownSegment[],
  history: readonly Timeline[],
  target: number,
): Plan | undefined {
  const ways = listWays(segments, history, target);
  const reachOf = createReach(ways);
  let best: { readonly copy: KnownCopy; readonly reached: number } | undefined;
  for (const copy of copies) {
    if (copy.fault !== undefined || copy.change > target) continue;
    if (!isOnHistory(history, copy)) continue;
    const reached = reachOf(copy);
    const isFurther = reached > (best?.reached ?? -1);
    const isNearer = reached === best?.reached && compareCopies(copy, best.copy) > 0;
    if (isFurther || isNearer) best = { copy, reached };
  }
  return best && follow(best.copy, ways);
}

/** The highest change that the pieces of this history held, whole or not. */
export function findFurthest(
  copies: readonly KnownCopy[],
  segments: readonly KnownSegment[],
  history: readonly Timeline[],
): number {
  let furthest = 0;
  for (const segment of segments) {
    const index = indexOf(history, segment);
    if (index !== -1) furthest = Math.max(furthest, Math.min(segment.end, endOf(history, index)));
  }
  for (const copy of copies)
    if (isOnHistory(history, copy)) furthest = Math.max(furthest, copy.change);
  return furthest;
}

/** The newest state of this history that is a copy. */
export const findNewestCopy = (
  copies: readonly KnownCopy[],
  history: readonly Timeline[],
): KnownCopy | undefined =>
  copies
    .filter((copy) => copy.fault === undefined && isOnHistory(history, copy))
    .toSorted(compareCopies)
    .at(-1);

/** Older copies first. A store that nobody changes is copied too, so the serial decides. */
export const compareCopies = (one: KnownCopy, other: KnownCopy): number =>
  one.timeline - other.timeline ||
  one.change - other.change ||
  one.serial - other.serial ||
  (one.name < other.name ? -1 : 1);

/** The ranges of changes that can be restored, ascending and disjoint. */
export function listReachable(
  copies: readonly KnownCopy[],
  segments: readonly KnownSegment[],
  history: readonly Timeline[],
): readonly Run[] {
  const ranges: { after: number; last: number }[] = [];
  const reachOf = createReach(listWays(segments, history, NEWEST));
  const starts = copies
    .filter(({ fault }) => fault === undefined)
    .filter((copy) => isOnHistory(history, copy))
    .toSorted((one, other) => one.change - other.change);
  for (const copy of starts) {
    const range = ranges.at(-1);
    const last = reachOf(copy);
    if (range !== undefined && copy.change <= range.last) range.last = Math.max(range.last, last);
    else ranges.push({ after: copy.change, last });
  }
  return ranges;
}

/** What the place has, as its writer knows it. */
export interface Standing {
  /** Every change up to this one is in the place. Without `isCovered`, only together with a new copy. */
  readonly change: number;
  readonly isCovered: boolean;
  readonly newest: NewestCopy | undefined;
  /** The packed size of the segments behind the newest copy. */
  readonly logBytes: number;
}

interface CopyRule {
  readonly hasJournal: boolean;
  /** Since the newest copy, by the monotonic clock. */
  readonly ageMs: number;
  readonly ageMsMax: number;
  readonly logBytesMin: number;
}

/** Whether the log behind the newest copy has outgrown it, or the copy is old and something has changed. */
export function isCopyDue(
  { change, isCovered, newest, logBytes }: Standing,
  { hasJournal, ageMs, ageMsMax, logBytesMin }: CopyRule,
): boolean {
  // Without a journal every copy stands alone.
  if (newest === undefined || (hasJournal && !isCovered)) return true;
  if (change === newest.change) return false;
  return !hasJournal || ageMs >= ageMsMax || logBytes >= Math.max(newest.bytes, logBytesMin);
}

/** What is kept, and for how long. */
export interface Retention {
  /** Any moment of this time. */
  readonly momentsMs: number;
  /** Before that, one state of each day. Days without a state do not count. */
  readonly days: number;
}

const dayOf = ({ atMs }: KnownCopy): number => Math.floor(atMs / DAY_MS);
/** A copy follows the one before within a day, or nothing changed in between. A longer time is a clock that was set. */
const STEP_MS_MAX = DAY_MS + 3_600_000;
/** The newest copy is proven by the one before. */
const COPIES_MIN = 2;

/**
 * The pieces that are not needed, by their names, in the order in which to remove them: whatever is left when that is
 * interrupted, everything after the oldest moment that is kept can be reached. Ages are counted from copy to copy: no
 * clock says how old a piece is, so a clock that jumps cannot make everything old.
 */
export function listSuperfluous(
  copies: readonly KnownCopy[],
  segments: readonly KnownSegment[],
  history: readonly Timeline[],
  { momentsMs, days }: Retention,
): readonly (KnownCopy | KnownSegment)[] {
  const newestFirst = copies
    .filter((copy) => copy.fault === undefined && isOnHistory(history, copy))
    .toSorted(compareCopies)
    .toReversed();
  let ageMs = 0;
  let oldest: KnownCopy | undefined;
  const daily = new Map<number, KnownCopy>();
  for (const [index, copy] of newestFirst.entries()) {
    const stepMs = (newestFirst[index - 1]?.atMs ?? copy.atMs) - copy.atMs;
    ageMs += Math.max(0, Math.min(stepMs, STEP_MS_MAX));
    const day = dayOf(copy);
    const isOfOwnDay = oldest !== undefined && day !== dayOf(oldest) && !daily.has(day);
    if (isOfOwnDay && daily.size < days) daily.set(day, copy);
    if (index + 1 >= COPIES_MIN && ageMs >= momentsMs) oldest ??= copy;
  }
  if (oldest === undefined) return [];
  const { timeline, change, serial } = oldest;
  const kept = new Set(daily.values());
  const isBefore = (copy: KnownCopy): boolean => compareCopies(copy, oldest) < 0;
  return [
    ...copies.filter((copy) => isBefore(copy) && !kept.has(copy)).toSorted(compareCopies),
    ...segments
      .filter((segment) => segment.serial < serial)
      .filter(
        (segment) =>
          segment.timeline < timeline || (segment.timeline === timeline && segment.end <= change),
      )
      .toSorted((one, other) => one.serial - other.serial),
  ];
}
