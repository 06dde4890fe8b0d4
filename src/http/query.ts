/** Parses the query string, where unknown parameters are refused, content negotiation and preconditions. */

import { findForwardedPrefix } from "./proxies.ts";
import { findCountGroups } from "../domain/change-count.ts";
import {
  BACKWARDS,
  batchRule,
  changeTypes,
  countGroups,
  findChangeNumber,
  findChangeTypes,
  folds,
  isBackwards,
  type Moment,
  momentRule,
  type Period,
  type Writer,
} from "../domain/change.ts";
import { Refusal } from "../domain/errors.ts";
import { idsRule } from "../domain/bulk.ts";
import { joinFaults } from "../domain/members.ts";
import { type Filter, type FilterName, type FilterRule, filters } from "../domain/filter.ts";
import { type Order, orders, type PlantQuery } from "../domain/page.ts";
import { KEY_CHARACTERS, SORTED_STREAM_LENGTH, sortValues, toOrder } from "../domain/sort.ts";
import { type Condition, type EntityTags, findEntityTags, matches } from "../domain/entity-tag.ts";
import { findPlainInt64, INT64_MAX, INT64_MIN } from "../domain/json.ts";
import { isStorable } from "../domain/plant.ts";
import { findDurationMs } from "../domain/time.ts";
import { type StatusRange, statusRule } from "../observe/recent-requests.ts";
import type { Exchange } from "./exchange.ts";
import { flag, int64, integer, list, mapValues, type Shape, text } from "./shape.ts";

export interface Parameter<Value> extends Shape {
  readonly expected: string;
  /** Returns undefined if the value is not allowed. */
  readonly find: (input: string) => Value | undefined;
  readonly fallback: Value;
}

type Known = Readonly<Record<string, Parameter<unknown>>>;
type Values<Names extends Known> = {
  readonly [Name in keyof Names]: Names[Name] extends Parameter<infer Value> ? Value : never;
};

const LIMIT_DEFAULT = 100;
const LIMIT_MAX = 1000;

export const limitTo = (
  description: string,
  maximum = LIMIT_MAX,
  fallback = LIMIT_DEFAULT,
): Parameter<number> => ({
  ...integer(undefined, description, { minimum: 1, maximum, default: fallback }),
  expected: `an integer from 1 to ${maximum}`,
  find: (input) => {
    const limit = /^\d{1,4}$/.test(input) ? Number(input) : 0;
    return limit >= 1 && limit <= maximum ? limit : undefined;
  },
  fallback,
});

const anyText = (description: string): Parameter<string | undefined> => ({
  ...text(undefined, description),
  expected: "text",
  find: (input) => input,
  fallback: undefined,
});

const anyInt64 = (description: string): Parameter<bigint | undefined> => ({
  ...int64(undefined, description),
  expected: `an integer from ${INT64_MIN} to ${INT64_MAX}`,
  find: findPlainInt64,
  fallback: undefined,
});

const orderBy = (description: string): Parameter<Order> => ({
  ...text(undefined, description, { enum: orders, default: "asc" }),
  expected: orders.join(" or "),
  find: (input) => orders.find((known) => known === input),
  fallback: "asc",
});

const toParameter = (rule: FilterRule) => ({
  ...(rule.isFlag ? flag : text)(undefined, rule.meaning),
  expected: rule.expected,
  find: rule.find,
  fallback: undefined,
});

export const filterParameters = mapValues<FilterRule, unknown>(filters, toParameter) as {
  readonly [Name in FilterName]: Parameter<Filter[Name]>;
};

const sortParameter: Parameter<string | undefined> = {
  ...text(
    undefined,
    "In place of `order`: by id, name, tag or time of the last change; `-` for descending. " +
      `Texts by code points, A to Z as lower case, by their first ${KEY_CHARACTERS} characters. ` +
      "Equal ones by ascending id. Plants without a tag or a known change come last, in both directions.",
    { enum: sortValues },
  ),
  expected: sortValues.join(", "),
  find: (input) => sortValues.find((known) => known === input),
  fallback: undefined,
};

