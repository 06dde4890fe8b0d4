/** Every operation that needs a token, as the description shows it. */

import type { Config } from "../config.ts";
import { orders, TAG_PREFIX_CHARACTERS } from "../domain/page.ts";
import { scopes } from "../domain/token.ts";
import { SAMPLE_MS, SAMPLES_MAX } from "../observe/reporter.ts";
import { lineBytesMax } from "./batch.ts";
import { describeChanges } from "./openapi-changes.ts";
import {
  type Described,
  failWith,
  limitParameter,
  lines,
  ndjson,
  NDJSON_TYPE,
  operation,
  parameter,
  schema,
  withHeaders,
} from "./openapi-parts.ts";

const monstera = { id: 1, name: "Monstera deliciosa", tag: "tropical" };
const ficus = { id: 2, name: "Ficus lyrata" };
export function describeOperations(
  config: Config,
): Record<string, { readonly get?: Described; readonly [more: string]: unknown }> {
  return {
    "/plants": { post: describeCreate(config), get: describeList(config) },
    "/plants/batch": { post: describeBatch(config) },
    "/plants/{id}": {
      parameters: [
        {
          name: "id",
          in: "path",
          required: true,
          description: "The plant's id, in plain decimal digits.",
          schema: { type: "integer", format: "int64" },
          example: 1,
        },
      ],
      get: describeRead(),
      put: describeReplace(config),
      delete: describeRemove(),
    },
    "/tags": { get: describeTags() },
    "/changes": { get: describeChanges(config) },
    "/token": { get: describeToken() },
    "/activity": { get: describeActivity() },
    "/metrics": { get: describeMetrics() },
  };
}

function describeCreate(config: Config): Described {
  return operation("createPlant", "plants:write", "Create a plant", {
    description:
      "Creates a new plant in the store. " +
      "The same plant under the same id again answers 200 with `Idempotent-Replayed: true`; " +
      "a different plant under a taken id answers 409 and changes nothing. " +
      `Limits: body ${config.bodyBytesMax} bytes, ${config.readSecondsMax} s to send it, ` +
      `URL ${config.urlBytesMax} bytes, head ${config.headerBytesMax} bytes.`,
    requestBody: describeBody(config, "NewPlant", { tagged: monstera, untagged: ficus }),
    responses: {
      200: answer("Plant response: the plant is on disk.", "Plant", withoutId(monstera), {
        ...withHeaders(),
        "Idempotent-Replayed": {
          description: "`true` if the plant was in the store already.",
          schema: { type: "string", enum: ["true"] },
        },
      }),
      ...failWith("BadPlant", "BodyTooSlow", "BodyTooLarge", "UnsupportedBody", "IdTaken"),
    },
  });
}

function describeList(config: Config): Described {
  return operation("listPlants", "plants:read", "List plants", {
    description:
      "A page of plants in the order of their ids, as an array; the next page is in the `Link` header, which the last " +
      "page does not have. With `Accept: application/x-ndjson` or `text/csv` the whole (filtered) store comes as a " +
      "stream instead, and `limit` is not allowed. To know that a stream is complete, ask for what comes after its last " +
      "plant: `?after=<id>&limit=1`, with the same filters. " +
      `A page of very long names may end before its limit. A search by \`name\` looks at most at ${config.scanRowsMax} plants a page, so a page may end early or be empty. Both have a next link.`,
    parameters: [
      limitParameter("Plants on a page."),
      parameter("after", "The id of the last plant seen; the page begins after it.", {
        type: "integer",
        format: "int64",
      }),
      parameter("tag", "Exactly this tag.", { type: "string" }),
      parameter(
        "name",
        "A part of the name, in any case: compared after NFC normalisation, in Unicode upper case.",
        { type: "string" },
      ),
      parameter("order", "By id.", { type: "string", enum: orders, default: "asc" }),
    ],
    responses: {
      200: {
        description: "The plants.",
        headers: withHeaders("Link"),
        content: {
          "application/json": {
            schema: { type: "array", items: schema("StoredPlant") },
            example: [monstera, ficus],
          },
          [NDJSON_TYPE]: {
            schema: lines("StoredPlant"),
            example: ndjson(monstera, ficus),
          },
          "text/csv": {
            schema: { type: "string" },
            example: 'id,name,tag\r\n1,"Monstera deliciosa","tropical"\r\n2,"Ficus lyrata",\r\n',
          },
        },
      },
      ...failWith("BadQuery"),
    },
  });
}

