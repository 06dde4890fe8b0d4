/** The machine-readable description, made of the schemas that validate and the catalogue that answers. */

import type { Config } from "../config.ts";
import type { ErrorName } from "../domain/errors.ts";
import { NewPlantSchema, PlantSchema } from "../domain/plant.ts";
import { scopes } from "../domain/token.ts";
import { describePlantPaths } from "./openapi-plants.ts";
import { describeServicePaths } from "./openapi-service.ts";
import { describeCatalogue, describeErrors, requestIdHeader } from "./openapi-errors.ts";

/** The version of the interface, which is not the version of the program. */
const INTERFACE_VERSION = "1.0.0";

const ErrorSchema = {
  type: "object",
  required: ["error", "message"],
  properties: {
    error: {
      type: "integer",
      format: "int32",
      description: "Numeric error value, from the catalogue.",
    },
    message: { type: "string", description: "Error text, for people." },
  },
} as const;

const BatchResultSchema = {
  type: "object",
  required: ["line", "status"],
  properties: {
    line: { type: "integer", description: "The number of the line, counted from 1." },
    status: { type: "integer", description: "What a create of this line alone would answer." },
    replayed: { type: "boolean", description: "True where the plant was in the store already." },
    ...ErrorSchema.properties,
  },
} as const;

export function describeApi(config: Config): object {
  return {
    openapi: "3.1.0",
    info: {
      title: "Plant Store",
      version: INTERFACE_VERSION,
      description:
        "Keeps plants. A write is answered after it is on disk. Ids are exact over the whole range of int64: " +
        "read them with a parser that does not round them to doubles. " +
        "Sending the same plant again succeeds and stores nothing new, so that every create is safe to retry. " +
        "Every failure answers `{error, message}`, where `error` is one of those under Errors.\n\n" +
        `## Errors\n\n${describeCatalogue()}`,
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: config.basePath === "" ? "/" : config.basePath }],
    security: [{ bearerAuth: [] }],
    tags: [
      { name: "plants", description: "The plants in the store." },
      { name: "operation", description: "For those who run the service." },
    ],
    paths: {
      ...describePlantPaths(config),
      ...describeServicePaths(),
      "/livez": {
        get: describeOpen("isAlive", "Whether the process answers at all", { status: "alive" }),
      },
      "/readyz": {
        get: describeOpen(
          "isReady",
          "Whether the service can do its work: it has just written and synced, and is not shutting down",
          { status: "ready" },
          ["store_unavailable", "store_busy", "shutting_down", "overloaded"],
        ),
      },
      "/openapi.json": { get: describeOpen("describeApi", "This document", { openapi: "3.1.0" }) },
    },
    components: {
      schemas: {
        Plant: PlantSchema,
        NewPlant: NewPlantSchema,
        StoredPlant: { ...NewPlantSchema, description: "A plant with its id." },
        BatchResult: BatchResultSchema,
        Error: ErrorSchema,
      },
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

function describeOpen(
  operationId: string,
  summary: string,
  example: object,
  errors: readonly ErrorName[] = [],
): object {
  return {
    operationId,
    tags: ["operation"],
    summary,
    security: [],
    responses: {
      200: {
        description: "Yes.",
        headers: requestIdHeader,
        content: { "application/json": { schema: { type: "object" }, example } },
      },
      ...describeErrors(["malformed_request", "url_too_long", "internal", ...errors]),
    },
  };
}
