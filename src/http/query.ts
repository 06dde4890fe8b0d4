/** The query of a URL. Everything unknown, repeated or odd is refused, and one answer names all of it. */

import { type ChangeQuery, type ChangeType, changeTypes } from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import { findPlainInt64, INT64_MAX, INT64_MIN } from "../domain/json.ts";
import {
  type CountQuery,
  type Order,
  orders,
  type PlantQuery,
  splitWords,
  type TagQuery,
  WORDS_MAX,
} from "../domain/page.ts";
import { isStorable } from "../domain/plant.ts";

export const LIMIT_DEFAULT = 100;
export const LIMIT_MAX = 1000;

/** A stream has no pages, so it has no limit. */
export function parsePlantQuery(url: string, isStream: boolean): PlantQuery {
  const given = new Parameters(url, ["limit", "after", "tag", "name", "q", "order"]);
  const query: PlantQuery = {
    limit: given.limit(isStream),
    after: given.take<bigint | undefined>("after", (text) => parseInt64("after", text), undefined),
    tag: given.text("tag"),
    name: given.text("name"),
    q: given.take<string | undefined>("q", parseWords, undefined),
    order: given.take<Order>("order", parseOrder, "asc"),
  };
  given.requireSound();
  return query;
}

export function parseCountQuery(url: string): CountQuery {
  const given = new Parameters(url, ["tag", "name", "q"]);
  const query: CountQuery = {
    tag: given.text("tag"),
    name: given.text("name"),
    q: given.take<string | undefined>("q", parseWords, undefined),
  };
  given.requireSound();
  return query;
}

/** A text without words filters nothing. */
function parseWords(text: string): string | undefined | Fault {
  const { length } = splitWords(text);
  if (length > WORDS_MAX) return Fault.of("q", `at most ${WORDS_MAX} words`, text);
  return length === 0 ? undefined : text;
}

export function parseTagQuery(url: string): TagQuery {
  const given = new Parameters(url, ["prefix", "after", "limit"]);
  const query: TagQuery = {
    prefix: given.text("prefix") ?? "",
    after: given.text("after"),
    limit: given.limit(false),
  };
  given.requireSound();
  return query;
}

/** The query of the page that begins after this id or tag. Its filters are written as the client wrote them. */
export function formatNextQuery(url: string, limit: number, after: string): string {
  const filters = splitPairs(url)
    .filter(([name]) => name !== "after" && name !== "limit")
    // RFC 8288: the link ends at the first one.
    .map(([, , pair]) => pair.replaceAll(">", "%3E"));
  return [`after=${encodeURIComponent(after)}`, `limit=${limit}`, ...filters].join("&");
}

/** Throws a Refusal unless the URL of any next page is within the limit, so every link can be followed. */
export function requireRoomForNext(url: string, afterBytesMax: number, urlBytesMax: number): void {
  const start = url.indexOf("?");
  if (start === -1 || url.length + afterBytesMax + LIMIT_BYTES_MAX <= urlBytesMax) return;
  const longest = formatNextQuery(url, LIMIT_MAX, "9".repeat(afterBytesMax));
  if (start + 1 + longest.length > urlBytesMax)
    throw new Refusal(
      "url_too_long",
      "The URL of a next page would be longer than this service reads.",
    );
}

/** Of the names and marks that a next link may add. */
const LIMIT_BYTES_MAX = "after=&limit=1000&".length;

/** A client that reconnects sends the number of the last event that it has seen in a header. */
export function parseChangeQuery(
  url: string,
  isStream: boolean,
  lastEventId: string | null,
): ChangeQuery {
  const given = new Parameters(url, ["after", "limit", "id", "type"]);
  const after = given.take("after", (text) => parseNumber("after", text), 0);
  const query: ChangeQuery = {
    after: given.check(lastEventId === null ? after : parseNumber("Last-Event-ID", lastEventId), 0),
    limit: given.limit(isStream),
    id: given.take<bigint | undefined>("id", (text) => parseInt64("id", text), undefined),
    types: given.take<ChangeQuery["types"]>("type", parseTypes, undefined),
  };
  given.requireSound();
  return query;
}

function parseNumber(name: string, text: string): number | Fault {
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isSafeInteger(value)) return value;
  return Fault.of(name, `an integer from 0 to ${Number.MAX_SAFE_INTEGER}`, text);
}

function parseTypes(text: string): readonly ChangeType[] | Fault {
  const types = text.split(",");
  if (types.every(isChangeType) && new Set(types).size === types.length) return types;
  return Fault.of("type", `${changeTypes.join(", ")}, or several of them with commas`, text);
}

const isChangeType = (text: string): text is ChangeType =>
  (changeTypes as readonly string[]).includes(text);