const includeParameter: Parameter<"changed" | undefined> = {
  ...text(undefined, "`changed` adds the time of the last change to each plant.", {
    enum: ["changed"],
  }),
  expected: "changed",
  find: (input) => (input === "changed" ? input : undefined),
  fallback: undefined,
};

export const countParameters = {
  ...filterParameters,
  after: anyInt64("Counts only plants after this id: it continues a count, as in its next link."),
};

export const plantParameters = {
  limit: limitTo("Plants on a page."),
  after: anyInt64(
    "The id of the last plant seen; the page begins after it. Only in the order of ids.",
  ),
  ...filterParameters,
  order: { ...orderBy("By id."), fallback: undefined } as Parameter<Order | undefined>,
  sort: sortParameter,
  cursor: anyText(
    "With `sort` by name, tag or changed: where the page begins, as in the next link.",
  ),
  include: includeParameter,
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
    find: (input: string) => (/^[0-9a-f]{16}$/.test(input) ? input : undefined),
    fallback: undefined,
  },
};

const trueOrFalse = (description: string): Parameter<boolean> => ({
  ...flag(undefined, description, { default: false }),
  expected: "true or false",
  find: (input) => (input === "true" || input === "false" ? input === "true" : undefined),
  fallback: false,
});

const batchOf = (description: string): Parameter<string | undefined> => ({
  ...text(undefined, description, { minLength: 1, maxLength: 100 }),
  ...batchRule,
  fallback: undefined,
});

export const writeParameters = {
  batch: batchOf("Names writes that belong together, in the journal."),
};

export const batchParameters = {
  ...writeParameters,
  upsert: trueOrFalse(
    "A plant whose id is taken replaces the stored one. Removing what is not there changes nothing.",
  ),
  atomic: trueOrFalse("One transaction: every line succeeds, or nothing is stored."),
};

export const bulkParameters = {
  ...filterParameters,
  ...writeParameters,
  dry_run: trueOrFalse("Change nothing: answer how many plants match, and a sample."),
  all: trueOrFalse("Every plant of the store, in place of a filter."),
  except: {
    ...list(int64(), "Leaves out the plants with these ids, separated by commas."),
    more: { style: "form", explode: false },
    ...idsRule,
    fallback: undefined,
  } as Parameter<readonly bigint[] | undefined>,
};

export const jobParameters = { batch: batchOf("The job of this batch.") };

export const stopParameters = {
  batch: { ...jobParameters.batch, more: { required: true } } as Parameter<string>,
};

const momentOf = (description: string): Parameter<Moment | undefined> => ({
  ...text(undefined, `${description} Its number, or a time with its zone.`),
  expected: momentRule.expected,
  find: (input) => momentRule.find(findChangeNumber(input) ?? input),
  fallback: undefined,
});

export const changeParameters = {
  after: {
    ...int64(
      undefined,
      "The number of the last change seen. 0 or absent: begin with the oldest in the journal, or with the newest if `order` is `desc`.",
      { minimum: 0, default: 0 },
    ),
    expected: `an integer from 0 to ${Number.MAX_SAFE_INTEGER}`,
    find: findChangeNumber,
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
    find: (input: string) => findChangeTypes(input.split(",")),
    fallback: undefined,
  },
  by: anyText("Only changes by the token of this name."),
  batch: batchOf("Only changes of this batch."),
  from: momentOf("The first change."),
  to: momentOf("The last change."),
  order: orderBy("By number."),
  fold: {
    ...text(
      undefined,
      "`batch`: one entry for consecutive changes by one token in one batch. `run`: the same, and one entry for consecutive creates by one token without a batch, unless 10 seconds pass between two of them.",
      { enum: folds },
    ),
    expected: folds.join(" or "),
    find: (input: string) => folds.find((known) => known === input),
    fallback: undefined,
  } as Parameter<(typeof folds)[number] | undefined>,
};

