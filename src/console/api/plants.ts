/** The operations on plants. */

import { INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import type { Order } from "../../domain/page.ts";
import { formatPlant, formatStoredPlant, type Plant } from "../../domain/plant.ts";
import { ask, Failed, isStatus, Lost, readText } from "./service.ts";
import { findNext, parsePlant, parsePlants } from "./wire.ts";

export interface Filter {
  readonly name: string | undefined;
  readonly tag: string | undefined;
  readonly order: Order;
}

export interface Page {
  readonly plants: readonly Plant[];
  /** The path of the next page. */
  readonly next: string | undefined;
  /** The id that the next page begins behind. */
  readonly passed: bigint | undefined;
}

export function formatFilter({ name, tag, order }: Filter): URLSearchParams {
  const query = new URLSearchParams();
  if (name !== undefined) query.set("name", name);
  if (tag !== undefined) query.set("tag", tag);
  if (order !== "asc") query.set("order", order);
  return query;
}

export function firstPage(filter: Filter, limit: number): string {
  const query = formatFilter(filter);
  query.set("limit", String(limit));
  return `plants?${query}`;
}

export async function readPage(path: string, signal: AbortSignal): Promise<Page> {
  const response = await ask(path, { signal, headers: { accept: "application/json" } });
  const next = findNext(response.headers);
  const passed =
    next === undefined ? null : new URL(next, document.baseURI).searchParams.get("after");
  return {
    plants: parsePlants(await readText(response)),
    next,
    passed: passed === null ? undefined : BigInt(passed),
  };
}

export interface Versioned {
  readonly plant: Plant;
  readonly etag: string;
}

export async function readPlant(id: bigint, signal?: AbortSignal): Promise<Versioned> {
  const response = await ask(`plants/${id}`, signal === undefined ? {} : { signal });
  const etag = response.headers.get("etag") ?? "*";
  return { plant: parsePlant(await readText(response)), etag };
}

const JSON_BODY = { "content-type": "application/json" };

/** Sent again after a lost answer it does no harm: then it is `replayed`. Throws Failed 409 where the id is taken. */
export async function createPlant(plant: Plant): Promise<"created" | "replayed"> {
  const body = formatStoredPlant(plant);
  const response = await persist(() => ask("plants", { method: "POST", headers: JSON_BODY, body }));
  return response.headers.get("idempotent-replayed") === "true" ? "replayed" : "created";
}

/** The plant is not as it was read. Undefined where it is gone. */
export class Changed extends Error {
  override readonly name = "Changed";
  readonly current: Versioned | undefined;

  constructor(current: Versioned | undefined) {
    super("The plant has been changed meanwhile.");
    this.current = current;
  }
}

/** Replaces the plant if it is still as it was read; throws Changed where not. */
export async function replacePlant(plant: Plant, etag: string): Promise<Versioned> {
  const body = formatPlant(plant);
  try {
    const response = await persist(() =>
      ask(`plants/${plant.id}`, {
        method: "PUT",
        headers: { ...JSON_BODY, "if-match": etag },
        body,
      }),
    );
    return { plant, etag: response.headers.get("etag") ?? "*" };
  } catch (error) {
    if (!isStatus(error, 412) && !isStatus(error, 404)) throw error;
    const current = await findPlant(plant.id);
    // The first answer was lost, and it was a yes.
    if (current !== undefined && isSame(current.plant, plant)) return current;
    throw new Changed(current);
  }
}

/** Removes the plant if it is still as it was read; throws Changed where not. Gone already is as good. */
export async function removePlant(id: bigint, etag: string): Promise<void> {
  try {
    await persist(() => ask(`plants/${id}`, { method: "DELETE", headers: { "if-match": etag } }));
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

const RETRY_DELAYS_MS = [300, 900];

/** Tries again by itself, a little: most losses are over in a second. */
async function persist<Result>(send: () => Promise<Result>): Promise<Result> {
  for (const delayMs of RETRY_DELAYS_MS) {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof Lost || (error instanceof Failed && error.isPassing))) throw error;
      await new Promise((resolve) => setTimeout(resolve, delayMs));
    }
  }
  return send();
}

/** The plant that has the id, if any. Asked as a list, because a plant that is not there is no failure here. */
export async function findTaken(id: bigint, signal: AbortSignal): Promise<Plant | undefined> {
  const after = id - 1n;
  const query = after < -(INT64_MAX + 1n) ? "limit=1" : `limit=1&after=${after}`;
  const { plants } = await readPage(`plants?${query}`, signal);
  return plants.find((plant) => plant.id === id);
}

const GAP_PAGES_MAX = 20;

/** The id behind the largest that has a free one behind it; undefined where none was found. */
export async function findFreeId(signal: AbortSignal): Promise<bigint | undefined> {
  let above = INT64_MAX + 1n;
  let path: string | undefined = "plants?order=desc&limit=1";
  for (let count = 0; path !== undefined && count < GAP_PAGES_MAX; count++) {
    const page: Page = await readPage(path, signal);
    for (const { id } of page.plants) {
      if (above - id > 1n) return id + 1n;
      above = id;
    }
    path =
      page.passed === undefined ? undefined : `plants?order=desc&limit=1000&after=${page.passed}`;
    if (path === undefined) return above === INT64_MAX + 1n ? 1n : findBelow(above);
  }
  return undefined;
}

const findBelow = (id: bigint): bigint | undefined => (id > INT64_MIN ? id - 1n : undefined);

/** The first tags in use that begin so. */
export async function readTags(
  prefix: string,
  limit: number,
  signal: AbortSignal,
): Promise<{ tags: string[]; isAll: boolean }> {
  const query = new URLSearchParams({ limit: String(limit) });
  if (prefix !== "") query.set("prefix", prefix);
  const response = await ask(`tags?${query}`, { signal });
  return {
    tags: JSON.parse(await readText(response)) as string[],
    isAll: findNext(response.headers) === undefined,
  };
}
