/** The operations on plants. An id is a bigint here, never a number: no digit is lost. */

import { INT64_MAX, INT64_MIN } from "../../domain/json.ts";
import type { Order } from "../../domain/page.ts";
import { formatPlant, formatStoredPlant, type Plant } from "../../domain/plant.ts";
import { ask, Failed, isStatus, Lost, readText } from "./service.ts";

/**
 * Every plant begins with its id. A quote inside a JSON string is escaped, so these characters appear
 * only at the start of a plant, and quoting the digits changes nothing else.
 */
const ID_MEMBER = /\{"id":(-?\d+)/g;

interface WirePlant {
  readonly id: string;
  readonly name: string;
  readonly tag?: string;
}

const parseWire = (text: string): unknown =>
  JSON.parse(text.replaceAll(ID_MEMBER, '{"id":"$1"')) as unknown;

const toPlant = ({ id, name, tag }: WirePlant): Plant => ({ id: BigInt(id), name, tag });

/** The address of the next page, from `Link: <…>; rel="next"`. */
const findNext = ({ url, headers }: Response): URL | undefined => {
  const [, next] = /<([^>]*)>\s*;\s*rel="?next"?/.exec(headers.get("link") ?? "") ?? [];
  return next === undefined ? undefined : new URL(next, url);
};

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

export interface Page {
  readonly plants: readonly Plant[];
  /** The address of the next page. */
  readonly next: string | undefined;
  /** The id that the next page starts after. */
  readonly passed: bigint | undefined;
}

export async function readPage(path: string, signal: AbortSignal): Promise<Page> {
  const response = await ask(path, { signal, headers: { accept: "application/json" } });
  const next = findNext(response);
  const passed = next?.searchParams.get("after") ?? undefined;
  return {
    plants: (parseWire(await readText(response)) as WirePlant[]).map(toPlant),
    next: next?.href,
    passed: passed === undefined ? undefined : BigInt(passed),
  };
}

export interface Versioned {
  readonly plant: Plant;
  readonly etag: string;
}

export async function readPlant(id: bigint, signal?: AbortSignal): Promise<Versioned> {
  const response = await ask(`plants/${id}`, signal === undefined ? {} : { signal });
  const etag = response.headers.get("etag") ?? "*";
  return { plant: toPlant(parseWire(await readText(response)) as WirePlant), etag };
}

const JSON_BODY = { "content-type": "application/json" };

/** Safe to send again after a lost answer. Throws Failed 409 where another plant has the id. */
export async function createPlant(plant: Plant): Promise<"created" | "replayed"> {
  const body = formatStoredPlant(plant);
  const response = await retry(() => ask("plants", { method: "POST", headers: JSON_BODY, body }));
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
  const body = formatPlant(plant);
  try {
    const response = await retry(() => ask(`plants/${plant.id}`, { method: "PUT", headers, body }));
    return { plant, etag: response.headers.get("etag") ?? "*" };
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
    await retry(() => ask(`plants/${id}`, { method: "DELETE", headers: { "if-match": etag } }));
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

/** Most outages are over within a second. */
async function retry<Result>(send: () => Promise<Result>): Promise<Result> {
  for (const delayMs of RETRY_DELAYS_MS) {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof Lost || (error instanceof Failed && error.isTransient))) throw error;
      await new Promise((resolve) => setTimeout(resolve, delayMs));
    }
  }
  return send();
}

/** The plant that has the id, if any. Asked as a list: a missing plant is not a failed request then. */
export async function findTaken(id: bigint, signal: AbortSignal): Promise<Plant | undefined> {
  const after = id === INT64_MIN ? "" : `&after=${id - 1n}`;
  const { plants } = await readPage(`plants?limit=1${after}`, signal);
  return plants.find((plant) => plant.id === id);
}

const GAP_PAGES_MAX = 20;

/** The highest free id that follows a used one; undefined where none was found. */
export async function findFreeId(signal: AbortSignal): Promise<bigint | undefined> {
  let above = INT64_MAX + 1n;
  let path = "plants?order=desc&limit=1";
  for (let count = 0; count < GAP_PAGES_MAX; count++) {
    const page = await readPage(path, signal);
    for (const { id } of page.plants) {
      if (above - id > 1n) return id + 1n;
      above = id;
    }
    if (page.passed === undefined) {
      if (above > INT64_MAX) return 1n;
      return above > INT64_MIN ? above - 1n : undefined;
    }
    path = `plants?order=desc&limit=1000&after=${page.passed}`;
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
  const tags = JSON.parse(await readText(response)) as string[];
  return { tags, isAll: findNext(response) === undefined };
}
