/** The operations on one plant. */

import { Refusal } from "../domain/errors.ts";
import {
  entityTagOf,
  formatPlant,
  formatStoredPlant,
  parseNewPlant,
  parseReplacement,
} from "../domain/plant.ts";
import { requireType } from "./body.ts";
import { answer, type Exchange } from "./handle.ts";
import { findPlainInt64 } from "./query.ts";
import { isUnmodified, parseCondition } from "./request-headers.ts";

const JSON_TYPE = "application/json";
const REPLAYED = { "idempotent-replayed": "true" };

/** POST /plants */
export async function createPlant(exchange: Exchange): Promise<Response> {
  const { request, service, startedAtMs } = exchange;
  requireType(request.headers, JSON_TYPE);
  const plant = parseNewPlant(await service.bodies.readText(request));
  const outcome = await service.store.createPlant(plant);
  if (outcome === "replayed") return answer(200, formatPlant(plant), REPLAYED);
  service.metrics.countCreate(performance.now() - startedAtMs);
  return answer(200, formatPlant(plant));
}

/** GET /plants/{id} */
export async function readPlant({ request, service }: Exchange): Promise<Response> {
  const plant = await service.store.findPlant(parseId(request));
  if (plant === undefined) throw new Refusal("plant_not_found");
  const etag = entityTagOf(plant);
  // A client may keep it, but has to ask each time whether it still holds.
  const headers = { etag, "cache-control": "private, no-cache" };
  if (isUnmodified(request.headers, etag)) return answer(304, null, headers);
  return answer(200, formatStoredPlant(plant), headers);
}

/** PUT /plants/{id} */
export async function replacePlant({ request, service }: Exchange): Promise<Response> {
  const id = parseId(request);
  const condition = parseCondition(request.headers);
  requireType(request.headers, JSON_TYPE);
  const plant = parseReplacement(await service.bodies.readText(request), id);
  await service.store.replacePlant(plant, condition);
  return answer(200, formatPlant(plant), { etag: entityTagOf(plant) });
}

/** DELETE /plants/{id} */
export async function removePlant({ request, service }: Exchange): Promise<Response> {
  await service.store.removePlant(parseId(request), parseCondition(request.headers));
  return answer(204, null);
}

function parseId({ params }: Exchange["request"]): bigint {
  const id = findPlainInt64(params?.["id"] ?? "");
  if (id === undefined) throw new Refusal("invalid_id");
  return id;
}
