/** Every operation: its path, scope, handler and OpenAPI description. */

import type { Config } from "../config.ts";
import { changeTypes } from "../domain/change.ts";
import { filterNames, filters } from "../domain/filter.ts";
import { INT64_MAX, INT64_MIN } from "../domain/json.ts";
import { TAG_PREFIX_CHARACTERS } from "../domain/page.ts";
import { scopes } from "../domain/token.ts";
import { BATCH_TYPES, lineBytesMax, writePlants } from "./batch.ts";
import { BULK_TYPE, patchPlants, removePlants } from "./bulk.ts";
import { listChanges } from "./changes.ts";
import {
  answering,
  describeCatalogue,
  describeOperation,
  describeParameters,
  describeShared,
  type Endpoints,
  type Endpoint,
  json,
  jsonAndLines,
  jsonWith,
  ok,
  operation,
} from "./endpoint.ts";
import { JSON_TYPE } from "./body.ts";
import { answer as respond, type Method, type Operation, type Route } from "./handle.ts";
import {
  answerTags,
  countPlants,
  createPlant,
  listPlants,
  PATCH_TYPES,
  patchPlant,
  readPlant,
  removePlant,
  replacePlant,
} from "./plants.ts";
import {
  batchParameters,
  bulkParameters,
  changeParameters,
  filterParameters,
  plantParameters,
  tagParameters,
  writeParameters,
} from "./query.ts";
import {
  define,
  explained,
  flag,
  int64,
  integer,
  list,
  mapValues,
  maybe,
  object,
  schemas,
  type Shape,
  text,
  time,
} from "./shape.ts";
import { describeRevert } from "./revert.ts";
import { listStatusOperations } from "./status.ts";
import { tokenOperations } from "./tokens.ts";
import { describeEvents, webhookOperations } from "./webhooks.ts";

const plantMembers = {
  name: text(
    "Monstera deliciosa",
    "The name of the plant. Any string, even an empty one, without U+0000 and unpaired surrogates.",
  ),
  tag: text(
    "tropical",
    "Tag that specifies the type. The same rules as for the name. A plant without a tag leaves it out; it is never null.",
  ),
};
const id = int64(
  1,
  `Identification number of the plant: any integer from ${INT64_MIN} to ${INT64_MAX}, kept exactly. A double rounds ids beyond ${Number.MAX_SAFE_INTEGER}.`,
);

/** The parser in domain/plant.ts accepts exactly what these two schemas describe. */
const Plant = define("Plant", plantMembers, { optional: ["tag"] });
const NewPlant = define("NewPlant", { id, ...plantMembers }, { optional: ["tag"] });
const StoredPlant = define(
  "StoredPlant",
  { id, ...plantMembers },
  { optional: ["tag"], description: "A plant with its id." },
);

const PlantPatch = define(
  "PlantPatch",
  {
    name: explained(plantMembers.name, "The new name."),
    tag: maybe(explained(plantMembers.tag, "The new tag; null removes it.")),
  },
  { optional: ["name", "tag"], additionalProperties: false, description: "What to change." },
);

const errorMembers = {
  error: integer(3001, "Numeric error value, from the catalogue.", { format: "int32" }),
  message: text("A different plant has the id 1; nothing was changed.", "Error text for people."),
};

define(
  "BatchLine",
  {
    id,
    ...plantMembers,
    removed: flag(undefined, "Removes the plant with this id. The line has no name and no tag.", {
      const: true,
    }),
    ifMatch: text(
      undefined,
      "With `removed`, or in a batch with `upsert=true`: the line fails with 412 if the plant no longer has this entity tag.",
    ),
  },
  {
    optional: ["name", "tag", "removed", "ifMatch"],
    description: "A plant to write, or to remove.",
  },
);

const BatchResult = define(
  "BatchResult",
  {
    line: integer(3, "The number of the line, or the place in the array, from 1."),
    status: integer(409, "The status that a write of this line alone would have."),
    replaced: flag(undefined, "True if the plant replaced a stored one."),
    removed: flag(undefined, "True if the plant was removed."),
    replayed: flag(undefined, "True if the line changed nothing: the store had it already."),
    ...errorMembers,
  },
  { optional: ["replaced", "removed", "replayed", "error", "message"] },
);

const created = {
  seq: 1_767_225_600_000_001,
  time: "2026-01-01T00:00:00.000Z",
  type: "created",
  id: 1,
  by: "till",
  batch: "spring.csv 2026-01-01",
  plant: { name: "Monstera", tag: "tropical" },
};

