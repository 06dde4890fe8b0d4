/** What the descriptions of several operations have in common. */

import type { ErrorName } from "../domain/errors.ts";
import { LIMIT_DEFAULT, LIMIT_MAX } from "./query.ts";
import type { Operation } from "./service.ts";

export const errorsOfAny: ErrorName[] = [
  "malformed_request",
  "url_too_long",
  "token_missing",
  "token_invalid",
  "token_expired",
  "insufficient_scope",
  "internal",
];
export const errorsOfStore: ErrorName[] = [
  "overloaded",
  "store_unavailable",
  "store_busy",
  "shutting_down",
];

export const schema = (name: string): object => ({ $ref: `#/components/schemas/${name}` });

export const linkHeader = {
  Link: { description: '`<…>; rel="next"`, RFC 8288.', schema: { type: "string" } },
};

interface Details {
  readonly tags?: readonly string[];
  readonly description?: string;
  readonly parameters?: readonly object[];
  readonly requestBody?: object;
  readonly responses: object;
}

/** Of an operation that needs a token. */
export function operation(
  operationId: string,
  scope: NonNullable<Operation["scope"]>,
  summary: string,
  details: Details,
): object {
  const needs = scope === "any" ? "Needs a token, of any scope." : `Needs the scope \`${scope}\`.`;
  const description = [details.description, needs].join(" ").trim();
  return { operationId, tags: ["plants"], summary, ...details, description };
}

export function parameter(name: string, description: string, itsSchema: object): object {
  return { name, in: "query", description, schema: itsSchema };
}

export const limitParameter = (description: string): object =>
  parameter("limit", description, {
    type: "integer",
    minimum: 1,
    maximum: LIMIT_MAX,
    default: LIMIT_DEFAULT,
  });
