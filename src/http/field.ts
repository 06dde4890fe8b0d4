/** The fields of requests: what each may be, for people and for the parser. Tools for agents have the same ones. */

import { idsRule } from "../domain/bulk.ts";
import { findCountGroups } from "../domain/change-count.ts";
import {
  batchRule,
  changeTypes,
  countGroups,
  findChangeNumber,
  findChangeTypes,
  folds,
  type Moment,
  momentRule,
} from "../domain/change.ts";
import { type EntityTags, findEntityTags } from "../domain/entity-tag.ts";
import type { ErrorName } from "../domain/errors.ts";
import { type Filter, type FilterName, type FilterRule, filters } from "../domain/filter.ts";
import { findPlainInt64, INT64_MAX, INT64_MIN } from "../domain/json.ts";
import type { Rule } from "../domain/members.ts";
import { orders } from "../domain/page.ts";
import { contentRule, isStorable } from "../domain/faults.ts";
import { KEY_CHARACTERS, sortValues } from "../domain/sort.ts";
import { findDurationMs } from "../domain/time.ts";
import { type StatusRange, statusRule } from "../observe/recent-requests.ts";
import { flag, int64, integer, list, mapValues, type Shape, text } from "./shape.ts";

/** A value of JSON, with the words for it. */
export type Argument<Value> = Shape & Rule<Value>;

/** The same for a value that is sent as text. */
export interface Field<Value> extends Shape, Rule<Value, string> {
  readonly expected: string;
  readonly optional?: boolean;
  /** The refusal of a wrong value in a path or a header, if it is not named among the faults of the query. */
  readonly refusal?: ErrorName;
  /** A header that is read for this form of the answer alone. */
  readonly form?: string;
  /** It is always refused, so the description leaves it out. */
  readonly isHidden?: boolean;
  /** As an argument of a tool, if that is not the same text. */
  readonly argument?: Argument<Value>;
}

export type Fields = Readonly<Record<string, Field<unknown>>>;
export type Values<Names extends Fields> = {
  readonly [Name in keyof Names]: Names[Name] extends Field<infer Value> ? Value : never;
};

const LIMIT_DEFAULT = 100;
const LIMIT_MAX = 1000;

export const limitTo = (
  description: string,
  maximum = LIMIT_MAX,
  fallback = LIMIT_DEFAULT,
): Field<number> => ({
  ...integer(undefined, description, { minimum: 1, maximum, default: fallback }),
  expected: `an integer from 1 to ${maximum}`,
  find: (input) => {
    const limit = /^\d{1,4}$/.test(input) ? Number(input) : 0;
    return limit >= 1 && limit <= maximum ? limit : undefined;
  },
  optional: true,
  fallback,
});

const anyText = (description: string): Field<string | undefined> => ({
  ...text(undefined, description),
  expected: "text",
  find: (input) => input,
  optional: true,
});

const anyInt64 = (description: string): Field<bigint | undefined> => ({
  ...int64(undefined, description),
  expected: `an integer from ${INT64_MIN} to ${INT64_MAX}`,
  find: findPlainInt64,
  optional: true,
});

const oneOf = <Value extends string>(
  values: readonly Value[],
  description: string,
  more?: object,
): Field<Value | undefined> => ({
  ...text(undefined, description, { enum: values, ...more }),
  expected: values.join(values.length > 2 ? ", " : " or "),
  find: (input) => values.find((known) => known === input),
  optional: true,
});

/** Separated by commas, as OpenAPI names it. */
const COMMAS = { style: "form", explode: false };

const orderBy = (description: string) => oneOf(orders, description, { default: "asc" });

const toField = (rule: FilterRule) => ({
  ...(rule.isFlag ? flag : text)(undefined, rule.meaning),
  expected: rule.expected,
  find: rule.find,
  optional: true,
});

export const filterFields = mapValues<FilterRule, unknown>(filters, toField) as {
  readonly [Name in FilterName]: Field<Filter[Name]>;
};

/** A field of a query as an argument of a tool: the same meaning, and the same values. */
export const toArgument = <Value>(field: Field<Value>): Argument<Value> => ({
  ...field,
  find: (input) => {
    const { type: named } = field.schema;
    const type = named === "integer" ? "number" : named;
    if (typeof input !== type || !isStorable(String(input))) return undefined;
    return field.find(String(input));
  },
});

