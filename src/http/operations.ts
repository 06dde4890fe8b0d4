/** Every operation: where it is, who may call it, how it is answered, and how the description shows it. */

import type { Config } from "../config.ts";
import { changeTypes } from "../domain/change.ts";
import { orders, TAG_PREFIX_CHARACTERS, WORDS_MAX } from "../domain/page.ts";
import { BATCH_TYPES, createPlants, lineBytesMax } from "./batch.ts";
import { listChanges } from "./changes.ts";
import { answer as respond, type Method, type Operation, type Route } from "./handle.ts";
import {
  answer,
  asText,
  type Entry,
  int64,
  integer,
  json,
  jsonAndLines,
  limitParameter,
  objectOf,
  type Parameter,
  parameter,
  schema,
  text,
  withHeaders,
} from "./openapi-parts.ts";
import {
  answerTags,
  countPlants,
  createPlant,
  listPlants,
  readPlant,
  removePlant,
  replacePlant,
} from "./plants.ts";
import { JSON_TYPE } from "./request-headers.ts";
import { listStatusOperations } from "./status.ts";
import { tokenOperations } from "./tokens.ts";
import { webhookOperations } from "./webhooks.ts";

const monstera = { id: 1, name: "Monstera deliciosa", tag: "tropical" };
const ficus = { id: 2, name: "Ficus lyrata" };
const { id: _id, ...withoutId } = monstera;

export const created = {
  seq: 1_767_225_600_000_001,
  time: "2026-01-01T00:00:00.000Z",
  type: "created",
  id: 1,
  by: "till",
  plant: { name: "Monstera", tag: "tropical" },
};
const replaced = {
  ...created,
  seq: 1_767_225_605_000_000,
  time: "2026-01-01T00:00:05.000Z",
  type: "replaced",
  by: "office",
  plant: { name: "Monstera deliciosa", tag: "tropical" },
  before: created.plant,
};

/** In the order of the description. `description` is its text. */
export const listOperations = (config: Config, description = ""): readonly Entry[] => [
  ...listPlantOperations(config),
  ...webhookOperations,
  ...tokenOperations,
  ...listStatusOperations(config),
  {
    at: "GET /openapi.json",
    id: "describeApi",
    scope: undefined,
    handle: () => respond(200, description),
    tags: ["operation"],
    summary: "This document",
    description: "The description of the interface, in OpenAPI 3.1.",
    answers: { 200: answer("Yes.", json({ type: "object" }, { openapi: "3.1.0" })) },
  },
];

export const splitPlace = ({ at }: Entry) => at.split(" ") as [method: Method, path: string];

export function createRoutes(entries: readonly Entry[]): readonly Route[] {
  const routes = new Map<string, Route["operations"]>();
  for (const entry of entries) {
    const [method, path] = splitPlace(entry);
    const hasQuery = entry.parameters?.some((given) => given.in === "query");
    const bodyTypes = "bodyTypes" in entry ? entry.bodyTypes : undefined;
    // The same members for each, because every request reads them.
    const operation = { scope: entry.scope, handle: entry.handle, hasQuery, bodyTypes };
    routes.set(path, { ...routes.get(path), [method]: operation as Operation });
  }
  return Array.from(routes, ([path, operations]) => ({ path, operations }));
}

const filterParameters = [
  parameter("tag", "Exactly this tag."),
  parameter(
    "name",
    "A part of the name, in any case: compared after NFC normalisation, in Unicode upper case.",
  ),
  parameter(
    "q",
    `Up to ${WORDS_MAX} words, in any order: each is in the name or in the tag, in any case, with or without accents.`,
  ),
];

const counted = {
  count: { ...integer, description: "How many there are." },
  exact: { type: "boolean", description: "False if there may be more." },
};

const tagParameters = [
  parameter("prefix", "Only tags that begin with this, exactly."),
  parameter("after", "The last tag seen; the page begins after it."),
  limitParameter("Tags on a page."),
];

const precondition = (name: string, description: string): Parameter =>
  parameter(name, description, text, "header");

const changePreconditions = [
  precondition("If-Match", "Answers 412 if the plant no longer has this entity tag."),
  precondition("If-None-Match", "Answers 412 if the plant has this entity tag."),
];

const batchResults = [
  { line: 1, status: 200 },
  { line: 2, status: 200, replayed: true },
  {
    line: 3,
    status: 409,
    error: 3001,
    message: "A different plant has the id 1; nothing was changed.",
  },
];

