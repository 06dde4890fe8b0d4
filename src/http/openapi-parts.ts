/** What the description of every operation is made of. */

import { catalogue, type ErrorName } from "../domain/errors.ts";
import type { Method, Operation } from "./handle.ts";
import { NDJSON_TYPES } from "./request-headers.ts";
import { component, mapValues, type Members, type Shape, text } from "./shape.ts";

const inRequest = ["malformed_request", "invalid_query"] as const;
const inCondition = [...inRequest, "invalid_id", "invalid_precondition"] as const;
const inBody = ["invalid_utf8", "invalid_json", "body_incomplete"] as const;

/** The failures of operations. Each is one response with one status, shared by every operation that can answer it. */
const failures = {
  BadRequest: ["malformed_request"],
  BadQuery: inRequest,
  BadCondition: inCondition,
  BadPlant: [...inRequest, ...inBody, "invalid_plant"],
  BadReplacement: [...inCondition, ...inBody, "invalid_plant"],
  BadBody: [...inRequest, ...inBody, "invalid_body"],
  Unauthorized: ["token_missing", "token_invalid", "token_expired"],
  Forbidden: ["insufficient_scope"],
  PlantNotFound: ["plant_not_found"],
  ChangesGone: ["changes_gone"],
  RangeTooLarge: ["range_too_large"],
  TokenNotFound: ["token_not_found"],
  TokenNameTaken: ["token_name_taken"],
  LastManager: ["last_manager"],
  WebhookNotFound: ["webhook_not_found"],
  WebhookConflict: ["webhook_name_taken", "webhooks_full"],
  BodyTooSlow: ["body_too_slow"],
  IdTaken: ["id_taken", "store_full"],
  PreconditionFailed: ["precondition_failed"],
  BodyTooLarge: ["body_too_large"],
  UrlTooLong: ["url_too_long"],
  UnsupportedBody: ["unsupported_media_type", "unsupported_encoding"],
  RateLimited: ["rate_limited"],
  InternalError: ["internal"],
  Unavailable: ["overloaded", "store_unavailable", "store_busy", "shutting_down", "disk_low"],
} as const satisfies Record<string, readonly [ErrorName, ...ErrorName[]]>;

type Failure = keyof typeof failures;

const headers = {
  "X-Request-Id":
    "Names this request in the service's log. Sent with every failure, and with a success if the request has one.",
  Link: 'The next page, as `<…>; rel="next"` (RFC 8288). The last page has none.',
  "Last-Change": "The number of the newest change.",
  "Idempotent-Replayed": "`true` if the plant was in the store already.",
  "Preference-Applied": "`return=minimal` if the answer is a summary (RFC 7240).",
  ETag: "A strong entity tag of the plant.",
  "WWW-Authenticate": "RFC 6750.",
  "Retry-After": "Seconds.",
  RateLimit:
    'What the token has left, as in `"token";r=7;t=1`: units, and seconds until it has all again (IETF draft).',
  "RateLimit-Policy":
    'What the token may use, as in `"token";q=100;w=1`: units in a window of seconds (IETF draft).',
  "Accept-Post": "The media types that this path takes (W3C Linked Data Platform).",
  "Accept-Encoding": "`identity` if the body was refused for its content encoding (RFC 9110).",
};

type Header = keyof typeof headers;

type Responses = Readonly<Record<string, object>>;

/** An operation as it is served and described. */
export type Entry = Operation & {
  readonly at: `${Method} ${string}`;
  readonly summary: string;
  readonly description?: string;
  readonly query?: Members;
  readonly headers?: Members;
  /** Bodies, by their types. */
  readonly takes?: object;
  /** The responses that are not failures. */
  readonly answers: Responses;
  /** Besides those of every operation, and of every body. */
  readonly fails?: readonly Failure[];
};

export type Entries = Readonly<Record<string, Entry>>;

const bodyFailures = ["BodyTooSlow", "BodyTooLarge", "UnsupportedBody"] as const;
const tokenFailures = ["Unauthorized", "RateLimited", "Unavailable"] as const;

