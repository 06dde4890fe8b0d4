/** The description of the interface, in OpenAPI. */

import type { Config } from "../config.ts";
import type { ErrorName } from "../domain/errors.ts";
import { INT64_MAX, INT64_MIN } from "../domain/json.ts";
import { scopes } from "../domain/token.ts";
import { describeOperations } from "./openapi-operations.ts";
import { describeCatalogue, describeErrors, requestIdHeader } from "./openapi-parts.ts";

/** The version of the interface, not of the program. */
const INTERFACE_VERSION = "1.0.0";

/** The checks in domain/plant.ts accept exactly what these two describe. */
export const PlantSchema = {
  type: "object",
  required: ["name"],
  properties: {
    name: {
      type: "string",
      description:
        "The name of the plant. Any string, even an empty one, without U+0000 and unpaired surrogates.",
    },
    tag: {
      type: "string",
      description:
        "Tag that specifies the type. The same rules as for the name. A plant without a tag leaves it out; it is never null.",
    },
  },
} as const;

export const NewPlantSchema = {
  type: "object",
  required: ["id", ...PlantSchema.required],
  properties: {
    id: {
      type: "integer",
      format: "int64",
      description: `Identification number of the plant: any integer from ${INT64_MIN} to ${INT64_MAX}, kept exactly.`,
    },
    ...PlantSchema.properties,
  },
} as const;

const ErrorSchema = {
  type: "object",
  required: ["error", "message"],
  properties: {
    error: {
      type: "integer",
      format: "int32",
      description: "Numeric error value, from the catalogue.",
    },
    message: { type: "string", description: "Error text for people." },
  },
} as const;

const BatchResultSchema = {
  type: "object",
  required: ["line", "status"],
  properties: {
    line: { type: "integer", description: "The number of the line, counted from 1." },
    status: {
      type: "integer",
      description: "The status that a create of this line alone would have.",
    },
    replayed: { type: "boolean", description: "True if the plant was in the store already." },
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
        "Sending the same plant again succeeds and stores nothing new, so every create is safe to retry. " +
        "Every failure answers `{error, message}`. Errors lists the values of `error`.\n\n" +
        `## Errors\n\n${describeCatalogue()}`,
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: config.basePath === "" ? "/" : config.basePath }],
    security: [{ bearerAuth: [] }],
    tags: [
      { name: "plants", description: "The plants in the store." },
      { name: "operation", description: "For operators of the service." },
    ],
    paths: {
      ...describeOperations(config),
      "/livez": {
        get: describeOpen("isAlive", "Whether the process answers", { status: "alive" }),
      },
      "/readyz": {
        get: describeOpen(
          "isReady",
          "Whether the service is ready: it has just written and synced, and is not shutting down",
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
