/** The machine-readable description, made of the schemas that validate and the catalogue that answers. */

import type { Config } from "../config.ts";
import { catalogue, type ErrorName } from "../domain/error.ts";
import { NewPlantSchema, PlantSchema } from "../domain/plant.ts";
import { scopes } from "../domain/token.ts";

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

const errorNames = Object.keys(catalogue) as ErrorName[];

/** What any request can meet, whatever it asks for. */
const errorsOfAny: ErrorName[] = ["malformed_request", "url_too_long", "internal"];
const errorsOfStore: ErrorName[] = [
  "store_unavailable",
  "store_busy",
  "shutting_down",
  "overloaded",
];
/** Answered on no operation in particular, so that they stand in the catalogue alone. */
const errorsOfNoOperation = new Set<ErrorName>(["path_not_found", "method_not_allowed"]);

export function describeApi(config: Config): object {
  return {
    openapi: "3.1.0",
    info: {
      title: "Plant Store",
      version: INTERFACE_VERSION,
      description:
        "Adds plants to a store. A 200 is sent after the plant is on disk. Ids are exact over the whole range of int64. " +
        "Sending the same plant again succeeds and stores nothing new, so that every request is safe to retry. " +
        `Every failure answers \`{error, message}\`; the values of \`error\` are: ${describeCodes()}`,
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: config.basePath === "" ? "/" : config.basePath }],
    security: [{ bearerAuth: [] }],
    tags: [
      { name: "plants", description: "The plants in the store." },
      { name: "operation", description: "For those who run the service. No token needed." },
    ],
    paths: {
      "/plants": { post: describeCreate(config) },
      "/livez": { get: describeOpen("isAlive", "Whether the process answers at all.") },
      "/readyz": {
        get: describeOpen(
          "isReady",
          "Whether the service can do its work: it has just written and synced, and is not shutting down.",
          errorsOfStore,
        ),
      },
      "/openapi.json": { get: describeOpen("describeApi", "This document.") },
    },
    components: {
      schemas: { Plant: PlantSchema, NewPlant: NewPlantSchema, Error: ErrorSchema },
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

function describeCreate(config: Config): object {
  return {
    operationId: "createPlant",
    tags: ["plants"],
    summary: "Create a plant",
    description:
      "Creates a new plant in the store. Needs the scope `plants:write`. " +
      "The same plant under the same id again answers 200 with `Idempotent-Replayed: true`; " +
      "a different plant under a taken id answers 409 and changes nothing. " +
      `Limits: body ${config.bodyBytesMax} bytes, ${config.readSecondsMax} s to send it, ` +
      `URL ${config.urlBytesMax} bytes, head ${config.headerBytesMax} bytes.`,
    requestBody: {
      required: true,
      description: `JSON in UTF-8 of at most ${config.bodyBytesMax} bytes. Unknown members are ignored.`,
      content: {
        "application/json": {
          schema: { $ref: "#/components/schemas/NewPlant" },
          examples: {
            tagged: {
              summary: "With a tag",
              value: { id: 1, name: "Monstera deliciosa", tag: "tropical" },
            },
            untagged: { summary: "Without a tag", value: { id: 2, name: "Ficus lyrata" } },
          },
        },
      },
    },
    responses: {
      200: {
        description: "Plant response: the plant is on disk.",
        headers: {
          ...requestIdHeader,
          "Idempotent-Replayed": {
            description: "`true` where the plant was in the store already.",
            schema: { type: "string", enum: ["true"] },
          },
        },
        content: {
          "application/json": {
            schema: { $ref: "#/components/schemas/Plant" },
            example: { name: "Monstera deliciosa", tag: "tropical" },
          },
        },
      },
      ...describeErrors(errorNames.filter((name) => !errorsOfNoOperation.has(name))),
    },
  };
}

function describeOpen(operationId: string, summary: string, errors: ErrorName[] = []): object {
  return {
    operationId,
    tags: ["operation"],
    summary,
    security: [],
    responses: {
      200: {
        description: "Yes.",
        headers: requestIdHeader,
        content: { "application/json": { schema: { type: "object" } } },
      },
      ...describeErrors([...errorsOfAny, ...errors]),
    },
  };
}

const requestIdHeader = {
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

function describeErrors(names: readonly ErrorName[]): Record<number, object> {
  const byStatus = Object.groupBy(names, (name) => catalogue[name].status);
  const described = Object.entries(byStatus).map(([status, group]) => [
    status,
    {
      description: group
        .map((name) => `${catalogue[name].code}: ${catalogue[name].meaning}`)
        .join(" "),
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

function describeCodes(): string {
  return errorNames.map((name) => `${catalogue[name].code} ${name}`).join(", ");
}