const Change = define(
  "Change",
  {
    seq: int64(
      1_767_225_605_000_000,
      "Grows in the order of the commits, with gaps. At least the time of the change in microseconds since 1970, and within the range of doubles.",
    ),
    time: time("2026-01-01T00:00:05.000Z"),
    type: text("replaced", undefined, { enum: changeTypes }),
    id,
    by: text("office", "The name of the token. Left out if a command changed the store itself."),
    batch: text(undefined, "What the client called the writes that belong together."),
    plant: explained(Plant, "The plant since this change. Left out if it was removed."),
    before: {
      ...explained(Plant, "The plant until this change. Left out if it was created."),
      example: created.plant,
    },
    folded: explained(
      object(
        mapValues(Object.fromEntries(changeTypes.map((type) => [type, type])), (type) =>
          integer(undefined, `Changes of the type ${type}.`),
        ),
      ),
      "With `fold`, for a change with a batch: how many changes the entry stands for, itself included.",
    ),
  },
  { optional: ["by", "batch", "plant", "before", "folded"] },
);

define("Error", errorMembers);
const monstera = NewPlant.example;
const ficus = { id: 2, name: "Ficus lyrata" };
const CSV_EXAMPLE = 'id,name,tag\r\n1,"Monstera deliciosa","tropical"\r\n2,"Ficus lyrata",\r\n';
const batchResults = [
  { line: 1, status: 200 },
  { line: 2, status: 200, replayed: true },
  BatchResult.example,
];

/** Grouped by OpenAPI tag, in document order. `description` is the serialized document, one copy for all clients. */
export const listOperations = (
  config: Config,
  description = new Blob(),
): Readonly<Record<string, Endpoints>> => ({
  plants: listPlantOperations(config),
  webhooks: webhookOperations,
  operation: {
    ...tokenOperations,
    ...listStatusOperations(config),
    describeApi: operation("GET /openapi.json", undefined, () => respond(200, description), {
      summary: "This document",
      description: "The description of the interface, in OpenAPI 3.1.",
      answers: ok("Yes.", json({ schema: { type: "object" }, example: { openapi: "3.1.0" } })),
    }),
  },
});

const splitPlace = ({ at }: Endpoint) => at.split(" ") as [Method, string];

export function createRoutes(operations: ReturnType<typeof listOperations>): readonly Route[] {
  const routes = new Map<string, Route["operations"]>();
  for (const endpoint of Object.values(operations).flatMap(Object.values<Endpoint>)) {
    const [method, path] = splitPlace(endpoint);
    const { scope, handle, query, bodyTypes } = endpoint;
    // Every route has the same object shape: the hot path reads it.
    const served: Operation = { scope, handle, hasQuery: query !== undefined, bodyTypes };
    routes.set(path, { ...routes.get(path), [method]: served });
  }
  return Array.from(routes, ([path, ofPath]) => ({ path, operations: ofPath }));
}

const counted = {
  count: integer(12, "How many there are."),
  exact: flag(true, "False if there may be more."),
};

const searchNames = filterNames
  .filter((name) => !filters[name].isIndexed)
  .map((name) => `\`${name}\``)
  .join(" or ");

const changeConditions = {
  "If-Match": text(undefined, "Answers 412 if the plant no longer has this entity tag."),
  "If-None-Match": text(undefined, "Answers 412 if the plant has this entity tag."),
};

const patchBodies = Object.fromEntries(PATCH_TYPES.map((type) => [type, PlantPatch]));

const BulkPreview = define("BulkPreview", {
  plants: integer(2, "Plants that match."),
  exact: flag(true, "False if more may match."),
  sample: list(
    object(
      {
        id,
        now: { ...explained(Plant, "The plant as it is."), example: { name: "Monstera" } },
        after: {
          ...explained(Plant, "What it would be. Left out if it would be removed."),
          example: { name: "Monstera", tag: "tropical" },
        },
      },
      { optional: ["after"] },
    ),
    "Up to 20 that would be changed.",
  ),
});

