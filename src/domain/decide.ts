/**
 * What a write does to the stored plants, for both engines and for dry runs: the only place that decides about replays,
 * conflicts, preconditions, upserts, all-or-nothing and room. Pure: it looks plants up, and changes nothing.
 */

import type { Writer } from "./change.ts";
import { holds } from "./entity-tag.ts";
import { Refusal } from "./errors.ts";
import type { PlantLimits } from "./faults.ts";
import { isAmong } from "./filter.ts";
import { isSame, isSameState, lengthOf, type Plant } from "./plant.ts";
import {
  applyPatch,
  type AtomicWrite,
  type Done,
  type PlantWrite,
  refuseLine,
  refuseWrite,
  type Verdict,
} from "./write.ts";

export type Find = (id: bigint) => Plant | undefined;

/** What the store has room for. */
export interface Room {
  /** Plants that may be created. */
  readonly plantsLeft: number;
  /** Why no text may be added, such as a disk that is nearly full. Removals stay possible. */
  readonly refuseText?: Refusal | undefined;
}

const BOUNDLESS: Room = { plantsLeft: Number.POSITIVE_INFINITY };

/** A plant that differs afterwards. */
export interface NetChange {
  readonly id: bigint;
  readonly writer?: Writer | undefined;
  readonly before: Plant | undefined;
  readonly after: Plant | undefined;
}

export interface Decision {
  /** Only a patch tells what it left. An atomic write has an outcome for each line. A refused write changes nothing. */
  readonly outcome: Done | Verdict | readonly Done[] | Refusal;
  readonly changes: readonly NetChange[];
  /** How many more plants there are than before. */
  readonly created: number;
}

const changeNothing = (outcome: Decision["outcome"]): Decision => ({
  outcome,
  changes: [],
  created: 0,
});

/** A plant as its writer may know it. */
interface Seen {
  readonly plant: Plant | undefined;
  /** The writer is confined, and the plant has another tag: for it there is no such plant, but the id is taken. */
  readonly isHidden: boolean;
}

/** Neither engine tells a writer more of a stored plant than this. */
export function see(plant: Plant | undefined, writer: Writer | undefined): Seen {
  const tags = writer?.within;
  const isHidden = plant !== undefined && tags !== undefined && !isAmong(tags, plant.tag);
  return { plant: isHidden ? undefined : plant, isHidden };
}

export function decide(
  write: PlantWrite | AtomicWrite,
  find: Find,
  room: Room = BOUNDLESS,
): Decision {
  if (write.kind === "atomic") return decideAtomic(write, find, room);
  const { id, writer } = write;
  const seen = see(find(id), writer);
  const verdict = judge(write, seen, room);
  if (verdict instanceof Refusal) return changeNothing(verdict);
  const { done, after } = verdict;
  const outcome = write.kind === "patch" ? verdict : done;
  if (done === "replayed") return changeNothing(outcome);
  return { outcome, changes: [{ id, writer, before: seen.plant, after }], created: growthOf(done) };
}

const growthOf = (done: Done): number => (done === "created" ? 1 : done === "removed" ? -1 : 0);

/** The plants that earlier writes would have left, by id, in the order of the last write. */
export type Rehearsed = Map<bigint, Plant | undefined>;

/** What a write would do, and the plant that it would replace or remove. */
export interface Rehearsal {
  readonly outcome: Done | Refusal;
  readonly now?: Plant | undefined;
}

/** What each write would do, one after the other. Adds to `states`. */
export function rehearse(
  writes: readonly PlantWrite[],
  find: Find,
  limits: PlantLimits,
  states: Rehearsed = new Map(),
): Rehearsal[] {
  return writes.map((write) => {
    const { id, writer } = write;
    const seen = see(states.has(id) ? states.get(id) : find(id), writer);
    const verdict = refuseWrite(write, limits) ?? judge(write, seen, BOUNDLESS);
    if (verdict instanceof Refusal) return { outcome: verdict };
    const { done, after } = verdict;
    if (done === "replayed") return { outcome: done };
    states.delete(id);
    states.set(id, after);
    return { outcome: done, now: seen.plant };
  });
}