const listPlantOperations = (config: Config): readonly Entry[] => [
  {
    at: "POST /plants",
    id: "createPlant",
    scope: "plants:write",
    handle: createPlant,
    bodyTypes: [JSON_TYPE],
    summary: "Create a plant",
    description:
      "Creates a new plant in the store. " +
      "The same plant under the same id again answers 200 with `Idempotent-Replayed: true`; " +
      "a different plant under a taken id answers 409 and changes nothing. " +
      `Limits: body ${config.bodyBytesMax} bytes, ${config.readSecondsMax} s to send it, ` +
      `URL ${config.urlBytesMax} bytes, head ${config.headerBytesMax} bytes.`,
    requestBody: describeBody(config, "NewPlant", { tagged: monstera, untagged: ficus }),
    answers: {
      200: {
        ...answer("Plant response: the plant is on disk.", json(schema("Plant"), withoutId)),
        headers: {
          ...withHeaders(),
          "Idempotent-Replayed": {
            description: "`true` if the plant was in the store already.",
            schema: { ...text, enum: ["true"] },
          },
        },
      },
    },
    fails: ["BadPlant", "IdTaken"],
  },
  {
    at: "GET /plants",
    id: "listPlants",
    scope: "plants:read",
    handle: listPlants,
    summary: "List plants",
    description:
      "A page of plants in the order of their ids, as an array; the next page is in the `Link` header, which the last " +
      "page does not have. With `Accept: application/x-ndjson` or `text/csv` the whole (filtered) store comes as a " +
      "stream instead, and `limit` is not allowed. To know that a stream is complete, ask for what comes after its last " +
      "plant: `?after=<id>&limit=1`, with the same filters. " +
      `A page of very long names may end before its limit. A search by \`name\` or \`q\` looks for a page for a bounded time, and at most at ${config.scanRowsMax} plants, so a page may end early or be empty. Both have a next link.`,
    parameters: [
      limitParameter("Plants on a page."),
      parameter("after", "The id of the last plant seen; the page begins after it.", int64),
      ...filterParameters,
      parameter("order", "By id.", { ...text, enum: orders, default: "asc" }),
    ],
    answers: {
      200: answer(
        "The plants.",
        {
          ...jsonAndLines("StoredPlant", [monstera, ficus]),
          ...asText(
            "text/csv",
            'id,name,tag\r\n1,"Monstera deliciosa","tropical"\r\n2,"Ficus lyrata",\r\n',
          ),
        },
        "Link",
      ),
    },
  },
  {
    at: "POST /plants/batch",
    id: "createPlants",
    scope: "plants:write",
    handle: createPlants,
    bodyTypes: BATCH_TYPES,
    summary: "Create many plants",
    description:
      "Takes an array of plants and answers with an array of results, or takes one plant a line and answers with one " +
      "result a line, while the lines are still being sent. Results are in the order of the plants. " +
      "Each plant succeeds or fails alone, as a create of it would. Safe to send again as a whole. " +
      `Limits: ${config.bodyBytesMax} bytes an array; any number of lines, ${lineBytesMax(config)} bytes a line, ` +
      `${config.readSecondsMax} s between two pieces. ` +
      "Read the results while you send lines: a slow reader holds up both directions. " +
      "If the lines cannot be read to their end, the last result says so (400, 401, 408, 503), and nothing after it was stored: count the results.",
    requestBody: { required: true, content: jsonAndLines("NewPlant", [monstera, ficus]) },
    answers: { 200: answer("A result for each plant.", jsonAndLines("BatchResult", batchResults)) },
    fails: ["BadPlant"],
  },
  {
    at: "GET /plants/count",
    id: "countPlants",
    scope: "plants:read",
    handle: countPlants,
    summary: "Count plants",
    description:
      "How many plants there are, or how many match. The service counts for a second at most; if that is not enough, " +
      "`exact` is false and there are at least that many. The answer may be up to a second old.",
    parameters: filterParameters,
    answers: {
      200: answer("The count.", json(objectOf(counted), { count: 1_000_000, exact: true })),
    },
  },
  {
    at: "GET /plants/{id}",
    id: "readPlant",
    scope: "plants:read",
    handle: readPlant,
    summary: "Read a plant",
    parameters: [
      precondition("If-None-Match", "Answers 304 if the plant still has this entity tag."),
    ],
    answers: {
      200: answer("The plant.", json(schema("StoredPlant"), monstera), "ETag"),
      304: { description: "The plant has not changed.", headers: withHeaders("ETag") },
    },
    fails: ["BadCondition", "PlantNotFound"],
  },
  {
    at: "PUT /plants/{id}",
    id: "replacePlant",
    scope: "plants:write",
    handle: replacePlant,
    summary: "Replace a plant",
    description:
      "Replaces name and tag of an existing plant; a tag that is left out is removed. An `id` in the body must be the one in the path. " +
      "With `If-Match`, a change that another client made in between is not overwritten.",
    parameters: changePreconditions,
    requestBody: describeBody(config, "Plant", { renamed: withoutId }),
    answers: { 200: answer("The plant is on disk.", json(schema("Plant"), withoutId), "ETag") },
    fails: ["BadReplacement", "PlantNotFound", "PreconditionFailed"],
  },
  {
    at: "DELETE /plants/{id}",
    id: "removePlant",
    scope: "plants:write",
    handle: removePlant,
    summary: "Remove a plant",
    parameters: changePreconditions,
    answers: { 204: { description: "The plant is removed, on disk.", headers: withHeaders() } },
    fails: ["BadCondition", "PlantNotFound", "PreconditionFailed"],
  },
  {
    at: "GET /tags",
    id: "listTags",
    scope: "plants:read",
    handle: answerTags(false),
    summary: "List the tags in use",
    description:
      "Each tag once, in the order of its UTF-8 bytes; the next page is in the `Link` header, which the last page " +
      `does not have. Tags of ${TAG_PREFIX_CHARACTERS} characters or more are not listed; if there are many, ` +
      "a page may end early or be empty, with a next link.",
    parameters: tagParameters,
    answers: {
      200: answer(
        "The tags.",
        json({ type: "array", items: text }, ["bulb", "herb", "tropical"]),
        "Link",
      ),
    },
  },
  {
    at: "GET /tags/counts",
    id: "countTags",
    scope: "plants:read",
    handle: answerTags(true),
    summary: "Count the plants of each tag",
    description:
      "The tags in use, in the same order and pages as `GET /tags`, each with the number of its plants. " +
      "The service counts for a page for about a second; then the page ends early, with a next link.",
    parameters: tagParameters,
    answers: {
      200: answer(
        "The tags with their counts.",
        json({ type: "array", items: objectOf({ tag: text, ...counted }) }, [
          { tag: "bulb", count: 12, exact: true },
        ]),
        "Link",
      ),
    },
  },
  {
    at: "GET /changes",
    id: "listChanges",
    scope: "plants:read",
    handle: listChanges,
    summary: "List or follow the changes",
    description:
      "Every create, replacement and removal, once, in the order of the commits: after a number was read, no smaller one " +
      "appears. A page is an array; if there is more by now, the next page is in the `Link` header. With " +
      "`Accept: application/x-ndjson` the rest comes as a stream, without a `limit`. With `Accept: text/event-stream` " +
      "events come and go on coming: `id` is the number, `event` the type, and `Last-Event-ID` resumes. " +
      "To keep a copy of the plants: note `Last-Change`, read all plants, then the changes after that number. " +
      `Changes are kept for ${config.changesDays} days. A page that looked at many changes for few that match may end early or be empty, with a next link.`,
    parameters: [
      parameter(
        "after",
        "The number of the last change seen. 0, or nothing: begin with the oldest that is kept.",
        { ...int64, minimum: 0, default: 0 },
      ),
      limitParameter("Changes on a page."),
      parameter("id", "Only changes of this plant.", int64),
      {
        ...parameter("type", "Only these types, separated by commas.", {
          type: "array",
          items: { type: "string", enum: changeTypes },
        }),
        style: "form",
        explode: false,
      },
      parameter(
        "Last-Event-ID",
        "For event streams: the same as `after`, and stronger.",
        { ...int64, minimum: 0 },
        "header",
      ),
    ],
    answers: {
      200: answer(
        "The changes.",
        {
          ...jsonAndLines("Change", [created, replaced]),
          ...asText(
            "text/event-stream",
            `id: ${created.seq}\nevent: created\ndata: ${JSON.stringify(created)}\n\n`,
          ),
        },
        "Link",
        "Last-Change",
      ),
    },
    fails: ["BadQuery", "ChangesGone"],
  },
];

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