function describeBatch(config: Config): Described {
  const results = [
    { line: 1, status: 200 },
    { line: 2, status: 200, replayed: true },
    {
      line: 3,
      status: 409,
      error: 3001,
      message: "A different plant has the id 1; nothing was changed.",
    },
  ];
  return operation("createPlants", "plants:write", "Create many plants", {
    description:
      "Takes an array of plants and answers with an array of results, or takes one plant a line and answers with one " +
      "result a line, while the lines are still being sent. Results are in the order of the plants. " +
      "Each plant succeeds or fails alone, as a create of it would. Safe to send again as a whole. " +
      `Limits: ${config.bodyBytesMax} bytes an array; any number of lines, ${lineBytesMax(config)} bytes a line, ` +
      `${config.readSecondsMax} s between two pieces. ` +
      "Read the results while you send lines: a slow reader holds up both directions. " +
      "If the lines cannot be read to their end, the last result says so (400, 401, 408, 503), and nothing after it was stored: count the results.",
    requestBody: {
      required: true,
      content: {
        "application/json": {
          schema: { type: "array", items: schema("NewPlant") },
          example: [monstera, ficus],
        },
        [NDJSON_TYPE]: { schema: lines("NewPlant"), example: ndjson(monstera, ficus) },
      },
    },
    responses: {
      200: {
        description: "A result for each plant.",
        headers: withHeaders(),
        content: {
          "application/json": {
            schema: { type: "array", items: schema("BatchResult") },
            example: results,
          },
          [NDJSON_TYPE]: { schema: lines("BatchResult"), example: ndjson(...results) },
        },
      },
      ...failWith("BadPlant", "BodyTooSlow", "BodyTooLarge", "UnsupportedBody"),
    },
  });
}

function describeRead(): Described {
  return operation("readPlant", "plants:read", "Read a plant", {
    parameters: [
      precondition("If-None-Match", "Answers 304 if the plant still has this entity tag."),
    ],
    responses: {
      200: answer("The plant.", "StoredPlant", monstera, withHeaders("ETag")),
      304: { description: "The plant has not changed.", headers: withHeaders("ETag") },
      ...failWith("BadCondition", "PlantNotFound"),
    },
  });
}

function describeReplace(config: Config): Described {
  return operation("replacePlant", "plants:write", "Replace a plant", {
    description:
      "Replaces name and tag of an existing plant; a tag that is left out is removed. An `id` in the body must be the one in the path. " +
      "With `If-Match`, a change that another client made in between is not overwritten.",
    parameters: changePreconditions,
    requestBody: describeBody(config, "Plant", { renamed: withoutId(monstera) }),
    responses: {
      200: answer("The plant is on disk.", "Plant", withoutId(monstera), withHeaders("ETag")),
      ...failWith(
        "BadReplacement",
        "PlantNotFound",
        "PreconditionFailed",
        "BodyTooSlow",
        "BodyTooLarge",
        "UnsupportedBody",
      ),
    },
  });
}

function describeRemove(): Described {
  return operation("removePlant", "plants:write", "Remove a plant", {
    parameters: changePreconditions,
    responses: {
      204: { description: "The plant is removed, on disk.", headers: withHeaders() },
      ...failWith("BadCondition", "PlantNotFound", "PreconditionFailed"),
    },
  });
}

function describeTags(): Described {
  return operation("listTags", "plants:read", "List the tags in use", {
    description:
      "Each tag once, in the order of its UTF-8 bytes; the next page is in the `Link` header, which the last page " +
      `does not have. Tags of ${TAG_PREFIX_CHARACTERS} characters or more are not listed; if there are many, ` +
      "a page may end early or be empty, with a next link.",
    parameters: [
      parameter("prefix", "Only tags that begin with this, exactly.", { type: "string" }),
      parameter("after", "The last tag seen; the page begins after it.", { type: "string" }),
      limitParameter("Tags on a page."),
    ],
    responses: {
      200: {
        description: "The tags.",
        headers: withHeaders("Link"),
        content: {
          "application/json": {
            schema: { type: "array", items: { type: "string" } },
            example: ["bulb", "herb", "tropical"],
          },
        },
      },
      ...failWith("BadQuery"),
    },
  });
}

