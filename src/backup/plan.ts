/**
 * Chooses what to restore: a pure function from the pieces, and what is known of their damage, to a copy and the
 * segments to replay. Everything else only reads and writes.
 */

import type { Copy, Segment, Timeline } from "./piece.ts";

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

/** The way from a copy to the target, as far as it is whole. */
function follow(
  copy: KnownCopy,
  segments: readonly KnownSegment[],
  history: readonly Timeline[],
  target: number,
): Plan {
  const steps: Step[] = [];
  const placed = segments
    .filter((segment) => hasSchema(segment, copy))
    .map((segment) => ({ segment, index: indexOf(history, segment) }));
  let reached = copy.change;
  while (reached < target) {
    // A later timeline may hold changes that it shares with an earlier one, never the other way round.
    const current = history.findLastIndex(({ after }) => after <= reached);
    let best: Step | undefined;
    for (const { segment, index } of placed) {
      if (index === -1 || index < current) continue;
      const end = Math.min(endOf(history, index), target);
      for (const { after, last } of segment.runs)
        if (after <= reached && Math.min(last, end) > Math.max(reached, best?.until ?? 0))
          best = { segment, until: Math.min(last, end) };
    }
    if (best === undefined) break;
    steps.push(best);
    reached = best.until;
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
  let best: Plan | undefined;
  const isBetter = (plan: Plan): boolean => {
    if (best === undefined || plan.reached !== best.reached)
      return plan.reached > (best?.reached ?? -1);
    return compareCopies(plan.copy, best.copy) > 0;
  };
  for (const copy of copies) {
    if (copy.fault !== undefined || copy.change > target) continue;
    if (!isOnHistory(history, copy)) continue;
    const plan = follow(copy, segments, history, target);
    if (isBetter(plan)) best = plan;
  }
  return best;
}

/** The highest change that the pieces of this history held, whole or not. */
export function findFurthest(
  copies: readonly KnownCopy[],
  segments: readonly KnownSegment[],
  history: readonly Timeline[],
): number {
  const ends = segments.map((segment) => {
    const index = indexOf(history, segment);
    return index === -1 ? 0 : Math.min(segment.end, endOf(history, index));
  });
  const changes = copies.filter((copy) => isOnHistory(history, copy)).map(({ change }) => change);
  return Math.max(0, ...ends, ...changes);
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
  const plans = copies
    .filter(({ fault }) => fault === undefined)
    .filter((copy) => isOnHistory(history, copy))
    .map((copy) => follow(copy, segments, history, NEWEST))
    .toSorted((one, other) => one.copy.change - other.copy.change);
  for (const { copy, reached } of plans) {
    const range = ranges.at(-1);
    if (range !== undefined && copy.change <= range.last)
      range.last = Math.max(range.last, reached);
    else ranges.push({ after: copy.change, last: reached });
  }
  return ranges;
}
