/** What a plant is: the one schema that gives its type, its check, its error messages and its description. */

import { Check, Compile } from "typebox/schema";
import { Refusal } from "./error.ts";
import { findInt64, INT64_MAX, INT64_MIN } from "./int64.ts";

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

export interface NewPlant {
  readonly id: bigint;
  readonly name: string;
  readonly tag: string | undefined;
}

const newPlantCheck = Compile(NewPlantSchema);

/** UTF-8 cannot hold an unpaired surrogate, PostgreSQL cannot hold U+0000: both engines hold the rest. */
const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes("\0");

/**
 * A number that is written with a fraction or an exponent somewhere in the text. JSON.parse rounds
 * such a number before anyone can look (1e-400 becomes the integer 0), so its text has to be read.
 */
const INEXACT_NOTATION = /\d[.eE]/;

/** Parses the text of a request body. Throws a Refusal that names every fault. */
export function parseNewPlant(text: string): NewPlant {
  const value = parseJson(text);
  if (!newPlantCheck.Check(value) || !Number.isSafeInteger(value.id) || INEXACT_NOTATION.test(text))
    return parseNewPlantExactly(text);
  const { id, name, tag } = value;
  if (!isStorable(name) || (tag !== undefined && !isStorable(tag)))
    return parseNewPlantExactly(text);
  return { id: BigInt(id), name, tag };
}

/** The number of the JSON text, before rounding. */
class JsonNumber {
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }
}

function keepNumberSource(_key: string, value: unknown, context: { source: string }): unknown {
  return typeof value === "number" ? new JsonNumber(context.source) : value;
}

/** Slower by the second parse; only for ids that a double cannot be trusted with, and for faulty bodies. */
function parseNewPlantExactly(text: string): NewPlant {
  const value = parseJson(text, keepNumberSource);
  if (typeof value !== "object" || value === null || Array.isArray(value) || isNumber(value))
    throw new Refusal("invalid_plant", `body: expected an object, got ${describe(value)}`);

  const { id, name, tag } = value as Record<string, unknown>;
  const exactId = isNumber(id) ? findInt64(id.source) : undefined;
  const faults: string[] = [];
  if (exactId === undefined) faults.push(fault("id", integerExpected, id));
  if (!isText(name)) faults.push(textFault("name", name));
  if (tag !== undefined && !isText(tag)) faults.push(textFault("tag", tag));
  if (faults.length > 0) throw new Refusal("invalid_plant", faults.join("; "));
  return { id: exactId as bigint, name: name as string, tag: tag as string | undefined };
}

const isText = (value: unknown): boolean =>
  Check(PlantSchema.properties.name, value) && isStorable(value);

const integerExpected = `an integer from ${INT64_MIN} to ${INT64_MAX}`;

const isNumber = (value: unknown): value is JsonNumber => value instanceof JsonNumber;

function fault(field: string, expected: string, came: unknown): string {
  return `${field}: expected ${expected}, got ${describe(came)}`;
}

function textFault(field: string, came: unknown): string {
  const expected =
    typeof came === "string" ? "text without U+0000 and unpaired surrogates" : "a string";
  return fault(field, expected, came);
}

/** What came, in few words: a message stays short however large the body was. */
function describe(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (isNumber(value)) return clip(value.source);
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return "an object";
  if (typeof value !== "string") return JSON.stringify(value);
  if (value.includes("\0")) return "a string with U+0000";
  if (!value.isWellFormed()) return "a string with an unpaired surrogate";
  return `the string ${JSON.stringify(clip(value))}`;
}

const DESCRIBED_CHARACTERS_MAX = 40;

function clip(text: string): string {
  if (text.length <= DESCRIBED_CHARACTERS_MAX) return text;
  return `${text.slice(0, DESCRIBED_CHARACTERS_MAX).toWellFormed()}…`;
}

type Reviver = (key: string, value: unknown, context: { source: string }) => unknown;

function parseJson(text: string, reviver?: Reviver): unknown {
  if (text === "") throw new Refusal("invalid_json", "The body is empty; expected a JSON object.");
  try {
    // The library's type of a reviver does not know the third argument yet.
    return JSON.parse(text, reviver as ((key: string, value: unknown) => unknown) | undefined);
  } catch (error) {
    // Reviving recurses, so that a body of nothing but brackets runs out of stack.
    if (error instanceof RangeError)
      throw new Refusal("invalid_json", "The body is nested too deeply.", error);
    if (error instanceof SyntaxError) throw new Refusal("invalid_json", explain(error), error);
    throw error;
  }
}

function explain(error: SyntaxError): string {
  return `The body is not valid JSON: ${clip(error.message.replace("JSON Parse error: ", ""))}.`;
}
