/** The operations on one plant. */

import { type Condition, entityTagOf, matches } from "../domain/entity-tag.ts";
import { Refusal } from "../domain/errors.ts";
import {
  formatPlant,
  formatStoredPlant,
  lengthOf,
  parseNewPlant,
  parseReplacement,
  type Plant as Stored,
} from "../domain/plant.ts";
import { parsePatchText } from "../domain/write.ts";
import { answer, answerText, requireRoomToAnswer } from "./answer.ts";
import { answering, type Endpoints, json, jsonWith, ok, operation } from "./endpoint.ts";
import type { Exchange } from "./exchange.ts";
import {
  changeConditions,
  contentArguments,
  idArgument,
  plantPath,
  readConditions,
  type Values,
  writeFields,
} from "./field.ts";
import {
  ficus,
  monstera,
  NewPlant,
  patchArguments,
  patchBodies,
  Plant,
  StoredPlant,
} from "./plant-shapes.ts";
import { flag, object, text } from "./shape.ts";

const REPLAYED = { "idempotent-replayed": "true" };

const conditionOf = (headers: Values<typeof changeConditions>): Condition => ({
  match: headers["If-Match"],
  noneMatch: headers["If-None-Match"],
});

const etagOf = (plant: Stored): string => entityTagOf(formatStoredPlant(plant));

const answerChanged = (exchange: Exchange, plant: Stored): Response =>
  answerText(exchange, formatPlant(plant), { etag: etagOf(plant) });

const PlantWithEtag = object({
  id: text(),
  ...contentArguments,
  etag: text(undefined, "Names this state, for `ifMatch`."),
});

export const plantOperations: Endpoints = {
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
    run: async ({ query, body: plant }, exchange) => {
      const { service, startedAtMs } = exchange;
      const freed = exchange.requireFree(query);
      if (freed !== undefined) await freed;
      const outcome = await exchange.store.createPlant(plant, exchange.nameWriter(query.batch));
      if (outcome === "created") service.metrics.countCreates(performance.now() - startedAtMs);
      return outcome;
    },
    answer: (outcome, { body }, exchange) =>
      answerText(exchange, formatPlant(body), outcome === "replayed" ? REPLAYED : undefined),
    answers: ok("Plant response: the plant is on disk.", json(Plant), "Idempotent-Replayed"),
    fails: ["BadPlant", "IdTaken"],
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
  readPlant: operation({
    at: "GET /plants/{id}",
    scopes: ["plants:read"],
    kind: "read",
    summary: "Read a plant",
    description: "One plant, with an entity tag that names its state.",
    path: plantPath,
    headers: readConditions,
    run: async ({ path }, { store }) => {
      const plant = await store.findPlant(path.id);
      if (plant === undefined) throw new Refusal("plant_not_found");
      return plant;
    },
    answer: (plant, { headers: sent }, exchange) => {
      // Checked before serializing, so a refused request builds no body.
      requireRoomToAnswer(exchange, lengthOf(plant));
      const shown = formatStoredPlant(plant);
      const etag = entityTagOf(shown);
      // Clients may cache it, but must revalidate every time.
      const headers = { etag, "cache-control": "private, no-cache" };
      if (matches(sent["If-None-Match"] ?? [], etag)) return answer(304, null, headers);
      return answerText(exchange, shown, headers);
    },
    answers: {
      ...ok("The plant.", json(StoredPlant), "ETag"),
      ...answering(304, "The plant has not changed.", undefined, "ETag"),
    },
    fails: ["BadCondition", "PlantNotFound"],
    tool: {
      name: "read_plant",
      title: "Read a plant",
      description: "One plant, with an etag that names its state.",
      output: PlantWithEtag,
      show: (plant) => ({ ...plant, etag: etagOf(plant) }),
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
    run: async ({ query, headers, body: plant }, exchange) => {
      const writer = exchange.nameWriter(query.batch);
      await exchange.requireFree(writer);
      await exchange.store.replacePlant(plant, conditionOf(headers), writer);
      return plant;
    },
    answer: (plant, _input, exchange) => answerChanged(exchange, plant),
    answers: ok("The plant is on disk.", json(Plant), "ETag"),
    fails: ["BadReplacement", "PlantNotFound", "JobRunning", "PreconditionFailed"],
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
    run: async ({ path, query, headers, body: patch }, exchange) => {
      const writer = exchange.nameWriter(query.batch);
      await exchange.requireFree(writer);
      return exchange.store.patchPlant(path.id, patch, conditionOf(headers), writer);
    },
    answer: (plant, _input, exchange) => answerChanged(exchange, plant),
    answers: ok("The plant is on disk.", json(Plant), "ETag"),
    fails: ["BadPatch", "PlantNotFound", "JobRunning", "PreconditionFailed"],
    tool: {
      name: "patch_plant",
      title: "Change a plant",
      description:
        "Changes only the members of `patch`. With `ifMatch`, a change made since you read the plant is not overwritten.",
      members: patchArguments,
      toBody: ({ patch }) => patch,
      output: PlantWithEtag,
      show: (plant) => ({ ...plant, etag: etagOf(plant) }),
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
    run: async ({ path, query, headers }, exchange) => {
      const writer = exchange.nameWriter(query.batch);
      await exchange.requireFree(writer);
      await exchange.store.removePlant(path.id, conditionOf(headers), writer);
    },
    answer: () => answer(204, null),
    answers: answering(204, "The plant is removed, on disk."),
    fails: ["BadCondition", "PlantNotFound", "JobRunning", "PreconditionFailed"],
    tool: {
      name: "remove_plant",
      title: "Remove a plant",
      description:
        "Removes a plant. revert_changes can bring it back while the journal has the change.",
      output: object({ id: text() }),
      show: (_, { path }) => ({ id: path.id }),
    },
  }),
};
