/** A second opinion on bodies and ids: slow, written another way than the service, and exact. What is JSON is the runtime's to say. */

import type { StoredPlant } from "./plants.ts";

const INT64_MIN = -(2n ** 63n);
const INT64_MAX = 2n ** 63n - 1n;

/** More zeros than this make any number but 0 too large. */
const ZEROS_MAX = 40n;

/** The int64 that the number's text denotes, by exact arithmetic with a numerator and a power of ten. */
export function findInt64ByOracle(text: string): bigint | undefined {
  const [mantissa = "", exponent = "0"] = text.toLowerCase().split("e");
  const [whole = "", fraction = ""] = mantissa.split(".");
  const numerator = BigInt(whole.replace("-", "") + fraction) * (whole.startsWith("-") ? -1n : 1n);
  const power = BigInt(exponent.replace("+", "")) - BigInt(fraction.length);
  if (numerator === 0n) return 0n;
  if (power > ZEROS_MAX) return undefined;
  // The numerator has fewer digits than the text has characters: nothing whole would be left of it.
  if (power < -BigInt(text.length)) return undefined;
  if (power < 0n && numerator % 10n ** -power !== 0n) return undefined;
  const value = power < 0n ? numerator / 10n ** -power : numerator * 10n ** power;
  return value < INT64_MIN || value > INT64_MAX ? undefined : value;
}

/** The text of a number in JSON, which a double might not hold. */
class NumberText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** Undefined where the text is not JSON. */
function readJson(text: string): unknown {
  try {
    // The third argument is newer than the types.
    const keepNumbers = (
      ...[, value, context]: [string, unknown, { source?: string }?]
    ): unknown => (typeof value === "number" ? new NumberText(context?.source ?? "") : value);
    return JSON.parse(text, keepNumbers);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** The plant that a body asks for, or undefined where it is not UTF-8, not JSON or not a plant. */
export function findPlantByOracle(body: Uint8Array): StoredPlant | undefined {
  const text = Buffer.from(body).toString("utf8");
  if (!Buffer.from(text, "utf8").equals(body)) return undefined;
  const value = readJson(text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const members = new Map<string, unknown>(Object.entries(value));
  const [id, name, tag] = ["id", "name", "tag"].map((key) => members.get(key));
  const exactId = id instanceof NumberText ? findInt64ByOracle(id.text) : undefined;
  if (exactId === undefined || !isStorable(name)) return undefined;
  if (members.has("tag") && !isStorable(tag)) return undefined;
  return { id: exactId, name, tag: (tag as string | undefined) ?? null };
}

/** U+0000, and either half of a surrogate pair without the other. */
const UNSTORABLE = /\0|[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/;

const isStorable = (value: unknown): value is string =>
  typeof value === "string" && !UNSTORABLE.test(value);
