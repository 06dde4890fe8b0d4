/** JSON without rounding: the value of a text, with its numbers as they were written. */

import { Refusal } from "./error.ts";

/** A number of the JSON text, before it becomes a double. */
export class JsonNumber {
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }
}

export const isNumber = (value: unknown): value is JsonNumber => value instanceof JsonNumber;

/** Numbers come as doubles, rounded. Throws a Refusal where the text is no JSON. */
export function parseJson(text: string): unknown {
  return parse(text, undefined);
}

/** Numbers come as JsonNumbers. Slower: the parser calls back for every value. */
export function parseJsonExactly(text: string): unknown {
  return parse(text, keepNumberSource);
}

type Reviver = (key: string, value: unknown, context: { source: string }) => unknown;

const keepNumberSource: Reviver = (_key, value, context) =>
  typeof value === "number" ? new JsonNumber(context.source) : value;

function parse(text: string, reviver: Reviver | undefined): unknown {
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

/** What came, in few words: a message stays short however large the body was. */
export function describe(value: unknown): string {
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
