/** The failures of an operation, as the description lists them: by status, each with its code. */

import { catalogue, type ErrorName } from "../domain/errors.ts";

export const requestIdHeader = {
  "X-Request-Id": {
    description: "Names this exchange in the service's log; one that was sent is kept.",
    schema: { type: "string" },
  },
};

const headersByStatus: Record<number, object> = {
  401: { "WWW-Authenticate": { description: "RFC 6750.", schema: { type: "string" } } },
  403: { "WWW-Authenticate": { description: "RFC 6750.", schema: { type: "string" } } },
  503: { "Retry-After": { description: "Seconds.", schema: { type: "integer" } } },
};

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
