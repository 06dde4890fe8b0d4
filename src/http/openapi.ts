/** The description of the interface, in OpenAPI. */

import type { Config } from "../config.ts";
import { changeTypes } from "../domain/change.ts";
import { INT64_MAX, INT64_MIN } from "../domain/json.ts";
import { scopes } from "../domain/token.ts";
import { created, describeOperations } from "./openapi-operations.ts";
import {
  answer,
  describeCatalogue,
  type Described,
  describeShared,
  type Failure,
  failWith,
  json,
  objectOf,
  text,
} from "./openapi-parts.ts";
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
    paths: withHead({
      ...describeOperations(config),
      "/livez": {
        get: describeOpen(
          "isAlive",
          "Is the process alive?",
          "Answers while the process does.",
          status("alive"),
        ),
      },
      "/readyz": {
        get: describeOpen(
          "isReady",
          "Is the service ready?",
          "Answers 200 if a write was committed and synced within the last second and the service is not shutting down.",
          status("ready"),
          "Unavailable",
        ),
      },
      "/openapi.json": {
        get: describeOpen(
          "describeApi",
          "This document",
          "The description of the interface, in OpenAPI 3.1.",
          json({ type: "object" }, { openapi: "3.1.0" }),
        ),
      },
    }),
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

const status = (value: string): ReturnType<typeof json> =>
  json(objectOf({ status: { ...text, enum: [value] } }), { status: value });

function describeOpen(
  operationId: string,
  summary: string,
  description: string,
  content: ReturnType<typeof json>,
  ...failures: Failure[]
): Described {
  return {
    operationId,
    tags: ["operation"],
    summary,
    description: `${description} Needs no token.`,
    security: [],
    responses: {
      200: answer("Yes.", content),
      ...failWith("BadRequest", "UrlTooLong", "InternalError", ...failures),
    },
  };
}

/** HEAD answers wherever GET does: the same, without a body. */
function withHead(paths: ReturnType<typeof describeOperations>): object {
  return Object.fromEntries(
    Object.entries(paths).map(([path, operations]) => {
      const { get } = operations;
      if (get === undefined) return [path, operations];
      const responses = Object.entries(get.responses).map(([code, response]) => [
        code,
        { ...response, content: undefined },
      ]);
      const head = {
        ...get,
        operationId: `${get.operationId}Head`,
        summary: `${get.summary}: headers only`,
        description: "The headers that GET answers, without a body.",
        responses: Object.fromEntries(responses),
      };
      return [path, { ...operations, head }];
    }),
  );
}
