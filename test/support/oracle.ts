/** A second opinion on bodies and ids: slow, written another way than the service, and exact. */

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

/** The plant that a body asks for, or undefined where it is not UTF-8, not JSON or not a plant. */
export function findPlantByOracle(body: Uint8Array): StoredPlant | undefined {
  const text = Buffer.from(body).toString("utf8");
  if (!Buffer.from(text, "utf8").equals(body)) return undefined;
  const value = new Reader(text).readWhole();
  if (!(value instanceof Map)) return undefined;
  const [id, name, tag] = ["id", "name", "tag"].map((key) => value.get(key));
  const exactId = id instanceof NumberText ? findInt64ByOracle(id.text) : undefined;
  if (exactId === undefined || !isStorable(name)) return undefined;
  if (value.has("tag") && !isStorable(tag)) return undefined;
  return { id: exactId, name, tag: (tag as string | undefined) ?? null };
}

/** U+0000, and either half of a surrogate pair without the other. */
const UNSTORABLE = /\0|[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/;

const isStorable = (value: unknown): value is string =>
  typeof value === "string" && !UNSTORABLE.test(value);

class NumberText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
// oxlint-disable-next-line no-control-regex -- RFC 8259 names them: no control character stands in a string.
const STRING = /"([^"\\\u0000-\u001f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const WORD = /true|false|null/y;
const words: Readonly<Record<string, boolean | null>> = { true: true, false: false, null: null };

class NotJson extends Error {}

/** RFC 8259 read by its grammar, with numbers left as text and objects as maps. The last of equal keys counts. */
class Reader {
  private position = 0;
  private readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  /** Undefined where the text is not one JSON value. */
  readWhole(): unknown {
    try {
      const value = this.readValue();
      return this.position === this.text.length ? value : undefined;
    } catch (error) {
      if (error instanceof NotJson) return undefined;
      throw error;
    }
  }

  private readValue(): unknown {
    this.take(SPACE);
    const value = this.readBareValue();
    this.take(SPACE);
    return value;
  }

  private readBareValue(): unknown {
    if (this.skip("{")) return new Map(this.readItems("}", () => this.readMember()));
    if (this.skip("[")) return this.readItems("]", () => this.readValue());
    const string = this.take(STRING);
    // A single string is not where parsers differ.
    if (string !== undefined) return JSON.parse(string);
    const number = this.take(NUMBER);
    if (number !== undefined) return new NumberText(number);
    const word = this.take(WORD);
    if (word !== undefined) return words[word];
    throw new NotJson();
  }

  private readItems<Item>(end: string, readItem: () => Item): Item[] {
    this.take(SPACE);
    const items: Item[] = [];
    if (this.skip(end)) return items;
    do items.push(readItem());
    while (this.skip(","));
    if (!this.skip(end)) throw new NotJson();
    return items;
  }

  private readMember(): [string, unknown] {
    this.take(SPACE);
    const key = this.take(STRING);
    this.take(SPACE);
    if (key === undefined || !this.skip(":")) throw new NotJson();
    return [JSON.parse(key) as string, this.readValue()];
  }

  private take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.position;
    const [taken] = pattern.exec(this.text) ?? [];
    this.position += taken?.length ?? 0;
    return taken;
  }

  private skip(character: string): boolean {
    if (this.text[this.position] !== character) return false;
    this.position += 1;
    return true;
  }
}
