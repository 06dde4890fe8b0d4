/** The operations on plants. */

import { type NewPlant, parseNewPlant } from "../domain/plant.ts";
import { requireJson } from "./media-type.ts";
import type { Answer, Service } from "./service.ts";

const REPLAYED = { "idempotent-replayed": "true" };

/** POST /plants */
export async function createPlant(request: Request, service: Service): Promise<Answer> {
  requireJson(request.headers);
  const plant = parseNewPlant(await service.bodies.readText(request));
  const outcome = await service.store.createPlant(plant);
  const body = formatPlant(plant);
  return outcome === "created" ? { status: 200, body } : { status: 200, body, headers: REPLAYED };
}

/** The shape Plant of the interface, which has no id. */
function formatPlant({ name, tag }: NewPlant): string {
  return JSON.stringify({ name, tag });
}
