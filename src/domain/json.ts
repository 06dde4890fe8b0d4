/** Exact JSON: parsing within bounds, ids in all their digits, and values described in messages. */

import { Refusal } from "./errors.ts";

/** Nested brackets are slow to parse. */
const DEPTH_MAX = 1_000;
/** A small value takes up to 80 bytes once parsed: 1 MB of empty arrays takes 30 MB. Plants are less dense. */
const DENSE_VALUES_MAX = 10_000;
const DENSE_CHARACTERS = 6;

/** Numbers become doubles, possibly rounded. Throws a Refusal if the text is not JSON; `subject` is what it names. */
export function parseJson(text: string, subject = "The body"): unknown {
  if (text === "")
    throw new Refusal("invalid_json", `${subject} is empty; expected a JSON object.`);
  if (text.length > 2 * DEPTH_MAX) requireBounds(text, subject);
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError)
      throw new Refusal("invalid_json", `${subject} ${explainSyntax(text, error)}`, error);
    throw error;
  }
}

function explainSyntax(text: string, error: SyntaxError): string {
  // RFC 8259, section 8.1: JSON on the wire has no byte order mark.
  if (text.startsWith("\uFEFF"))
    return "begins with a byte order mark (U+FEFF); send JSON without one.";
  return `is not valid JSON: ${clip(error.message.replace("JSON Parse error: ", ""))}.`;
}

function requireBounds(text: string, subject: string): void {
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
      throw new Refusal("invalid_json", `${subject} is nested deeper than ${DEPTH_MAX} levels.`);
  }
  if (values > DENSE_VALUES_MAX && values * DENSE_CHARACTERS > text.length)
    throw new Refusal(
      "invalid_json",
      `${subject} has ${values} values in ${text.length} characters: more than ${DENSE_VALUES_MAX} values need at least ${DENSE_CHARACTERS} characters each on average.`,
    );
}

/** A quote after a brace or a comma opens a key: one that closed a string would not be followed by a name. */
const ID_NUMBERS = /([{,]\s*"(?:i|\\u0069)(?:d|\\u0064)"\s*:\s*)(-?\d[\d.eE+-]*)/g;

/** Makes every `id` in valid JSON a string of its digits. */
export const quoteIds = (json: string): string => json.replace(ID_NUMBERS, '$1"$2"');

/** The `id` of an object in valid JSON, as written. A reviver would be called for every number in the text. */
export const readIdText = (json: string): string =>
  (JSON.parse(quoteIds(json)) as { readonly id: string }).id;

/** The types of TypeScript lack it. */
const exactJson = JSON as JSON & { rawJSON(text: string): unknown };

/** For JSON.stringify, which writes it in exact digits. */
export const toJsonId = (id: bigint | number): unknown =>
  Number.isSafeInteger(Number(id)) ? Number(id) : exactJson.rawJSON(String(id));

/** Writes ids in exact digits. */
export const formatJson = (value: unknown, indent?: number): string =>
  JSON.stringify(
    value,
    (_, part: unknown) => (typeof part === "bigint" ? toJsonId(part) : part),
    indent,
  );

export const INT64_MIN = -(2n ** 63n);
export const INT64_MAX = 2n ** 63n - 1n;

const DIGITS_MAX = 19;
/** Matches only at the first zero of a run: without the lookbehind, inner runs would take quadratic time. */
const TRAILING_ZEROS = /(?<!0)0+$/;
const JSON_NUMBER = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/;

/** In JSON Schema, 1.0 and 1e2 are integers. Takes linear time, however large the exponent. */
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

/** Accepts only the canonical form, so each plant has one URL. */
export function findPlainInt64(text: string): bigint | undefined {
  const value = findInt64(text);
  return String(value) === text ? value : undefined;
}

export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The received value, for a message that stays short however large the body was. */
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
