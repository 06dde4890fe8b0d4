/** The description of the interface, in OpenAPI. */

import type { Config } from "../config.ts";
import { changeTypes } from "../domain/change.ts";
import { INT64_MAX, INT64_MIN } from "../domain/json.ts";
import { scopes } from "../domain/token.ts";
import {
  describeCatalogue,
  describeOperation,
  describeShared,
  type Entry,
  int64,
  text,
} from "./openapi-parts.ts";
import { created, listOperations, splitPlace } from "./operations.ts";
import { TokenSchema } from "./tokens.ts";
import { describeEvents, WebhookSchema } from "./webhooks.ts";

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
      description: `Identification number of the plant: any integer from ${INT64_MIN} to ${INT64_MAX}, kept exactly. A double rounds ids beyond ${Number.MAX_SAFE_INTEGER}.`,
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
    line: {
      type: "integer",
      description: "The number of the line, or the place in the array, from 1.",
    },
    status: {
      type: "integer",
      description: "The status that a create of this line alone would have.",
    },
    replayed: { type: "boolean", description: "True if the plant was in the store already." },
    ...ErrorSchema.properties,
  },
} as const;

const ChangeSchema = {
  type: "object",
  required: ["seq", "time", "type", "id"],
  properties: {
    seq: {
      type: "integer",
      format: "int64",
      description:
        "Grows in the order of the commits, with gaps. At least the time of the change in microseconds since 1970, and within the range of doubles.",
    },
    time: { type: "string", format: "date-time" },
    type: { type: "string", enum: changeTypes },
    id: NewPlantSchema.properties.id,
    by: {
      type: "string",
      description: "The name of the token. Left out if a command changed the store itself.",
    },
    plant: {
      ...PlantSchema,
      description: "The plant since this change. Left out if it was removed.",
    },
    before: {
      ...PlantSchema,
      description: "The plant until this change. Left out if it was created.",
    },
  },
} as const;

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
      schemas: {
        Plant: PlantSchema,
        NewPlant: NewPlantSchema,
        StoredPlant: { ...NewPlantSchema, description: "A plant with its id." },
        BatchResult: BatchResultSchema,
        Change: ChangeSchema,
        Token: TokenSchema,
        Webhook: WebhookSchema,
        Error: ErrorSchema,
      },
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
const openParts: Readonly<Record<string, object>> = {
  "/plants/{id}": {
    description: "The plant's id, in plain decimal digits.",
    schema: int64,
    example: 1,
  },
  "/tokens/{id}": {
    description: "The token's id, from the list.",
    schema: text,
    example: "9f86d081884c7d65",
  },
  "/webhooks/{name}": { description: "The webhook's name.", schema: text, example: "shop" },
};

/** HEAD answers wherever GET does: the same, without a body. */
function describePaths(entries: readonly Entry[]): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const entry of entries) {
    const [method, path] = splitPlace(entry);
    const [, start = "", name] = /^(.*\{(\w+)\})/.exec(path) ?? [];
    const operations = (paths[path] ??=
      name === undefined
        ? {}
        : { parameters: [{ name, in: "path", required: true, ...openParts[start] }] });
    const described = describeOperation(entry);
    operations[method.toLowerCase()] = described;
    if (method !== "GET") continue;
    const responses = Object.entries(described.responses).map(([code, response]) => [
      code,
      { ...response, content: undefined },
    ]);
    operations["head"] = {
      ...described,
      operationId: `${described.operationId}Head`,
      summary: `${described.summary}: headers only`,
      description: "The headers that GET answers, without a body.",
      responses: Object.fromEntries(responses),
    };
  }
  return paths;
}
