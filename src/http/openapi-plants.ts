/** The operations on plants, as the description shows them. */

import type { Config } from "../config.ts";
import type { ErrorName } from "../domain/errors.ts";
import { orders } from "../domain/page.ts";
import { lineBytesMax } from "./batch.ts";
import { describeErrors, requestIdHeader } from "./openapi-errors.ts";
import {
  errorsOfAny,
  errorsOfStore,
  limitParameter,
  linkHeader,
  operation,
  parameter,
  schema,
} from "./openapi-parts.ts";

const errorsOfMedia: ErrorName[] = ["unsupported_media_type", "unsupported_encoding"];
const errorsOfBody: ErrorName[] = [
  "invalid_utf8",
  "invalid_json",
  "invalid_plant",
  "body_too_large",
  "body_too_slow",
  "body_incomplete",
  ...errorsOfMedia,
];
const errorsOfChange: ErrorName[] = [
  "invalid_id",
  "invalid_precondition",
  "plant_not_found",
  "precondition_failed",
];

const monstera = { id: 1, name: "Monstera deliciosa", tag: "tropical" };
const ficus = { id: 2, name: "Ficus lyrata" };
const ndjson = (...lines: object[]): string =>
  lines.map((line) => `${JSON.stringify(line)}\n`).join("");

export function describePlantPaths(config: Config): object {
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
  };
}

function describeCreate(config: Config): object {
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
        "Idempotent-Replayed": {
          description: "`true` where the plant was in the store already.",
          schema: { type: "string", enum: ["true"] },
        },
      }),
      ...describeErrors([...errorsOfAny, ...errorsOfBody, "id_taken", ...errorsOfStore]),
    },
  });
}

function describeList(config: Config): object {
  return operation("listPlants", "plants:read", "List plants", {
    description:
      "A page of plants in the order of their ids, as an array; the next page is in the `Link` header, which the last " +
      "page does not have. With `Accept: application/x-ndjson` or `text/csv` the whole (filtered) store comes as a " +
      "stream instead, and `limit` is not allowed. " +
      `A page of very long names may end before its limit, and a search by \`name\`, which looks at ${config.scanRowsMax} plants a page at most, may end early or even empty, both with a next link.`,
    parameters: [
      limitParameter("Plants on a page."),
      parameter("after", "The id of the last plant seen; the page begins behind it.", {
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
        headers: {
          ...requestIdHeader,
          ...linkHeader,
        },
        content: {
          "application/json": {
            schema: { type: "array", items: schema("StoredPlant") },
            example: [monstera, ficus],
          },
          "application/x-ndjson": {
            schema: schema("StoredPlant"),
            example: ndjson(monstera, ficus),
          },
          "text/csv": {
            schema: { type: "string" },
            example: 'id,name,tag\r\n1,"Monstera deliciosa","tropical"\r\n2,"Ficus lyrata",\r\n',
          },
        },
      },
      ...describeErrors([...errorsOfAny, "invalid_query", ...errorsOfStore]),
    },
  });
}

function describeBatch(config: Config): object {
  return operation("createPlants", "plants:write", "Create many plants", {
    description:
      "One NewPlant a line, in any number; one result a line comes back, in order, while the lines are still being sent. " +
      "Each line is judged alone, as a create of it would be. Safe to send again as a whole. " +
      "Read the results while you send: both ways are held up by a slow reader. " +
      `Limits: ${lineBytesMax(config)} bytes a line, ${config.readSecondsMax} s between two pieces. ` +
      "Where the lines cannot be read to their end, the last result says so (408, 400), and nothing behind it was stored: count the results.",
    requestBody: {
      required: true,
      content: {
        "application/x-ndjson": { schema: schema("NewPlant"), example: ndjson(monstera, ficus) },
      },
    },
    responses: {
      200: {
        description: "A result for each line that is not empty.",
        headers: requestIdHeader,
        content: {
          "application/x-ndjson": {
            schema: schema("BatchResult"),
            example: ndjson(
              { line: 1, status: 200 },
              { line: 2, status: 200, replayed: true },
              {
                line: 3,
                status: 409,
                error: 3001,
                message: "A different plant has the id 1; nothing was changed.",
              },
            ),
          },
        },
      },
      ...describeErrors([...errorsOfAny, ...errorsOfMedia]),
    },
  });
}

function describeRead(): object {
  return operation("readPlant", "plants:read", "Read a plant", {
    parameters: [
      precondition("If-None-Match", "Answers 304 where the plant still has this entity tag."),
    ],
    responses: {
      200: answer("The plant.", "StoredPlant", monstera, etagHeader),
      304: { description: "The plant is as you know it.", headers: etagHeader },
      ...describeErrors([
        ...errorsOfAny,
        "invalid_id",
        "invalid_precondition",
        "plant_not_found",
        "store_unavailable",
        "store_busy",
        "shutting_down",
      ]),
    },
  });
}

function describeReplace(config: Config): object {
  return operation("replacePlant", "plants:write", "Replace a plant", {
    description:
      "Replaces name and tag of a plant that is there; a tag that is left out is removed. An `id` in the body has to be the one in the path. " +
      "With `If-Match`, nobody's change in between is overwritten.",
    parameters: changePreconditions,
    requestBody: describeBody(config, "Plant", { renamed: withoutId(monstera) }),
    responses: {
      200: answer("The plant is on disk.", "Plant", withoutId(monstera), etagHeader),
      ...describeErrors([...errorsOfAny, ...errorsOfChange, ...errorsOfBody, ...errorsOfStore]),
    },
  });
}

function describeRemove(): object {
  return operation("removePlant", "plants:write", "Remove a plant", {
    parameters: changePreconditions,
    responses: {
      204: { description: "The plant is gone, on disk.", headers: requestIdHeader },
      ...describeErrors([...errorsOfAny, ...errorsOfChange, ...errorsOfStore]),
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
    headers: { ...requestIdHeader, ...headers },
    content: { "application/json": { schema: schema(name), example } },
  };
}

function precondition(name: string, description: string): object {
  return { name, in: "header", description, schema: { type: "string" } };
}

const changePreconditions = [
  precondition("If-Match", "Answers 412 where the plant does not have this entity tag any more."),
  precondition("If-None-Match", "Answers 412 where the plant has this entity tag."),
];

const etagHeader = {
  ETag: { description: "A strong entity tag of the plant.", schema: { type: "string" } },
};

function withoutId({ name, tag }: typeof monstera): object {
  return { name, tag };
}