const describeBulk = (count: string): string =>
  "Without a filter the answer is 400. Each plant is one write, on the condition that it is still what it was when it was " +
  "found: otherwise it was changed meanwhile, and is left alone. Plants that are created meanwhile may be left out. " +
  "With `dry_run=true` nothing is changed: the answer is JSON. " +
  "Without it, each plant that was left alone is a line, with status 412 if it was changed meanwhile, else with the error of its write. " +
  `Lines with counts (\`${count}\`, \`unchanged\`, \`changedSince\`, \`refused\`) show progress; \`complete\` is true in the last one. ` +
  "If the work was broken off, the last line has `complete: false`, a status and an error. Sent again, it continues. " +
  "It stops after a commit if the client closes the connection. " +
  "With `Prefer: return=minimal` only the last line is answered, when the work has ended. " +
  "The batch names these writes in the journal, so `POST /changes/revert` takes them back. Also needs the scope `plants:read`.";

const bulkHeaders = {
  Prefer: text(
    undefined,
    "`return=minimal` answers only the last line (RFC 7240). Other preferences are ignored.",
  ),
};

const bulkExample = (name: string, replaced: number, removed: number): string =>
  '{"id":2,"status":412,"error":3003,"message":"The plant was changed since; it was left as it is."}\n' +
  `{"plants":2,"replaced":${replaced},"removed":${removed},"unchanged":0,"changedSince":1,"refused":0,"batch":"${name} 2026-01-02T00:00:00.000Z","complete":true}\n`;

