/** The operations on one plant, on pages and streams of plants, and on tags. */

import { Refusal } from "../domain/errors.ts";
import { entityTagOf } from "../domain/entity-tag.ts";
import { findPlainInt64 } from "../domain/json.ts";
import { type PageText, type PlantQuery, SMALL_PAGE_LENGTH, type TagPage } from "../domain/page.ts";
import {
  formatPlant,
  formatStoredPlant,
  lengthOf,
  parseNewPlant,
  parseReplacement,
} from "../domain/plant.ts";
import { formatCursor, scanBytesOf } from "../domain/sort.ts";
import { parsePatchText } from "../domain/write.ts";
import { CSV_HEAD, TIMED_CSV_HEAD } from "../format/csv.ts";
import { ignoreBody, JSON_TYPE, NDJSON_TYPES, readJson, readText, requireType } from "./body.ts";
import { ANSWERS_SHARE } from "./budget.ts";
import { answerPage, openPacker, VARY } from "./pack.ts";
import type { Exchange, Service } from "./exchange.ts";
import {
  answer,
  answerJson,
  answerStored,
  answerText,
  requireRoomToAnswer,
  requireSendable,
} from "./handle.ts";
import {
  chooseForm,
  countParameters,
  isUnmodified,
  linkNext,
  parseCondition,
  parsePlantQuery,
  parseQuery,
  parseWriter,
  tagParameters,
} from "./query.ts";
import { streamPages } from "./stream.ts";

const REPLAYED = { "idempotent-replayed": "true" };

export async function createPlant(exchange: Exchange): Promise<Response> {
  const { service, startedAtMs } = exchange;
  const writer = parseWriter(exchange);
  const text = await readJson(exchange);
  const plant = parseNewPlant(text);
  await requireSendable(exchange, text.length);
  await exchange.requireFree(writer);
  const outcome = await service.store.createPlant(plant, writer);
  if (outcome === "created") service.metrics.countCreates(performance.now() - startedAtMs);
  const headers = outcome === "replayed" ? REPLAYED : undefined;
  return answerStored(exchange, formatPlant(plant), headers);
}

export async function readPlant(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const plant = await service.store.findPlant(parseId(request));
  if (plant === undefined) throw new Refusal("plant_not_found");
  // Checked before serializing, so a refused request builds no body.
  requireRoomToAnswer(exchange, lengthOf(plant));
  const text = formatStoredPlant(plant);
  const etag = entityTagOf(text);
  // Clients may cache it, but must revalidate every time.
  const headers = { etag, "cache-control": "private, no-cache" };
  if (isUnmodified(request.headers, etag)) return answer(304, null, headers);
  return answerText(exchange, text, headers);
}

export async function replacePlant(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const writer = parseWriter(exchange);
  const id = parseId(request);
  const condition = parseCondition(request.headers);
  const text = await readJson(exchange);
  const plant = parseReplacement(text, id);
  await requireSendable(exchange, text.length);
  await exchange.requireFree(writer);
  await service.store.replacePlant(plant, condition, writer);
  const etag = entityTagOf(formatStoredPlant(plant));
  return answerStored(exchange, formatPlant(plant), { etag });
}

export const PATCH_TYPES = ["application/merge-patch+json", JSON_TYPE];

export async function patchPlant(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const writer = parseWriter(exchange);
  const id = parseId(request);
  const condition = parseCondition(request.headers);
  requireType(request.headers, ...PATCH_TYPES);
  const text = await readText(exchange);
  const patch = parsePatchText(text);
  await requireSendable(exchange, text.length);
  await exchange.requireFree(writer);
  const plant = await service.store.patchPlant(id, patch, condition, writer);
  const etag = entityTagOf(formatStoredPlant(plant));
  return answerStored(exchange, formatPlant(plant), { etag });
}

export async function removePlant(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const writer = parseWriter(exchange);
  await ignoreBody(request);
  const [id, condition] = [parseId(request), parseCondition(request.headers)];
  await exchange.requireFree(writer);
  await service.store.removePlant(id, condition, writer);
  return answer(204, null);
}

function parseId({ params }: Exchange["request"]): bigint {
  const id = findPlainInt64(params?.["id"] ?? "");
  if (id === undefined) throw new Refusal("invalid_id");
  return id;
}

const CSV_TYPE = "text/csv";

