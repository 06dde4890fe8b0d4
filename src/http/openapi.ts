/** The description of the interface, in OpenAPI. */

import type { Config } from "../config.ts";
import { scopes } from "../domain/token.ts";
import {
  describeCatalogue,
  describeOperation,
  describeParameters,
  describeShared,
} from "./openapi-parts.ts";
import { created, listOperations, splitPlace } from "./operations.ts";
import { int64, mapValues, schemas, type Shape, text } from "./shape.ts";
import { describeEvents } from "./webhooks.ts";

/** The version of the interface, not of the program. */
const INTERFACE_VERSION = "1.0.0";

export function describeApi(config: Config): object {
  return {
    openapi: "3.1.0",
    info: {
      title: "Plant Store",
      version: INTERFACE_VERSION,
      description:
        "Stores plants. A write is answered after it is on disk. " +
        "Sending the same plant again succeeds and stores nothing new, so every create is safe to retry. " +
        "Every failure answers `{error, message}`. Errors lists the values of `error`.\n\n" +
        `Ids are exact over the whole range of int64. A client that reads them into doubles rounds ids beyond ${Number.MAX_SAFE_INTEGER} without an error, and the clients that generators make for JavaScript and TypeScript do. Stay within that range, or use a parser with 64-bit or big integers.\n\n` +
        `## Errors\n\n${describeCatalogue()}`,
      contact: { name: "The maintainers of Plant Store" },
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: config.basePath === "" ? "/" : config.basePath }],
    security: [{ bearerAuth: [] }],
    tags: [
      { name: "plants", description: "The plants in the store." },
      { name: "webhooks", description: "Who is told of changes." },
      { name: "operation", description: "For operators of the service." },
    ],
    paths: describePaths(listOperations(config)),
    webhooks: describeEvents(created),
    components: {
      schemas,
      ...describeShared(),
      securitySchemes: {
        bearerAuth: {
          type: "http",
          scheme: "bearer",
          description: `A token made by \`plantstore token create\`. Scopes: ${scopes.join(", ")}.`,
        },
      },
    },
  };
}

/** What stands in a path's open part. */
const openParts: Readonly<Record<string, Shape>> = {
  "/plants/{id}": int64(1, "The plant's id, in plain decimal digits."),
  "/tokens/{id}": text("9f86d081884c7d65", "The token's id, from the list."),
  "/webhooks/{name}": text("shop", "The webhook's name."),
};

function describePaths(operations: ReturnType<typeof listOperations>): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const [tag, entries] of Object.entries(operations))
    for (const [id, entry] of Object.entries(entries)) {
      const [method, path] = splitPlace(entry);
      const [, start = "", name = ""] = /^(.*\{(\w+)\})/.exec(path) ?? [];
      const { [start]: shape } = openParts;
      const described = describeOperation(id, tag, entry);
      paths[path] = {
        ...paths[path],
        ...(shape && { parameters: describeParameters("path", { [name]: shape }, true) }),
        [method.toLowerCase()]: described,
        ...(method === "GET" && { head: describeHead(described) }),
      };
    }
  return paths;
}

/** HEAD answers wherever GET does: the same, without a body. */
const describeHead = (described: ReturnType<typeof describeOperation>): object => ({
  ...described,
  operationId: `${described.operationId}Head`,
  summary: `${described.summary}: headers only`,
  description: "The headers that GET answers, without a body.",
  responses: mapValues(described.responses, (response) => ({ ...response, content: undefined })),
});
