/** What a plant is: the one schema that gives its type, its check, its error messages and its description. */

import { Refusal } from "./error.ts";
import { findInt64, INT64_MAX, INT64_MIN } from "./int64.ts";
import { describe, isNumber, parseJson, parseJsonExactly } from "./json.ts";
import { compileCheck } from "./schema.ts";

export const PlantSchema = {
  type: "object",
  required: ["name"],
  properties: {
    name: {
      type: "string",
      description:
        "The name of the plant. Any string, the empty one too, without U+0000 and unpaired surrogates.",
    },
    tag: {
      type: "string",
      description:
        "Tag that specifies the type. The same rules as for the name; left out, and never null, where there is none.",
    },
  },
} as const;

export const NewPlantSchema = {
  type: "object",
  required: ["id", ...PlantSchema.required],
  properties: {
    id: {
      type: "integer",
      format: "int64",
      description: `Identification number of the plant: any integer from ${INT64_MIN} to ${INT64_MAX}, kept exactly.`,
    },
    ...PlantSchema.properties,
  },
} as const;

/** A plant as the store holds it. Its id never changes. */
export interface Plant {
  readonly id: bigint;
  readonly name: string;
  readonly tag: string | undefined;
}

const isNewPlant = compileCheck(NewPlantSchema);
const isName = compileCheck(PlantSchema.properties.name);

/** UTF-8 cannot hold an unpaired surrogate, PostgreSQL cannot hold U+0000: both engines hold the rest. */
export const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes("\0");

/**
 * A number that is written with a fraction or an exponent somewhere in the text. JSON.parse rounds
 * such a number before anyone can look (1e-400 becomes the integer 0), so its text has to be read.
 */
const INEXACT_NOTATION = /\d[.eE]/;

/** Parses a NewPlant. Throws a Refusal that names every fault. */
export function parseNewPlant(text: string): Plant {
  const value = parseJson(text);
  if (!isNewPlant(value) || !Number.isSafeInteger(value.id) || INEXACT_NOTATION.test(text))
    return parseNewPlantExactly(text);
  const { id, name, tag } = value;
  if (!isStorable(name) || (tag !== undefined && !isStorable(tag)))
    return parseNewPlantExactly(text);
  return { id: BigInt(id), name, tag };
}

/** Slower by the second parse; only for ids that a double cannot be trusted with, and for faulty bodies. */
function parseNewPlantExactly(text: string): Plant {
  const { id, name, tag } = parseMembers(text);
  const exactId = isNumber(id) ? findInt64(id.source) : undefined;
  const idFaults = exactId === undefined ? [fault("id", integerExpected, id)] : [];
  return toPlant(exactId, name, tag, idFaults);
}

/** Parses what is to replace the plant of this id: a Plant, whose id may stand in it but not differ. */
export function parseReplacement(text: string, id: bigint): Plant {
  const { id: repeated, name, tag } = parseMembers(text);
  const differs =
    repeated !== undefined && !(isNumber(repeated) && findInt64(repeated.source) === id);
  const idFaults = differs ? [fault("id", `${id}, as in the path, or nothing`, repeated)] : [];
  return toPlant(id, name, tag, idFaults);
}

/** Parses a plant whose members are texts, as those of a spreadsheet's row are. */
export function parseTexts(id: string, name: string | undefined, tag: string | undefined): Plant {
  const exactId = findInt64(id.trim());
  const idFaults = exactId === undefined ? [fault("id", integerExpected, id)] : [];
  return toPlant(exactId, name, tag, idFaults);
}

function parseMembers(text: string): Readonly<Record<"id" | "name" | "tag", unknown>> {
  const value = parseJsonExactly(text);
  if (typeof value === "object" && value !== null && !Array.isArray(value) && !isNumber(value))
    return value as Record<"id" | "name" | "tag", unknown>;
  throw new Refusal("invalid_plant", `body: expected an object, got ${describe(value)}`);
}

function toPlant(id: bigint | undefined, name: unknown, tag: unknown, idFaults: string[]): Plant {
  const faults = [...idFaults];
  if (!isText(name)) faults.push(textFault("name", name));
  if (tag !== undefined && !isText(tag)) faults.push(textFault("tag", tag));
  if (faults.length > 0) throw new Refusal("invalid_plant", faults.join("; "));
  return { id: id as bigint, name: name as string, tag: tag as string | undefined };
}

const isText = (value: unknown): boolean => isName(value) && isStorable(value);

const integerExpected = `an integer from ${INT64_MIN} to ${INT64_MAX}`;

function fault(field: string, expected: string, came: unknown): string {
  return `${field}: expected ${expected}, got ${describe(came)}`;
}

function textFault(field: string, came: unknown): string {
  const expected =
    typeof came === "string" ? "text without U+0000 and unpaired surrogates" : "a string";
  return fault(field, expected, came);
}

/** The shape Plant of the interface, which has no id. */
export function formatPlant({ name, tag }: Plant): string {
  return JSON.stringify({ name, tag });
}

/** With its id, as exact digits: a double could not carry them. */
export function formatStoredPlant({ id, name, tag }: Plant): string {
  const tagMember = tag === undefined ? "" : `,"tag":${JSON.stringify(tag)}`;
  return `{"id":${id},"name":${JSON.stringify(name)}${tagMember}}`;
}

/**
 * A strong entity tag: the same for the same content, and another for any other. No version is
 * kept, because an editor who finds the content that was last seen overwrites nothing unknowingly.
 */
export function entityTagOf(plant: Plant): string {
  return `"${Bun.SHA256.hash(formatStoredPlant(plant), "base64").slice(0, 24)}"`;
}