export function describeOperation(operationId: string, tag: string, entry: Entry) {
  const { scope, summary, description, query, headers: sent, takes, answers } = entry;
  const isOpen = scope === undefined;
  const { fails = [isOpen ? "BadRequest" : "BadQuery"] } = entry;
  const needs = isOpen
    ? "Needs no token."
    : scope === "any"
      ? "Needs a token, of any scope."
      : `Needs the scope \`${scope}\`.`;
  const all: readonly Failure[] = [
    ...fails,
    ...(takes === undefined ? [] : bodyFailures),
    ...(isOpen ? [] : tokenFailures),
    ...(isOpen || scope === "any" ? [] : (["Forbidden"] as const)),
    "UrlTooLong",
    "InternalError",
  ];
  const responses: Responses = {
    ...answers,
    ...Object.fromEntries(
      all.map((name) => [catalogue[failures[name][0]].status, component("responses", name)]),
    ),
  };
  return {
    operationId,
    tags: [tag],
    summary,
    parameters: [...describeParameters("query", query), ...describeParameters("header", sent)],
    requestBody: takes && { required: true, content: takes },
    description: [description, needs].join(" ").trim(),
    ...(isOpen && { security: [] }),
    responses,
  };
}

/** What a parameter means is said beside its schema. */
export const describeParameters = (
  place: string,
  parameters: Members = {},
  required?: true,
): object[] =>
  Object.entries(parameters).map(([name, { schema, example, more }]) => {
    const { description, ...type } = schema;
    const parameter = { name, in: place, required, description, schema: type, example };
    return Object.assign(parameter, more);
  });

type Content = Readonly<Record<string, Shape>>;

/** An answer with this status, and with these headers besides the one that every answer may have. */
export const answering = (
  status: number,
  description: string,
  content?: object,
  ...names: Header[]
): Responses => ({ [status]: { description, headers: withHeaders(names), content } });

export const ok = answering.bind(undefined, 200);

const withHeaders = (names: readonly Header[]): object =>
  Object.fromEntries(
    (["X-Request-Id", ...names] as const).map((name) => [name, component("headers", name)]),
  );

export const json = (shape: Shape): Content => ({ "application/json": shape });

/** With several examples, by name. */
export const jsonWith = (
  { schema }: Pick<Shape, "schema">,
  examples: Readonly<Record<string, unknown>>,
): object => ({
  "application/json": { schema, examples: mapValues(examples, (value) => ({ value })) },
});

/** An array of these as JSON, and one of them a line. */
export function jsonAndLines(name: string, examples: readonly unknown[]): Content {
  // OpenAPI 3.1 has no schema for lines of JSON: to validators and generators they are text.
  const lines = text(
    examples.map((line) => `${JSON.stringify(line)}\n`).join(""),
    `One ${name} a line, as JSON.`,
  );
  return {
    ...json({
      schema: { type: "array", items: component("schemas", name) },
      example: examples,
    }),
    ...Object.fromEntries(NDJSON_TYPES.map((type) => [type, lines])),
  };
}

const headersByStatus: Readonly<Record<number, readonly Header[]>> = {
  401: ["WWW-Authenticate"],
  403: ["WWW-Authenticate"],
  415: ["Accept-Post", "Accept-Encoding"],
  429: ["Retry-After", "RateLimit", "RateLimit-Policy"],
  503: ["Retry-After"],
};

/** The responses and headers that operations refer to. */
export const describeShared = (): object => ({
  responses: mapValues(failures, describeFailure),
  headers: mapValues(headers, (description) => ({ description, schema: { type: "string" } })),
});

function describeFailure(names: readonly [ErrorName, ...ErrorName[]]): object {
  const lines = names.map(
    (name) => `- \`${catalogue[name].code} ${name}\`: ${catalogue[name].meaning}`,
  );
  const examples = names.map((name) => {
    const { code: error, meaning: message } = catalogue[name];
    return [name, { error, message }];
  });
  return {
    description: lines.join("\n"),
    headers: withHeaders(headersByStatus[catalogue[names[0]].status] ?? []),
    content: jsonWith({ schema: component("schemas", "Error") }, Object.fromEntries(examples)),
  };
}

export function describeCatalogue(): string {
  const rows = Object.entries(catalogue).map(
    ([name, { code, status, meaning, retry }]) =>
      `| \`${code} ${name}\` | ${status} | ${meaning} | ${retry ? "yes" : "no"} |`,
  );
  return ["| error | status | meaning | retry |", "| --- | --- | --- | --- |", ...rows].join("\n");
}