export const filterArguments = mapValues<Field<unknown>, Argument<unknown>>(
  filterFields,
  toArgument,
) as {
  readonly [Name in FilterName]: Argument<Filter[Name]>;
};

export const countFields = {
  ...filterFields,
  after: anyInt64("Counts only plants after this id: it continues a count, as in its next link."),
};

export const plantFields = {
  limit: limitTo("Plants on a page."),
  after: anyInt64(
    "The id of the last plant seen; the page begins after it. Only in the order of ids.",
  ),
  ...filterFields,
  order: orderBy("By id."),
  sort: oneOf(
    sortValues,
    "By id, name, tag or time of the last change; `-` for descending. In place of `order`. " +
      `Texts by code points, A to Z as lower case, by their first ${KEY_CHARACTERS} characters. ` +
      "Equal ones by ascending id. Plants without a tag or a known change come last, in both directions.",
  ),
  cursor: anyText(
    "With `sort` by name, tag or changed: where the page begins, as in the next link.",
  ),
  include: oneOf(["changed"], "`changed` adds the time of the last change to each plant."),
};

const noLimit: Field<number> = {
  ...limitTo(""),
  expected: "no limit for a stream, which has no pages",
  find: () => undefined,
  fallback: LIMIT_MAX,
};

export const plantStreamFields = { ...plantFields, limit: noLimit };

export const tagFields = {
  prefix: {
    ...anyText("Only tags that begin with this, exactly."),
    fallback: "",
  } as Field<string>,
  after: anyText("The last tag seen; the page begins after it."),
  limit: limitTo("Tags on a page."),
};

const findTokenId = (input: string) => (/^[0-9a-f]{16}$/.test(input) ? input : undefined);

export const tokenFields = {
  limit: limitTo("Tokens on a page."),
  after: {
    ...text(undefined, "The id of the last token seen; the page begins after it."),
    expected: "16 hexadecimal digits in lower case",
    find: findTokenId,
    optional: true,
  } as Field<string | undefined>,
};

const trueOrFalse = (description: string): Field<boolean> => ({
  ...flag(undefined, description, { default: false }),
  expected: "true or false",
  find: (input) => (input === "true" || input === "false" ? input === "true" : undefined),
  optional: true,
  fallback: false,
});

const batchOf = (description: string): Field<string | undefined> => ({
  ...text(undefined, description, { minLength: 1, maxLength: 100 }),
  ...batchRule,
  optional: true,
});

export const writeFields = {
  batch: batchOf("Names writes that belong together, in the journal."),
};

export const revertFields = {
  batch: batchOf("Names these writes in the journal; by default `revert` and the time."),
};

export const batchFields = {
  ...writeFields,
  upsert: trueOrFalse(
    "A plant whose id is taken replaces the stored one. Removing what is not there changes nothing.",
  ),
  atomic: trueOrFalse("One transaction: every line succeeds, or nothing is stored."),
  dry_run: trueOrFalse("Change nothing: answer what each line would do."),
};

export const idArgument: Argument<bigint> & { readonly expected: string } = {
  ...text(undefined, "The id of the plant: the digits of a 64-bit integer, as a string."),
  expected: `a string with the digits of an integer from ${INT64_MIN} to ${INT64_MAX}`,
  find: (input) => (typeof input === "string" ? findPlainInt64(input) : undefined),
};

/** As an argument of a tool. */
export const truth = (description: string, fallback: boolean): Argument<boolean> => ({
  ...flag(undefined, description, { default: fallback }),
  expected: "true or false",
  optional: true,
  fallback,
  find: (input) => (typeof input === "boolean" ? input : undefined),
});

export const dryRunArgument = truth("False changes plants.", true);

const EXCEPT_MAX = 1_000;

const exceptArgument: Argument<readonly bigint[] | undefined> = {
  ...list(text(), "Not the plants with these ids.", { maxItems: EXCEPT_MAX }),
  expected: `a list of at most ${EXCEPT_MAX} ids, each ${idArgument.expected}`,
  optional: true,
  find: (input: unknown) => {
    const ids = Array.isArray(input) && input.length <= EXCEPT_MAX && input.map(idArgument.find);
    return ids && ids.every((each) => each !== undefined) ? ids : undefined;
  },
};

