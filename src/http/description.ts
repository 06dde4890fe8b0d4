/** The description of the API, in OpenAPI 3.1. */

import type { Config } from "../config.ts";
import { catalogue, type ErrorName, type FailureName } from "../domain/errors.ts";
import { scopes } from "../domain/token.ts";
import { answerHeaders } from "./answer.ts";
import {
  describeParameters,
  type Endpoint,
  type Header,
  jsonWith,
  type Responses,
  withHeaders,
} from "./endpoint.ts";
import { listOperations, splitPlace } from "./operations.ts";
import { component, mapValues, schemas } from "./shape.ts";
import { created } from "./plant-shapes.ts";
import { describeEvents } from "./webhooks.ts";

const INTRODUCTION =
  "Stores plants. A write is answered after it is on disk. " +
  "Sending the same plant again succeeds and stores nothing new, so every create is safe to retry. " +
  "Every failure answers `{error, message}`. The section Errors lists the values of `error`.\n\n" +
  `Ids are exact over the whole range of int64. A client that reads them into doubles rounds ids beyond ${Number.MAX_SAFE_INTEGER} without an error; generated clients for JavaScript and TypeScript do so. Stay within that range, or use a parser with 64-bit or big integers.`;

const groups = {
  plants: "The plants in the store.",
  webhooks: "Change notifications.",
  operation: "For operators of the service.",
};

/** The version of the API, not of the program. */
const INTERFACE_VERSION = "1.0.0";

export function describeApi(config: Config): object {
  return {
    openapi: "3.1.0",
    info: {
      title: "Plant Store",
      version: INTERFACE_VERSION,
      description: `${INTRODUCTION}\n\n## Errors\n\n${describeCatalogue()}`,
      contact: { name: "The maintainers of Plant Store" },
      license: { name: "MIT", identifier: "MIT" },
    },
    // Relative to the URL of this document, so a proxy may strip any prefix.
    servers: [{ url: "." }],
    security: [{ bearerAuth: [] }],
    tags: Object.entries(groups).map(([name, description]) => ({ name, description })),
    paths: describePaths(config),
    webhooks: describeEvents(created),
    components: {
      schemas,
      ...describeShared(),
      securitySchemes: {
        bearerAuth: {
          type: "http",
          scheme: "bearer",
          description: `A token made by \`plantstore token create\`${config.jwtIssuer && `, or a JWT of ${config.jwtIssuer}`}. Scopes: ${scopes.join(", ")}.`,
        },
      },
    },
  };
}

function describePaths(config: Config): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const [tag, entries] of Object.entries(listOperations(config)))
    for (const [operationId, endpoint] of Object.entries(entries)) {
      const [method, path] = splitPlace(endpoint);
      const described = describeOperation(operationId, tag, endpoint, config);
      paths[path] = {
        ...paths[path],
        ...(endpoint.path && { parameters: describeParameters("path", endpoint.path) }),
        [method.toLowerCase()]: described,
        ...(method === "GET" && { head: describeHead(described) }),
      };
    }
  return paths;
}

/** HEAD is available wherever GET is: the same response without a body. */
const describeHead = (described: ReturnType<typeof describeOperation>): object => ({
  ...described,
  operationId: `${described.operationId}Head`,
  summary: `${described.summary}: headers only`,
  description: "The headers that GET answers, without a body.",
  responses: mapValues(described.responses, (response) => ({ ...response, content: undefined })),
});

const bodyFailures = [
  "BodyTooSlow",
  "BodyTooLarge",
  "UnsupportedBody",
  "ExpectationFailed",
] as const;
const tokenFailures = ["Unauthorized", "RateLimited", "Unavailable"] as const;

export function describeOperation(
  operationId: string,
  tag: string,
  endpoint: Endpoint,
  config: Config,
) {
  const { scopes: needs, summary, description, query, headers: sent, accepts, answers } = endpoint;
  const isOpen = needs === undefined;
  const { fails = [isOpen ? "BadRequest" : "BadQuery"] } = endpoint;
  const named = needs?.map((scope) => `\`${scope}\``).join(" and ") ?? "";
  const needed = isOpen
    ? "Needs no token."
    : needs.length === 0
      ? "Needs a token, of any scope."
      : `Needs the scope${needs.length > 1 ? "s" : ""} ${named}.`;
  const words = typeof description === "string" ? description : description(config);
  const all: readonly FailureName[] = [
    ...fails,
    ...(accepts === undefined ? [] : bodyFailures),
    ...(isOpen ? [] : tokenFailures),
    ...((needs ?? []).length === 0 ? [] : (["Forbidden"] as const)),
    "UrlTooLong",
    "InternalError",
  ];
  const responses: Responses = {
    ...answers,
    ...Object.fromEntries(
      Array.from(
        Map.groupBy(all, (name) => statusOf(failures[name])),
        ([status, names]) => [status, describeFailures(names)],
      ),
    ),
  };
  return {
    operationId,
    tags: [tag],
    summary,
    parameters: [...describeParameters("query", query), ...describeParameters("header", sent)],
    requestBody: accepts && { required: true, content: accepts },
    description: `${words} ${needed}`,
    ...(isOpen && { security: [] }),
    responses,
  };
}

const failures: Record<string, ErrorName[]> = {};
for (const name of Object.keys(catalogue) as ErrorName[])
  for (const failure of catalogue[name].failures) (failures[failure] ??= []).push(name);

const statusOf = ([first]: readonly ErrorName[] = []): number =>
  catalogue[first as ErrorName].status;

const headersByStatus: Readonly<Record<number, readonly Header[]>> = {
  401: ["WWW-Authenticate"],
  403: ["WWW-Authenticate"],
  415: ["Accept-Post", "Accept-Patch", "Accept-Encoding"],
  429: ["Retry-After", "RateLimit", "RateLimit-Policy"],
  503: ["Retry-After"],
};

const describeShared = (): object => ({
  responses: mapValues(failures, describeFailure),
  headers: mapValues(answerHeaders, (description) => ({ description, schema: { type: "string" } })),
});

/** Failures that share a status are one response, with the errors of each. */
function describeFailures(names: readonly FailureName[]): object {
  const [only = "", another] = names;
  if (another === undefined) return component("responses", only);
  return describeFailure([...new Set(names.flatMap((name) => failures[name] ?? []))]);
}

function describeFailure(names: readonly ErrorName[]): object {
  const errors = names.map((name) => ({ name, ...catalogue[name] }));
  const examples = errors.map(({ name, code, meaning }) => [
    name,
    { error: code, message: meaning },
  ]);
  return {
    description: errors
      .map(({ name, code, meaning }) => `- \`${code} ${name}\`: ${meaning}`)
      .join("\n"),
    headers: withHeaders(headersByStatus[statusOf(names)] ?? []),
    content: jsonWith({ schema: component("schemas", "Error") }, Object.fromEntries(examples)),
  };
}

function describeCatalogue(): string {
  const rows = Object.entries(catalogue).map(
    ([name, { code, status, meaning, retry }]) =>
      `| \`${code} ${name}\` | ${status} | ${meaning} | ${retry ? "yes" : "no"} |`,
  );
  return ["| error | status | meaning | retry |", "| --- | --- | --- | --- |", ...rows].join("\n");
}
