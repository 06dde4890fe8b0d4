/** The query of a URL. Everything unknown, repeated or odd is refused, and one answer names all of it. */

import { findForwardedPrefix } from "../domain/address.ts";
import {
  BATCH_EXPECTED,
  type ChangeQuery,
  changeTypes,
  findBatch,
  findChangeTypes,
  joinWriter,
} from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import { findPlainInt64, INT64_MAX, INT64_MIN, joinFaults } from "../domain/json.ts";
import { type FilterName, filterNames, filters } from "../domain/filter.ts";
import { type Order, orders, type PlantQuery } from "../domain/page.ts";
import { isStorable } from "../domain/plant.ts";
import { int64, integer, list, type Shape, text } from "./shape.ts";

/** How a parameter is described and read. */
interface Parameter<Value> extends Shape {
  readonly expected: string;
  /** Undefined for a value that is not allowed; null for one that counts as left out. */
  readonly find: (given: string) => Value | null | undefined;
  readonly fallback: Value;
}

type Known = Readonly<Record<string, Parameter<unknown>>>;
type Values<Names extends Known> = {
  readonly [Name in keyof Names]: Names[Name] extends Parameter<infer Value> ? Value : never;
};

const LIMIT_DEFAULT = 100;
const LIMIT_MAX = 1000;

const limitTo = (description: string): Parameter<number> => ({
  ...integer(undefined, description, { minimum: 1, maximum: LIMIT_MAX, default: LIMIT_DEFAULT }),
  expected: `an integer from 1 to ${LIMIT_MAX}`,
  find: (given) => {
    const limit = /^\d{1,4}$/.test(given) ? Number(given) : 0;
    return limit >= 1 && limit <= LIMIT_MAX ? limit : undefined;
  },
  fallback: LIMIT_DEFAULT,
});

const anyText = (description: string): Parameter<string | undefined> => ({
  ...text(undefined, description),
  expected: "text",
  find: (given) => given,
  fallback: undefined,
});

const anyInt64 = (description: string): Parameter<bigint | undefined> => ({
  ...int64(undefined, description),
  expected: `an integer from ${INT64_MIN} to ${INT64_MAX}`,
  find: findPlainInt64,
  fallback: undefined,
});

const toParameter = ({ meaning, expected, find }: (typeof filters)[FilterName]) => ({
  ...anyText(meaning),
  expected,
  find,
});

export const filterParameters = Object.fromEntries(
  filterNames.map((name) => [name, toParameter(filters[name])]),
) as Record<FilterName, Parameter<string | undefined>>;

export const plantParameters = {
  limit: limitTo("Plants on a page."),
  after: anyInt64("The id of the last plant seen; the page begins after it."),
  ...filterParameters,
  order: {
    ...text(undefined, "By id.", { enum: orders, default: "asc" }),
    expected: orders.join(" or "),
    find: (given: string) => orders.find((known) => known === given),
    fallback: "asc" as Order,
  },
};

export const tagParameters = {
  prefix: { ...anyText("Only tags that begin with this, exactly."), fallback: "" },
  after: anyText("The last tag seen; the page begins after it."),
  limit: limitTo("Tags on a page."),
};

export const tokenParameters = {
  limit: limitTo("Tokens on a page."),
  after: {
    ...text(undefined, "The id of the last token seen; the page begins after it."),
    expected: "16 hexadecimal digits in lower case",
    find: (given: string) => (/^[0-9a-f]{16}$/.test(given) ? given : undefined),
    fallback: undefined,
  },
};

const batch = {
  ...anyText("Only changes of this batch."),
  expected: BATCH_EXPECTED,
  find: findBatch,
};

export const writeParameters = {
  batch: {
    ...batch,
    ...text(undefined, "Names the writes that belong together, for the journal.", {
      minLength: 1,
      maxLength: 100,
    }),
  },
};

export const changeParameters = {
  after: {
    ...int64(
      undefined,
      "The number of the last change seen. 0, or nothing: begin with the oldest that is kept.",
      { minimum: 0, default: 0 },
    ),
    expected: `an integer from 0 to ${Number.MAX_SAFE_INTEGER}`,
    find: (given: string) => {
      const value = /^\d{1,16}$/.test(given) ? Number(given) : Number.NaN;
      return Number.isSafeInteger(value) ? value : undefined;
    },
    fallback: 0,
  },
  limit: limitTo("Changes on a page."),
  id: anyInt64("Only changes of this plant."),
  type: {
    ...list(
      text(undefined, undefined, { enum: changeTypes }),
      "Only these types, separated by commas.",
    ),
    more: { style: "form", explode: false },
    expected: `${changeTypes.join(", ")}, or several of them with commas`,
    find: (given: string) => findChangeTypes(given.split(",")),
    fallback: undefined,
  },
  by: anyText("Only changes by the token of this name."),
  batch,
};