const { id: _id, order: _order, fold: _fold, ...countedChanges } = changeParameters;
export const changeCountParameters = {
  ...countedChanges,
  after: {
    ...countedChanges.after,
    ...int64(
      undefined,
      "The number of the last change counted. 0 or absent: begin with the newest.",
      {
        minimum: 0,
        default: 0,
      },
    ),
  },
  limit: limitTo("Groups on a page."),
  group: {
    ...list(
      text(undefined, undefined, { enum: countGroups }),
      "Counts per token, per batch, or per pair of both, separated by a comma. Absent: all together.",
    ),
    more: { style: "form", explode: false },
    expected: `${countGroups.join(", ")}, or both with a comma`,
    find: findCountGroups,
    fallback: [],
  } as Parameter<NonNullable<ReturnType<typeof findCountGroups>>>,
  every: {
    ...text(undefined, "Counts per interval of this length, in UTC, as in 15m, 1h or 1d."),
    expected: "a duration as in 15m, 1h or 1d",
    find: findDurationMs,
    fallback: undefined,
  } as Parameter<number | undefined>,
};

export const activityParameters = {
  since: {
    ...integer(undefined, "Only samples later than this, in milliseconds since 1970.", {
      minimum: 0,
    }),
    expected: "milliseconds since 1970",
    find: (input: string) => (/^\d{1,15}$/.test(input) ? Number(input) : undefined),
    fallback: 0,
  },
  status: {
    ...text(
      undefined,
      "Only requests with this status, or one of its class. `failed`: 4xx and 5xx.",
      { pattern: statusRule.pattern },
    ),
    ...statusRule,
    fallback: undefined,
  } as Parameter<StatusRange | undefined>,
  path: anyText("Only requests whose path contains this."),
  token: anyText("Only requests with the token of this name."),
  // Small enough to be answered while memory is short.
  limit: limitTo("Requests in the answer.", LIMIT_MAX, 50),
};

const noLimit: Parameter<number> = {
  ...limitTo(""),
  expected: "no limit for a stream, which has no pages",
  find: () => undefined,
  fallback: LIMIT_MAX,
};
const plantStreamParameters = { ...plantParameters, limit: noLimit };
const { order, fold, ...changeStream } = changeParameters;
const changeStreamParameters = {
  ...changeStream,
  limit: noLimit,
  order: { ...order, expected: "no order for a stream", find: () => undefined },
  fold: { ...fold, expected: "no fold for a stream", find: () => undefined },
};

/** Throws a Refusal if a parameter is wrong, or contradicts another. */
export function parsePlantQuery(url: string, isStream: boolean): PlantQuery {
  const known = isStream ? plantStreamParameters : plantParameters;
  const { include, sort, cursor, ...query } = parseQuery(url, known);
  const ordered = toOrder({ ...query, sort, cursor });
  const limit = isStream && ordered.sort !== undefined ? SORTED_STREAM_LENGTH : query.limit;
  return { ...query, ...ordered, limit, hasTimes: include !== undefined };
}

/** The writer for the journal: the token, and the `batch` parameter. Throws a Refusal if a parameter is wrong. */
export function parseWriter(exchange: Exchange): Writer {
  const { url } = exchange.request;
  // Fast path: most writes have no query.
  if (!url.includes("?")) return exchange.nameWriter();
  return exchange.nameWriter(parseQuery(url, writeParameters).batch);
}

/** A client that reconnects sends its cursor in Last-Event-ID, which overrides `after`. */
export function parseChangeQuery(url: string, isStream: boolean, lastEventId: string | null) {
  const known = isStream ? changeStreamParameters : changeParameters;
  const seen = lastEventId === null ? null : known.after.find(lastEventId);
  const faults =
    seen === undefined ? [describeFault("Last-Event-ID", known.after, lastEventId ?? "")] : [];
  const { type: types, after, ...query } = requireForwards(parseQuery(url, known, faults));
  return { ...query, types, after: seen ?? after };
}

