/** Every operation: its path, scope, handler, parameters and answers. */

import type { Config } from "../config.ts";
import { BATCH_CODINGS, BATCH_TYPES, writePlants } from "./batch.ts";
import { BULK_TYPE, patchPlants, removePlants } from "./bulk.ts";
import { countChanges, listChanges } from "./changes.ts";
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
  changeCountParameters,
  changeParameters,
  countParameters,
  plantParameters,
  tagParameters,
  writeParameters,
} from "./query.ts";
import { int64, list, object, text } from "./shape.ts";
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
  StoredPlant,
} from "./plant-shapes.ts";
import { accepted, asyncHeaders, jobOperations } from "./jobs.ts";
import { revertOperation } from "./revert.ts";
import { listStatusOperations } from "./status.ts";
import { tokenOperations } from "./tokens.ts";
import { webhookOperations } from "./webhooks.ts";

/** Grouped by OpenAPI tag, in document order. `description` is the serialized document, one copy for all clients. */
export const listOperations = (config: Config): Readonly<Record<string, Endpoints>> => ({
  plants: plantOperations,
  webhooks: webhookOperations,
  operation: {
    ...tokenOperations,
    ...listStatusOperations(config),
    describeApi: operation("GET /openapi.json", undefined, createDescriber(config), {
      summary: "This document",
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
    const { scope, needs, handle, query, bodyTypes, bodyCodings } = endpoint;
    // Every route has the same object shape: the hot path reads it.
    const hasQuery = query !== undefined;
    const served: Operation = { scope, needs, handle, hasQuery, bodyTypes, bodyCodings };
    routes.set(path, { ...routes.get(path), [method]: served });
  }
  return Array.from(routes, ([path, ofPath]) => ({ path, operations: ofPath }));
}

const changeConditions = {
  "If-Match": text(undefined, "Answers 412 if the plant no longer has this entity tag."),
  "If-None-Match": text(undefined, "Answers 412 if the plant has this entity tag."),
};

const patchBodies = Object.fromEntries(PATCH_TYPES.map((type) => [type, PlantPatch]));

function answerBulk(name: string, replaced: number, removed: number) {
  const example =
    '{"id":2,"status":412,"error":3003,"message":"The plant was changed since; it was left as it is."}\n' +
    `{"plants":2,"replaced":${replaced},"removed":${removed},"unchanged":0,"changedSince":1,"refused":0,"batch":"${name} 2026-01-02T00:00:00.000Z","complete":true}\n`;
  const contents = { ...json(BulkPreview), [BULK_TYPE]: text(example) };
  return { ...ok("The result, or the preview of a dry run.", contents), ...accepted };
}

const plantOperations: Endpoints = {
  createPlant: operation("POST /plants", "plants:write", createPlant, {
    summary: "Create a plant",
    bodyTypes: [JSON_TYPE],
    query: writeParameters,
    accepts: jsonWith(NewPlant, { tagged: monstera, untagged: ficus }),
    answers: ok("Plant response: the plant is on disk.", json(Plant), "Idempotent-Replayed"),
    fails: ["BadPlant", "IdTaken"],
  }),
  listPlants: operation("GET /plants", "plants:read", listPlants, {
    summary: "List plants",
    query: plantParameters,
    answers: ok(
      "The plants.",
      { ...jsonAndLines("StoredPlant", [monstera, ficus]), "text/csv": text(CSV_EXAMPLE) },
      "Link",
    ),
  }),
  patchPlants: operation("PATCH /plants", "plants:write", patchPlants, {
    summary: "Change all plants that match",
    needs: "plants:read",
    bodyTypes: PATCH_TYPES,
    query: bulkParameters,
    headers: asyncHeaders,
    accepts: patchBodies,
    answers: answerBulk("change", 1, 0),
    fails: ["BadPatch", "JobConflict"],
  }),
  removePlants: operation("DELETE /plants", "plants:write", removePlants, {
    summary: "Remove all plants that match",
    needs: "plants:read",
    query: bulkParameters,
    headers: asyncHeaders,
    answers: answerBulk("remove", 0, 1),
    fails: ["BadCondition", "JobConflict"],
  }),
  createPlants: operation("POST /plants/batch", "plants:write", writePlants, {
    summary: "Write many plants",
    bodyTypes: BATCH_TYPES,
    bodyCodings: BATCH_CODINGS,
    query: batchParameters,
    headers: {
      Prefer: text(
        undefined,
        "`return=minimal` answers lines with a summary, and `respond-async` with `upsert=true` answers 202 (RFC 7240). Other preferences are ignored.",
      ),
    },
    accepts: jsonAndLines("BatchLine", [monstera, ficus]),
    answers: {
      ...ok(
        "A result for each line.",
        jsonAndLines("BatchResult", batchResults),
        "Preference-Applied",
      ),
      ...accepted,
    },
    fails: ["BadPlant", "PlantNotFound", "PreconditionFailed", "BatchConflict"],
  }),
  countPlants: operation("GET /plants/count", "plants:read", countPlants, {
    summary: "Count plants",
    query: countParameters,
    answers: ok("The count.", json(object(counted)), "Link"),
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
    query: writeParameters,
    headers: changeConditions,
    accepts: json(Plant),
    answers: ok("The plant is on disk.", json(Plant), "ETag"),
    fails: ["BadReplacement", "PlantNotFound", "JobRunning", "PreconditionFailed"],
  }),
  patchPlant: operation("PATCH /plants/{id}", "plants:write", patchPlant, {
    summary: "Change a plant",
    // The answer shows what the client did not send.
    needs: "plants:read",
    bodyTypes: PATCH_TYPES,
    query: writeParameters,
    headers: changeConditions,
    accepts: patchBodies,
    answers: ok("The plant is on disk.", json(Plant), "ETag"),
    fails: ["BadPatch", "PlantNotFound", "JobRunning", "PreconditionFailed"],
  }),
  removePlant: operation("DELETE /plants/{id}", "plants:write", removePlant, {
    summary: "Remove a plant",
    query: writeParameters,
    headers: changeConditions,
    answers: answering(204, "The plant is removed, on disk."),
    fails: ["BadCondition", "PlantNotFound", "JobRunning", "PreconditionFailed"],
  }),
  listTags: operation("GET /tags", "plants:read", answerTags(false), {
    summary: "List the tags in use",
    query: tagParameters,
    answers: ok("The tags.", json(list(text("bulb"))), "Link"),
  }),
  countTags: operation("GET /tags/counts", "plants:read", answerTags(true), {
    summary: "Count the plants of each tag",
    query: tagParameters,
    answers: ok(
      "The tags with their counts.",
      json(list(object({ tag: text("bulb"), ...counted }))),
      "Link",
    ),
  }),
  listChanges: operation("GET /changes", "plants:read", listChanges, {
    summary: "List or follow the changes",
    query: changeParameters,
    headers: {
      "Last-Event-ID": int64(undefined, "For event streams: overrides `after`.", { minimum: 0 }),
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
  countChanges: operation("GET /changes/counts", "plants:read", countChanges, {
    summary: "Count the changes by token, batch and time",
    query: changeCountParameters,
    answers: ok("The counts of each group.", json(list(ChangeCount)), "Link", "Last-Change"),
    fails: ["BadQuery", "ChangesGone"],
  }),
  revertChanges: revertOperation,
  ...jobOperations,
};
