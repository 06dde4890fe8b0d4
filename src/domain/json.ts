/** JSON without rounding: an int64 survives, and what went wrong is described in few words. */

import { Refusal } from "./errors.ts";

/** Parsing takes ten times as long for a body of brackets as for other text. */
const DEPTH_MAX = 1_000;
/**
 * A small value takes up to 80 bytes of memory when it is parsed, however few characters it has: 1 MB of empty arrays
 * takes 30. Any number of plants is less dense than this.
 */
const DENSE_VALUES_MAX = 10_000;
const DENSE_CHARACTERS = 6;

/** Numbers come as doubles, possibly rounded. Throws a Refusal if the text is not JSON. */
export function parseJson(text: string): unknown {
  if (text === "") throw new Refusal("invalid_json", "The body is empty; expected a JSON object.");
  if (text.length > 2 * DEPTH_MAX) requireBounds(text);
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError)
      throw new Refusal("invalid_json", explain(text, error), error);
    throw error;
  }
}

function explain(text: string, error: SyntaxError): string {
  // RFC 8259, section 8.1: JSON on the wire has no byte order mark.
  if (text.startsWith("\uFEFF"))
    return "The body begins with a byte order mark (U+FEFF); send JSON without one.";
  return `The body is not valid JSON: ${clip(error.message.replace("JSON Parse error: ", ""))}.`;
}

/** The text may be anything. */
function requireBounds(text: string): void {
  let depth = 0;
  let values = 0;
  let isInString = false;
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === '"') isInString = !isInString;
    else if (isInString) at += character === "\\" ? 1 : 0;
    else if (character === ",") values++;
    else if (character === "[" || character === "{") {
      depth++;
      values++;
    } else if (character === "]" || character === "}") depth--;
    if (depth > DEPTH_MAX)
      throw new Refusal("invalid_json", `The body is nested deeper than ${DEPTH_MAX} levels.`);
  }
  if (values > DENSE_VALUES_MAX && values * DENSE_CHARACTERS > text.length)
    throw new Refusal(
      "invalid_json",
      `The body has ${values} values in ${text.length} characters: beyond ${DENSE_VALUES_MAX} values, each takes at least ${DENSE_CHARACTERS} on average.`,
    );
}

/** A quote behind a brace or a comma begins a name: a text that it ended would be followed by something else. */
const ID_NUMBERS = /([{,]\s*"(?:i|\\u0069)(?:d|\\u0064)"\s*:\s*)(-?\d[\d.eE+-]*)/g;

/**
 * The text of the number that an object has as its `id`. The text must be the valid JSON of such an object.
 *
 * JSON.parse with a reviver would find it too, but it calls back for every value of the body: half a second for 1 MB of
 * small numbers.
 */
export function readIdText(json: string): string {
  return (JSON.parse(json.replace(ID_NUMBERS, '$1"$2"')) as { readonly id: string }).id;
}

/** TypeScript does not know it yet. */
const exactJson = JSON as JSON & { rawJSON(text: string): unknown };

/** Writes ids as exact digits. */
export const formatJson = (value: unknown, indent?: number): string =>
  JSON.stringify(
    value,
    (_, part: unknown) => (typeof part === "bigint" ? exactJson.rawJSON(String(part)) : part),
    indent,
  );

export const INT64_MIN = -(2n ** 63n);
export const INT64_MAX = 2n ** 63n - 1n;

const DIGITS_MAX = 19;
/** Only from the first of a run on: from each of them, a run that does not end the text would take a square of its length. */
const TRAILING_ZEROS = /(?<!0)0+$/;
const JSON_NUMBER = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/;

/**
 * The int64 that a JSON number denotes; undefined if it denotes a fraction or is out of range.
 * By JSON Schema `1.0` and `1e2` are integers, so the value decides and not the notation.
 *
 * The work is linear in the length of the text whatever the exponent says: zeros are written out only
 * once it is known that there are at most 19 digits.
 */
export function findInt64(jsonNumber: string): bigint | undefined {
  const match = JSON_NUMBER.exec(jsonNumber);
  if (match === null) return undefined;
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = match;

  const digits = (whole + fraction).replace(/^0+/, "");
  if (digits === "") return 0n;
  const significant = digits.replace(TRAILING_ZEROS, "");
  const zerosAfter = Number(exponent) - fraction.length + (digits.length - significant.length);
  if (zerosAfter < 0 || significant.length + zerosAfter > DIGITS_MAX) return undefined;

  const value = BigInt(sign + significant + "0".repeat(zerosAfter));
  return value >= INT64_MIN && value <= INT64_MAX ? value : undefined;
}

/** Each integer is written in one way only, so each plant has one URL. */
export function findPlainInt64(text: string): bigint | undefined {
  const value = findInt64(text);
  return String(value) === text ? value : undefined;
}

/** What came instead, in few words: a message stays short however large the body was. */
export function describe(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return "an object";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value !== "string") return typeof value;
  if (value.includes("\0")) return "a string with U+0000";
  if (!value.isWellFormed()) return "a string with an unpaired surrogate";
  return `the string ${JSON.stringify(clip(value))}`;
}

const DESCRIBED_CHARACTERS_MAX = 40;

export function clip(text: string): string {
  if (text.length <= DESCRIBED_CHARACTERS_MAX) return text;
  return `${text.slice(0, DESCRIBED_CHARACTERS_MAX).toWellFormed()}…`;
}

const FAULTS_MAX = 32;

/** All of them, unless a client has made up many. */
export function joinFaults(faults: readonly string[]): string {
  const rest = faults.length - FAULTS_MAX;
  const shown = faults.slice(0, FAULTS_MAX);
  return [...shown, ...(rest > 0 ? [`and ${rest} more`] : [])].join("; ");
}

/** What a member of a body has to be. */
export interface Rule<Value> {
  readonly expected: string;
  /** Undefined for a value that is not allowed. */
  readonly find: (value: unknown) => Value | undefined;
  readonly optional?: boolean;
}

/** A member that is null counts as left out. A misspelt one is refused, because its effect would be missing. */
export function parseMembers<Values extends object>(
  given: unknown,
  rules: { readonly [Name in keyof Values]: Rule<Values[Name]> },
  defaults: Readonly<Record<string, unknown>> = {},
): Values {
  if (typeof given !== "object" || given === null || Array.isArray(given))
    throw new Refusal("invalid_body", `body: expected an object, got ${describe(given)}`);
  const known = Object.keys(rules);
  const faults = Object.keys(given)
    .filter((name) => !known.includes(name))
    .map((name) => `${describe(name)}: unknown; known are ${known.join(", ")}`);
  const sent = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null));
  const members: Record<string, unknown> = { ...defaults, ...sent };
  for (const [name, { expected, find, optional }] of Object.entries<Rule<unknown>>(rules)) {
    const value = members[name];
    if (value === undefined && optional === true) continue;
    members[name] = find(value);
    if (members[name] === undefined)
      faults.push(`${name}: expected ${expected}, got ${describe(value)}`);
  }
  if (faults.length > 0) throw new Refusal("invalid_body", joinFaults(faults));
  return members as Values;
}