function judge(write: PlantWrite, seen: Seen, { plantsLeft, refuseText }: Room): Verdict | Refusal {
  const verdict = judgeContent(write, seen);
  if (verdict instanceof Refusal) return verdict;
  const { done } = verdict;
  if (done === "replayed" || done === "removed") return verdict;
  if (done === "created" && plantsLeft < 1) return new Refusal("store_full");
  return refuseText ?? verdict;
}

function judgeContent(write: PlantWrite, { plant: stored, isHidden }: Seen): Verdict | Refusal {
  if (write.kind === "create") {
    if (isHidden) return refuseTaken(write.id);
    if (stored === undefined) return { done: "created", after: write.plant };
    return isSame(stored, write.plant)
      ? { done: "replayed", after: stored }
      : refuseTaken(write.id);
  }
  const { condition } = write;
  if (write.kind === "upsert") {
    if (stored === undefined) {
      if (condition.match !== undefined || condition.seen !== undefined)
        return new Refusal("precondition_failed");
      return isHidden ? refuseTaken(write.id) : { done: "created", after: write.plant };
    }
    // Before the condition: a batch whose answer was lost is sent again, and its own writes changed the entity tags.
    if (isSame(stored, write.plant)) return { done: "replayed", after: stored };
  }
  if (stored === undefined)
    return write.kind === "remove" && write.isLenient === true
      ? { done: "replayed", after: undefined }
      : new Refusal("plant_not_found");
  if (!holds(condition, stored)) return new Refusal("precondition_failed");
  if (write.kind === "remove") return { done: "removed", after: undefined };
  if (write.kind !== "patch") return { done: "replaced", after: write.plant };
  const after = applyPatch(stored, write.patch);
  if (isSame(stored, after)) return { done: "replayed", after: stored };
  return { done: "replaced", after };
}

export const refuseTaken = (id: bigint): Refusal =>
  new Refusal("id_taken", `A different plant has the id ${id}; nothing was changed.`);

/** Bounds the stored text that one transaction changes: all of it is in one journal block, and in memory. */
export const STORED_CHARACTERS_MAX = 4_194_304;

/** All lines succeed, or none. The refusal is that of the first line that fails. */
function decideAtomic(
  { writes, refusal }: AtomicWrite,
  find: Find,
  { plantsLeft, refuseText }: Room,
): Decision {
  type State = { -readonly [Name in keyof NetChange]: NetChange[Name] };
  const states = new Map<bigint, State & { readonly isHidden: boolean }>();
  const outcome: Done[] = [];
  let [created, characters] = [0, 0];
  let stale: PlantWrite | undefined;
  for (const write of writes) {
    const { id, line, writer } = write;
    let state = states.get(id);
    if (state === undefined) {
      const { plant: before, isHidden } = see(find(id), writer);
      characters += lengthOf(before);
      states.set(id, (state = { id, writer, before, after: before, isHidden }));
    }
    const verdict =
      characters > STORED_CHARACTERS_MAX
        ? new Refusal("transaction_too_large")
        : judge(
            write,
            { plant: state.after, isHidden: state.isHidden },
            { plantsLeft: plantsLeft - created, refuseText },
          );
    if (verdict instanceof Refusal) return changeNothing(refuseLine(line, verdict));
    created += growthOf(verdict.done);
    if (verdict.done === "replayed" && isStale(write, state)) stale ??= write;
    state.after = verdict.after;
    outcome.push(verdict.done);
  }
  if (refusal !== undefined) return changeNothing(new Refusal(refusal.reason, refusal.message));
  const changes = [...states.values()].filter(({ before, after }) => !isSameState(before, after));
  // If every line was done before, the batch was sent again. Otherwise others have done part of it.
  if (stale !== undefined && changes.length > 0)
    return changeNothing(refuseLine(stale.line, new Refusal("precondition_failed")));
  return { outcome, changes, created };
}

/** Whether a write finds its own outcome in the store instead of what it expects. Not if an earlier line made it. */
function isStale(write: PlantWrite, { before, after }: Pick<NetChange, "before" | "after">) {
  if (write.kind === "create" || !isSameState(before, after)) return false;
  const { condition } = write;
  return before === undefined ? condition.match !== undefined : !holds(condition, before);
}
