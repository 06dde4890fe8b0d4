/** Every operation, and the routes of their paths. */

import type { Config } from "../config.ts";
import { answer as respond } from "./answer.ts";
import { batchOperations } from "./batch.ts";
import { bulkOperations } from "./bulk.ts";
import { changeOperations } from "./changes.ts";
import { type Endpoint, type Endpoints, json, ok, operation } from "./endpoint.ts";
import type { Method, Operation, Route } from "./handle.ts";
import { jobOperations } from "./jobs.ts";
import { plantListOperations } from "./plant-list.ts";
import { plantOperations } from "./plants.ts";
import { revertOperations } from "./revert.ts";
import { listStatusOperations } from "./status.ts";
import { tokenOperations } from "./tokens.ts";
import { webhookOperations } from "./webhooks.ts";

/** Grouped by OpenAPI tag, in document order. */
export const listOperations = (config: Config): Readonly<Record<string, Endpoints>> => ({
  plants: {
    ...plantOperations,
    ...plantListOperations,
    ...bulkOperations,
    ...batchOperations,
    ...changeOperations,
    ...revertOperations,
    ...jobOperations,
  },
  webhooks: webhookOperations,
  operation: {
    ...tokenOperations,
    ...listStatusOperations(config),
    describeApi: operation({
      at: "GET /openapi.json",
      scopes: undefined,
      kind: "other",
      summary: "This document",
      description: "The description of the interface, in OpenAPI 3.1.",
      run: createDescriber(config),
      answers: ok(
        "The OpenAPI document.",
        json({ schema: { type: "object" }, example: { openapi: "3.1.0" } }),
      ),
    }),
  },
});

/** Loaded and made at the first request. All clients share one copy. */
function createDescriber(config: Config) {
  let description: Promise<Blob> | undefined;
  const describe = async (): Promise<Blob> => {
    const { describeApi } = await import("./description.ts");
    return new Blob([JSON.stringify(describeApi(config))]);
  };
  return async () => respond(200, await (description ??= describe()));
}

export const splitPlace = ({ at }: Endpoint) => at.split(" ") as [Method, string];

export function createRoutes(operations: ReturnType<typeof listOperations>): readonly Route[] {
  const routes = new Map<string, Route["operations"]>();
  for (const endpoint of Object.values(operations).flatMap(Object.values<Endpoint>)) {
    const [method, path] = splitPlace(endpoint);
    const { scopes, kind, isWhole, headers, body, parse, run, answer } = endpoint;
    // Every operation has the same object shape: the hot path reads it.
    const served: Operation = { scopes, kind, isWhole, headers, body, parse, run, answer };
    routes.set(path, { ...routes.get(path), [method]: served });
  }
  return Array.from(routes, ([path, ofPath]) => ({ path, operations: ofPath }));
}
