/** The description of the API, in OpenAPI 3.1. */

import type { Config } from "../config.ts";
import { catalogue, type ErrorName, type FailureName } from "../domain/errors.ts";
import { scopes } from "../domain/token.ts";
import {
  describeParameters,
  type Endpoint,
  type Header,
  headers,
  jsonWith,
  type Responses,
  withHeaders,
} from "./endpoint.ts";
import { listOperations, splitPlace } from "./operations.ts";
import { groups, INTRODUCTION, writeDescriptions } from "./prose.ts";
import { component, int64, mapValues, schemas, type Shape, text } from "./shape.ts";
import { created } from "./plant-shapes.ts";
import { describeEvents } from "./webhooks.ts";

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
    paths: describePaths(listOperations(config), writeDescriptions(config)),
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

const openParts: Readonly<Record<string, Shape>> = {
  "/plants/{id}": int64(1, "The plant's id, in plain decimal digits."),
  "/tokens/{id}": text("9f86d081884c7d65", "The token's id, from the list."),
  "/webhooks/{name}": text("shop", "The webhook's name."),
};

function describePaths(
  operations: ReturnType<typeof listOperations>,
  prose: Readonly<Record<string, string>>,
): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const [tag, entries] of Object.entries(operations))
    for (const [operationId, endpoint] of Object.entries(entries)) {
      const [method, path] = splitPlace(endpoint);
      const [, start = "", name = ""] = /^(.*\{(\w+)\})/.exec(path) ?? [];
      const { [start]: shape } = openParts;
      const described = describeOperation(operationId, tag, endpoint, prose[operationId]);
      paths[path] = {
        ...paths[path],
        ...(shape && { parameters: describeParameters("path", { [name]: shape }, true) }),
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

function describeOperation(
  operationId: string,
  tag: string,
  endpoint: Endpoint,
  prose: string | undefined,
) {
  const { scope, needs, summary, query, headers: sent, accepts, answers } = endpoint;
  const isOpen = scope === undefined;
  const { fails = [isOpen ? "BadRequest" : "BadQuery"] } = endpoint;
  const needed = isOpen
    ? "Needs no token."
    : scope === "any"
      ? "Needs a token, of any scope."
      : needs === undefined
        ? `Needs the scope \`${scope}\`.`
        : `Needs the scopes \`${scope}\` and \`${needs}\`.`;
  const all: readonly FailureName[] = [
    ...fails,
    ...(accepts === undefined ? [] : bodyFailures),
    ...(isOpen ? [] : tokenFailures),
    ...(isOpen || scope === "any" ? [] : (["Forbidden"] as const)),
    "UrlTooLong",
    "InternalError",
  ];
  const responses: Responses = {
    ...answers,
    ...Object.fromEntries(
      all.map((name) => [statusOf(failures[name]), component("responses", name)]),
    ),
  };
  return {
    operationId,
    tags: [tag],
    summary,
    parameters: [...describeParameters("query", query), ...describeParameters("header", sent)],
    requestBody: accepts && { required: true, content: accepts },
    description: [prose, needed].join(" ").trim(),
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
  headers: mapValues(headers, (description) => ({ description, schema: { type: "string" } })),
});

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
