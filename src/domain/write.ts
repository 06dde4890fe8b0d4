/** Writes of plants: every kind, and how it is parsed. */

import type { Writer } from "./change.ts";
import { Refusal } from "./errors.ts";
import { type Condition, findEntityTags } from "./entity-tag.ts";
import { contentRule, findFault, findFaults, type PlantLimits, toFaults } from "./faults.ts";
import { isAmong } from "./filter.ts";
import { describe, isObject, parseJson } from "./json.ts";
import { applyRules, joinFaults } from "./members.ts";
import { parseObject, type Plant, readId, refuseFaults, refusePlant, toNewPlant } from "./plant.ts";

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
type Update = Put | Patching | Remove;
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

/** The writes of one transaction. `refusal` is about the line after them, which could not be read. */
export interface AtomicWrite {
  readonly kind: "atomic";
  readonly writes: readonly PlantWrite[];
  readonly refusal?: Pick<Refusal, "reason" | "message"> | undefined;
}

/** All writes of an atomic one have the same. */
export const findWriter = (write: PlantWrite | AtomicWrite): Writer | undefined =>
  (write.kind === "atomic" ? write.writes[0] : write)?.writer;

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
    throw refuseFaults(findFaults(undefined, "", undefined, undefined), {}, written.text);
  const isLenient = isUpsert || undefined;
  return { kind: "remove", id: written.id, condition: { match }, isLenient };
}

const tagRule = contentRule("tag");

/** A member that is left out stays as it is. */
export const patchRules = {
  name: { ...contentRule("name"), optional: true },
  tag: {
    optional: true,
    expected: (value: unknown) => `${tagRule.expected(value)}, or null to remove it`,
    find: (value: unknown) => (value === null ? null : tagRule.find(value)),
  },
};

/** Parses a merge patch. Throws a Refusal that names every fault. */
export function parsePatch(value: unknown): Patch {
  if (!isObject(value))
    throw new Refusal("invalid_body", `body: expected an object, got ${describe(value)}`);
  const faults = Object.keys(value).flatMap((member) => {
    if (member === "id") return "id: expected nothing: the id of a plant never changes";
    if (Object.hasOwn(patchRules, member)) return [];
    return `${describe(member)}: unknown; allowed: ${Object.keys(patchRules).join(", ")}`;
  });
  applyRules(patchRules, value, faults, describe);
  if (faults.length > 0) throw new Refusal("invalid_body", joinFaults(faults));
  return value;
}

/** Why each plant would be refused that gets this. What it leaves alone was judged when it was stored. */
export function refusePatch(patch: Patch, limits: PlantLimits): Refusal | undefined {
  const { name, tag } = patch;
  const ofName = name === undefined ? undefined : findFault("name", name, limits);
  const ofTag = (tag ?? undefined) === undefined ? undefined : findFault("tag", tag, limits);
  const faults = toFaults(undefined, ofName, ofTag);
  return faults && refuseFaults(faults, patch, "");
}

/** Every write passes here, in the store and in dry runs, whichever way it came in. It depends on no stored plant. */
export const refuseWrite = (write: PlantWrite, limits: PlantLimits): Refusal | undefined =>
  (write.kind === "patch"
    ? refusePatch(write.patch, limits)
    : write.plant && refusePlant(write.plant, limits)) ?? refuseTag(write);

/** A confined writer leaves every plant with one of its tags. A patch without a tag leaves the one that it finds. */
function refuseTag({ kind, plant, patch, writer }: PlantWrite & { readonly patch?: Patch }) {
  if (writer?.within === undefined || kind === "remove") return undefined;
  const tag = kind === "patch" ? patch?.tag : plant?.tag;
  const isKept = kind === "patch" && tag === undefined;
  if (isKept || isAmong(writer.within, tag ?? undefined)) return undefined;
  return new Refusal("tag_not_permitted");
}

export const parsePatchText = (text: string): Patch => parsePatch(parseJson(text));
