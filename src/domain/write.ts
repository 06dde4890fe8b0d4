/** Writes of plants: every kind, how it is parsed, and how the stored plant decides about it. */

import type { Writer } from "./change.ts";
import { Refusal } from "./errors.ts";
import { joinFaults } from "./members.ts";
import { type Condition, findEntityTags, holds } from "./entity-tag.ts";
import { describe, parseJson } from "./json.ts";
import {
  findFaults,
  isSame,
  isSameState,
  lengthOf,
  parseObject,
  type Plant,
  readId,
  refuseFaults,
  refusePlant,
  toNewPlant,
} from "./plant.ts";

interface About {
  readonly id: bigint;
  readonly writer?: Writer | undefined;
  /** The line of an atomic batch, for its refusal. */
  readonly line?: number | undefined;
}

export interface Create extends About {
  readonly kind: "create";
  readonly plant: Plant;
}

/** `replace` needs a stored plant. `upsert` creates one if there is none, and leaves an equal one alone. */
interface Put extends About {
  readonly kind: "replace" | "upsert";
  readonly plant: Plant;
  readonly condition: Condition;
}

interface Patching extends About {
  readonly kind: "patch";
  readonly patch: Patch;
  readonly plant?: undefined;
  readonly condition: Condition;
}

interface Remove extends About {
  readonly kind: "remove";
  readonly plant?: undefined;
  readonly condition: Condition;
  /** A plant that is not there counts as removed already. */
  readonly isLenient?: true | undefined;
}

/** Plain data, so another thread can do it. */
export type Update = Put | Patching | Remove;
export type PlantWrite = Create | Update;

/** A merge patch (RFC 7396): null removes the tag. */
export interface Patch {
  readonly name?: string;
  readonly tag?: string | null;
}

/** What a write did. `replayed`: nothing, because the plant was in the wanted state already. */
export type Done = "created" | "replaced" | "removed" | "replayed";

/** `after` is the state that the write leaves; undefined if there is no plant then. */
export interface Verdict {
  readonly done: Done;
  readonly after: Plant | undefined;
}

export function applyPatch(plant: Plant, { name = plant.name, tag = plant.tag }: Patch): Plant {
  return { id: plant.id, name, tag: tag ?? undefined };
}

