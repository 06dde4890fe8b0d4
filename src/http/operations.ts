/** Every operation: its path, scope, handler, parameters and answers. */

import type { Config } from "../config.ts";
import { startBulkCounts } from "../domain/bulk.ts";
import { recordBytesMaxOf } from "../format/records.ts";
import { filterNames, filters } from "../domain/filter.ts";
import { TAG_PREFIX_CHARACTERS } from "../domain/page.ts";
import { parseNewPlant, parseReplacement, type Plant as ContentOf } from "../domain/plant.ts";
import { parsePatchText } from "../domain/write.ts";
import {
  BATCH_CODINGS,
  BATCH_TYPES,
  batchHeaders,
  isJob,
  REFUSED_SHOWN_MAX,
  writePlants,
} from "./batch.ts";
import { answerPlan, BULK_TYPE, changePlants, toBulk } from "./bulk.ts";
import { CHANGE_FORMS, countChanges, listChanges, toChangeQuery, toCountQuery } from "./changes.ts";
import {
  answering,
  type Endpoints,
  type Endpoint,
  json,
  jsonAndLines,
  jsonWith,
  ok,
  operation,
} from "./endpoint.ts";
import {
  batchFields,
  bulkFields,
  bulkHeaders,
  changeConditions,
  changeCountFields,
  changeFields,
  changeStreamFields,
  contentArguments,
  countFields,
  EVENT_STREAM_TYPE,
  followHeaders,
  idArgument,
  plantFields,
  plantPath,
  plantStreamFields,
  readConditions,
  tagFields,
  type Values,
  writeFields,
} from "./field.ts";
import { answer as respond } from "./answer.ts";
import { type Method, type Operation, type Route } from "./handle.ts";
import {
  answerChanged,
  answerCount,
  answerCreated,
  answerPlant,
  answerRemoved,
  answerTags,
  countPlants,
  createPlant,
  etagOf,
  listPlants,
  PATCH_TYPES,
  patchPlant,
  PLANT_FORMS,
  readPlant,
  removePlant,
  replacePlant,
  toPlantQuery,
} from "./plants.ts";
import { flag, list, object, text } from "./shape.ts";
import {
  batchResults,
  BulkPreview,
  Change,
  ChangeCount,
  counted,
  created,
  CSV_EXAMPLE,
  ficus,
  monstera,
  NewPlant,
  Plant,
  PlantPatch,
  patchArguments,
  previewMembers,
  StoredPlant,
} from "./plant-shapes.ts";
import { accepted, jobOperations } from "./jobs.ts";
import { revertOperations } from "./revert.ts";
import { listStatusOperations } from "./status.ts";
import { tokenOperations } from "./tokens.ts";
import {
  filterArguments,
  findTool,
  historyTool,
  planOutput,
  showPlan,
  writeTool,
} from "./tools.ts";
import { webhookOperations } from "./webhooks.ts";

/** Grouped by OpenAPI tag, in document order. `description` is the serialized document, one copy for all clients. */
export const listOperations = (config: Config): Readonly<Record<string, Endpoints>> => ({
  plants: plantOperations,
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
    const { scopes, kind, body, parse, run, answer } = endpoint;
    // Every operation has the same object shape: the hot path reads it.
    const served: Operation = { scopes, kind, body, parse, run, answer };
    routes.set(path, { ...routes.get(path), [method]: served });
  }
  return Array.from(routes, ([path, ofPath]) => ({ path, operations: ofPath }));
}

const PlantWithEtag = object({
  id: text(),
  ...contentArguments,
  etag: text(undefined, "Names this state, for `ifMatch`."),
});

const showChanged = (plant: ContentOf) => ({ ...plant, etag: etagOf(plant) });

const patchBodies = Object.fromEntries(PATCH_TYPES.map((type) => [type, PlantPatch]));

const searchNames = filterNames
  .filter((name) => !filters[name].isIndexed)
  .map((name) => `\`${name}\``)
  .join(" or ");