/** For operations without parameters. */
export function requireNoQuery(url: string): void {
  new Parameters(url, []).requireSound();
}

/** The client wants activity after this time; 0 means all of it. */
export function parseSince(url: string): number {
  const given = new Parameters(url, ["since"]);
  const since = given.take("since", parseTime, 0);
  given.requireSound();
  return since;
}

function parseLimit(text: string): number | Fault {
  const limit = /^\d{1,4}$/.test(text) ? Number(text) : 0;
  if (limit >= 1 && limit <= LIMIT_MAX) return limit;
  return Fault.of("limit", `an integer from 1 to ${LIMIT_MAX}`, text);
}

function refuseLimit(): Fault {
  return new Fault("limit: not allowed with a stream, which has no pages");
}

function parseInt64(name: string, text: string): bigint | Fault {
  return (
    findPlainInt64(text) ?? Fault.of(name, `an integer from ${INT64_MIN} to ${INT64_MAX}`, text)
  );
}

function parseOrder(text: string): Order | Fault {
  return orders.find((known) => known === text) ?? Fault.of("order", orders.join(" or "), text);
}

function parseTime(text: string): number | Fault {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  return Fault.of("since", "milliseconds since 1970", text);
}

const SHOWN_CHARACTERS_MAX = 40;

/** What is wrong with a parameter. */
class Fault {
  readonly message: string;

  constructor(message: string) {
    this.message = message;
  }

  static of(name: string, expected: string, came: string): Fault {
    const shown = JSON.stringify(came.slice(0, SHOWN_CHARACTERS_MAX));
    return new Fault(`${name}: expected ${expected}, got ${shown}`);
  }
}

type Parse<Value> = (text: string) => Value | Fault;

class Parameters<Name extends string> {
  private readonly known: readonly Name[];
  private readonly given: Partial<Record<Name, string>> = {};
  private readonly faults: string[] = [];

  constructor(url: string, known: readonly Name[]) {
    this.known = known;
    for (const [name, value, pair] of splitPairs(url)) this.add(name, value, pair);
  }

  /** Any text, as it is. */
  text(name: Name): string | undefined {
    return this.given[name];
  }

  limit(isStream: boolean): number {
    return isStream
      ? this.take("limit" as Name, refuseLimit, LIMIT_MAX)
      : this.take("limit" as Name, parseLimit, LIMIT_DEFAULT);
  }

  take<Value>(name: Name, parse: Parse<Value>, fallback: Value): Value {
    const text = this.given[name];
    return this.check(text === undefined ? fallback : parse(text), fallback);
  }

  check<Value>(value: Value | Fault, fallback: Value): Value {
    if (!(value instanceof Fault)) return value;
    this.faults.push(value.message);
    return fallback;
  }

  /** Called when all parameters are taken. Throws a Refusal that names every fault. */
  requireSound(): void {
    if (this.faults.length > 0) throw new Refusal("invalid_query", this.faults.join("; "));
  }

  private add(name: string | undefined, value: string | undefined, pair: string): void {
    if (!this.isKnown(name))
      this.faults.push(
        `${JSON.stringify((name ?? pair.replace(/=.*/s, "")).slice(0, SHOWN_CHARACTERS_MAX))}: unknown; known are ${this.known.join(", ") || "none"}`,
      );
    else if (value === undefined)
      this.faults.push(`${name}: expected UTF-8 without U+0000, percent-encoded`);
    else if (this.given[name] !== undefined) this.faults.push(`${name}: given more than once`);
    else this.given[name] = value;
  }

  private isKnown(name: string | undefined): name is Name {
    return this.known.includes(name as Name);
  }
}

type Pair = readonly [name: string | undefined, value: string | undefined, pair: string];

/** Each pair as it was sent, with its name and value if they can be decoded. */
function splitPairs(url: string): Pair[] {
  const start = url.indexOf("?");
  const pairs = start === -1 ? [] : url.slice(start + 1).split("&");
  return pairs
    .filter((pair) => pair !== "")
    .map((pair): Pair => {
      const equals = pair.includes("=") ? pair.indexOf("=") : pair.length;
      return [decode(pair.slice(0, equals)), decode(pair.slice(equals + 1)), pair];
    });
}

/** Decoding would not change it. */
const PLAIN = /^[\w.-]*$/;

/** The platform's own parser would silently replace invalid bytes. */
function decode(text: string): string | undefined {
  if (PLAIN.test(text)) return text;
  try {
    const decoded = decodeURIComponent(text.replaceAll("+", " "));
    return isStorable(decoded) ? decoded : undefined;
  } catch {
    return undefined;
  }
}
