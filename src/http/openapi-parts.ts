/** Parts that the descriptions of several operations share. */

import { catalogue, type ErrorName } from "../domain/errors.ts";
import { scopes } from "../domain/token.ts";
import type { Method, Operation } from "./handle.ts";
import { LIMIT_DEFAULT, LIMIT_MAX } from "./query.ts";

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

const component = (kind: string, name: string): object => ({
  $ref: `#/components/${kind}/${name}`,
});

export const schema = (name: string): object => component("schemas", name);

const NDJSON_TYPE = "application/x-ndjson";

const headers = {
  "X-Request-Id":
    "Names this request in the service's log. Sent with every failure, and with a success if the request has one.",
  Link: 'The next page, as `<…>; rel="next"` (RFC 8288). The last page has none.',
  "Last-Change": "The number of the newest change.",
  ETag: "A strong entity tag of the plant.",
  "WWW-Authenticate": "RFC 6750.",
  "Retry-After": "Seconds.",
  RateLimit:
    'What the token has left, as in `"token";r=7;t=1`: units, and seconds until it has all again (IETF draft).',
  "RateLimit-Policy":
    'What the token may use, as in `"token";q=100;w=1`: units in a window of seconds (IETF draft).',
  "Accept-Post": "The media types that this path takes (W3C Linked Data Platform).",
};

type Header = keyof typeof headers;

/** The headers of an answer, besides the one that every answer may have. */
export const withHeaders = (...names: Header[]): object =>
  Object.fromEntries(
    (["X-Request-Id", ...names] as const).map((name) => [name, component("headers", name)]),
  );

type Responses = Readonly<Record<string, object>>;

export interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly [more: string]: unknown;
}

/** What the description says of an operation. */
interface Described {
  /** Method and path. */
  readonly at: `${Method} ${string}`;
  readonly id: string;
  readonly scope: Operation["scope"];
  readonly summary: string;
  readonly tags?: readonly string[];
  readonly description?: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: object;
  /** The responses that are not failures. */
  readonly answers: Responses;
  /** Besides those of every operation, and of every body. */
  readonly fails?: readonly Failure[];
}

/** An operation as it is served and described. */
export type Entry = Described & Operation;

const bodyFailures = ["BodyTooSlow", "BodyTooLarge", "UnsupportedBody"] as const;
const tokenFailures = ["Unauthorized", "RateLimited", "Unavailable"] as const;

/** An operation of the description. */
export function describeOperation(entry: Described) {
  const { id, scope, summary, description, tags = ["plants"] } = entry;
  const { parameters, requestBody, answers } = entry;
  const isOpen = scope === undefined;
  const { fails = [isOpen ? "BadRequest" : "BadQuery"] } = entry;
  const needs = isOpen
    ? "Needs no token."
    : scope === "any"
      ? "Needs a token, of any scope."
      : `Needs the scope \`${scope}\`.`;
  const all: readonly Failure[] = [
    ...fails,
    ...(requestBody === undefined ? [] : bodyFailures),
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
    operationId: id,
    tags,
    summary,
    parameters,
    requestBody,
    description: [description, needs].join(" ").trim(),
    ...(isOpen && { security: [] }),
    responses,
  };
}

/** An answer with a body, in one or several media types. */
export const answer = (
  description: string,
  content: Readonly<Record<string, Media>>,
  ...names: Header[]
): object => ({ description, headers: withHeaders(...names), content });

interface Media {
  readonly schema: object;
  readonly example: unknown;
}

export const json = (itsSchema: object, example: unknown): Readonly<Record<string, Media>> => ({
  "application/json": { schema: itsSchema, example },
});

/** An array of these as JSON, and one of them a line. */
export const jsonAndLines = (
  name: string,
  examples: readonly object[],
): Readonly<Record<string, Media>> => ({
  ...json({ type: "array", items: schema(name) }, examples),
  [NDJSON_TYPE]: {
    // OpenAPI 3.1 has no schema for lines of JSON: to validators and generators they are text.
    schema: { type: "string", description: `One ${name} a line, as JSON.` },
    example: examples.map((line) => `${JSON.stringify(line)}\n`).join(""),
  },
});

export const asText = (type: string, example: string): Readonly<Record<string, Media>> => ({
  [type]: { schema: text, example },
});

export const text = { type: "string" } as const;
export const integer = { type: "integer" } as const;
export const maybe = (type: string): object => ({ type: [type, "null"] });
export const int64 = { type: "integer", format: "int64" } as const;

export const scopesShown = {
  type: "array",
  items: text,
  description: `Out of ${scopes.join(", ")}. Later versions may add some: ignore those that you do not know.`,
};

/** Every property is required. */
export const objectOf = (properties: object): object => ({
  type: "object",
  required: Object.keys(properties),
  properties,
});

export const parameter = (
  name: string,
  description: string,
  itsSchema: object = text,
  place = "query",
): Parameter => ({ name, in: place, description, schema: itsSchema });

export const limitParameter = (description: string): Parameter =>
  parameter("limit", description, {
    ...integer,
    minimum: 1,
    maximum: LIMIT_MAX,
    default: LIMIT_DEFAULT,
  });

const headersByStatus: Readonly<Record<number, readonly Header[]>> = {
  401: ["WWW-Authenticate"],
  403: ["WWW-Authenticate"],
  415: ["Accept-Post"],
  429: ["Retry-After", "RateLimit", "RateLimit-Policy"],
  503: ["Retry-After"],
};

/** The responses and headers that operations refer to. */
export function describeShared(): { readonly responses: object; readonly headers: object } {
  return {
    responses: Object.fromEntries(
      Object.entries(failures).map(([name, codes]) => [name, describeFailure(codes)]),
    ),
    headers: Object.fromEntries(
      Object.entries(headers).map(([name, description]) => [
        name,
        { description, schema: { type: "string" } },
      ]),
    ),
  };
}

function describeFailure(names: readonly [ErrorName, ...ErrorName[]]): object {
  return {
    description: names
      .map((name) => `- \`${catalogue[name].code} ${name}\`: ${catalogue[name].meaning}`)
      .join("\n"),
    headers: withHeaders(...(headersByStatus[catalogue[names[0]].status] ?? [])),
    content: {
      "application/json": {
        schema: schema("Error"),
        examples: Object.fromEntries(
          names.map((name) => [
            name,
            { value: { error: catalogue[name].code, message: catalogue[name].meaning } },
          ]),
        ),
      },
    },
  };
}

/** The whole catalogue, in Markdown. */
export function describeCatalogue(): string {
  const rows = Object.entries(catalogue).map(
    ([name, { code, status, meaning, retry }]) =>
      `| \`${code} ${name}\` | ${status} | ${meaning} | ${retry ? "yes" : "no"} |`,
  );
  return ["| error | status | meaning | retry |", "| --- | --- | --- | --- |", ...rows].join("\n");
}