const listPlantOperations = (config: Config): Endpoints => ({
  createPlant: operation("POST /plants", "plants:write", createPlant, {
    summary: "Create a plant",
    bodyTypes: [JSON_TYPE],
    description:
      "Creates a new plant in the store. Unknown members of the body are ignored. " +
      "The same plant under the same id again answers 200 with `Idempotent-Replayed: true`; " +
      "a different plant under a taken id answers 409 and changes nothing. " +
      `Limits: body ${config.bodyBytesMax} bytes, ${config.readSecondsMax} s to send it, ` +
      `URL ${config.urlBytesMax} bytes, head ${config.headerBytesMax} bytes.`,
    query: writeParameters,
    takes: jsonWith(NewPlant, { tagged: monstera, untagged: ficus }),
    answers: ok("Plant response: the plant is on disk.", json(Plant), "Idempotent-Replayed"),
    fails: ["BadPlant", "IdTaken"],
  }),
  listPlants: operation("GET /plants", "plants:read", listPlants, {
    summary: "List plants",
    description:
      "A page of plants in the order of their ids, as an array; the next page is in the `Link` header, which the last " +
      "page does not have. With `Accept: application/x-ndjson` or `text/csv` the whole (filtered) store comes as a " +
      "stream instead, and `limit` is not allowed. To know that a stream is complete, ask for what comes after its last " +
      "plant: `?after=<id>&limit=1`, with the same filters. " +
      `A page of very long names may end before its limit. A search by ${searchNames} looks for a page for a bounded time, and at most at ${config.scanRowsMax} plants, so a page may end early or be empty. Both have a next link.`,
    query: plantParameters,
    answers: ok(
      "The plants.",
      { ...jsonAndLines("StoredPlant", [monstera, ficus]), "text/csv": text(CSV_EXAMPLE) },
      "Link",
    ),
  }),
  patchPlants: operation("PATCH /plants", "plants:write", patchPlants, {
    summary: "Change all plants that match",
    bodyTypes: PATCH_TYPES,
    description: `Applies a merge patch (RFC 7396) to each plant that matches every filter given. ${describeBulk("replaced")}`,
    query: bulkParameters,
    headers: bulkHeaders,
    takes: patchBodies,
    answers: ok(
      "What was done, or would be.",
      { ...json(BulkPreview), [BULK_TYPE]: text(bulkExample("change", 1, 0)) },
      "Preference-Applied",
    ),
    fails: ["BadPatch"],
  }),
  removePlants: operation("DELETE /plants", "plants:write", removePlants, {
    summary: "Remove all plants that match",
    description: `Removes each plant that matches every filter given. ${describeBulk("removed")}`,
    query: bulkParameters,
    headers: bulkHeaders,
    answers: ok(
      "What was done, or would be.",
      { ...json(BulkPreview), [BULK_TYPE]: text(bulkExample("remove", 0, 1)) },
      "Preference-Applied",
    ),
  }),
  createPlants: operation("POST /plants/batch", "plants:write", writePlants, {
    summary: "Write many plants",
    bodyTypes: BATCH_TYPES,
    description:
      "Takes an array of plants and answers with an array of results, or takes one plant a line and answers with one " +
      "result a line, while the lines are still being sent. Results are in the order of the plants. " +
      "Each plant succeeds or fails alone, as a create of it would. Safe to send again as a whole. " +
      "With `upsert=true`, a plant whose id is taken replaces the stored one, and an equal one changes nothing. " +
      '`{"id": 7, "removed": true}` removes a plant. If there is none, that is a 404 of this line, or with `upsert=true` no change. ' +
      'With `upsert=true` or `removed`, a line may have `"ifMatch"`, with the meaning of the header `If-Match`. ' +
      "With `atomic=true` the array, or all lines together, are one transaction within the limit of a body: " +
      "either every line succeeds, or nothing is stored, and the answer is the error of the first line that failed, " +
      "with a message that begins with `line`, its number and a colon. If the answer was lost, send it again. " +
      `Limits: ${config.bodyBytesMax} bytes an array; any number of lines, ${lineBytesMax(config)} bytes a line, ` +
      `${config.readSecondsMax} s between two pieces. ` +
      "A client that sends everything before it reads sends `Prefer: return=minimal` with its lines, and gets the results of the first 1000 refused lines " +
      'and then `{"created":2,"replayed":0,"refused":1,"complete":true}` as the last line, with `replaced` and `removed` if lines can do that. `complete` is false if the lines could not be read to their end. ' +
      `Without it, read the results while you send: the service waits ${config.idleSecondsMax / 2} s for a client that does not, then stores the rest and ends the answer in the same way. ` +
      "If the lines cannot be read to their end, the last result says so (400, 401, 408, 503), and nothing after it was stored: count the results.",
    query: batchParameters,
    headers: {
      Prefer: text(
        undefined,
        "`return=minimal` answers lines with a summary (RFC 7240). Other preferences are ignored.",
      ),
    },
    takes: jsonAndLines("BatchLine", [monstera, ficus]),
    answers: ok(
      "A result for each line.",
      jsonAndLines("BatchResult", batchResults),
      "Preference-Applied",
    ),
    fails: ["BadPlant", "PlantNotFound", "PreconditionFailed", "BatchConflict"],
  }),
  countPlants: operation("GET /plants/count", "plants:read", countPlants, {
    summary: "Count plants",
    description:
      "How many plants there are, or how many match. The service counts for a second at most; if that is not enough, " +
      "`exact` is false and there are at least that many. The answer may be up to two seconds old.",
    query: filterParameters,
    answers: ok("The count.", json(object(counted))),
  }),
  readPlant: operation("GET /plants/{id}", "plants:read", readPlant, {
    summary: "Read a plant",
    headers: {
      "If-None-Match": text(undefined, "Answers 304 if the plant still has this entity tag."),
    },
    answers: {
      ...ok("The plant.", json(StoredPlant), "ETag"),
      ...answering(304, "The plant has not changed.", undefined, "ETag"),
    },
    fails: ["BadCondition", "PlantNotFound"],
  }),
  replacePlant: operation("PUT /plants/{id}", "plants:write", replacePlant, {
    summary: "Replace a plant",
    description:
      "Replaces name and tag of an existing plant; a tag that is left out is removed. An `id` in the body must be the one in the path; other unknown members are ignored. " +
      "With `If-Match`, a change that another client made in between is not overwritten. " +
      `The body has at most ${config.bodyBytesMax} bytes.`,
    query: writeParameters,
    headers: changeConditions,
    takes: json(Plant),
    answers: ok("The plant is on disk.", json(Plant), "ETag"),
    fails: ["BadReplacement", "PlantNotFound", "PreconditionFailed"],
  }),
  patchPlant: operation("PATCH /plants/{id}", "plants:write", patchPlant, {
    summary: "Change a plant",
    bodyTypes: PATCH_TYPES,
    description:
      'Changes only the members that are sent: a merge patch (RFC 7396). `{"tag": null}` removes the tag. ' +
      "A patch that leaves the plant as it is changes nothing: the journal has no entry for it. " +
      "With `If-Match`, a change that another client made in between is not overwritten. " +
      `The body has at most ${config.bodyBytesMax} bytes. ` +
      "Also needs the scope `plants:read`, because the answer shows the whole plant.",
    query: writeParameters,
    headers: changeConditions,
    takes: patchBodies,
    answers: ok("The plant is on disk.", json(Plant), "ETag"),
    fails: ["BadPatch", "PlantNotFound", "PreconditionFailed"],
  }),
  removePlant: operation("DELETE /plants/{id}", "plants:write", removePlant, {
    summary: "Remove a plant",
    query: writeParameters,
    headers: changeConditions,
    answers: answering(204, "The plant is removed, on disk."),
    fails: ["BadCondition", "PlantNotFound", "PreconditionFailed"],
  }),
  listTags: operation("GET /tags", "plants:read", answerTags(false), {
    summary: "List the tags in use",
    description:
      "Each tag once, in the order of its UTF-8 bytes; the next page is in the `Link` header, which the last page " +
      `does not have. Tags of ${TAG_PREFIX_CHARACTERS} characters or more are not listed; if there are many, ` +
      "a page may end early or be empty, with a next link.",
    query: tagParameters,
    answers: ok("The tags.", json(list(text("bulb"))), "Link"),
  }),
  countTags: operation("GET /tags/counts", "plants:read", answerTags(true), {
    summary: "Count the plants of each tag",
    description:
      "The tags in use, in the same order and pages as `GET /tags`, each with the number of its plants. " +
      "The service counts for a page for about a second; then the page ends early, with a next link.",
    query: tagParameters,
    answers: ok(
      "The tags with their counts.",
      json(list(object({ tag: text("bulb"), ...counted }))),
      "Link",
    ),
  }),
  listChanges: operation("GET /changes", "plants:read", listChanges, {
    summary: "List or follow the changes",
    description:
      "Every create, replacement and removal, once, in the order of the commits: after a number was read, no smaller one " +
      "appears. A page is an array; if there is more by now, the next page is in the `Link` header. With " +
      "`Accept: application/x-ndjson` the rest comes as a stream, without a `limit`. With `Accept: text/event-stream` " +
      "events follow the journal: `id` is the number, `event` the type, and `Last-Event-ID` resumes. " +
      "To keep a copy of the plants: note `Last-Change`, read all plants, then the changes after that number. " +
      `Changes are kept for ${config.changesDays} days. A page that looked at many changes for few that match may end early or be empty, with a next link.`,
    query: changeParameters,
    headers: {
      "Last-Event-ID": int64(undefined, "For event streams: the same as `after`, and stronger.", {
        minimum: 0,
      }),
    },
    answers: ok(
      "The changes.",
      {
        ...jsonAndLines("Change", [created, Change.example]),
        "text/event-stream": text(
          `id: ${created.seq}\nevent: created\ndata: ${JSON.stringify(created)}\n\n`,
        ),
      },
      "Link",
      "Last-Change",
    ),
    fails: ["BadQuery", "ChangesGone"],
  }),
  revertChanges: describeRevert(config, id, Plant),
});