const describeBulk = (count: string): string =>
  "Without a filter the answer is 400; for the whole store, send `all=true` instead. Each plant is one conditional write: a plant that someone else changed " +
  "meanwhile is left alone. Plants created meanwhile may be missed. " +
  "With `dry_run=true` nothing is changed, and the answer is JSON. " +
  "Otherwise the answer has a line for each plant that was left alone: status 412 if it was changed meanwhile, else the error of its write. " +
  `Lines with counts (\`${count}\`, \`unchanged\`, \`changedSince\`, \`refused\`) show progress; \`complete\` is true in the last one. ` +
  "If the work was interrupted, the last line has `complete: false`, a status and an error. Send the request again to continue. " +
  "If the client closes the connection, the work stops after a commit. " +
  "With `Prefer: respond-async` the answer is 202, and the service finishes the work without the client: `GET /jobs` shows it, `DELETE /jobs` stops it. " +
  "The batch names these writes in the journal, so `POST /changes/revert` can undo them.";

function answerBulk(name: string, replaced: number, removed: number) {
  const example =
    '{"id":2,"status":412,"error":3003,"message":"The plant was changed since; it was left as it is."}\n' +
    `{"plants":2,"replaced":${replaced},"removed":${removed},"unchanged":0,"changedSince":1,"refused":0,"batch":"${name} 2026-01-02T00:00:00.000Z","complete":true}\n`;
  const contents = { ...json(BulkPreview), [BULK_TYPE]: text(example) };
  return { ...ok("The result, or the preview of a dry run.", contents), ...accepted };
}

const HOW_TO_BULK =
  "; at least one is needed, or `all`. A dry run, unless `dryRun` is false: show its counts and its sample to the user first. " +
  "Plants that others change meanwhile are left alone, and listed in `left`. If `complete` is false, `message` says why; call it again to continue. revert_changes with its `batch` undoes it.";

const bulkOutput = planOutput(previewMembers, startBulkCounts());

