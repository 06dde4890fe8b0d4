/** The operations on one plant. */

import { Refusal } from "../domain/errors.ts";
import {
  entityTagOf,
  formatPlant,
  formatStoredPlant,
  parseNewPlant,
  parseReplacement,
} from "../domain/plant.ts";
import { requireJson } from "./media-type.ts";
import { isUnmodified, parseCondition } from "./preconditions.ts";
import { findPlainInt64 } from "./query.ts";
import type { Answer, RoutedRequest, Service } from "./service.ts";

const REPLAYED = { "idempotent-replayed": "true" };

/** POST /plants */
export async function createPlant(request: Request, service: Service): Promise<Answer> {
  requireJson(request.headers);
  const plant = parseNewPlant(await service.bodies.readText(request));
  const outcome = await service.store.createPlant(plant);
  const body = formatPlant(plant);
  if (outcome === "replayed") return { status: 200, body, headers: REPLAYED };
  return { status: 200, body, isCreated: true };
}

/** GET /plants/{id} */
export async function readPlant(request: RoutedRequest, service: Service): Promise<Answer> {
  const plant = await service.store.findPlant(parseId(request));
  if (plant === undefined) throw new Refusal("plant_not_found");
  const etag = entityTagOf(plant);
  // A reader may keep it, and has to ask each time whether it still holds.
  const headers = { etag, "cache-control": "private, no-cache" };
  if (isUnmodified(request.headers, etag)) return { status: 304, body: null, headers };
  return { status: 200, body: formatStoredPlant(plant), headers };
}

/** PUT /plants/{id} */
export async function replacePlant(request: RoutedRequest, service: Service): Promise<Answer> {
  const id = parseId(request);
  const condition = parseCondition(request.headers);
  requireJson(request.headers);
  const plant = parseReplacement(await service.bodies.readText(request), id);
  await service.store.replacePlant(plant, condition);
  return { status: 200, body: formatPlant(plant), headers: { etag: entityTagOf(plant) } };
}

/** DELETE /plants/{id} */
export async function removePlant(request: RoutedRequest, service: Service): Promise<Answer> {
  await service.store.removePlant(parseId(request), parseCondition(request.headers));
  return { status: 204, body: null };
}

function parseId(request: RoutedRequest): bigint {
  const id = findPlainInt64(request.params?.["id"] ?? "");
  if (id === undefined) throw new Refusal("invalid_id");
  return id;
}
