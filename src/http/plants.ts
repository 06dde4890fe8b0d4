/** The operations on one plant. */

import type { Principal } from "../auth/authenticate.ts";
import { Refusal } from "../domain/errors.ts";
import { findPlainInt64 } from "../domain/json.ts";
import {
  entityTagOf,
  formatPlant,
  formatStoredPlant,
  lengthOf,
  parseNewPlant,
  parseReplacement,
} from "../domain/plant.ts";
import { requireType } from "./body.ts";
import { answer, type Exchange } from "./handle.ts";
import { isUnmodified, JSON_TYPE, parseCondition } from "./request-headers.ts";
import { answerText, requireRoomToAnswer, writeText } from "./stream.ts";

const REPLAYED = { "idempotent-replayed": "true" };

/** POST /plants */
export async function createPlant(exchange: Exchange, { name }: Principal): Promise<Response> {
  const { request, service, startedAtMs } = exchange;
  requireType(request.headers, JSON_TYPE);
  const text = await service.bodies.readText(request);
  const plant = parseNewPlant(text);
  const outcome = await writeText(exchange, text, () => service.store.createPlant(plant, name));
  if (outcome === "replayed") return answerText(exchange, formatPlant(plant), REPLAYED);
  service.metrics.countCreate(performance.now() - startedAtMs);
  return answerText(exchange, formatPlant(plant));
}

/** GET /plants/{id} */
export async function readPlant(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const plant = await service.store.findPlant(parseId(request));
  if (plant === undefined) throw new Refusal("plant_not_found");
  // Before the text is made: a burst of refused requests would make many.
  requireRoomToAnswer(service, lengthOf(plant));
  const text = formatStoredPlant(plant);
  const etag = entityTagOf(text);
  // A client may keep it, but has to ask each time whether it still holds.
  const headers = { etag, "cache-control": "private, no-cache" };
  if (isUnmodified(request.headers, etag)) return answer(304, null, headers);
  return answerText(exchange, text, headers);
}

/** PUT /plants/{id} */
export async function replacePlant(exchange: Exchange, { name }: Principal): Promise<Response> {
  const { request, service } = exchange;
  const id = parseId(request);
  const condition = parseCondition(request.headers);
  requireType(request.headers, JSON_TYPE);
  const text = await service.bodies.readText(request);
  const plant = parseReplacement(text, id);
  await writeText(exchange, text, () => service.store.replacePlant(plant, condition, name));
  const etag = entityTagOf(formatStoredPlant(plant));
  return answerText(exchange, formatPlant(plant), { etag });
}

/** DELETE /plants/{id} */
export async function removePlant(
  { request, service }: Exchange,
  { name }: Principal,
): Promise<Response> {
  // Otherwise the runtime would hold a body, which has no meaning here, until the answer.
  await request.body?.cancel();
  await service.store.removePlant(parseId(request), parseCondition(request.headers), name);
  return answer(204, null);
}

function parseId({ params }: Exchange["request"]): bigint {
  const id = findPlainInt64(params?.["id"] ?? "");
  if (id === undefined) throw new Refusal("invalid_id");
  return id;
}