export const bulkFields = {
  ...filterFields,
  ...writeFields,
  dry_run: {
    ...trueOrFalse("Change nothing: answer how many plants match, and a sample."),
    argument: dryRunArgument,
  },
  all: trueOrFalse("Every plant of the store, in place of a filter."),
  except: {
    ...list(int64(), "Leaves out the plants with these ids, separated by commas."),
    more: COMMAS,
    ...idsRule,
    optional: true,
    argument: exceptArgument,
  } as Field<readonly bigint[] | undefined>,
};

export const jobFields = { batch: batchOf("The job of this batch.") };

export const stopFields = { batch: { ...jobFields.batch, optional: false } as Field<string> };

const momentOf = (description: string): Field<Moment | undefined> => ({
  ...text(undefined, `${description} Its number, or a time with its zone.`),
  expected: momentRule.expected,
  find: (input) => momentRule.find(findChangeNumber(input) ?? input),
  optional: true,
});

const afterChange = (description: string): Field<number> => ({
  ...int64(undefined, description, { minimum: 0, default: 0 }),
  expected: `an integer from 0 to ${Number.MAX_SAFE_INTEGER}`,
  find: findChangeNumber,
  optional: true,
  fallback: 0,
});

const countedFields = {
  limit: limitTo("Changes on a page."),
  type: {
    ...list(
      text(undefined, undefined, { enum: changeTypes }),
      "Only these types, separated by commas.",
    ),
    more: COMMAS,
    expected: `${changeTypes.join(", ")}, or several of them with commas`,
    find: (input) => findChangeTypes(input.split(",")),
    optional: true,
  } as Field<ReturnType<typeof findChangeTypes>>,
  by: anyText("Only changes by the token of this name."),
  batch: batchOf("Only changes of this batch."),
  from: momentOf("The first change."),
  to: momentOf("The last change."),
};

const { limit, ...changeFilters } = countedFields;
export const changeFields = {
  after: afterChange(
    "The number of the last change seen. 0 or absent: begin with the oldest in the journal, or with the newest if `order` is `desc`.",
  ),
  limit,
  id: anyInt64("Only changes of this plant."),
  ...changeFilters,
  order: { ...orderBy("By number."), fallback: "asc" as const },
  fold: oneOf(
    folds,
    "`batch`: one entry for consecutive changes by one token in one batch. `run`: the same, and one entry for consecutive creates by one token without a batch, unless 10 seconds pass between two of them.",
  ),
};

export const changeStreamFields = {
  ...changeFields,
  limit: noLimit,
  order: { ...changeFields.order, expected: "no order for a stream", find: () => undefined },
  fold: { ...changeFields.fold, expected: "no fold for a stream", find: () => undefined },
};

export const changeCountFields = {
  after: afterChange("The number of the last change counted. 0 or absent: begin with the newest."),
  ...countedFields,
  limit: limitTo("Groups on a page."),
  group: {
    ...list(
      text(undefined, undefined, { enum: countGroups }),
      "Counts per token, per batch, or per pair of both, separated by a comma. Absent: all together.",
    ),
    more: COMMAS,
    expected: `${countGroups.join(", ")}, or both with a comma`,
    find: findCountGroups,
    optional: true,
    fallback: [],
  } as Field<NonNullable<ReturnType<typeof findCountGroups>>>,
  every: {
    ...text(undefined, "Counts per interval of this length, in UTC, as in 15m, 1h or 1d."),
    expected: "a duration as in 15m, 1h or 1d",
    find: findDurationMs,
    optional: true,
  } as Field<number | undefined>,
};

export const activityFields = {
  since: {
    ...integer(undefined, "Only samples later than this, in milliseconds since 1970.", {
      minimum: 0,
    }),
    expected: "milliseconds since 1970",
    find: (input) => (/^\d{1,15}$/.test(input) ? Number(input) : undefined),
    optional: true,
    fallback: 0,
  } as Field<number>,
  status: {
    ...text(
      undefined,
      "Only requests with this status, or one of its class. `failed`: 4xx and 5xx.",
      { pattern: statusRule.pattern },
    ),
    ...statusRule,
    optional: true,
  } as Field<StatusRange | undefined>,
  path: anyText("Only requests whose path contains this."),
  token: anyText("Only requests with the token of this name."),
  // Small enough to be answered while memory is short.
  limit: limitTo("Requests in the answer.", LIMIT_MAX, 50),
};