export function parseChangeCountQuery(url: string) {
  const {
    type: types,
    group,
    every: everyMs,
    ...query
  } = requireForwards(parseQuery(url, changeCountParameters));
  return { ...query, types, count: { group, everyMs } };
}

function requireForwards<Query extends Period>(query: Query): Query {
  if (isBackwards(query)) throw new Refusal("invalid_query", BACKWARDS);
  return query;
}

/** Throws a Refusal that names every fault, including those passed in. */
export function parseQuery<Names extends Known>(url: string, known: Names, faults: string[] = []) {
  const inputs: Record<string, string> = {};
  for (const [name, value, pair] of splitPairs(url))
    if (name === undefined || !Object.hasOwn(known, name))
      faults.push(
        `${quote(name ?? pair.replace(/=.*/s, ""))}: unknown; allowed: ${Object.keys(known).join(", ") || "none"}`,
      );
    else if (value === undefined)
      faults.push(`${name}: expected UTF-8 without U+0000, percent-encoded`);
    else if (inputs[name] !== undefined) faults.push(`${name}: given more than once`);
    else inputs[name] = value;
  const values: Record<string, unknown> = {};
  // Object.entries would allocate arrays on every request.
  for (const name in known) {
    const parameter = known[name] as Parameter<unknown>;
    const input = inputs[name];
    const found = input === undefined ? undefined : parameter.find(input);
    const isWrong = input !== undefined || parameter.more?.["required"] === true;
    if (found === undefined && isWrong) faults.push(describeFault(name, parameter, input));
    values[name] = found ?? parameter.fallback;
  }
  if (faults.length > 0) throw new Refusal("invalid_query", joinFaults(faults));
  return values as Values<Names>;
}

const describeFault = (name: string, { expected }: Parameter<unknown>, input?: string): string =>
  `${name}: expected ${expected}, got ${input === undefined ? "nothing" : quote(input)}`;

const quote = (input: string): string => JSON.stringify(input.slice(0, 40));

/** The prefix that trusted proxies strip, for links and redirects. */
export const prefixOf = ({ request, service }: Exchange): string =>
  findForwardedPrefix(request.headers, () => service.addressOf(request), service.config);

/** The Link header of the next page (RFC 8288): an absolute path, because not every library resolves relative ones. */
export function linkNext(
  exchange: Exchange,
  limit: number | undefined,
  after: bigint | number | string | undefined,
  name: "after" | "cursor" = "after",
): Readonly<Record<string, string>> {
  if (after === undefined) return {};
  const { url } = exchange.request;
  const others = splitPairs(url)
    .filter(([other]) => other !== name && other !== "limit")
    // An unescaped ">" would end the link.
    .map(([, , pair]) => pair.replaceAll(">", "%3E"));
  const pairs = [`${name}=${encodeURIComponent(String(after))}`, ...others];
  if (limit !== undefined) pairs.splice(1, 0, `limit=${limit}`);
  return { link: `<${prefixOf(exchange)}${pathOf(url)}?${pairs.join("&")}>; rel="next"` };
}