export const activityParameters = {
  since: {
    ...integer(undefined, "Only samples later than this, in milliseconds since 1970.", {
      minimum: 0,
    }),
    expected: "milliseconds since 1970",
    find: (given: string) => (/^\d{1,15}$/.test(given) ? Number(given) : undefined),
    fallback: 0,
  },
};

const noLimit: Parameter<number> = {
  ...limitTo(""),
  expected: "no limit for a stream, which has no pages",
  find: () => undefined,
  fallback: LIMIT_MAX,
};
const plantStreamParameters = { ...plantParameters, limit: noLimit };
const changeStreamParameters = { ...changeParameters, limit: noLimit };

/** For the journal: the name of the token, and the batch that the query names. */
export function nameWriter({ request, token }: Writing): string | undefined {
  // Most writes have no query, and pay nothing for it.
  if (!request.url.includes("?")) return token?.name;
  return joinWriter(token?.name, parseQuery(request.url, writeParameters).batch);
}

interface Writing {
  readonly request: Request;
  readonly token: { readonly name: string } | undefined;
}

export const parsePlantQuery = (url: string, isStream: boolean): PlantQuery =>
  parseQuery(url, isStream ? plantStreamParameters : plantParameters);

/** A client that reconnects sends the number of the last event that it has seen in a header. */
export function parseChangeQuery(
  url: string,
  isStream: boolean,
  lastEventId: string | null,
): ChangeQuery {
  const known = isStream ? changeStreamParameters : changeParameters;
  const seen = lastEventId === null ? null : known.after.find(lastEventId);
  const faults =
    seen === undefined ? [explain("Last-Event-ID", known.after, lastEventId ?? "")] : [];
  const { type: types, after, ...query } = parseQuery(url, known, faults);
  return { ...query, types, after: seen ?? after };
}

/** Throws a Refusal that names every fault, with those that are given. */
export function parseQuery<Names extends Known>(
  url: string,
  known: Names,
  faults: string[] = [],
): Values<Names> {
  const given: Record<string, string> = {};
  for (const [name, value, pair] of splitPairs(url))
    if (name === undefined || !Object.hasOwn(known, name))
      faults.push(
        `${quote(name ?? pair.replace(/=.*/s, ""))}: unknown; known are ${Object.keys(known).join(", ") || "none"}`,
      );
    else if (value === undefined)
      faults.push(`${name}: expected UTF-8 without U+0000, percent-encoded`);
    else if (given[name] !== undefined) faults.push(`${name}: given more than once`);
    else given[name] = value;
  const values: Record<string, unknown> = {};
  // Not by Object.entries, which would make arrays for every request.
  for (const name in known) {
    const parameter = known[name] as Parameter<unknown>;
    const came = given[name];
    const found = came === undefined ? null : parameter.find(came);
    if (found === undefined) faults.push(explain(name, parameter, came));
    values[name] = found ?? parameter.fallback;
  }
  if (faults.length > 0) throw new Refusal("invalid_query", joinFaults(faults));
  return values as Values<Names>;
}

const explain = (name: string, { expected }: Parameter<unknown>, came = ""): string =>
  `${name}: expected ${expected}, got ${quote(came)}`;

const SHOWN_CHARACTERS_MAX = 40;

const quote = (given: string): string => JSON.stringify(given.slice(0, SHOWN_CHARACTERS_MAX));

/** An exchange whose answer may have a next page. */
interface Paged {
  readonly request: Request;
  readonly service: {
    readonly config: { readonly trustedProxies: readonly string[] };
    readonly addressOf: (request: Request) => string | undefined;
  };
}

/**
 * The header with a link to the page that begins after this id or tag, by RFC 8288; none after the last page. It is an
 * absolute path: not every library resolves a query alone by RFC 3986. Its filters are written as the client wrote
 * them.
 */
export function linkNext(
  { request, service }: Paged,
  limit: number,
  after: bigint | number | string | undefined,
): Readonly<Record<string, string>> {
  if (after === undefined) return {};
  const { url, headers } = request;
  const prefix = findForwardedPrefix(headers, () => service.addressOf(request), service.config);
  const others = splitPairs(url)
    .filter(([name]) => name !== "after" && name !== "limit")
    // The link ends at the first one.
    .map(([, , pair]) => pair.replaceAll(">", "%3E"));
  const query = [`after=${encodeURIComponent(String(after))}`, `limit=${limit}`, ...others].join(
    "&",
  );
  return { link: `<${prefix}${pathOf(url)}?${query}>; rel="next"` };
}

/** Without the query, which may hold anything. With an odd Host the URL has no origin. */
export const pathOf = (url: string): string =>
  url.replace(/^[a-z]+:\/\/[^/]*/, "").replace(/[?#].*$/s, "");

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
function decode(encoded: string): string | undefined {
  if (PLAIN.test(encoded)) return encoded;
  try {
    const decoded = decodeURIComponent(encoded.replaceAll("+", " "));
    return isStorable(decoded) ? decoded : undefined;
  } catch {
    return undefined;
  }
}
