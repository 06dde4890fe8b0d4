/** The operations on plants. An id is a bigint here, never a number: no digit is lost. */

import { ServiceError } from "../../client/client.ts";
import { retry } from "../../client/retry.ts";
import { INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import type { Order } from "../../domain/page.ts";
import { formatPlant, formatStoredPlant, parseNewPlant, type Plant } from "../../domain/plant.ts";
import { ask, call, isStatus, receive } from "./service.ts";

export interface Filter {
  readonly name: string | undefined;
  readonly tag: string | undefined;
  readonly order: Order;
}

export function formatFilter({ name, tag, order }: Filter): URLSearchParams {
  const query = new URLSearchParams();
  if (name !== undefined) query.set("name", name);
  if (tag !== undefined) query.set("tag", tag);
  if (order !== "asc") query.set("order", order);
  return query;
}

export interface Versioned {
  readonly plant: Plant;
  readonly etag: string;
}

const etagOf = ({ headers }: Response): string => headers.get("etag") ?? "*";

export async function readPlant(id: bigint, signal?: AbortSignal): Promise<Versioned> {
  const response = await ask(`plants/${id}`, { signal: signal ?? null });
  return { plant: parseNewPlant(await receive(() => response.text())), etag: etagOf(response) };
}

const DELAYS_MS = [300, 900];

/** Sends again after a lost answer: most outages are over within a second. */
const send = (path: string, init: RequestInit): Promise<Response> =>
  retry(() => ask(path, init), {
    delaysMs: DELAYS_MS,
    findWaitMs: (error) => (error instanceof ServiceError && error.isTransient ? 0 : undefined),
  });

const JSON_BODY = { "content-type": "application/json" };

/** Throws a 409 where another plant has the id. */
export async function createPlant(plant: Plant): Promise<"created" | "replayed"> {
  const body = formatStoredPlant(plant);
  const response = await send("plants", { method: "POST", headers: JSON_BODY, body });
  return response.headers.get("idempotent-replayed") === "true" ? "replayed" : "created";
}

/** The plant is no longer as it was read; `current` is undefined where it was deleted. */
export class Changed extends Error {
  override readonly name = "Changed";
  readonly current: Versioned | undefined;

  constructor(current: Versioned | undefined) {
    super("Someone else changed this plant.");
    this.current = current;
  }
}

/** Throws Changed where the plant is no longer as it was read. */
export async function replacePlant(plant: Plant, etag: string): Promise<Versioned> {
  const headers = { ...JSON_BODY, "if-match": etag };
  try {
    const init = { method: "PUT", headers, body: formatPlant(plant) };
    return { plant, etag: etagOf(await send(`plants/${plant.id}`, init)) };
  } catch (error) {
    if (!isStatus(error, 412) && !isStatus(error, 404)) throw error;
    const current = await findPlant(plant.id);
    // The first attempt succeeded, and its answer was lost.
    if (current !== undefined && isSame(current.plant, plant)) return current;
    throw new Changed(current);
  }
}

/** Throws Changed where the plant is no longer as it was read. A plant that is gone already counts as removed. */
export async function removePlant(id: bigint, etag: string): Promise<void> {
  try {
    await send(`plants/${id}`, { method: "DELETE", headers: { "if-match": etag } });
  } catch (error) {
    if (isStatus(error, 404)) return;
    if (!isStatus(error, 412)) throw error;
    throw new Changed(await findPlant(id));
  }
}

async function findPlant(id: bigint): Promise<Versioned | undefined> {
  try {
    return await readPlant(id);
  } catch (error) {
    if (isStatus(error, 404)) return undefined;
    throw error;
  }
}

export const isSame = (a: Plant, b: Plant): boolean =>
  a.id === b.id && a.name === b.name && a.tag === b.tag;

/** The plant that has the id, if any. Asked as a list: a missing plant is not a failed request then. */
export async function findTaken(id: bigint, signal: AbortSignal): Promise<Plant | undefined> {
  const after = id === INT64_MIN ? undefined : id - 1n;
  const { plants } = await call((client) => client.listPlants({ limit: 1, after }, signal));
  return plants.find((plant) => plant.id === id);
}

const GAP_PAGES_MAX = 20;

/** The highest free id that follows a used one; undefined where none was found. */
export async function findFreeId(): Promise<bigint | undefined> {
  let above = INT64_MAX + 1n;
  let after: bigint | undefined;
  for (let count = 0; count < GAP_PAGES_MAX; count++) {
    const query = { order: "desc", after, limit: count === 0 ? 1 : 1000 } as const;
    const { plants, next } = await call((client) => client.listPlants(query));
    for (const { id } of plants) {
      if (above - id > 1n) return id + 1n;
      above = id;
    }
    if (next === undefined) {
      if (above > INT64_MAX) return 1n;
      return above > INT64_MIN ? above - 1n : undefined;
    }
    after = next;
  }
  return undefined;
}

/** The first tags in use with this prefix. */
export async function readTags(
  prefix: string,
  limit: number,
  signal: AbortSignal,
): Promise<{ tags: string[]; isAll: boolean }> {
  const query = new URLSearchParams({ limit: String(limit) });
  if (prefix !== "") query.set("prefix", prefix);
  const response = await ask(`tags?${query}`, { signal });
  const tags = JSON.parse(await receive(() => response.text())) as string[];
  return { tags, isAll: !response.headers.has("link") };
}