export async function listPlants(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const form = chooseForm(request.headers.get("accept"), [JSON_TYPE, ...NDJSON_TYPES, CSV_TYPE]);
  if (form === JSON_TYPE) return listPage(exchange);
  const query = parsePlantQuery(request.url, true);
  const isCsv = form === CSV_TYPE;
  if (query.sort !== undefined) exchange.waitLong();
  const packer = openPacker(exchange);
  const body = await streamPages<PlantQuery>(
    exchange,
    query,
    async (from, signal) => {
      const page = await service.store.readPlants(from, isCsv ? "csv" : "ndjson", signal);
      return { text: page.text, next: nextQuery(from, page) };
    },
    {
      heading: isCsv ? (query.hasTimes ? TIMED_CSV_HEAD : CSV_HEAD) : "",
      packer,
      bytesToRead: scanBytesOf(query),
    },
  );
  const type = isCsv ? `${CSV_TYPE}; charset=utf-8; header=present` : form;
  return answer(200, body, { vary: VARY, "content-type": type, ...packer?.headers });
}

/** Undefined after the last page. */
function nextQuery(query: PlantQuery, { next, nextPlace }: PageText): PlantQuery | undefined {
  if (nextPlace !== undefined)
    return { ...query, sort: query.sort && { ...query.sort, after: nextPlace } };
  return next === undefined ? undefined : { ...query, after: next };
}

/** Reserves the memory of a sorted page. Its scan may take long, and ends with the signal. */
export function openSort(exchange: Exchange, query: PlantQuery): AbortSignal | undefined {
  if (query.sort === undefined) return undefined;
  exchange.reserve(exchange.bytesKept + scanBytesOf(query), ANSWERS_SHARE);
  exchange.waitLong();
  return exchange.request.signal;
}

/** Far below the size of a large answer. */
const SMALL_PAGE_CHARACTERS = 4_096;

async function listPage(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const query = parsePlantQuery(request.url, false);
  // While large answers are refused, pages are cut short. A single large plant still makes a large page.
  const { bytesHeld, bytesMax } = service.budget;
  const isFull = bytesHeld > bytesMax * ANSWERS_SHARE;
  const charactersMax = isFull ? SMALL_PAGE_CHARACTERS : undefined;
  const limit = isFull ? Math.min(query.limit, SMALL_PAGE_LENGTH) : query.limit;
  const cut = { ...query, limit, charactersMax };
  const page = service.store.readPlants(cut, "json", openSort(exchange, cut));
  // On SQLite without an await: the answer holds its memory before the next request of the tick reads its page.
  const { text, next, nextPlace } = page instanceof Promise ? await page : page;
  const { sort } = query;
  const link =
    sort === undefined || nextPlace === undefined
      ? linkNext(exchange, query.limit, next)
      : linkNext(exchange, query.limit, formatCursor(sort, nextPlace), "cursor");
  return answerPage(exchange, text, { vary: VARY, ...link });
}

export async function countPlants(exchange: Exchange): Promise<Response> {
  const { request, service } = exchange;
  const query = parseQuery(request.url, countParameters);
  const { count, exact, next } = await service.store.countPlants(query);
  return answer(200, JSON.stringify({ count, exact }), linkNext(exchange, undefined, next));
}

/** Deadline after which a page of counts is cut short. */
const TAG_COUNTS_MS_MAX = 1_000;

export const answerTags =
  (hasCounts: boolean) =>
  async (exchange: Exchange): Promise<Response> => {
    const { request, service } = exchange;
    const { limit, ...query } = parseQuery(request.url, tagParameters);
    const page = await service.store.listTags({ ...query, limit });
    const { tags, next } = hasCounts ? await countTags(service.store, page) : page;
    return answerJson(exchange, tags, linkNext(exchange, limit, next));
  };

/** At least one tag is counted, so every page gets further. */
export async function countTags(
  store: Pick<Service["store"], "countPlants">,
  { tags, next }: TagPage,
  nowMs = () => performance.now(),
) {
  const endsAtMs = nowMs() + TAG_COUNTS_MS_MAX;
  const counted: { readonly tag: string; readonly count: number; readonly exact: boolean }[] = [];
  for (const tag of tags) {
    if (counted.length > 0 && nowMs() > endsAtMs) break;
    const { count, exact } = await store.countPlants({ tag });
    counted.push({ tag, count, exact });
  }
  return { tags: counted, next: counted.length < tags.length ? counted.at(-1)?.tag : next };
}