/** Drops the origin and the query. With an odd Host header the URL has no origin. */
export const pathOf = (url: string): string =>
  url.replace(/^[a-z]+:\/\/[^/]*/, "").replace(/[?#].*$/s, "");

type Pair = readonly [name: string | undefined, value: string | undefined, pair: string];

/** Each pair as sent, with its decoded name and value; undefined where decoding fails. */
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

/** URLSearchParams would silently replace invalid bytes. */
function decode(encoded: string): string | undefined {
  try {
    const decoded = decodeURIComponent(encoded.replaceAll("+", " "));
    return isStorable(decoded) ? decoded : undefined;
  } catch {
    return undefined;
  }
}

/** RFC 9110, section 12.5.1. Falls back to the first offer if the client has no preference or accepts none. */
export function chooseForm<Form extends string>(
  accept: string | null,
  offers: readonly [Form, ...Form[]],
): Form {
  if (accept === null || accept === "*/*") return offers[0];
  const weigh = parseWeights(accept);
  let best = offers[0];
  let bestWeight = 0;
  for (const offer of offers) {
    const weight = weigh(offer, `${offer.split("/")[0]}/*`, "*/*") ?? 0;
    if (weight > bestWeight) [best, bestWeight] = [offer, weight];
  }
  return best;
}

/** RFC 9110, section 12.5.3. */
export const acceptsGzip = (header: string | null): boolean =>
  (parseWeights(header ?? "")("gzip", "x-gzip", "*") ?? 0) > 0;

export type Coding = "zstd" | "gzip";

export interface Choice {
  readonly coding: Coding;
  /** The client refuses an answer without a coding. */
  readonly isRequired: boolean;
}

/** By the same section. Undefined: no coding. zstd only for clients that name it: `*` is older than zstd. */
export function chooseCoding(header: string | null): Choice | undefined {
  if (header === null || header === "identity") return undefined;
  const weigh = parseWeights(header);
  const zstd = weigh("zstd") ?? 0;
  const gzip = weigh("gzip", "x-gzip", "*") ?? 0;
  const best = Math.max(zstd, gzip);
  // An answer without a coding is acceptable unless it is excluded. Unless it has a weight, it is the last choice.
  if (best === 0 || (weigh("identity") ?? 0) > best) return undefined;
  return { coding: zstd === best ? "zstd" : "gzip", isRequired: weigh("identity", "*") === 0 };
}

/** RFC 7240, sections 2 and 4.2: other preferences are ignored, and the first `return` wins. */
export function prefersMinimal(header: string | null): boolean {
  const preferences = listPreferences(header).map(
    (one) => /^\s*return\s*=\s*"?([^\s";]*)/i.exec(one)?.[1],
  );
  return preferences.find((value) => value !== undefined) === "minimal";
}

/** RFC 7240, section 4.1. */
export const prefersAsync = (header: string | null): boolean =>
  listPreferences(header).some((one) => /^\s*respond-async\s*(;|$)/i.test(one));

/** A comma inside quotes is not a separator. */
const listPreferences = (header: string | null): readonly string[] =>
  header?.match(/(?:"[^"]*"|[^,"])+/g) ?? [];

/** Returns a lookup: the q-value of the first of its names in the header. Pass the most specific name first. */
function parseWeights(header: string): (...names: readonly string[]) => number | undefined {
  const weights = new Map<string, number>();
  for (const element of header.toLowerCase().split(",")) {
    const [name = "", ...parameters] = element.split(";").map((part) => part.trim());
    const weight = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2);
    weights.set(name, weight === undefined ? 1 : Number(weight) || 0);
  }
  return (...names) =>
    names.map((name) => weights.get(name)).find((weight) => weight !== undefined);
}

/** The preconditions of a write (RFC 9110, section 13). Throws a Refusal if a header is malformed. */
export function parseCondition(headers: Headers): Condition {
  return {
    // If-Match uses strong comparison, so a weak tag never matches.
    match: parseEntityTags(headers.get("if-match"), false),
    noneMatch: parseEntityTags(headers.get("if-none-match"), true),
  };
}

export const isUnmodified = (headers: Headers, entityTag: string): boolean =>
  matches(parseEntityTags(headers.get("if-none-match"), true) ?? [], entityTag);

function parseEntityTags(header: string | null, isWeak: boolean): EntityTags | undefined {
  if (header === null) return undefined;
  const tags = findEntityTags(header);
  if (tags === undefined) throw new Refusal("invalid_precondition");
  return isWeak && tags !== "any" ? tags.map((tag) => tag.replace(/^W\//, "")) : tags;
}