const plantOperations: Endpoints = {
  createPlant: operation({
    at: "POST /plants",
    scopes: ["plants:write"],
    kind: "create",
    summary: "Create a plant",
    description: ({ bodyBytesMax, headerBytesMax, readSecondsMax, urlBytesMax }) =>
      "Creates a new plant in the store. Unknown members of the body are ignored. " +
      "The same plant under the same id again answers 200 with `Idempotent-Replayed: true`; " +
      "a different plant under a taken id answers 409 and changes nothing. " +
      `Limits: body ${bodyBytesMax} bytes, ${readSecondsMax} s to send it, ` +
      `URL ${urlBytesMax} bytes, head ${headerBytesMax} bytes.`,
    query: writeFields,
    body: {
      accepts: jsonWith(NewPlant, { tagged: monstera, untagged: ficus }),
      parse: parseNewPlant,
      isEchoed: true,
    },
    answers: ok("Plant response: the plant is on disk.", json(Plant), "Idempotent-Replayed"),
    fails: ["BadPlant", "IdTaken"],
    run: createPlant,
    answer: answerCreated,
    tool: {
      name: "create_plant",
      title: "Create a plant",
      description:
        "Stores a new plant. The same plant again changes nothing (`replayed`); a different one under a taken id is refused.",
      members: { id: idArgument, ...contentArguments },
      output: object({ id: text(), replayed: flag() }),
      show: (outcome, { body }) => ({ id: body.id, replayed: outcome === "replayed" }),
    },
  }),
  listPlants: operation({
    at: "GET /plants",
    scopes: ["plants:read"],
    kind: "read",
    summary: "List plants",
    description: ({ scanRowsMax }) =>
      "A page of plants in the order of their ids, or of `sort`, as an array; the next page is in the `Link` header, which the last " +
      "page does not have. With `Accept: application/x-ndjson` or `text/csv` all plants that match are streamed " +
      "instead, and `limit` is not allowed. To check that a stream is complete, request what follows its last " +
      "plant: `?after=<id>&limit=1`, with the same filters. " +
      "A page with `sort` by name, tag or changed scans all plants, in turn with other reads, and its next link has a `cursor` instead of `after`. " +
      `A page of very long names may end before its limit. A search by ${searchNames} scans for a bounded time, and at most ${scanRowsMax} plants, so a page may end early or be empty. Both have a next link.`,
    query: plantFields,
    streamQuery: plantStreamFields,
    forms: PLANT_FORMS,
    refine: toPlantQuery,
    answers: ok(
      "The plants.",
      { ...jsonAndLines("StoredPlant", [monstera, ficus]), "text/csv": text(CSV_EXAMPLE) },
      "Link",
    ),
    run: listPlants,
    tool: findTool,
  }),
  patchPlants: operation({
    at: "PATCH /plants",
    scopes: ["plants:write", "plants:read"],
    kind: "batch",
    summary: "Change all plants that match",
    description: `Applies a merge patch (RFC 7396) to each plant that matches all filters. ${describeBulk("replaced")}`,
    query: bulkFields,
    headers: bulkHeaders,
    refine: toBulk,
    body: { accepts: patchBodies, parse: parsePatchText },
    answers: answerBulk("change", 1, 0),
    fails: ["BadPatch", "JobConflict"],
    run: changePlants("change"),
    answer: answerPlan,
    tool: {
      name: "change_plants",
      title: "Change all plants that match",
      description: `Applies \`patch\` to every plant that matches all filters${HOW_TO_BULK}`,
      members: patchArguments,
      toBody: ({ patch }) => patch,
      output: bulkOutput,
      show: showPlan,
    },
  }),
  removePlants: operation({
    at: "DELETE /plants",
    scopes: ["plants:write", "plants:read"],
    kind: "batch",
    summary: "Remove all plants that match",
    description: `Removes each plant that matches all filters. ${describeBulk("removed")}`,
    query: bulkFields,
    headers: bulkHeaders,
    refine: toBulk,
    answers: answerBulk("remove", 0, 1),
    fails: ["BadCondition", "JobConflict"],
    run: changePlants("remove"),
    answer: answerPlan,
    tool: {
      name: "remove_plants",
      title: "Remove all plants that match",
      description: `Removes every plant that matches all filters${HOW_TO_BULK}`,
      output: bulkOutput,
      show: showPlan,
    },
  }),
  createPlants: operation({
    at: "POST /plants/batch",
    scopes: ["plants:write"],
    kind: "batch",
    summary: "Write many plants",
    description: (config) =>
      "Accepts an array of plants and answers with an array of results, or accepts one plant per line and answers with one " +
      "result per line, while the lines are still being sent. The body may be sent in gzip (`Content-Encoding`). Results are in the order of the plants. " +
      "Each plant succeeds or fails alone, as a single create would. The whole batch is safe to send again. " +
      "With `upsert=true`, a plant whose id is taken replaces the stored one, and an equal one changes nothing. " +
      '`{"id": 7, "removed": true}` removes a plant. If there is no such plant, the line gets a 404, or with `upsert=true` changes nothing. ' +
      'With `upsert=true` or `removed`, a line may have `"ifMatch"`, with the meaning of the header `If-Match`. ' +
      "With `atomic=true` the whole batch is one transaction, no larger than one body: " +
      "either every line succeeds, or nothing is stored, and the answer is the error of the first line that failed, " +
      "with a message that begins with `line`, its number and a colon. If the answer was lost, send it again. " +
      "With `upsert=true` and `Prefer: respond-async`, a batch no larger than one body is a job that the service finishes without the client: `GET /jobs` shows it, `DELETE /jobs` stops it. It also needs `plants:read`. If one line is not a plant, all are refused, with such a message. " +
      `Limits: ${config.bodyBytesMax} bytes per array; any number of lines, ${recordBytesMaxOf(config)} bytes per line, ` +
      `${config.readSecondsMax} s between two pieces. ` +
      `A client that sends everything before it reads must send \`Prefer: return=minimal\` with its lines. It gets the results of the first ${REFUSED_SHOWN_MAX} refused lines ` +
      'and then `{"created":2,"replayed":0,"refused":1,"complete":true}` as the last line, with `replaced` and `removed` if lines can do that. `complete` is false if the lines could not be read to their end. ' +
      `Without that header, read the results while you send: the service waits ${config.idleSecondsMax / 2} s for a client that does not read, then stores the rest and ends the answer in the same way. ` +
      "If the lines cannot be read to their end, the last result says so (400, 401, 408, 503), and nothing after it was stored: count the results.",
    query: batchFields,
    headers: batchHeaders,
    also: { scopes: ["plants:read"], when: isJob },
    body: {
      accepts: jsonAndLines("BatchLine", [monstera, ficus]),
      types: BATCH_TYPES,
      codings: BATCH_CODINGS,
    },
    answers: {
      ...ok(
        "A result for each line.",
        jsonAndLines("BatchResult", batchResults),
        "Preference-Applied",
      ),
      ...accepted,
    },
    fails: ["BadPlant", "PlantNotFound", "PreconditionFailed", "BatchConflict"],
    run: writePlants,
    tool: writeTool,
  }),
  countPlants: operation({
    at: "GET /plants/count",
    scopes: ["plants:read"],
    kind: "read",
    summary: "Count plants",
    description:
      "How many plants there are, or how many match. The service counts for a second at most; after that " +
      "`exact` is false, `count` is a lower bound, and the next link continues the count: add up the counts. The answer may be up to two seconds old.",
    query: countFields,
    answers: ok("The count.", json(object(counted)), "Link"),
    run: countPlants,
    answer: answerCount,
    tool: {
      name: "count_plants",
      title: "Count plants",
      description:
        "How many plants match all filters. If `exact` is false, `count` is a lower bound.",
      arguments: filterArguments,
      output: object(counted),
      show: ({ count, exact }) => ({ count, exact }),
    },
  }),
  readPlant: operation({
    at: "GET /plants/{id}",
    scopes: ["plants:read"],
    kind: "read",
    summary: "Read a plant",
    description: "One plant, with an entity tag that names its state.",
    path: plantPath,
    headers: readConditions,
    answers: {
      ...ok("The plant.", json(StoredPlant), "ETag"),
      ...answering(304, "The plant has not changed.", undefined, "ETag"),
    },
    fails: ["BadCondition", "PlantNotFound"],
    run: readPlant,
    answer: answerPlant,
    tool: {
      name: "read_plant",
      title: "Read a plant",
      description: "One plant, with an etag that names its state.",
      output: PlantWithEtag,
      show: showChanged,
    },
  }),
  replacePlant: operation({
    at: "PUT /plants/{id}",
    scopes: ["plants:write"],
    kind: "write",
    summary: "Replace a plant",
    description: ({ bodyBytesMax }) =>
      "Replaces name and tag of an existing plant; a tag that is left out is removed. An `id` in the body must be the one in the path; other unknown members are ignored. " +
      "With `If-Match`, a change that another client made in between is not overwritten. " +
      `The body has at most ${bodyBytesMax} bytes.`,
    path: plantPath,
    query: writeFields,
    headers: changeConditions,
    body: {
      accepts: json(Plant),
      parse: (sent: string, { id }: Values<typeof plantPath>) => parseReplacement(sent, id),
      isEchoed: true,
    },
    answers: ok("The plant is on disk.", json(Plant), "ETag"),
    fails: ["BadReplacement", "PlantNotFound", "JobRunning", "PreconditionFailed"],
    run: replacePlant,
    answer: answerChanged,
    tool: {
      name: "replace_plant",
      title: "Replace a plant",
      description:
        "Replaces name and tag of an existing plant; a tag that is left out is removed. With `ifMatch`, a change made since you read the plant is not overwritten.",
      members: contentArguments,
      toBody: ({ id, name, tag }) => ({ id, name, tag }),
      output: object({ id: text(), etag: text() }),
      show: (plant) => ({ id: plant.id, etag: etagOf(plant) }),
    },
  }),
  patchPlant: operation({
    at: "PATCH /plants/{id}",
    scopes: ["plants:write", "plants:read"],
    kind: "write",
    summary: "Change a plant",
    description: ({ bodyBytesMax }) =>
      'Changes only the members that are sent: a merge patch (RFC 7396). `{"tag": null}` removes the tag. ' +
      "A patch that leaves the plant as it is changes nothing: the journal has no entry for it. " +
      "With `If-Match`, a change that another client made in between is not overwritten. " +
      `The body has at most ${bodyBytesMax} bytes. The answer shows the whole plant.`,
    path: plantPath,
    query: writeFields,
    headers: changeConditions,
    body: { accepts: patchBodies, parse: parsePatchText, isEchoed: true },
    answers: ok("The plant is on disk.", json(Plant), "ETag"),
    fails: ["BadPatch", "PlantNotFound", "JobRunning", "PreconditionFailed"],
    run: patchPlant,
    answer: answerChanged,
    tool: {
      name: "patch_plant",
      title: "Change a plant",
      description:
        "Changes only the members of `patch`. With `ifMatch`, a change made since you read the plant is not overwritten.",
      members: patchArguments,
      toBody: ({ patch }) => patch,
      output: PlantWithEtag,
      show: showChanged,
    },
  }),
  removePlant: operation({
    at: "DELETE /plants/{id}",
    scopes: ["plants:write"],
    kind: "write",
    summary: "Remove a plant",
    description:
      "A second request for the same plant is a 404. `POST /changes/revert` brings the plant back while the journal has the change.",
    path: plantPath,
    query: writeFields,
    headers: changeConditions,
    answers: answering(204, "The plant is removed, on disk."),
    fails: ["BadCondition", "PlantNotFound", "JobRunning", "PreconditionFailed"],
    run: removePlant,
    answer: answerRemoved,
    tool: {
      name: "remove_plant",
      title: "Remove a plant",
      description:
        "Removes a plant. revert_changes can bring it back while the journal has the change.",
      output: object({ id: text() }),
      show: (_, { path }) => ({ id: path.id }),
    },
  }),
  listTags: operation({
    at: "GET /tags",
    scopes: ["plants:read"],
    kind: "read",
    summary: "List the tags in use",
    description:
      "Each tag once, in the order of its UTF-8 bytes; the next page is in the `Link` header, which the last page " +
      `does not have. Tags of ${TAG_PREFIX_CHARACTERS} characters or more are not listed; if there are many, ` +
      "a page may end early or be empty, with a next link.",
    query: tagFields,
    answers: ok("The tags.", json(list(text("bulb"))), "Link"),
    run: answerTags(false),
  }),
  countTags: operation({
    at: "GET /tags/counts",
    scopes: ["plants:read"],
    kind: "read",
    summary: "Count the plants of each tag",
    description:
      "The tags in use, in the same order and pages as `GET /tags`, each with the number of its plants. " +
      "The service counts for about a second per page; then the page ends early, with a next link.",
    query: tagFields,
    answers: ok(
      "The tags with their counts.",
      json(list(object({ tag: text("bulb"), ...counted }))),
      "Link",
    ),
    run: answerTags(true),
  }),
  listChanges: operation({
    at: "GET /changes",
    scopes: ["plants:read"],
    kind: "other",
    summary: "List or follow the changes",
    description: ({ changesDays }) =>
      "Every plant that was created (the console says added), changed (in the API `replaced`) or removed (the console says deleted), once, in commit order: after a number was read, no smaller one " +
      "appears. A page is an array; if there are more, the next page is in the `Link` header. With " +
      "`Accept: application/x-ndjson` the rest is streamed, without a `limit`. With `Accept: text/event-stream` " +
      "events follow the journal: `id` is the number, `event` the type, and `Last-Event-ID` resumes. " +
      "To keep a copy of the plants: note `Last-Change`, read all plants, then the changes after that number. " +
      `Changes are kept for ${changesDays} days. If few of many changes match, a page may end early or be empty, with a next link.`,
    query: changeFields,
    streamQuery: changeStreamFields,
    headers: followHeaders,
    forms: CHANGE_FORMS,
    refine: toChangeQuery,
    answers: ok(
      "The changes.",
      {
        ...jsonAndLines("Change", [created, Change.example]),
        [EVENT_STREAM_TYPE]: text(
          `id: ${created.seq}\nevent: created\ndata: ${JSON.stringify(created)}\n\n`,
        ),
      },
      "Link",
      "Last-Change",
    ),
    fails: ["BadQuery", "ChangesGone"],
    run: listChanges,
    tool: historyTool,
  }),
  countChanges: operation({
    at: "GET /changes/counts",
    scopes: ["plants:read"],
    kind: "other",
    summary: "Count the changes by token, batch and time",
    description:
      "How many plants were created, changed and removed: per token, per batch and per interval, as `group` and `every` say. " +
      "Counted from the newest change back. A page ends when it has `limit` groups, or after about a second; then it has a next link. " +
      "A group may be on several pages: add up its counts. The group with the newest change is first.",
    query: changeCountFields,
    refine: toCountQuery,
    answers: ok("The counts of each group.", json(list(ChangeCount)), "Link", "Last-Change"),
    fails: ["BadQuery", "ChangesGone"],
    run: countChanges,
  }),
  ...revertOperations,
  ...jobOperations,
};
