/** Parts that the descriptions of several operations share. */

import { catalogue, type ErrorName } from "../domain/errors.ts";
import type { Operation } from "./handle.ts";
import { LIMIT_DEFAULT, LIMIT_MAX } from "./query.ts";

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

/** An operation that needs a token. */
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

export const requestIdHeader = {
  "X-Request-Id": {
    description:
      "Names this request in the service's log. Sent with every failure, and with a success if the request has one.",
    schema: { type: "string" },
  },
};

const headersByStatus: Record<number, object> = {
  401: { "WWW-Authenticate": { description: "RFC 6750.", schema: { type: "string" } } },
  403: { "WWW-Authenticate": { description: "RFC 6750.", schema: { type: "string" } } },
  503: { "Retry-After": { description: "Seconds.", schema: { type: "integer" } } },
};

/** The failures of an operation by status, each with its code. */
export function describeErrors(names: readonly ErrorName[]): Record<number, object> {
  const byStatus = Object.groupBy(names, (name) => catalogue[name].status);
  const described = Object.entries(byStatus).map(([status, group]) => [
    status,
    {
      description: group
        .map((name) => `- \`${catalogue[name].code} ${name}\`: ${catalogue[name].meaning}`)
        .join("\n"),
      headers: { ...requestIdHeader, ...headersByStatus[Number(status)] },
      content: {
        "application/json": {
          schema: { $ref: "#/components/schemas/Error" },
          examples: Object.fromEntries(
            group.map((name) => [
              name,
              { value: { error: catalogue[name].code, message: catalogue[name].meaning } },
            ]),
          ),
        },
      },
    },
  ]);
  return Object.fromEntries(described) as Record<number, object>;
}

/** The whole catalogue, in Markdown. */
export function describeCatalogue(): string {
  const rows = Object.entries(catalogue).map(
    ([name, { code, status, meaning, retry }]) =>
      `| \`${code} ${name}\` | ${status} | ${meaning} | ${retry ? "yes" : "no"} |`,
  );
  return ["| error | status | meaning | retry |", "| --- | --- | --- | --- |", ...rows].join("\n");
}