function describeToken(): Described {
  return operation("describeToken", "any", "Show the token that the request was sent with", {
    tags: ["operation"],
    responses: {
      200: json(
        "The token, without its secret.",
        {
          type: "object",
          required: ["name", "scopes"],
          properties: {
            name: {
              type: "string",
              description: "`PLANTSTORE_TOKEN` for the token from the service's environment.",
            },
            prefix: { type: "string", description: "Its first characters." },
            scopes: { type: "array", items: { type: "string", enum: scopes } },
            expires: {
              type: "string",
              format: "date-time",
              description: "Left out if it does not expire.",
            },
          },
        },
        { name: "till", prefix: "pst_Ab12Cd", scopes: ["plants:write"] },
      ),
      ...failWith("BadQuery"),
    },
  });
}

const count = { type: "integer" };
const milliseconds = { type: ["number", "null"] };

function describeActivity(): Described {
  const properties = {
    atMs: { ...count, description: "When the interval ended, in milliseconds since 1970." },
    creates: { ...count, description: "Plants that were created, those of batches included." },
    requests: { ...count, description: "Requests that were answered." },
    errors: { ...count, description: "Answers of status 5xx." },
    refused: { ...count, description: "Answers of status 4xx." },
    durableP50Ms: {
      ...milliseconds,
      description: "Half of the plants were on disk within this time; null if none was created.",
    },
    durableP99Ms: { ...milliseconds, description: "The same for 99 of 100." },
    waiting: { ...count, description: "Writes that waited for a commit when the interval ended." },
    storeBytes: {
      type: ["integer", "null"],
      description: "Size of the store; null if it was not measured.",
    },
  };
  const minutes = (SAMPLES_MAX * SAMPLE_MS) / 60_000;
  return operation("showActivity", "plants:read", "Show what this instance did lately", {
    tags: ["operation"],
    description: `The last ${minutes} minutes in intervals, oldest first. Counts are per interval.`,
    parameters: [
      parameter("since", "Only samples later than this, in milliseconds since 1970.", {
        type: "integer",
        minimum: 0,
      }),
    ],
    responses: {
      200: json(
        "The samples.",
        {
          type: "object",
          required: ["intervalMs", "samples", "backups"],
          properties: {
            intervalMs: count,
            backups: {
              type: ["object", "null"],
              description: "The backups of this instance since its start; null if it makes none.",
              required: ["everyMs", "made", "failed", "last"],
              properties: {
                everyMs: count,
                made: count,
                failed: count,
                last: {
                  type: ["object", "null"],
                  required: ["atMs", "bytes"],
                  properties: { atMs: count, bytes: count },
                },
              },
            },
            samples: {
              type: "array",
              items: { type: "object", required: Object.keys(properties), properties },
            },
          },
        },
        {
          intervalMs: SAMPLE_MS,
          backups: null,
          samples: [
            {
              atMs: 1_767_225_600_000,
              creates: 12,
              requests: 40,
              errors: 0,
              refused: 3,
              durableP50Ms: 1.2,
              durableP99Ms: 4.5,
              waiting: 0,
              storeBytes: 4_096_000,
            },
          ],
        },
      ),
      ...failWith("BadQuery"),
    },
  });
}

function describeMetrics(): Described {
  return operation("showMetrics", "plants:read", "Show metrics of this instance, for Prometheus", {
    tags: ["operation"],
    responses: {
      200: {
        description: "Prometheus text format 0.0.4.",
        headers: withHeaders(),
        content: {
          "text/plain": {
            schema: { type: "string" },
            example:
              'plantstore_requests_total{method="POST",path="/plants",status="200"} 12\n' +
              "plantstore_writes_waiting 0\n",
          },
        },
      },
      ...failWith("BadQuery"),
    },
  });
}

function describeBody(config: Config, name: string, examples: Record<string, object>): object {
  return {
    required: true,
    description: `JSON in UTF-8 of at most ${config.bodyBytesMax} bytes. Unknown members are ignored.`,
    content: {
      "application/json": {
        schema: schema(name),
        examples: Object.fromEntries(
          Object.entries(examples).map(([key, value]) => [key, { value }]),
        ),
      },
    },
  };
}

function answer(description: string, name: string, example: object, headers: object): object {
  return {
    description,
    headers,
    content: { "application/json": { schema: schema(name), example } },
  };
}

function precondition(name: string, description: string): object {
  return { name, in: "header", description, schema: { type: "string" } };
}

const changePreconditions = [
  precondition("If-Match", "Answers 412 if the plant no longer has this entity tag."),
  precondition("If-None-Match", "Answers 412 if the plant has this entity tag."),
];

function withoutId({ name, tag }: typeof monstera): object {
  return { name, tag };
}

function json(description: string, itsSchema: object, example: object): object {
  return {
    description,
    headers: withHeaders(),
    content: { "application/json": { schema: itsSchema, example } },
  };
}