export const plantPath = {
  id: {
    ...int64(1, "The plant's id, in plain decimal digits."),
    expected: "an id",
    find: findPlainInt64,
    refusal: "invalid_id",
    argument: idArgument,
  } as Field<bigint>,
};

/** The name and the tag of a plant, as arguments. */
export const contentArguments = {
  name: { ...text(undefined, "The name of the plant."), ...contentRule("name") },
  tag: {
    ...text(undefined, "The type of the plant. Omit it for a plant without a tag."),
    ...contentRule("tag"),
    optional: true,
  },
};

export const tokenPath = {
  id: {
    ...text("9f86d081884c7d65", "The token's id, from the list."),
    expected: "an id",
    find: findTokenId,
    refusal: "token_not_found",
  } as Field<string>,
};

export const webhookPath = {
  name: {
    ...text("shop", "The webhook's name."),
    expected: "a name",
    find: (input) => input,
  } as Field<string>,
};

const entityTags = (
  description: string,
  find: Field<EntityTags>["find"],
): Field<EntityTags | undefined> => ({
  ...text(undefined, description),
  expected: "entity tags",
  find,
  optional: true,
  refusal: "invalid_precondition",
});

/** For a comparison that takes weak tags for strong ones. */
function findWeakTags(header: string): EntityTags | undefined {
  const tags = findEntityTags(header);
  return tags === undefined || tags === "any" ? tags : tags.map((tag) => tag.replace(/^W\//, ""));
}

export const ifMatchArgument: Argument<EntityTags | undefined> = {
  ...text(undefined, "An etag: change the plant only if it is still in this state."),
  expected: "the etag of an earlier answer, with its quotes",
  optional: true,
  find: (input) => (typeof input === "string" ? findEntityTags(input) : undefined),
};

const ifNoneMatch = (description: string) => entityTags(description, findWeakTags);

/** The preconditions of a write (RFC 9110, section 13). If-Match uses strong comparison, so a weak tag never matches. */
export const changeConditions = {
  "If-Match": {
    ...entityTags("Answers 412 if the plant no longer has this entity tag.", findEntityTags),
    argument: ifMatchArgument,
  },
  "If-None-Match": ifNoneMatch("Answers 412 if the plant has this entity tag."),
};

export const readConditions = {
  "If-None-Match": ifNoneMatch("Answers 304 if the plant still has this entity tag."),
};

/** RFC 7240. */
export interface Preferences {
  readonly isMinimal: boolean;
  readonly isAsync: boolean;
}

const NO_PREFERENCES: Preferences = { isMinimal: false, isAsync: false };

/** Sections 2, 4.1 and 4.2: other preferences are ignored, and the first `return` wins. */
function findPreferences(header: string): Preferences {
  // A comma inside quotes is not a separator.
  const preferences = header.match(/(?:"[^"]*"|[^,"])+/g) ?? [];
  const returns = preferences.map((one) => /^\s*return\s*=\s*"?([^\s";]*)/i.exec(one)?.[1]);
  return {
    isMinimal: returns.find((value) => value !== undefined) === "minimal",
    isAsync: preferences.some((one) => /^\s*respond-async\s*(;|$)/i.test(one)),
  };
}

export const prefer = (description: string) => ({
  Prefer: {
    ...text(undefined, description),
    expected: "preferences",
    find: findPreferences,
    optional: true,
    fallback: NO_PREFERENCES,
  } as Field<Preferences>,
});

/** Of requests that may be answered with 202. */
export const asyncHeaders = prefer(
  "`respond-async` answers 202, and the service finishes the work without the client (RFC 7240). Other preferences are ignored.",
);

/** Not described: a request by filter that has one is refused. */
const anyCondition: Field<string | undefined> = { ...anyText(""), isHidden: true };

export const bulkHeaders = {
  ...asyncHeaders,
  "If-Match": anyCondition,
  "If-None-Match": anyCondition,
};

export const EVENT_STREAM_TYPE = "text/event-stream";

/** A client that reconnects sends its cursor in a header. */
export const followHeaders = {
  "Last-Event-ID": {
    ...int64(undefined, "For event streams: overrides `after`.", { minimum: 0 }),
    expected: changeFields.after.expected,
    find: findChangeNumber,
    optional: true,
    form: EVENT_STREAM_TYPE,
  } as Field<number | undefined>,
};