/** The version of the API, not of the program. */
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
    // Relative to the URL of this document, so a proxy may strip any prefix.
    servers: [{ url: "." }],
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
          description: `A token made by \`plantstore token create\`${config.jwtIssuer && `, or a JWT of ${config.jwtIssuer}`}. Scopes: ${scopes.join(", ")}.`,
        },
      },
    },
  };
}

const openParts: Readonly<Record<string, Shape>> = {
  "/plants/{id}": int64(1, "The plant's id, in plain decimal digits."),
  "/tokens/{id}": text("9f86d081884c7d65", "The token's id, from the list."),
  "/webhooks/{name}": text("shop", "The webhook's name."),
};

function describePaths(operations: ReturnType<typeof listOperations>): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const [tag, entries] of Object.entries(operations))
    for (const [operationId, endpoint] of Object.entries(entries)) {
      const [method, path] = splitPlace(endpoint);
      const [, start = "", name = ""] = /^(.*\{(\w+)\})/.exec(path) ?? [];
      const { [start]: shape } = openParts;
      const described = describeOperation(operationId, tag, endpoint);
      paths[path] = {
        ...paths[path],
        ...(shape && { parameters: describeParameters("path", { [name]: shape }, true) }),
        [method.toLowerCase()]: described,
        ...(method === "GET" && { head: describeHead(described) }),
      };
    }
  return paths;
}

/** HEAD is available wherever GET is: the same response without a body. */
const describeHead = (described: ReturnType<typeof describeOperation>): object => ({
  ...described,
  operationId: `${described.operationId}Head`,
  summary: `${described.summary}: headers only`,
  description: "The headers that GET answers, without a body.",
  responses: mapValues(described.responses, (response) => ({ ...response, content: undefined })),
});