/** The only place that decides what a write does to a stored plant. */
export function judge(write: PlantWrite, stored: Plant | undefined): Verdict | Refusal {
  if (write.kind === "create") return judgeCreate(write.plant, stored);
  const { condition } = write;
  if (write.kind === "upsert") {
    if (stored === undefined)
      return condition.match === undefined && condition.seen === undefined
        ? { done: "created", after: write.plant }
        : new Refusal("precondition_failed");
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
  return refusePlant(after) ?? { done: "replaced", after };
}

export function judgeCreate(plant: Plant, stored: Plant | undefined): Verdict | Refusal {
  if (stored === undefined) return { done: "created", after: plant };
  return isSame(stored, plant) ? { done: "replayed", after: stored } : refuseTaken(plant);
}

export const refuseTaken = ({ id }: Plant): Refusal =>
  new Refusal("id_taken", `A different plant has the id ${id}; nothing was changed.`);

/** What each write would do, one after the other. `find` looks up a stored plant. */
export function rehearse(
  writes: readonly PlantWrite[],
  find: (id: bigint) => Plant | undefined,
): (Done | Refusal)[] {
  const states = new Map<bigint, Plant | undefined>();
  return writes.map((write) => {
    const { id } = write;
    const verdict = judge(write, states.has(id) ? states.get(id) : find(id));
    if (verdict instanceof Refusal) return verdict;
    states.set(id, verdict.after);
    return verdict.done;
  });
}

/** The writes of one transaction. `refusal` is about the line after them, which could not be read. */
export interface AtomicWrite {
  readonly kind: "atomic";
  readonly writes: readonly PlantWrite[];
  readonly refusal?: Pick<Refusal, "reason" | "message"> | undefined;
}

/** All writes of an atomic one have the same. */
export const findWriter = (write: PlantWrite | AtomicWrite): Writer | undefined =>
  (write.kind === "atomic" ? write.writes[0] : write)?.writer;

/** What one transaction does to a plant, whatever the number of its writes. */
export interface NetChange extends Pick<About, "id" | "writer"> {
  readonly before: Plant | undefined;
  readonly after: Plant | undefined;
}

/** Bounds the stored text that one transaction changes: all of it is in one journal block, and in memory. */
export const STORED_CHARACTERS_MAX = 4_194_304;

/**
 * Judges writes that all succeed, or none. Throws the Refusal of the first line that fails. `find` looks up a stored
 * plant; `refuseBeyond` says whether there is room for the write, and for this many more plants than before.
 */
export function judgeAtomic(
  { writes, refusal }: AtomicWrite,
  find: (id: bigint) => Plant | undefined,
  refuseBeyond: (done: Done, created: number) => Refusal | undefined,
) {
  const states = new Map<bigint, { -readonly [Name in keyof NetChange]: NetChange[Name] }>();
  const outcomes: Done[] = [];
  let [created, characters] = [0, 0];
  let stale: PlantWrite | undefined;
  for (const write of writes) {
    const { id, line, writer } = write;
    let state = states.get(id);
    if (state === undefined) {
      const before = find(id);
      characters += lengthOf(before);
      states.set(id, (state = { id, writer, before, after: before }));
    }
    const verdict =
      characters > STORED_CHARACTERS_MAX
        ? new Refusal("transaction_too_large")
        : judge(write, state.after);
    if (verdict instanceof Refusal) throw refuseLine(line, verdict);
    if (verdict.done === "created") created++;
    if (verdict.done === "removed") created--;
    const full = refuseBeyond(verdict.done, created);
    if (full !== undefined) throw refuseLine(line, full);
    if (verdict.done === "replayed" && isStale(write, state)) stale ??= write;
    state.after = verdict.after;
    outcomes.push(verdict.done);
  }
  if (refusal !== undefined) throw new Refusal(refusal.reason, refusal.message);
  const changes: NetChange[] = [];
  for (const state of states.values())
    if (!isSameState(state.before, state.after)) changes.push(state);
  // If every line was done before, the batch was sent again. Otherwise others have done part of it.
  if (stale !== undefined && changes.length > 0)
    throw refuseLine(stale.line, new Refusal("precondition_failed"));
  return { outcomes, changes, created };
}

/** Whether a write finds its own outcome in the store instead of what it expects. Not if an earlier line made it. */
function isStale(write: PlantWrite, { before, after }: Pick<NetChange, "before" | "after">) {
  if (write.kind === "create" || !isSameState(before, after)) return false;
  const { condition } = write;
  return before === undefined ? condition.match !== undefined : !holds(condition, before);
}

export const refuseLine = (line: number | undefined, { reason, message, cause }: Refusal) =>
  new Refusal(reason, line === undefined ? message : `line ${line}: ${message}`, cause);

/** Parses a line of a batch. Throws a Refusal that names every fault. */
export function parseWrite(text: string, isUpsert: boolean): PlantWrite {
  const members = parseObject(text);
  const { removed, ifMatch } = members;
  if (removed === undefined && ifMatch === undefined) {
    const plant = toNewPlant(text, members);
    if (!isUpsert) return { kind: "create", id: plant.id, plant };
    return { kind: "upsert", id: plant.id, plant, condition: {} };
  }
  const match = typeof ifMatch === "string" ? findEntityTags(ifMatch) : undefined;
  const faults: string[] = [];
  if (removed !== undefined && removed !== true)
    faults.push(`removed: expected true, or nothing, got ${describe(removed)}`);
  if (ifMatch !== undefined && match === undefined)
    faults.push(`ifMatch: expected * or a list of entity tags, got ${describe(ifMatch)}`);
  // An older service would ignore it, and create the plant.
  else if (ifMatch !== undefined && removed === undefined && !isUpsert)
    faults.push("ifMatch: expected nothing, except with removed or in a batch with ?upsert=true");
  if (removed === true)
    // An older service would ignore `removed`, and create the plant.
    for (const name of ["name", "tag"] as const)
      if (members[name] !== undefined)
        faults.push(`${name}: expected nothing, with removed, got ${describe(members[name])}`);
  if (faults.length > 0) throw new Refusal("invalid_plant", faults.join("; "));
  if (removed !== true) {
    const plant = toNewPlant(text, members);
    return { kind: "upsert", id: plant.id, plant, condition: { match } };
  }
  const written = readId(text, members);
  if (written.id === undefined)
    throw refuseFaults(findFaults(undefined, "", undefined), {}, written.text);
  const isLenient = isUpsert || undefined;
  return { kind: "remove", id: written.id, condition: { match }, isLenient };
}

/** Parses a merge patch. Throws a Refusal that names every fault. */
export function parsePatch(value: unknown): Patch {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new Refusal("invalid_body", `body: expected an object, got ${describe(value)}`);
  const { name, tag } = value as Readonly<Record<string, unknown>>;
  const expected = findFaults(0n, name ?? (name === null ? null : ""), tag ?? undefined);
  const faults = Object.keys(value).flatMap((member) => {
    if (member === "id") return "id: expected nothing: the id of a plant never changes";
    if (member !== "name" && member !== "tag")
      return `${describe(member)}: unknown; allowed: name, tag`;
    return [];
  });
  if (expected.name !== undefined)
    faults.push(`name: expected ${expected.name}, got ${describe(name)}`);
  if (expected.tag !== undefined)
    faults.push(`tag: expected ${expected.tag}, or null to remove it, got ${describe(tag)}`);
  if (faults.length > 0) throw new Refusal("invalid_body", joinFaults(faults));
  return value;
}

export const parsePatchText = (text: string): Patch => parsePatch(parseJson(text));
